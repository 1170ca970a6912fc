//! What nodes answer their clients, and whether each answer is true at that instant.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate::store::{Charge, Debt, Permits};
use sluicegate::{Answer, Cost, DecideError, Mode, SettleError};

use crate::grants::Central;
use crate::judge::{By, What};
use crate::node::{self, Done};
use crate::plan::{Arrival, Ask, MS, OnFailure, RuleSpec, SECOND};
use crate::wire::Executed;
use crate::world::{RECOVERY_US, TaskView, World};

/// How long a refusal is remembered after something was given back elsewhere, µs: a second, and a question.
const REMEMBERED_US: u64 = SECOND + 50 * MS;

/// What a node admitted of a key without the store, and what the store charged for that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dues {
    admitted: u64,
    /// Of each rule.
    charged: Permits,
    bills: u64,
    /// What was left of the last bill that was paid in part, which bill that was, and when it was made out.
    rest: Option<(Permits, u128, u64)>,
    /// When each bill was made out; and those that it heard of.
    made_at: BTreeMap<u128, u64>,
    heard: BTreeSet<u128>,
}

impl Dues {
    /// The store charged a bill.
    pub(crate) fn charge(&mut self, permits: Permits) {
        self.charged.iter_mut().zip(permits).for_each(|(charged, permits)| *charged += permits);
        self.bills += 1;
    }

    /// A node heard what was charged of a bill.
    pub(crate) fn hear(&mut self, debt: &Debt, paid: Permits) {
        // Others carried it, too.
        if !self.heard.insert(debt.id) {
            return;
        }
        let mut rest = debt.permits;
        rest.iter_mut().zip(paid).for_each(|(rest, paid)| *rest = rest.saturating_sub(paid));
        // What is in use flows out while the bill is on its way.
        self.rest = self.made_at.get(&debt.id).map(|made_at| (rest, debt.id, *made_at));
    }

    /// A process begins, which owes nothing.
    pub(crate) fn begin_anew(&mut self) {
        self.rest = None;
    }
}

/// I22: what was not paid of a bill is on the next one, but for what has flowed out meanwhile.
pub(crate) fn check_bill(world: &mut World<'_>, (node, key): (usize, usize), debt: &Debt) {
    let (now, plan) = (world.now, world.plan);
    if debt.charge == Charge::AtLeast {
        return;
    }
    world.dues[node][key].made_at.entry(debt.id).or_insert(now);
    let Some((rest, id, since)) = world.dues[node][key].rest else { return };
    if id == debt.id {
        return;
    }
    world.dues[node][key].rest = None;
    if plan.versions.len() > 1 || crate::probes::has_wrong_clocks(world) || plan.removes() {
        return;
    }
    for (place, spec) in plan.versions[0].rules.iter().enumerate() {
        let RuleSpec::TokenBucket { permits, period_us, .. } = *spec else { continue };
        // Bills are made as of the question, some deadlines before.
        let span_us = now - since + 2 * plan.deadline_us;
        let flowed = (span_us * permits).div_ceil(period_us) + 1;
        if debt.permits[place] + flowed < rest[place] {
            let (bill, rest) = (debt.permits[place], rest[place]);
            let what = format!("node {node} owed {rest} of key {key} and is billed {bill}");
            world.judge.fail("I22", now, what);
        }
    }
}

/// How long a breaker that is open lets no request through, at most, and a deadline, µs.
const PROBE_US: u64 = 350 * MS;

/// How long others get a refusal while one asks, µs.
const ASKING_US: u64 = 50 * MS;

