//! Guava's `SmoothWarmingUp`: an idle service is a cold service.
//!
//! **What it remembers**: the permits stored while idle, the debt in µs that the next request waits
//! for, and the instant both are as of. The more is stored, the colder the service is, and the
//! *slower* stored permits are handed out: from `cold_factor` intervals each down to one.
//!
//! **Worked example**: `rate 5/s, warmup 1s`, cold factor 3. The stable interval is 0.2 s, the cold
//! one 0.6 s; half of 5 stored permits lie above the threshold. The five requests of a cold start
//! wait 0, 0.52, 0.36, 0.22 and 0.2 s.
//!
//! **Property**: to use all that is stored above the threshold takes exactly `warmup`: it is the
//! area of the trapezoid.
//!
//! ```text
//! interval
//!     cold ┤          ╱│   cold = cold_factor · stable
//!          │        ╱  │
//!          │      ╱    │   area of the trapezoid = warmup
//!   stable ┤────╱      │   area of the rectangle = warmup / 2 (at cold_factor 3)
//!          │    │      │
//!        0 ┼────┴──────┴──▶ stored permits
//!              threshold  max
//! ```
//!
//! **Callers that do not wait keep it cold.** The time from the end of an interval to the next request counts as idle,
//! and idle time stores permits. At `rate 50/s, warmup 10s`, plain checks every 20 ms pass every 60 ms for ever (16.7 a
//! second): an interval of 40 to 60 ms ends before the third check, and the rest of these 60 ms gives back part of the
//! permit that was taken. Checks every 10 ms reach 50 a second within 20 s, and so do checks every 20 ms that may wait
//! for 20 ms. Guava's `tryAcquire()` does the same, request by request: 1,000 of 3,000 pass in a minute, and 2,751 with
//! `tryAcquire(20, MILLISECONDS)` (Guava 31.1, measured; a test beside the kernel compares the two).
//!
//! **Exactness**: an interval may be a third of a µs, and the area of a trapezoid has parts smaller still, so that no
//! unit makes all of it whole, unlike in `smooth_bursty`. A debt is right to the rounding of doubles (some part in 2^53
//! of it). Where it would be a whole number of µs, its wait may therefore be 1 µs longer; where it ends a wait early,
//! it does so by less than 1 µs.
//!
//! Source: Guava `SmoothRateLimiter.SmoothWarmingUp` (Apache-2.0, described in its class comment);
//! written anew, keeping fractions of a microsecond. It counts in doubles, with the same operations
//! in the same order in every language.

use alloc::vec;
use alloc::vec::Vec;

use super::{Algorithm, Leasing, Scale};
use crate::decision::{Ask, Moment, Outcome, Retry, Status};
use crate::limits::{COLD_FACTOR_MAX, DEPTH_MAX, PERIOD_MAX_US, STORED_F64_MAX, UNITS_MAX};
use crate::num::{Micros, Rate, ceil_f64, floor_f64, put, take_f64, take_instant};
use crate::param::{Kind, Param, Params, RangeError, within};

/// Starts cold and reaches `rate` after `warmup` of steady use.
#[derive(Clone, Debug, PartialEq)]
pub struct SmoothWarmup {
    warmup: Micros,
    cold_factor: f64,
    /// µs per permit when warm.
    stable: f64,
    /// Stored permits below this are handed out at the stable interval.
    threshold: f64,
    max_stored: f64,
    /// The growth of the interval per stored permit above the threshold, µs.
    slope: f64,
    /// µs of idle time that store one permit.
    cooldown: f64,
}

/// The state of `smooth_warmup` for one key: 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothWarmupState {
    stored: f64,
    debt_us: f64,
    at: Micros,
}

