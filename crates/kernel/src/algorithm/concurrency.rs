//! Concurrency: how many at once, not how many per time.
//!
//! **What it remembers**: every permit that is held: its id, its cost, and when it lapses; and with a `queue`, the requests
//! that wait for one, in order (`waiters.rs`).
//!
//! **Worked example**: `limit 2, ttl 30s`.
//!
//! | at (s) | asked | answer | held after |
//! |---|---|---|---|
//! | 0 | acquire a | pass | a |
//! | 1 | acquire b | pass | a, b |
//! | 2 | acquire c | refused: a lapses in 28 s unless it is released before | a, b |
//! | 3 | release a | 1 given back | b |
//! | 3 | acquire c | pass | b, c |
//! | 31 | acquire d | pass: b's holder died, its permit lapsed | c, d |
//!
//! **Property**: at no instant are more than `limit` permits held, and none is held for longer than
//! `ttl` after it was acquired or last renewed. No request passes one that came before it and still waits.
//!
//! ```text
//! held
//!   2 ┤  ┌────┐ ┌───────────┐
//!   1 ┤──┘    └─┘  renewed  └──┐ lapses after ttl
//!   0 ┼────────────────────────┴──▶ time
//! ```
//!
//! Source: the counting semaphore (Dijkstra, 1965), with leases (Gray and Cheriton, 1989).

use alloc::vec;
use alloc::vec::Vec;

use super::waiters::{Ticket, Waiters};
use super::{Algorithm, Leasing};
use crate::decision::{
    Ask, Called, ListedPermit, Moment, Outcome, PermitId, ProcessId, Retry, Status,
};
use crate::limits::{CALLED_MAX, HOLDERS_MAX, PERIOD_MAX_US};
use crate::num::{Micros, put, take, take_instant};
use crate::param::{Kind, Param, Params, RangeError, within};

/// At most `limit` permits held at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,
    ttl: Micros,
    queue: u64,
}

/// The state of a concurrency rule for one key: a record for each held permit, in the order of their ends, and the requests
/// that wait for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConcurrencyState {
    holders: Vec<Holder>,
    waiters: Waiters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    permit: PermitId,
    cost: u32,
    lapses: Micros,
}

impl Concurrency {
    /// At most `limit` permits held at once, each for at most `ttl`; up to `queue` requests may wait for one.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= limit <= 10,000`, `queue <= 10,000` and the ttl is 1 µs to
    /// 366 days long.
    pub fn new(limit: u64, ttl: impl Into<Micros>, queue: u64) -> Result<Self, RangeError> {
        let ttl = ttl.into();
        within("limit", limit, 1, HOLDERS_MAX)?;
        within("ttl in µs", ttl.get(), 1, PERIOD_MAX_US)?;
        within("queue", queue, 0, HOLDERS_MAX)?;
        Ok(Self { limit, ttl, queue })
    }

    /// The number of requests that may wait for a permit.
    pub const fn queue(&self) -> u64 {
        self.queue
    }

    /// The time for which a permit is held that is neither released nor renewed.
    pub const fn ttl(&self) -> Micros {
        self.ttl
    }

    fn held(&self, state: Option<&ConcurrencyState>, now: Micros) -> u64 {
        let holders = state.map_or(&[][..], |state| state.holding(now));
        holders.iter().map(|holder| u64::from(holder.cost)).sum()
    }

    /// Returns the permits that are held, and those that requests wait for which come before `permit`.
    fn taken(
        &self,
        state: Option<&ConcurrencyState>,
        permit: Option<PermitId>,
        now: Micros,
    ) -> u64 {
        let ahead = state.map_or(0, |state| state.waiters.ahead(permit));
        self.held(state, now).saturating_add(ahead)
    }

    /// Returns the time until `excess` permits have lapsed; until all have, and no process waits, if requests that wait
    /// come before.
    fn retry(&self, state: &ConcurrencyState, mut excess: u64, now: Micros) -> Micros {
        let mut retry = Micros::ZERO;
        for holder in state.holding(now) {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(u64::from(holder.cost));
            retry = holder.lapses.since(now);
        }
        if excess > 0 { self.full_at(state).since(now) } else { retry }
    }
}

impl ConcurrencyState {
    /// Returns how many of the first holders have lapsed.
    fn lapsed(&self, now: Micros) -> usize {
        self.holders.partition_point(|holder| holder.lapses <= now)
    }

    fn holding(&self, now: Micros) -> &[Holder] {
        &self.holders[self.lapsed(now)..]
    }

