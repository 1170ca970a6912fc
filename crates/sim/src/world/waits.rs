//! Requests that wait for permits: their tickets in the order in which the store first answered them, the processes that are
//! present, and what each request is promised meanwhile.
//!
//! The order is followed by the answers alone, as the permits are (`world/permits.rs`).

use std::collections::BTreeMap;

use sluicegate::Micros;
use sluicegate::internals::kernel::{Called, ProcessId};

use super::lease_checks::KeyAtNode;
use super::{ASKED_MAX, RECOVERY_US, World};
use crate::node::{Done, PermitStep, key_name};
use crate::plan::{Arrival, Ask, Fault, FaultKind, MS, Plan, SECOND};
use crate::promises::Invariant;

/// The time for which a process counts as present after it last got or kept a ticket, µs.
const PRESENT_US: u64 = 3 * SECOND;

/// Most tickets that an answer calls.
const CALLED_MAX: usize = 16;

/// The longest time that a free permit waits for the first in line, beside some deadlines, µs.
const TURN_US: u64 = SECOND + 100 * MS;

/// The longest time that one waits for a ticket that no request wants any more, beside some deadlines, µs: until its process
/// has noticed, or is absent.
const UNWANTED_US: u64 = PRESENT_US + TURN_US;

/// A request that may wait for a permit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    task: usize,
    key: usize,
    id: u64,
    cost: u64,
}

/// The tickets of a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    tickets: Vec<Ticket>,
    /// Until when each process counts as present, by the clock of the store.
    present: BTreeMap<ProcessId, Micros>,
}

/// The ticket of a request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) id: u64,
    pub(super) cost: u64,
    pub(super) process: ProcessId,
    pub(super) of: KeyAtNode,
}

/// The first in line while the free permits are enough for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    ticket: Ticket,
    /// The time since when they are, µs.
    since: u64,
}

impl Line {
    /// Forgets processes that are absent by the clock of the store, with their tickets, and shortens presences that are
    /// longer than any of now.
    pub(super) fn tick(&mut self, clock: Micros) {
        let latest = clock.plus(Micros::new(PRESENT_US));
        self.present.retain(|_, until| {
            *until = latest.min(*until);
            *until > clock
        });
        let Self { tickets, present } = self;
        tickets.retain(|ticket| present.contains_key(&ticket.process));
    }

    /// Forgets tickets that rules with this limit do not keep.
    pub(super) fn keep_within(&mut self, limit: u64, has_queue: bool) {
        self.tickets.retain(|ticket| has_queue && ticket.cost <= limit);
    }

    /// Returns the permits that tickets want before that of `id`; without one, all.
    pub(super) fn ahead_of(&self, id: u64) -> u64 {
        let before = self.tickets.iter().take_while(|ticket| ticket.id != id);
        before.map(|ticket| ticket.cost).sum()
    }

    pub(super) fn len(&self) -> usize {
        self.tickets.len()
    }

    pub(super) fn find(&self, id: u64) -> Option<&Ticket> {
        self.tickets.iter().find(|ticket| ticket.id == id)
    }

    /// Has `ticket` at the end of the line, or where its id has one.
    pub(super) fn enter(&mut self, ticket: Ticket, clock: Micros) {
        match self.tickets.iter_mut().find(|other| other.id == ticket.id) {
            Some(place) => *place = ticket,
            None => self.tickets.push(ticket),
        }
        self.present.insert(ticket.process, clock.plus(Micros::new(PRESENT_US)));
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.tickets.retain(|ticket| ticket.id != id);
    }

    /// Returns the first tickets, as far as `free` permits are enough.
    fn first_within(&self, mut free: u64) -> impl Iterator<Item = &Ticket> {
        let is_within = move |ticket: &&Ticket| {
            let left = free.checked_sub(ticket.cost);
            free = left.unwrap_or(free);
            left.is_some()
        };
        self.tickets.iter().take_while(is_within)
    }

    /// `TurnKept` and `NoPlaceLeaks`: the store calls the first tickets, as far as `free` permits are enough.
    pub(super) fn check_called(
        &self,
        free: u64,
        called: &[Called],
    ) -> Result<(), (Invariant, String)> {
        let first: Vec<_> = self.first_within(free).take(CALLED_MAX).collect();
        let is_of = |(called, ticket): (&Called, &&Ticket)| {
            (called.permit.0, called.process) == (ticket.id.into(), ticket.process)
        };
        if called.len() == first.len() && called.iter().zip(&first).all(is_of) {
            return Ok(());
        }
        let ids = first.iter().map(|ticket| ticket.id).collect::<Vec<_>>();
        let said = called.iter().map(|called| called.permit.0).collect::<Vec<_>>();
        let is_known = |called: &Called| {
            self.tickets.iter().any(|ticket| u128::from(ticket.id) == called.permit.0)
        };
        let invariant = match called.iter().all(is_known) {
            true => Invariant::TurnKept,
            false => Invariant::NoPlaceLeaks,
        };
        Err((
            invariant,
            format!("of {free} free permits, {ids:?} are next, and {said:?} are called"),
        ))
    }

    /// Returns the turn of the first in line at `now`, when `free` permits are free; `before` was the turn before.
    pub(super) fn turn(&self, free: u64, before: Option<Turn>, now: u64) -> Option<Turn> {
        let ticket = *self.first_within(free).next()?;
        let before = before.filter(|before| before.ticket.id == ticket.id);
        let since = before.map_or(now, |before| before.since);
        Some(Turn { ticket, since })
    }
}