impl SmoothWarmup {
    /// Permits flow at `rate` when warm; a cold start needs `warmup` to get there, beginning at
    /// `cold_factor` times the stable interval.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 µs <= warmup <= 366 days` and `1 < cold_factor <= 1000`.
    pub fn new(
        rate: Rate,
        warmup: impl Into<Micros>,
        cold_factor: f64,
    ) -> Result<Self, RangeError> {
        let warmup = warmup.into();
        within("warmup in µs", warmup.get(), 1, PERIOD_MAX_US)?;
        if !(cold_factor > 1.0 && cold_factor <= COLD_FACTOR_MAX) {
            let problem = alloc::format!("`{cold_factor}` is not above 1 and at most 1000");
            return Err(RangeError::new("cold_factor", problem));
        }
        let warmup_us = warmup.get() as f64;
        let stable = rate.period().get() as f64 / rate.permits() as f64;
        let cold = stable * cold_factor;
        let threshold = 0.5 * warmup_us / stable;
        let max_stored = threshold + 2.0 * warmup_us / (stable + cold);
        let slope = (cold - stable) / (max_stored - threshold);
        let cooldown = warmup_us / max_stored;
        Ok(Self { warmup, cold_factor, stable, threshold, max_stored, slope, cooldown })
    }

    fn at(&self, state: Option<&SmoothWarmupState>, now: Micros) -> SmoothWarmupState {
        let Some(state) = state else {
            return SmoothWarmupState { stored: self.max_stored, debt_us: 0.0, at: now };
        };
        let elapsed = now.since(state.at).get() as f64;
        if elapsed < state.debt_us {
            let debt_us = state.debt_us - elapsed;
            return SmoothWarmupState { stored: state.stored, debt_us, at: now };
        }
        let idle = elapsed - state.debt_us;
        let stored = (state.stored + idle / self.cooldown).min(self.max_stored);
        SmoothWarmupState { stored, debt_us: 0.0, at: now }
    }

    /// µs that it takes to hand out `cost` permits when `stored` are stored.
    fn time_to_hand_out(&self, stored: f64, cost: f64) -> f64 {
        let from_stored = cost.min(stored);
        let above = (stored - self.threshold).max(0.0);
        let slow = from_stored.min(above);
        let trapezoid = slow * (self.interval(above) + self.interval(above - slow)) / 2.0;
        trapezoid + (from_stored - slow) * self.stable + (cost - from_stored) * self.stable
    }

    fn interval(&self, above: f64) -> f64 {
        self.stable + above * self.slope
    }
}

impl Algorithm for SmoothWarmup {
    type State = SmoothWarmupState;

