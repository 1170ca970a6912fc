//! Guava's `SmoothBursty`: pay for the *previous* request.
//!
//! **What it remembers**: one balance in permits and the instant it is as of. Above zero it is what
//! idle time has stored; below zero it is the debt that the next request waits for. (Guava keeps
//! `storedPermits` and `nextFreeTicketMicros`; one of the two is always at rest, so a signed number
//! says the same, keeps the fraction of a microsecond that Guava cuts off, and survives a clock
//! that goes back.)
//!
//! **Worked example**: `rate 5/s`. An idle limiter lets `acquire(5)` through at once; the next
//! `acquire(1)` pays: it waits 1 s. The one after it waits 0.2 s.
//!
//! | at (s) | asked | balance before | wait | balance after |
//! |---|---|---|---|---|
//! | 0 | 5 | 0 | 0 | -5 |
//! | 0 | 1 | -5 | 1 s | -6 |
//! | 1 | 1 | -1 | 0.2 s | -2 |
//!
//! **Property**: a request of any cost passes as soon as the balance is not negative, and over any
//! long time the rate is `rate`, because the balance is only ever moved by `rate·dt - cost`.
//!
//! ```text
//! balance
//! rate·max_burst ┤      ╱────╲ stored while idle
//!              0 ┼─────╱      │   ╱── passes
//!                │            │  ╱ slope = rate
//!                └            └─╱ debt: the next one waits
//! ```
//!
//! **Exactness**: the balance is kept in permits, as a double, and counted in *units*: a permit weighs
//! `period_us` of them and a µs brings `permits`, so that a balance is a whole number of units
//! whatever is taken, given back, stored or waited for. A double of permits is off by some part in 2^53,
//! which is less than half a unit as long as the balance has fewer than 2^50: rounding it to the
//! nearest unit gives that whole number back, and adding what has flowed since is exact. So a balance
//! of exactly 0 is 0 and passes, and one unit less is not and does not: nothing is admitted that the
//! fractions would refuse, and nothing is refused that they admit. Two balances are further from it. One
//! of 2^50 units or more (a billion permits at a rate a second) is as good as doubles are. And a new
//! rate may leave a part of a unit, which is rounded once, by less than half of what one µs brings.
//!
//! Source: Guava `SmoothRateLimiter.SmoothBursty` (Apache-2.0, described in its class comment);
//! written anew. It counts in doubles, with the same operations in the same order in every language.

use alloc::vec;
use alloc::vec::Vec;

use super::{Algorithm, Leasing, Scale, pack_words, unpack_words};
use crate::decision::{Ask, Moment, Outcome, Retry, Status};
use crate::limits::{DEPTH_MAX, PERIOD_MAX_US, SPAN_MAX_US, STORED_F64_MAX, UNITS_MAX};
use crate::num::{Micros, Rate, ceil_f64, floor_f64, put, round_f64, take_f64, take_instant};
use crate::param::{Kind, Param, Params, RangeError, within};

/// Stores up to `rate·max_burst` permits while idle; a debt is paid by the next request.
#[derive(Clone, Debug, PartialEq)]
pub struct SmoothBursty {
    max_burst: Micros,
    permits: f64,
    period_us: f64,
    max_stored: f64,
}

/// The state of `smooth_bursty` for one key: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothBurstyState {
    balance: f64,
    at: Micros,
}

impl SmoothBursty {
    /// Permits flow at `rate`; those of up to `max_burst` of idle time are stored.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 µs <= max_burst <= 366 days`.
    pub fn new(rate: Rate, max_burst: impl Into<Micros>) -> Result<Self, RangeError> {
        let max_burst = max_burst.into();
        within("max_burst in µs", max_burst.get(), 1, PERIOD_MAX_US)?;
        let (permits, period_us) = (rate.permits() as f64, rate.period().get() as f64);
        // Beyond that a double would not notice that a permit was taken.
        let max_stored = (permits * max_burst.get() as f64 / period_us).min(DEPTH_MAX as f64);
        Ok(Self { max_burst, permits, period_us, max_stored })
    }

    fn balance(&self, state: Option<&SmoothBurstyState>, now: Micros) -> f64 {
        let Some(state) = state else { return 0.0 };
        let fresh_units = now.since(state.at).get() as f64 * self.permits;
        let units = round_f64(state.balance * self.period_us) + fresh_units;
        (units / self.period_us).min(self.max_stored)
    }

    /// Until the first moment at which [`balance`](Self::balance) is not negative.
    fn wait(&self, state: Option<&SmoothBurstyState>, now: Micros) -> Micros {
        let owes = |wait: u64| self.balance(state, now.plus(Micros::new(wait))) < 0.0;
        if !owes(0) {
            return Micros::ZERO;
        }
        // Doubles round one way from a debt to a time and another from a time to permits: `balance` at that time
        // decides, so that a caller that waits this long is not refused.
        let mut wait = self.time_for(-self.balance(state, now)).get();
        while wait < SPAN_MAX_US && owes(wait) {
            wait += 1;
        }
        while !owes(wait - 1) {
            wait -= 1;
        }
        Micros::new(wait)
    }

    fn time_for(&self, permits: f64) -> Micros {
        Micros::new(ceil_f64(permits * self.period_us / self.permits)).capped()
    }
}

impl Algorithm for SmoothBursty {
    type State = SmoothBurstyState;

