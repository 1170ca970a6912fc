//! The status of a refusal, which a caller chooses by `?deny=STATUS`.

use std::ops::RangeInclusive;

use axum::http::StatusCode;
use sluicegate_text::terminal::one_line;

/// Statuses of a refusal: errors of the client or the server. nginx permits the same for `limit_req_status`.
pub(super) const STATUSES: RangeInclusive<u16> = 400..=599;

/// Reads the value of `deny`. An error names the permitted range.
pub(super) fn deny_status(value: &str) -> Result<StatusCode, String> {
    let status = value.parse().ok().filter(|status| STATUSES.contains(status));
    let is_plain = value.len() == 3;
    status.filter(|_| is_plain).and_then(|status| StatusCode::from_u16(status).ok()).ok_or_else(
        || format!("deny: `{}` is invalid, expected a status 400..=599", one_line(value)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_a_status_of_an_error() {
        for status in [400, 403, 429, 503, 599] {
            assert_eq!(deny_status(&status.to_string()).map(|status| status.as_u16()), Ok(status));
        }
        for value in ["", "200", "399", "600", "+429", "0429", "4e2", "x\n"] {
            let wrong = format!(
                "deny: `{}` is invalid, expected a status 400..=599",
                value.replace('\n', "\\n")
            );
            assert_eq!(deny_status(value), Err(wrong));
        }
    }
}
