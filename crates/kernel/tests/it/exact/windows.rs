//! Windows, counters and logs, answer by answer.

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;
use sluicegate_kernel::algorithm::{CalendarUnit, WindowKind};
use sluicegate_kernel::limits::{LOG_ENTRIES_MAX, PERMITS_MAX, UNITS_MAX};
use sluicegate_kernel::{
    FixedWindow, Micros, Moment, RuleSet, SlidingCounter, SlidingLog, SlidingWindow, States, Window,
};

use crate::exact::buckets::agree;
use crate::exact::oracle::windows::{self as oracle, Layout};
use crate::exact::oracle::{Oracle, answer};
use crate::exact::rules::{fixed_windows, permits, sliding_windows, spans};
use crate::exact::walk::{Clock, Shape, holds, prove, same, steps, walks};

fn shape(name: &str, limit: u64, scale_us: u64) -> Shape {
    Shape { limit, scale_us, goes_back: true, gives_back: true, steps: steps(name) }
}

#[test]
fn a_fixed_window_answers_as_a_count_per_window_does() {
    let name = "fixed_window";
    let walks = fixed_windows().prop_flat_map(move |(limit, kind)| {
        let (WindowKind::Epoch(span) | WindowKind::First(span)) = &kind else { unreachable!() };
        let shape = shape(name, limit, span.get());
        (Just((limit, kind)), walks(shape))
    });
    prove(name, walks, |((limit, kind), walk)| {
        let layout = match &kind {
            WindowKind::Epoch(span) => Layout::Epoch(span.get()),
            WindowKind::First(span) => Layout::First(span.get()),
            WindowKind::Calendar(..) => unreachable!(),
        };
        let rule = FixedWindow::new(limit, kind).unwrap();
        agree(&rule.into(), oracle::FixedWindow { limit, layout, counted: None }, &walk)
    });
}

/// Months of a made-up calendar: 28, 31, 30, 31 days and again.
fn month(now: u64) -> Window {
    const DAY: u64 = 86_400_000_000;
    const DAYS: [u64; 4] = [28, 31, 30, 31];
    let turn = DAY * DAYS.iter().sum::<u64>();
    let mut start = now - now % turn;
    for days in DAYS {
        if now < start + days * DAY {
            return Window { start: Micros::new(start), end: Micros::new(start + days * DAY) };
        }
        start += days * DAY;
    }
    unreachable!("a turn is the sum of its months")
}

#[test]
fn a_calendar_window_is_the_one_that_is_passed_in() {
    let name = "fixed_window by calendar";
    let walks = permits(PERMITS_MAX)
        .prop_flat_map(move |limit| (Just(limit), walks(shape(name, limit, 40 * 86_400_000_000))));
    prove(name, walks, |(limit, walk)| {
        let kind = WindowKind::Calendar(CalendarUnit::Month, "UTC".into());
        let rules = RuleSet::single("rule", FixedWindow::new(limit, kind).unwrap());
        let around = Rc::new(Cell::new(month(walk.start)));
        let layout = Layout::Calendar(Rc::clone(&around));
        let mut oracle = oracle::FixedWindow { limit, layout, counted: None };
        let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
        for asked in &walk.steps {
            let now = clock.go(asked.time);
            around.set(month(now));
            let windows = [Some(month(now))];
            let moment = Moment::with_windows(Micros::new(now), &windows);
            let decision = rules.decide(&mut states, &asked.verb, &moment).unwrap().decision;
            let expected = answer(&mut oracle, &asked.verb, now);
            same(&decision, &expected, || format!("at {now}: {:?}", asked.verb))?;
            clock.hear(&decision);
        }
        Ok(())
    });
}

