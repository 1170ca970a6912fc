//! The token bucket.
//!
//! **What it remembers**: how much of the bucket is in use, in exact units, and the instant up to
//! which the refill has been counted. Tokens are not produced by a timer; the next request works
//! out what has flowed in since the last one.
//!
//! **Worked example**: `rate 10/s, burst 2`. A permit weighs 100,000 units, one µs refills 1.
//!
//! | at (ms) | in use before | asked | answer | in use after |
//! |---|---|---|---|---|
//! | 0 | 0 | 1 | pass | 100,000 |
//! | 0 | 100,000 | 1 | pass | 200,000 (empty bucket) |
//! | 30 | 170,000 | 1 | refused, retry in 70 ms | unchanged |
//! | 100 | 100,000 | 1 | pass | 200,000 |
//!
//! **Property**: in every interval of length Δ it admits at most `burst + rate·Δ`.
//!
//! ```text
//! in use
//! burst ┤   ┌╲                    ┌╲ ← reserve may go above `burst`: the excess is the wait
//!       │ ┌─┘ ╲   ┌╲            ┌─┘ ╲
//!       │ │    ╲──┘ ╲         ┌─┘    ╲   slope = rate
//!     0 ┼─┘          ╲────────┘       ╲──▶ time
//! ```
//!
//! With `refill: interval` all permits of a period arrive together, every period from the first
//! request on. A full bucket has no state, so the period begins anew with the request that finds
//! the bucket full; the bound is then `burst + permits·(⌊Δ/period⌋ + 1)`.
//!
//! `initial` tokens below `burst` hold back a key that was never seen, such as a fresh account. Its
//! bucket begins to fill with the first request, even if that one is refused.
//!
//! Source: the continuous form of RFC 2697/2698's token bucket (IETF, 1999), evaluated lazily.

use alloc::vec::Vec;

use super::flow::{Flow, Level};
use super::{Algorithm, Leasing, Scale, pack_words, unpack_words};
use crate::decision::{Ask, Left, Moment, Outcome, Retry, Status};
use crate::limits::{PERMITS_MAX, UNITS_MAX};
use crate::num::{Micros, Rate};
use crate::param::{Kind, Param, Params, RangeError, within};

/// A bucket of `burst` permits that refills at `rate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    burst: u64,
    initial: u64,
    flow: Flow,
}

/// The units in which a [`TokenBucket`] counts, for callers that keep its state in another form:
/// `per_permit` units a permit, `per_tick` units every `tick_us` microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// Length of a tick in µs; 1 but for extreme rules.
    pub tick_us: u64,
    /// Units that flow in per tick.
    pub per_tick: u64,
    /// Units that one permit weighs.
    pub per_permit: u64,
}

/// The state of a token bucket for one key: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucketState(pub(crate) Level);

impl TokenBucket {
    /// A bucket that starts full, holds `burst` permits and refills continuously at `rate`.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= burst <= 2^32`.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, RangeError> {
        within("burst", burst, 1, PERMITS_MAX)?;
        Ok(Self { rate, burst, initial: burst, flow: Flow::smooth(rate, burst) })
    }

    /// Returns this bucket with `initial` tokens for a key that was never seen.
    ///
    /// # Errors
    /// [`RangeError`] if `initial` is above the burst.
    pub fn with_initial(self, initial: u64) -> Result<Self, RangeError> {
        within("initial", initial, 0, self.burst)?;
        Ok(Self { initial, ..self })
    }

    /// Returns this bucket, refilled with all permits of the rate's period at its end.
    #[must_use]
    pub fn refilled_by_interval(self) -> Self {
        Self { flow: Flow::stepped(self.rate), ..self }
    }

    /// Its rate.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Permits in a full bucket.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Tokens of a key that was never seen.
    pub const fn initial(&self) -> u64 {
        self.initial
    }

    /// The units it counts in.
    pub const fn units(&self) -> Units {
        let Flow { tick_us, per_tick, per_permit, stepped: _ } = self.flow;
        Units { tick_us, per_tick, per_permit }
    }

    const fn depth(&self) -> u64 {
        self.burst * self.flow.per_permit
    }

    fn level(&self, state: Option<&TokenBucketState>, now: Micros) -> Level {
        match state {
            Some(state) => self.flow.drain(state.0, now),
            None => Level { used: (self.burst - self.initial) * self.flow.per_permit, at: now },
        }
    }
}

