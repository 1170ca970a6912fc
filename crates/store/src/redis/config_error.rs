//! Errors of a configuration: each names the field and its range.

use sluicegate_net::tls::AuthoritiesError;

/// Why a configuration cannot be used. No message contains a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisConfigError {
    /// The URL starts with no known scheme.
    #[error(
        "scheme: expected redis, rediss, unix, redis+sentinel, rediss+sentinel, redis+cluster \
         or rediss+cluster, such as `redis://127.0.0.1:6379`"
    )]
    Scheme,
    /// A required part is missing.
    #[error("{field}: is missing")]
    Missing {
        /// The part.
        field: &'static str,
    },
    /// The master that Sentinels are asked for has no name.
    #[error("master name: is missing, such as `redis+sentinel://{hosts}/mymaster`")]
    NoMasterName {
        /// The Sentinels, as they were given.
        hosts: String,
    },
    /// A part cannot be read.
    #[error("{field}: `{value}` is not {expected}")]
    Malformed {
        /// The part.
        field: &'static str,
        /// The given text.
        value: String,
        /// The expected form.
        expected: &'static str,
    },
    /// User or password contain characters that end them.
    #[error("user and password: `/`, `?`, `#`, `@` and `%` must be percent-encoded")]
    Credentials,
    /// A number is outside its range.
    #[error("{field}: `{value}` is {}{min}..={max}", not_whole_or_outside(.value))]
    Range {
        /// The option.
        field: &'static str,
        /// The given text.
        value: String,
        /// The smallest permitted.
        min: u64,
        /// The largest permitted.
        max: u64,
    },
    /// There is no such option.
    #[error(
        "unknown option `{name}`, expected `connections`, `deadline_ms`, `connect_timeout_ms`, \
         `joined_max`, `database`, `ca_file`, `sentinel_user` or `sentinel_password`"
    )]
    UnknownOption {
        /// The given name.
        name: String,
    },
    /// A part cannot be used as it is, or not with the others.
    #[error("{field}: {reason}")]
    Unusable {
        /// The part.
        field: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// The authorities to trust cannot be loaded.
    #[error("ca_file: {0}")]
    Authorities(AuthoritiesError),
}

/// Returns how `value` misses a range of numbers.
fn not_whole_or_outside(value: &str) -> &'static str {
    let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { "outside " } else { "not a whole number " }
}
