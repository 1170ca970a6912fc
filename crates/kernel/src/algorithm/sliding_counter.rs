//! The sliding counter: two counters that estimate a sliding window.
//!
//! **What it remembers**: which window is running, its count, and the count of the one before.
//!
//! **Worked example**: `limit 100, window 60s`. The last minute took 80, this one 30 so far, and
//! 15 s of it are over. The estimate is `80 · (1 - 15/60) + 30 = 90`: ten more pass.
//!
//! **Property**: `previous · (1 - elapsed/window) + current` never exceeds `limit` when a request is
//! granted. It is an estimate: it takes the previous window's requests as evenly spread. If they
//! all came at its end, an interval of length `window` holds up to `limit·(1 + elapsed/window)`, so
//! less than twice the limit; for a hard bound use `sliding_window`.
//!
//! ```text
//!   previous = 80     current = 30
//! ┤▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓│▒▒▒▒            │
//!      └── 75 % of it counts ──┘ now
//! ```
//!
//! The weight is counted in steps of a µs, or of as many µs as keep `limit · steps` exact in a
//! double; it is rounded up, against the caller.
//!
//! Source: Cloudflare, "How we built rate limiting capable of scaling to millions of domains"
//! (2017).

use alloc::vec::Vec;

use super::{Algorithm, Leasing, Scale, pack_words, unpack_words};
use crate::decision::{Ask, Moment, Outcome, Retry, Status};
use crate::limits::{PERIOD_MAX_US, PERMITS_MAX, STORED_INSTANT_MAX_US, UNITS_MAX};
use crate::num::{Micros, put, take};
use crate::param::{Kind, Param, Params, RangeError, within};

/// At most `limit` permits by the two-counter estimate of the last `window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingCounter {
    limit: u64,
    window_us: u64,
    /// µs per step of the weight.
    step_us: u64,
    /// Steps of a whole window.
    steps: u64,
}

/// The state of a sliding counter for one key: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingCounterState {
    /// Number of the running window: its start divided by its length.
    window: u64,
    previous: u32,
    current: u32,
}

/// The counters as they stand in the window that is running now.
struct View {
    window: u64,
    elapsed_us: u64,
    previous: u64,
    current: u64,
}

/// Largest limit: a counter has 32 bits, so that an entry fits 16 bytes.
const LIMIT_MAX: u64 = PERMITS_MAX - 1;

impl SlidingCounter {
    /// At most `limit` permits in the estimate of any `window`.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= limit < 2^32` and the window is 1 µs to 366 days long.
    pub fn new(limit: u64, window: impl Into<Micros>) -> Result<Self, RangeError> {
        within("limit", limit, 1, LIMIT_MAX)?;
        let window_us = within("window in µs", window.into().get(), 1, PERIOD_MAX_US)?;
        // `limit · steps` stays exact with room to spare.
        let step_us = window_us.div_ceil(UNITS_MAX / 4 / limit);
        let steps = window_us / step_us;
        Ok(Self { limit, window_us, step_us, steps })
    }

    fn view(&self, state: Option<&SlidingCounterState>, now: Micros) -> View {
        let window = now.get() / self.window_us;
        let elapsed_us = now.get() % self.window_us;
        let (previous, current) = match state {
            Some(state) if window < state.window => {
                // Time went back: what later windows counted belongs to the one that is running.
                let [previous, current] = [state.previous, state.current].map(u64::from);
                (0, (previous + current).min(self.limit.max(previous).max(current)))
            }
            Some(state) if window == state.window => (state.previous.into(), state.current.into()),
            Some(state) if window == state.window + 1 => (state.current.into(), 0),
            _ => (0, 0),
        };
        View { window, elapsed_us, previous, current }
    }

    /// Steps of the previous window that still count, rounded up.
    fn weight(&self, elapsed_us: u64) -> u64 {
        (self.window_us - elapsed_us).div_ceil(self.step_us).min(self.steps)
    }

