//! The named bounds of the catalog. Each says why it is what it is.

/// Longest name of an app, a policy or a token in bytes, as everywhere.
pub use sluicegate_kernel::limits::NAME_BYTES_MAX;

/// Longest name of an account in bytes: an address of mail.
pub const ACCOUNT_BYTES_MAX: usize = 128;

/// Longest reason of a change, and longest description of an app, in characters: a paragraph.
pub const TEXT_CHARS_MAX: usize = 1_000;

/// Largest document of one policy in bytes: that of a body.
pub const DOCUMENT_BYTES_MAX: usize = 64 << 10;

/// Most policies of an app: a quarter of all that there can be, so that none takes the place of the
/// others, and that many changed at once keep others waiting for seconds only.
pub const POLICIES_OF_APP_MAX: usize = 2_500;

/// Most apps: each with its people, who are not many more than there are.
pub const APPS_MAX: i64 = 10_000;

/// Most members of an app: a department.
pub const MEMBERS_MAX: i64 = 1_000;

/// Most accounts: everybody in a large company.
pub const ACCOUNTS_MAX: i64 = 100_000;

/// Most tokens of an app that are neither revoked nor expired: two for each of fifty programs.
pub const TOKENS_MAX: i64 = 100;

/// Most tokens of one name at a time: the one in use, and the one that takes its place.
pub const TOKENS_OF_NAME_MAX: i64 = 2;

/// Most things on a page of a list, and how many if it is not said.
pub const PAGE_MAX: u32 = 1_000;
pub(crate) const PAGE: u32 = 100;

/// Most of those on a page that have documents, such as policies and what the audit says of them: 13 MB
/// at most, and a thousand of them would be ten times that.
pub const PAGE_OF_DOCUMENTS_MAX: u32 = 100;

/// Longest name for a change that may be asked for again, in bytes: a UUID, or the words of a person.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// Most answers that are kept for one account or token: a change every nine seconds, all day.
pub const ANSWERS_MAX: i64 = 10_000;

/// Versions that are kept of each policy, unless the catalog is opened with another number: what somebody
/// still looks up, and at the largest size 64 MB.
pub const VERSIONS: i64 = 1_000;

/// How long an answer is kept for who asks again, in milliseconds: a day, as elsewhere.
pub const ANSWER_MS: i64 = 24 * 60 * 60 * 1_000;
