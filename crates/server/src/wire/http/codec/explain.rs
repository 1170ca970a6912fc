//! The body of an explanation.

use serde::Serialize;
use sluicegate::internals::http::headers::window_s;
use sluicegate::internals::{ExplainedLease, Explanation};
use sluicegate::{Admission, Micros, Request, Verb};
use sluicegate_kernel::{NamedRule, Rate};
use sluicegate_policy::{Endurance, Overflow};
use utoipa::ToSchema;

use super::reply::{DecisionBody, decided, json};

/// The result that a check would have now, and why. Nothing is charged.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct Explained<'a> {
    /// Name of the policy.
    #[schema(value_type = String)]
    policy: &'a str,
    /// The calling app.
    #[schema(value_type = Option<String>)]
    app: Option<&'a str>,
    /// The apps that may use the policy; `null`: every app.
    #[schema(value_type = Option<Vec<String>>)]
    apps: Option<Vec<&'a str>>,
    /// Permits that the rules would charge a check now: 0 if they refuse it, also where `overflow` lets it pass.
    would_charge: u64,
    /// Source of the rules: `policy`, or `override` if the key has its own rules.
    rules_of: &'static str,
    /// Overflow of the policy for requests over the limit: `reject`, `queue`, `degrade`, `divert` or `shadow`.
    overflow: &'static str,
    /// Decision while the store is unavailable: `local`, `allow` or `deny`.
    on_store_failure: &'static str,
    /// Result of a check by the rules; `overflow` does not apply.
    decision: DecisionBody<'a>,
    /// The rules that apply to the key, with the result of each.
    rules: Vec<ExplainedRule<'a>>,
    /// Leases of the key's permits by servers; absent if this server leases nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    leases: Option<ExplainedLeases>,
    /// Endurance of the rules under the load `at`; absent without `at`, and where a rule holds permits by id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    endurance: Option<ExplainedEndurance<'a>>,
}

/// Endurance of the rules, from a full budget: the time for which they admit a steady load of requests of one permit. `overflow` does not apply.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Endurance)]
struct ExplainedEndurance<'a> {
    /// The load.
    at: String,
    /// Permits that are admitted before the first refusal, or in `lasts_us` if there is none. Limits above 1,000 are
    /// calculated to a thousandth.
    admitted: u64,
    /// Time until the first refusal, or the length of what was calculated: 20,000 decisions, and ten years at most.
    lasts_us: u64,
    /// Time for which the last request is delayed.
    delay_us: u64,
    /// The first refusal; `null` if there is none in `lasts_us`.
    #[schema(required)]
    over: Option<ExplainedOver<'a>>,
}

/// The first refusal of a steady load.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Over)]
struct ExplainedOver<'a> {
    /// Name of the rule that refuses.
    #[schema(value_type = String)]
    rule: &'a str,
    /// Time without requests until the budget of that rule is full again.
    full_after_us: u64,
}

/// Leases of a key's permits.
#[derive(Debug, Serialize, ToSchema)]
struct ExplainedLeases {
    /// The bounds (`max_share 5%, term 2s`), `off`, or `never: ` and the reason.
    status: String,
    /// Permits that all servers hold: unspent, or spent and not yet reported. Absent if the key cannot be
    /// leased, or the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    out: Option<u32>,
    /// Number of servers that hold them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    holders: Option<usize>,
    /// Permits that are left at this server; absent if it holds no lease of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    left: Option<u32>,
    /// Time until they end, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    ends_in_us: Option<u64>,
}

/// A rule and its own result.
#[derive(Debug, Serialize, ToSchema)]
struct ExplainedRule<'a> {
    /// Name of the rule.
    #[schema(value_type = String)]
    name: &'a str,
    /// Algorithm of the rule.
    algorithm: &'static str,
    /// Largest cost that can pass at once; of `smooth_bursty` and `smooth_warmup`, which let any cost pass, the most
    /// permits that are stored.
    limit: u64,
    /// Seconds until a used-up budget is full again; absent if not a single number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    window_s: Option<u64>,
    /// Remaining budget of the rule; absent while the store is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    left: Option<RuleRemaining>,
}

/// Remaining budget of a rule.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Left)]
struct RuleRemaining {
    /// `true` if the rule would allow the request.
    allowed: bool,
    /// Permits that are left.
    remaining: u64,
    /// Time until the same request can pass, in µs: 0 if now, `null` if never.
    #[schema(required)]
    retry_after_us: Option<u64>,
    /// Time until the budget is full again, in µs.
    reset_after_us: u64,
}

/// Writes the explanation of `request`, with the endurance of the rules under the load `at`.
pub(crate) fn encode(request: &Request<'_>, explanation: Explanation, at: Option<Rate>) -> Vec<u8> {
    let Explanation { policy, is_override, answer, rules, lease, endurance } = explanation;
    let would_charge = match request.verb {
        Verb::Peek { cost } if answer.decision.allowed() => cost.get(),
        _ => 0,
    };
    let admission = Admission::from(answer);
    let left = |place: usize| {
        let decision = rules.as_ref()?.get(place)?;
        Some(RuleRemaining {
            allowed: decision.allowed(),
            remaining: decision.remaining,
            retry_after_us: decision.retry_after().map(Micros::get),
            reset_after_us: decision.reset_after.get(),
        })
    };
    let names = admission.answer.rules().rules();
    let rules = names.iter().enumerate().map(|(place, NamedRule { name, rule })| ExplainedRule {
        name,
        algorithm: rule.algorithm(),
        limit: rule.limit(),
        window_s: window_s(rule),
        left: left(place),
    });
    json(&Explained {
        policy: policy.name(),
        app: request.app,
        apps: policy.apps().map(Iterator::collect),
        would_charge,
        rules_of: if is_override { "override" } else { "policy" },
        overflow: overflow(policy.overflow()),
        on_store_failure: policy.on_store_failure().word(),
        decision: decided(&admission, None),
        rules: rules.collect(),
        leases: lease.map(explained_leases),
        endurance: at.zip(endurance).map(|(at, it)| explained_endurance(at, it, names)),
    })
}

fn explained_endurance(
    at: Rate,
    endurance: Endurance,
    rules: &[NamedRule],
) -> ExplainedEndurance<'_> {
    let Endurance { admitted, lasts, delay, over } = endurance;
    ExplainedEndurance {
        at: at.to_string(),
        admitted,
        lasts_us: lasts.get(),
        delay_us: delay.get(),
        over: over.map(|over| ExplainedOver {
            rule: &rules[over.rule].name,
            full_after_us: over.full_after.get(),
        }),
    }
}

fn explained_leases(ExplainedLease { status, out, here }: ExplainedLease) -> ExplainedLeases {
    ExplainedLeases {
        status: status.to_string(),
        out: out.map(|(out, _)| out),
        holders: out.map(|(_, holders)| holders),
        left: here.as_ref().map(|here| here.left),
        ends_in_us: here.as_ref().map(|here| here.ends_in.get()),
    }
}

const fn overflow(overflow: &Overflow) -> &'static str {
    match overflow {
        Overflow::Reject => "reject",
        Overflow::Queue { .. } => "queue",
        Overflow::Degrade(_) => "degrade",
        Overflow::Divert { .. } => "divert",
        Overflow::Shadow => "shadow",
    }
}
