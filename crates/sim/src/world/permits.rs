//! Permits that are held: what clients hold, and what the store holds for them.
//!
//! Both are followed by the answers alone, without the arithmetic of the kernel. So a permit that the engine or the
//! store gives back too early shows when the next one is granted, and one that it keeps too long when the next one is
//! refused.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate::internals::kernel::RuleSet;
use sluicegate::internals::store::StoreAnswer;
use sluicegate::{Admission, Answer, Cost, DecideError, Decision, Micros, Mode, Verb};

use super::lease_checks::KeyAtNode;
use super::waits::{Line, Ticket, Turn};
use super::{ASKED_MAX, TaskView, World};
use crate::bounds::Process;
use crate::node::PermitStep;
use crate::plan::{Arrival, Ask, Hold, PolicySpec, RuleSpec, SECOND};
use crate::promises::Invariant;
use crate::wire::{Reply, Said, StoreAsk};

/// The time by which a share may decide later than its request began, µs: `spec/failure.md`, The local share.
const SHARE_LATER_US: u64 = SECOND;

/// The permits that are held of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permits {
    /// Permits that the store holds, by id.
    stored: BTreeMap<u64, StoredPermit>,
    /// The requests that wait for permits.
    line: Line,
    /// Each change of both: its instant, µs, and what was before it.
    changes: Vec<(u64, BTreeMap<u64, StoredPermit>, Line)>,
    /// The limit by the last answer.
    limit: u64,
    /// The first in line while it could pass.
    pub(super) turn: Option<Turn>,
    /// Permits that clients hold by a grant of the store, by id.
    clients: BTreeMap<u64, StoredPermit>,
    /// Permits that clients hold by the share of a process, by that and their id.
    shared: BTreeMap<(Process, u64), SharedPermit>,
    /// Permits that a process may have granted by its share to clients that had gone away.
    left: Vec<SharedPermit>,
    /// Ids that a client has released. Another client that acquires the same id may lose its permit by that.
    released: BTreeSet<u64>,
    /// The store's clock was set back, and the key was not asked for since.
    pub(super) is_set_back: bool,
    /// The time of the first request after that, µs: what the store remembers lasts at most its whole length from then.
    pub(super) shortened_at: u64,
    /// The store's clock from which `stored` is exact: what lapsed just before the clock was set back is held again.
    exact_from: Micros,
}

#[derive(Clone, Copy, Debug)]
struct StoredPermit {
    cost: u64,
    /// The time at which it lapses, by the clock of the store.
    lapses: Micros,
}

/// A permit that a process granted by its share.
#[derive(Clone, Copy, Debug)]
struct SharedPermit {
    cost: u64,
    of: Process,
    /// The time at which it lapses, in true time, µs.
    lapses_us: u64,
}

impl Permits {
    /// Notes that the store has forgotten all of the key.
    pub(crate) fn forget(&mut self) {
        self.changes.clear();
        self.stored.clear();
        self.line = Line::default();
        self.forget_with_store();
    }

    /// Notes that the store has lost the writes of the last `lost_us`; `u64::MAX`: all.
    pub(crate) fn lose(&mut self, lost_us: u64, clock: Micros, now: u64) {
        if lost_us == u64::MAX {
            return self.forget();
        }
        while let Some((at, before, line)) = self.changes.pop() {
            if at + lost_us < now {
                self.changes.push((at, before, line));
                break;
            }
            (self.stored, self.line) = (before, line);
        }
        // What says no more than no value does not come back, also if the clock is set back then.
        let mut line = self.line.clone();
        line.tick(clock);
        if line.len() == 0 && self.stored.values().all(|permit| permit.lapses <= clock) {
            self.line = line;
        }
        self.forget_with_store();
    }

    /// Notes whether the first in line could pass.
    pub(super) fn note_turn(&mut self, clock: Micros, now: u64) {
        let mut line = self.line.clone();
        line.tick(clock);
        let held = self.stored.values().filter(|permit| permit.lapses > clock);
        let free = self.limit.saturating_sub(held.map(|permit| permit.cost).sum());
        self.turn = line.turn(free, self.turn, now);
    }

    /// Notes that the store's clock was set back: from the next request on, each permit that it holds lapses within a
    /// ttl.
    pub(crate) fn set_back(&mut self) {
        self.is_set_back = true;
    }

    /// Notes that writes until now cannot be lost any more.
    pub(crate) fn keep(&mut self) {
        self.changes.clear();
    }

    /// Forgets permits of clients that the store has forgotten, and shortens those that it holds for a shorter time.
    fn forget_with_store(&mut self) {
        let stored = &self.stored;
        self.clients.retain(|id, permit| match stored.get(id) {
            Some(stored) => {
                permit.lapses = stored.lapses.min(permit.lapses);
                true
            }
            None => false,
        });
    }

