//! `smooth_warmup` beside Guava: how it warms depends on how callers ask.
//!
//! The numbers are those of `RateLimiter.create(50, 10, SECONDS, 3.0)` of Guava 31.1 on a clock that was moved by hand:
//! `tryAcquire()` or `tryAcquire(timeout)` at fixed intervals for a minute. Guava cuts waits to whole µs and the kernel
//! does not, so a request may pass in the second before or after.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use sluicegate_kernel::{Carry, Cost, Micros, Moment, Rate, RuleSet, SmoothWarmup, States, Verb};

const MINUTE_US: u64 = 60_000_000;

/// Requests that pass in a minute, and in each second of it, if one comes every `every_us` and waits up to `max_wait_us`.
fn passed(every_us: u64, max_wait_us: u64) -> (u64, BTreeMap<u64, u64>) {
    let rate = Rate::per_second(50).unwrap();
    let rules =
        RuleSet::single("warm", SmoothWarmup::new(rate, Micros::from_secs(10), 3.0).unwrap());
    let (mut states, mut seconds) = (States::default(), BTreeMap::new());
    let verb = Verb::Reserve { cost: Cost::ONE, max_wait: Micros::new(max_wait_us) };
    for at_us in (0..MINUTE_US).step_by(usize::try_from(every_us).unwrap()) {
        let at = Moment::new(Micros::new(at_us));
        if rules.decide(&mut states, &verb, &at).unwrap().decision.allowed() {
            *seconds.entry(at_us / 1_000_000).or_default() += 1;
        }
    }
    (seconds.values().sum(), seconds)
}

#[test]
fn plain_checks_at_its_own_rate_keep_it_cold_as_in_guava() {
    // 50 a second: a third of them pass, in the last second of the minute as in the first.
    let (total, seconds) = passed(20_000, 0);
    assert_eq!(total, 1_000);
    assert_eq!((seconds[&0], seconds[&59]), (17, 16));
}

#[test]
fn plain_checks_that_come_faster_warm_it_as_in_guava() {
    for (every_us, guava, at_20_s) in
        [(19_000, 1_222, 17), (10_000, 2_568, 50), (5_000, 2_676, 50), (1_000, 2_738, 50)]
    {
        let (total, seconds) = passed(every_us, 0);
        assert_eq!(total, guava, "every {every_us} us");
        assert!(seconds[&20].abs_diff(at_20_s) <= 1, "every {every_us} us");
    }
}

#[test]
fn callers_that_wait_for_one_interval_warm_it_as_in_guava() {
    for (max_wait_us, guava) in [(20_000, 2_751), (60_000, 2_753), (1_000_000, 2_800)] {
        let (total, seconds) = passed(20_000, max_wait_us);
        assert_eq!(total, guava, "up to {max_wait_us} us");
        assert_eq!(seconds[&20], 50, "up to {max_wait_us} us");
    }
}

/// A rule with 10 s to warm up, which stores at most 500 permits at 50/s and 1,000 at 100/s.
fn warm(permits: u64, carry: Carry) -> RuleSet {
    let rate = Rate::per_second(permits).unwrap();
    let rule = SmoothWarmup::new(rate, Micros::from_secs(10), 3.0).unwrap();
    RuleSet::single("warm", rule).with_carry(carry)
}

#[test]
fn usage_that_is_known_comes_from_the_store_first_and_is_a_debt_beyond_it() {
    let (rules, at) = (warm(50, Carry::Usage), Moment::new(Micros::from_secs(100)));
    for used in [1, 100, 500, 600] {
        let mut states = States::default();
        rules.set_used(&mut states, 0, used, &at);
        assert_eq!(rules.in_use(&states, &at)[0], used);
    }
}

/// Guava's `setRate`: the part of the store that is full stays, and a debt keeps its time.
#[test]
fn another_rate_keeps_the_part_of_the_store_and_the_time_of_a_debt() {
    let at = Moment::new(Micros::from_secs(100));
    for carry in [Carry::Usage, Carry::Proportional] {
        let (old, new) = (warm(50, carry), warm(100, carry));
        for (used, after) in [(100, 200), (500, 1_000), (600, 1_200)] {
            let mut states = States::default();
            old.set_used(&mut states, 0, used, &at);
            let states = new.take_over(&old, &states, &at);
            assert_eq!(new.in_use(&states, &at)[0], after, "{used} of 500 by {carry:?}");
        }
    }
}