#[test]
fn a_sliding_window_counts_every_bucket_that_overlaps_it() {
    let name = "sliding_window";
    let walks = sliding_windows().prop_flat_map(move |(limit, window, buckets)| {
        let shape = Shape { goes_back: false, ..shape(name, limit, window) };
        (Just((limit, window, buckets)), walks(shape))
    });
    prove(name, walks, |((limit, window, buckets), walk)| {
        let rule = SlidingWindow::new(limit, Micros::new(window), buckets).unwrap();
        let bucket = window.div_ceil(buckets);
        let oracle = oracle::SlidingWindow { limit, window, bucket, grants: Vec::new() };
        agree(&rule.into(), oracle, &walk)
    });
}

#[test]
fn a_sliding_log_answers_as_a_list_of_grants_does() {
    let name = "sliding_log";
    let rules = (permits(LOG_ENTRIES_MAX), spans());
    let walks = rules.prop_flat_map(move |(limit, window)| {
        (Just((limit, window)), walks(shape(name, limit, window)))
    });
    prove(name, walks, |((limit, window), walk)| {
        let rule = SlidingLog::new(limit, Micros::new(window)).unwrap();
        let oracle = oracle::SlidingLog { limit, window, grants: Vec::new() };
        agree(&rule.into(), oracle, &walk)
    });
}

/// Returns whether the weight of the previous window is counted in steps of one µs.
fn steps_by_the_microsecond(limit: u64, window: u64) -> bool {
    u128::from(limit) * u128::from(window) <= u128::from(UNITS_MAX / 4)
}

#[test]
fn a_sliding_counter_answers_as_its_formula_does() {
    let name = "sliding_counter is exact";
    let rules = (permits(PERMITS_MAX - 1), spans());
    let exact =
        rules.prop_filter("steps of a µs", |rule| steps_by_the_microsecond(rule.0, rule.1));
    let walks = exact.prop_flat_map(move |(limit, window)| {
        (Just((limit, window)), walks(shape(name, limit, window)))
    });
    prove(name, walks, |((limit, window), walk)| {
        let rule = SlidingCounter::new(limit, Micros::new(window)).unwrap();
        agree(&rule.into(), oracle::SlidingCounter { limit, window, counted: None }, &walk)
    });
}

#[test]
fn a_coarse_step_never_lets_a_sliding_counter_pass_more_than_its_formula() {
    let name = "sliding_counter with a coarse step";
    let rules = (permits(PERMITS_MAX - 1), spans());
    let coarse =
        rules.prop_filter("longer steps", |rule| !steps_by_the_microsecond(rule.0, rule.1));
    let walks = coarse.prop_flat_map(move |(limit, window)| {
        (Just((limit, window)), walks(Shape { gives_back: false, ..shape(name, limit, window) }))
    });
    prove(name, walks, |((limit, window), walk)| {
        let rule = SlidingCounter::new(limit, Micros::new(window)).unwrap();
        let rules = RuleSet::single("rule", rule);
        let mut oracle = oracle::SlidingCounter { limit, window, counted: None };
        let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
        for asked in &walk.steps {
            let now = clock.go(asked.time);
            let moment = Moment::new(Micros::new(now));
            let decision = rules.decide(&mut states, &asked.verb, &moment).unwrap().decision;
            oracle.went_back(now);
            if matches!(asked.verb, sluicegate_kernel::Verb::Peek { .. }) {
                continue;
            }
            if decision.allowed() {
                let outcome = oracle.ask(decision.granted(), None, now);
                same(&decision.outcome, &outcome, || format!("at {now}: {:?}", asked.verb))?;
                oracle.take(decision.granted(), now);
            }
            holds(decision.remaining <= oracle.remaining(now), || {
                format!("at {now}: {decision:?}")
            })?;
            clock.hear(&decision);
        }
        Ok(())
    });
}

#[test]
fn the_limit_of_a_sliding_counter_fits_its_32_bits() {
    let most = u64::from(u32::MAX);
    assert!(SlidingCounter::new(most, Micros::SECOND).is_ok());
    let refused = SlidingCounter::new(most + 1, Micros::SECOND).unwrap_err();
    assert_eq!(refused.to_string(), "limit: `4294967296` is outside 1..=4294967295");
}