pub(crate) fn see(world: &mut World<'_>, task: TaskView, done: Done) {
    match done {
        Done::Decided(arrival, Ok(admission)) => decided(world, task, arrival, &admission.answer),
        Done::Decided(arrival, Err(error)) => failed(world, task, arrival, &error),
        Done::DecidedEach(_) => unreachable!("each is seen on its own"),
        Done::Explained(arrival, explained) => match explained {
            Ok(explanation) => modes(world, task, &explanation.answer),
            Err(error) => failed(world, task, arrival, &error),
        },
        Done::Refunded(arrival, asked, refunded) => match refunded {
            Ok(admission) if admission.answer.decision.granted() > asked => {
                let granted = admission.answer.decision.granted();
                world.judge.fail("I14", world.now, format!("{granted} of {asked} are given back"));
            }
            Ok(admission) => returned(world, &arrival, &admission.answer, asked),
            Err(error) => failed(world, task, arrival, &error),
        },
        Done::Settled(arrival, settled) => match settled {
            Ok(settled) => {
                let Ask::CheckAndSettle(charged, cost) = arrival.ask else { return };
                world.seen(format_args!("settled {}", settled.refunded));
                let is_first = world.settled.insert((arrival.load, arrival.at, arrival.number));
                // Only the store knows which ids are settled: what it forgets meanwhile is settled once more.
                let has_forgotten = world.forgot_at.is_some_and(|then| then >= task.begun_at);
                if !is_first && !has_forgotten {
                    world.judge.fail("I14", world.now, format!("{arrival:?} is settled twice"));
                }
                if settled.refunded > charged.saturating_sub(cost)
                    || settled.taken > cost.saturating_sub(charged)
                {
                    world.judge.fail("I14", world.now, format!("{settled:?} of {arrival:?}"));
                }
                returned(world, &arrival, &settled.answer, settled.refunded);
                if settled.taken > 0 && settled.answer.mode == Mode::Leased {
                    let at = (world.now, world.executed());
                    admitted(world, arrival.key, at, (settled.taken, world.now, By::Lease));
                } else if settled.taken > 0 {
                    let at = task.executed.unwrap_or((world.now, u64::MAX));
                    admitted(world, arrival.key, at, (settled.taken, task.begun_at, By::Store));
                }
            }
            Err(SettleError::Settled) => {}
            Err(error) if is_disturbed(world, task) => world.seen(format_args!("{error}")),
            Err(error) => world.judge.fail("I13", world.now, format!("{arrival:?}: {error}")),
        },
        Done::Returned => {}
        Done::Paid(owing) => world.seen(format_args!("node {} owes on {owing} keys", task.node)),
    }
}

fn decided(world: &mut World<'_>, task: TaskView, arrival: Arrival, answer: &Answer) {
    let (decision, mode, key) = (answer.decision, answer.mode, arrival.key);
    trace(world, task, arrival, answer);
    modes(world, task, answer);
    if decision.remaining > decision.limit || decision.granted() > arrival.ask.cost() {
        world.judge.fail("I13", world.now, format!("{decision:?} to {arrival:?}"));
    }
    match (mode, arrival.ask) {
        (Mode::Store, Ask::Check(1)) => {
            let is_disturbed = is_disturbed(world, task);
            crate::grants::check_central(world, (task.node, key), (answer, is_disturbed));
        }
        _ => world.central[task.node][key] = Central::default(),
    }
    let granted = match arrival.ask {
        Ask::Peek(_) | Ask::Explain(_) | Ask::Reset => 0,
        _ => decision.granted(),
    };
    if granted > 0 {
        count(world, task, (key, granted), answer);
    }
    // Of a batch it was refused at some instant before.
    if mode == Mode::Remembered && !task.is_batch {
        remembered(world, task, arrival);
    }
    let charged = answer.charged();
    match arrival.ask {
        Ask::CheckAndRefund(_, back) if charged > 0 => {
            world.refund_later(arrival, back.min(charged));
        }
        Ask::CheckAndSettle(..) if charged > 0 => world.settle_later(arrival),
        _ => {}
    }
}

fn trace(world: &mut World<'_>, task: TaskView, arrival: Arrival, answer: &Answer) {
    let (decision, mode) = (answer.decision, answer.mode);
    let numbers = [task.node, arrival.key, arrival.number]
        .map(|number| number as u64)
        .into_iter()
        .chain([task.begun_at, decision.granted(), decision.remaining, mode as u64]);
    world.seen_often(
        &numbers.collect::<Vec<_>>(),
        format_args!(
            "node {} key {} {:?} of {:.3}: {:?} by {}, {} left",
            task.node,
            arrival.key,
            arrival.ask,
            task.begun_at as f64 / 1_000.0,
            decision.outcome,
            mode.name(),
            decision.remaining
        ),
    );
}

