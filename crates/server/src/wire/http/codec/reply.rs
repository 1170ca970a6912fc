//! The body of a decision.

use std::collections::BTreeMap;

use serde::Serialize;
use sluicegate::{Admission, Disposition, Micros, Mode};
use sluicegate_policy::Fallback;
use utoipa::ToSchema;

/// Room for most bodies.
const BODY_BYTES: usize = 256;

/// A decision, allowed or refused.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Decision)]
pub(crate) struct DecisionBody<'a> {
    /// `true` if the caller may proceed.
    allowed: bool,
    /// 1: allowed; -1: refused. (0, not configured, is only in problem documents.)
    #[schema(minimum = -1, maximum = 1)]
    code: i8,
    /// Permits taken, given back or released; for `peek`, those that a check would take.
    granted: u64,
    /// Time that the caller must wait before it proceeds, in µs.
    wait_us: u64,
    /// Largest cost that the rule can ever allow at once. Of `smooth_bursty` and `smooth_warmup`, which allow any
    /// cost and delay the next request for it: the most permits that are stored.
    limit: u64,
    /// Permits left after this decision, rounded down.
    remaining: u64,
    /// With `leased`: how long ago the store reported what else is left, in µs. What is left for all may be less
    /// than `remaining`, by what was taken since by other servers, or by this one outside its lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    as_of_us: Option<u64>,
    /// Time until the same request can pass, in µs: 0 if it is within the limit, `null` if never. A request that
    /// passes over the limit in shadow has the value of a refusal.
    #[schema(required)]
    retry_after_us: Option<u64>,
    /// Time until the budget is full again without the permits that servers hold by leases, in µs.
    reset_after_us: u64,
    /// The rule that decided.
    #[schema(value_type = String)]
    rule: &'a str,
    /// Mode of a decision without a call to the store: `leased` (from permits that the store has set aside for
    /// this server), or without the store: `local`, `allow`, `deny` or `shed`. Absent if the store decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    mode: Option<&'static str>,
    /// Time that the server delayed the request, in µs; absent if it did not.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    held_us: u64,
    /// Treatment of this request over the limit by the policy: `shadow` (allowed and counted), `degrade`
    /// (serve `tag` or `response` instead) or `divert` (send it to `target`). Absent for plain decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    overflow: Option<&'static str>,
    /// With `degrade`: name of the fallback, as configured in the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    tag: Option<&'a str>,
    /// With `degrade`: the fallback response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    response: Option<FallbackResponse<'a>>,
    /// With `divert`: the target, as configured in the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    target: Option<&'a str>,
    /// Identifier of the permit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    id: Option<&'a str>,
}

/// A response to serve instead of the protected resource.
#[derive(Debug, Serialize, ToSchema)]
struct FallbackResponse<'a> {
    /// Its status, 200 to 599.
    status: u16,
    /// Its header fields.
    #[schema(value_type = BTreeMap<String, String>)]
    headers: BTreeMap<&'a str, &'a str>,
    /// Its body.
    #[schema(value_type = String)]
    body: &'a str,
}

/// The body of a decision about a permit with this `id`, or about none.
///
/// `allowed` is whether the caller may go on as it wanted to: a caller that ignores overflow passes
/// in shadow, and never reaches the protected resource when the policy has `degrade` or `divert`.
pub(crate) fn decided<'a>(admission: &'a Admission, id: Option<&'a str>) -> DecisionBody<'a> {
    let Admission { answer, way, held } = admission;
    let decision = &answer.decision;
    let (tag, response) = match way.fallback() {
        Some(Fallback::Tag(tag)) => (Some(&**tag), None),
        Some(Fallback::Response { status, body, headers }) => {
            let headers = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
            (None, Some(FallbackResponse { status: *status, headers, body }))
        }
        None => (None, None),
    };
    DecisionBody {
        allowed: way.passes(),
        code: code(way),
        granted: decision.granted(),
        wait_us: decision.wait().get().saturating_sub(held.get()),
        limit: decision.limit,
        remaining: decision.remaining,
        as_of_us: matches!(answer.mode, Mode::Leased).then_some(answer.age.get()),
        retry_after_us: decision.retry_after().map(Micros::get),
        reset_after_us: decision.reset_after.get(),
        rule: answer.rule(),
        mode: answer.mode.name_without_call(),
        held_us: held.get(),
        overflow: overflow(way),
        tag,
        response,
        target: way.target(),
        id,
    }
}

