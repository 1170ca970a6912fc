//! The limits that `CL.THROTTLE` sends along, their rules, and the replies to decisions on them.

use std::convert::Infallible;
use std::sync::Arc;

use quick_cache::sync::Cache;
use sluicegate::{Decision, Micros, Rate, Rule, TokenBucket, Verb};
use sluicegate_kernel::RuleSet;
use sluicegate_policy::Rules;

use super::reply::Replies;

/// Maximum number of limits that are remembered, some 500 bytes each: applications use a handful. A
/// limit that was forgotten is made anew, and its keys keep what is in use.
const LIMITS_MAX: usize = 1_024;

/// The limit that a caller sends for a key, in numbers that make a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThrottleLimit {
    pub(super) burst: u64,
    pub(super) count: u64,
    pub(super) period_s: u64,
}

/// The rules of the limits that were requested, for all connections: stores expect the identical rules again.
#[derive(Debug)]
pub(crate) struct ThrottleRuleCache(Cache<ThrottleLimit, Rules>);

/// The rules of one connection's limits: most connections use one.
#[derive(Debug)]
pub(crate) struct ConnectionRuleCache {
    known: Arc<ThrottleRuleCache>,
    last: Option<(ThrottleLimit, Rules)>,
}

/// Writes the reply to a decision, as redis-cell does.
pub(super) fn reply(limit: ThrottleLimit, verb: &Verb, decision: &Decision, replies: &mut Replies) {
    let Decision { outcome: _, limit: permits, remaining, reset_after } = *decision;
    let (limited, retry_after) = match verb {
        // A peek takes nothing, so it is not refused, unless more is in use than there may be.
        Verb::Peek { .. } => {
            let excess = reset_after.since(limit.time_to_fill());
            (excess > Micros::ZERO, Some(excess))
        }
        _ => (!decision.allowed(), decision.retry_after()),
    };
    replies.array(5);
    replies.integer(u64::from(limited));
    replies.integer(permits);
    replies.integer(remaining);
    match retry_after.filter(|_| limited) {
        Some(retry_after) => replies.integer(seconds(retry_after)),
        None => replies.negative(1),
    }
    replies.integer(seconds(reset_after));
}

/// Whole seconds, rounded up as redis-cell does: parts of a millisecond are cut off first.
const fn seconds(span: Micros) -> u64 {
    (span.get() / 1_000).div_ceil(1_000)
}

impl ThrottleLimit {
    fn rules(self) -> Rules {
        let Self { burst, count, period_s } = self;
        let rate = Rate::new(count, Micros::from_secs(period_s));
        let bucket = rate.and_then(|rate| TokenBucket::new(rate, burst));
        let bucket = bucket.expect("a limit has numbers that a bucket may have");
        Rules::new(RuleSet::single("limit", Rule::from(bucket)))
            .expect("a bucket follows no calendar")
    }

    /// The time that an empty bucket takes to be full, rounded up.
    fn time_to_fill(self) -> Micros {
        let Self { burst, count, period_s } = self;
        let period_us = u128::from(period_s) * u128::from(Micros::SECOND.get());
        let us = (u128::from(burst) * period_us).div_ceil(u128::from(count));
        Micros::new(u64::try_from(us).unwrap_or(u64::MAX)).capped()
    }
}

impl Default for ThrottleRuleCache {
    fn default() -> Self {
        Self(Cache::new(LIMITS_MAX))
    }
}

impl ConnectionRuleCache {
    /// Creates the cache of one connection, in front of `known`.
    pub(crate) const fn new(known: Arc<ThrottleRuleCache>) -> Self {
        Self { known, last: None }
    }

    /// The rules of `limit`.
    #[inline]
    pub(crate) fn rules(&mut self, limit: ThrottleLimit) -> &Rules {
        if !self.last.as_ref().is_some_and(|(last, _)| *last == limit) {
            let make = || Ok::<_, Infallible>(limit.rules());
            let Ok(rules) = self.known.0.get_or_insert_with(&limit, make);
            self.last = Some((limit, rules));
        }
        self.last.as_ref().map(|(_, rules)| rules).expect("it was just put there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_without_what_is_below_a_millisecond() {
        for (us, expected) in [
            (0, 0),
            (999, 0),
            (1_000, 1),
            (1_000_000, 1),
            (1_000_999, 1),
            (1_001_000, 2),
            (1_999_999, 2),
        ] {
            assert_eq!(seconds(Micros::new(us)), expected, "{us} us");
        }
    }

    #[test]
    fn the_same_limit_is_the_very_same_rules() {
        let known = Arc::default();
        let (mut one, mut other) =
            (ConnectionRuleCache::new(Arc::clone(&known)), ConnectionRuleCache::new(known));
        let limit = |burst| ThrottleLimit { burst, count: 30, period_s: 60 };
        let first = one.rules(limit(16)).clone();
        for connection in [&mut one, &mut other] {
            assert!(Arc::ptr_eq(first.set(), connection.rules(limit(16)).set()));
        }
        assert!(!Arc::ptr_eq(first.set(), other.rules(limit(17)).set()));
        assert!(Arc::ptr_eq(first.set(), other.rules(limit(16)).set()));
    }

    #[test]
    fn limits_that_are_remembered_are_bounded() {
        let known = ThrottleRuleCache::default();
        let mut limits = ConnectionRuleCache::new(Arc::new(known));
        for burst in 1..=4 * LIMITS_MAX as u64 {
            limits.rules(ThrottleLimit { burst, count: 1, period_s: 1 });
        }
        assert!(limits.known.0.len() <= LIMITS_MAX);
    }
}
