//! Limits on concurrency: the order of entry, and the effect of dropping a permit or a future.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use sluicegate::{AcquireError, ConcurrencyLimiter, WAITERS_MAX};

use crate::polling::{Calls, poll, poll_with};

#[test]
fn permits_come_back_as_they_are_dropped() {
    let limiter = ConcurrencyLimiter::new(2).unwrap();
    let first = limiter.try_acquire().unwrap();
    let second = limiter.acquire_blocking().unwrap();
    assert!(limiter.try_acquire().is_none());
    assert_eq!(limiter.held(), 2);
    drop(first);
    assert!(limiter.try_acquire().is_some());
    drop(second);
    assert_eq!(limiter.held(), 0);
}

#[test]
fn callers_enter_in_the_order_in_which_they_came() {
    let limiter = ConcurrencyLimiter::new(1).unwrap();
    let permit = limiter.try_acquire().unwrap();
    let calls = Arc::new(Calls::default());
    let (mut first, mut second) = (pin!(limiter.acquire()), pin!(limiter.acquire()));
    assert!(poll_with(first.as_mut(), &calls).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    drop(permit);
    assert_eq!(calls.count(), 1);
    assert!(limiter.try_acquire().is_none(), "the permit is for whoever waits");
    assert!(poll(second.as_mut()).is_pending(), "it is not its turn");
    let Poll::Ready(Ok(permit)) = poll_with(first.as_mut(), &calls) else { panic!("its turn") };
    assert!(poll(second.as_mut()).is_pending());
    drop(permit);
    assert!(poll(second.as_mut()).is_ready());
}

#[test]
fn a_dropped_future_gives_its_place_back_and_calls_the_next() {
    let limiter = ConcurrencyLimiter::new(1).unwrap();
    let permit = limiter.try_acquire().unwrap();
    let calls = Arc::new(Calls::default());
    let mut second = pin!(limiter.acquire());
    {
        let mut first = pin!(limiter.acquire());
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll_with(second.as_mut(), &calls).is_pending());
        // The first is called, and dropped before it is polled.
        drop(permit);
        assert_eq!(calls.count(), 0);
    }
    assert_eq!(calls.count(), 1);
    assert!(poll(second.as_mut()).is_ready());
}

#[test]
fn two_permits_that_come_back_at_once_let_two_in() {
    let limiter = ConcurrencyLimiter::new(2).unwrap();
    let permits = (limiter.try_acquire(), limiter.try_acquire());
    let calls = Arc::new(Calls::default());
    let (mut first, mut second) = (pin!(limiter.acquire()), pin!(limiter.acquire()));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll_with(second.as_mut(), &calls).is_pending());
    drop(permits);
    let first = poll(first.as_mut());
    assert!(first.is_ready());
    assert_eq!(calls.count(), 1, "whoever enters calls the next");
    assert!(poll(second.as_mut()).is_ready());
}

#[test]
fn a_higher_limit_lets_waiters_in_and_a_lower_one_takes_no_permit_away() {
    let limiter = ConcurrencyLimiter::new(1).unwrap();
    let permit = limiter.try_acquire().unwrap();
    let mut waiting = pin!(limiter.acquire());
    assert!(poll(waiting.as_mut()).is_pending());
    limiter.set_limit(2).unwrap();
    let Poll::Ready(Ok(second)) = poll(waiting.as_mut()) else { panic!("there is room") };
    limiter.set_limit(1).unwrap();
    assert_eq!((limiter.held(), limiter.limit()), (2, 1));
    drop(permit);
    assert!(limiter.try_acquire().is_none());
    drop(second);
    assert!(limiter.try_acquire().is_some());
    assert_eq!(
        limiter.set_limit(0).unwrap_err().to_string(),
        "limit: `0` is outside 1..=4294967296"
    );
}

#[test]
fn an_owned_permit_can_leave_the_function() {
    let limiter = Arc::new(ConcurrencyLimiter::new(1).unwrap());
    let permit = {
        let Poll::Ready(Ok(permit)) = poll(pin!(Arc::clone(&limiter).acquire_owned())) else {
            panic!("nobody else is here")
        };
        permit
    };
    assert!(limiter.try_acquire_owned().is_none());
    drop(permit);
    assert!(limiter.try_acquire_owned().is_some());
}

#[test]
fn a_full_line_turns_the_next_away() {
    let limiter = ConcurrencyLimiter::new(1).unwrap();
    let _permit = limiter.try_acquire().unwrap();
    let mut line: Vec<_> = (0..WAITERS_MAX).map(|_| Box::pin(limiter.acquire())).collect();
    for waiting in &mut line {
        assert!(poll(waiting.as_mut()).is_pending());
    }
    assert_eq!(limiter.acquire_blocking().unwrap_err(), AcquireError::QueueFull);
    drop(line);
    assert_eq!(limiter.waiting(), 0);
}

#[test]
fn never_more_than_the_limit_are_inside() {
    let limiter = Arc::new(ConcurrencyLimiter::new(3).unwrap());
    let (inside, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (limiter, inside, most) =
                (Arc::clone(&limiter), Arc::clone(&inside), Arc::clone(&most));
            std::thread::spawn(move || {
                for _ in 0..500 {
                    let _permit = limiter.acquire_blocking().unwrap();
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!((limiter.held(), limiter.waiting()), (0, 0));
}
