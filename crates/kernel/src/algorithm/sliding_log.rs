//! The sliding log: exact, and paid for with memory.
//!
//! **What it remembers**: when each request of the last window was granted, and for how much.
//!
//! **Worked example**: `limit 1, window 1s`. A request at 0 s passes, one at 0.999999 s is refused
//! with a retry in 1 µs, one at 1 s passes: an entry leaves at exactly `t + window`.
//!
//! **Property**: the costs granted in `(now - window, now]` never exceed `limit`, for any `now`, and
//! nothing is refused that would fit.
//!
//! ```text
//!        now - window                    now
//!             │                           │
//! ──x──x──────┼──x───xx──────x────────────x──▶ time
//!    gone     └────── these count ────────┘
//! ```
//!
//! Two requests in the same microsecond are two entries. Memory is 12 bytes a granted request, so
//! the limit is at most 10,000; above that `sliding_window` holds any limit in constant space.
//!
//! Source: the request log of Peter Hayes, "Better Rate Limiting With Redis Sorted Sets" (2015), in
//! microseconds.

use alloc::collections::VecDeque;

use alloc::vec;
use alloc::vec::Vec;

use super::{Algorithm, Leasing, Scale};
use crate::decision::{Ask, Moment, Outcome, Retry, Status};
use crate::limits::{LOG_ENTRIES_MAX, PERIOD_MAX_US};
use crate::num::{Micros, put, take, take_instant};
use crate::param::{Kind, Param, Params, RangeError, within};

/// At most `limit` permits in any interval of length `window`, exactly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window: Micros,
}

/// The state of a sliding log for one key: 12 bytes a granted request, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingLogState {
    entries: VecDeque<Entry>,
    /// Sum of the entries' costs.
    sum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at: Micros,
    cost: u32,
}

/// The most permits in use that a log counts: a sum has 32 bits where it is stored.
const COUNTED_MAX: u64 = u32::MAX as u64;

fn narrow(permits: u64) -> u32 {
    u32::try_from(permits).expect("at most `COUNTED_MAX`")
}

impl SlidingLog {
    /// At most `limit` permits in any `window`.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= limit <= 10,000` and the window is 1 µs to 366 days long.
    pub fn new(limit: u64, window: impl Into<Micros>) -> Result<Self, RangeError> {
        let window = window.into();
        if limit > LOG_ENTRIES_MAX {
            let problem = alloc::format!(
                "`{limit}` is outside 1..={LOG_ENTRIES_MAX}; use `sliding_window` for more"
            );
            return Err(RangeError::new("limit", problem));
        }
        within("limit", limit, 1, LOG_ENTRIES_MAX)?;
        within("window in µs", window.get(), 1, PERIOD_MAX_US)?;
        Ok(Self { limit, window })
    }

    fn gone(&self, entry: Entry, now: Micros) -> bool {
        entry.at.plus(self.window) <= now
    }

    fn sum(&self, state: Option<&SlidingLogState>, now: Micros) -> u64 {
        state.map_or(0, |state| {
            let gone = state.entries.iter().take_while(|entry| self.gone(**entry, now));
            state.sum - gone.map(|entry| u64::from(entry.cost)).sum::<u64>()
        })
    }

    fn forget_gone(&self, state: &mut SlidingLogState, now: Micros) {
        while let Some(entry) = state.entries.pop_front_if(|entry| self.gone(*entry, now)) {
            state.sum -= u64::from(entry.cost);
        }
    }
}

impl Algorithm for SlidingLog {
    type State = SlidingLogState;