    /// The estimate, rounded up.
    fn estimate(&self, view: &View) -> u64 {
        let weight = self.weight(view.elapsed_us);
        let counts = match view.previous.checked_mul(weight) {
            Some(weighed) => weighed.div_ceil(self.steps),
            // After a higher limit, a counter can be too large for one product.
            None => {
                let weighed = u128::from(view.previous) * u128::from(weight);
                let counts = weighed.div_ceil(self.steps.into());
                u64::try_from(counts).expect("at most the counter: it weighs `steps` at most")
            }
        };
        view.current + counts
    }

    fn free(&self, view: &View) -> u64 {
        self.limit.saturating_sub(self.estimate(view))
    }

    /// The first elapsed time of a window at which `previous` weighs little enough for `room`.
    fn elapsed_until(&self, previous: u64, room: u64) -> u64 {
        match (room * self.steps).checked_div(previous) {
            Some(weight) if weight < self.steps => self.window_us - weight * self.step_us,
            _ => 0,
        }
    }

    /// From the beginning of the running window until the budget is full.
    fn full_after(&self, previous: u64, current: u64) -> u64 {
        match (previous, current) {
            (0, 0) => 0,
            (_, 0) => self.window_us,
            _ => 2 * self.window_us,
        }
    }
}

impl Algorithm for SlidingCounter {
    type State = SlidingCounterState;

