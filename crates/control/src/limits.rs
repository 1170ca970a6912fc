//! The named bounds of the catalog, each with its reason.

/// Longest name of an app, a policy or a token in bytes, as everywhere.
pub use sluicegate_kernel::limits::NAME_BYTES_MAX;

/// Longest name of an account in bytes: an e-mail address.
pub const ACCOUNT_BYTES_MAX: usize = 128;

/// Longest reason of a change, and longest description of an app, in characters: a paragraph.
pub const TEXT_CHARS_MAX: usize = 1_000;

/// Largest document of one policy in bytes.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// Maximum number of policies of an app: a quarter of all that there can be, so that no app takes the place of
/// the others, and that many changed at once keep others waiting for seconds only.
pub const POLICIES_OF_APP_MAX: usize = 2_500;

/// Maximum number of apps: each has people of its own, whose number limits it.
pub const APPS_MAX: i64 = 10_000;

/// Maximum number of members of an app: a department.
pub const MEMBERS_MAX: i64 = 1_000;

/// Maximum number of accounts: everybody in a large company.
pub const ACCOUNTS_MAX: i64 = 100_000;

/// Maximum number of tokens of an app that are neither revoked nor expired: two for each of fifty programs.
pub const TOKENS_MAX: i64 = 100;

/// Maximum number of tokens of one name at a time: the one in use, and the one that takes its place.
pub const TOKENS_OF_NAME_MAX: i64 = 2;

/// Maximum number of items on a page of a list, and the default.
pub const PAGE_MAX: u32 = 1_000;
pub(crate) const PAGE: u32 = 100;

/// Maximum number of items on a page that have documents, such as policies and audit entries: 13 MB at most,
/// and a thousand of them would be ten times that.
pub const PAGE_OF_DOCUMENTS_MAX: u32 = 100;

/// Longest idempotency key, in bytes: a UUID, or the words of a person.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// Maximum number of answers that are kept for one account or token: a change every nine seconds, all day.
pub const ANSWERS_MAX: i64 = 10_000;

/// Versions that are kept of each policy, unless the catalog is opened with another number: what people
/// still look up, and at the largest size 64 MB.
pub const VERSIONS: i64 = 1_000;

/// Time for which an answer is kept for a repeated request, in milliseconds: a day, as elsewhere.
pub const ANSWER_MS: i64 = 24 * 60 * 60 * 1_000;
