//! Waiting for permits: the order of callers, and the effect of those that give up.

#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use sluicegate::{
    AcquireError, Clock, Cost, Decision, Delay, FixedWindow, LeakyBucket, ManualClock, Micros,
    Rate, RateLimiter, Rule, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket,
    WAITERS_MAX,
};
use sluicegate_kernel::algorithm::WindowKind;

use crate::polling::{Calls, poll, poll_with};

type Limiter = RateLimiter<Arc<ManualClock>>;

fn manual(rule: impl Into<Rule>) -> (Arc<Limiter>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let limiter = RateLimiter::with_clock(rule, Arc::clone(&clock)).unwrap();
    (Arc::new(limiter), clock)
}

/// `permits` a second, burst 1.
fn per_second(permits: u64) -> TokenBucket {
    TokenBucket::new(Rate::per_second(permits).unwrap(), 1).unwrap()
}

fn ms(ms: u64) -> Micros {
    Micros::from_millis(ms)
}

fn passed(millis: u64) -> Poll<Result<Duration, AcquireError>> {
    Poll::Ready(Ok(Duration::from_millis(millis)))
}

/// Waits for `condition`, without sleeping: threads and tasks start in their own time.
fn until(mut condition: impl FnMut() -> bool) {
    for _ in 0..100_000_000_u64 {
        if condition() {
            return;
        }
        std::thread::yield_now();
    }
    panic!("it never came about");
}

#[test]
fn who_finds_a_permit_does_not_wait() {
    let (limiter, _) = manual(per_second(1));
    assert_eq!(poll(pin!(limiter.acquire())), passed(0));
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn a_waiter_passes_at_the_very_microsecond_and_is_woken_for_it() {
    let (limiter, clock) = manual(per_second(10));
    assert!(limiter.try_acquire());
    let calls = Arc::new(Calls::default());
    let mut waiting = pin!(limiter.acquire());
    assert!(poll_with(waiting.as_mut(), &calls).is_pending());
    clock.advance(Micros::new(99_999));
    assert_eq!(calls.count(), 0);
    assert!(poll_with(waiting.as_mut(), &calls).is_pending());
    clock.advance(Micros::new(1));
    assert!(calls.count() > 0);
    assert_eq!(poll_with(waiting.as_mut(), &calls), passed(100));
}

#[test]
fn waiters_pass_in_the_order_in_which_they_came_whoever_is_polled_first() {
    let (limiter, clock) = manual(per_second(10));
    assert!(limiter.try_acquire());
    let (mut first, mut second) = (pin!(limiter.acquire()), pin!(limiter.acquire()));
    let calls = Arc::new(Calls::default());
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll_with(second.as_mut(), &calls).is_pending());
    clock.advance(ms(500));
    assert!(poll_with(second.as_mut(), &calls).is_pending(), "it is not its turn");
    assert_eq!(calls.count(), 0);
    assert_eq!(poll(first.as_mut()), passed(500));
    assert_eq!(calls.count(), 1, "whoever passes calls the next");
    assert!(poll_with(second.as_mut(), &calls).is_pending(), "the bucket holds one permit");
    clock.advance(ms(100));
    assert_eq!(poll_with(second.as_mut(), &calls), passed(600));
}

#[test]
fn nobody_overtakes_those_who_wait() {
    let (limiter, clock) = manual(TokenBucket::new(Rate::per_second(10).unwrap(), 10).unwrap());
    assert!(limiter.try_acquire_n(10).unwrap());
    let mut waiting = pin!(limiter.acquire_n(5));
    assert!(poll(waiting.as_mut()).is_pending());
    clock.advance(ms(400));
    // Four permits are there, but they belong to the caller that waits for five.
    assert!(!limiter.try_acquire());
    assert!(!limiter.try_acquire_n(1).unwrap());
    assert_eq!(limiter.check(Cost::ONE).retry_after(), Some(ms(100)));
    assert_eq!(limiter.peek(Cost::ONE).retry_after(), Some(ms(100)));
    assert_eq!(limiter.at_most(Cost::ONE).granted(), 0);
    let error = limiter.reserve(1, Micros::SECOND).unwrap_err();
    assert_eq!(error, AcquireError::TooSlow { retry_after: ms(100) });
    clock.advance(ms(100));
    assert_eq!(poll(waiting.as_mut()), passed(500));
    assert!(!limiter.try_acquire());
    clock.advance(ms(100));
    assert!(limiter.try_acquire(), "nobody waits any more");
}

