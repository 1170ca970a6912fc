//! Mistakes of well-known limiters, one test each: if one of these fails, such a mistake is here.
//!
//! Articles and libraries show limiters whose code has a flaw that only traffic finds. Where the flaw
//! is one of Redis (a missing TTL, a client's clock), the test here guards the kernel's part of it and
//! the Redis store guards the rest.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sluicegate_kernel::algorithm::{Delay, WindowKind};
use sluicegate_kernel::limits::{COST_MAX, PERIOD_MAX_US, PERMITS_MAX};
use sluicegate_kernel::{
    Cost, Decision, FixedWindow, LeakyBucket, Micros, Moment, NamedRule, Rate, Rule, RuleSet,
    SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, States, TokenBucket,
    Verb,
};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// One key under one rule.
struct Key {
    rules: RuleSet,
    states: States,
}

impl Key {
    fn new(rule: impl Into<Rule>) -> Self {
        Self { rules: RuleSet::single("rule", rule), states: States::default() }
    }

    fn ask(&mut self, verb: &Verb, at_us: u64) -> Decision {
        let moment = Moment::new(Micros::new(at_us));
        self.rules.decide(&mut self.states, verb, &moment).unwrap().decision
    }

    fn check(&mut self, cost: u64, at_us: u64) -> Decision {
        self.ask(&Verb::Check { cost: Cost::new(cost).unwrap() }, at_us)
    }

    fn passes(&mut self, at_us: u64) -> bool {
        self.check(1, at_us).allowed()
    }

    /// The wait of `cost`, however long that is, in µs.
    fn acquire(&mut self, cost: u64, at_us: u64) -> u64 {
        let cost = Cost::new(cost).unwrap();
        self.ask(&Verb::Reserve { cost, max_wait: Micros::MAX }, at_us).wait().get()
    }

    /// Returns how many of `asked` requests at once pass.
    fn burst(&mut self, asked: u64, at_us: u64) -> u64 {
        (0..asked).map(|_| u64::from(self.passes(at_us))).sum()
    }
}

fn token_bucket(permits: u64, period_us: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(Rate::new(permits, Micros::new(period_us)).unwrap(), burst).unwrap()
}

fn fixed_window(limit: u64, kind: fn(Micros) -> WindowKind, window_us: u64) -> FixedWindow {
    FixedWindow::new(limit, kind(Micros::new(window_us))).unwrap()
}

/// Token bucket in Lua (1): `current_token > token_decr` refuses the request that would take the
/// last token, so a bucket of one never lets anything pass.
#[test]
fn the_last_token_is_granted() {
    let mut key = Key::new(token_bucket(1, SECOND, 1));
    assert!(key.passes(0), "a bucket of one grants its one token");
    let mut key = Key::new(token_bucket(10, SECOND, 10));
    assert!(key.check(10, 0).allowed(), "all ten at once");
}

/// Token bucket in Lua (1): the key of a bucket that was never seen is read as `nil` where Redis
/// says `false`, so the very first request fails.
#[test]
fn a_key_that_was_never_seen_starts_full() {
    let mut key = Key::new(token_bucket(10, SECOND, 3));
    assert_eq!(key.burst(5, 1_700_000_000 * SECOND), 3);
}

/// Token bucket in Lua (1): the expiry adds the time already gone by, where it should take it off.
/// Here the time to full is exact, to the microsecond, and a full bucket is as good as none.
#[test]
fn a_bucket_is_forgotten_when_it_is_full_and_not_before() {
    let mut key = Key::new(token_bucket(10, SECOND, 10));
    key.check(4, 0);
    key.check(1, 50 * MS); // 450 ms until full
    assert_eq!(key.rules.forgettable_at(&key.states), Some(Micros::new(500 * MS)));
    assert_eq!(key.check(10, 500 * MS - 1).retry_after(), Some(Micros::new(1)));
    assert!(key.check(10, 500 * MS).allowed());
}

/// Token bucket in Lua (1): the clock of each client is believed. Here time comes from one place; and when that goes
/// back, nothing is granted twice and no request waits for it to catch up.
#[test]
fn a_clock_that_goes_back_grants_nothing_and_freezes_nothing() {
    let mut key = Key::new(token_bucket(10, SECOND, 1));
    assert!(key.passes(3_600 * SECOND));
    let refused = key.check(1, 0);
    assert_eq!(refused.retry_after(), Some(Micros::new(100 * MS)), "not an hour");
    assert!(!key.passes(100 * MS - 1) && key.passes(100 * MS));
}