/// Tells the judge that so many permits of a key were granted.
fn count(world: &mut World<'_>, task: TaskView, (key, granted): (usize, u64), answer: &Answer) {
    let wait = answer.decision.wait().get();
    let here = (world.now, world.executed());
    if matches!(answer.mode, Mode::Local | Mode::Allow) {
        world.dues[task.node][key].admitted += granted;
    }
    match answer.mode {
        Mode::Store => {
            let (at, order) = task.executed.unwrap_or((world.now, u64::MAX));
            if wait > 0 {
                let passes_at = at + wait;
                let what = What::Booked { permits: granted, passes_at, by_share: false };
                world.note_at((at, order), key, what);
            }
            let begun = task.begun_at + wait;
            admitted(world, key, (at + wait, order), (granted, begun, By::Store));
        }
        Mode::Leased if task.is_batch => {
            // Whether it was before or after something that was given back meanwhile, nobody knows.
            if world.given_back[key].is_none_or(|then| then < task.begun_at) {
                admitted(world, key, here, (granted, task.begun_at, By::EarlierLease));
            }
        }
        // The node's clock was read at this instant.
        Mode::Leased => {
            crate::grants::check_end_of(world, task.node, key);
            admitted(world, key, here, (granted, world.now, By::Lease));
        }
        Mode::Local => {
            let version = version_of(world, answer);
            let (begun, at) = (task.begun_at + wait, world.now + wait);
            let (of, run) = ((task.node, task.life), world.nodes[task.node].heard[key]);
            if wait > 0 {
                let what = What::Booked { permits: granted, passes_at: at, by_share: true };
                world.note_at(here, key, what);
            }
            let run = (!task.is_batch).then_some(run);
            let what = What::ByShare { permits: granted, version, of, run, begun };
            world.note_at((at, here.1), key, what);
        }
        Mode::Allow => {
            world.note_at(here, key, What::Allowed { permits: granted, begun: task.begun_at });
        }
        Mode::Remembered | Mode::Shed | Mode::Deny => {}
    }
}

/// Permits that went back into a lease do not count any more.
fn returned(world: &mut World<'_>, arrival: &Arrival, answer: &Answer, permits: u64) {
    if answer.mode == Mode::Leased && permits > 0 {
        world.given_back[arrival.key] = Some(world.now);
        let what = What::Forgiven { permits: vec![permits; 2], why: "refunded" };
        world.note_at((world.now, world.executed()), arrival.key, what);
    }
}

/// Permits were admitted that were asked for at `begun`, by the store or from a lease.
fn admitted(world: &mut World<'_>, key: usize, at: Executed, (permits, begun, by): (u64, u64, By)) {
    world.note_at(at, key, What::Admitted { permits, begun, by });
}

/// Which version of the policy an answer is by.
fn version_of(world: &World<'_>, answer: &Answer) -> usize {
    let is = |policies: &sluicegate::policy::PolicySet| {
        let policy = policies.resolve("p").expect("each version has it");
        **policy.rules_at(b"a", sluicegate::Micros::ZERO).rules.set() == **answer.rules()
    };
    world.policies.iter().rposition(is).unwrap_or(0)
}

/// I8: what is refused by memory would be refused by the store.
fn remembered(world: &mut World<'_>, task: TaskView, arrival: Arrival) {
    let now = world.now;
    let cost = Cost::new(arrival.ask.cost()).expect("costs are at least 1");
    // A holder asks for all its requests at its own pace, and what is out may come back at any time.
    if world.plan.leases {
        return crate::grants::check_refusal(world, (task.node, arrival.key), cost);
    }
    let changed = world.given_back[arrival.key];
    let is_recent = changed.is_some_and(|then| then + REMEMBERED_US > now);
    // One finds out that it holds no more, and others get it meanwhile.
    let is_asked = changed.is_some() && world.sent_at[task.node][arrival.key] + ASKING_US > now;
    if is_recent || is_asked || is_disturbed(world, task) {
        return;
    }
    if world.server.refuses(&node::key_name(arrival.key), cost, now) != Some(true) {
        let what =
            format!("node {} remembers a refusal of {arrival:?} that holds no more", task.node);
        world.judge.fail("I8", now, what);
    }
}