#[test]
fn a_dropped_future_leaves_no_trace_and_calls_the_next() {
    let (limiter, clock) = manual(per_second(10));
    assert!(limiter.try_acquire());
    let calls = Arc::new(Calls::default());
    let mut second = pin!(limiter.acquire());
    {
        let mut first = pin!(limiter.acquire());
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll_with(second.as_mut(), &calls).is_pending());
        assert_eq!(limiter.waiting(), 2);
    }
    assert_eq!((limiter.waiting(), calls.count()), (1, 1));
    assert!(poll_with(second.as_mut(), &calls).is_pending());
    // 100 ms after the first permit, as if the one that gave up had never come.
    clock.advance(ms(100));
    assert_eq!(poll_with(second.as_mut(), &calls), passed(100));
}

#[test]
fn a_woken_future_that_is_dropped_hands_its_call_on() {
    let (limiter, clock) = manual(per_second(10));
    assert!(limiter.try_acquire());
    let (woken, next) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
    let mut second = pin!(limiter.acquire());
    {
        let mut first = pin!(limiter.acquire());
        assert!(poll_with(first.as_mut(), &woken).is_pending());
        assert!(poll_with(second.as_mut(), &next).is_pending());
        clock.advance(ms(100));
        assert_eq!(woken.count(), 1);
        assert_eq!(next.count(), 0);
    }
    assert_eq!(next.count(), 1);
    assert_eq!(poll_with(second.as_mut(), &next), passed(100));
}

#[test]
fn giving_up_in_the_middle_of_the_line_changes_nothing_for_the_others() {
    let (limiter, clock) = manual(per_second(10));
    assert!(limiter.try_acquire());
    let (mut first, mut third) = (pin!(limiter.acquire()), pin!(limiter.acquire()));
    {
        let mut second = pin!(limiter.acquire());
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        assert!(poll(third.as_mut()).is_pending());
    }
    clock.advance(ms(100));
    assert_eq!(poll(first.as_mut()), passed(100));
    clock.advance(ms(100));
    assert_eq!(poll(third.as_mut()), passed(200));
}

#[test]
fn a_new_rate_holds_for_those_who_wait() {
    let (limiter, clock) = manual(per_second(1));
    assert!(limiter.try_acquire());
    let calls = Arc::new(Calls::default());
    let mut waiting = pin!(limiter.acquire());
    assert!(poll_with(waiting.as_mut(), &calls).is_pending());
    clock.advance(ms(100));
    limiter.set_rate(Rate::per_second(10).unwrap()).unwrap();
    assert_eq!(calls.count(), 1, "it has to look again");
    assert!(poll_with(waiting.as_mut(), &calls).is_pending());
    // 0.9 permits were in use when the rate became 10/s: 90 ms more.
    clock.advance(Micros::new(89_999));
    assert!(poll_with(waiting.as_mut(), &calls).is_pending());
    clock.advance(Micros::new(1));
    assert_eq!(poll_with(waiting.as_mut(), &calls), passed(190));
}

#[test]
fn a_new_rule_of_another_algorithm_holds_for_those_who_wait() {
    let (limiter, clock) = manual(per_second(1));
    assert!(limiter.try_acquire());
    let mut waiting = pin!(limiter.acquire());
    assert!(poll(waiting.as_mut()).is_pending());
    limiter.set_rule(SlidingWindow::new(2, Micros::SECOND, 10).unwrap()).unwrap();
    assert_eq!(poll(waiting.as_mut()), passed(0), "two in a second, one is in use");
    assert!(!limiter.try_acquire());
    limiter.set_rule(per_second(1)).unwrap();
    assert!(!limiter.try_acquire(), "both are in use still");
    clock.advance(ms(2_000));
    assert!(limiter.try_acquire());
}

#[test]
fn a_refund_calls_the_first_in_line() {
    let (limiter, _) = manual(per_second(1));
    assert!(limiter.try_acquire());
    let calls = Arc::new(Calls::default());
    let mut waiting = pin!(limiter.acquire());
    assert!(poll_with(waiting.as_mut(), &calls).is_pending());
    assert_eq!(limiter.refund(Cost::ONE).granted(), 1);
    assert_eq!(calls.count(), 1);
    assert_eq!(poll_with(waiting.as_mut(), &calls), passed(0));
}

