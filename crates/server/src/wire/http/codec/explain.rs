//! The body that says why.

use serde::Serialize;
use sluicegate::http::headers::window_s;
use sluicegate::policy::{OnStoreFailure, Overflow};
use sluicegate::{Explanation, Micros, NamedRule, Passage, Request, Verb};
use utoipa::ToSchema;

use super::reply::{Decided, decided, json};

/// What a check would be answered now, and why. Nothing was charged.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct Explained<'a> {
    /// The policy that guards the request: the one that it names.
    #[schema(value_type = String)]
    policy: &'a str,
    /// The app that asks.
    #[schema(value_type = Option<String>)]
    app: Option<&'a str>,
    /// The apps that may use the policy; `null`: every app.
    #[schema(value_type = Option<Vec<String>>)]
    apps: Option<Vec<&'a str>>,
    /// Permits that a check would take, if it passes: of each rule as many.
    would_charge: u64,
    /// Whether the key has rules of its own: `policy` or `override`.
    rules_of: &'static str,
    /// What is done with traffic over the limit: `reject`, `queue`, `degrade`, `divert` or `shadow`.
    overflow: &'static str,
    /// What is decided while the store does not answer: `local`, `allow` or `deny`.
    on_store_failure: &'static str,
    /// What a check would be answered.
    decision: Decided<'a>,
    /// Every rule that holds for the key, and what it would say alone.
    rules: Vec<ExplainedRule<'a>>,
}

/// A rule, and what it would say alone.
#[derive(Debug, Serialize, ToSchema)]
struct ExplainedRule<'a> {
    /// Its name.
    #[schema(value_type = String)]
    name: &'a str,
    /// Its algorithm.
    algorithm: &'static str,
    /// The largest cost that it ever lets pass at once.
    limit: u64,
    /// The seconds in which all of it comes back; left out where that is no one number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    window_s: Option<u64>,
    /// What is left of it; left out while the store does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    left: Option<Left>,
}

/// What is left of a rule.
#[derive(Debug, Serialize, ToSchema)]
struct Left {
    /// Whether it would let the request pass.
    allowed: bool,
    /// Permits that are left.
    remaining: u64,
    /// When the same request could pass, in µs: 0 if now, `null` if never.
    #[schema(required)]
    retry_after_us: Option<u64>,
    /// Until it is full again, in µs.
    reset_after_us: u64,
}

/// Writes why `request` would be answered so.
pub(crate) fn encode(request: &Request<'_>, explanation: Explanation) -> Vec<u8> {
    let Explanation { policy, is_override, answer, rules } = explanation;
    let would_charge = match request.verb {
        Verb::Peek { cost } if answer.decision.allowed() => cost.get(),
        _ => 0,
    };
    let passage = Passage::from(answer);
    let left = |place: usize| {
        let decision = rules.as_ref()?.get(place)?;
        Some(Left {
            allowed: decision.allowed(),
            remaining: decision.remaining,
            retry_after_us: decision.retry_after().map(Micros::get),
            reset_after_us: decision.reset_after.get(),
        })
    };
    let named = passage.answer.rules().rules().iter().enumerate();
    let rules = named.map(|(place, NamedRule { name, rule })| ExplainedRule {
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
        on_store_failure: on_store_failure(policy.on_store_failure()),
        decision: decided(&passage, None),
        rules: rules.collect(),
    })
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

const fn on_store_failure(on_failure: OnStoreFailure) -> &'static str {
    match on_failure {
        OnStoreFailure::Local => "local",
        OnStoreFailure::Allow => "allow",
        OnStoreFailure::Deny => "deny",
    }
}
