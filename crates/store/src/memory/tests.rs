//! What callers of the memory store may rely on.

use proptest::prelude::*;
use sluicegate_kernel::algorithm::{CalendarUnit, Delay, WindowKind};
use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, LeakyBucket, Micros, PermitId, Rate, Rule, SlidingCounter,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket, Window,
};

use super::*;

fn per_second(permits: u64) -> Arc<RuleSet> {
    let bucket = TokenBucket::new(Rate::per_second(permits).unwrap(), permits).unwrap();
    Arc::new(RuleSet::single("burst", bucket.into()))
}

fn check(store: &MemoryStore, rules: &Arc<RuleSet>, key: &str, at_us: u64) -> bool {
    let verb = Verb::Check { cost: Cost::ONE };
    let request = Request { policy: "p", key: key.as_bytes(), rules, verb: &verb };
    let moment = Moment::new(Micros::new(at_us));
    store.decide_now(&request, &moment).unwrap().decision.allowed()
}

/// Whether the caller with this number takes a permit of one key under `rules` at `at_us`. It brings
/// the calendar window around that instant along, where the rules want one.
fn taken_at(store: &MemoryStore, rules: &Arc<RuleSet>, (caller, at_us): (usize, u64)) -> bool {
    let day = at_us / DAY_US * DAY_US;
    let window = Window { start: Micros::new(day), end: Micros::new(day + DAY_US) };
    let windows = [Some(window)];
    let verb = match rules.rules()[0].rule.holds_permits() {
        true => Verb::Acquire { cost: Cost::ONE, permit: PermitId(caller as u128) },
        false => Verb::Check { cost: Cost::ONE },
    };
    let at = Moment::with_windows(Micros::new(at_us), &windows);
    let verdict = store.decide_hashed(store.hash("p", b"k"), rules, &verb, &at);
    verdict.expect("a verb of these rules").decision.allowed()
}

/// A calendar window of the tests, and the instant at which they begin: shortly before one ends.
const DAY_US: u64 = 86_400_000_000;
const BEGIN_US: u64 = 20_000 * DAY_US - 5_000_000;

/// A rule of every algorithm, and the most that it lets pass from the beginning on in ten seconds.
fn bounded() -> Vec<(Rule, usize)> {
    let (rate, second) = (Rate::per_second(10).unwrap(), Micros::SECOND);
    let day = WindowKind::Calendar(CalendarUnit::Day, "UTC".into());
    vec![
        (TokenBucket::new(rate, 5).unwrap().into(), 5 + 100),
        (LeakyBucket::new(rate, 5, Delay::None).unwrap().into(), 6 + 100),
        (FixedWindow::new(10, WindowKind::Epoch(second)).unwrap().into(), 10 * 11),
        (FixedWindow::new(10, WindowKind::First(second)).unwrap().into(), 10 * 11),
        // The day ends after half of the time.
        (FixedWindow::new(10, day).unwrap().into(), 10 * 2),
        (SlidingWindow::new(10, second, 5).unwrap().into(), 10 * 11),
        (SlidingCounter::new(10, second).unwrap().into(), 10 * 12),
        (SlidingLog::new(10, second).unwrap().into(), 10 * 11),
        (SmoothBursty::new(rate, second).unwrap().into(), 1 + 100),
        (SmoothWarmup::new(rate, second, 3.0).unwrap().into(), 1 + 100),
        (Concurrency::new(10, second, 0).unwrap().into(), 10 * 11),
    ]
}

#[test]
fn a_caller_that_was_overtaken_adds_nothing() {
    for (rule, _) in bounded() {
        let (store, rules) = (MemoryStore::default(), Arc::new(RuleSet::single("r", rule)));
        let taken = |callers: std::ops::Range<usize>, at_us| {
            callers.filter(|caller| taken_at(&store, &rules, (*caller, at_us))).count()
        };
        let first = taken(0..20, BEGIN_US + 1_000_000);
        let late = taken(20..40, BEGIN_US);
        let on_time = taken(40..60, BEGIN_US + 1_150_000);
        assert_eq!(late, 0, "{first} before, {on_time} after: {rules:?}");
        assert!(on_time <= 3, "{on_time} after {first}: {rules:?}");
    }
}

