//! One limiter, called as fast as one or two threads can.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::Quota;
use governor::clock::{
    Clock as PeerClock, MonotonicClock as PeerMonotonicClock, QuantaClock as PeerQuantaClock,
};
use governor::middleware::{NoOpMiddleware, StateInformationMiddleware};
use governor::state::InMemoryState;
use sluicegate::{
    CachedClock, Clock, Cost, Micros, MonotonicClock, QuantaClock, Rate, RateLimiter, SlidingLog,
    TokenBucket,
};

use crate::measure::{Case, Work};

/// A rate that no machine reaches: every check is allowed, and written.
const NEVER_REACHED: u32 = u32::MAX;

/// Every case of this table.
///
/// # Errors
/// If a limiter cannot be made.
pub fn cases() -> anyhow::Result<Vec<Case>> {
    let cached = Arc::new(CachedClock::new(Duration::from_millis(1))?);
    let mut cases = Vec::new();
    for threads in [1, 2] {
        let target = if threads == 1 { 1.0 } else { 0.8 };
        cases.push(Case {
            work: "`try_acquire`, allowed, precise clock",
            threads,
            ours: allowed(QuantaClock::new())?,
            peer: Some(("governor direct", peer_allowed(PeerQuantaClock::default()))),
            target: Some(target),
        });
        cases.push(Case {
            work: "`try_acquire`, allowed, cached clock",
            threads,
            ours: allowed(Arc::clone(&cached))?,
            peer: Some(("governor direct", peer_allowed(PeerQuantaClock::default()))),
            target: (threads == 1).then_some(0.5),
        });
        cases.push(Case {
            work: "`try_acquire`, allowed, standard clock",
            threads,
            ours: allowed(MonotonicClock)?,
            peer: Some(("governor, standard clock", peer_allowed(PeerMonotonicClock))),
            target: None,
        });
        cases.push(Case {
            work: "`try_acquire`, refused, precise clock",
            threads,
            ours: refused(QuantaClock::new())?,
            peer: Some(("governor direct", peer_refused())),
            target: None,
        });
        cases.push(Case {
            work: "`check`, allowed, what is left, precise clock",
            threads,
            ours: checked(QuantaClock::new())?,
            peer: Some(("governor, state information", peer_informed())),
            target: None,
        });
        cases.push(Case {
            work: "`try_acquire`, allowed, precise clock",
            threads,
            ours: allowed(QuantaClock::new())?,
            peer: Some(("leaky-bucket", peer_leaky_bucket()?)),
            target: None,
        });
        cases.push(Case {
            work: "`try_acquire`, refused, `sliding_log` (under the lock)",
            threads,
            ours: sliding_log(QuantaClock::new())?,
            peer: None,
            target: None,
        });
    }
    Ok(cases)
}

fn bucket(permits: u32, period: Micros) -> anyhow::Result<TokenBucket> {
    Ok(TokenBucket::new(Rate::new(permits.into(), period)?, permits.into())?)
}

fn try_acquire<C: Clock + 'static>(limiter: RateLimiter<C>) -> Work {
    Box::new(move |ops| {
        for _ in 0..ops {
            black_box(limiter.try_acquire());
        }
    })
}

fn allowed<C: Clock + 'static>(clock: C) -> anyhow::Result<Work> {
    let rule = bucket(NEVER_REACHED, Micros::SECOND)?;
    Ok(try_acquire(RateLimiter::with_clock(rule, clock)?))
}

fn refused<C: Clock + 'static>(clock: C) -> anyhow::Result<Work> {
    let limiter = RateLimiter::with_clock(bucket(1, Micros::from_secs(86_400))?, clock)?;
    limiter.try_acquire();
    Ok(try_acquire(limiter))
}

fn checked<C: Clock + 'static>(clock: C) -> anyhow::Result<Work> {
    let limiter = RateLimiter::with_clock(bucket(NEVER_REACHED, Micros::SECOND)?, clock)?;
    Ok(Box::new(move |ops| {
        for _ in 0..ops {
            black_box(limiter.check(Cost::ONE));
        }
    }))
}

fn sliding_log<C: Clock + 'static>(clock: C) -> anyhow::Result<Work> {
    let limiter = RateLimiter::with_clock(SlidingLog::new(1, Micros::from_secs(86_400))?, clock)?;
    limiter.try_acquire();
    Ok(try_acquire(limiter))
}

fn peer_allowed<C: PeerClock + Sync + Send + 'static>(clock: C) -> Work
where
    C::Instant: Sync + Send,
{
    let permits = NonZeroU32::new(NEVER_REACHED).expect("it is not zero");
    let limiter = governor::RateLimiter::<_, _, C, NoOpMiddleware<C::Instant>>::new(
        Quota::per_second(permits),
        InMemoryState::default(),
        clock,
    );
    Box::new(move |ops| {
        for _ in 0..ops {
            black_box(limiter.check().is_ok());
        }
    })
}

fn peer_refused() -> Work {
    let quota = Quota::with_period(Duration::from_secs(86_400)).expect("it is not zero");
    let limiter = governor::RateLimiter::direct(quota);
    limiter.check().ok();
    Box::new(move |ops| {
        for _ in 0..ops {
            black_box(limiter.check().is_ok());
        }
    })
}

fn peer_informed() -> Work {
    let permits = NonZeroU32::new(NEVER_REACHED).expect("it is not zero");
    let limiter = governor::RateLimiter::direct(Quota::per_second(permits));
    let limiter = limiter.with_middleware::<StateInformationMiddleware>();
    Box::new(move |ops| {
        for _ in 0..ops {
            black_box(limiter.check().map(|state| state.remaining_burst_capacity()).ok());
        }
    })
}

/// A bucket of up to 2^31 permits, which requires a runtime.
fn peer_leaky_bucket() -> anyhow::Result<Work> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let permits = 1 << 30;
    let limiter = leaky_bucket::RateLimiter::builder()
        .initial(permits)
        .max(permits)
        .refill(permits)
        .interval(Duration::from_millis(100))
        .build();
    Ok(Box::new(move |ops| {
        let _entered = runtime.enter();
        for _ in 0..ops {
            black_box(limiter.try_acquire(1));
        }
    }))
}