impl TokenBucketState {
    /// `used` units in use as of `at`; see [`TokenBucket::units`].
    pub const fn new(used: u64, at: Micros) -> Self {
        Self(Level { used, at })
    }

    /// Units in use, and the instant up to which the refill has been counted.
    pub const fn parts(&self) -> (u64, Micros) {
        (self.0.used, self.0.at)
    }
}

impl Algorithm for TokenBucket {
    type State = TokenBucketState;

    const NAME: &'static str = "token_bucket";
    const CODE: u8 = 1;
    const TWIN: &'static str =
        concat!(include_str!("../flow.lua"), include_str!("token_bucket.lua"));
    const ABOUT: &'static str =
        "A bucket of `burst` permits refilled at `rate`; never more than burst + rate·Δ in any Δ.";
    const PARAMS: &'static [Param] = &[
        Param { name: "rate", kind: Kind::Rate, default: None, about: "Refill rate." },
        Param {
            name: "burst",
            kind: Kind::Permits { min: 1, max: PERMITS_MAX },
            default: Some("the permits of `rate`"),
            about: "Permits in a full bucket.",
        },
        Param {
            name: "initial",
            kind: Kind::Permits { min: 0, max: PERMITS_MAX },
            default: Some("burst"),
            about: "Tokens of a new key, at most `burst`.",
        },
        Param {
            name: "refill",
            kind: Kind::Word(&["smooth", "interval"]),
            default: Some("smooth"),
            about: "Refill continuously, or all permits of a period at its end.",
        },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        let rate = params.rate("rate")?;
        let burst = params.permits("burst", Some(rate.permits()))?;
        let bucket =
            Self::new(rate, burst)?.with_initial(params.permits("initial", Some(burst))?)?;
        Ok(match params.word("refill", "smooth")? {
            "interval" => bucket.refilled_by_interval(),
            _ => bucket,
        })
    }

    fn limit(&self) -> u64 {
        self.burst
    }

    fn check(&self, state: Option<&TokenBucketState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let cost = ask.cost;
        if cost > self.burst {
            return Outcome::Deny { retry: Retry::Never };
        }
        let level = self.level(state, at.now());
        let wanted = level.used + cost * self.flow.per_permit;
        let excess = wanted.saturating_sub(self.depth());
        if excess == 0 {
            return Outcome::Allow { granted: cost, wait: Micros::ZERO };
        }
        let wait = self.flow.time_to_drain(excess, level, at.now());
        // The numbers of a debt beyond this are not exact everywhere.
        let too_deep = match wanted.saturating_sub(UNITS_MAX) {
            0 => Micros::ZERO,
            units => self.flow.time_to_drain(units, level, at.now()),
        };
        match wait.since(ask.patience()).max(too_deep) {
            Micros::ZERO => Outcome::Allow { granted: cost, wait },
            retry => Outcome::Deny { retry: Retry::After(retry) },
        }
    }

    fn charge(&self, state: &mut Option<TokenBucketState>, ask: &Ask, at: &Moment<'_>) {
        let level = self.level(state.as_ref(), at.now());
        let units = ask.cost * self.flow.per_permit;
        *state = Some(TokenBucketState(self.flow.fill(level, units, at.now())));
    }

    fn first_seen(&self, at: &Moment<'_>) -> Option<TokenBucketState> {
        (self.initial < self.burst).then(|| TokenBucketState(self.level(None, at.now())))
    }

    fn available(&self, state: Option<&TokenBucketState>, at: &Moment<'_>) -> u64 {
        let used = self.level(state, at.now()).used;
        self.depth().saturating_sub(used) / self.flow.per_permit
    }

    fn status(&self, state: Option<&TokenBucketState>, at: &Moment<'_>) -> Status {
        let level = self.level(state, at.now());
        Status {
            remaining: self.depth().saturating_sub(level.used) / self.flow.per_permit,
            reset_after: self.flow.time_to_drain(level.used, level, at.now()),
        }
    }

    /// A new key starts with `initial`.
    fn left(&self, state: &TokenBucketState, now: Micros) -> Left {
        Left::of(self.available(Some(state), &Moment::new(now)), self.initial)
    }

    fn refund(&self, state: &mut TokenBucketState, permits: u64, at: &Moment<'_>) -> u64 {
        let level = self.flow.drain(state.0, at.now());
        let back = level.used.min(permits.saturating_mul(self.flow.per_permit));
        state.0 = Level { used: level.used - back, ..level };
        back.div_ceil(self.flow.per_permit)
    }

    fn rewind(&self, state: &mut TokenBucketState, at: &Moment<'_>) {
        state.0.at = state.0.at.min(at.now());
    }

    fn full_at(&self, state: &TokenBucketState) -> Micros {
        state.0.at.plus(self.flow.time_to_drain(state.0.used, state.0, state.0.at))
    }

    fn full_is_fresh(&self) -> bool {
        self.initial == self.burst
    }

    fn window(&self) -> Option<Micros> {
        super::refilled_in(self)
    }

    fn leasing(&self) -> Leasing {
        let span = self.flow.time_to_fill(self.depth());
        if self.flow.stepped { Leasing::Steps(span) } else { Leasing::Flows(span) }
    }

    fn seen(&self, state: &TokenBucketState) -> Micros {
        state.0.at
    }

    fn forget(&self, state: &mut TokenBucketState, at: &Moment<'_>) {
        state.0 = self.flow.drain(state.0, at.now());
    }

    fn countable(&self) -> u64 {
        self.flow.countable()
    }

    fn used(&self, state: &TokenBucketState, at: &Moment<'_>) -> u64 {
        self.flow.drain(state.0, at.now()).used.div_ceil(self.flow.per_permit)
    }

    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<TokenBucketState> {
        let units = used.saturating_mul(self.flow.per_permit).min(UNITS_MAX);
        Some(TokenBucketState(Level { used: units, at: at.now() }))
    }

    fn convert(
        &self,
        old: &Self,
        state: &TokenBucketState,
        at: &Moment<'_>,
    ) -> Option<TokenBucketState> {
        let scale = Scale { to: self.flow.per_permit, from: old.flow.per_permit };
        Some(TokenBucketState(self.flow.take_over(&old.flow, state.0, scale, at.now())))
    }

    /// Keeps the part of a full bucket to the unit: a permit that has come back in part stays so.
    fn rescale(
        &self,
        old: &Self,
        state: &TokenBucketState,
        _: Scale,
        at: &Moment<'_>,
    ) -> Option<TokenBucketState> {
        let scale = Scale { to: self.depth(), from: old.depth() };
        Some(TokenBucketState(self.flow.take_over(&old.flow, state.0, scale, at.now())))
    }

    fn books(&self) -> bool {
        true
    }

    fn with_rate(&self, rate: Rate) -> Option<Result<Self, RangeError>> {
        let stepped = self.flow.stepped;
        let flow = if stepped { Flow::stepped(rate) } else { Flow::smooth(rate, self.burst) };
        Some(Ok(Self { rate, flow, ..self.clone() }))
    }

    fn numbers(&self) -> Vec<f64> {
        let spent = (self.burst - self.initial) * self.flow.per_permit;
        let [tick_us, per_tick, per_permit, stepped] = self.flow.numbers();
        let (permits, period) = (self.rate.permits(), self.rate.period().get());
        let burst = self.burst as f64;
        let depth = self.depth() as f64;
        let numbers = [tick_us, per_tick, per_permit, depth, burst, spent as f64, stepped];
        numbers.into_iter().chain([permits as f64, period as f64]).collect()
    }

    fn write_state(&self, state: &TokenBucketState, out: &mut Vec<u8>) {
        state.0.write(out);
    }

    fn write_only_state(&self, state: &TokenBucketState, out: &mut Vec<u8>) {
        state.0.write_short(out);
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<TokenBucketState> {
        Level::read(from).map(TokenBucketState)
    }

    fn read_only_state(&self, from: &mut &[u8]) -> Option<TokenBucketState> {
        Level::read_short(from).map(TokenBucketState)
    }

    #[inline]
    fn pack(state: &TokenBucketState) -> Option<u128> {
        let Level { used, at } = state.0;
        Some(pack_words(used, at.get()))
    }

    #[inline]
    fn unpack(packed: u128) -> Option<TokenBucketState> {
        let (used, at) = unpack_words(packed);
        Some(TokenBucketState(Level { used, at: Micros::new(at) }))
    }
}
