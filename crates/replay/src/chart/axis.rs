//! Ticks of an axis: their places and labels.

use sluicegate::Micros;
use sluicegate_text::human::{Era, date, thousands};

use super::Limit;

pub(super) const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Most distances between ticks of time: labels with microseconds still do not touch.
const TIME_TICKS_MAX: u64 = 6;

/// Most distances between ticks of the rate: with more, the lines are hard to read.
const RATE_TICKS_MAX: u64 = 5;

/// Units of time in which rates are counted, the shortest first.
const RATE_UNITS: [(&str, u64); 4] = [("s", SECOND), ("min", MINUTE), ("h", HOUR), ("day", DAY)];

/// Spans that people use, µs, the shortest first.
pub(super) fn steps() -> impl Iterator<Item = u64> {
    let tens = |power: u32| [1, 2, 5].map(|digit| digit * 10_u64.pow(power));
    let short = (0..6).flat_map(tens);
    let seconds = [1, 2, 5, 10, 15, 30].map(|seconds| seconds * SECOND);
    let minutes = [1, 2, 5, 10, 15, 30].map(|minutes| minutes * MINUTE);
    let hours = [1, 2, 3, 6, 12].map(|hours| hours * HOUR);
    let days = [1, 2, 5, 10, 20, 50, 100, 365, 1_000, 3_650, 10_000].map(|days| days * DAY);
    short.chain(seconds).chain(minutes).chain(hours).chain(days)
}

/// Time from left to right.
pub(super) struct TimeAxis {
    era: Era,
    first_us: u64,
    end_us: u64,
    step_us: u64,
}

/// A tick: its place, and up to two lines below it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimeTick {
    pub(super) at_us: u64,
    pub(super) label: String,
    /// The date or the year, if it is another than at the tick before.
    pub(super) date: Option<String>,
}

impl TimeAxis {
    pub(super) fn new(era: Era, first_us: u64, end_us: u64) -> Self {
        let span_us = end_us - first_us;
        let step = steps().find(|step| span_us / step <= TIME_TICKS_MAX);
        let longest = 10_000 * DAY;
        let step_us = step.unwrap_or_else(|| longest * (span_us / longest / TIME_TICKS_MAX + 1));
        Self { era, first_us, end_us, step_us }
    }

    /// The text below the labels, if they need a unit.
    pub(super) fn name(&self) -> Option<String> {
        (self.era == Era::Zero).then(|| format!("time ({})", self.unit().1))
    }

    pub(super) fn ticks(&self) -> Vec<TimeTick> {
        let first = self.first_us.next_multiple_of(self.step_us);
        let places = (0..=TIME_TICKS_MAX).map(|tick| first + tick * self.step_us);
        let mut before = None;
        let ticks = places.take_while(|at| *at <= self.end_us).map(|at_us| {
            let at = Micros::new(at_us);
            let day = self.day(at);
            let is_first = before.is_none();
            let is_new = before.replace(day.clone()) != Some(day.clone());
            let shown = is_new.then_some(day).flatten();
            let shown = shown.map(|day| if is_first { self.first_day(at) } else { day });
            TimeTick { at_us, label: self.label(at), date: shown }
        });
        ticks.collect()
    }

    /// The part that the label leaves out: the day, or below labels of days the year.
    fn day(&self, at: Micros) -> Option<String> {
        let format = if self.step_us >= DAY { "%Y" } else { "%-d %b" };
        (self.era == Era::Unix).then(|| date(at, format))
    }

    fn first_day(&self, at: Micros) -> String {
        date(at, if self.step_us >= DAY { "%Y UTC" } else { "%-d %b %Y UTC" })
    }

    fn label(&self, at: Micros) -> String {
        let format = match (self.era, self.step_us) {
            (Era::Zero, _) => return thousands(at.get() / self.unit().0),
            (Era::Unix, DAY..) => "%-d %b",
            (Era::Unix, MINUTE..) => "%H:%M",
            (Era::Unix, SECOND..) => "%H:%M:%S",
            (Era::Unix, 1_000..) => "%H:%M:%S.%3f",
            (Era::Unix, _) => "%H:%M:%S.%6f",
        };
        date(at, format)
    }

    /// The unit of virtual time in which every tick is whole.
    fn unit(&self) -> (u64, &'static str) {
        const UNITS: [(u64, &str); 5] =
            [(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (1_000, "ms")];
        let whole = |(unit, _): &(u64, &str)| self.step_us.is_multiple_of(*unit);
        UNITS.into_iter().find(whole).unwrap_or((1, "µs"))
    }
}

/// Requests per unit of time from the bottom to the top, in thousandths.
pub(super) struct RateAxis {
    pub(super) unit: &'static str,
    unit_us: u64,
    pub(super) top_milli: u64,
    step_milli: u64,
}

impl RateAxis {
    /// Returns an axis for up to `most` requests in `width_us`, and for those `limits` that are not far above. The
    /// unit is the shortest in which `most` is 1 at least.
    pub(super) fn new(most: u64, width_us: u64, limits: &[Limit]) -> Self {
        let fits = |(_, unit_us): &&(&str, u64)| milli(most, width_us, *unit_us) >= 1_000;
        let (unit, unit_us) = *RATE_UNITS.iter().find(fits).unwrap_or(&RATE_UNITS[3]);
        let most = milli(most, width_us, unit_us).max(1);
        let mut axis = Self { unit, unit_us, top_milli: most, step_milli: 1 };
        // Half as much again is room enough for a limit: beyond it, bars become too small.
        let limits = limits.iter().map(|limit| axis.limit_milli(limit));
        let near = limits.filter(|limit| *limit <= most / 2 * 3).max();
        axis.top_milli = near.unwrap_or(most).max(most);
        let tens = (0..19).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)));
        let step = tens.into_iter().find(|step| axis.top_milli / step < RATE_TICKS_MAX);
        axis.step_milli = step.unwrap_or(axis.top_milli);
        axis.top_milli += axis.top_milli / 20;
        axis
    }

    /// Returns the place of `count` requests in `width_us`.
    pub(super) fn milli(&self, count: u64, width_us: u64) -> u64 {
        milli(count, width_us, self.unit_us)
    }

    /// Returns the place of `limit`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    pub(super) fn limit_milli(&self, limit: &Limit) -> u64 {
        (limit.per_second * self.unit_us as f64 / 1_000.0).round() as u64
    }

    /// Returns whether the axis reaches up to `limit`.
    pub(super) fn shows(&self, limit: &Limit) -> bool {
        self.limit_milli(limit) <= self.top_milli
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = u64> {
        (0..=self.top_milli / self.step_milli).map(|tick| tick * self.step_milli)
    }
}

/// Returns thousandths as people write them: `1,200`, `2.5`.
pub(super) fn decimal(milli: u64) -> String {
    let (whole, rest) = (thousands(milli / 1_000), milli % 1_000);
    let text = format!("{whole}.{rest:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns thousandths in the few letters that fit beside a tick: `200k`, `1.5M`.
pub(super) fn short(milli: u64) -> String {
    match milli {
        ..100_000_000 => decimal(milli),
        100_000_000..1_000_000_000 => decimal(milli / 1_000) + "k",
        _ => decimal(milli / 1_000_000) + "M",
    }
}

fn milli(count: u64, width_us: u64, unit_us: u64) -> u64 {
    let milli = u128::from(count) * u128::from(unit_us) * 1_000 / u128::from(width_us);
    u64::try_from(milli).unwrap_or(u64::MAX)
}
