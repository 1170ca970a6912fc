//! Rules of a policy: random ones, and changed ones.

use fastrand::Rng;

use super::{MS, SECOND};

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSpec {
    /// `permits` every `period_us`, and `burst` at once.
    TokenBucket {
        /// Permits of the rate.
        permits: u64,
        /// Period of the rate, µs.
        period_us: u64,
        /// Most at once.
        burst: u64,
    },
    /// `permits` every `period_us`, and `burst` beside the one that passes.
    LeakyBucket {
        /// Permits of the rate.
        permits: u64,
        /// Period of the rate, µs.
        period_us: u64,
        /// Most beside the one that passes.
        burst: u64,
        /// The rule can delay requests (`delay: BURST`), and so it cannot be leased; but no request finds so many
        /// others that it is delayed. Otherwise it only measures (`delay: none`).
        delays: bool,
    },
    /// `limit` in a window.
    Window {
        /// The kind of window.
        window: WindowSpec,
        /// Permits.
        limit: u64,
        /// Length, µs.
        window_us: u64,
    },
    /// Guava's bursty limiter.
    SmoothBursty {
        /// Permits a second.
        permits: u64,
        /// Seconds of permits that are saved at most.
        burst_s: u64,
    },
    /// `limit` permits held at once, each for `ttl_us` after it was acquired or renewed.
    Concurrency {
        /// Permits held at once.
        limit: u64,
        /// The time to live of a permit, µs.
        ttl_us: u64,
        /// Requests that may wait for one.
        queue: u64,
    },
}

/// A window in which permits are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowSpec {
    /// Each window of the store's clock.
    Fixed,
    /// Any window, exactly.
    Log,
    /// Any window, in buckets.
    Buckets,
    /// Any window, by an estimate.
    Estimate,
}

impl WindowSpec {
    /// Returns the name of the algorithm in a policy document.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed_window",
            Self::Log => "sliding_log",
            Self::Buckets => "sliding_window",
            Self::Estimate => "sliding_counter",
        }
    }
}

impl RuleSpec {
    /// Returns the largest cost that passes at once.
    pub fn limit(&self) -> u64 {
        match *self {
            Self::TokenBucket { burst, .. } => burst,
            Self::LeakyBucket { burst, .. } => burst + 1,
            Self::Window { limit, .. } | Self::Concurrency { limit, .. } => limit,
            Self::SmoothBursty { permits, burst_s } => permits * burst_s,
        }
    }

    /// Returns whether the request that passes pays for itself, and not the next one.
    pub fn is_strict(&self) -> bool {
        !matches!(self, Self::SmoothBursty { .. })
    }

    /// Returns whether usage flows out continuously, and the rule can book the future.
    pub fn is_bucket(&self) -> bool {
        matches!(
            self,
            Self::TokenBucket { .. } | Self::LeakyBucket { .. } | Self::SmoothBursty { .. }
        )
    }

    /// Returns whether a quota, or the rule beside it, can be leased.
    pub(crate) fn is_leasable(&self) -> bool {
        match *self {
            Self::LeakyBucket { delays, .. } => !delays,
            Self::Window { window_us, .. } => window_us >= 10 * SECOND,
            _ => true,
        }
    }

    /// Returns the rule as a policy document writes it.
    pub(crate) fn text(&self) -> String {
        match *self {
            Self::TokenBucket { permits, period_us, burst } => {
                format!("token_bucket: {{ rate: {permits}/{}ms, burst: {burst} }}", period_us / MS)
            }
            Self::LeakyBucket { permits, period_us, burst, delays } => {
                let period_ms = period_us / MS;
                let delay = if delays { burst.to_string() } else { "none".to_owned() };
                format!(
                    "leaky_bucket: {{ rate: {permits}/{period_ms}ms, burst: {burst}, delay: {delay} }}"
                )
            }
            Self::Window { window, limit, window_us } => {
                let (name, window_ms) = (window.name(), window_us / MS);
                format!("{name}: {{ limit: {limit}, window: {window_ms}ms }}")
            }
            Self::SmoothBursty { permits, burst_s } => {
                format!("smooth_bursty: {{ rate: {permits}/s, max_burst: {burst_s}s }}")
            }
            Self::Concurrency { limit, ttl_us, queue } => {
                let ttl_ms = ttl_us / MS;
                format!("concurrency: {{ limit: {limit}, ttl: {ttl_ms}ms, queue: {queue} }}")
            }
        }
    }
}

pub(super) fn rules(rng: &mut Rng) -> Vec<RuleSpec> {
    let count = if rng.u8(0..6) == 0 { 2 } else { 1 };
    (0..count).map(|_| rule(rng)).collect()
}

pub(super) fn rule(rng: &mut Rng) -> RuleSpec {
    let burst = [1, 2, 3, 5, 10, 20, 50][rng.usize(0..7)];
    let permits = [1, 2, 5, 10, 30, 100][rng.usize(0..6)];
    let period_us = [100, 500, 1_000, 1_000, 3_000][rng.usize(0..5)] * MS;
    let window_us = [200, 500, 1_000, 2_000, 5_000][rng.usize(0..5)] * MS;
    let limit = burst * rng.u64(1..=2);
    let counted = |window| RuleSpec::Window { window, limit, window_us };
    match rng.u8(0..20) {
        0..=8 => RuleSpec::TokenBucket { permits, period_us, burst },
        9..=10 => RuleSpec::LeakyBucket { permits, period_us, burst, delays: false },
        11..=12 => counted(WindowSpec::Fixed),
        13..=15 => counted(WindowSpec::Log),
        16..=17 => counted(WindowSpec::Buckets),
        18 => counted(WindowSpec::Estimate),
        _ => RuleSpec::SmoothBursty { permits, burst_s: rng.u64(1..=2) },
    }
}

/// Returns the same algorithms with other limits, or other rules.
pub(super) fn changed(rng: &mut Rng, rules: &[RuleSpec]) -> Vec<RuleSpec> {
    if rng.u8(0..4) == 0 {
        return rules.iter().map(|_| rule(rng)).collect();
    }
    let mut change = |limit: u64| if rng.bool() { limit * 2 } else { limit.div_ceil(2) };
    let changed = rules.iter().map(|rule| match *rule {
        RuleSpec::TokenBucket { permits, period_us, burst } => {
            RuleSpec::TokenBucket { permits: change(permits), period_us, burst: change(burst) }
        }
        RuleSpec::LeakyBucket { permits, period_us, burst, delays } => {
            let (permits, burst) = (change(permits), change(burst));
            RuleSpec::LeakyBucket { permits, period_us, burst, delays }
        }
        RuleSpec::Window { window, limit, window_us } => {
            RuleSpec::Window { window, limit: change(limit), window_us }
        }
        RuleSpec::SmoothBursty { permits, burst_s } => {
            RuleSpec::SmoothBursty { permits: change(permits), burst_s }
        }
        RuleSpec::Concurrency { limit, ttl_us, queue } => {
            RuleSpec::Concurrency { limit: change(limit), ttl_us, queue }
        }
    });
    changed.collect()
}
