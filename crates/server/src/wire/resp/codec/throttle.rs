//! `CL.THROTTLE key max_burst count period [quantity]`, redis-cell's command.
//!
//! redis-cell remembers when a key would be full again, which is a token bucket seen from the other
//! side: `max_burst + 1` permits, refilled at `count` every `period` seconds. So it is one here, with
//! the rate as an exact fraction.
//!
//! | `CL.THROTTLE k 1 1 2` | `limited` | `limit` | `remaining` | `retry_after` | `reset_after` |
//! |---|--:|--:|--:|--:|--:|
//! | at once | 0 | 2 | 1 | -1 | 2 |
//! | half a second later | 0 | 2 | 0 | -1 | 4 (3.5 s, rounded up) |
//! | at the same moment | 1 | 2 | 0 | 2 (1.5 s) | 4 |
//! | with quantity 3 | 1 | 2 | 0 | -1 (it never can) | 4 |
//! | with quantity 0, which only looks | 0 | 2 | 0 | -1 | 4 |

use std::convert::Infallible;
use std::sync::Arc;

use quick_cache::sync::Cache;
use sluicegate::policy::Rules;
use sluicegate::{Cost, Decision, Micros, Rate, Request, Rule, RuleSet, TokenBucket, Verb};
use sluicegate_kernel::limits::{COST_MAX, PERIOD_MAX_US, PERMITS_MAX};
use sluicegate_kernel::param::within;

use super::question::Question;
use super::refusal::{Refusal, shown};
use super::reply::Replies;

/// Under which name stores keep the budgets. No policy can have it: names have no capital letters.
const NAME: &str = "CL.THROTTLE";

/// Limits that are remembered at most, some 500 bytes each: applications know a handful. One that
/// fell out is made anew, and its keys keep what is in use.
const LIMITS_MAX: usize = 1_024;

/// What a caller says a key may do, in numbers that make a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limit {
    burst: u64,
    count: u64,
    period_s: u64,
}

/// The rules of the limits that were asked for, for all connections: stores want to see the very
/// same rules again.
#[derive(Debug)]
pub(crate) struct KnownLimits(Cache<Limit, Rules>);

/// The same, as one connection uses them: most use one.
#[derive(Debug)]
pub(crate) struct Limits {
    known: Arc<KnownLimits>,
    last: Option<(Limit, Rules)>,
}

/// Reads the words behind the command's name.
pub(super) fn decode<'a>(words: &[&'a [u8]]) -> Result<Question<'a>, Refusal> {
    let (key, max_burst, count, period, quantity) = match *words {
        [key, max_burst, count, period] => (key, max_burst, count, period, None),
        [key, max_burst, count, period, quantity] => {
            (key, max_burst, count, period, Some(quantity))
        }
        _ => {
            let usage = "cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]";
            return Err(Refusal::cell(format_args!("Usage: {usage}")));
        }
    };
    let max_burst = integer(max_burst)?;
    let (count, period) = (integer(count)?, integer(period)?);
    let quantity = quantity.map_or(Ok(1), integer)?;
    if count == 0 || period == 0 {
        return Err(Refusal::cell("Zero rates are not supported"));
    }
    let limit = Limit {
        burst: in_range("max_burst", max_burst, 0, PERMITS_MAX - 1)? + 1,
        count: in_range("count", count, 1, PERMITS_MAX)?,
        period_s: in_range("period", period, 1, PERIOD_MAX_US / Micros::SECOND.get())?,
    };
    let verb = match in_range("quantity", quantity, 0, COST_MAX)? {
        0 => Verb::Peek { cost: Cost::ONE },
        permits => Verb::Check { cost: Cost::new(permits)? },
    };
    let key = Some(key).filter(|key| !key.is_empty());
    Ok(Question { request: Request::new(NAME, key, verb), limit: Some(limit) })
}

/// Writes what was decided, as redis-cell does.
pub(super) fn reply(limit: Limit, verb: &Verb, decision: &Decision, replies: &mut Replies) {
    let Decision { outcome: _, limit: permits, remaining, reset_after } = *decision;
    let (limited, retry_after) = match verb {
        // To look takes nothing, so that is not refused, unless more is in use than there may be.
        Verb::Peek { .. } => {
            let excess = reset_after.since(limit.time_to_fill());
            (excess > Micros::ZERO, Some(excess))
        }
        _ => (!decision.allowed(), decision.retry_after()),
    };
    replies.array(5);
    replies.integer(u8::from(limited));
    replies.integer(permits);
    replies.integer(remaining);
    match retry_after.filter(|_| limited) {
        Some(retry_after) => replies.integer(seconds(retry_after)),
        None => replies.integer(-1),
    }
    replies.integer(seconds(reset_after));
}

/// Whole seconds, rounded up, as redis-cell does: without what lies below a millisecond.
const fn seconds(span: Micros) -> u64 {
    (span.get() / 1_000).div_ceil(1_000)
}

/// A whole number as redis-cell reads it.
fn integer(word: &[u8]) -> Result<i64, Refusal> {
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| Refusal::cell(format_args!("Couldn't parse as integer: {}", shown(word))))
}

fn in_range(name: &str, given: i64, min: u64, max: u64) -> Result<u64, Refusal> {
    match u64::try_from(given) {
        Ok(number) => Ok(within(name, number, min, max)?),
        Err(_) => Err(Refusal::err(format_args!("{name}: `{given}` is outside {min}..={max}"))),
    }
}

impl Limit {
    fn rules(self) -> Rules {
        let Self { burst, count, period_s } = self;
        let rate = Rate::new(count, Micros::from_secs(period_s));
        let bucket = rate.and_then(|rate| TokenBucket::new(rate, burst));
        let bucket = bucket.expect("a limit has numbers that a bucket may have");
        Rules::new(RuleSet::single("throttle", Rule::from(bucket)))
            .expect("a bucket follows no calendar")
    }

    /// How long an empty bucket takes to be full, rounded up.
    fn time_to_fill(self) -> Micros {
        let Self { burst, count, period_s } = self;
        let period_us = u128::from(period_s) * u128::from(Micros::SECOND.get());
        let us = (u128::from(burst) * period_us).div_ceil(u128::from(count));
        Micros::new(u64::try_from(us).unwrap_or(u64::MAX)).capped()
    }
}

impl Default for KnownLimits {
    fn default() -> Self {
        Self(Cache::new(LIMITS_MAX))
    }
}

impl Limits {
    /// A connection's, of those that are `known`.
    pub(crate) const fn new(known: Arc<KnownLimits>) -> Self {
        Self { known, last: None }
    }

    /// The rules of `limit`.
    pub(crate) fn rules(&mut self, limit: Limit) -> Rules {
        if let Some((last, rules)) = &self.last
            && *last == limit
        {
            return rules.clone();
        }
        let made = self.known.0.get_or_insert_with(&limit, || Ok::<_, Infallible>(limit.rules()));
        let Ok(rules) = made;
        self.last = Some((limit, rules.clone()));
        rules
    }
}
