//! A flood of keys gives no exhausted budget back, whatever algorithm counts it and wherever the
//! flood is.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use sluicegate_kernel::algorithm::{CalendarUnit, Delay, WindowKind};
use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, LeakyBucket, Micros, Moment, NamedRule, PermitId, Rate, Rule,
    RuleSet, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket,
    Verb, Window,
};
use sluicegate_store::{MemoryStore, Quota, RuleOrigin, StoreRequest};

/// A small store, so that a flood of it takes a moment.
const KEYS_MAX: usize = 20_000;

/// Keys that are exhausted before the flood.
const VICTIMS: usize = 200;

/// Keys of a flood.
const FLOOD: usize = 2 * KEYS_MAX;

const LIMIT: u64 = 5;
const DAY_US: u64 = 86_400_000_000;
const BEGIN_US: u64 = 20_000 * DAY_US + 1_000_000;

/// Returns five in ten minutes by every algorithm, and by several at once.
fn policies() -> Vec<(&'static str, Arc<RuleSet>)> {
    let span = Micros::from_secs(600);
    let rate = Rate::new(LIMIT, span).unwrap();
    let rules: [(&str, Rule); 11] = [
        ("token_bucket", TokenBucket::new(rate, LIMIT).unwrap().into()),
        ("leaky_bucket", LeakyBucket::new(rate, LIMIT - 1, Delay::None).unwrap().into()),
        ("fixed_window", FixedWindow::epoch(LIMIT, span).unwrap().into()),
        ("fixed_window first", FixedWindow::first(LIMIT, span).unwrap().into()),
        (
            "fixed_window day",
            FixedWindow::new(LIMIT, WindowKind::Calendar(CalendarUnit::Day, "UTC".into()))
                .unwrap()
                .into(),
        ),
        ("sliding_window", SlidingWindow::new(LIMIT, span, 10).unwrap().into()),
        ("sliding_counter", SlidingCounter::new(LIMIT, span).unwrap().into()),
        ("sliding_log", SlidingLog::new(LIMIT, span).unwrap().into()),
        ("smooth_bursty", SmoothBursty::new(rate, span).unwrap().into()),
        ("smooth_warmup", SmoothWarmup::new(rate, span, 3.0).unwrap().into()),
        ("concurrency", Concurrency::new(LIMIT, span, 0).unwrap().into()),
    ];
    let named = |(name, rule): &(&str, Rule)| NamedRule {
        name: name.replace(' ', "-").into(),
        rule: rule.clone(),
    };
    let both = RuleSet::new(vec![named(&rules[0]), named(&rules[7])]).unwrap();
    let alone =
        rules.into_iter().map(|(name, rule)| (name, Arc::new(RuleSet::single("rule", rule))));
    alone.chain([("two rules", Arc::new(both))]).collect()
}

/// The place of the keys of a flood.
#[derive(Clone, Copy, Debug)]
enum Flood {
    /// Under the victims' policy.
    Same,
    /// Under another one, whose window is long.
    Other,
    /// Under limits that callers bring along, with the longest span that there is.
    Callers,
}

/// Returns whether one permit of `key` could be taken.
fn take(
    store: &MemoryStore,
    (policy, rules): (&str, &Arc<RuleSet>),
    key: &str,
    at_us: u64,
) -> bool {
    let (cost, permit) = (Cost::ONE, PermitId(at_us.into()));
    let verb = match rules.supports(&Verb::Check { cost }) {
        Ok(()) => Verb::Check { cost },
        Err(_) => Verb::Acquire { cost, permit },
    };
    let start = at_us / DAY_US * DAY_US;
    let windows =
        [Some(Window { start: Micros::new(start), end: Micros::new(start + DAY_US) }), None];
    let quota = Quota::of(policy);
    let request = StoreRequest {
        policy,
        key: key.as_bytes(),
        rules,
        verb: &verb,
        origin: RuleOrigin::default(),
        quota,
    };
    let at = Moment::with_windows(Micros::new(at_us), &windows);
    store.decide_now(&request, &at).unwrap().decision.allowed()
}

/// Returns the number of victims that were exhausted before the flood and are not after it.
fn resets(policy: (&str, &Arc<RuleSet>), flood: Flood, quota: Option<usize>) -> usize {
    let store = match quota {
        Some(keys_max) => MemoryStore::new(KEYS_MAX).with_keys_per_policy_max(keys_max),
        None => MemoryStore::new(KEYS_MAX),
    };
    let mut now = BEGIN_US;
    let mut tick = || {
        now += 1;
        now
    };
    for victim in 0..VICTIMS {
        let key = format!("victim {victim}");
        for _ in 0..2 * LIMIT {
            take(&store, policy, &key, tick());
        }
        assert!(!take(&store, policy, &key, tick()), "{key} is exhausted");
    }
    let day = FixedWindow::epoch(100, Micros::new(DAY_US)).unwrap();
    let day = Arc::new(RuleSet::single("day", day));
    let slow = Rate::new(1, Micros::from_secs(31_622_400)).unwrap();
    let slow = Arc::new(RuleSet::single("throttle", TokenBucket::new(slow, 1).unwrap()));
    let flooded = match flood {
        Flood::Same => policy,
        Flood::Other => ("other", &day),
        Flood::Callers => ("CL.THROTTLE", &slow),
    };
    for key in 0..FLOOD {
        take(&store, flooded, &key.to_string(), tick());
    }
    assert!(store.len() <= KEYS_MAX, "{} keys", store.len());
    let at = tick();
    (0..VICTIMS).filter(|victim| take(&store, policy, &format!("victim {victim}"), at)).count()
}

#[test]
fn no_flood_gives_an_exhausted_budget_back() {
    let mut lost = Vec::new();
    for (name, rules) in policies() {
        for flood in [Flood::Same, Flood::Other, Flood::Callers] {
            for quota in [None, Some(KEYS_MAX / 2)] {
                let resets = resets(("login", &rules), flood, quota);
                if resets > 0 {
                    lost.push(format!("{name}, {flood:?}, {quota:?}: {resets} of {VICTIMS}"));
                }
            }
        }
    }
    assert!(lost.is_empty(), "given back:\n{}", lost.join("\n"));
}
