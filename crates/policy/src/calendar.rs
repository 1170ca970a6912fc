//! Calendar windows: where the day, week, month or year of a time zone begins and ends.
//!
//! The kernel knows no time zones, so the caller that reads the clock adds the window around now
//! for each rule that has one. A set of rules is compiled once to [`Calendars`]; per request
//! [`Calendars::windows`] costs nothing where no rule has a calendar.
//!
//! **Worked example**: Europe/Berlin turns its clocks on at 2024-03-31 02:00. The `day` around that
//! instant is 23 hours long: from 2024-03-30T23:00Z to 2024-03-31T22:00Z.
//!
//! **Property**: windows tile time. `start <= now < end`, and the next window starts at `end`, also
//! where clocks turn at midnight (São Paulo), repeat the first hour (Havana) or skip a whole day
//! (Samoa, 2011-12-30).
//!
//! Zones are those of the IANA database that is compiled in, not those of the machine: every node
//! and every replay sees the same windows.

use alloc::boxed::Box;
use alloc::vec::Vec;

use jiff::civil::{Date, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};
use sluicegate_kernel::algorithm::CalendarUnit;
use sluicegate_kernel::limits::RULES_MAX;
use sluicegate_kernel::{Micros, RuleSet, Window};

use crate::finding;
use crate::quoted::quoted;
use crate::text::TextError;

/// The calendars of a set of rules, their time zones looked up.
#[derive(Clone, Debug, Default)]
pub struct Calendars(Option<Box<[Option<Calendar>]>>);

/// The calendar windows around one instant, in the order of the rules.
#[derive(Clone, Copy, Debug)]
pub struct Windows(Option<[Option<Window>; RULES_MAX]>);

#[derive(Clone, Debug)]
struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
}

impl Calendars {
    /// The calendars of `rules`.
    ///
    /// # Errors
    /// The place of the first rule whose time zone does not exist, and the problem.
    pub fn of(rules: &RuleSet) -> Result<Self, (usize, TextError)> {
        let mut calendars = Vec::new();
        for (place, named) in rules.rules().iter().enumerate() {
            calendars.push(match named.rule.calendar() {
                Some((unit, name)) => {
                    let zone = zone(name).map_err(|error| (place, error))?;
                    Some(Calendar { unit, zone })
                }
                None => None,
            });
        }
        let any = calendars.iter().any(Option::is_some);
        Ok(Self(any.then(|| calendars.into_boxed_slice())))
    }

    /// The windows around `now`, in µs since the Unix epoch. Like a
    /// [`Moment`](sluicegate_kernel::Moment), `now` ends at `SPAN_MAX_US` (the year 2255); a window
    /// that began before the epoch begins at the epoch here.
    #[inline]
    pub fn windows(&self, now: Micros) -> Windows {
        match &self.0 {
            None => Windows(None),
            Some(calendars) => Windows(Some(around(calendars, now.capped()))),
        }
    }
}

impl Windows {
    /// The windows, as [`Moment::with_windows`](sluicegate_kernel::Moment::with_windows) takes
    /// them; empty where no rule has a calendar.
    #[inline]
    pub fn as_slice(&self) -> &[Option<Window>] {
        self.0.as_ref().map_or(&[], |windows| windows.as_slice())
    }
}

#[cold]
fn around(calendars: &[Option<Calendar>], now: Micros) -> [Option<Window>; RULES_MAX] {
    let mut windows = [None; RULES_MAX];
    for (window, calendar) in windows.iter_mut().zip(calendars) {
        *window = calendar.as_ref().map(|calendar| calendar.window(now));
    }
    windows
}

impl Calendar {
    fn window(&self, now: Micros) -> Window {
        let now_us = i64::try_from(now.get()).expect("a capped instant is below 2^53");
        let instant = Timestamp::from_microsecond(now_us).expect("2^53 µs is in the year 2255");
        let today = self.zone.to_datetime(instant).date();
        let mut first = first_day(self.unit, today);
        let mut next = next_first_day(self.unit, first);
        // Where clocks turn back across midnight, the old date comes again after the new one has
        // begun. A window that has ended stays ended.
        if self.start_us(next) <= now_us {
            (first, next) = (next, next_first_day(self.unit, next));
        }
        let micros = |us: i64| Micros::new(u64::try_from(us).unwrap_or(0));
        Window { start: micros(self.start_us(first)), end: micros(self.start_us(next)) }
    }

