//! Checks of when a node gives a store up, and how often it probes the store then: neither too often nor too seldom.

use std::collections::VecDeque;
use std::task::Poll;

use sluicegate::{Admission, Mode};

use super::World;
use crate::node::Done;
use crate::plan::{FaultKind, MS, SECOND};
use crate::promises::Invariant;
use crate::wire::ReplyCounts;

/// The shortest time between two probes, µs.
const APART_MIN_US: u64 = 100 * MS;

/// The longest time between two probes while requests come, µs: 300 ms of a clock that may be a twentieth too slow.
const APART_MAX_US: u64 = 316 * MS;

/// The most calls that get no answer before the store is given up: half of five are enough.
const SILENT_MAX: usize = 5;

/// The span of these calls, µs: a breaker counts a second of its own clock.
const SILENT_WITHIN_US: u64 = 800 * MS;

/// The span before without any answer, µs: then nothing else counts.
const SILENT_FOR_US: u64 = 1_200 * MS;

/// The fewest calls without an answer that give a store up: half of five.
const IN_VAIN_MIN: usize = 3;

/// The span of answers that a breaker counts for certain, µs: nine slots and a little less.
const COUNTED_US: u64 = 890 * MS;

/// The answers that a process got lately, and its requests and calls without one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Silence {
    answered_at: Option<u64>,
    failed: VecDeque<u64>,
    /// The times at which calls were found to have no answer, lately.
    in_vain: VecDeque<u64>,
    /// The times of requests that the store decided, since it was given up last, and lately.
    decided: VecDeque<u64>,
    /// The time at which the clock by which breakers count was last set.
    since: u64,
}

impl Silence {
    /// Begins anew after the clock of the breaker was set. By the new clock, the store may have answered just now.
    pub(crate) fn begin_anew(&mut self, now: u64) {
        *self = Self { answered_at: Some(now), since: now, ..Self::default() };
    }
}

/// The probes of a process since it gave the store up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probes {
    asked_at: Option<u64>,
    /// The time at which the first request since the last probe was decided without one.
    silent_since: Option<u64>,
}

impl Probes {
    /// Begins anew after the clock of the breaker was set: a probe is due, or will be as soon as if there had been
    /// none.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self::default();
    }
}

/// A run of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskRun<'t> {
    pub(crate) node: usize,
    /// The store was given up before the task ran.
    pub(crate) was_without: bool,
    /// The task called the store in this run.
    pub(crate) calls: bool,
    /// The task is for a request that came at this instant, or for leases.
    pub(crate) is_new: bool,
    /// The task keeps leases.
    pub(crate) is_keeper: bool,
    /// The time of the request, if the task has called the store for it.
    pub(crate) begun: Option<u64>,
    /// The calls that ended.
    pub(crate) replies: ReplyCounts,
    /// The result of the task, if it is done.
    pub(crate) polled: &'t Poll<Done>,
}

/// Checks a task that ran.
pub(crate) fn check(world: &mut World<'_>, run: TaskRun<'_>) {
    check_probes(world, run);
    check_overload(world, run);
    check_silence(world, run);
    check_given_up(world, run);
}

/// `LostStoreIsProbed`: a store that was given up is asked every now and then.
fn check_probes(world: &mut World<'_>, run: TaskRun<'_>) {
    let TaskRun { node, was_without, calls, is_new, polled, .. } = run;
    let (now, is_without) = (world.now, world.nodes[node].engine.is_without_store());
    if !was_without || !is_without {
        world.probes[node] = Probes::default();
        return;
    }
    let has_wrong_clocks = has_wrong_clocks(world);
    let probes = &mut world.probes[node];
    let mut broken = None;
    if calls {
        let is_early = |last: &u64| is_new && now < last + APART_MIN_US && !has_wrong_clocks;
        let last = probes.asked_at.filter(is_early);
        broken = last.map(|last| format!("asks {} µs after its last question", now - last));
        // A request that waited for a lease probes by the earlier clock.
        *probes = Probes { asked_at: is_new.then_some(now), silent_since: None };
    } else if is_new && is_without_word(polled) {
        let since = *probes.silent_since.get_or_insert(now);
        let is_late = now > since + APART_MAX_US;
        broken = is_late.then(|| format!("asks nothing for {} µs, and requests come", now - since));
    }
    if let Some(what) = broken {
        world.record.fail(
            Invariant::LostStoreIsProbed,
            now,
            format!("node {node} has given the store up, and {what}"),
        );
    }
}