/// `acquire` in Lua (2): the refill is rounded down to whole tokens while the clock moves on, so up
/// to a token is lost at every call and the configured rate is never reached.
#[test]
fn a_refill_of_part_of_a_token_is_not_lost() {
    let mut key = Key::new(token_bucket(10, SECOND, 1));
    assert!(key.passes(0));
    // Asked every 30 ms, three tenths of a token each: the tenth ask finds three tokens' time gone.
    let granted = (1..=1_000).filter(|ask| key.passes(ask * 30 * MS)).count();
    assert_eq!(granted, 250, "a request every 120 ms, the first ask after each 100 ms");
    let mut key = Key::new(token_bucket(10, SECOND, 10));
    key.burst(10, 0);
    let granted = (1..=100_000).filter(|ask| key.passes(ask * 999)).count();
    assert_eq!(granted, 999, "99.9 s at 10/s");
}

/// Token bucket in Java (3): `(now - last) / 1000 * rate` in integers refills nothing below one
/// second, and `last = now` throws the time away: a busy client starves for ever.
#[test]
fn a_bucket_refills_below_one_second() {
    let mut key = Key::new(token_bucket(5, SECOND, 5));
    assert_eq!(key.burst(9, 0), 5);
    let granted = (1..=10).filter(|ask| key.passes(ask * 200 * MS)).count();
    assert_eq!(granted, 10, "one every 200 ms, although asked more than once a second");
}

/// Time window in Lua (2, 3, and the single counter of 0): `EXPIRE` on every hit moves the end of
/// the window, so under steady traffic it never comes and the counter only grows.
#[test]
fn steady_traffic_does_not_extend_the_window() {
    for kind in [WindowKind::Epoch, WindowKind::First] {
        let mut key = Key::new(fixed_window(5, kind, 10 * SECOND));
        let granted = (0..100).filter(|second| key.passes(second * SECOND)).count();
        assert_eq!(granted, 50, "five in each of ten windows: {:?}", key.rules);
    }
}

/// Time window in Lua (3) and the counters of (0): a key whose TTL was never set blocks for ever.
/// Here the state itself says when it ends.
#[test]
fn a_window_always_ends() {
    let mut key = Key::new(fixed_window(1, WindowKind::First, SECOND));
    assert!(key.passes(7));
    assert_eq!(key.rules.forgettable_at(&key.states), Some(Micros::new(SECOND + 7)));
    let refused = key.check(1, SECOND + 6);
    assert_eq!((refused.allowed(), refused.reset_after), (false, Micros::new(1)));
    assert!(key.passes(SECOND + 7));
}

/// Time window in Lua (2): `current` and `limit` are never assigned, so the comparison fails. And
/// the counter pattern of (0) compares with `> 10`, which lets eleven pass.
#[test]
fn a_window_of_ten_passes_ten() {
    let mut key = Key::new(fixed_window(10, WindowKind::Epoch, SECOND));
    assert_eq!(key.burst(20, 0), 10);
}

/// Guava in Lua (3): `EXPIRE key 10` forgets any debt of more than ten seconds, so a caller that takes an hour's worth
/// at once has it back after ten seconds.
#[test]
fn a_debt_of_more_than_ten_seconds_is_remembered() {
    let mut key =
        Key::new(SmoothBursty::new(Rate::per_second(1).unwrap(), Micros::SECOND).unwrap());
    assert_eq!(key.acquire(3_600, 0), 0, "any cost passes when there is no debt");
    assert_eq!(key.check(1, 10 * SECOND).retry_after(), Some(Micros::new(3_590 * SECOND)));
    let reset = key.check(1, 11 * SECOND).reset_after;
    assert_eq!(reset, Micros::new(3_590 * SECOND), "3589 s of debt and a second to store");
}

/// Sliding log (0): members of the sorted set are the second itself, so two requests in one second
/// are one entry and count once.
#[test]
fn two_requests_in_one_second_count_twice() {
    let mut key = Key::new(SlidingLog::new(5, Micros::new(60 * SECOND)).unwrap());
    let at = 1_484_551_710 * SECOND;
    assert_eq!(key.burst(9, at), 5, "even in the same microsecond");
    assert!(!key.passes(at + 60 * SECOND - 1));
    assert_eq!(key.burst(9, at + 60 * SECOND), 5);
}

