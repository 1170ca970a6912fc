//! The leaky bucket, as nginx has it.
//!
//! **What it remembers**: the water in the bucket, in exact units, and the instant up to which the
//! leak has been counted.
//!
//! **Worked example**: `rate 2/s, burst 3, delay all`. Four requests at once, then a fifth:
//!
//! | request | water before | answer |
//! |---|---|---|
//! | 1 | 0 | pass at once |
//! | 2 | 1 | pass, hold back 0.5 s |
//! | 3 | 2 | pass, hold back 1 s |
//! | 4 | 3 | pass, hold back 1.5 s |
//! | 5 | 4 | refused: 4 + 1 > burst + 1; retry in 0.5 s |
//!
//! **Property**: if every request is held back for its wait, requests leave at `rate` at most, and
//! never more than `burst + 1` are in the bucket.
//!
//! ```text
//!   in ──▶ │   │ burst + 1: over it, refused
//!          │~~~│ N: above it an answer carries a wait (`delay: N`)
//!          │~~~│
//!          └─┬─┘ ──▶ out at `rate`
//! ```
//!
//! `delay: all` holds everything back to the rate, `delay: N` lets the first N of a burst pass at
//! once, `delay: none` only measures (a meter, nginx's `nodelay`).
//!
//! Source: nginx `ngx_http_limit_req_module` (`rate`, `burst`, `delay`, `nodelay`) and
//! `resty.limit.req`, in exact fractions instead of milliseconds.

use alloc::vec::Vec;

use super::flow::{Flow, Level};
use super::{Algorithm, Leasing, Scale, pack_words, unpack_words};
use crate::decision::{Ask, Moment, Outcome, Retry, Status};
use crate::limits::{PERMITS_MAX, UNITS_MAX};
use crate::num::{Micros, Rate};
use crate::param::{Kind, Param, Params, RangeError, within};

/// A bucket that leaks at `rate` and spills over above `burst + 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: Rate,
    burst: u64,
    delay: Delay,
    flow: Flow,
}

/// The requests of a burst that are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// None: the bucket only measures.
    None,
    /// Requests that find more than this many in the bucket; 0 holds all back.
    Above(u64),
}

/// The state of a leaky bucket for one key: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucketState(Level);

impl LeakyBucket {
    /// A bucket that leaks at `rate`, takes `burst` more than the one that is passing, and holds
    /// requests back by `delay`.
    ///
    /// # Errors
    /// [`RangeError`] unless `burst <= 2^32` and a delay's number is at most the burst.
    pub fn new(rate: Rate, burst: u64, delay: Delay) -> Result<Self, RangeError> {
        within("burst", burst, 0, PERMITS_MAX)?;
        if let Delay::Above(n) = delay {
            within("delay", n, 0, burst)?;
        }
        Ok(Self { rate, burst, delay, flow: Flow::smooth(rate, burst + 1) })
    }

    const fn depth(&self) -> u64 {
        (self.burst + 1) * self.flow.per_permit
    }

    fn level(&self, state: Option<&LeakyBucketState>, now: Micros) -> Level {
        state.map_or(Level { used: 0, at: now }, |state| self.flow.drain(state.0, now))
    }

    fn wait(&self, level: Level, now: Micros) -> Micros {
        match self.delay {
            Delay::None => Micros::ZERO,
            Delay::Above(n) => match level.used.saturating_sub(n * self.flow.per_permit) {
                0 => Micros::ZERO,
                above => self.flow.time_to_drain(above, level, now),
            },
        }
    }
}

impl Algorithm for LeakyBucket {
    type State = LeakyBucketState;

