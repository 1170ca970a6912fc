//! Numbers that cannot be wrong: parsed once, trusted everywhere after.

use alloc::vec::Vec;
use core::fmt;

use crate::limits::{COST_MAX, PERIOD_MAX_US, PERMITS_MAX, SPAN_MAX_US};
use crate::range::{RangeError, within};

/// Microseconds: an instant (since whatever the clock calls zero) or a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// The instant zero, or no time at all.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);
    /// The latest instant that fits.
    pub const MAX: Self = Self(u64::MAX);

    /// `us` microseconds.
    pub const fn new(us: u64) -> Self {
        Self(us)
    }

    /// `ms` milliseconds, saturating.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// `secs` seconds, saturating.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The number of microseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// `self + span`, stopping at [`Micros::MAX`].
    #[must_use]
    pub const fn plus(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The span from `earlier` to `self`; zero when time went backwards.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// This span in whole seconds, rounded up, as headers want it.
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// This span, no longer than a decision reports (285 years).
    #[must_use]
    pub const fn capped(self) -> Self {
        if self.0 > SPAN_MAX_US { Self(SPAN_MAX_US) } else { self }
    }
}

impl From<core::time::Duration> for Micros {
    /// Rounds up, saturating: a wait is never cut short.
    fn from(span: core::time::Duration) -> Self {
        Self(u64::try_from(span.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for core::time::Duration {
    fn from(span: Micros) -> Self {
        Self::from_micros(span.0)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}us", self.0)
    }
}

/// The permits that a request takes: 1..=2^31.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost(u64);

impl Cost {
    /// The cost of an ordinary request.
    pub const ONE: Self = Self(1);

    /// A cost of `permits`.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= permits <= 2^31`.
    pub fn new(permits: u64) -> Result<Self, RangeError> {
        within("cost", permits, 1, COST_MAX).map(Self)
    }

    /// The number of permits.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// An exact rate: `permits` every `period`. Never rounded to "µs per token".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    permits: u64,
    period: Micros,
}

impl Rate {
    /// `permits` every `period`, which may be a [`Duration`](core::time::Duration).
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= permits <= 2^32` and `1 µs <= period <= 366 days`.
    pub fn new(permits: u64, period: impl Into<Micros>) -> Result<Self, RangeError> {
        let period = period.into();
        within("rate permits", permits, 1, PERMITS_MAX)?;
        within("rate period in µs", period.get(), 1, PERIOD_MAX_US)?;
        Ok(Self { permits, period })
    }

    /// `permits` every second.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= permits <= 2^32`.
    pub fn per_second(permits: u64) -> Result<Self, RangeError> {
        Self::new(permits, Micros::SECOND)
    }

    /// `permits` every minute.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= permits <= 2^32`.
    pub fn per_minute(permits: u64) -> Result<Self, RangeError> {
        Self::new(permits, Micros::from_secs(60))
    }

    /// `permits` every hour.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= permits <= 2^32`.
    pub fn per_hour(permits: u64) -> Result<Self, RangeError> {
        Self::new(permits, Micros::from_secs(60 * 60))
    }

    /// `permits` every 24 hours.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= permits <= 2^32`.
    pub fn per_day(permits: u64) -> Result<Self, RangeError> {
        Self::new(permits, Micros::from_secs(24 * 60 * 60))
    }

    /// Permits per [`period`](Self::period).
    pub const fn permits(self) -> u64 {
        self.permits
    }

    /// The period that [`permits`](Self::permits) refers to.
    pub const fn period(self) -> Micros {
        self.period
    }
}

/// The greatest common divisor of two positive numbers.
pub(crate) const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// `x` rounded up to an integer, saturating; NaN and negatives give 0.
///
/// A cast truncates, which is what Lua's `math.floor` does to these numbers; `f64::ceil` is not
/// in `core`.
pub(crate) fn ceil_f64(x: f64) -> u64 {
    let floor = floor_f64(x);
    if (floor as f64) < x { floor.saturating_add(1) } else { floor }
}

/// `x` rounded down to an integer, saturating; NaN and negatives give 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturation is what the caller asks for"
)]
pub(crate) fn floor_f64(x: f64) -> u64 {
    x as u64
}

/// `x` rounded to the nearest integer, halves up; unchanged where every double is an integer.
///
/// `f64::round` is not in `core`, and rounds halves of negative numbers down.
#[expect(clippy::cast_possible_truncation, reason = "below 2^52 it is within 64 bits")]
pub(crate) fn round_f64(x: f64) -> f64 {
    const INTEGERS: f64 = 4_503_599_627_370_496.0;
    if !(x > -INTEGERS && x < INTEGERS) {
        return x;
    }
    let up = x + 0.5;
    let cut = up as i64 as f64;
    if cut > up { cut - 1.0 } else { cut }
}

/// Appends the lowest `bytes` bytes of `value`, little-endian.
pub(crate) fn put(out: &mut Vec<u8>, value: u64, bytes: usize) {
    out.extend_from_slice(&value.to_le_bytes()[..bytes]);
}

/// The next `bytes` bytes (at most 8) of `from` as a little-endian number; `None` if it has less.
pub(crate) fn take(from: &mut &[u8], bytes: usize) -> Option<u64> {
    let (number, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(number.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The next seven bytes of `from` as an instant.
pub(crate) fn take_instant(from: &mut &[u8]) -> Option<Micros> {
    take(from, 7).map(Micros::new)
}

/// The next eight bytes of `from` as a double; `None` if it is outside `least..=most`.
pub(crate) fn take_f64(from: &mut &[u8], least: f64, most: f64) -> Option<f64> {
    take(from, 8).map(f64::from_bits).filter(|number| (least..=most).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_rounded_up_to_the_microsecond() {
        assert_eq!(Micros::from(core::time::Duration::from_nanos(1)), Micros::new(1));
        assert_eq!(Micros::from(core::time::Duration::MAX), Micros::MAX);
    }

    #[test]
    fn rates_are_named_by_their_period() {
        let minute = core::time::Duration::from_secs(60);
        assert_eq!(Rate::per_minute(7), Rate::new(7, minute));
        assert_eq!(Rate::per_hour(7).map(Rate::period), Ok(Micros::from_secs(3_600)));
        assert_eq!(Rate::per_day(7).map(Rate::period), Ok(Micros::from_secs(86_400)));
        assert!(Rate::per_minute(0).is_err());
    }

    #[test]
    fn numbers_outside_their_range_are_named() {
        let error = Cost::new(0).unwrap_err();
        assert_eq!(alloc::format!("{error}"), "cost: `0` is outside 1..=2147483648");
        assert!(Cost::new(COST_MAX).is_ok() && Cost::new(COST_MAX + 1).is_err());
        assert!(Rate::new(0, Micros::SECOND).is_err());
        assert!(Rate::new(1, Micros::ZERO).is_err());
        assert!(Rate::new(1, Micros::new(PERIOD_MAX_US + 1)).is_err());
    }

    #[test]
    fn floats_round_up_and_saturate() {
        assert_eq!(ceil_f64(2.0), 2);
        assert_eq!(ceil_f64(2.000_001), 3);
        assert_eq!(ceil_f64(f64::INFINITY), u64::MAX);
        assert_eq!(ceil_f64(f64::NAN), 0);
        assert_eq!(ceil_f64(-3.5), 0);
    }

    #[test]
    fn floats_round_to_the_nearest_integer_and_halves_up() {
        let rounded = [(0.4, 0.0), (0.5, 1.0), (-0.5, 0.0), (-0.6, -1.0), (-2.0, -2.0), (7.9, 8.0)];
        for (x, expected) in rounded {
            assert_eq!(round_f64(x), expected, "{x}");
        }
        let large = 4_503_599_627_370_497.0;
        assert_eq!((round_f64(large), round_f64(-large)), (large, -large));
        assert!(round_f64(f64::NAN).is_nan());
    }
}
