//! The part that is left ranks keys: with all of it nothing is lost, with none the next request is refused.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use sluicegate_kernel::algorithm::{CalendarUnit, Delay, WindowKind};
use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, LeakyBucket, Left, Micros, Moment, NamedRule, PermitId, Rate,
    Rule, RuleSet, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, States,
    TokenBucket, Verb, Window,
};

const LIMIT: u64 = 5;
const SPAN: Micros = Micros::SECOND;
const TODAY: [Option<Window>; 1] =
    [Some(Window { start: Micros::ZERO, end: Micros::from_secs(86_400) })];

/// Every algorithm, with a limit of five a second or what comes near it.
fn rules() -> Vec<Rule> {
    let rate = Rate::per_second(LIMIT).unwrap();
    let year = WindowKind::Calendar(CalendarUnit::Year, "UTC".into());
    vec![
        TokenBucket::new(rate, LIMIT).unwrap().into(),
        TokenBucket::new(rate, LIMIT).unwrap().with_initial(1).unwrap().into(),
        TokenBucket::new(rate, LIMIT).unwrap().refilled_by_interval().into(),
        LeakyBucket::new(rate, LIMIT - 1, Delay::None).unwrap().into(),
        FixedWindow::epoch(LIMIT, SPAN).unwrap().into(),
        FixedWindow::first(LIMIT, SPAN).unwrap().into(),
        FixedWindow::new(LIMIT, year).unwrap().into(),
        SlidingWindow::new(LIMIT, SPAN, 5).unwrap().into(),
        SlidingCounter::new(LIMIT, SPAN).unwrap().into(),
        SlidingLog::new(LIMIT, SPAN).unwrap().into(),
        SmoothBursty::new(rate, SPAN).unwrap().into(),
        SmoothWarmup::new(rate, SPAN, 3.0).unwrap().into(),
        Concurrency::new(LIMIT, SPAN, 0).unwrap().into(),
    ]
}

/// Takes one more permit at `at_us`, and returns whether it was there.
fn take(rules: &RuleSet, states: &mut States, at_us: u64, permit: u128) -> bool {
    let (cost, permit) = (Cost::ONE, PermitId(permit));
    let verb = match rules.rules()[0].rule.holds_permits() {
        true => Verb::Acquire { cost, permit },
        false => Verb::Check { cost },
    };
    let at = Moment::with_windows(Micros::new(at_us), &TODAY);
    rules.decide(states, &verb, &at).unwrap().decision.allowed()
}

#[test]
fn after_a_reset_nothing_is_left_to_remember() {
    for rule in rules() {
        let (set, mut states) = (RuleSet::single("rule", rule), States::default());
        assert!(take(&set, &mut states, 1, 1) && !states.is_empty());
        let at = Moment::with_windows(Micros::new(1), &TODAY);
        set.decide(&mut states, &Verb::Reset, &at).unwrap();
        assert!(states.is_empty());
        let from = set.forgettable_at(&states);
        assert_eq!(from, Some(Micros::ZERO), "also if a full budget is no new one: {set:?}");
    }
}

/// Permits that are there to take at once.
fn there(rules: &RuleSet, states: &States, at_us: u64) -> usize {
    let mut states = states.clone();
    (0..=LIMIT).take_while(|n| take(rules, &mut states, at_us, 1_000 + u128::from(*n))).count()
}

#[test]
fn what_is_left_falls_with_every_permit_down_to_none() {
    for rule in rules().into_iter().filter(|rule| !rule.algorithm().starts_with("smooth")) {
        let rules = RuleSet::single("r", rule);
        let mut states = States::default();
        let mut last = rules.left(&states, SPAN);
        assert_eq!(last, Left::ALL, "{rules:?}");
        for permit in 0.. {
            if !take(&rules, &mut states, SPAN.get(), permit) {
                break;
            }
            let left = rules.left(&states, SPAN);
            assert!(left < last, "{left:?} after {last:?}: {rules:?}");
            last = left;
        }
        assert_eq!(last, Left::NONE, "{rules:?}");
    }
}

#[test]
fn of_several_rules_the_one_with_the_least_left_counts() {
    let all = rules();
    let named = |name: &str, rule: &Rule| NamedRule { name: name.into(), rule: rule.clone() };
    let wide = FixedWindow::epoch(1_000, SPAN).unwrap().into();
    let both = RuleSet::new(vec![named("wide", &wide), named("log", &all[9])]).unwrap();
    let mut states = States::default();
    for permit in 0..4 {
        assert!(take(&both, &mut states, 0, permit));
    }
    assert_eq!(both.left(&states, Micros::ZERO), Left::of(1, LIMIT));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_key_with_all_left_is_no_better_off_when_it_is_forgotten(
        steps in proptest::collection::vec((0_u64..1_500_000, 1_usize..8), 1..20),
        later in 0_u64..3_000_000,
    ) {
        for rule in rules() {
            let rules = RuleSet::single("r", rule);
            let (mut states, mut at) = (States::default(), SPAN.get());
            for (after, permits) in &steps {
                at += after;
                for permit in 0..*permits {
                    let permit = u128::from(at) * 10 + permit as u128;
                    take(&rules, &mut states, at, permit);
                }
            }
            at += later;
            let (kept, forgotten) = (there(&rules, &states, at), there(&rules, &States::default(), at));
            match rules.left(&states, Micros::new(at)) {
                Left::ALL => prop_assert!(kept >= forgotten, "{kept}, {forgotten}: {rules:?}"),
                Left::NONE => prop_assert_eq!(kept, 0, "{:?}", rules),
                _ => prop_assert!(kept > 0, "{rules:?}"),
            }
        }
    }
}
