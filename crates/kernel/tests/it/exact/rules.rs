//! Rules with every parameter that the limits permit, extremes first.

use proptest::prelude::*;
use sluicegate_kernel::algorithm::{Delay, WindowKind};
use sluicegate_kernel::limits::{BUCKETS_MAX, LOG_ENTRIES_MAX, PERIOD_MAX_US, PERMITS_MAX};
use sluicegate_kernel::{
    Concurrency, FixedWindow, LeakyBucket, Micros, Rate, Rule, SlidingCounter, SlidingLog,
    SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket,
};

/// A rule and the span in which its state changes much.
pub(crate) type Scaled<R> = (R, u64);

/// Rates from one in 366 days to 2^32 per µs, as permits and period in µs.
pub(crate) fn rates() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        6 => (1_u64..=20, 1_u64..=20),
        6 => (1_u64..=1_000, Just(1_000_000)),
        3 => (1_u64..=1_000_000_000, Just(1_000_000)),
        3 => (1..=PERMITS_MAX, 1..=PERIOD_MAX_US),
        1 => Just((1, 86_400_000_000)),
        1 => Just((999_983, 1_000_000)),
        1 => Just((7, 1_000_000)),
        1 => Just((1, 3_000_000)),
        1 => Just((PERMITS_MAX, 1)),
        1 => Just((1, PERIOD_MAX_US)),
    ]
}

/// Numbers of permits up to `max`, mostly few.
pub(crate) fn permits(max: u64) -> impl Strategy<Value = u64> {
    prop_oneof![4 => 1..=max.min(12), 2 => 1..=max.min(1_000), 1 => 1..=max, 1 => Just(max)]
}

/// Spans from 1 µs to 366 days.
pub(crate) fn spans() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1_u64..=100,
        2 => Just(1_000_000),
        2 => 1_u64..=3_600_000_000,
        1 => 1..=PERIOD_MAX_US,
        1 => Just(PERIOD_MAX_US),
    ]
}

pub(crate) fn rate((permits, period): (u64, u64)) -> Rate {
    Rate::new(permits, Micros::new(period)).unwrap()
}

/// The time that about `burst` permits take, for the steps of a walk.
pub(crate) fn scale((permits, period): (u64, u64), burst: u64) -> u64 {
    let us = u128::from(burst) * u128::from(period) / u128::from(permits);
    u64::try_from(us).unwrap_or(u64::MAX).min(1 << 46)
}

/// `smooth` token buckets, and their rate.
pub(crate) fn token_buckets() -> impl Strategy<Value = (TokenBucket, (u64, u64))> {
    (rates(), permits(PERMITS_MAX), 0.0..=1.0, any::<bool>()).prop_map(
        |(flow, burst, part, full)| {
            let initial = if full { burst } else { part_of(burst, part) };
            let bucket = TokenBucket::new(rate(flow), burst).unwrap();
            (bucket.with_initial(initial).unwrap(), flow)
        },
    )
}

/// Leaky buckets' rate, burst and delay.
pub(crate) fn leaky_buckets() -> impl Strategy<Value = ((u64, u64), u64, Delay)> {
    (rates(), prop_oneof![1 => Just(0), 6 => permits(PERMITS_MAX)]).prop_flat_map(
        |(flow, burst)| {
            let delay = prop_oneof![
                Just(Delay::None),
                Just(Delay::Above(0)),
                (0..=burst).prop_map(Delay::Above)
            ];
            (Just(flow), Just(burst), delay)
        },
    )
}

/// Windows of `epoch` and `first`.
pub(crate) fn fixed_windows() -> impl Strategy<Value = (u64, WindowKind)> {
    (permits(PERMITS_MAX), spans(), any::<bool>()).prop_map(|(limit, span, epoch)| {
        let span = Micros::new(span);
        (limit, if epoch { WindowKind::Epoch(span) } else { WindowKind::First(span) })
    })
}

/// Limit, window and buckets of a sliding window.
pub(crate) fn sliding_windows() -> impl Strategy<Value = (u64, u64, u64)> {
    let buckets = prop_oneof![3 => 1_u64..=12, 1 => 1_u64..=60];
    (permits(PERMITS_MAX), spans(), buckets)
        .prop_map(|(limit, window, buckets)| (limit, window.max(buckets), buckets))
}

/// Every algorithm but `concurrency`, with the limit it reports and the scale of its time.
pub(crate) fn any_rate_rule() -> impl Strategy<Value = Scaled<Rule>> {
    let token = (token_buckets(), any::<bool>()).prop_map(|((bucket, flow), interval)| {
        let scale = scale(flow, bucket.burst().min(20));
        let bucket = if interval { bucket.refilled_by_interval() } else { bucket };
        (bucket.into(), scale)
    });
    let leaky = leaky_buckets().prop_map(|(flow, burst, delay)| {
        let rule = LeakyBucket::new(rate(flow), burst, delay).unwrap();
        (rule.into(), scale(flow, burst.clamp(1, 20)))
    });
    let fixed = fixed_windows().prop_map(|(limit, kind)| {
        let (WindowKind::Epoch(span) | WindowKind::First(span)) = &kind else { unreachable!() };
        let scale = span.get();
        (FixedWindow::new(limit, kind).unwrap().into(), scale)
    });
    let many_buckets = (permits(100), 1_000_000_u64..=PERIOD_MAX_US, Just(BUCKETS_MAX));
    let sliding = prop_oneof![9 => sliding_windows(), 1 => many_buckets];
    let sliding = sliding.prop_map(|(limit, window, buckets)| {
        let rule = SlidingWindow::new(limit, Micros::new(window), buckets).unwrap();
        (rule.into(), window)
    });
    let counter = (permits(PERMITS_MAX - 1), spans()).prop_map(|(limit, window)| {
        (SlidingCounter::new(limit, Micros::new(window)).unwrap().into(), window)
    });
    let log = (permits(LOG_ENTRIES_MAX), spans()).prop_map(|(limit, window)| {
        (SlidingLog::new(limit, Micros::new(window)).unwrap().into(), window)
    });
    let smooth = (rates(), spans(), 1.001_f64..=1_000.0, any::<bool>()).prop_map(
        |(flow, span, cold_factor, warmup)| {
            let (rate, at) = (rate(flow), Micros::new(span));
            let rule: Rule = if warmup {
                SmoothWarmup::new(rate, at, cold_factor).unwrap().into()
            } else {
                SmoothBursty::new(rate, at).unwrap().into()
            };
            (rule, scale(flow, 4))
        },
    );
    prop_oneof![3 => token, 2 => leaky, 2 => fixed, 2 => sliding, 2 => counter, 2 => log, 3 => smooth]
}

/// `concurrency` rules: limit and ttl.
pub(crate) fn concurrencies() -> impl Strategy<Value = Scaled<Rule>> {
    (permits(10_000), spans()).prop_map(|(limit, ttl)| {
        (Concurrency::new(limit, Micros::new(ttl), 0).unwrap().into(), ttl)
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of a number of permits is one"
)]
fn part_of(permits: u64, part: f64) -> u64 {
    ((permits as f64 * part) as u64).min(permits)
}