    /// The first instant of `date` in µs: where midnight is skipped the first that exists, where it
    /// comes twice the earlier.
    fn start_us(&self, date: Date) -> i64 {
        let midnight = self.zone.to_timestamp(date.at(0, 0, 0, 0));
        midnight.expect("dates around 1970 to 2255 are instants").as_microsecond()
    }
}

fn first_day(unit: CalendarUnit, today: Date) -> Date {
    match unit {
        CalendarUnit::Day => today,
        CalendarUnit::Week => {
            let days = today.weekday().since(Weekday::Monday);
            today.saturating_sub(Span::new().days(i64::from(days)))
        }
        CalendarUnit::Month => today.first_of_month(),
        CalendarUnit::Year => today.first_of_year(),
    }
}

fn next_first_day(unit: CalendarUnit, first: Date) -> Date {
    let span = Span::new();
    first.saturating_add(match unit {
        CalendarUnit::Day => span.days(1),
        CalendarUnit::Week => span.weeks(1),
        CalendarUnit::Month => span.months(1),
        CalendarUnit::Year => span.years(1),
    })
}

/// The time zone called `name` in the IANA database that is compiled in.
pub(crate) fn zone(name: &str) -> Result<TimeZone, TextError> {
    let zone = TimeZoneDatabase::bundled().get(name).ok().filter(|zone| !zone.is_unknown());
    zone.ok_or_else(|| {
        let given = quoted(name);
        TextError::new(finding!(
            "unknown_zone",
            "unknown time zone {given}: expected an IANA name such as `Europe/Berlin`",
            given
        ))
    })
}

#[cfg(test)]
mod tests {
    use alloc::borrow::ToOwned;
    use alloc::vec;

    use proptest::prelude::*;
    use sluicegate_kernel::algorithm::WindowKind;
    use sluicegate_kernel::limits::SPAN_MAX_US;
    use sluicegate_kernel::{FixedWindow, NamedRule, Rate, Rule, TokenBucket};

    use super::*;

    fn calendars(unit: CalendarUnit, zone: &str) -> Calendars {
        let kind = WindowKind::Calendar(unit, zone.to_owned().into_boxed_str());
        let rule = Rule::from(FixedWindow::new(1, kind).unwrap());
        Calendars::of(&RuleSet::single("calendar", rule)).unwrap()
    }

    fn at(instant: &str) -> Micros {
        let us = instant.parse::<Timestamp>().unwrap().as_microsecond();
        Micros::new(u64::try_from(us).unwrap())
    }

    fn check(unit: CalendarUnit, zone: &str, now: &str, start: &str, end: &str) {
        let windows = calendars(unit, zone).windows(at(now));
        let expected = Window { start: at(start), end: at(end) };
        assert_eq!(windows.as_slice()[0], Some(expected), "{unit:?} of {zone} at {now}");
    }