    /// Forgets permits that have lapsed by the clock of the store, and shortens those that would lapse later than a ttl
    /// from now.
    fn tick(&mut self, clock: Micros, last: Micros) {
        for permits in [&mut self.stored, &mut self.clients] {
            permits.retain(|_, permit| {
                permit.lapses = permit.lapses.min(last);
                permit.lapses > clock
            });
        }
    }

    /// Notes that a client of a process goes away that may be granted `cost` permits by its share all the same.
    pub(super) fn is_left(&mut self, cost: u64, of: Process, lapses_us: u64) {
        self.left.push(SharedPermit { cost, of, lapses_us });
    }

    /// Permits that a process may have granted to clients that had gone away, and that lapse after then.
    fn left_at_share(&self, of: Process, after_us: u64) -> u64 {
        let is_held = |permit: &&SharedPermit| permit.of == of && permit.lapses_us > after_us;
        self.left.iter().filter(is_held).map(|permit| permit.cost).sum()
    }

    /// Permits that a process granted and that lapse after then.
    fn held_by_share(&self, of: Process, after_us: u64) -> u64 {
        let is_held = |permit: &&SharedPermit| permit.of == of && permit.lapses_us > after_us;
        self.shared.values().filter(is_held).map(|permit| permit.cost).sum()
    }
}

fn held(permits: &BTreeMap<u64, StoredPermit>) -> u64 {
    permits.values().map(|permit| permit.cost).sum()
}

/// Follows the execution of a request, and checks that its answer is right: `PermitsWithinLimit` of the store, `TurnKept` and
/// `NoPlaceLeaks`.
pub(crate) fn executed(world: &mut World<'_>, of: KeyAtNode, ask: &StoreAsk, reply: &Reply) {
    let (Verb::Acquire { permit, .. }
    | Verb::Wait { permit, .. }
    | Verb::Leave { permit, .. }
    | Verb::Release { permit }
    | Verb::Renew { permit }) = ask.verb
    else {
        return;
    };
    let Ok(Said::Decided(answer, _)) = reply else { return };
    let decision = answer.verdict.decision;
    let id = u64::try_from(permit.0).expect("ids are made of numbers");
    let (clock, now) = (world.server.clock(world.now), world.now);
    let lapses = clock.plus(Micros::new(world.plan.ttl_us()));
    let name = crate::node::key_name(of.key);
    let rules = world.server.of(&name, now).map_or_else(|| ask.rules.clone(), |(rules, _)| rules);
    let queue = queue_of(world, &rules);
    let permits = &mut world.permits[of.key];
    permits.changes.push((now, permits.stored.clone(), permits.line.clone()));
    if std::mem::take(&mut permits.is_set_back) {
        permits.exact_from = lapses;
        permits.shortened_at = now;
    }
    permits.tick(clock, lapses);
    permits.line.tick(clock);
    permits.line.keep_within(decision.limit, queue > 0);
    permits.limit = decision.limit;
    let is_exact = clock >= permits.exact_from;
    let broken = check_answer(permits, id, &ask.verb, &decision, queue);
    if let Some((invariant, what)) = broken.filter(|_| is_exact) {
        let (limit, verb) = (decision.limit, &ask.verb);
        let in_store = held(&permits.stored);
        let used = world.server.used(&name, now);
        let waiting = world.permits[of.key].line.len();
        let what = format!(
            "{in_store} of {limit} are held, {waiting} of {queue} wait, the store counts {used}, and {verb:?} is \
             answered {decision:?}: {what}"
        );
        return world.record.fail(invariant, now, what);
    }
    match ask.verb {
        _ if !decision.allowed() => {}
        Verb::Release { .. } => drop(permits.stored.remove(&id)),
        Verb::Leave { .. } => permits.line.remove(id),
        Verb::Wait { cost, process, .. } if decision.granted() == 0 => {
            permits.line.enter(Ticket { id, cost: cost.get(), process, of }, clock);
        }
        _ => {
            let by_clients = held(&permits.clients);
            let cost = decision.granted();
            permits.stored.insert(id, StoredPermit { cost, lapses });
            if let Verb::Acquire { .. } | Verb::Wait { .. } = ask.verb {
                permits.line.remove(id);
                if by_clients + cost > decision.limit {
                    let limit = decision.limit;
                    let what =
                        format!("clients hold {by_clients} of {limit}, and {cost} are granted");
                    world.record.fail(Invariant::PermitsWithinLimit, now, what);
                }
            }
        }
    }
    check_after(world, of.key, answer, clock);
}