    const NAME: &'static str = "sliding_counter";
    const CODE: u8 = 7;
    const TWIN: &'static str = include_str!("sliding_counter.lua");
    const ABOUT: &'static str =
        "Estimates a sliding window from two counters: little memory, small error.";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "limit",
            kind: Kind::Permits { min: 1, max: LIMIT_MAX },
            default: None,
            about: "Permits per window.",
        },
        Param { name: "window", kind: Kind::Span, default: None, about: "Length of the window." },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        Self::new(params.permits("limit", None)?, params.span("window", None)?)
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn check(&self, state: Option<&SlidingCounterState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let cost = ask.cost;
        if cost > self.limit {
            return Outcome::Deny { retry: Retry::Never };
        }
        let view = self.view(state, at.now());
        if cost <= self.free(&view) {
            return Outcome::Allow { granted: cost, wait: Micros::ZERO };
        }
        let at_us = match self.limit.checked_sub(view.current + cost) {
            Some(room) => self.elapsed_until(view.previous, room),
            // Only when this window has become the previous one.
            None => self.window_us + self.elapsed_until(view.current, self.limit - cost),
        };
        Outcome::Deny { retry: Retry::After(Micros::new(at_us.saturating_sub(view.elapsed_us))) }
    }

    fn charge(&self, state: &mut Option<SlidingCounterState>, ask: &Ask, at: &Moment<'_>) {
        let view = self.view(state.as_ref(), at.now());
        *state = Some(SlidingCounterState {
            window: view.window,
            previous: counter(view.previous),
            current: counter(view.current + ask.cost),
        });
    }

    fn available(&self, state: Option<&SlidingCounterState>, at: &Moment<'_>) -> u64 {
        self.free(&self.view(state, at.now()))
    }

    fn status(&self, state: Option<&SlidingCounterState>, at: &Moment<'_>) -> Status {
        let view = self.view(state, at.now());
        let full_after = self.full_after(view.previous, view.current);
        Status {
            remaining: self.free(&view),
            reset_after: Micros::new(full_after.saturating_sub(view.elapsed_us)),
        }
    }

    /// The running window gives first: it would have counted the longest.
    fn refund(&self, state: &mut SlidingCounterState, permits: u64, at: &Moment<'_>) -> u64 {
        let view = self.view(Some(state), at.now());
        let from_current = view.current.min(permits);
        let from_previous = view.previous.min(permits - from_current);
        *state = SlidingCounterState {
            window: view.window,
            previous: counter(view.previous - from_previous),
            current: counter(view.current - from_current),
        };
        from_current + from_previous
    }

    fn rewind(&self, state: &mut SlidingCounterState, at: &Moment<'_>) {
        let view = self.view(Some(state), at.now());
        if view.window < state.window {
            *state = SlidingCounterState {
                window: view.window,
                previous: counter(view.previous),
                current: counter(view.current),
            };
        }
    }

    fn full_at(&self, state: &SlidingCounterState) -> Micros {
        let start = state.window * self.window_us;
        match self.full_after(state.previous.into(), state.current.into()) {
            0 => Micros::ZERO,
            after => Micros::new(start + after),
        }
    }

    fn window(&self) -> Option<Micros> {
        // It forgets with the end of the next window, wherever in this one the permits were taken.
        super::refilled_in(self).map(|two| Micros::new(two.get() / 2))
    }

    fn leasing(&self) -> Leasing {
        Leasing::sliding_window(Micros::new(self.window_us), false)
    }

    /// The beginning of the running window.
    fn seen(&self, state: &SlidingCounterState) -> Micros {
        Micros::new(state.window * self.window_us)
    }

    fn forget(&self, state: &mut SlidingCounterState, at: &Moment<'_>) {
        let view = self.view(Some(state), at.now());
        *state = SlidingCounterState {
            window: view.window,
            previous: counter(view.previous),
            current: counter(view.current),
        };
    }

    fn countable(&self) -> u64 {
        u32::MAX.into()
    }

    fn used(&self, state: &SlidingCounterState, at: &Moment<'_>) -> u64 {
        self.estimate(&self.view(Some(state), at.now()))
    }

    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<SlidingCounterState> {
        let window = at.now().get() / self.window_us;
        Some(SlidingCounterState { window, previous: 0, current: counter(used) })
    }

    /// Keeps both counters under the same window; another window takes the estimate over.
    fn convert(
        &self,
        old: &Self,
        state: &SlidingCounterState,
        at: &Moment<'_>,
    ) -> Option<SlidingCounterState> {
        if self.window_us != old.window_us {
            return self.with_used(old.used(state, at), at);
        }
        Some(*state)
    }

    /// Scales both counters; `None` if the window differs. Their sum is rounded once: the older one gets what the newer
    /// one leaves of it. That rounds up the least that never lowers the estimate.
    fn rescale(
        &self,
        old: &Self,
        state: &SlidingCounterState,
        scale: Scale,
        _: &Moment<'_>,
    ) -> Option<SlidingCounterState> {
        if self.window_us != old.window_us {
            return None;
        }
        let current = scale.of(state.current.into());
        let sum = scale.of(u64::from(state.previous) + u64::from(state.current));
        let (previous, current) = (counter(sum - current), counter(current));
        Some(SlidingCounterState { window: state.window, previous, current })
    }

    fn numbers(&self) -> Vec<f64> {
        [self.limit, self.window_us, self.step_us, self.steps].map(|n| n as f64).to_vec()
    }

    fn write_state(&self, state: &SlidingCounterState, out: &mut Vec<u8>) {
        put(out, state.window, 7);
        put(out, state.previous.into(), 4);
        put(out, state.current.into(), 4);
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<SlidingCounterState> {
        let window = take(from, 7).filter(|n| *n <= STORED_INSTANT_MAX_US / self.window_us)?;
        let mut count = || take(from, 4).map(counter);
        Some(SlidingCounterState { window, previous: count()?, current: count()? })
    }

    #[inline]
    fn pack(state: &SlidingCounterState) -> Option<u128> {
        let SlidingCounterState { window, previous, current } = *state;
        Some(pack_words(window, u64::from(previous) | u64::from(current) << 32))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    fn unpack(packed: u128) -> Option<SlidingCounterState> {
        let (window, counts) = unpack_words(packed);
        let (previous, current) = (counts as u32, (counts >> 32) as u32);
        Some(SlidingCounterState { window, previous, current })
    }
}

/// A counter passes its limit only where that was higher before, or time went back; it ends at 32 bits.
fn counter(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