/// Sliding log (0): the two rules are part of the script's text. Here any rules are decided
/// together, and a request that one of them refuses is not charged to the other.
#[test]
fn a_request_that_one_rule_refuses_is_not_charged_to_another() {
    let log = |limit, window_us| SlidingLog::new(limit, Micros::new(window_us)).unwrap().into();
    let named = |name: &str, rule| NamedRule { name: name.into(), rule };
    let rules = vec![named("second", log(1, SECOND)), named("minute", log(5, 60 * SECOND))];
    let mut key = Key { rules: RuleSet::new(rules).unwrap(), states: States::default() };
    let granted = (0..40).filter(|ask| key.passes(ask * 100 * MS)).count();
    assert_eq!(granted, 4, "one a second; 36 refusals took nothing of the minute's five");
    assert!(key.passes(4 * SECOND));
    assert_eq!(key.check(1, 5 * SECOND).retry_after(), Some(Micros::new(55 * SECOND)));
}

/// Sliding window (0): of the n + 1 buckets that overlap the window, n are summed, so up to twice
/// the limit passes around a bucket's end.
#[test]
fn a_sliding_window_counts_the_bucket_that_it_overlaps_in_part() {
    let window = SlidingWindow::new(10, Micros::new(10 * SECOND), 10).unwrap();
    let mut key = Key::new(window);
    assert_eq!(key.burst(20, SECOND - 1), 10, "all at the very end of the first bucket");
    // One window later less a µs, such code has dropped that bucket for 999,999 µs already.
    for ask in 0..10 {
        assert_eq!(key.burst(20, 10 * SECOND + ask * 99 * MS), 0, "ask {ask}");
    }
    assert!(!key.passes(11 * SECOND - 2));
    assert_eq!(key.burst(20, 11 * SECOND - 1), 10);
}

/// Token bucket after limitd (0): `last_update` is moved by the tokens *taken*, into the future, so
/// that what flows in until then is lost, and a refusal reports a time of either sign.
#[test]
fn the_clock_of_a_bucket_is_not_moved_by_what_is_taken() {
    let mut key = Key::new(token_bucket(1, SECOND, 10));
    assert!(key.check(10, 0).allowed());
    // Such code has set its clock to 10 s and refills nothing before.
    let granted = (1..=10).filter(|second| key.passes(second * SECOND)).count();
    assert_eq!(granted, 10);
    assert_eq!(key.check(3, 10 * SECOND).retry_after(), Some(Micros::new(3 * SECOND)));
}

/// Fixed window (0): around a boundary twice the limit passes in a moment. That is what a fixed window is, and its
/// documentation states it; where that matters, use `sliding_window`.
#[test]
fn around_a_boundary_a_fixed_window_passes_twice_its_limit_and_a_sliding_one_does_not() {
    let mut fixed = Key::new(fixed_window(5, WindowKind::Epoch, SECOND));
    assert_eq!(fixed.burst(9, SECOND - 1) + fixed.burst(9, SECOND), 10);
    let mut sliding = Key::new(SlidingWindow::new(5, Micros::SECOND, 10).unwrap());
    assert_eq!(sliding.burst(9, SECOND - 1) + sliding.burst(9, SECOND), 5);
}

/// `INCR` patterns (0): refused requests are counted too, so a client that keeps asking keeps
/// itself out.
#[test]
fn a_refused_request_is_not_counted() {
    let mut key = Key::new(SlidingWindow::new(3, Micros::SECOND, 10).unwrap());
    key.burst(1_000, 0);
    assert_eq!(key.burst(1_000, 1_100 * MS), 3);
}

/// A bucket that starts below full was refused for ever by its own first requests: a refusal left
/// nothing behind, so every request was the first.
#[test]
fn a_bucket_that_starts_empty_fills_from_the_first_request_on() {
    let mut key = Key::new(token_bucket(10, SECOND, 10).with_initial(0).unwrap());
    assert_eq!(key.check(1, 5 * SECOND).retry_after(), Some(Micros::new(100 * MS)));
    assert!(!key.passes(5 * SECOND + 100 * MS - 1));
    assert!(key.passes(5 * SECOND + 100 * MS));
}