/// I13: an answer is by whose word it says, and the store is asked as soon as it can be.
fn modes(world: &mut World<'_>, task: TaskView, answer: &Answer) {
    let (now, mode, on_failure) = (world.now, answer.mode, world.plan.on_failure);
    let is_true = match mode {
        Mode::Store => task.executed.is_some(),
        Mode::Leased => world.plan.leases,
        Mode::Remembered | Mode::Shed => true,
        Mode::Local => on_failure == OnFailure::Local,
        Mode::Allow => on_failure == OnFailure::Allow,
        Mode::Deny => on_failure == OnFailure::Deny,
    };
    if !is_true {
        world.judge.fail(
            "I13",
            now,
            format!("an answer by `{}` under {on_failure:?}", mode.name()),
        );
    }
    let is_without = !matches!(mode, Mode::Store | Mode::Leased | Mode::Remembered);
    if is_without {
        finds_out(world, task);
    }
    // A store that books the future grants beside a debt that it has no room for, until the engine gives up.
    let is_owing = mode == Mode::Shed && world.nodes[task.node].engine.debts() > 0;
    if is_without && !is_owing && !is_disturbed(world, task) {
        let what =
            format!("node {} decides by `{}`, and the store answers", task.node, mode.name());
        world.judge.fail("I13", now, what);
    }
}

/// A request went without the store: those that come now find out whether it is back. Before that, the breaker may
/// not let one.
fn finds_out(world: &mut World<'_>, task: TaskView) {
    if world.disturbed_until[task.node] + PROBE_US < task.begun_at {
        world.asked_since[task.node].get_or_insert(task.begun_at);
    }
}

fn failed(world: &mut World<'_>, task: TaskView, arrival: Arrival, error: &DecideError) {
    world.seen(format_args!("node {} {:?}: {error}", task.node, arrival.ask));
    let can_fail = matches!(
        arrival.ask,
        Ask::Reset | Ask::CheckAndRefund(..) | Ask::CheckAndSettle(..) | Ask::Explain(_)
    );
    let removed_until = world.removed_until[task.node];
    let is_removed = removed_until > 0 && task.begun_at <= removed_until;
    if is_removed && matches!(error, DecideError::UnknownPolicy { .. }) {
        return;
    }
    finds_out(world, task);
    if !can_fail || !is_disturbed(world, task) {
        world.judge.fail("I13", world.now, format!("{arrival:?}: {error}"));
    }
}

/// Whether a fault may keep the node from the store, or has until a moment ago: only requests find out that the
/// store is back.
fn is_disturbed(world: &World<'_>, task: TaskView) -> bool {
    let until = match (world.disturbed_until[task.node], world.asked_since[task.node]) {
        (0, _) => return false,
        (until, asked) => until.max(asked.unwrap_or(until)),
    };
    until + RECOVERY_US >= task.begun_at
}

/// What is owed is charged once the store answers and has room.
pub(crate) fn check_debts(world: &mut World<'_>) {
    let now = world.now;
    // A store that forgot what it charged charges it once more.
    let keeps_all =
        world.plan.versions.len() == 1 && world.forgot_at.is_none() && !world.plan.evicts();
    for (node, dues) in world.dues.iter().enumerate() {
        for (key, Dues { admitted, charged, bills, .. }) in dues.iter().enumerate() {
            let charged = charged.iter().max().unwrap_or(&0);
            // A part of a permit is billed as one. Other rules may count permits otherwise.
            if *charged > admitted + bills && keeps_all {
                let what = format!(
                    "node {node} admitted {admitted} of key {key} alone, and was charged {charged}"
                );
                world.judge.fail("I17", now, what);
            }
        }
    }
    let one = Cost::ONE;
    let refuses = |key| world.server.refuses(&node::key_name(key), one, now.saturating_sub(SECOND));
    let has_room = (0..world.plan.keys).all(|key| refuses(key) != Some(true));
    for node in 0..world.plan.nodes {
        let owing = world.nodes[node].engine.debts();
        let is_calm = world.disturbed_until[node] + 2 * SECOND < now && world.nodes[node].is_up;
        // A window may have had room for a moment only.
        let flows = world.plan.versions.iter().flat_map(|version| &version.rules);
        let flows = flows.into_iter().all(crate::plan::RuleSpec::is_bucket);
        if owing > 0 && has_room && is_calm && flows {
            let what = format!("node {node} owes on {owing} keys, and the store has room");
            world.judge.fail("debts", now, what);
        }
    }
}