#[test]
fn a_clock_that_was_put_back_freezes_no_budget() {
    let (store, rules) = (MemoryStore::default(), per_second(1));
    assert!(check(&store, &rules, "a", 3_600_000_000));
    assert!(!check(&store, &rules, "a", 0));
    assert!(!check(&store, &rules, "a", 999_999));
    assert!(check(&store, &rules, "a", 1_000_000));
    // By so little that a caller may have been overtaken: for that long nothing is added.
    assert!(!check(&store, &rules, "a", 0));
    assert!(!check(&store, &rules, "a", 1_999_999));
    assert!(check(&store, &rules, "a", 2_000_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Ten seconds, in which callers decide up to a second after they read the clock.
    #[test]
    fn however_late_callers_are_no_limit_lets_more_pass(
        asked in proptest::collection::vec((0..10_000_000_u64, 0..1_000_000_u64), 1..2_000),
    ) {
        let mut asked = asked;
        asked.sort_unstable();
        for (rule, most) in bounded() {
            let store = MemoryStore::default();
            let rules = Arc::new(RuleSet::single("r", rule));
            let passed = asked.iter().enumerate().filter(|(caller, (after, late))| {
                let read_us = BEGIN_US + after.saturating_sub(*late);
                taken_at(&store, &rules, (*caller, read_us))
            });
            let passed = passed.count();
            prop_assert!(passed <= most, "{} of at most {}: {:?}", passed, most, rules);
        }
    }
}

#[test]
fn keys_and_policies_have_budgets_of_their_own() {
    let (store, rules) = (MemoryStore::default(), per_second(1));
    assert!(check(&store, &rules, "a", 0));
    assert!(!check(&store, &rules, "a", 0));
    assert!(check(&store, &rules, "b", 0));
    assert_ne!(store.hash("p", b"qr"), store.hash("pq", b"r"));
}

#[test]
fn a_refusal_or_a_peek_leaves_no_key_behind() {
    let (store, rules) = (MemoryStore::default(), per_second(1));
    let verb = Verb::Peek { cost: Cost::ONE };
    let request = Request { policy: "p", key: b"a", rules: &rules, verb: &verb };
    store.decide_now(&request, &Moment::new(Micros::ZERO)).unwrap();
    let verb = Verb::Check { cost: Cost::new(2).unwrap() };
    let request = Request { verb: &verb, ..request };
    store.decide_now(&request, &Moment::new(Micros::ZERO)).unwrap();
    assert!(store.is_empty());
}

#[test]
fn what_is_expected_is_decided_as_if_it_was_not() {
    let (store, rules) = (MemoryStore::new(100_000), per_second(2));
    let names: Vec<_> = (0..1_000).map(|key| key.to_string()).collect();
    for expected in [0, 1, EXPECTED_TOGETHER_MAX, EXPECTED_TOGETHER_MAX + 1, names.len()] {
        let before = store.len();
        store.expect(names[..expected].iter().map(|key| ("p", key.as_bytes())));
        assert_eq!(store.len(), before, "nothing is remembered");
        for key in &names[..expected] {
            let first = check(&store, &rules, key, 0);
            let second = check(&store, &rules, key, 0);
            assert!(first >= second && !check(&store, &rules, key, 0), "two pass, whenever");
        }
    }
    assert_eq!(store.len(), names.len());
}

#[test]
fn the_bucket_that_is_fetched_is_the_one_that_is_searched() {
    let (store, rules) = (MemoryStore::new(100_000), per_second(1));
    for key in 0..10_000 {
        check(&store, &rules, &key.to_string(), 0);
    }
    let key = store.hash("p", b"77");
    let home = store.shard(key).home(&store.arena, key.tag);
    let before = store.arena.touch(home);
    assert_ne!(before, 0, "it is not an empty one");
    let found = (0..10_000).filter(|key| {
        let key = store.hash("p", key.to_string().as_bytes());
        store.shard(key).home(&store.arena, key.tag) == home
    });
    assert!((1..=32).contains(&found.count()), "a bucket's keys and those that overflow it");
}

#[test]
fn full_budgets_are_forgotten_before_any_other_is_evicted() {
    let (store, rules) = (MemoryStore::new(100), per_second(1));
    for key in 0..100 {
        check(&store, &rules, &key.to_string(), 0);
    }
    assert!(check(&store, &rules, "late", 1_000_000));
    assert_eq!((store.len(), store.evictions()), (1, 0));
}

#[test]
fn the_cap_holds_and_the_fullest_budgets_make_room() {
    let (store, rules) = (MemoryStore::new(10), per_second(10));
    for _ in 0..10 {
        check(&store, &rules, "busy", 0);
    }
    for key in 0..1_000 {
        check(&store, &rules, &key.to_string(), 0);
    }
    assert_eq!((store.len(), store.evictions()), (10, 991));
    assert!(!check(&store, &rules, "busy", 0), "the emptiest budget must stay");
}

#[test]
fn a_new_limit_holds_from_the_next_request_and_usage_stays() {
    let store = MemoryStore::default();
    let (before, after) = (per_second(10), per_second(12));
    for _ in 0..10 {
        assert!(check(&store, &before, "a", 0));
    }
    assert!(!check(&store, &before, "a", 0));
    assert!(check(&store, &after, "a", 0));
    assert!(check(&store, &after, "a", 0));
    assert!(!check(&store, &after, "a", 0));
}

#[test]
fn a_policy_s_flood_of_keys_pushes_out_none_of_another_policy() {
    let store = MemoryStore::new(1_000).with_keys_per_policy_max(500);
    let (quiet, loud) = (per_second(10), per_second(10));
    for key in 0..400 {
        check(&store, &quiet, &format!("quiet {key}"), 0);
    }
    for key in 0..5_000 {
        check(&store, &loud, &format!("loud {key}"), 0);
    }
    assert_eq!((store.len(), store.evictions()), (900, 4_500));
    for key in 0..400 {
        let request = (format!("quiet {key}"), 0);
        let passed = (0..10).filter(|_| check(&store, &quiet, &request.0, request.1)).count();
        assert_eq!(passed, 9, "{key}");
    }
}

#[test]
fn more_rule_sets_than_ids_make_room_for_each_other() {
    let store = MemoryStore::new(8_000);
    let rule_sets: Vec<_> = (0..5_000).map(|_| per_second(1)).collect();
    for (key, rules) in rule_sets.iter().enumerate() {
        assert!(check(&store, rules, &key.to_string(), 0));
        assert!(!check(&store, rules, &key.to_string(), 0));
    }
    let ids = u64::from(bucket::ID_MAX);
    assert_eq!((store.len() as u64, store.evictions()), (ids, 5_000 - ids));
}

#[test]
fn threads_never_take_more_than_there_is() {
    let (store, rules) = (MemoryStore::default(), per_second(1_000));
    assert_eq!(taken(&store, &rules, &["a"], 1_000), 1_000);
}

/// Eight threads, each of which asks for every key `times` times; how often they got one.
fn taken<K: AsRef<str> + Sync>(
    store: &MemoryStore,
    rules: &Arc<RuleSet>,
    keys: &[K],
    times: usize,
) -> usize {
    let ask = |thread: usize| {
        // Each begins elsewhere, so that they meet now and then and not always.
        let (before, from) = keys.split_at(keys.len() * thread / 8);
        let all = || from.iter().chain(before);
        (0..times).flat_map(|_| all()).filter(|key| check(store, rules, key.as_ref(), 0)).count()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || ask(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    })
}

#[test]
fn threads_never_take_more_than_there_is_while_the_table_grows() {
    // Segments of 20 slots, so that 20,000 keys split them thousands of times.
    let store = MemoryStore::with_shards(4, 10_000, 4);
    let rules = per_second(3);
    let keys: Vec<_> = (0..20_000).map(|key| key.to_string()).collect();
    assert_eq!(taken(&store, &rules, &keys, 2), 60_000);
    assert_eq!((store.len(), store.evictions()), (20_000, 0));
}

#[test]
fn threads_never_take_more_than_there_is_of_used_up_budgets_in_a_flood() {
    let store = MemoryStore::with_shards(1, 100, 4);
    let rules = per_second(10);
    let busy: Vec<_> = (0..8).map(|key| format!("busy {key}")).collect();
    assert_eq!(taken(&store, &rules, &busy, 10), 80);
    let flood: Vec<_> = (0..2_000).map(|key| key.to_string()).collect();
    let asked: Vec<_> = flood.iter().chain(&busy).collect();
    let passed = taken(&store, &rules, &asked, 2);
    assert!(passed >= flood.len(), "a flood of new keys passes");
    assert_eq!(taken(&store, &rules, &busy, 1), 0, "used-up budgets are never pushed out");
    assert!(store.len() <= 100 && store.evictions() > 0);
}