/// The body of a decision, as bytes.
pub(crate) fn encode(admission: &Admission, id: Option<&str>) -> Vec<u8> {
    let decided = decided(admission, id);
    plain(&decided).unwrap_or_else(|| json(&decided))
}

/// The bytes of a plain decision, as nearly all are; the names in it need no escapes. `None` for others.
fn plain(decided: &DecisionBody<'_>) -> Option<Vec<u8>> {
    let DecisionBody {
        allowed,
        code,
        granted,
        wait_us,
        limit,
        remaining,
        as_of_us,
        retry_after_us,
        reset_after_us,
        rule,
        mode,
        held_us: 0,
        overflow: None,
        tag: None,
        response: None,
        target: None,
        id: None,
    } = *decided
    else {
        return None;
    };
    let mut bytes = Vec::with_capacity(BODY_BYTES);
    let mut number = itoa::Buffer::new();
    bytes.extend_from_slice(if allowed { b"{\"allowed\":true" } else { b"{\"allowed\":false" });
    bytes.extend_from_slice(b",\"code\":");
    bytes.extend_from_slice(number.format(code).as_bytes());
    let mut add = |name: &str, value: Option<u64>| {
        bytes.extend_from_slice(name.as_bytes());
        let value = value.map_or("null", |value| number.format(value));
        bytes.extend_from_slice(value.as_bytes());
    };
    add(",\"granted\":", Some(granted));
    add(",\"wait_us\":", Some(wait_us));
    add(",\"limit\":", Some(limit));
    add(",\"remaining\":", Some(remaining));
    if as_of_us.is_some() {
        add(",\"as_of_us\":", as_of_us);
    }
    add(",\"retry_after_us\":", retry_after_us);
    add(",\"reset_after_us\":", Some(reset_after_us));
    bytes.extend_from_slice(b",\"rule\":\"");
    bytes.extend_from_slice(rule.as_bytes());
    if let Some(mode) = mode {
        bytes.extend_from_slice(b"\",\"mode\":\"");
        bytes.extend_from_slice(mode.as_bytes());
    }
    bytes.extend_from_slice(b"\"}");
    Some(bytes)
}

/// Any body as bytes.
pub(crate) fn json(body: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BODY_BYTES);
    serde_json::to_writer(&mut bytes, body)
        .expect("texts, numbers and lists of them are always JSON");
    bytes
}

/// 1: the request passes; -1: it does not.
pub(crate) const fn code(way: &Disposition) -> i8 {
    if way.passes() { 1 } else { -1 }
}

const fn overflow(way: &Disposition) -> Option<&'static str> {
    match way {
        Disposition::Allowed | Disposition::Refused => None,
        Disposition::Shadowed => Some("shadow"),
        Disposition::Degraded(_) => Some("degrade"),
        Disposition::Diverted(_) => Some("divert"),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plain_decision_is_written_as_any_other(
            numbers in any::<[u64; 5]>(),
            retry_after_us in any::<Option<u64>>(),
            allowed in any::<bool>(),
            rule in "[a-z0-9._-]{1,128}",
            leased in any::<Option<u64>>(),
        ) {
            let [granted, wait_us, limit, remaining, reset_after_us] = numbers;
            let decided = DecisionBody {
                allowed,
                code: if allowed { 1 } else { -1 },
                granted,
                wait_us,
                limit,
                remaining,
                as_of_us: leased,
                retry_after_us,
                reset_after_us,
                rule: &rule,
                mode: leased.map(|_| Mode::Leased.name()),
                held_us: 0,
                overflow: None,
                tag: None,
                response: None,
                target: None,
                id: None,
            };
            prop_assert_eq!(plain(&decided), Some(json(&decided)));
            prop_assert_eq!(plain(&DecisionBody { id: Some("\""), ..decided }), None);
        }
    }
}
