//! Reasons why there is no verdict.

use std::net::IpAddr;

use axum::http::{HeaderName, StatusCode};
use sluicegate::DecideError;
use sluicegate::internals::gateway::PathError;
use sluicegate_text::terminal;

use crate::authenticator::CallerError;
use crate::wire::http::codec::Problem;

/// The header field of the gateway's own token: `Authorization` belongs to its client.
pub(in crate::wire::http::auth) const TOKEN: HeaderName =
    HeaderName::from_static("x-sluicegate-token");

/// The problem of a gateway's request, or of its client's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(in crate::wire::http::auth) enum AuthError {
    /// The peer is not a trusted gateway.
    #[error("peer `{0}` is not in http.trusted_peers: its forwarded headers are ignored")]
    Untrusted(IpAddr),
    /// The gateway's token is missing, or is not valid for this.
    #[error("{TOKEN}: {0}")]
    Refused(CallerError),
    /// The listener does not permit checks.
    #[error("{0}")]
    NotPermitted(CallerError),
    /// The request has no app. A gateway would take 401 or 403 for a verdict and tell its client that it
    /// is over the limit.
    #[error("app: {}", CallerError::NoApp)]
    NoApp,
    /// The gateway does not describe the request.
    #[error("{0}: is missing, as is {1}")]
    Missing(&'static str, &'static str),
    /// Two fields differ: a gateway sets one, and the other is the client's.
    #[error("{0}: differs from {1}")]
    Differ(&'static str, &'static str),
    /// A field is given twice, and it is unclear which one counts.
    #[error("{0}: is given twice")]
    Twice(String),
    /// A field is not ASCII.
    #[error("{0}: is not ASCII")]
    NoText(&'static str),
    /// The path is invalid.
    #[error("path: {0}")]
    Path(#[from] PathError),
    /// The query of `/v1/auth` itself is invalid.
    #[error("query: {0}")]
    Query(String),
    /// There is no policy with the name in the path, but maybe another was meant.
    #[error("{}{}", terminal::decide_error(.error), .near.as_deref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())]
    NoPolicy {
        /// The error of the engine.
        error: DecideError,
        /// The policy that was most likely meant.
        near: Option<String>,
    },
    /// The engine did not decide.
    #[error("{}", terminal::decide_error(.0))]
    Undecided(#[from] DecideError),
}

impl AuthError {
    /// Gateways pass on a status that is not a verdict. To their clients, a mistake of an operator is
    /// an error of the server.
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
    use sluicegate::internals::store::Executed;
    use sluicegate::store::StoreError;

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
