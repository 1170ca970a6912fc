//! A request that is not answered with a decision, and the one place that maps it to a status.

use sluicegate::DecideError;
use sluicegate_text::terminal;
use tonic::{Code, Status};

use crate::authenticator::CallerError;

/// The reason why a request was not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::wire::rls) enum RlsError {
    /// The request is invalid: where, and why.
    Invalid(String),
    /// The caller is refused.
    Caller(CallerError),
    /// The engine did not decide.
    Undecided(DecideError),
}

impl RlsError {
    /// Adds the place of the descriptor with the problem.
    pub(super) fn of_descriptor(self, place: usize) -> Self {
        match self {
            Self::Invalid(problem) => Self::Invalid(format!("descriptors[{place}].{problem}")),
            other => other,
        }
    }

    /// The message for people.
    pub(in crate::wire::rls) fn message(&self) -> String {
        match self {
            Self::Invalid(problem) => problem.clone(),
            Self::Caller(refused @ CallerError::Verb(_)) => refused.to_string(),
            Self::Caller(refused) => format!("authorization: {refused}"),
            Self::Undecided(error) => terminal::decide_error(error),
        }
    }

    /// The gRPC status.
    pub(in crate::wire::rls) const fn code(&self) -> Code {
        match self {
            Self::Caller(CallerError::Missing | CallerError::Unknown | CallerError::Expired) => {
                Code::Unauthenticated
            }
            Self::Caller(
                CallerError::Scope(_)
                | CallerError::App
                | CallerError::NoApp
                | CallerError::Verb(_),
            ) => Code::PermissionDenied,
            Self::Undecided(DecideError::UnknownPolicy(_)) => Code::NotFound,
            Self::Undecided(DecideError::Unconfigured { .. }) => Code::PermissionDenied,
            Self::Undecided(DecideError::Store(_)) => Code::Unavailable,
            Self::Invalid(_) | Self::Undecided(_) => Code::InvalidArgument,
        }
    }
}

impl From<DecideError> for RlsError {
    fn from(error: DecideError) -> Self {
        Self::Undecided(error)
    }
}

impl From<CallerError> for RlsError {
    fn from(refused: CallerError) -> Self {
        Self::Caller(refused)
    }
}

impl From<RlsError> for Status {
    fn from(refusal: RlsError) -> Self {
        Self::new(refusal.code(), refusal.message())
    }
}
