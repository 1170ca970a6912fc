//! Permits that are held: what clients hold, and what the store holds for them.
//!
//! Both are followed by the answers alone, without the arithmetic of the kernel. So a permit that the engine or the
//! store gives back too early shows when the next one is granted, and one that it keeps too long when the next one is
//! refused.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate::{Admission, Answer, DecideError, Micros, Mode, Verb};

use crate::bounds::Process;
use crate::node::Step;
use crate::plan::{Arrival, Ask, Hold, RuleSpec, SECOND};
use crate::promises::Invariant;
use crate::wire::{Reply, Said, StoreAsk};
use crate::world::{TaskView, World};

/// The time by which a share may decide later than its request began, µs: `spec/failure.md`, The local share.
const SHARE_LATER_US: u64 = SECOND;

/// The permits that are held of one key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permits {
    /// Permits that the store holds, by id.
    stored: BTreeMap<u64, StoredPermit>,
    /// Each change of them: its instant, µs, and the permits before it.
    changes: Vec<(u64, BTreeMap<u64, StoredPermit>)>,
    /// Permits that clients hold by a grant of the store, by id.
    clients: BTreeMap<u64, StoredPermit>,
    /// Permits that clients hold by the share of a process, by id.
    shared: BTreeMap<u64, SharedPermit>,
    /// Ids that a client has released. Another client that acquires the same id may lose its permit by that.
    released: BTreeSet<u64>,
    /// The store's clock was set back, and the key was not asked for since.
    is_set_back: bool,
    /// The store's clock from which `stored` is exact: what lapsed just before the clock was set back is held again.
    exact_from: Micros,
}

#[derive(Clone, Copy, Debug)]
struct StoredPermit {
    cost: u64,
    /// When it lapses, by the clock of the store.
    lapses: Micros,
}

/// A permit that a process granted by its share.
#[derive(Clone, Copy, Debug)]
struct SharedPermit {
    cost: u64,
    of: Process,
    /// When it lapses, in true time, µs.
    lapses_us: u64,
}

impl Permits {
    /// Notes that the store has forgotten all of the key.
    pub(crate) fn forget(&mut self) {
        self.changes.clear();
        self.stored.clear();
        self.forget_with_store();
    }

