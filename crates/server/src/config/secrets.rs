//! The keys of secrets, and those of files that contain them.

/// The suffix of a key that names a file with the value.
pub(super) const FILE_SUFFIX: &str = "_file";

/// The keys that may be given as files: those that hold secrets.
pub(super) const SECRETS: [&[&str]; 4] = [
    &["store", "url"],
    &["resp", "password"],
    &["catalog", "url"],
    &["catalog", "oidc", "client_secret"],
];