    fn forget_lapsed(&mut self, now: Micros) {
        self.holders.drain(..self.lapsed(now));
    }

    /// Returns the permits that are held, in the order in which they lapse.
    pub(crate) fn listed(&self, now: Micros) -> impl Iterator<Item = ListedPermit> {
        self.holding(now).iter().map(move |&Holder { permit, cost, lapses }| ListedPermit {
            permit,
            cost: cost.into(),
            lapses_after: lapses.since(now),
        })
    }

    /// Returns the number of requests that wait for a permit.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiters.len()
    }

    /// The place of the holder of `permit`.
    fn place_of(&self, permit: PermitId, now: Micros) -> Option<usize> {
        let lapsed = self.lapsed(now);
        let place = self.holders[lapsed..].iter().position(|holder| holder.permit == permit)?;
        Some(lapsed + place)
    }
}

impl Algorithm for Concurrency {
    type State = ConcurrencyState;

    const NAME: &'static str = "concurrency";
    const CODE: u8 = 9;
    const TWIN: &'static str = include_str!("concurrency.lua");
    const ABOUT: &'static str = "At most `limit` permits held at once; acquire, release and renew.";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "limit",
            kind: Kind::Permits { min: 1, max: HOLDERS_MAX },
            default: None,
            about: "Maximum number of permits held at once.",
        },
        Param {
            name: "ttl",
            kind: Kind::Span,
            default: None,
            about: "Time after which a permit expires unless it is released or renewed.",
        },
        Param {
            name: "queue",
            kind: Kind::Permits { min: 0, max: HOLDERS_MAX },
            default: Some("0"),
            about: "Maximum number of requests waiting for a permit.",
        },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        let (limit, ttl) = (params.permits("limit", None)?, params.span("ttl", None)?);
        Self::new(limit, ttl, params.permits("queue", Some(0))?)
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn check(&self, state: Option<&ConcurrencyState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let cost = ask.cost;
        if cost > self.limit {
            return Outcome::Deny { retry: Retry::Never };
        }
        let taken = self.taken(state, ask.permit, at.now());
        let excess = taken.saturating_add(cost).saturating_sub(self.limit);
        match state {
            Some(state) if excess > 0 => {
                Outcome::Deny { retry: Retry::After(self.retry(state, excess, at.now())) }
            }
            _ => Outcome::Allow { granted: cost, wait: Micros::ZERO },
        }
    }

    fn charge(&self, state: &mut Option<ConcurrencyState>, ask: &Ask, at: &Moment<'_>) {
        let state = state.get_or_insert_default();
        state.forget_lapsed(at.now());
        let permit = ask.permit.expect("only `acquire` charges a concurrency rule");
        state.waiters.leave(permit, None);
        let cost = u32::try_from(ask.cost).expect("a granted cost is at most the limit");
        state.holders.push(Holder { permit, cost, lapses: at.now().plus(self.ttl) });
    }

    fn available(&self, state: Option<&ConcurrencyState>, at: &Moment<'_>) -> u64 {
        self.limit.saturating_sub(self.taken(state, None, at.now()))
    }

    fn status(&self, state: Option<&ConcurrencyState>, at: &Moment<'_>) -> Status {
        let full_at = state.map_or(Micros::ZERO, |state| self.full_at(state));
        let remaining = self.limit.saturating_sub(self.held(state, at.now()));
        Status { remaining, reset_after: full_at.since(at.now()) }
    }

    fn heap_bytes(state: &ConcurrencyState) -> usize {
        state.holders.capacity() * size_of::<Holder>() + state.waiters.heap_bytes()
    }

    /// A permit is given back with `release`, by its id; there is nothing else to give back.
    fn refund(&self, _: &mut ConcurrencyState, _: u64, _: &Moment<'_>) -> u64 {
        0
    }

    /// No permit lasts longer than `ttl` from now. Tickets of processes that are absent are forgotten.
    fn rewind(&self, state: &mut ConcurrencyState, at: &Moment<'_>) {
        let latest = at.now().plus(self.ttl);
        for holder in &mut state.holders {
            holder.lapses = holder.lapses.min(latest);
        }
        state.waiters.look(at.now());
    }

    fn full_at(&self, state: &ConcurrencyState) -> Micros {
        let lapsed_at = state.holders.last().map_or(Micros::ZERO, |holder| holder.lapses);
        lapsed_at.max(state.waiters.over_at())
    }

    fn window(&self) -> Option<Micros> {
        // It gives back when its callers do.
        None
    }

    fn leasing(&self) -> Leasing {
        Leasing::Never("whose permits cannot be leased")
    }

    fn used(&self, state: &ConcurrencyState, at: &Moment<'_>) -> u64 {
        self.held(Some(state), at.now())
    }

    /// Usage of another algorithm has no permit ids, so nothing is held.
    fn with_used(&self, _: u64, _: &Moment<'_>) -> Option<ConcurrencyState> {
        None
    }

    /// Permits stay with their holders; a shorter ttl shortens them. Requests go on waiting if there is a queue and they
    /// can pass at all.
    fn convert(
        &self,
        _: &Self,
        state: &ConcurrencyState,
        at: &Moment<'_>,
    ) -> Option<ConcurrencyState> {
        let mut state = state.clone();
        self.rewind(&mut state, at);
        if self.queue == 0 {
            state.waiters = Waiters::default();
        }
        state.waiters.forget_above(self.limit);
        Some(state)
    }

    fn holds_permits(&self) -> bool {
        true
    }

    fn release(&self, state: &mut ConcurrencyState, id: PermitId, at: &Moment<'_>) -> Option<u64> {
        let released = state.holders.remove(state.place_of(id, at.now())?);
        state.forget_lapsed(at.now());
        Some(u64::from(released.cost))
    }

    fn renew(&self, state: &mut ConcurrencyState, id: PermitId, at: &Moment<'_>) -> Option<u64> {
        let renewed = state.holders.remove(state.place_of(id, at.now())?);
        state.holders.push(Holder { lapses: at.now().plus(self.ttl), ..renewed });
        Some(u64::from(renewed.cost))
    }

    fn holds(&self, state: &ConcurrencyState, id: PermitId, at: &Moment<'_>) -> bool {
        state.place_of(id, at.now()).is_some()
    }

    fn enqueue(
        &self,
        state: &mut Option<ConcurrencyState>,
        ask: &Ask,
        process: ProcessId,
        at: &Moment<'_>,
    ) -> bool {
        let (Some(permit), Ok(cost)) = (ask.permit, u32::try_from(ask.cost)) else { return false };
        let waiters = &mut state.get_or_insert_default().waiters;
        waiters.enter(Ticket { permit, cost, process }, self.queue, at.now())
    }

    fn leave(&self, state: &mut ConcurrencyState, id: PermitId, process: ProcessId) -> bool {
        state.waiters.leave(id, Some(process))
    }

    fn called(&self, state: &ConcurrencyState, at: &Moment<'_>) -> Vec<Called> {
        let free = self.limit.saturating_sub(self.held(Some(state), at.now()));
        state.waiters.called(free).take(CALLED_MAX).collect()
    }

    fn numbers(&self) -> Vec<f64> {
        vec![self.limit as f64, self.ttl.get() as f64, self.queue as f64]
    }

    /// Writes the ids apart from the rest, so that one can be found among thousands at the speed of `memchr`.
    fn write_state(&self, state: &ConcurrencyState, out: &mut Vec<u8>) {
        let sum = state.holders.iter().map(|holder| u64::from(holder.cost)).sum();
        put(out, sum, 4);
        put(out, state.holders.len() as u64, 4);
        for Holder { permit, .. } in &state.holders {
            out.extend(permit.0.to_be_bytes());
        }
        for Holder { cost, lapses, .. } in &state.holders {
            put(out, lapses.get(), 7);
            put(out, (*cost).into(), 4);
        }
        if self.queue > 0 {
            state.waiters.write(out);
        }
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<ConcurrencyState> {
        let sum = take(from, 4).filter(|sum| *sum <= HOLDERS_MAX)?;
        // Every holder has a cost, so there are no more of them than their sum.
        let count = take(from, 4).filter(|count| *count <= sum)?;
        let permit = |_| {
            let (id, rest) = from.split_first_chunk()?;
            *from = rest;
            Some(PermitId(u128::from_be_bytes(*id)))
        };
        let permits: Vec<_> = (0..count).map(permit).collect::<Option<_>>()?;
        let mut state = ConcurrencyState::default();
        for permit in permits {
            let (lapses, cost) = (take_instant(from)?, u32::try_from(take(from, 4)?).ok()?);
            if cost == 0 || state.holders.last().is_some_and(|before| before.lapses > lapses) {
                return None;
            }
            state.holders.push(Holder { permit, cost, lapses });
        }
        if self.queue > 0 {
            state.waiters = Waiters::read(from)?;
        }
        let held: u64 = state.holders.iter().map(|holder| u64::from(holder.cost)).sum();
        (held == sum).then_some(state)
    }
}
