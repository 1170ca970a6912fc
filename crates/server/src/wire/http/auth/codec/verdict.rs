//! The answers to gateways, in statuses and header fields: the mapping of this wire.
//!
//! | way | status | fields beside those of the limits |
//! |---|---|---|
//! | through | 200 | `X-Sluicegate-Verdict: pass` |
//! | in the shadow | 200 | `shadow` |
//! | degraded, with a tag | 200 | `degrade`, `X-Sluicegate-Degrade: TAG` |
//! | diverted | 200 | `divert`, `X-Sluicegate-Divert: TARGET` |
//! | degraded, with a response | that response, or `deny` | `degrade` |
//! | refused | `deny` (429 by default) | `refuse`, `Retry-After`; the body is that of `/v1/check?deny=429` |
//!
//! A gateway lets a request pass on each status below 300, so a fallback with such a status is sent
//! with 429. Where no policy guards the request there is no verdict: 200 alone.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use sluicegate::internals::gateway::PolicyDecision;
use sluicegate::internals::http::headers::{RATELIMIT, RATELIMIT_POLICY, add_retry_after};
use sluicegate::internals::http::problem;
use sluicegate::{Admission, Disposition};
use sluicegate_policy::Fallback;

use crate::wire::headers::{BudgetHeaders, MODE};
use crate::wire::http::codec::refusal_as;

const VERDICT: HeaderName = HeaderName::from_static("x-sluicegate-verdict");
const POLICY: HeaderName = HeaderName::from_static("x-sluicegate-policy");
const DEGRADE: HeaderName = HeaderName::from_static("x-sluicegate-degrade");
const PERMIT: HeaderName = HeaderName::from_static("x-sluicegate-permit");
const DIVERT: HeaderName = HeaderName::from_static("x-sluicegate-divert");

/// Writes the verdict on `decided`: of all policies if all let the request pass, else of the one
/// that does not. `deny` is the status of a refusal.
pub(in crate::wire::http::auth) fn encode(
    decided: &[PolicyDecision],
    deny: StatusCode,
    limits: BudgetHeaders,
) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    decided.iter().for_each(|decided| add_budget_headers(headers, limits, decided));
    [RATELIMIT_POLICY, RATELIMIT].into_iter().for_each(|name| join(headers, name));
    let Some(PolicyDecision { policy, admission, .. }) = PolicyDecision::deciding(decided) else {
        return response;
    };
    headers.insert(POLICY, HeaderValue::from_str(policy.name()).expect("names are ASCII"));
    match &admission.way {
        Disposition::Allowed => verdict(headers, "pass"),
        Disposition::Shadowed => verdict(headers, "shadow"),
        Disposition::Diverted(_) => {
            verdict(headers, "divert");
            headers.insert(DIVERT, field(admission.way.target().unwrap_or_default()));
        }
        Disposition::Degraded(_) => {
            verdict(headers, "degrade");
            match admission.way.fallback() {
                Some(Fallback::Response { status, body, headers: own }) => {
                    let own = own.iter().map(|(name, value)| (&**name, &**value));
                    return served(
                        response,
                        fallback_status(*status, deny),
                        own,
                        body.as_bytes().to_vec(),
                    );
                }
                Some(Fallback::Tag(tag)) => _ = headers.insert(DEGRADE, field(tag)),
                None => {}
            }
        }
        Disposition::Refused => {
            verdict(headers, "refuse");
            add_retry_after(headers, &admission.answer.decision);
            let own = [(CONTENT_TYPE.as_str(), problem::MEDIA_TYPE)];
            return served(response, deny, own, refusal_as(deny, admission, None));
        }
    }
    response
}

/// The holder of a permit, as a gateway releases it.
#[derive(Clone, Copy, Debug)]
pub(in crate::wire::http::auth) struct HeldBy<'a> {
    pub(in crate::wire::http::auth) app: Option<&'a str>,
    pub(in crate::wire::http::auth) id: &'a str,
}

/// Writes the verdict of a policy of which a permit was acquired, and, if it is held, the body by which `/v1/release` gives
/// it back.
pub(in crate::wire::http::auth) fn encode_held(
    decided: PolicyDecision,
    HeldBy { app, id }: HeldBy<'_>,
    deny: StatusCode,
    limits: BudgetHeaders,
) -> Response<Body> {
    let decided = [decided];
    let mut response = encode(&decided, deny, limits);
    let [PolicyDecision { policy, key, admission }] = &decided;
    if admission.way == Disposition::Allowed && admission.answer.decision.granted() > 0 {
        let mut release = serde_json::Map::new();
        let key = key.as_deref().map(String::from_utf8_lossy);
        let fields = [
            ("policy", Some(policy.name())),
            ("key", key.as_deref()),
            ("app", app),
            ("id", Some(id)),
        ];
        for (name, value) in fields {
            release.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        let release = serde_json::Value::from(release).to_string().replace('\u{7f}', "\\u007f");
        let release = HeaderValue::from_bytes(release.as_bytes()).expect("JSON has no controls");
        response.headers_mut().insert(PERMIT, release);
    }
    response
}

/// Adds the limits, as lists of all policies, and the mode if the store did not decide.
fn add_budget_headers(
    headers: &mut HeaderMap,
    limits: BudgetHeaders,
    PolicyDecision { admission, .. }: &PolicyDecision,
) {
    let Admission { answer, .. } = admission;
    limits.add_limits_to(headers, answer);
    if let Some(mode) = answer.mode.name_without_store() {
        headers.insert(MODE, HeaderValue::from_static(mode));
    }
}

/// Joins the lines of a list: gateways copy the first line alone.
fn join(headers: &mut HeaderMap, name: HeaderName) {
    let lines: Vec<_> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
    if lines.len() > 1 {
        let line = HeaderValue::from_bytes(&lines.join(&b", "[..]));
        headers.insert(name, line.expect("lines of header fields are one when joined"));
    }
}

fn verdict(headers: &mut HeaderMap, word: &'static str) {
    headers.insert(VERDICT, HeaderValue::from_static(word));
}

/// The status of a fallback; `deny` where a gateway would let the request pass, or only understands 403.
fn fallback_status(status: u16, deny: StatusCode) -> StatusCode {
    match StatusCode::from_u16(status) {
        Ok(status) if status.as_u16() >= 300 && deny != StatusCode::FORBIDDEN => status,
        _ => deny,
    }
}

/// `response` with a status, fields and a body of its own.
fn served<'a>(
    mut response: Response<Body>,
    status: StatusCode,
    fields: impl IntoIterator<Item = (&'a str, &'a str)>,
    body: Vec<u8>,
) -> Response<Body> {
    *response.status_mut() = status;
    for (name, value) in fields {
        let Ok(name) = HeaderName::try_from(name) else { continue };
        response.headers_mut().insert(name, field(value));
    }
    *response.body_mut() = Body::from(body);
    response
}

/// The value of a field with a text of a policy, which has no control characters.
fn field(text: &str) -> HeaderValue {
    HeaderValue::from_bytes(text.as_bytes()).expect("a line has no control characters")
}
