//! The sliding window of counters, which never admits more than its limit.
//!
//! **What it remembers**: one counter per `window / buckets` of time, for the last
//! `buckets + 1` of them.
//!
//! **Worked example**: `limit 10, window 1s, buckets 10`. Ten requests at 0.95 s fill it. At 1.90 s
//! the bucket 0.9–1.0 s still overlaps the last second, so it still counts, and it counts until
//! 1.999999 s: the budget comes back at once at 2.0 s minus 1 µs. A log would give it back at
//! 1.95 s; holding back up to one bucket's worth is the price of not remembering every request.
//!
//! **Property**: at most `limit` in **any** interval of length `window`, wherever it begins. The
//! newest request of such an interval counted every bucket that overlaps it.
//!
//! ```text
//!            now - window                          now
//!                 │                                 │
//! ┤ 0 │ 3 │ 1 │ 0 │2│ 5 │ 0 │ 1 │ 0 │ 0 │ 4 │ 0 │ 1 │
//!              counted ▲───────────────────────────▲
//! ```
//!
//! Two-counter designs and those that sum only `buckets` of the `buckets + 1` counters that overlap
//! the window let up to twice the limit pass.
//!
//! Source: the sub-window counters of Figma's "An alternative approach to rate limiting" (2017),
//! with the bucket that straddles the window's beginning counted in full.

use alloc::vec;
use alloc::vec::Vec;

use super::{Algorithm, Leasing, Scale};
use crate::decision::{Ask, Moment, Outcome, Retry, Status};
use crate::limits::{BUCKETS_MAX, PERIOD_MAX_US, PERMITS_MAX, STORED_INSTANT_MAX_US, UNITS_MAX};
use crate::num::{Micros, put, take};
use crate::param::{Kind, Param, Params, RangeError, within};

/// At most `limit` permits in any interval of length `window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    limit: u64,
    window_us: u64,
    bucket_us: u64,
    buckets: u64,
}

/// The state of a sliding window for one key: 8 bytes a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowState {
    /// Number of the newest bucket: its start divided by its length.
    newest: u64,
    /// `counts[b % len]` belongs to bucket `b`, for `newest - len < b <= newest`.
    counts: Vec<u64>,
}

impl SlidingWindow {
    /// At most `limit` permits in any `window`, counted in `buckets` parts.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= limit <= 2^32`, `1 <= buckets <= 1000` and the window is at
    /// least as many µs as it has buckets and at most 366 days long.
    pub fn new(limit: u64, window: impl Into<Micros>, buckets: u64) -> Result<Self, RangeError> {
        within("limit", limit, 1, PERMITS_MAX)?;
        within("buckets", buckets, 1, BUCKETS_MAX)?;
        let window_us = within("window in µs", window.into().get(), buckets, PERIOD_MAX_US)?;
        Ok(Self { limit, window_us, bucket_us: window_us.div_ceil(buckets), buckets })
    }

    /// Buckets that can overlap a window: one more than make it up.
    const fn len(&self) -> u64 {
        self.buckets + 1
    }

    const fn bucket(&self, now: Micros) -> u64 {
        now.get() / self.bucket_us
    }

    /// The oldest bucket that overlaps `(now - window, now]`.
    const fn oldest(&self, now: Micros) -> u64 {
        (now.get() + 1).saturating_sub(self.window_us) / self.bucket_us
    }

    /// The first instant at which `bucket` no longer overlaps the window.
    const fn end_of(&self, bucket: u64) -> Micros {
        Micros::new((bucket + 1) * self.bucket_us + self.window_us - 1)
    }

    fn count(&self, state: &SlidingWindowState, bucket: u64) -> u64 {
        state.counts[self.slot(bucket)]
    }

    fn slot(&self, bucket: u64) -> usize {
        usize::try_from(bucket % self.len()).expect("a ring has at most BUCKETS_MAX + 1 slots")
    }

    /// The remembered buckets that count at `now`.
    fn live(&self, state: &SlidingWindowState, now: Micros) -> core::ops::RangeInclusive<u64> {
        self.oldest(now).max(self.oldest_remembered(state))..=state.newest
    }