#[test]
fn a_cost_above_the_limit_fails_at_once_also_behind_others() {
    let (limiter, _) = manual(per_second(1));
    let above = AcquireError::CostAboveLimit { cost: 2, limit: 1 };
    assert_eq!(poll(pin!(limiter.acquire_n(2))), Poll::Ready(Err(above.clone())));
    assert_eq!(limiter.try_acquire_n(2), Err(above.clone()));
    assert_eq!(limiter.reserve(2, Micros::MAX).unwrap_err(), above);
    assert!(limiter.try_acquire());
    let mut waiting = pin!(limiter.acquire());
    assert!(poll(waiting.as_mut()).is_pending());
    assert_eq!(poll(pin!(limiter.acquire_n(2))), Poll::Ready(Err(above.clone())));
    assert_eq!(limiter.acquire_n_blocking(2), Err(above));
    assert_eq!(limiter.waiting(), 1);
}

#[test]
fn a_cost_that_a_new_rule_never_lets_pass_fails_and_calls_the_next() {
    let (limiter, _) = manual(TokenBucket::new(Rate::per_second(1).unwrap(), 5).unwrap());
    assert!(limiter.try_acquire_n(5).unwrap());
    let calls = Arc::new(Calls::default());
    let (mut first, mut second) = (pin!(limiter.acquire_n(5)), pin!(limiter.acquire()));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll_with(second.as_mut(), &calls).is_pending());
    limiter.set_rule(per_second(1)).unwrap();
    let above = AcquireError::CostAboveLimit { cost: 5, limit: 1 };
    assert_eq!(poll(first.as_mut()), Poll::Ready(Err(above)));
    assert_eq!(calls.count(), 1);
    assert!(poll_with(second.as_mut(), &calls).is_pending());
}

#[test]
fn zero_permits_are_refused_with_the_range() {
    let (limiter, _) = manual(per_second(1));
    let error = limiter.try_acquire_n(0).unwrap_err();
    assert_eq!(error.to_string(), "cost: `0` is outside 1..=2147483648");
    assert!(matches!(limiter.acquire_n_blocking(u32::MAX), Err(AcquireError::Cost(_))));
}

#[test]
fn the_first_in_line_gives_up_as_soon_as_it_knows() {
    let (limiter, clock) = manual(per_second(1));
    assert!(limiter.try_acquire());
    let late = limiter.try_acquire_within_blocking(1, ms(999));
    assert_eq!(late, Err(AcquireError::TooSlow { retry_after: Micros::SECOND }));
    assert_eq!(limiter.waiting(), 0);
    let mut just = pin!(limiter.try_acquire_within(1, Duration::from_secs(1)));
    assert!(poll(just.as_mut()).is_pending());
    clock.advance(Micros::SECOND);
    assert_eq!(poll(just.as_mut()), passed(1_000));
}

#[test]
fn who_stands_behind_others_is_woken_when_its_time_is_up() {
    let (limiter, clock) = manual(per_second(1));
    assert!(limiter.try_acquire());
    let calls = Arc::new(Calls::default());
    let mut first = pin!(limiter.acquire());
    let mut second = pin!(limiter.try_acquire_within(1, ms(300)));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll_with(second.as_mut(), &calls).is_pending());
    clock.advance(ms(300));
    assert_eq!(calls.count(), 1);
    let late = AcquireError::TooSlow { retry_after: ms(700) };
    assert_eq!(poll_with(second.as_mut(), &calls), Poll::Ready(Err(late)));
    assert_eq!(limiter.waiting(), 1);
}

#[test]
fn a_full_line_turns_the_next_away() {
    let (limiter, clock) = manual(per_second(1));
    assert!(limiter.try_acquire());
    let mut line: Vec<_> = (0..WAITERS_MAX).map(|_| Box::pin(limiter.acquire())).collect();
    for waiting in &mut line {
        assert!(poll(waiting.as_mut()).is_pending());
    }
    assert_eq!(poll(pin!(limiter.acquire())), Poll::Ready(Err(AcquireError::QueueFull)));
    assert_eq!(limiter.acquire_blocking(), Err(AcquireError::QueueFull));
    assert_eq!(limiter.waiting(), WAITERS_MAX);
    clock.advance(Micros::SECOND);
    assert_eq!(poll(line[0].as_mut()), passed(1_000));
    let mut late = pin!(limiter.acquire());
    assert!(poll(late.as_mut()).is_pending(), "there is room again");
    drop(line);
    assert_eq!(limiter.waiting(), 1);
}

#[test]
fn a_leaky_bucket_holds_its_callers_back_and_books_nothing_for_them() {
    let rate = Rate::per_second(10).unwrap();
    let (limiter, clock) = manual(LeakyBucket::new(rate, 5, Delay::Above(0)).unwrap());
    assert_eq!(poll(pin!(limiter.acquire())), passed(0));
    assert!(!limiter.try_acquire(), "it would have to be held back");
    {
        let mut gives_up = pin!(limiter.acquire());
        assert!(poll(gives_up.as_mut()).is_pending());
    }
    let (mut first, mut second) = (pin!(limiter.acquire()), pin!(limiter.acquire()));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    clock.advance(ms(100));
    assert_eq!(poll(first.as_mut()), passed(100));
    clock.advance(ms(100));
    assert_eq!(poll(second.as_mut()), passed(200));
    assert_eq!(limiter.check(Cost::ONE).wait(), ms(100), "a check says how long to hold it back");
}

