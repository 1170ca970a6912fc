//! The exact arithmetic that both buckets share: what flows per tick, and what one permit weighs.
//!
//! A rate is the fraction `permits / period`. Divide both by their greatest common divisor and
//! count in units: one permit weighs `per_permit` units, one tick carries `per_tick` units, and both
//! are whole. So nothing is ever rounded, and after 10^9 operations the error is zero.
//!
//! Example: 7 permits a second are 7 units a microsecond, and a permit weighs 1,000,000 units.
//!
//! The tick is one microsecond unless a full bucket would then count past
//! [`DEPTH_MAX`](crate::limits::DEPTH_MAX). A longer tick makes the permit lighter: with a tick of
//! `d` µs, where `d` divides the permit's weight, the permit weighs `d` times less and the rate is
//! the same exact fraction. A longer tick only ever gives *later*, never more.

use alloc::vec::Vec;

use super::Scale;
use crate::limits::{DEPTH_MAX, SPAN_MAX_US, UNITS_MAX};
use crate::num::{Micros, Rate, gcd, put, take, take_instant};

/// A rate in whole units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Length of a tick.
    pub(crate) tick_us: u64,
    /// Units that one tick carries.
    pub(crate) per_tick: u64,
    /// Units that one permit weighs.
    pub(crate) per_permit: u64,
    /// All units of a tick arrive at its end on purpose, and not for lack of precision.
    pub(crate) stepped: bool,
}

/// Units on their way out, as of an instant. No `Level` at all means none: a full budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// Units in use.
    pub(crate) used: u64,
    /// The instant up to which the outflow has been counted.
    pub(crate) at: Micros,
}

impl Flow {
    /// The flow of `rate` in a bucket of `depth` permits, as finely as 2^53 permits.
    pub(crate) const fn smooth(rate: Rate, depth: u64) -> Self {
        let period = rate.period().get();
        let common = gcd(rate.permits(), period);
        let (per_tick, mut per_permit) = (rate.permits() / common, period / common);
        let mut tick_us = 1;
        let heaviest = DEPTH_MAX / depth;
        let mut factor = 2;
        while per_permit > heaviest && factor <= 7 {
            if per_permit.is_multiple_of(factor) {
                per_permit /= factor;
                tick_us *= factor;
            } else {
                factor += 1;
            }
        }
        if per_permit > heaviest {
            // No small factor left: the permits of a whole reduced period arrive together.
            tick_us *= per_permit;
            per_permit = 1;
        }
        Self { tick_us, per_tick, per_permit, stepped: false }
    }

    /// The flow of `rate` where all permits of a period arrive together at its end.
    pub(crate) const fn stepped(rate: Rate) -> Self {
        let (tick_us, per_tick) = (rate.period().get(), rate.permits());
        Self { tick_us, per_tick, per_permit: 1, stepped: true }
    }

    /// `level` at `now`. Time that went backwards carries nothing.
    pub(crate) fn drain(&self, level: Level, now: Micros) -> Level {
        let elapsed = now.since(level.at).get();
        let ticks = if self.tick_us == 1 { elapsed } else { elapsed / self.tick_us };
        if ticks.saturating_mul(self.per_tick) >= level.used {
            return Level { used: 0, at: now };
        }
        Level {
            used: level.used - ticks * self.per_tick,
            at: Micros::new(level.at.get() + ticks * self.tick_us),
        }
    }

    /// Returns a drained `level` with `units` more in use.
    pub(crate) fn fill(&self, level: Level, units: u64, now: Micros) -> Level {
        let used = level.used + units;
        if self.tick_us == 1 || self.stepped || level.used >= self.per_tick {
            return Level { used, ..level };
        }
        // The running tick will carry more than is in use: of the time that it has run for, only
        // as much counts as emptied the bucket. The rest found nothing to carry.
        let emptied = u128::from(level.used) * u128::from(self.tick_us) / u128::from(self.per_tick);
        let emptied = u64::try_from(emptied).unwrap_or(u64::MAX);
        Level { used, at: level.at.max(Micros::new(now.get().saturating_sub(emptied))) }
    }

    /// The time from `now` until `units` of a drained `level` have flowed out, rounded up, capped.
    pub(crate) fn time_to_drain(&self, units: u64, level: Level, now: Micros) -> Micros {
        let ticks = units.div_ceil(self.per_tick);
        let span = ticks.saturating_mul(self.tick_us).saturating_sub(now.since(level.at).get());
        Micros::new(span.min(SPAN_MAX_US))
    }

    /// The time in which `units` flow out, rounded up, capped.
    pub(crate) fn time_to_fill(&self, units: u64) -> Micros {
        Micros::new(units.div_ceil(self.per_tick).saturating_mul(self.tick_us).min(SPAN_MAX_US))
    }