/// Checks what the store holds after it answered about a key, and whom the answer calls.
fn check_after(world: &mut World<'_>, key: usize, answer: &StoreAnswer, clock: Micros) {
    let (now, limit) = (world.now, answer.verdict.decision.limit);
    let permits = &mut world.permits[key];
    permits.note_turn(clock, now);
    if clock < permits.exact_from {
        return;
    }
    let in_store = held(&permits.stored);
    let called = permits.line.check_called(limit.saturating_sub(in_store), &answer.called);
    let used = world.server.used(&crate::node::key_name(key), now);
    if in_store != used {
        let what = format!("{in_store} are held, and the store counts {used}");
        world.record.fail(Invariant::PermitsWithinLimit, now, what);
    }
    if let Err((invariant, what)) = called {
        world.record.fail(invariant, now, what);
    }
}

/// Returns the invariant that an answer about permit `id` breaks.
fn check_answer(
    permits: &Permits,
    id: u64,
    verb: &Verb,
    decision: &Decision,
    queue: u64,
) -> Option<(Invariant, &'static str)> {
    let Permits { stored, line, .. } = permits;
    let (is_held, limit, in_store) = (stored.contains_key(&id), decision.limit, held(stored));
    let is_allowed = decision.allowed();
    let (cost, is_granted) = match *verb {
        Verb::Acquire { cost, .. } | Verb::Wait { cost, .. } => (cost, decision.granted() > 0),
        Verb::Leave { process, .. } => {
            let has_ticket = line.find(id).is_some_and(|ticket| ticket.process == process);
            return match (is_allowed, has_ticket) {
                (true, false) => Some((Invariant::TurnKept, "it takes the ticket of another")),
                (false, true) => Some((Invariant::NoPlaceLeaks, "its ticket stays")),
                _ => None,
            };
        }
        _ if is_allowed == is_held => return None,
        _ => return Some((Invariant::PermitsWithinLimit, "its permit is not as it was held")),
    };
    let cost = Cost::get(cost);
    let fits = !is_held && in_store + cost <= limit;
    let passes = fits && in_store + line.ahead_of(id) + cost <= limit;
    let waits = matches!(verb, Verb::Wait { .. });
    let has_place = line.find(id).is_some() || (line.len() as u64) < queue;
    match is_granted {
        true if !fits => Some((Invariant::PermitsWithinLimit, "it has no room")),
        true if !passes => Some((Invariant::TurnKept, "requests before it need the permits")),
        true => None,
        // Without a queue, it can only be permits that stand in its way.
        false if passes && queue == 0 => Some((Invariant::PermitsWithinLimit, "it has room")),
        false if passes => Some((Invariant::NoPlaceLeaks, "nothing stands in its way")),
        false if waits && is_allowed != (!is_held && cost <= limit && has_place) => {
            Some((Invariant::NoPlaceLeaks, "the queue is full, or is not"))
        }
        false => None,
    }
}

/// Returns the number of requests that may wait for a permit of a set of rules.
fn queue_of(world: &World<'_>, rules: &RuleSet) -> u64 {
    match world.plan.versions[world.version_of(rules)].rules[..] {
        [RuleSpec::Concurrency { queue, .. }, ..] => queue,
        _ => unreachable!("only rules of concurrency hand out permits"),
    }
}

/// A client begins to renew or release a permit: what it releases it does not use any more.
pub(crate) fn begins(world: &mut World<'_>, arrival: &Arrival, hold: Hold, step: PermitStep) {
    if step == PermitStep::Release {
        let of = (arrival.node, world.nodes[arrival.node].life);
        let permits = &mut world.permits[arrival.key];
        permits.clients.remove(&hold.id);
        permits.shared.remove(&(of, hold.id));
        permits.released.insert(hold.id);
    }
}

/// Follows the answer to a client's step, and has the client do what comes next.
pub(crate) fn see(
    world: &mut World<'_>,
    task: TaskView,
    arrival: Arrival,
    step: PermitStep,
    decided: Result<Admission, DecideError>,
) {
    let Ask::Hold(hold) = arrival.ask else { unreachable!("only a permit is held") };
    let answer = match decided {
        Ok(admission) => admission.answer,
        Err(error) => return failed(world, task, arrival, step, &error),
    };
    let decision = answer.decision;
    world.seen(format_args!(
        "node {} key {} {step:?} of permit {}: {:?} by {}, {} left",
        task.node,
        arrival.key,
        hold.id,
        decision.outcome,
        answer.mode.name(),
        decision.remaining
    ));
    // The process that handed out a permit renews and releases it, whether the store answers or not.
    if step == PermitStep::Acquire || answer.mode != Mode::Local {
        super::answers::check_mode(world, task, &answer);
    }
    match (step, answer.mode) {
        (PermitStep::Release, _) => {}
        (_, Mode::Store) => granted_by_store(world, arrival.key, hold, decision.allowed()),
        (_, Mode::Local) => {
            let may_wait = step == PermitStep::Acquire && world.plan.max_wait_of(&arrival) > 0;
            let held = HoldStep { key: arrival.key, hold, step, may_wait };
            granted_by_share(world, task, held, &answer);
        }
        // Nothing is recorded, so nothing is held; a refusal changes nothing.
        _ => return,
    }
    if decision.allowed() && step != PermitStep::Release {
        let renewals = match step {
            PermitStep::Renew { left } => left,
            _ => hold.renewals,
        };
        match renewals {
            1.. => world.hold_later(arrival, hold, PermitStep::Renew { left: renewals - 1 }),
            0 if hold.is_released => world.hold_later(arrival, hold, PermitStep::Release),
            0 => {}
        }
    }
}