#[test]
fn guavas_limiters_let_the_next_one_pay() {
    let rate = Rate::per_second(5).unwrap();
    let (limiter, clock) = manual(SmoothBursty::new(rate, Micros::SECOND).unwrap());
    assert_eq!(poll(pin!(limiter.acquire_n(5))), passed(0));
    let mut next = pin!(limiter.acquire());
    assert!(poll(next.as_mut()).is_pending());
    clock.advance(Micros::SECOND);
    assert_eq!(poll(next.as_mut()), passed(1_000));
}

#[test]
fn windows_are_waited_for_too() {
    let fixed = FixedWindow::first(1, Micros::SECOND).unwrap();
    let log = SlidingLog::new(1, Micros::SECOND).unwrap();
    for rule in [Rule::from(fixed), log.into()] {
        let (limiter, clock) = manual(rule);
        assert_eq!(poll(pin!(limiter.acquire())), passed(0));
        let mut next = pin!(limiter.acquire());
        assert!(poll(next.as_mut()).is_pending());
        clock.advance(ms(999));
        assert!(poll(next.as_mut()).is_pending());
        clock.advance(ms(1));
        assert_eq!(poll(next.as_mut()), passed(1_000));
    }
}

#[test]
fn threads_and_tasks_stand_in_one_line() {
    let (limiter, clock) = manual(per_second(10));
    assert!(limiter.try_acquire());
    let order = Arc::new(Mutex::new(Vec::new()));
    let thread = |name: &'static str| {
        let (limiter, order) = (Arc::clone(&limiter), Arc::clone(&order));
        std::thread::spawn(move || {
            let waited = limiter.acquire_blocking().unwrap();
            order.lock().unwrap().push((name, waited.as_millis()));
        })
    };
    let first = thread("thread");
    until(|| limiter.waiting() == 1);
    let calls = Arc::new(Calls::default());
    let mut task = pin!(limiter.acquire());
    assert!(poll_with(task.as_mut(), &calls).is_pending());
    let last = thread("another thread");
    until(|| limiter.waiting() == 3);
    clock.advance(ms(100));
    first.join().unwrap();
    until(|| calls.count() > 0);
    assert!(poll_with(task.as_mut(), &calls).is_pending());
    clock.advance(ms(100));
    assert_eq!(poll_with(task.as_mut(), &calls), passed(200));
    // The last one sets its alarm in its own time; a step at a time brings it there for sure.
    until(|| {
        clock.advance(ms(100));
        limiter.waiting() == 0
    });
    last.join().unwrap();
    let order = order.lock().unwrap();
    assert_eq!((order[0], order[1].0), (("thread", 100), "another thread"));
}