    /// Permits that weigh at most [`UNITS_MAX`].
    pub(crate) fn countable(&self) -> u64 {
        UNITS_MAX / self.per_permit
    }

    /// Takes a `level` of `old` over at `now`: for each `scale.from` units in use then, `scale.to` units of this flow,
    /// rounded up (against the caller).
    pub(crate) fn take_over(&self, old: &Self, level: Level, scale: Scale, now: Micros) -> Level {
        let level = old.drain(level, now);
        // Permits that come together come when they were due, however many they are by then. Any other part of a tick
        // that was not counted yet counts for nothing when the tick changes.
        let in_step = self.stepped && old.stepped && self.tick_us == old.tick_us;
        let at = if in_step || self == old { level.at } else { now };
        Level { used: scale.of(level.used), at }
    }
}

impl Flow {
    /// The numbers that the twin in Lua needs.
    pub(crate) fn numbers(&self) -> [f64; 4] {
        let Self { tick_us, per_tick, per_permit, stepped } = *self;
        [tick_us as f64, per_tick as f64, per_permit as f64, f64::from(u8::from(stepped))]
    }
}

impl Level {
    /// Appends the instant and the units, seven bytes each.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        put(out, self.at.get(), 7);
        put(out, self.used, 7);
    }

    /// Appends six bytes of µs since the year 2026 began and three to seven of units; the long form
    /// where the instant is earlier, or later by more than eight years.
    pub(crate) fn write_short(self, out: &mut Vec<u8>) {
        let since = self.at.get().checked_sub(YEAR_2026_US).filter(|since| *since < 1 << 48);
        let Some(since) = since else { return self.write(out) };
        put(out, since, 6);
        let bytes = (u64::BITS - self.used.leading_zeros()).div_ceil(8);
        put(out, self.used, bytes.clamp(3, 7) as usize);
    }

    /// Reads what [`write`](Self::write) appended; `None` if no bucket counts that high.
    pub(crate) fn read(from: &mut &[u8]) -> Option<Self> {
        let at = take_instant(from)?;
        Self::counted(at, take(from, 7)?)
    }

    /// Reads what [`write_short`](Self::write_short) appended: all of `from`, whose length tells the two forms apart.
    pub(crate) fn read_short(from: &mut &[u8]) -> Option<Self> {
        match from.len() {
            14 => Self::read(from),
            length @ 9..14 => {
                let at = Micros::new(YEAR_2026_US + take(from, 6)?);
                Self::counted(at, take(from, length - 6)?)
            }
            _ => None,
        }
    }

    fn counted(at: Micros, used: u64) -> Option<Self> {
        (used <= UNITS_MAX).then_some(Self { used, at })
    }
}

/// The beginning of the year 2026, UTC, in µs since the Unix epoch.
const YEAR_2026_US: u64 = 1_767_225_600_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{PERIOD_MAX_US, PERMITS_MAX};

    fn rate(permits: u64, period: u64) -> Rate {
        Rate::new(permits, Micros::new(period)).unwrap()
    }

    #[test]
    fn ordinary_rates_tick_every_microsecond() {
        let flow = Flow::smooth(rate(7, 1_000_000), 7);
        let expected = Flow { tick_us: 1, per_tick: 7, per_permit: 1_000_000, stepped: false };
        assert_eq!(flow, expected);
        let day = Flow::smooth(rate(1, 86_400_000_000), 50_000);
        assert_eq!(day.tick_us, 1);
    }

    #[test]
    fn a_coarser_tick_keeps_the_exact_fraction() {
        for (permits, period, depth) in [
            (1, 86_400_000_000, PERMITS_MAX),
            (1, PERIOD_MAX_US, PERMITS_MAX),
            (999_983, 1_000_003_000_033, PERMITS_MAX),
            (PERMITS_MAX, 1, PERMITS_MAX),
            (PERMITS_MAX - 1, PERIOD_MAX_US, PERMITS_MAX),
        ] {
            let flow = Flow::smooth(rate(permits, period), depth);
            // per_tick / (per_permit · tick) = permits / period
            let left = u128::from(flow.per_tick) * u128::from(period);
            let right =
                u128::from(permits) * u128::from(flow.per_permit) * u128::from(flow.tick_us);
            assert_eq!(left, right, "{permits}/{period} depth {depth}: {flow:?}");
            assert!(flow.per_permit * depth <= DEPTH_MAX, "{flow:?}");
        }
    }

    #[test]
    fn a_day_for_four_billion_permits_ticks_in_milliseconds_not_in_days() {
        let flow = Flow::smooth(rate(1, 86_400_000_000), PERMITS_MAX);
        assert!(flow.tick_us <= 1_000_000, "{flow:?}");
    }
}
