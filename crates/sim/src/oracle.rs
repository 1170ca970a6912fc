//! The same requests at one exact limiter without a network.

use std::sync::Arc;

use sluicegate::policy::PolicySet;
use sluicegate::store::lease::Leased;
use sluicegate::{Cost, Micros, Moment, States, Verb};

use crate::clock::BEGIN;
use crate::judge::Violation;
use crate::node;
use crate::plan::{Ask, Leases, Plan, RuleSpec};
use crate::world::World;

/// The part of what one limiter admits that a fleet without faults admits at least, in percent.
const PART_MIN: u64 = 97;

/// I5: without faults the fleet admits what one limiter would.
pub(crate) fn compare(plan: &Plan, admitted: u64, at: u64) -> Option<Violation> {
    if !plan.is_quiet() {
        return None;
    }
    let policies = node::policies(plan);
    let exact = exact(plan, policies.first()?);
    // The order of requests that come together may be another one.
    let reordered = plan.cost_max() * plan.keys as u64 * 2;
    let least = (exact * PART_MIN / 100).saturating_sub(reordered + stranded(plan));
    (admitted < least).then(|| Violation {
        invariant: "I5",
        at,
        what: format!("{admitted} permits were admitted, one limiter would {exact}"),
    })
}

/// What one limiter would admit after the last fault, from what the store has by then: I38.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calm {
    /// What was admitted before.
    before: u64,
    /// What one limiter admits from then on.
    exact: u64,
}

impl Calm {
    /// Nothing is left of the faults by now. `None` if that cannot be said of this history.
    pub(crate) fn of(world: &World<'_>) -> Option<Self> {
        let World { plan, now, server, .. } = world;
        if !plan.heals() {
            return None;
        }
        let last = world.policies.last()?.resolve("p").expect("each version has it");
        let last = last.rules_at(b"a", Micros::ZERO).rules.set();
        let keys = (0..plan.keys).map(|key| server.of(&node::key_name(key), *now));
        let mut keys: Vec<_> = keys.collect();
        if keys.iter().flatten().any(|(rules, _)| **rules != **last) {
            return None;
        }
        let mut exact = 0;
        for arrival in plan.arrivals.iter().filter(|arrival| arrival.at >= *now) {
            let Ask::Check(cost) = arrival.ask else { continue };
            let verb = Verb::Check { cost: Cost::new(cost).expect("costs are at least 1") };
            let at = Moment::new(server.clock(arrival.at + plan.latency_us));
            let (rules, leased) =
                keys[arrival.key].get_or_insert_with(|| (Arc::clone(last), Leased::default()));
            let verdict = rules.decide_beside(leased, &verb, &at);
            exact += verdict.map_or(0, |verdict| verdict.decision.granted());
        }
        Some(Self { before: world.admitted, exact })
    }

    /// What was `admitted` in all is at least that.
    pub(crate) fn compare(self, plan: &Plan, admitted: u64, at: u64) -> Option<Violation> {
        let Self { before, exact } = self;
        let reordered = plan.cost_max() * plan.keys as u64 * 2;
        let least = (exact * PART_MIN / 100).saturating_sub(reordered + stranded(plan));
        let admitted = admitted - before;
        (admitted < least).then(|| Violation {
            invariant: "I38",
            at,
            what: format!(
                "{admitted} permits were admitted after the faults, one limiter would {exact}"
            ),
        })
    }
}

/// Permits that lie with holders while others are refused: a twentieth of the limit with each unless the policy
/// sets more, once in each of two times of need.
fn stranded(plan: &Plan) -> u64 {
    let version = plan.versions.last().expect("there is a first one");
    let limits = version.rules.iter().map(RuleSpec::limit);
    let part = if version.leases == Leases::Large { 2 } else { 20 };
    let share = limits.min().unwrap_or(0).div_ceil(part);
    if plan.leases { 2 * share * plan.nodes as u64 * plan.keys as u64 } else { 0 }
}

/// Permits that one limiter admits.
fn exact(plan: &Plan, policies: &PolicySet) -> u64 {
    let policy = policies.resolve("p").expect("each version has it");
    let rules = policy.rules_at(b"a", Micros::ZERO).rules.set();
    let mut states = vec![States::default(); plan.keys];
    let mut admitted = 0;
    for arrival in &plan.arrivals {
        let cost = Cost::new(arrival.ask.cost()).expect("costs are at least 1");
        let verb = match arrival.ask {
            Ask::Check(_) => Verb::Check { cost },
            Ask::AtMost(_) => Verb::AtMost { cost },
            _ => continue,
        };
        let at = Moment::new(Micros::new(BEGIN + arrival.at + plan.latency_us));
        let verdict = rules.decide(&mut states[arrival.key], &verb, &at);
        admitted += verdict.map_or(0, |verdict| verdict.decision.granted());
    }
    admitted
}