/// Many threads and tasks, some of which give up: all that stay pass, in the end none waits,
/// and never do more pass than the rule allows.
#[test]
fn no_wake_up_is_lost_and_no_permit_is_made() {
    const CALLERS: usize = 8;
    const ROUNDS: usize = 200;
    let (limiter, clock) = manual(per_second(1_000));
    let (passed, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (limiter, passed, done) =
                (Arc::clone(&limiter), Arc::clone(&passed), Arc::clone(&done));
            std::thread::spawn(move || {
                for round in 0..ROUNDS {
                    if caller % 2 == 0 {
                        limiter.acquire_blocking().unwrap();
                        passed.fetch_add(1, Ordering::SeqCst);
                    } else if (round + caller) % 3 == 0 {
                        let ready = poll(pin!(limiter.acquire())).is_ready();
                        passed.fetch_add(usize::from(ready), Ordering::SeqCst);
                    } else {
                        let within = limiter.try_acquire_within_blocking(1, ms(5));
                        passed.fetch_add(usize::from(within.is_ok()), Ordering::SeqCst);
                    }
                }
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    let mut steps = 0_usize;
    until(|| {
        clock.advance(Micros::new(100));
        steps += 1;
        done.load(Ordering::SeqCst) == CALLERS
    });
    for caller in callers {
        caller.join().unwrap();
    }
    let passed = passed.load(Ordering::SeqCst);
    assert_eq!(limiter.waiting(), 0);
    assert!(passed >= CALLERS / 2 * ROUNDS, "{passed}");
    assert!(passed <= 1 + steps / 10, "{passed} in {steps} steps of a tenth of a permit");
}

/// A task on tokio's own clock sleeps and passes.
#[tokio::test]
async fn a_task_waits_in_real_time() {
    let limiter = RateLimiter::new(per_second(1_000)).unwrap();
    assert!(limiter.try_acquire());
    let waited = limiter.acquire_n(1).await.unwrap();
    assert!(waited <= Duration::from_secs(60), "{waited:?}");
    limiter.try_acquire_within(1, Duration::from_secs(60)).await.unwrap();
    limiter.acquire_blocking().unwrap();
}

/// A clock that may go back: every decision is the kernel's, which forgets no usage.
#[derive(Debug, Default)]
struct SetClock(AtomicUsize);

impl Clock for SetClock {
    fn now(&self) -> Micros {
        Micros::new(self.0.load(Ordering::SeqCst) as u64)
    }
}

#[test]
fn time_that_goes_back_adds_nothing_and_freezes_nothing() {
    let clock = Arc::new(SetClock(AtomicUsize::new(3_600_000_000)));
    let limiter = RateLimiter::with_clock(per_second(1), Arc::clone(&clock)).unwrap();
    assert!(limiter.try_acquire());
    clock.0.store(0, Ordering::SeqCst);
    assert!(!limiter.try_acquire());
    clock.0.store(1_000_000, Ordering::SeqCst);
    assert!(limiter.try_acquire());
    assert!(!limiter.try_acquire());
}

#[test]
fn usage_stays_when_the_rate_changes() {
    let (limiter, clock) = manual(TokenBucket::new(Rate::per_second(10).unwrap(), 10).unwrap());
    assert!(limiter.try_acquire_n(8).unwrap());
    limiter.set_rate(Rate::per_second(2).unwrap()).unwrap();
    let Decision { remaining, limit, .. } = limiter.peek(Cost::ONE);
    assert_eq!((remaining, limit), (2, 10));
    clock.advance(Micros::SECOND);
    assert_eq!(limiter.peek(Cost::ONE).remaining, 4);
    limiter.set_rule(SlidingLog::new(5, Micros::SECOND).unwrap()).unwrap();
    let error = limiter.set_rate(Rate::per_second(2).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "rate: a `sliding_log` rule has no rate; use a limiter with another rule"
    );
}

#[test]
fn every_rule_with_a_rate_can_have_it_changed_alone() {
    let (one, two) = (Rate::per_second(1).unwrap(), Rate::per_second(2).unwrap());
    let rules = |rate| -> [Rule; 5] {
        let bucket = TokenBucket::new(rate, 5).unwrap().with_initial(3).unwrap();
        [
            bucket.clone().into(),
            bucket.refilled_by_interval().into(),
            LeakyBucket::new(rate, 5, Delay::Above(2)).unwrap().into(),
            SmoothBursty::new(rate, Micros::SECOND).unwrap().into(),
            SmoothWarmup::new(rate, Micros::from_secs(4), 3.0).unwrap().into(),
        ]
    };
    for (before, after) in rules(one).into_iter().zip(rules(two)) {
        let (limiter, _) = manual(before);
        limiter.set_rate(two).unwrap();
        assert_eq!(limiter.rule(), after);
    }
}

#[test]
fn rules_that_it_cannot_serve_are_refused_and_change_nothing() {
    let (limiter, _) = manual(per_second(1));
    let permits = sluicegate_kernel::Concurrency::new(1, Micros::SECOND, 0).unwrap();
    assert!(limiter.set_rule(permits.clone()).is_err());
    assert!(RateLimiter::new(permits).is_err());
    let calendar =
        WindowKind::Calendar(sluicegate_kernel::algorithm::CalendarUnit::Day, "UTC".into());
    assert!(RateLimiter::new(FixedWindow::new(1, calendar).unwrap()).is_err());
    assert_eq!(limiter.rule(), per_second(1).into());
    assert_eq!(
        RateLimiter::per_second(0).unwrap_err().to_string(),
        "rate permits: `0` is outside 1..=4294967296"
    );
}

#[test]
fn a_bucket_that_starts_below_full_fills_from_the_beginning() {
    let bucket = TokenBucket::new(Rate::per_second(1).unwrap(), 5).unwrap();
    let (limiter, clock) = manual(bucket.with_initial(0).unwrap());
    assert!(!limiter.try_acquire());
    clock.advance(ms(2_500));
    assert_eq!(limiter.peek(Cost::ONE).remaining, 2);
    assert!(limiter.try_acquire_n(2).unwrap());
    assert!(!limiter.try_acquire());
}