    const NAME: &'static str = "leaky_bucket";
    const CODE: u8 = 4;
    const TWIN: &'static str =
        concat!(include_str!("../flow.lua"), include_str!("leaky_bucket.lua"));
    const ABOUT: &'static str = "nginx's limit_req: requests leave at `rate`, up to `burst` wait.";
    const PARAMS: &'static [Param] = &[
        Param { name: "rate", kind: Kind::Rate, default: None, about: "Leak rate." },
        Param {
            name: "burst",
            kind: Kind::Permits { min: 0, max: PERMITS_MAX },
            default: Some("0"),
            about: "Requests that may wait in the bucket, in addition to the one that passes.",
        },
        Param {
            name: "delay",
            kind: Kind::WordOrPermits { words: &["all", "none"], max: PERMITS_MAX },
            default: Some("all"),
            about: "Which requests of a burst are delayed: all, none, or those after the first N.",
        },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        let delay = match params.permits("delay", Some(0)) {
            Ok(n) => Delay::Above(n),
            Err(_) if params.word("delay", "all")? == "none" => Delay::None,
            Err(_) => Delay::Above(0),
        };
        Self::new(params.rate("rate")?, params.permits("burst", Some(0))?, delay)
    }

    fn limit(&self) -> u64 {
        self.burst + 1
    }

    fn check(&self, state: Option<&LeakyBucketState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let cost = ask.cost;
        if cost > self.limit() {
            return Outcome::Deny { retry: Retry::Never };
        }
        let level = self.level(state, at.now());
        let wanted = level.used + cost * self.flow.per_permit;
        let spilled = match wanted.saturating_sub(self.depth()) {
            0 => Micros::ZERO,
            units => self.flow.time_to_drain(units, level, at.now()),
        };
        let wait = self.wait(level, at.now());
        let too_long = ask.max_wait.map_or(Micros::ZERO, |max_wait| wait.since(max_wait));
        match spilled.max(too_long) {
            Micros::ZERO => Outcome::Allow { granted: cost, wait },
            retry => Outcome::Deny { retry: Retry::After(retry) },
        }
    }

    fn charge(&self, state: &mut Option<LeakyBucketState>, ask: &Ask, at: &Moment<'_>) {
        let level = self.level(state.as_ref(), at.now());
        let units = ask.cost * self.flow.per_permit;
        *state = Some(LeakyBucketState(self.flow.fill(level, units, at.now())));
    }

    fn available(&self, state: Option<&LeakyBucketState>, at: &Moment<'_>) -> u64 {
        let used = self.level(state, at.now()).used;
        self.depth().saturating_sub(used) / self.flow.per_permit
    }

    fn status(&self, state: Option<&LeakyBucketState>, at: &Moment<'_>) -> Status {
        let level = self.level(state, at.now());
        Status {
            remaining: self.depth().saturating_sub(level.used) / self.flow.per_permit,
            reset_after: self.flow.time_to_drain(level.used, level, at.now()),
        }
    }

    fn refund(&self, state: &mut LeakyBucketState, permits: u64, at: &Moment<'_>) -> u64 {
        let level = self.flow.drain(state.0, at.now());
        let back = level.used.min(permits.saturating_mul(self.flow.per_permit));
        state.0 = Level { used: level.used - back, ..level };
        back.div_ceil(self.flow.per_permit)
    }

    fn rewind(&self, state: &mut LeakyBucketState, at: &Moment<'_>) {
        state.0.at = state.0.at.min(at.now());
    }

    fn full_at(&self, state: &LeakyBucketState) -> Micros {
        state.0.at.plus(self.flow.time_to_drain(state.0.used, state.0, state.0.at))
    }

    fn window(&self) -> Option<Micros> {
        super::refilled_in(self)
    }

    fn leasing(&self) -> Leasing {
        match self.delay {
            Delay::None => Leasing::Flows(self.flow.time_to_fill(self.depth())),
            Delay::Above(_) => Leasing::Never("whose `delay` is not `none`"),
        }
    }

    fn seen(&self, state: &LeakyBucketState) -> Micros {
        state.0.at
    }

    fn forget(&self, state: &mut LeakyBucketState, at: &Moment<'_>) {
        state.0 = self.flow.drain(state.0, at.now());
    }

    fn countable(&self) -> u64 {
        self.flow.countable()
    }

    fn used(&self, state: &LeakyBucketState, at: &Moment<'_>) -> u64 {
        self.flow.drain(state.0, at.now()).used.div_ceil(self.flow.per_permit)
    }

    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<LeakyBucketState> {
        let units = used.saturating_mul(self.flow.per_permit).min(UNITS_MAX);
        Some(LeakyBucketState(Level { used: units, at: at.now() }))
    }

    fn convert(
        &self,
        old: &Self,
        state: &LeakyBucketState,
        at: &Moment<'_>,
    ) -> Option<LeakyBucketState> {
        let scale = Scale { to: self.flow.per_permit, from: old.flow.per_permit };
        Some(LeakyBucketState(self.flow.take_over(&old.flow, state.0, scale, at.now())))
    }

    /// Keeps the part of a full bucket to the unit: a permit that has come back in part stays so.
    fn rescale(
        &self,
        old: &Self,
        state: &LeakyBucketState,
        _: Scale,
        at: &Moment<'_>,
    ) -> Option<LeakyBucketState> {
        let scale = Scale { to: self.depth(), from: old.depth() };
        Some(LeakyBucketState(self.flow.take_over(&old.flow, state.0, scale, at.now())))
    }

    fn books(&self) -> bool {
        true
    }

    fn with_rate(&self, rate: Rate) -> Option<Result<Self, RangeError>> {
        Some(Self::new(rate, self.burst, self.delay))
    }

    fn numbers(&self) -> Vec<f64> {
        let (delayed, delay) = match self.delay {
            Delay::None => (0.0, 0),
            Delay::Above(n) => (1.0, n * self.flow.per_permit),
        };
        let [tick_us, per_tick, per_permit, stepped] = self.flow.numbers();
        let (permits, period) = (self.rate.permits(), self.rate.period().get());
        let (depth, limit) = (self.depth() as f64, self.limit() as f64);
        let numbers = [tick_us, per_tick, per_permit, depth, limit, delayed, stepped, delay as f64];
        numbers.into_iter().chain([permits as f64, period as f64]).collect()
    }

    fn write_state(&self, state: &LeakyBucketState, out: &mut Vec<u8>) {
        state.0.write(out);
    }

    fn write_only_state(&self, state: &LeakyBucketState, out: &mut Vec<u8>) {
        state.0.write_short(out);
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<LeakyBucketState> {
        Level::read(from).map(LeakyBucketState)
    }

    fn read_only_state(&self, from: &mut &[u8]) -> Option<LeakyBucketState> {
        Level::read_short(from).map(LeakyBucketState)
    }

    #[inline]
    fn pack(state: &LeakyBucketState) -> Option<u128> {
        let Level { used, at } = state.0;
        Some(pack_words(used, at.get()))
    }

    #[inline]
    fn unpack(packed: u128) -> Option<LeakyBucketState> {
        let (used, at) = unpack_words(packed);
        Some(LeakyBucketState(Level { used, at: Micros::new(at) }))
    }
}