    const NAME: &'static str = "sliding_log";
    const CODE: u8 = 8;
    const TWIN: &'static str = include_str!("sliding_log.lua");
    const ABOUT: &'static str = "Exact: every granted request counts for exactly `window`.";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "limit",
            kind: Kind::Permits { min: 1, max: LOG_ENTRIES_MAX },
            default: None,
            about: "Permits per window; for a higher limit use `sliding_window`.",
        },
        Param { name: "window", kind: Kind::Span, default: None, about: "Length of the window." },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        Self::new(params.permits("limit", None)?, params.span("window", None)?)
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn check(&self, state: Option<&SlidingLogState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let cost = ask.cost;
        if cost > self.limit {
            return Outcome::Deny { retry: Retry::Never };
        }
        let mut wanted = self.sum(state, at.now()) + cost;
        let (true, Some(state)) = (wanted > self.limit, state) else {
            return Outcome::Allow { granted: cost, wait: Micros::ZERO };
        };
        let mut retry = Micros::ZERO;
        for entry in state.entries.iter().filter(|entry| !self.gone(**entry, at.now())) {
            if wanted <= self.limit {
                break;
            }
            wanted -= u64::from(entry.cost);
            retry = entry.at.plus(self.window).since(at.now());
        }
        Outcome::Deny { retry: Retry::After(retry) }
    }

    fn charge(&self, state: &mut Option<SlidingLogState>, ask: &Ask, at: &Moment<'_>) {
        let state = state.get_or_insert_default();
        self.forget_gone(state, at.now());
        // Permits that were leased may be more than the limit. They count, and a full log counts them with its newest
        // entry.
        let cost = narrow(ask.cost.min(COUNTED_MAX - state.sum));
        if cost > 0 {
            let is_full = state.entries.len() as u64 >= LOG_ENTRIES_MAX;
            let newest = state.entries.pop_back_if(|_| is_full).map_or(0, |newest| newest.cost);
            state.entries.push_back(Entry { at: at.now(), cost: newest + cost });
            state.sum += u64::from(cost);
        }
    }

    fn available(&self, state: Option<&SlidingLogState>, at: &Moment<'_>) -> u64 {
        self.limit.saturating_sub(self.sum(state, at.now()))
    }

    fn status(&self, state: Option<&SlidingLogState>, at: &Moment<'_>) -> Status {
        let full_at = state.map_or(Micros::ZERO, |state| self.full_at(state));
        Status { remaining: self.available(state, at), reset_after: full_at.since(at.now()) }
    }

    fn heap_bytes(state: &SlidingLogState) -> usize {
        state.entries.capacity() * size_of::<Entry>()
    }

    /// The newest entries give first: they would have counted the longest.
    fn refund(&self, state: &mut SlidingLogState, permits: u64, at: &Moment<'_>) -> u64 {
        self.forget_gone(state, at.now());
        let mut left = permits;
        while left > 0 {
            let Some(mut entry) = state.entries.pop_back() else { break };
            let back = u64::from(entry.cost).min(left);
            entry.cost -= u32::try_from(back).expect("at most the entry's own cost");
            state.sum -= back;
            left -= back;
            if entry.cost > 0 {
                state.entries.push_back(entry);
            }
        }
        permits - left
    }

    /// Moves entries that are later than now to now.
    fn rewind(&self, state: &mut SlidingLogState, at: &Moment<'_>) {
        for entry in state.entries.iter_mut().rev().take_while(|entry| entry.at > at.now()) {
            entry.at = at.now();
        }
    }

    fn full_at(&self, state: &SlidingLogState) -> Micros {
        state.entries.back().map_or(Micros::ZERO, |newest| newest.at.plus(self.window))
    }

    fn window(&self) -> Option<Micros> {
        super::refilled_in(self)
    }

    fn leasing(&self) -> Leasing {
        Leasing::sliding_window(self.window, true)
    }

    /// The newest entry: they are in the order of their instants.
    fn seen(&self, state: &SlidingLogState) -> Micros {
        state.entries.back().map_or(Micros::ZERO, |newest| newest.at)
    }

    fn forget(&self, state: &mut SlidingLogState, at: &Moment<'_>) {
        self.forget_gone(state, at.now());
    }

    fn countable(&self) -> u64 {
        COUNTED_MAX
    }

    fn used(&self, state: &SlidingLogState, at: &Moment<'_>) -> u64 {
        self.sum(Some(state), at.now())
    }

    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<SlidingLogState> {
        let cost = narrow(used.min(COUNTED_MAX));
        let entries = VecDeque::from_iter((cost > 0).then_some(Entry { at: at.now(), cost }));
        Some(SlidingLogState { entries, sum: u64::from(cost) })
    }

    /// Entries are facts: they hold under any limit and window.
    fn convert(
        &self,
        old: &Self,
        state: &SlidingLogState,
        at: &Moment<'_>,
    ) -> Option<SlidingLogState> {
        let mut state = state.clone();
        old.forget_gone(&mut state, at.now());
        Some(state)
    }

    /// Scales the entries; `None` if the window differs. Sums are scaled, from the newest entry on, so that at every
    /// later instant the sum of those that still count is rounded once. Entries that scale to 0 are left out.
    fn rescale(
        &self,
        old: &Self,
        state: &SlidingLogState,
        scale: Scale,
        _: &Moment<'_>,
    ) -> Option<SlidingLogState> {
        if self.window != old.window {
            return None;
        }
        let mut rescaled = SlidingLogState::default();
        let mut sum = 0;
        for Entry { at, cost } in state.entries.iter().rev() {
            sum += u64::from(*cost);
            let after = scale.of(sum).min(COUNTED_MAX);
            let cost = narrow(after - rescaled.sum);
            if cost > 0 {
                rescaled.entries.push_front(Entry { at: *at, cost });
            }
            rescaled.sum = after;
        }
        Some(rescaled)
    }

    fn numbers(&self) -> Vec<f64> {
        vec![self.limit as f64, self.window.get() as f64]
    }

    fn write_state(&self, state: &SlidingLogState, out: &mut Vec<u8>) {
        put(out, state.sum, 4);
        put(out, state.entries.len() as u64, 4);
        for Entry { at, cost } in &state.entries {
            put(out, at.get(), 7);
            put(out, (*cost).into(), 4);
        }
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<SlidingLogState> {
        let sum = take(from, 4)?;
        // Every entry has a cost, so there are no more of them than their sum.
        let count = take(from, 4).filter(|count| *count <= sum.min(LOG_ENTRIES_MAX))?;
        let mut state = SlidingLogState::default();
        for _ in 0..count {
            let (at, cost) = (take_instant(from)?, u32::try_from(take(from, 4)?).ok()?);
            if cost == 0 || state.entries.back().is_some_and(|before| before.at > at) {
                return None;
            }
            state.entries.push_back(Entry { at, cost });
            state.sum += u64::from(cost);
        }
        (state.sum == sum).then_some(state)
    }
}
