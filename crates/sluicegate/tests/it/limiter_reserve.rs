//! Booking ahead: the wait, and the effect of cancelling.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use sluicegate::{
    AcquireError, Clock, Cost, Delay, LeakyBucket, ManualClock, Micros, Rate, RateLimiter, Rule,
    SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket,
};

type Limiter = RateLimiter<Arc<ManualClock>>;

fn manual(rule: impl Into<Rule>) -> (Limiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Micros::from_secs(1_000)));
    (RateLimiter::with_clock(rule, Arc::clone(&clock)).unwrap(), clock)
}

fn rate(permits: u64) -> Rate {
    Rate::per_second(permits).unwrap()
}

/// Every algorithm that books, in the lane and out of it, with its first permit taken.
fn booking() -> Vec<(Limiter, Arc<ManualClock>)> {
    let tenth = Rate::new(1, Micros::from_millis(100)).unwrap();
    let rules: [Rule; 5] = [
        TokenBucket::new(rate(10), 1).unwrap().into(),
        LeakyBucket::new(rate(10), 5, Delay::Above(0)).unwrap().into(),
        SmoothBursty::new(rate(10), Micros::SECOND).unwrap().into(),
        SmoothWarmup::new(rate(10), Micros::SECOND, 3.0).unwrap().into(),
        TokenBucket::new(tenth, 1).unwrap().refilled_by_interval().into(),
    ];
    let limiters = rules.into_iter().map(manual);
    limiters.inspect(|(limiter, _)| assert!(limiter.try_acquire())).collect()
}

#[test]
fn a_reservation_says_how_long_to_wait_and_the_next_comes_after_it() {
    let (limiter, clock) = manual(TokenBucket::new(rate(10), 1).unwrap());
    let waits: Vec<_> =
        (0..3).map(|_| limiter.reserve(1, Micros::SECOND).unwrap().wait().as_millis()).collect();
    assert_eq!(waits, [0, 100, 200]);
    let late = limiter.reserve(1, Duration::from_millis(299)).unwrap_err();
    assert_eq!(late, AcquireError::TooSlow { retry_after: Micros::from_millis(1) });
    clock.advance(Micros::from_millis(1));
    let booked = limiter.reserve(1, Duration::from_millis(299)).unwrap();
    assert_eq!(booked.ready_at(), clock.now().plus(Micros::from_millis(299)));
    assert!(!limiter.try_acquire());
}

#[test]
fn cancelling_leaves_the_limiter_as_if_nothing_had_been_booked() {
    for (limiter, clock) in booking() {
        let before = limiter.peek(Cost::ONE);
        let booked = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        assert!(booked.wait() > Duration::ZERO, "{limiter:?}");
        assert_ne!(limiter.peek(Cost::ONE), before);
        assert!(booked.cancel(), "{limiter:?}");
        assert_eq!(limiter.peek(Cost::ONE), before);
        let booked = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        let wait = booked.wait();
        clock.advance(Micros::from_millis(10));
        assert!(booked.cancel(), "its time has not come: {limiter:?}");
        let again = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        assert_eq!(again.wait() + Duration::from_millis(10), wait);
    }
}

#[test]
fn a_booking_that_others_have_built_upon_stands() {
    for (limiter, _) in booking() {
        let first = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        let second = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        let with_both = limiter.peek(Cost::ONE);
        assert!(!first.cancel(), "{limiter:?}");
        assert_eq!(limiter.peek(Cost::ONE), with_both, "nothing was given back");
        assert!(second.cancel(), "{limiter:?}");
    }
}

#[test]
fn bookings_can_be_cancelled_in_the_opposite_order() {
    for (limiter, _) in booking() {
        let before = limiter.peek(Cost::ONE);
        let first = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        let second = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        assert!(second.cancel() && first.cancel(), "{limiter:?}");
        assert_eq!(limiter.peek(Cost::ONE), before);
    }
}

#[test]
fn a_refund_or_a_new_rule_in_between_makes_it_too_late() {
    for (limiter, _) in booking() {
        let booked = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        limiter.refund(Cost::ONE);
        assert!(!booked.cancel(), "{limiter:?}");
        let booked = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        let rule = limiter.rule();
        limiter.set_rule(TokenBucket::new(rate(7), 3).unwrap()).unwrap();
        limiter.set_rule(rule).unwrap();
        assert!(!booked.cancel(), "{limiter:?}");
    }
}

#[test]
fn a_refusal_in_between_changes_nothing() {
    for (limiter, _) in booking() {
        let booked = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        assert!(!limiter.try_acquire());
        assert_eq!(limiter.at_most(Cost::ONE).granted(), 0);
        limiter.peek(Cost::ONE);
        assert!(booked.cancel(), "{limiter:?}");
    }
}

#[test]
fn what_has_begun_cannot_be_cancelled() {
    for (limiter, clock) in booking() {
        let booked = limiter.reserve(1, Micros::from_secs(10)).unwrap();
        clock.advance(booked.wait());
        assert!(!booked.cancel(), "{limiter:?}");
    }
    let (limiter, _) = manual(TokenBucket::new(rate(10), 1).unwrap());
    assert!(!limiter.reserve(1, Micros::ZERO).unwrap().cancel(), "it passed at once");
}

#[test]
fn windows_pass_now_or_not_at_all() {
    let (limiter, _) = manual(SlidingWindow::new(1, Micros::SECOND, 10).unwrap());
    assert_eq!(limiter.reserve(1, Micros::from_secs(10)).unwrap().wait(), Duration::ZERO);
    assert!(matches!(limiter.reserve(1, Micros::from_secs(10)), Err(AcquireError::TooSlow { .. })));
}
