//! Waiting for permits of a key: a line for each, and none that holds up another.

#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sluicegate::{
    AcquireError, Cost, Delay, KeyedRateLimiter, LeakyBucket, ManualClock, Rule, SlidingLog,
    TokenBucket, WAITERS_MAX,
};

use crate::polling::{Calls, poll, poll_with};

type Limiter = KeyedRateLimiter<str>;

fn manual(rule: impl Into<Rule>) -> (Arc<Limiter>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let rules = [("burst", rule.into())];
    let limiter = KeyedRateLimiter::with_rules(rules, 1_000, Arc::clone(&clock) as _).unwrap();
    (Arc::new(limiter), clock)
}

fn bucket(rate: &str, burst: u64) -> TokenBucket {
    TokenBucket::new(rate.parse().unwrap(), burst).unwrap()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn passed(millis: u64) -> Poll<Result<Duration, AcquireError>> {
    Poll::Ready(Ok(ms(millis)))
}

#[test]
fn a_caller_waits_for_its_own_key_alone() {
    let (limiter, clock) = manual(bucket("10/s", 1));
    assert_eq!(poll(pin!(limiter.acquire("alice"))), passed(0));
    let mut alice = pin!(limiter.acquire("alice"));
    assert!(poll(alice.as_mut()).is_pending());
    assert_eq!(poll(pin!(limiter.acquire("bob"))), passed(0));
    assert_eq!(limiter.waiting(), 1);
    clock.advance(ms(99));
    assert!(poll(alice.as_mut()).is_pending());
    clock.advance(ms(1));
    assert_eq!(poll(alice.as_mut()), passed(100));
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn callers_of_a_key_pass_in_the_order_in_which_they_came() {
    let (limiter, clock) = manual(bucket("10/s", 1));
    assert!(limiter.try_acquire("k"));
    let (mut first, mut second) = (pin!(limiter.acquire("k")), pin!(limiter.acquire("k")));
    let calls = Arc::new(Calls::default());
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll_with(second.as_mut(), &calls).is_pending());
    clock.advance(ms(500));
    assert!(poll_with(second.as_mut(), &calls).is_pending(), "it is not its turn");
    assert_eq!(poll(first.as_mut()), passed(500));
    assert_eq!(calls.count(), 1, "the one that passes calls the next");
    clock.advance(ms(100));
    assert_eq!(poll_with(second.as_mut(), &calls), passed(600));
}

#[test]
fn nobody_overtakes_the_line_of_a_key() {
    let (limiter, clock) = manual(bucket("10/s", 10));
    assert!(limiter.check("k", Cost::new(10).unwrap()).allowed());
    let mut waiting = pin!(limiter.acquire_n("k", 5));
    assert!(poll(waiting.as_mut()).is_pending());
    clock.advance(ms(400));
    // Four permits are there, but they belong to the caller that waits for five.
    assert!(!limiter.try_acquire("k"));
    assert_eq!(limiter.check("k", Cost::ONE).retry_after(), Some(ms(100).into()));
    assert_eq!(limiter.peek("k", Cost::ONE).retry_after(), Some(ms(100).into()));
    assert!(!limiter.reserve("k", Cost::ONE, ms(1_000)).allowed());
    assert!(limiter.try_acquire("other"));
    clock.advance(ms(100));
    assert_eq!(poll(waiting.as_mut()), passed(500));
    clock.advance(ms(100));
    assert!(limiter.try_acquire("k"), "nobody waits any more");
}

#[test]
fn a_dropped_future_leaves_no_trace_and_calls_the_next() {
    let (limiter, clock) = manual(bucket("10/s", 1));
    assert!(limiter.try_acquire("k"));
    let calls = Arc::new(Calls::default());
    let mut second = pin!(limiter.acquire("k"));
    {
        let mut first = pin!(limiter.acquire("k"));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll_with(second.as_mut(), &calls).is_pending());
        assert_eq!(limiter.waiting(), 2);
    }
    assert_eq!(limiter.waiting(), 1);
    assert_eq!(calls.count(), 1);
    clock.advance(ms(100));
    assert_eq!(poll_with(second.as_mut(), &calls), passed(100), "nothing was booked for the first");
}