    /// Notes that the store has lost the writes of the last `lost_us`; `u64::MAX`: all.
    pub(crate) fn lose(&mut self, lost_us: u64, now: u64) {
        if lost_us == u64::MAX {
            return self.forget();
        }
        while let Some((at, before)) = self.changes.pop() {
            if at + lost_us < now {
                self.changes.push((at, before));
                break;
            }
            self.stored = before;
        }
        self.forget_with_store();
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

    /// Permits that a process granted and that lapse after then.
    fn held_by_share(&self, of: Process, after_us: u64) -> u64 {
        let is_held = |permit: &&SharedPermit| permit.of == of && permit.lapses_us > after_us;
        self.shared.values().filter(is_held).map(|permit| permit.cost).sum()
    }
}

fn held(permits: &BTreeMap<u64, StoredPermit>) -> u64 {
    permits.values().map(|permit| permit.cost).sum()
}

/// `PermitsWithinLimit`, of the store: follows the execution of a request, and checks that its answer is right.
pub(crate) fn executed(world: &mut World<'_>, key: usize, ask: &StoreAsk, reply: &Reply) {
    let (Verb::Acquire { permit, .. } | Verb::Release { permit } | Verb::Renew { permit }) =
        ask.verb
    else {
        return;
    };
    let Ok(Said::Decided(answer, _)) = reply else { return };
    let decision = answer.verdict.decision;
    let id = u64::try_from(permit.0).expect("ids are made of numbers");
    let (clock, now) = (world.server.clock(world.now), world.now);
    let lapses = clock.plus(Micros::new(ttl_us(world)));
    let permits = &mut world.permits[key];
    permits.changes.push((now, permits.stored.clone()));
    if std::mem::take(&mut permits.is_set_back) {
        permits.exact_from = lapses;
    }
    permits.tick(clock, lapses);
    let (in_store, is_held) = (held(&permits.stored), permits.stored.contains_key(&id));
    let passes = match ask.verb {
        Verb::Acquire { cost, .. } => !is_held && in_store + cost.get() <= decision.limit,
        _ => is_held,
    };
    let is_exact = clock >= permits.exact_from;
    if is_exact && passes != decision.allowed() {
        let (limit, verb) = (decision.limit, &ask.verb);
        let what = format!("{in_store} of {limit} are held, and {verb:?} is answered {decision:?}");
        return world.record.fail(Invariant::PermitsWithinLimit, now, what);
    }
    match ask.verb {
        _ if !decision.allowed() => {}
        Verb::Release { .. } => drop(permits.stored.remove(&id)),
        _ => {
            let by_clients = held(&permits.clients);
            let cost = decision.granted();
            permits.stored.insert(id, StoredPermit { cost, lapses });
            if matches!(ask.verb, Verb::Acquire { .. }) && by_clients + cost > decision.limit {
                let limit = decision.limit;
                let what = format!("clients hold {by_clients} of {limit}, and {cost} are granted");
                world.record.fail(Invariant::PermitsWithinLimit, now, what);
            }
        }
    }
    let (name, in_store) = (crate::node::key_name(key), held(&world.permits[key].stored));
    let used = world.server.used(&name, now);
    if is_exact && in_store != used {
        world.record.fail(
            Invariant::PermitsWithinLimit,
            now,
            format!("{in_store} are held, and the store counts {used}"),
        );
    }
}

/// A client begins to renew or release a permit: what it releases it does not use any more.
pub(crate) fn begins(world: &mut World<'_>, arrival: &Arrival, hold: Hold, step: Step) {
    if step == Step::Release {
        let permits = &mut world.permits[arrival.key];
        permits.clients.remove(&hold.id);
        permits.shared.remove(&hold.id);
        permits.released.insert(hold.id);
    }
}

/// Follows the answer to a client's step, and has the client do what comes next.
pub(crate) fn see(
    world: &mut World<'_>,
    task: TaskView,
    (arrival, step): (Arrival, Step),
    decided: Result<Admission, DecideError>,
) {
    let Ask::Hold(hold) = arrival.ask else { unreachable!("only a permit is held") };
    let answer = match decided {
        Ok(admission) => admission.answer,
        Err(error) => return failed(world, task, (arrival, step), &error),
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
    if step == Step::Acquire || answer.mode != Mode::Local {
        crate::reply_checks::modes(world, task, &answer);
    }
    match (step, answer.mode) {
        (Step::Release, _) => {}
        (_, Mode::Store) => granted_by_store(world, arrival.key, hold, decision.allowed()),
        (_, Mode::Local) => granted_by_share(world, task, (arrival.key, hold, step), &answer),
        // Nothing is recorded, so nothing is held; a refusal changes nothing.
        _ => return,
    }
    if decision.allowed() && step != Step::Release {
        let renewals = match step {
            Step::Renew { left } => left,
            _ => hold.renewals,
        };
        match renewals {
            1.. => world.hold_later(arrival, hold, Step::Renew { left: renewals - 1 }),
            0 if hold.is_released => world.hold_later(arrival, hold, Step::Release),
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

/// `PermitsWithinLimit`, of a share: the process has handed out no more than its part of the limit, and refuses only
/// what is beyond.
fn granted_by_share(
    world: &mut World<'_>,
    task: TaskView,
    (key, hold, step): (usize, Hold, Step),
    answer: &Answer,
) {
    let (now, decision, of) = (world.now, answer.decision, (task.node, task.life));
    let lapses_us = task.begun_at + ttl_us(world);
    let permits = &mut world.permits[key];
    let is_allowed = decision.allowed();
    if step == Step::Acquire {
        // The share decides at some instant from the request until now, and each permit lapses up to a second later.
        let after_us = match is_allowed {
            true => now,
            false => task.begun_at.saturating_sub(SHARE_LATER_US),
        };
        let held = permits.held_by_share(of, after_us);
        let (cost, limit) = (hold.cost, decision.limit);
        let is_held = permits.shared.contains_key(&hold.id);
        if is_allowed != (held + cost <= limit) && (is_allowed || !is_held) {
            let what = format!(
                "node {} has handed out {held} of its {limit}, and {cost} are answered {decision:?}",
                task.node
            );
            return world.record.fail(Invariant::PermitsWithinLimit, now, what);
        }
    }
    if is_allowed {
        let renewed = permits.shared.get(&hold.id).filter(|_| step != Step::Acquire);
        let cost = renewed.map_or(hold.cost, |permit| permit.cost);
        permits.shared.insert(hold.id, SharedPermit { cost, of, lapses_us });
    }
}

/// `AnswerIsTrue`: only what needs the store's record of a permit may fail, and only while a fault keeps the node from
/// the store.
fn failed(
    world: &mut World<'_>,
    task: TaskView,
    (arrival, step): (Arrival, Step),
    error: &DecideError,
) {
    world.seen(format_args!("node {} {step:?} of {:?}: {error}", task.node, arrival.ask));
    crate::reply_checks::finds_out(world, task);
    if step == Step::Acquire || !crate::reply_checks::is_disturbed(world, task) {
        world.record.fail(
            Invariant::AnswerIsTrue,
            world.now,
            format!("{step:?} of {arrival:?}: {error}"),
        );
    }
}

/// The time to live of the permits of the history: edits leave it as it is.
fn ttl_us(world: &World<'_>) -> u64 {
    match world.plan.versions[0].rules[..] {
        [RuleSpec::Concurrency { ttl_us, .. }, ..] => ttl_us,
        _ => unreachable!("only rules of concurrency hand out permits"),
    }
}