/// A debt of µs under a much faster rate is a number of permits beyond 2^64: a fixed window that took
/// it over stopped with an overflow at the next request.
#[test]
fn a_debt_beyond_all_numbers_is_taken_over_as_a_full_budget() {
    let warmup = |rate: Rate| SmoothWarmup::new(rate, Micros::SECOND, 3.0).unwrap();
    let mut key = Key::new(warmup(Rate::new(1, Micros::new(PERIOD_MAX_US)).unwrap()));
    for _ in 0..4 {
        key.acquire(COST_MAX, 0);
    }
    let moment = Moment::new(Micros::ZERO);
    let fast = Rate::new(PERMITS_MAX, Micros::new(1)).unwrap();
    for rule in [Rule::from(warmup(fast)), fixed_window(5, WindowKind::Epoch, SECOND).into()] {
        let rules = RuleSet::single("rule", rule);
        key.states = rules.take_over(&key.rules, &key.states, &moment);
        key.rules = rules;
    }
    assert!(!key.passes(0));
    assert!(key.passes(SECOND));
}

/// A sliding counter cut what it had counted to a lower limit, so that the limit could be lowered and raised
/// to get more: 100, then 63 again with each turn of 100 to 37 and back.
#[test]
fn a_limit_that_is_lowered_and_raised_again_gives_nothing_back() {
    const DAY: u64 = 86_400 * SECOND;
    let rules: [fn(u64) -> Rule; 4] = [
        |limit| SlidingCounter::new(limit, Micros::new(DAY)).unwrap().into(),
        |limit| fixed_window(limit, WindowKind::Epoch, DAY).into(),
        |limit| SlidingWindow::new(limit, Micros::new(DAY), 24).unwrap().into(),
        |limit| SlidingLog::new(limit, Micros::new(DAY)).unwrap().into(),
    ];
    for rule in rules {
        let mut key = Key::new(rule(100));
        let mut admitted = key.burst(200, SECOND);
        for limit in [37, 100, 37, 100, 99, 100] {
            let rules = RuleSet::single("rule", rule(limit));
            key.states =
                rules.take_over(&key.rules, &key.states, &Moment::new(Micros::new(SECOND)));
            key.rules = rules;
            admitted += key.burst(200, SECOND);
        }
        assert_eq!(admitted, 100, "{:?}", key.rules);
    }
}

/// Usage stays in use through any algorithm, also where it is far above the limit.
#[test]
fn another_algorithm_with_a_low_limit_gives_nothing_back() {
    const DAY: u64 = 86_400 * SECOND;
    let rules = |limit: u64| -> [Rule; 7] {
        let rate = Rate::new(limit, Micros::new(DAY)).unwrap();
        [
            SlidingCounter::new(limit, Micros::new(DAY)).unwrap().into(),
            SlidingCounter::new(limit, Micros::new(PERIOD_MAX_US)).unwrap().into(),
            fixed_window(limit, WindowKind::Epoch, DAY).into(),
            SlidingWindow::new(limit, Micros::new(DAY), 24).unwrap().into(),
            SlidingLog::new(limit, Micros::new(DAY)).unwrap().into(),
            TokenBucket::new(rate, limit).unwrap().into(),
            LeakyBucket::new(rate, limit, Delay::None).unwrap().into(),
        ]
    };
    for high in rules(10_000) {
        for low in rules(10) {
            let mut key = Key::new(high.clone());
            let mut admitted = key.burst(9_000, SECOND);
            for rule in [&low, &high] {
                let rules = RuleSet::single("rule", rule.clone());
                let at = Moment::new(Micros::new(SECOND));
                key.states = rules.take_over(&key.rules, &key.states, &at);
                key.rules = rules;
                admitted += key.burst(2_000, SECOND);
            }
            assert_eq!(admitted, high.limit(), "{high:?}, {low:?}");
        }
    }
}

/// A count far beyond a lower limit is weighed exactly.
#[test]
fn what_was_counted_under_a_much_higher_limit_fills_a_small_one() {
    let year = Micros::new(PERIOD_MAX_US);
    let counter = |limit| Rule::from(SlidingCounter::new(limit, year).unwrap());
    let mut key = Key::new(counter(PERMITS_MAX - 1));
    assert!(key.check(1 << 31, 0).allowed());
    let rules = RuleSet::single("rule", counter(1));
    key.states = rules.take_over(&key.rules, &key.states, &Moment::new(Micros::ZERO));
    key.rules = rules;
    assert!(!key.passes(0) && !key.passes(PERIOD_MAX_US + PERIOD_MAX_US / 2));
    let rules = RuleSet::single("rule", counter(PERMITS_MAX - 1));
    key.states = rules.take_over(&key.rules, &key.states, &Moment::new(Micros::ZERO));
    key.rules = rules;
    assert_eq!(key.check(1, 0).remaining, PERMITS_MAX - 2 - (1 << 31), "it was kept");
}