#[test]
fn a_refund_and_a_reset_call_the_first() {
    for give_back in
        [|limiter: &Limiter| limiter.refund("k", Cost::ONE), |limiter: &Limiter| limiter.reset("k")]
    {
        let (limiter, _) = manual(bucket("1/h", 1));
        assert!(limiter.try_acquire("k"));
        let calls = Arc::new(Calls::default());
        let mut waiting = pin!(limiter.acquire("k"));
        assert!(poll_with(waiting.as_mut(), &calls).is_pending());
        give_back(&limiter);
        assert_eq!(calls.count(), 1);
        assert_eq!(poll_with(waiting.as_mut(), &calls), passed(0));
    }
}

#[test]
fn what_cannot_pass_in_time_or_ever_does_not_wait() {
    let (limiter, clock) = manual(bucket("10/s", 2));
    assert!(limiter.check("k", Cost::new(2).unwrap()).allowed());
    let error = AcquireError::TooSlow { retry_after: ms(100).into() };
    assert_eq!(poll(pin!(limiter.try_acquire_within("k", 1, ms(99)))), Poll::Ready(Err(error)));
    let mut in_time = pin!(limiter.try_acquire_within("k", 1, ms(100)));
    assert!(poll(in_time.as_mut()).is_pending());
    clock.advance(ms(100));
    assert_eq!(poll(in_time.as_mut()), passed(100));
    let error = AcquireError::CostAboveLimit { cost: 3, limit: 2 };
    assert_eq!(poll(pin!(limiter.acquire_n("k", 3))), Poll::Ready(Err(error)));
    assert!(matches!(
        poll(pin!(limiter.acquire_n("k", 0))),
        Poll::Ready(Err(AcquireError::Cost(_)))
    ));
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn any_rule_can_be_waited_for() {
    let leaky = LeakyBucket::new("10/s".parse().unwrap(), 5, Delay::Above(0)).unwrap();
    for (rule, wait_ms) in
        [(Rule::from(leaky), 100), (SlidingLog::new(1, ms(300)).unwrap().into(), 300)]
    {
        let (limiter, clock) = manual(rule);
        assert_eq!(poll(pin!(limiter.acquire("k"))), passed(0));
        let mut waiting = pin!(limiter.acquire("k"));
        assert!(poll(waiting.as_mut()).is_pending());
        clock.advance(ms(wait_ms));
        assert_eq!(poll(waiting.as_mut()), passed(wait_ms));
    }
}

#[test]
fn no_more_than_the_cap_wait_over_all_keys() {
    let (limiter, _) = manual(bucket("1/h", 1));
    let mut waiting: Vec<_> = (0..WAITERS_MAX).map(|_| Box::pin(limiter.acquire("k"))).collect();
    assert_eq!(poll(waiting[0].as_mut()), passed(0));
    drop(waiting.remove(0));
    for waiting in &mut waiting {
        assert!(poll(waiting.as_mut()).is_pending());
    }
    assert!(limiter.try_acquire("other"));
    let mut last = pin!(limiter.acquire("other"));
    assert!(poll(last.as_mut()).is_pending());
    assert_eq!(poll(pin!(limiter.acquire("k"))), Poll::Ready(Err(AcquireError::QueueFull)));
    drop(waiting.pop());
    assert!(poll(pin!(limiter.acquire("k"))).is_pending());
}

#[test]
fn a_thread_waits_as_a_task_does() {
    let limiter = Limiter::new(bucket("100/s", 1), 100).unwrap();
    assert_eq!(limiter.acquire_blocking("k").unwrap(), Duration::ZERO);
    let waited = limiter.acquire_blocking("k").unwrap();
    assert!(waited > Duration::ZERO && limiter.waiting() == 0, "{waited:?}");
    let error = limiter.try_acquire_within_blocking("k", 1, Duration::ZERO).unwrap_err();
    assert!(matches!(error, AcquireError::TooSlow { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn tasks_keep_the_rate_of_their_key() {
    let clock = Arc::new(ManualClock::default());
    let rules = [("burst", bucket("10/s", 1).into())];
    let limiter = Limiter::with_rules(rules, 100, Arc::clone(&clock) as _).unwrap();
    let limiter = Arc::new(limiter);
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move { limiter.acquire("k").await.unwrap() })
        })
        .collect();
    for _ in 0..4 {
        tokio::task::yield_now().await;
        clock.advance(ms(100));
    }
    let mut waits = Vec::new();
    for task in tasks {
        waits.push(task.await.unwrap().as_millis());
    }
    assert_eq!(waits, [0, 100, 200, 300]);
}
