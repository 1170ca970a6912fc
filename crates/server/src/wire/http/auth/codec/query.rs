//! The query of `/v1/auth`: the status that the gateway understands, and its app.

use axum::http::StatusCode;
use sluicegate_text::terminal::one_line;

use super::AuthError;
use crate::wire::http::deny::deny_status;

/// The options of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire::http::auth) struct Query<'a> {
    /// The status of a refusal.
    pub(in crate::wire::http::auth) deny: StatusCode,
    /// The app that the gateway acts for.
    pub(in crate::wire::http::auth) app: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// Reads a query, without its `?`.
    ///
    /// An unknown field is refused: some gateways pass on the query of their client unless they are
    /// configured otherwise, and clients must not choose the answer.
    pub(in crate::wire::http::auth) fn decode(text: &'a str) -> Result<Self, AuthError> {
        let (mut deny, mut app) = (None, None);
        for field in text.split('&').filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let before = match name {
                "deny" => deny.replace(value),
                "app" => app.replace(value),
                _ => {
                    let name = one_line(name);
                    let problem = format!("unknown field `{name}`, expected `deny` or `app`");
                    return Err(AuthError::Query(problem));
                }
            };
            if before.is_some() {
                return Err(AuthError::Query(format!("`{name}` is given twice")));
            }
        }
        let deny = deny.map_or(Ok(StatusCode::TOO_MANY_REQUESTS), deny_status);
        Ok(Self { deny: deny.map_err(AuthError::Query)?, app })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_how_to_refuse_and_for_whom() {
        let plain = Query { deny: StatusCode::TOO_MANY_REQUESTS, app: None };
        assert_eq!(Query::decode(""), Ok(plain));
        assert_eq!(Query::decode("deny=429&"), Ok(plain));
        let nginx = Query { deny: StatusCode::FORBIDDEN, app: Some("shop") };
        assert_eq!(Query::decode("app=shop&deny=403"), Ok(nginx));
        let as_limit_conn = Query { deny: StatusCode::SERVICE_UNAVAILABLE, app: None };
        assert_eq!(Query::decode("deny=503"), Ok(as_limit_conn));
    }

    #[test]
    fn what_a_client_wrote_into_the_query_is_no_query() {
        for (query, problem) in [
            ("deny=200", "query: deny: `200` is invalid, expected a status 400..=599"),
            ("deny", "query: deny: `` is invalid, expected a status 400..=599"),
            ("deny=429&deny=403", "query: `deny` is given twice"),
            ("page=2", "query: unknown field `page`, expected `deny` or `app`"),
        ] {
            assert_eq!(Query::decode(query).unwrap_err().to_string(), problem);
        }
    }
}