/// `AnswerIsTrue`: a store that answers that it is overloaded is not given up, nor stays so, nor is it replaced.
fn check_overload(world: &mut World<'_>, run: TaskRun<'_>) {
    let TaskRun { node, was_without, is_keeper, replies, polled, .. } = run;
    if replies.overloaded == 0 || replies.silent > 0 {
        return;
    }
    // Of several requests, others may have got no answer before.
    let is_one = matches!(polled, Poll::Ready(Done::Decided(..)));
    let is_told = !was_without || is_one || is_keeper;
    let is_given_up = is_told && world.nodes[node].engine.is_without_store();
    if is_given_up || !was_without && is_one && is_without_word(polled) {
        let what = format!("node {node} decides for a store that has too much to do");
        world.record.fail(Invariant::AnswerIsTrue, world.now, what);
    }
}

/// `SilentStoreIsGivenUp`: a store that answers nothing is given up.
fn check_silence(world: &mut World<'_>, run: TaskRun<'_>) {
    let TaskRun { node, begun, replies, polled, .. } = run;
    let (now, is_without) = (world.now, world.nodes[node].engine.is_without_store());
    let silence = &mut world.silence[node];
    if replies.answered + replies.overloaded + replies.late > 0 {
        silence.answered_at = Some(now);
    }
    let is_one = matches!(polled, Poll::Ready(Done::Decided(..)));
    let Some(begun) = begun.filter(|_| is_one && is_without_word(polled)) else { return };
    silence.failed.push_back(begun);
    let since = silence.since;
    silence.failed.retain(|begun| *begun >= since && *begun + SILENT_WITHIN_US > now);
    let is_silent = silence.answered_at.is_none_or(|then| then + SILENT_FOR_US < now);
    if silence.failed.len() > SILENT_MAX && is_silent && !is_without {
        let what = format!("node {node} asks on and on, and nobody answers");
        world.record.fail(Invariant::SilentStoreIsGivenUp, now, what);
    }
}

/// `AnsweringStoreIsKept`: a node gives the store up only if half of a second's calls got no answer, and not after an
/// answer about a lease.
fn check_given_up(world: &mut World<'_>, run: TaskRun<'_>) {
    let TaskRun { node, was_without, is_keeper, begun, replies, polled, .. } = run;
    let (now, is_without) = (world.now, world.nodes[node].engine.is_without_store());
    let (has_wrong_clocks, deadline_us) = (has_wrong_clocks(world), world.plan.deadline_us);
    let Silence { in_vain, decided, .. } = &mut world.silence[node];
    let is_back = was_without && !is_without;
    if is_keeper && was_without && is_without && replies.answered > 0 && replies.silent == 0 {
        let what =
            format!("node {node} has an answer about a lease, and goes on without the store");
        return world.record.fail(Invariant::AnsweringStoreIsKept, now, what);
    }
    if is_back {
        in_vain.clear();
    }
    in_vain.extend((0..replies.silent).map(|_| now));
    // A call counts as of its request, which came up to five deadlines before.
    in_vain.retain(|at| *at + SECOND + 5 * deadline_us >= now);
    if let (Poll::Ready(Done::Decided(_, Ok(said))), Some(begun)) = (polled, begun)
        && said.answer.mode == Mode::Store
    {
        decided.push_back(begun);
    }
    decided.retain(|begun| *begun + COUNTED_US >= now);
    if is_back {
        decided.clear();
    }
    let (in_vain, decided) = (in_vain.len(), decided.len());
    let is_fair = in_vain >= IN_VAIN_MIN.max(decided);
    // A call that the client refuses counts as an answer: at one instant it may close the breaker between two calls
    // without an answer, and the order is not known here.
    let is_vague = world.plan.calls_max.is_some();
    if is_without && !was_without && !is_fair && !has_wrong_clocks && !is_vague {
        let what =
            format!("node {node} gives the store up: {in_vain} calls in vain, {decided} not");
        world.record.fail(Invariant::AnsweringStoreIsKept, now, what);
    }
}

/// Returns whether the clock of breakers, the node's wall clock, may be wrong.
pub(crate) fn has_wrong_clocks(world: &World<'_>) -> bool {
    let is_wrong = |kind| {
        matches!(
            kind,
            FaultKind::Drift(_)
                | FaultKind::WallClock(_)
                | FaultKind::NodeSuspended
                | FaultKind::MachineStopped
        )
    };
    world.plan.faults.iter().any(|fault| is_wrong(fault.kind))
}

/// Returns whether a request was decided without the store.
fn is_without_word(polled: &Poll<Done>) -> bool {
    let is_without = |decided: &Result<Admission, _>| {
        decided.as_ref().is_ok_and(|admission| {
            matches!(admission.answer.mode, Mode::Local | Mode::Allow | Mode::Deny)
        })
    };
    match polled {
        Poll::Ready(Done::Decided(_, decided)) => is_without(decided),
        Poll::Ready(Done::DecidedEach(each)) => each.iter().any(|(.., said)| is_without(said)),
        _ => false,
    }
}
