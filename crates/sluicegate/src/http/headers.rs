//! The header fields that report a client's budget.
//!
//! | field | on | example |
//! |---|---|---|
//! | `RateLimit-Policy` | every response | `"burst";q=100;w=60, "hourly";q=5000;w=3600` |
//! | `RateLimit` | every response | `"burst";r=50;t=30` |
//! | `Retry-After` | a refusal that can pass later | `30` |
//!
//! `q` is the limit and `w` the seconds in which all of it comes back; `w` is left out if that is
//! not a whole number of seconds, or not the same for every window. `r` is what remains, rounded down.
//! `t`, rounded up, is the time until the budget is full, or on a refusal until the same request can
//! pass, as in `Retry-After`. Seconds of a refusal are at least 1.
//!
//! Source: draft-ietf-httpapi-ratelimit-headers-10; names are strings of RFC 9651.

use std::fmt::Write;

use ::http::header::RETRY_AFTER;
use ::http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate_kernel::{Decision, Micros, Rule};

/// `RateLimit-Policy`: the limits.
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// `RateLimit`: the remaining permits.
pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// `X-Sluicegate-Mode`, of a decision made without the store: `local`, `allow`, `deny` or `shed`.
pub const MODE: HeaderName = HeaderName::from_static("x-sluicegate-mode");

/// A set of header fields that report a client's budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderFormat {
    /// `RateLimit-Policy` and `RateLimit`, the tenth IETF draft.
    Draft10,
    /// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, the sixth IETF draft.
    Draft06,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`, as many APIs have it.
    /// The reset is a number of seconds from now, not an instant.
    XRateLimit,
}

impl HeaderFormat {
    /// Adds the fields of `decision`, which the rule called `name` made; `policy` is the value of
    /// [`rate_limit_policy`] for all rules.
    ///
    /// Lists are added to lists, so that limits behind one another all show. Of the older fields
    /// there can be only one: a field that is there already stays.
    #[doc(hidden)]
    pub fn add_to(
        self,
        headers: &mut HeaderMap,
        name: &str,
        decision: &Decision,
        policy: &HeaderValue,
    ) {
        let names = match self {
            Self::Draft10 => {
                headers.append(RATELIMIT_POLICY, policy.clone());
                headers.append(RATELIMIT, rate_limit(name, decision));
                return;
            }
            Self::Draft06 => ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"],
            Self::XRateLimit => ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"],
        };
        let values = [decision.limit, decision.remaining, reset_s(decision)];
        for (name, value) in names.into_iter().zip(values) {
            headers.entry(name).or_insert_with(|| HeaderValue::from(value));
        }
    }
}

/// Returns the value of `RateLimit-Policy` for `rules` and their names. It only changes with the rules:
/// make it once.
///
/// ```
/// use sluicegate::{Rate, Rule, TokenBucket};
///
/// let rule = Rule::from(TokenBucket::new(Rate::per_second(5)?, 300)?);
/// let value = sluicegate::internals::http::headers::rate_limit_policy([("burst", &rule)]);
/// assert_eq!(value, "\"burst\";q=300;w=60");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rate_limit_policy<'a>(rules: impl IntoIterator<Item = (&'a str, &'a Rule)>) -> HeaderValue {
    let mut value = String::new();
    for (name, rule) in rules {
        if !value.is_empty() {
            value.push_str(", ");
        }
        push_sf_string(&mut value, name);
        push_number(&mut value, ";q=", rule.limit());
        if rule.holds_permits() {
            value.push_str(";qu=\"concurrent-requests\"");
        }
        if let Some(window_s) = window_s(rule) {
            push_number(&mut value, ";w=", window_s);
        }
    }
    field(value)
}

/// Returns the value of `RateLimit` for `decision`, which the rule called `name` made.
///
/// ```
/// use sluicegate::internals::kernel::Outcome;
/// use sluicegate::{Decision, Micros};
///
/// let outcome = Outcome::Allow { granted: 1, wait: Micros::ZERO };
/// let reset_after = Micros::new(29_000_001);
/// let decision = Decision { outcome, limit: 100, remaining: 50, reset_after };
/// let value = sluicegate::internals::http::headers::rate_limit("burst", &decision);
/// assert_eq!(value, "\"burst\";r=50;t=30");
/// ```
pub fn rate_limit(name: &str, decision: &Decision) -> HeaderValue {
    let mut value = String::with_capacity(VALUE_BYTES);
    push_sf_string(&mut value, name);
    push_number(&mut value, ";r=", decision.remaining);
    push_number(&mut value, ";t=", reset_s(decision));
    field(value)
}

/// Returns the value of `Retry-After`: whole seconds, rounded up, at least 1. `None` unless `decision` is a
/// refusal of a request that can pass later.
pub fn retry_after(decision: &Decision) -> Option<HeaderValue> {
    match decision.retry_after() {
        Some(span) if !decision.allowed() => Some(HeaderValue::from(at_least_1s(span))),
        _ => None,
    }
}

/// Adds `Retry-After` to a refusal, and replaces an existing one.
pub fn add_retry_after(headers: &mut HeaderMap, decision: &Decision) {
    if let Some(value) = retry_after(decision) {
        headers.insert(RETRY_AFTER, value);
    }
}

fn reset_s(decision: &Decision) -> u64 {
    match decision.retry_after() {
        // A client that waits for `t` must not come before it can pass.
        Some(span) if !decision.allowed() => at_least_1s(span),
        _ => decision.reset_after.ceil_secs(),
    }
}

fn at_least_1s(span: Micros) -> u64 {
    span.ceil_secs().max(1)
}

/// Returns the seconds in which the whole limit of `rule` comes back, the value of `w`. `None` if that
/// is not a whole number of seconds, or not the same for every window.
pub fn window_s(rule: &Rule) -> Option<u64> {
    let window_us = rule.window()?.get();
    let second = Micros::SECOND.get();
    (window_us >= second && window_us.is_multiple_of(second)).then(|| window_us / second)
}

/// Appends a string of RFC 9651, section 3.3.3. Other characters are percent-encoded.
fn push_sf_string(value: &mut String, text: &str) {
    value.push('"');
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.bytes().all(is_plain) {
        // The case of all names of policies and rules.
        value.push_str(text);
        value.push('"');
        return;
    }
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => value.extend(['\\', char::from(byte)]),
            b' '..=b'~' => value.push(char::from(byte)),
            other => write!(value, "%{other:02x}").expect("a String takes all text"),
        }
    }
    value.push('"');
}

/// Appends an integer of RFC 9651, section 3.3.1: of 15 digits at most.
fn push_number(value: &mut String, name: &str, number: u64) {
    value.push_str(name);
    value.push_str(itoa::Buffer::new().format(number.min(INTEGER_MAX)));
}

fn field(value: String) -> HeaderValue {
    HeaderValue::try_from(value).expect("all of it is printable ASCII")
}

/// Room for the value of most `RateLimit` fields.
const VALUE_BYTES: usize = 64;

const INTEGER_MAX: u64 = 999_999_999_999_999;