fn granted_by_store(world: &mut World<'_>, key: usize, hold: Hold, is_allowed: bool) {
    let permits = &mut world.permits[key];
    match permits.stored.get(&hold.id) {
        Some(stored) if is_allowed && !permits.released.contains(&hold.id) => {
            permits.clients.insert(hold.id, *stored);
        }
        // Another client of the same id released it meanwhile, or the store forgot it.
        _ => {}
    }
}

/// A step of a client with its permit of a key.
#[derive(Clone, Copy, Debug)]
struct HoldStep {
    key: usize,
    hold: Hold,
    step: PermitStep,
    /// The request may have waited.
    may_wait: bool,
}

/// `PermitsWithinLimit`, of a share: the process has handed out no more than its part of the limit, and refuses only
/// what is beyond.
fn granted_by_share(world: &mut World<'_>, task: TaskView, held: HoldStep, answer: &Answer) {
    let HoldStep { key, hold, step, may_wait } = held;
    let (now, decision, of) = (world.now, answer.decision, (task.node, task.life));
    // A request that waits is decided by its last question, which may have begun before its process stood still.
    let stood = may_wait && world.nodes[task.node].paused_until > task.begun_at;
    let asked_at = match may_wait && !stood {
        true => task.begun_at.max(now.saturating_sub(ASKED_MAX * world.plan.deadline_us)),
        false => task.begun_at,
    };
    let ttl_us = world.plan.ttl_us();
    let lapses_us = asked_at + ttl_us;
    let permits = &mut world.permits[key];
    let is_allowed = decision.allowed();
    // While it waited, permits were given back that were held when it was refused.
    if step == PermitStep::Acquire && (is_allowed || !may_wait) {
        // The share decides at some instant from the request until now, and each permit lapses up to a second later.
        let after_us = match is_allowed {
            true => now,
            false => task.begun_at.saturating_sub(SHARE_LATER_US),
        };
        let left = if is_allowed { 0 } else { permits.left_at_share(of, after_us) };
        let held = permits.held_by_share(of, after_us) + left;
        let (cost, limit) = (hold.cost, decision.limit);
        let is_held = permits.shared.contains_key(&(of, hold.id));
        if is_allowed != (held + cost <= limit) && (is_allowed || !is_held) {
            let what = format!(
                "node {} has handed out {held} of its {limit}, and {cost} are answered {decision:?}",
                task.node
            );
            return world.record.fail(Invariant::PermitsWithinLimit, now, what);
        }
    }
    if is_allowed {
        let renewed = permits.shared.get(&(of, hold.id)).filter(|_| step != PermitStep::Acquire);
        let cost = renewed.map_or(hold.cost, |permit| permit.cost);
        permits.shared.insert((of, hold.id), SharedPermit { cost, of, lapses_us });
        if stood {
            permits.is_left(cost, of, now + ttl_us);
        }
    }
}

/// `AnswerIsTrue`: only what needs the store's record of a permit may fail, and only while a fault keeps the node from
/// the store.
fn failed(
    world: &mut World<'_>,
    task: TaskView,
    arrival: Arrival,
    step: PermitStep,
    error: &DecideError,
) {
    world.seen(format_args!("node {} {step:?} of {:?}: {error}", task.node, arrival.ask));
    super::answers::note_probe(world, task);
    // An edit may remove the queue.
    let may_not_wait = matches!(error, DecideError::Unsupported(_))
        && world.plan.max_wait_of(&arrival) > 0
        && world.plan.versions.iter().any(has_no_queue);
    if may_not_wait && step == PermitStep::Acquire {
        return;
    }
    if step == PermitStep::Acquire || !super::answers::is_disturbed(world, task) {
        world.record.fail(
            Invariant::AnswerIsTrue,
            world.now,
            format!("{step:?} of {arrival:?}: {error}"),
        );
    }
}

fn has_no_queue(version: &PolicySpec) -> bool {
    matches!(version.rules[..], [RuleSpec::Concurrency { queue: 0, .. }, ..])
}
