//! One exact limiter without a network, which decides the same requests.

use std::sync::Arc;

use sluicegate::internals::kernel::{Moment, RuleSet};
use sluicegate::internals::store::lease::Leased;
use sluicegate::policy::PolicySet;
use sluicegate::{Cost, Micros, Verb};

use crate::bounds::Violation;
use crate::clock::BEGIN;
use crate::node;
use crate::plan::{Ask, LeasesSpec, Plan, RuleSpec};
use crate::promises::Invariant;
use crate::server::StoreServer;

/// The share of one limiter's permits that a fleet without faults admits at least, in percent.
const PART_MIN: u64 = 97;

/// The record of each key: its rules, and its usage under them.
type KeyUsages = Vec<Option<(Arc<RuleSet>, Leased)>>;

/// `QuietFleetIsOneLimiter`: without faults the fleet admits what one limiter would.
pub(crate) fn compare(plan: &Plan, admitted: u64, at: u64) -> Option<Violation> {
    if !plan.is_quiet() {
        return None;
    }
    let policies = node::policies(plan);
    let clock = |at| Micros::new(BEGIN + at);
    let exact = exact(plan, rules_of(policies.first()?), vec![None; plan.keys], 0, clock);
    (admitted < least(plan, exact)).then(|| Violation {
        invariant: Invariant::QuietFleetIsOneLimiter,
        at,
        what: format!("{admitted} permits were admitted, one limiter would {exact}"),
    })
}

/// The demand after the last fault, as one limiter would meet it that begins with the store's usage by then:
/// `HealedFleetIsOneLimiter`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calm {
    /// Permits that were admitted before.
    before: u64,
    /// Permits that one limiter admits from then on.
    exact: u64,
}

impl Calm {
    /// Returns the demand that comes from `now` on, under the last `policies`. `None`: faults may still keep it from being met.
    pub(crate) fn of(
        plan: &Plan,
        policies: &PolicySet,
        server: &StoreServer,
        now: u64,
        admitted: u64,
    ) -> Option<Self> {
        let rules = rules_of(policies);
        let keys = (0..plan.keys).map(|key| server.of(&node::key_name(key), now));
        let keys: KeyUsages = keys.collect();
        let is_edited = keys.iter().flatten().any(|(of, _)| **of != **rules);
        let exact = || exact(plan, rules, keys, now, |at| server.clock(at));
        (plan.heals() && !is_edited).then(|| Self { before: admitted, exact: exact() })
    }

    /// Compares it with the permits that the fleet has `admitted` in all.
    pub(crate) fn compare(self, plan: &Plan, admitted: u64, at: u64) -> Option<Violation> {
        let Self { before, exact } = self;
        let admitted = admitted - before;
        (admitted < least(plan, exact)).then(|| Violation {
            invariant: Invariant::HealedFleetIsOneLimiter,
            at,
            what: format!(
                "{admitted} permits were admitted after the faults, one limiter would {exact}"
            ),
        })
    }
}

/// Returns the least permits that a fleet admits where one limiter admits `exact`.
fn least(plan: &Plan, exact: u64) -> u64 {
    // Requests that come together may be decided in another order.
    let reordered = plan.cost_max() * plan.keys as u64 * 2;
    (exact * PART_MIN / 100).saturating_sub(reordered + stranded(plan))
}

/// Returns the permits that lie with holders while others are refused: a twentieth of the limit with each unless
/// the policy sets more, once in each of two times of need.
fn stranded(plan: &Plan) -> u64 {
    let version = plan.versions.last().expect("there is a first one");
    let limits = version.rules.iter().map(RuleSpec::limit);
    let part = if version.leases == LeasesSpec::Large { 2 } else { 20 };
    let share = limits.min().unwrap_or(0).div_ceil(part);
    if plan.leases { 2 * share * plan.nodes as u64 * plan.keys as u64 } else { 0 }
}

fn rules_of(policies: &PolicySet) -> &Arc<RuleSet> {
    let policy = policies.resolve("p").expect("each version has it");
    policy.rules_at(b"a", Micros::ZERO).rules.set()
}

/// Returns the permits that one limiter with these rules admits from an instant on, given its record of each key.
fn exact(
    plan: &Plan,
    rules: &Arc<RuleSet>,
    mut keys: KeyUsages,
    from: u64,
    clock: impl Fn(u64) -> Micros,
) -> u64 {
    let mut admitted = 0;
    for arrival in plan.arrivals.iter().filter(|arrival| arrival.at >= from) {
        let cost = Cost::new(arrival.ask.cost()).expect("costs are at least 1");
        let verb = match arrival.ask {
            Ask::Check(_) => Verb::Check { cost },
            Ask::AtMost(_) => Verb::AtMost { cost },
            _ => continue,
        };
        let at = Moment::new(clock(arrival.at + plan.latency_us));
        let new = || (Arc::clone(rules), Leased::default());
        let (rules, leased) = keys[arrival.key].get_or_insert_with(new);
        let verdict = rules.decide_beside(leased, &verb, &at);
        admitted += verdict.map_or(0, |verdict| verdict.decision.granted());
    }
    admitted
}