    const fn oldest_remembered(&self, state: &SlidingWindowState) -> u64 {
        (state.newest + 1).saturating_sub(self.len())
    }

    fn sum(&self, state: Option<&SlidingWindowState>, now: Micros) -> u64 {
        state.map_or(0, |state| self.live(state, now).map(|b| self.count(state, b)).sum())
    }

    fn empty(&self, now: Micros) -> SlidingWindowState {
        let slots = usize::try_from(self.len()).expect("a ring has at most BUCKETS_MAX + 1 slots");
        SlidingWindowState { newest: self.bucket(now), counts: vec![0; slots] }
    }

    /// Makes room for the bucket of `now`, forgetting those that it pushes out.
    fn advance(&self, state: &mut SlidingWindowState, now: Micros) {
        let bucket = self.bucket(now);
        let steps = bucket.saturating_sub(state.newest).min(self.len());
        for pushed in 0..steps {
            let slot = self.slot(bucket - pushed);
            state.counts[slot] = 0;
        }
        state.newest = state.newest.max(bucket);
    }

    fn newest_used(&self, state: &SlidingWindowState) -> Option<u64> {
        (self.oldest_remembered(state)..=state.newest)
            .rev()
            .find(|bucket| self.count(state, *bucket) > 0)
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;

    const NAME: &'static str = "sliding_window";
    const CODE: u8 = 6;
    const TWIN: &'static str = include_str!("sliding_window.lua");
    const ABOUT: &'static str =
        "At most `limit` in any interval of length `window`; may refuse one bucket too early.";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "limit",
            kind: Kind::Permits { min: 1, max: PERMITS_MAX },
            default: None,
            about: "Permits per window.",
        },
        Param { name: "window", kind: Kind::Span, default: None, about: "Length of the window." },
        Param {
            name: "buckets",
            kind: Kind::Permits { min: 1, max: BUCKETS_MAX },
            default: Some("10"),
            about: "Counters per window; more of them are more precise and use more memory.",
        },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        let (limit, window) = (params.permits("limit", None)?, params.span("window", None)?);
        Self::new(limit, window, params.permits("buckets", Some(10))?)
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn check(&self, state: Option<&SlidingWindowState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let cost = ask.cost;
        if cost > self.limit {
            return Outcome::Deny { retry: Retry::Never };
        }
        let mut wanted = self.sum(state, at.now()) + cost;
        let (true, Some(state)) = (wanted > self.limit, state) else {
            return Outcome::Allow { granted: cost, wait: Micros::ZERO };
        };
        let mut retry = Micros::ZERO;
        for bucket in self.live(state, at.now()) {
            if wanted <= self.limit {
                break;
            }
            wanted -= self.count(state, bucket);
            retry = self.end_of(bucket).since(at.now());
        }
        Outcome::Deny { retry: Retry::After(retry) }
    }

    fn charge(&self, state: &mut Option<SlidingWindowState>, ask: &Ask, at: &Moment<'_>) {
        let state = state.get_or_insert_with(|| self.empty(at.now()));
        self.advance(state, at.now());
        let slot = self.slot(state.newest);
        state.counts[slot] += ask.cost;
    }

    fn available(&self, state: Option<&SlidingWindowState>, at: &Moment<'_>) -> u64 {
        self.limit.saturating_sub(self.sum(state, at.now()))
    }

    fn status(&self, state: Option<&SlidingWindowState>, at: &Moment<'_>) -> Status {
        let full_at = state.map_or(Micros::ZERO, |state| self.full_at(state));
        Status { remaining: self.available(state, at), reset_after: full_at.since(at.now()) }
    }

    fn heap_bytes(state: &SlidingWindowState) -> usize {
        state.counts.capacity() * size_of::<u64>()
    }

    /// The newest counters give first: they would have been held the longest.
    fn refund(&self, state: &mut SlidingWindowState, permits: u64, at: &Moment<'_>) -> u64 {
        let mut left = permits;
        for bucket in self.live(state, at.now()).rev() {
            let back = self.count(state, bucket).min(left);
            if back > 0 {
                let slot = self.slot(bucket);
                state.counts[slot] -= back;
                left -= back;
            }
        }
        permits - left
    }

