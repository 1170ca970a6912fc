//! Why something of the catalog was not done.

use crate::access::AccessDenied;

/// Why something was not done. Nothing has changed, unless it is [`Unknown`](Self::Unknown).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field makes no sense, or a document does not: all that is wrong, at least one.
    #[error("{}", listed(.0))]
    Invalid(Vec<InvalidField>),
    /// There is none of this name.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// There is one of this name already.
    #[error("the name already exists")]
    Taken,
    /// It is not what it was when the one who changes it looked at it.
    #[error("version conflict: the current version is {0}")]
    Stale(i64),
    /// It cannot be as things are.
    #[error("{0}")]
    Conflict(String),
    /// It would lock out those whom it is for, and was not forced.
    #[error("{}; set `force` to do it anyway", .0.join("; "))]
    Warned(Vec<String>),
    /// The same name was given to another change before.
    #[error("the idempotency key was already used for a different request")]
    KeyReused,
    /// Not for this one.
    #[error(transparent)]
    Denied(#[from] AccessDenied),
    /// There are too many of them.
    #[error("limit reached: at most {0}")]
    TooMany(String),
    /// Too many ask for this at once.
    #[error("too many concurrent requests; retry in 1 s")]
    Busy,
    /// The database does not do what it is told, or is not there.
    #[error("database: {0}")]
    Database(String),
    /// The database did not say whether it was done. Whoever asks again with the same idempotency key
    /// is told.
    #[error("outcome unknown, the database did not confirm: {0}")]
    Unknown(String),
    /// What is in the database is not what is written there.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
}

/// One thing that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidField {
    /// Where, as a JSON pointer into what was sent (RFC 6901).
    pub pointer: String,
    /// What was given there and what is permitted.
    pub problem: String,
}

impl Error {
    /// The only error: what is at `pointer` makes no sense.
    pub(crate) fn invalid(pointer: &str, problem: impl Into<String>) -> Self {
        Self::Invalid(vec![InvalidField { pointer: pointer.to_owned(), problem: problem.into() }])
    }
}

fn listed(errors: &[InvalidField]) -> String {
    let lines = errors.iter().map(|InvalidField { pointer, problem }| match pointer.as_str() {
        "" => problem.clone(),
        pointer => format!("{pointer}: {problem}"),
    });
    lines.collect::<Vec<_>>().join("; ")
}