    #[test]
    fn a_day_is_23_hours_in_spring_and_25_in_autumn() {
        let day = |now, start, end| check(CalendarUnit::Day, "Europe/Berlin", now, start, end);
        day("2024-03-31T01:00:00Z", "2024-03-30T23:00:00Z", "2024-03-31T22:00:00Z");
        day("2024-10-27T01:00:00Z", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z");
        day("2024-10-27T22:59:59.999999Z", "2024-10-26T22:00:00Z", "2024-10-27T23:00:00Z");
        day("2024-10-27T23:00:00Z", "2024-10-27T23:00:00Z", "2024-10-28T23:00:00Z");
    }

    #[test]
    fn a_day_without_midnight_begins_when_it_begins() {
        let day = |zone, now, start, end| check(CalendarUnit::Day, zone, now, start, end);
        let sao_paulo = "America/Sao_Paulo";
        day(sao_paulo, "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z");
        day(sao_paulo, "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z");
        day("Asia/Beirut", "2022-03-27T12:00:00Z", "2022-03-26T22:00:00Z", "2022-03-27T21:00:00Z");
    }

    #[test]
    fn a_day_whose_midnight_comes_twice_begins_once() {
        let havana = |now| {
            check(
                CalendarUnit::Day,
                "America/Havana",
                now,
                "2023-11-05T04:00:00Z",
                "2023-11-06T05:00:00Z",
            );
        };
        havana("2023-11-05T04:30:00Z");
        havana("2023-11-05T05:30:00Z");
        // 00:01 was followed by 23:01 of the day before, which had ended.
        let st_johns = |now| {
            check(
                CalendarUnit::Day,
                "America/St_Johns",
                now,
                "2010-11-07T02:30:00Z",
                "2010-11-08T03:30:00Z",
            );
        };
        st_johns("2010-11-07T02:30:30Z");
        st_johns("2010-11-07T03:00:00Z");
        st_johns("2010-11-07T03:30:00Z");
    }

    #[test]
    fn a_day_that_was_skipped_has_no_window() {
        let apia = |now, start, end| check(CalendarUnit::Day, "Pacific/Apia", now, start, end);
        apia("2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
        apia("2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z");
    }

    #[test]
    fn weeks_begin_on_monday() {
        let week = |now| {
            check(CalendarUnit::Week, "UTC", now, "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z");
        };
        week("2024-12-30T00:00:00Z");
        week("2025-01-05T23:59:59.999999Z");
    }

    #[test]
    fn months_know_leap_years_and_years_their_boundary() {
        let month = |now, start, end| check(CalendarUnit::Month, "UTC", now, start, end);
        month("2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z");
        month("2023-02-28T23:59:59Z", "2023-02-01T00:00:00Z", "2023-03-01T00:00:00Z");
        let year = |now, start, end| check(CalendarUnit::Year, "Asia/Tokyo", now, start, end);
        year("2023-12-31T14:59:59.999999Z", "2022-12-31T15:00:00Z", "2023-12-31T15:00:00Z");
        year("2023-12-31T15:00:00Z", "2023-12-31T15:00:00Z", "2024-12-31T15:00:00Z");
    }

    #[test]
    fn a_window_that_began_before_the_epoch_begins_at_the_epoch() {
        let (now, end) = ("1970-01-01T00:00:00Z", "1970-01-01T05:00:00Z");
        check(CalendarUnit::Day, "America/New_York", now, now, end);
        check(CalendarUnit::Week, "UTC", now, now, "1970-01-05T00:00:00Z");
    }

    #[test]
    fn only_rules_with_a_calendar_have_a_window() {
        let plain = TokenBucket::new(Rate::per_second(1).unwrap(), 1).unwrap();
        let kind = WindowKind::Calendar(CalendarUnit::Day, "UTC".into());
        let rules = vec![
            NamedRule { name: "burst".into(), rule: plain.clone().into() },
            NamedRule { name: "daily".into(), rule: FixedWindow::new(1, kind).unwrap().into() },
        ];
        let rules = RuleSet::new(rules).unwrap();
        let windows = Calendars::of(&rules).unwrap().windows(Micros::SECOND);
        assert!(windows.as_slice()[0].is_none() && windows.as_slice()[1].is_some());
        let none = Calendars::of(&RuleSet::single("burst", plain)).unwrap();
        assert!(none.windows(Micros::SECOND).as_slice().is_empty());
    }

    #[test]
    fn a_zone_that_does_not_exist_is_refused() {
        for name in ["", "Mars/Base", "Etc/Unknown", "EST5EDT4,M3", "../etc/passwd"] {
            assert!(zone(name).is_err(), "{name}");
        }
        assert!(zone("europe/berlin").is_ok());
    }

    const UNITS: [CalendarUnit; 4] =
        [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]
        #[test]
        fn windows_tile_time(
            us in prop_oneof![0..=SPAN_MAX_US, 0..=1_u64 << 51],
            zone in 0..ZONES.len(),
            unit in 0..UNITS.len(),
        ) {
            let calendars = calendars(UNITS[unit], ZONES[zone]);
            let window = |us| calendars.windows(Micros::new(us)).as_slice()[0].unwrap();
            let now = window(us);
            prop_assert!(now.start.get() <= us && us < now.end.get(), "{now:?}");
            prop_assert_eq!(window(now.start.get()), now);
            prop_assert_eq!(window(now.end.get() - 1), now);
            if now.end.get() <= SPAN_MAX_US {
                prop_assert_eq!(window(now.end.get()).start, now.end);
            }
        }
    }

    #[test]
    fn the_latest_instant_has_a_window() {
        for name in ZONES {
            let calendars = calendars(CalendarUnit::Year, name);
            for us in [SPAN_MAX_US, u64::MAX] {
                let window = calendars.windows(Micros::new(us)).as_slice()[0].unwrap();
                assert!(window.end > Micros::new(SPAN_MAX_US));
            }
        }
    }

    /// One of each kind of trouble.
    const ZONES: [&str; 14] = [
        "UTC",
        "Europe/Berlin",
        "America/Sao_Paulo",
        "Asia/Beirut",
        "America/Havana",
        "America/St_Johns",
        "Pacific/Apia",
        "Pacific/Kwajalein",
        "Pacific/Kiritimati",
        "Africa/Casablanca",
        "Asia/Gaza",
        "Asia/Tehran",
        "Australia/Lord_Howe",
        "Antarctica/Troll",
    ];
}