    /// Moves the newest counter to now; the others keep their distances less one: where in its
    /// bucket the clock was is not known, so none of them may end sooner than it did.
    fn rewind(&self, state: &mut SlidingWindowState, at: &Moment<'_>) {
        let bucket = self.bucket(at.now());
        if bucket >= state.newest {
            return;
        }
        let back = state.newest - bucket - 1;
        let mut earlier = self.empty(at.now());
        for old in self.oldest_remembered(state)..=state.newest {
            let slot = self.slot(old.saturating_sub(back).min(bucket));
            earlier.counts[slot] += self.count(state, old);
        }
        *state = earlier;
    }

    fn full_at(&self, state: &SlidingWindowState) -> Micros {
        self.newest_used(state).map_or(Micros::ZERO, |bucket| self.end_of(bucket))
    }

    fn window(&self) -> Option<Micros> {
        // It gives back later than its length says.
        None
    }

    fn leasing(&self) -> Leasing {
        Leasing::sliding_window(Micros::new(self.window_us), true)
    }

    /// The beginning of the newest counter.
    fn seen(&self, state: &SlidingWindowState) -> Micros {
        Micros::new(state.newest * self.bucket_us)
    }

    fn forget(&self, state: &mut SlidingWindowState, at: &Moment<'_>) {
        self.advance(state, at.now());
    }

    fn used(&self, state: &SlidingWindowState, at: &Moment<'_>) -> u64 {
        self.sum(Some(state), at.now())
    }

    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<SlidingWindowState> {
        let mut state = self.empty(at.now());
        let slot = self.slot(state.newest);
        state.counts[slot] = used;
        Some(state)
    }

    /// Keeps the counts under the same buckets; others take the sum over as if it were all granted
    /// now.
    fn convert(
        &self,
        old: &Self,
        state: &SlidingWindowState,
        at: &Moment<'_>,
    ) -> Option<SlidingWindowState> {
        if (self.window_us, self.buckets) == (old.window_us, old.buckets) {
            return Some(state.clone());
        }
        self.with_used(old.used(state, at), at)
    }

    /// Scales the counts; `None` if the buckets differ. Sums are scaled, from the newest bucket on,
    /// so that at every later instant the sum of those that still count is rounded once.
    fn rescale(
        &self,
        old: &Self,
        state: &SlidingWindowState,
        scale: Scale,
        _: &Moment<'_>,
    ) -> Option<SlidingWindowState> {
        if (self.window_us, self.buckets) != (old.window_us, old.buckets) {
            return None;
        }
        let mut rescaled = state.clone();
        let (mut sum, mut before) = (0, 0);
        for bucket in (self.oldest_remembered(state)..=state.newest).rev() {
            sum += self.count(state, bucket);
            let slot = self.slot(bucket);
            let after = scale.of(sum);
            rescaled.counts[slot] = after - before;
            before = after;
        }
        Some(rescaled)
    }

    fn numbers(&self) -> Vec<f64> {
        [self.limit, self.window_us, self.bucket_us, self.buckets].map(|n| n as f64).to_vec()
    }

    fn write_state(&self, state: &SlidingWindowState, out: &mut Vec<u8>) {
        put(out, state.newest, 7);
        let small = state.counts.iter().all(|count| *count <= u64::from(u32::MAX));
        let width: u8 = if small { 4 } else { 7 };
        out.push(width);
        for count in &state.counts {
            put(out, *count, width.into());
        }
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<SlidingWindowState> {
        let newest = take(from, 7).filter(|n| *n <= STORED_INSTANT_MAX_US / self.bucket_us)?;
        let width = take(from, 1).filter(|width| matches!(width, 4 | 7))?;
        let count = |_| take(from, if width == 4 { 4 } else { 7 });
        let counts: Vec<u64> = (0..self.len()).map(count).collect::<Option<_>>()?;
        // What was taken over from other rules is at most one counter of so many.
        let sum = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        (sum <= 2 * UNITS_MAX).then_some(SlidingWindowState { newest, counts })
    }
}