    const NAME: &'static str = "smooth_warmup";
    const CODE: u8 = 3;
    const TWIN: &'static str =
        concat!(include_str!("../num.lua"), include_str!("smooth_warmup.lua"));
    const ABOUT: &'static str = "Guava's SmoothWarmingUp: starts slower and reaches `rate` after `warmup`, if callers wait or ask faster than \
         `rate`. Plain checks at `rate` itself stay at the cold rate, as Guava's `tryAcquire()` does.";
    const PARAMS: &'static [Param] = &[
        Param { name: "rate", kind: Kind::Rate, default: None, about: "The rate when warm." },
        Param {
            name: "warmup",
            kind: Kind::Span,
            default: None,
            about: "Time of steady use from cold to warm.",
        },
        Param {
            name: "cold_factor",
            kind: Kind::Factor { min: 1.0, max: COLD_FACTOR_MAX },
            default: Some("3.0"),
            about: "Factor by which a cold start is slower.",
        },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        let warmup = params.span("warmup", None)?;
        Self::new(params.rate("rate")?, warmup, params.factor("cold_factor", 3.0)?)
    }

    fn limit(&self) -> u64 {
        floor_f64(self.max_stored).clamp(1, DEPTH_MAX)
    }

    fn check(&self, state: Option<&SmoothWarmupState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let wait = Micros::new(ceil_f64(self.at(state, at.now()).debt_us)).capped();
        if wait > ask.patience() {
            let retry = Retry::After(Micros::new(wait.get() - ask.patience().get()));
            return Outcome::Deny { retry };
        }
        Outcome::Allow { granted: ask.cost, wait }
    }

    fn charge(&self, state: &mut Option<SmoothWarmupState>, ask: &Ask, at: &Moment<'_>) {
        let mut next = self.at(state.as_ref(), at.now());
        let cost = ask.cost as f64;
        next.debt_us += self.time_to_hand_out(next.stored, cost);
        next.stored -= cost.min(next.stored);
        *state = Some(next);
    }

    fn available(&self, state: Option<&SmoothWarmupState>, at: &Moment<'_>) -> u64 {
        if self.at(state, at.now()).debt_us > 0.0 { 0 } else { u64::MAX }
    }

    fn status(&self, state: Option<&SmoothWarmupState>, at: &Moment<'_>) -> Status {
        let state = self.at(state, at.now());
        let stored = floor_f64(state.stored).min(DEPTH_MAX);
        let remaining = if state.debt_us > 0.0 { 0 } else { stored };
        Status { remaining, reset_after: self.full_at(&state).since(at.now()).capped() }
    }

    /// A debt is paid first, at the stable interval; what is left is stored.
    fn refund(&self, state: &mut SmoothWarmupState, permits: u64, at: &Moment<'_>) -> u64 {
        let mut next = self.at(Some(state), at.now());
        let paid_us = next.debt_us.min(permits as f64 * self.stable);
        next.debt_us -= paid_us;
        let left = (permits as f64 - paid_us / self.stable).min(self.max_stored - next.stored);
        next.stored += left.max(0.0);
        *state = next;
        ceil_f64(paid_us / self.stable + left.max(0.0)).min(permits)
    }

    fn rewind(&self, state: &mut SmoothWarmupState, at: &Moment<'_>) {
        state.at = state.at.min(at.now());
    }

    fn full_at(&self, state: &SmoothWarmupState) -> Micros {
        let idle = (self.max_stored - state.stored) * self.cooldown;
        state.at.plus(Micros::new(ceil_f64(state.debt_us + idle)).capped())
    }

    fn window(&self) -> Option<Micros> {
        // How fast it gives back depends on what is stored.
        None
    }

    fn leasing(&self) -> Leasing {
        Leasing::Never("which books permits in advance")
    }

    fn seen(&self, state: &SmoothWarmupState) -> Micros {
        state.at
    }

    fn used(&self, state: &SmoothWarmupState, at: &Moment<'_>) -> u64 {
        let state = self.at(Some(state), at.now());
        let used = self.max_stored - state.stored + state.debt_us / self.stable;
        ceil_f64(used).min(UNITS_MAX)
    }

    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<SmoothWarmupState> {
        let spent = (used as f64).min(self.max_stored);
        let debt_us = (used as f64 - spent) * self.stable;
        Some(SmoothWarmupState { stored: self.max_stored - spent, debt_us, at: at.now() })
    }

    /// Guava's `setRate`: what is stored is rescaled, and a debt keeps its time.
    fn convert(
        &self,
        old: &Self,
        state: &SmoothWarmupState,
        at: &Moment<'_>,
    ) -> Option<SmoothWarmupState> {
        let state = old.at(Some(state), at.now());
        Some(SmoothWarmupState { stored: state.stored * self.max_stored / old.max_stored, ..state })
    }

    /// As [`convert`](Self::convert), which keeps the part of a full store to the last bit.
    fn rescale(
        &self,
        old: &Self,
        state: &SmoothWarmupState,
        _: Scale,
        at: &Moment<'_>,
    ) -> Option<SmoothWarmupState> {
        self.convert(old, state, at)
    }

    fn books(&self) -> bool {
        true
    }

    fn with_rate(&self, rate: Rate) -> Option<Result<Self, RangeError>> {
        Some(Self::new(rate, self.warmup, self.cold_factor))
    }

    fn numbers(&self) -> Vec<f64> {
        vec![self.stable, self.threshold, self.max_stored, self.slope, self.cooldown]
    }

    fn write_state(&self, state: &SmoothWarmupState, out: &mut Vec<u8>) {
        out.extend(state.stored.to_le_bytes());
        out.extend(state.debt_us.to_le_bytes());
        put(out, state.at.get(), 7);
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<SmoothWarmupState> {
        let stored = take_f64(from, 0.0, STORED_F64_MAX)?;
        let debt_us = take_f64(from, 0.0, STORED_F64_MAX)?;
        Some(SmoothWarmupState { stored, debt_us, at: take_instant(from)? })
    }
}
