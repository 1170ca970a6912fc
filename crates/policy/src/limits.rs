//! The named bounds of documents. Each says why it is what it is.

use sluicegate_kernel::Micros;

/// Longest document in bytes: 8 MiB, ten thousand policies of the size that people write.
pub const DOCUMENT_BYTES_MAX: usize = 8 << 20;

/// Deepest nesting of a document. The deepest field is eight levels deep
/// (`policies[].overrides[].rules[].token_bucket.rate`); the rest is room for a clear message.
pub const DEPTH_MAX: usize = 16;

/// Most values of a document once aliases are expanded: fifty for each of ten thousand policies. It bounds the growth
/// of a few bytes of aliases.
pub const NODES_MAX: usize = 500_000;

/// Values that aliases may add to any document, however short: a thousand policies may share an anchor of
/// ten values.
pub(crate) const ALIASED_NODES_MIN: usize = 10_000;

/// Most policies of one set. Gateways match them one after the other; a thousand times what a
/// person keeps in mind, and still compiled in well under a second.
pub const POLICIES_MAX: usize = 10_000;

/// Most overrides of one policy. More keys with their own rules need a policy of their own.
pub const OVERRIDES_MAX: usize = 1_000;

/// Most apps that one policy admits by name; to admit more, write `*`.
pub const APPS_MAX: usize = 1_000;

/// Most methods of one `match`: HTTP registers about forty, and a policy for all needs no list.
pub const METHODS_MAX: usize = 40;

/// Most cases of one `match`, and most exceptions of one case: a site has dozens of places with limits of their
/// own. Each is compared with every request of a gateway.
pub const MATCHES_MAX: usize = 256;

/// Most hosts of one case of a `match`: the names of a large site.
pub const HOSTS_MAX: usize = 64;

/// Longest name of a host in bytes, as in DNS.
pub const HOST_BYTES_MAX: usize = 253;

/// Most attributes that make up a key: all there are, and one header.
pub const KEY_PARTS_MAX: usize = 8;

/// Most descriptors of one tree: two for each of as many policies as there can be.
pub const DESCRIPTORS_MAX: usize = 2 * POLICIES_MAX;

/// Most entries of one descriptor. Gateways send two or three; the parts of a key are as many.
pub const ENTRIES_MAX: usize = 16;

/// Most `*` of one key or value of a descriptor: each costs a search of its own at every request, and a
/// path has hardly more parts.
pub const STARS_MAX: usize = 16;

/// Longest text of a path, a target or a header's value in bytes: what most proxies take.
pub const TEXT_BYTES_MAX: usize = 4_096;

/// Longest name of a method, a header or a tag in bytes, as for names of policies.
pub const TOKEN_BYTES_MAX: usize = 128;

/// Longest body of a `degrade` response in bytes: it is held in memory and written often.
pub const BODY_BYTES_MAX: usize = 64 << 10;

/// Most headers of a `degrade` response.
pub const HEADERS_MAX: usize = 32;

/// Longest wait for a store that has too much to do: callers give up before.
pub const OVERLOAD_WAIT_MAX: Micros = Micros::from_secs(10);

/// Most errors that one document reports. A person corrects a few and tries again.
pub const ERRORS_MAX: usize = 100;

pub(crate) use sluicegate_kernel::limits::EXCERPT_CHARS_MAX;

/// Longest message of the YAML library that is repeated unchanged: its own words are shorter.
pub(crate) const PROBLEM_BYTES_MAX: usize = 200;
