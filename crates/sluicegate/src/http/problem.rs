//! Bodies of errors: problem details as JSON (RFC 9457).

use std::fmt::Write;

use ::http::StatusCode;
use sluicegate_kernel::Decision;

/// The media type of these bodies.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// The problem type of a request over its limit.
///
/// Source: draft-ietf-httpapi-ratelimit-headers-10, section 5.1.
pub const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The problem type of a request that is refused because the store did not decide.
///
/// Source: draft-ietf-httpapi-ratelimit-headers-10, section 5.2.
pub const REDUCED_CAPACITY: &str =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// The title of [`REDUCED_CAPACITY`].
pub const REDUCED_CAPACITY_TITLE: &str =
    "Request cannot be satisfied due to temporary server capacity constraints";

/// Returns the body of a 429: `decision` refused, because of the policies or rules `violated`.
///
/// ```
/// use sluicegate::internals::kernel::{Outcome, Retry};
/// use sluicegate::{Decision, Micros};
///
/// let outcome = Outcome::Deny { retry: Retry::After(Micros::SECOND) };
/// let decision =
///     Decision { outcome, limit: 10, remaining: 0, reset_after: Micros::from_secs(10) };
/// let body = sluicegate::internals::http::problem::quota_exceeded(["burst"], &decision);
/// assert!(body.ends_with(r#""violated-policies":["burst"]}"#));
/// ```
pub fn quota_exceeded<'a>(
    violated: impl IntoIterator<Item = &'a str>,
    decision: &Decision,
) -> String {
    let detail = refusal_detail(decision);
    let title = "Request cannot be satisfied as assigned quota has been exceeded";
    let mut body = members(QUOTA_EXCEEDED, title, StatusCode::TOO_MANY_REQUESTS, &detail);
    body.push_str(",\"violated-policies\":[");
    for (place, name) in violated.into_iter().enumerate() {
        if place > 0 {
            body.push(',');
        }
        push_string(&mut body, name);
    }
    body.push_str("]}");
    body
}

/// Returns the body of a 503: the store did not decide, and the client may retry after `retry_s` seconds.
pub fn reduced_capacity(retry_s: u64) -> String {
    let (status, detail) = (StatusCode::SERVICE_UNAVAILABLE, format!("retry in {retry_s} s"));
    let mut body = members(REDUCED_CAPACITY, REDUCED_CAPACITY_TITLE, status, &detail);
    body.push('}');
    body
}

/// Returns the `detail` of a refused decision: when to try again, in whole seconds, or that the cost never passes. For
/// an acquisition, whose id may be held already, use [`acquisition_detail`].
pub fn refusal_detail(decision: &Decision) -> String {
    match decision.retry_after() {
        Some(span) => format!("retry in {} s", span.ceil_secs().max(1)),
        None => format!("the cost exceeds the limit of {}", decision.limit),
    }
}

/// Returns the `detail` of a refused acquisition: an id that is held is refused like a cost above the limit.
pub fn acquisition_detail(decision: &Decision) -> String {
    match decision.retry_after() {
        Some(_) => refusal_detail(decision),
        None => format!("the id is held, or the cost exceeds the limit of {}", decision.limit),
    }
}

/// Returns the body of any other problem: the meaning of `status`, and `detail`.
pub fn plain(status: StatusCode, detail: &str) -> String {
    let title = status.canonical_reason().unwrap_or("Error");
    let mut body = members("about:blank", title, status, detail);
    body.push('}');
    body
}

/// Returns the members that every problem has; the object is left open.
fn members(kind: &str, title: &str, status: StatusCode, detail: &str) -> String {
    let mut body = String::from("{\"type\":");
    push_string(&mut body, kind);
    body.push_str(",\"title\":");
    push_string(&mut body, title);
    body.push_str(",\"status\":");
    body.push_str(status.as_str());
    body.push_str(",\"detail\":");
    push_string(&mut body, detail);
    body
}

fn push_string(body: &mut String, text: &str) {
    body.push('"');
    for character in text.chars() {
        match character {
            '"' => body.push_str("\\\""),
            '\\' => body.push_str("\\\\"),
            control if control < ' ' => {
                write!(body, "\\u{:04x}", u32::from(control)).expect("a String takes all text");
            }
            other => body.push(other),
        }
    }
    body.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_json_wants_it() {
        let body = plain(StatusCode::BAD_REQUEST, "a \"b\" \\ \n ü");
        let detail = r#""detail":"a \"b\" \\ \u000a ü"}"#;
        assert_eq!(
            body,
            format!(r#"{{"type":"about:blank","title":"Bad Request","status":400,{detail}"#)
        );
    }
}