/// Notes a request that has just begun, if it may wait.
pub(super) fn begins(world: &mut World<'_>, arrival: &Arrival) {
    if let Ask::Hold(hold) = arrival.ask
        && world.plan.max_wait_of(arrival) > 0
    {
        let task = world.tasks.len() - 1;
        world.waits.push(Wait { task, key: arrival.key, id: hold.id, cost: hold.cost });
    }
}

/// Notes that the client of a task goes away. If its request waits, the process may be granted its permit all the same.
pub(super) fn leaves(world: &mut World<'_>, task: usize) {
    let Some(wait) = world.waits.iter().find(|wait| wait.task == task) else { return };
    let (Wait { key, cost, .. }, Some(task)) = (*wait, &world.tasks[task]) else { return };
    let of = (task.node, task.life);
    let lapses_us = world.now + world.plan.ttl_us() + ASKED_MAX * world.plan.deadline_us;
    world.permits[key].is_left(cost, of, lapses_us);
}

/// Returns whether what is done was a request that may have waited.
pub(super) fn may_wait(plan: &Plan, done: &Done) -> bool {
    matches!(done, Done::Held(arrival, PermitStep::Acquire, _) if plan.max_wait_of(arrival) > 0)
}

/// `NoPlaceLeaks`: returns whether a request waited for longer than it may: its longest wait, and a question before and
/// after it.
pub(super) fn takes_too_long(world: &World<'_>, done: &Done, took: u64) -> bool {
    let Done::Held(arrival, PermitStep::Acquire, _) = done else { return false };
    let asking_us = 2 * ASKED_MAX * world.plan.deadline_us;
    may_wait(world.plan, done) && took > world.plan.max_wait_of(arrival) + asking_us
}

/// `NoPlaceLeaks`: a free permit goes to the first in line, and a ticket that no request wants ends.
pub(super) fn check_turns(world: &mut World<'_>) {
    if world.plan.max_wait_us.is_none() {
        return;
    }
    forget_ended(world);
    let (now, clock) = (world.now, world.server.clock(world.now));
    for key in 0..world.plan.keys {
        world.permits[key].note_turn(clock, now);
        let Some(Turn { ticket, since }) = world.permits[key].turn else { continue };
        let KeyAtNode { node, life, .. } = ticket.of;
        let process = &world.nodes[node];
        if process.life != life || !process.is_up {
            continue;
        }
        let is_wanted = world.waits.iter().any(|wait| {
            let waits_at = world.tasks[wait.task].as_ref().map(|task| task.node);
            (wait.key, wait.id, waits_at) == (key, ticket.id, Some(node))
        });
        // A presence that the clock of the store has left ahead is shortened by the next request.
        if !is_wanted && world.permits[key].is_set_back {
            continue;
        }
        let longest_us = if is_wanted { TURN_US } else { UNWANTED_US };
        let longest_us = longest_us + ASKED_MAX * world.plan.deadline_us;
        let since = since.max(world.disturbed_until[node].saturating_add(RECOVERY_US));
        let since = if is_wanted { since } else { since.max(world.permits[key].shortened_at) };
        if now > since.saturating_add(longest_us) {
            let id = ticket.id;
            let what = format!(
                "permit {id} of key {key} is free for the first in line since {since} µs; wanted: {is_wanted}"
            );
            return world.record.fail(Invariant::NoPlaceLeaks, now, what);
        }
    }
}

/// Forgets requests that do not wait any more.
fn forget_ended(world: &mut World<'_>) {
    let (tasks, nodes) = (&world.tasks, &world.nodes);
    world.waits.retain(|wait| {
        let waits =
            |task: &super::EngineTask| task.life == nodes[task.node].life && nodes[task.node].is_up;
        tasks[wait.task].as_ref().is_some_and(waits)
    });
}

/// Returns how much longer a history goes on in which requests wait, µs: until the last one has released its permit, and
/// nothing of it is left.
pub(super) fn rest_us(plan: &Plan) -> u64 {
    if plan.max_wait_us.is_none() {
        return 0;
    }
    let each = plan.arrivals.iter().filter_map(|arrival| match arrival.ask {
        Ask::Hold(hold) => {
            let holds_us = hold.for_us * (1 + u64::from(hold.renewals));
            Some(plan.max_wait_of(arrival) + holds_us + plan.ttl_us())
        }
        _ => None,
    });
    each.max().unwrap_or(0) + PRESENT_US
}

/// `NoPlaceLeaks`: no request waits any more, and the store has forgotten all permits and tickets.
pub(super) fn check_end(world: &mut World<'_>) {
    if world.plan.max_wait_us.is_none() || world.record.has_failed() {
        return;
    }
    forget_ended(world);
    let now = world.now;
    if let Some(Wait { key, id, .. }) = world.waits.first() {
        let what = format!("a request waits for permit {id} of key {key} at the end");
        return world.record.fail(Invariant::NoPlaceLeaks, now, what);
    }
    let back_us = |fault: &Fault| match fault.kind {
        FaultKind::StoreClock(by_us @ ..0) => by_us.unsigned_abs(),
        _ => 0,
    };
    let back_us = world.plan.faults.iter().map(back_us).sum();
    let is_left = |key: &usize| !world.server.is_gone_in(&key_name(*key), back_us, now);
    if let Some(key) = (0..world.plan.keys).find(is_left) {
        let what = format!("permits or tickets of key {key} are left, and nobody asks for it");
        world.record.fail(Invariant::NoPlaceLeaks, now, what);
    }
}
