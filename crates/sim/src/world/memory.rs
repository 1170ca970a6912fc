//! Refusals that nodes remember: `RefusalEndsAtItsRetry` and `RefusalIsRemembered`.

use std::sync::Arc;

use sluicegate::internals::kernel::{Outcome, Retry, RuleSet};
use sluicegate::{Answer, Cost, Mode};

use super::{TaskView, World};
use crate::node;
use crate::plan::{Arrival, Ask, MS, Plan, SECOND};
use crate::promises::Invariant;

/// The longest time that a refusal is remembered after another node gave permits back, µs: a second, and a
/// question.
const REMEMBERED_US: u64 = SECOND + 50 * MS;

/// The longest time that other requests get a refusal while one asks the store, µs.
const ASKING_US: u64 = 50 * MS;

/// The time that a refusal is repeated without another question, µs.
const REMEMBERED_AT_ONCE_US: u64 = SECOND;

/// The last refusal of a key that a node received.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Requests are made together, or settled: the order in which they are decided is unknown.
    Unknown,
    /// There is none, or permits were given back since.
    Forgotten,
    Known {
        cost: u64,
        rules: Arc<RuleSet>,
        asked_at: u64,
        heard_at: u64,
        retry_us: Option<u64>,
        reset_us: u64,
    },
}

impl Refusal {
    /// Returns what a process knows of each key when it starts.
    pub(crate) fn of_each_key(plan: &Plan) -> Vec<Self> {
        let is_vague = |arrival: &Arrival| {
            arrival.is_batched || matches!(arrival.ask, Ask::CheckAndSettle(..))
        };
        let is_vague =
            |key| plan.arrivals.iter().any(|arrival| arrival.key == key && is_vague(arrival));
        let first = |key| if is_vague(key) { Self::Unknown } else { Self::Forgotten };
        (0..plan.keys).map(first).collect()
    }
}

/// Notes that permits of a key were given back at a node, or may have been.
pub(crate) fn forget(world: &mut World<'_>, node: usize, key: usize) {
    let refusal = &mut world.refusals[node][key];
    if !matches!(refusal, Refusal::Unknown) {
        *refusal = Refusal::Forgotten;
    }
}

/// Checks an answer. `RefusalIsRemembered`: a node remembers the last refusal of the store, and does not ask again for
/// what is refused.
pub(crate) fn see(world: &mut World<'_>, task: TaskView, arrival: Arrival, answer: &Answer) {
    let is_check =
        matches!(arrival.ask, Ask::Check(_) | Ask::CheckAndRefund(..) | Ask::CheckAndSettle(..));
    // A request of a batch was refused at some instant before.
    if answer.mode == Mode::Remembered && !task.is_batch {
        check(world, task, arrival);
    }
    if matches!(arrival.ask, Ask::Reset) {
        return forget(world, task.node, arrival.key);
    }
    if world.plan.leases || !is_check || super::breaker_checks::has_wrong_clocks(world) {
        return;
    }
    let (now, cost) = (world.now, arrival.ask.cost());
    let refusal = &mut world.refusals[task.node][arrival.key];
    let elapsed = match &*refusal {
        Refusal::Unknown => return,
        Refusal::Known { cost: refused, rules, asked_at, retry_us, .. }
            if *refused == cost
                && Arc::ptr_eq(rules, answer.rules())
                && *asked_at <= task.begun_at
                && retry_us.is_none_or(|retry| task.begun_at - asked_at < retry) =>
        {
            Some(task.begun_at - asked_at)
        }
        _ => None,
    };
    let said = match (answer.mode, elapsed, &*refusal) {
        (Mode::Remembered, Some(elapsed), Refusal::Known { retry_us, reset_us, .. }) => {
            let left = (retry_us.map(|us| us - elapsed), reset_us.saturating_sub(elapsed));
            let said = (retry_us_of(answer), answer.decision.reset_after.get());
            (said != left).then(|| format!("{said:?} are left of a refusal, not {left:?}"))
        }
        (Mode::Remembered, ..) => Some("a refusal is remembered that nobody said".to_owned()),
        (Mode::Store, Some(elapsed), Refusal::Known { heard_at, .. })
            if *heard_at < task.begun_at && elapsed < REMEMBERED_AT_ONCE_US =>
        {
            Some("the store is asked again for what it refused".to_owned())
        }
        _ => None,
    };
    match (answer.mode, answer.decision.outcome) {
        (Mode::Store, Outcome::Deny { .. }) => {
            *refusal = Refusal::Known {
                cost,
                rules: Arc::clone(answer.rules()),
                asked_at: task.begun_at,
                heard_at: now,
                retry_us: retry_us_of(answer),
                reset_us: answer.decision.reset_after.get(),
            };
        }
        (Mode::Store, Outcome::Allow { .. }) if elapsed.is_some() => *refusal = Refusal::Forgotten,
        _ => {}
    }
    if let Some(said) = said {
        world.record.fail(
            Invariant::RefusalIsRemembered,
            now,
            format!("node {} {arrival:?}: {said}", task.node),
        );
    }
}

fn retry_us_of(answer: &Answer) -> Option<u64> {
    match answer.decision.outcome {
        Outcome::Deny { retry: Retry::After(retry) } => Some(retry.get()),
        _ => None,
    }
}

/// `RefusalEndsAtItsRetry`: the store would refuse what a remembered refusal refuses.
fn check(world: &mut World<'_>, task: TaskView, arrival: Arrival) {
    let now = world.now;
    let cost = Cost::new(arrival.ask.cost()).expect("costs are at least 1");
    // A holder asks for all its requests at its own pace, and leased permits may come back at any time.
    if world.plan.leases {
        return super::lease_checks::check_refusal(world, task.node, arrival.key, cost);
    }
    let changed = world.given_back[arrival.key];
    let is_recent = changed.is_some_and(|then| then + REMEMBERED_US > now);
    // One request finds out that the holder has no permits left, and others get the refusal meanwhile.
    let is_asked = changed.is_some() && world.sent_at[task.node][arrival.key] + ASKING_US > now;
    let is_vague = super::breaker_checks::has_wrong_clocks(world);
    if is_recent || is_asked || is_vague || super::answers::is_disturbed(world, task) {
        return;
    }
    if world.server.refuses(&node::key_name(arrival.key), cost, now) != Some(true) {
        let what =
            format!("node {} remembers a refusal of {arrival:?} that holds no more", task.node);
        world.record.fail(Invariant::RefusalEndsAtItsRetry, now, what);
    }
}