    const NAME: &'static str = "smooth_bursty";
    const CODE: u8 = 2;
    const TWIN: &'static str =
        concat!(include_str!("../num.lua"), include_str!("smooth_bursty.lua"));
    const ABOUT: &'static str =
        "Guava's SmoothBursty: without debt any cost passes; the next request waits for it.";
    const PARAMS: &'static [Param] = &[
        Param { name: "rate", kind: Kind::Rate, default: None, about: "The long-run rate." },
        Param {
            name: "max_burst",
            kind: Kind::Span,
            default: Some("1s"),
            about: "Maximum idle time that is saved as permits.",
        },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        Self::new(params.rate("rate")?, params.span("max_burst", Some(Micros::SECOND))?)
    }

    fn limit(&self) -> u64 {
        floor_f64(self.max_stored).max(1)
    }

    fn check(&self, state: Option<&SmoothBurstyState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let wait = self.wait(state, at.now());
        if wait > ask.patience() {
            let retry = Retry::After(Micros::new(wait.get() - ask.patience().get()));
            return Outcome::Deny { retry };
        }
        Outcome::Allow { granted: ask.cost, wait }
    }

    fn charge(&self, state: &mut Option<SmoothBurstyState>, ask: &Ask, at: &Moment<'_>) {
        let balance = self.balance(state.as_ref(), at.now()) - ask.cost as f64;
        *state = Some(SmoothBurstyState { balance, at: at.now() });
    }

    fn available(&self, state: Option<&SmoothBurstyState>, at: &Moment<'_>) -> u64 {
        if self.balance(state, at.now()) < 0.0 { 0 } else { u64::MAX }
    }

    fn status(&self, state: Option<&SmoothBurstyState>, at: &Moment<'_>) -> Status {
        let balance = self.balance(state, at.now());
        Status {
            remaining: floor_f64(balance),
            reset_after: self.time_for(self.max_stored - balance),
        }
    }

    fn refund(&self, state: &mut SmoothBurstyState, permits: u64, at: &Moment<'_>) -> u64 {
        let balance = self.balance(Some(state), at.now());
        let refunded = (balance + permits as f64).min(self.max_stored);
        *state = SmoothBurstyState { balance: refunded, at: at.now() };
        // The difference of two doubles may be a little more than what was added.
        ceil_f64(refunded - balance).min(permits)
    }

    fn rewind(&self, state: &mut SmoothBurstyState, at: &Moment<'_>) {
        state.at = state.at.min(at.now());
    }

    fn full_at(&self, state: &SmoothBurstyState) -> Micros {
        state.at.plus(self.time_for(self.max_stored - state.balance))
    }

    /// A key that was never seen has stored nothing; an idle one is full.
    fn full_is_fresh(&self) -> bool {
        false
    }

    fn window(&self) -> Option<Micros> {
        super::refilled_in(self)
    }

    fn leasing(&self) -> Leasing {
        Leasing::Never("which books permits in advance")
    }

    fn seen(&self, state: &SmoothBurstyState) -> Micros {
        state.at
    }

    fn used(&self, state: &SmoothBurstyState, at: &Moment<'_>) -> u64 {
        ceil_f64(self.max_stored - self.balance(Some(state), at.now())).min(UNITS_MAX)
    }

    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<SmoothBurstyState> {
        Some(SmoothBurstyState { balance: self.max_stored - used as f64, at: at.now() })
    }

    /// Guava's `setRate`: what is stored is rescaled, and a debt keeps its time.
    fn convert(
        &self,
        old: &Self,
        state: &SmoothBurstyState,
        at: &Moment<'_>,
    ) -> Option<SmoothBurstyState> {
        let balance = old.balance(Some(state), at.now());
        let balance = if balance >= 0.0 {
            balance * self.max_stored / old.max_stored
        } else {
            (balance * old.period_us / old.permits) * self.permits / self.period_us
        };
        Some(SmoothBurstyState { balance, at: at.now() })
    }

    /// As [`convert`](Self::convert), which keeps the part of a full store to the last bit.
    fn rescale(
        &self,
        old: &Self,
        state: &SmoothBurstyState,
        _: Scale,
        at: &Moment<'_>,
    ) -> Option<SmoothBurstyState> {
        self.convert(old, state, at)
    }

    fn books(&self) -> bool {
        true
    }

    fn with_rate(&self, rate: Rate) -> Option<Result<Self, RangeError>> {
        Some(Self::new(rate, self.max_burst))
    }

    fn numbers(&self) -> Vec<f64> {
        vec![self.permits, self.period_us, self.max_stored]
    }

    fn write_state(&self, state: &SmoothBurstyState, out: &mut Vec<u8>) {
        out.extend(state.balance.to_le_bytes());
        put(out, state.at.get(), 7);
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<SmoothBurstyState> {
        let balance = take_f64(from, -STORED_F64_MAX, UNITS_MAX as f64)?;
        Some(SmoothBurstyState { balance, at: take_instant(from)? })
    }

    #[inline]
    fn pack(state: &SmoothBurstyState) -> Option<u128> {
        let SmoothBurstyState { balance, at } = *state;
        Some(pack_words(balance.to_bits(), at.get()))
    }

    #[inline]
    fn unpack(packed: u128) -> Option<SmoothBurstyState> {
        let (balance, at) = unpack_words(packed);
        Some(SmoothBurstyState { balance: f64::from_bits(balance), at: Micros::new(at) })
    }
}
