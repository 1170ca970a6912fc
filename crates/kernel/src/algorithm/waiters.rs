//! The queue of a `concurrency` rule: requests that wait for a permit, in the order in which they came.
//!
//! **Tickets**: a request that does not pass has a ticket, by the id of the permit that it wants. No request passes
//! that could take the permits of a ticket before it, nor does a new one while tickets wait that would use all that is free.
//!
//! **Presence**: a ticket counts as long as its process is present, which is 3 s after the process last asked for any of
//! its tickets of the key ([`TICKET_TTL_US`]). So a process with many waiters asks once a second, by the first of them, and
//! the tickets of a process that has died pass their turn together.

use alloc::vec::Vec;

use crate::decision::{Called, PermitId, ProcessId};
use crate::limits::{HOLDERS_MAX, TICKET_TTL_US};
use crate::num::{Micros, put, take, take_instant};

/// The requests that wait for a permit of one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiters {
    tickets: Vec<Ticket>,
    presences: Vec<Presence>,
}

/// A request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) permit: PermitId,
    pub(super) cost: u32,
    pub(super) process: ProcessId,
}

/// A process with tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Presence {
    process: ProcessId,
    until: Micros,
}

impl Waiters {
    /// Returns the permits that are wanted before `permit`: by its ticket, or, without one, by all.
    pub(super) fn ahead(&self, permit: Option<PermitId>) -> u64 {
        let before = self.tickets.iter().take_while(|ticket| Some(ticket.permit) != permit);
        before.map(|ticket| u64::from(ticket.cost)).sum()
    }

    /// Returns the number of tickets.
    pub(super) fn len(&self) -> u64 {
        self.tickets.len() as u64
    }

    /// Gives `wanted` a ticket behind `queue` others at most, or keeps the one that it has. Returns whether it has one.
    pub(super) fn enter(&mut self, wanted: Ticket, queue: u64, now: Micros) -> bool {
        match self.tickets.iter().position(|ticket| ticket.permit == wanted.permit) {
            Some(place) => self.tickets[place] = wanted,
            None if self.tickets.len() as u64 >= queue => return false,
            None => self.tickets.push(wanted),
        }
        let until = now.plus(Micros::new(TICKET_TTL_US));
        match self.presences.iter_mut().find(|it| it.process == wanted.process) {
            Some(presence) => presence.until = until,
            None => self.presences.push(Presence { process: wanted.process, until }),
        }
        self.forget_idle();
        true
    }

    /// Removes the ticket for `permit`, if it is of `process` or that is `None`. Returns whether there was one.
    pub(super) fn leave(&mut self, permit: PermitId, process: Option<ProcessId>) -> bool {
        let tickets = self.tickets.len();
        let is_left = |ticket: &Ticket| {
            ticket.permit == permit && process.is_none_or(|process| ticket.process == process)
        };
        self.tickets.retain(|ticket| !is_left(ticket));
        self.forget_idle();
        self.tickets.len() < tickets
    }

    /// Removes tickets that wait for more than `limit` permits.
    pub(super) fn forget_above(&mut self, limit: u64) {
        self.tickets.retain(|ticket| u64::from(ticket.cost) <= limit);
        self.forget_idle();
    }

    /// Moves presences that are later than any of `now`, and forgets processes that are absent, with their tickets.
    pub(super) fn look(&mut self, now: Micros) {
        let latest = now.plus(Micros::new(TICKET_TTL_US));
        for presence in &mut self.presences {
            presence.until = presence.until.min(latest);
        }
        if self.presences.iter().any(|presence| presence.until <= now) {
            self.presences.retain(|presence| presence.until > now);
            let Self { tickets, presences } = self;
            tickets.retain(|ticket| presences.iter().any(|it| it.process == ticket.process));
        }
    }

    /// The first tickets, as far as `free` permits are enough for them.
    pub(super) fn called(&self, mut free: u64) -> impl Iterator<Item = Called> {
        let fits = move |ticket: &&Ticket| {
            let left = free.checked_sub(ticket.cost.into());
            free = left.unwrap_or(free);
            left.is_some()
        };
        let called = |ticket: &Ticket| Called { permit: ticket.permit, process: ticket.process };
        self.tickets.iter().take_while(fits).map(called)
    }

    /// The instant from which no process is present.
    pub(super) fn over_at(&self) -> Micros {
        self.presences.iter().map(|presence| presence.until).max().unwrap_or(Micros::ZERO)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let Self { tickets, presences } = self;
        tickets.capacity() * size_of::<Ticket>() + presences.capacity() * size_of::<Presence>()
    }

    /// Forgets processes without tickets.
    fn forget_idle(&mut self) {
        let Self { tickets, presences } = self;
        presences.retain(|presence| tickets.iter().any(|it| it.process == presence.process));
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        put(out, self.tickets.len() as u64, 2);
        put(out, self.presences.len() as u64, 2);
        for Presence { process, until } in &self.presences {
            out.extend(process.0.to_be_bytes());
            put(out, until.get(), 7);
        }
        for Ticket { permit, cost, process } in &self.tickets {
            out.extend(permit.0.to_be_bytes());
            out.extend(process.0.to_be_bytes());
            put(out, (*cost).into(), 4);
        }
    }

    pub(super) fn read(from: &mut &[u8]) -> Option<Self> {
        let count = take(from, 2).filter(|count| *count <= HOLDERS_MAX)?;
        let present = take(from, 2).filter(|present| *present <= count)?;
        let presence =
            |_| Some(Presence { process: ProcessId(take_word(from)?), until: take_instant(from)? });
        let presences = (0..present).map(presence).collect::<Option<_>>()?;
        let ticket = |_| {
            let (id, rest) = from.split_first_chunk()?;
            *from = rest;
            let permit = PermitId(u128::from_be_bytes(*id));
            let process = ProcessId(take_word(from)?);
            let cost = u32::try_from(take(from, 4)?).ok().filter(|cost| *cost > 0)?;
            Some(Ticket { permit, cost, process })
        };
        let tickets = (0..count).map(ticket).collect::<Option<_>>()?;
        Some(Self { tickets, presences })
    }
}

fn take_word(from: &mut &[u8]) -> Option<u64> {
    let (word, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_be_bytes(*word))
}
