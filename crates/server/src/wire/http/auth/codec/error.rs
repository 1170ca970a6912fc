//! Why there is no verdict.

use std::net::IpAddr;

use axum::http::{HeaderName, StatusCode};
use sluicegate::DecideError;
use sluicegate::gateway::PathError;
use sluicegate_text::terminal;

use crate::authenticator::CallerError;
use crate::wire::http::codec::Problem;

/// Where a gateway shows its own token: what stands in `Authorization` is its client's.
pub(in crate::wire::http::auth) const TOKEN: HeaderName =
    HeaderName::from_static("x-sluicegate-token");

/// What is wrong with what a gateway asks, or with what its client wrote.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(in crate::wire::http::auth) enum AuthError {
    /// Whoever asks is no gateway.
    #[error("peer `{0}` is not in http.trusted_peers: its forwarded headers are ignored")]
    Untrusted(IpAddr),
    /// The gateway does not show the token that it should, or one that is not good.
    #[error("{TOKEN}: {0}")]
    Refused(CallerError),
    /// The listener does not permit to check.
    #[error("{0}")]
    NotPermitted(CallerError),
    /// Nothing says which app's request it is. A gateway would take 401 or 403 for a verdict and tell its
    /// client that it is over the limit.
    #[error("app: {}", CallerError::NoApp)]
    NoApp,
    /// The gateway does not say what is asked of it.
    #[error("{0}: is missing, as is {1}")]
    Missing(&'static str, &'static str),
    /// A gateway sets one field; the other is the client's.
    #[error("{0}: differs from {1}")]
    Differ(&'static str, &'static str),
    /// Nobody can tell which counts.
    #[error("{0}: is given twice")]
    Twice(String),
    /// A field is no text.
    #[error("{0}: is not ASCII")]
    NoText(&'static str),
    /// The path makes no sense.
    #[error("path: {0}")]
    Path(#[from] PathError),
    /// The query of `/v1/auth` itself.
    #[error("query: {0}")]
    Query(String),
    /// There is no policy of the name in the path, but maybe another was meant.
    #[error("{}{}", terminal::decide_error(.error), .near.as_deref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    NoPolicy {
        /// That.
        error: DecideError,
        /// The policy that was most likely meant.
        near: Option<String>,
    },
    /// The engine does not decide.
    #[error("{}", terminal::decide_error(.0))]
    Undecided(#[from] DecideError),
}

impl AuthError {
    /// Gateways pass on what is no verdict. To their clients, what an operator has to mend is an error
    /// of the server.
    fn status(&self) -> StatusCode {
        match self {
            Self::Differ(..) | Self::Twice(_) | Self::NoText(_) | Self::Path(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Undecided(DecideError::Store(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Untrusted(_)
            | Self::Refused(_)
            | Self::NotPermitted(_)
            | Self::NoApp
            | Self::Missing(..)
            | Self::Query(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::NoPolicy { .. } | Self::Undecided(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        let problem = Self::new(error.status(), error.to_string());
        match error {
            AuthError::Undecided(error) => problem.charged(error.charged()),
            _ => problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::Charged;
    use sluicegate::store::{Executed, StoreError};

    use super::*;

    #[test]
    fn a_gateway_learns_whether_a_request_that_was_not_decided_was_charged() {
        let charged = |executed| {
            let error = DecideError::Store(StoreError::Overloaded { executed });
            let body = Problem::from(AuthError::Undecided(error)).encode();
            String::from_utf8(body).expect("JSON is text")
        };
        let says = |charged: Charged| format!(r#""charged":"{}"}}"#, charged.name());
        assert!(charged(Executed::No).ends_with(&says(Charged::No)));
        assert!(charged(Executed::Perhaps).ends_with(&says(Charged::Unknown)));
    }
}
