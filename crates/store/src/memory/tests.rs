//! Guarantees to callers of the memory store.

use proptest::prelude::*;
use sluicegate_kernel::algorithm::{CalendarUnit, Delay, WindowKind};
use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, LeakyBucket, Micros, PermitId, Rate, Rule, SlidingCounter,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket, Window,
};

use super::key_hash::KeyLayout;
use super::*;
use crate::BeyondQuota;

fn per_second(permits: u64) -> Arc<RuleSet> {
    let bucket = TokenBucket::new(Rate::per_second(permits).unwrap(), permits).unwrap();
    Arc::new(RuleSet::single("burst", bucket))
}

fn check(store: &MemoryStore, rules: &Arc<RuleSet>, key: &str, at_us: u64) -> bool {
    check_in(store, Quota::default(), rules, (key, at_us))
}

fn check_in(
    store: &MemoryStore,
    quota: Quota<'_>,
    rules: &Arc<RuleSet>,
    (key, at_us): (&str, u64),
) -> bool {
    let verb = Verb::Check { cost: Cost::ONE };
    let request = StoreRequest {
        policy: "p",
        key: key.as_bytes(),
        rules,
        verb: &verb,
        origin: RuleOrigin::default(),
        quota,
    };
    let moment = Moment::new(Micros::new(at_us));
    store.decide_now(&request, &moment).unwrap().decision.allowed()
}

/// Returns whether the caller with this number takes a permit of one key under `rules` at `at_us`.
/// It passes the calendar window around that instant, where the rules need one.
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

/// Returns a rule of every algorithm, and the most that it lets pass from the beginning on in ten
/// seconds.
fn bounded() -> Vec<(Rule, usize)> {
    let (rate, second) = (Rate::per_second(10).unwrap(), Micros::SECOND);
    let day = WindowKind::Calendar(CalendarUnit::Day, "UTC".into());
    vec![
        (TokenBucket::new(rate, 5).unwrap().into(), 5 + 100),
        (LeakyBucket::new(rate, 5, Delay::None).unwrap().into(), 6 + 100),
        (FixedWindow::epoch(10, second).unwrap().into(), 10 * 11),
        (FixedWindow::first(10, second).unwrap().into(), 10 * 11),
        // Half of the time lies before the end of the day.
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
    // The clock goes back by so little that a caller may have been overtaken: for that long nothing
    // is added.
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
}

#[test]
fn a_refusal_or_a_peek_leaves_no_key_behind() {
    let (store, rules) = (MemoryStore::default(), per_second(1));
    let verb = Verb::Peek { cost: Cost::ONE };
    let quota = Quota::default();
    let request = StoreRequest {
        policy: "p",
        key: b"a",
        rules: &rules,
        verb: &verb,
        origin: RuleOrigin::default(),
        quota,
    };
    store.decide_now(&request, &Moment::new(Micros::ZERO)).unwrap();
    let verb = Verb::Check { cost: Cost::new(2).unwrap() };
    let request = StoreRequest { verb: &verb, ..request };
    store.decide_now(&request, &Moment::new(Micros::ZERO)).unwrap();
    assert!(store.is_empty());
}

#[test]
fn what_is_expected_is_decided_as_if_it_was_not() {
    let (store, rules) = (MemoryStore::new(100_000), per_second(2));
    let names: Vec<_> = (0..1_000).map(|key| key.to_string()).collect();
    for expected in [0, 1, EXPECTED_TOGETHER_MAX, EXPECTED_TOGETHER_MAX + 1, names.len()] {
        let before = store.len();
        store.prefetch(
            names[..expected].iter().map(|key| PolicyKey { policy: "p", key: key.as_bytes() }),
        );
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
        check_in(&store, Quota::of("quiet"), &quiet, (&format!("quiet {key}"), 0));
    }
    let passed = (0..5_000)
        .filter(|key| check_in(&store, Quota::of("loud"), &loud, (&format!("loud {key}"), 0)));
    assert_eq!(passed.count(), 500 + 10, "those with a budget of their own, and the shared one");
    assert_eq!((store.len(), store.evictions(), store.overflows()), (900, 0, 4_500));
    for key in 0..400 {
        let key = format!("quiet {key}");
        let again = || check_in(&store, Quota::of("quiet"), &quiet, (&key, 0));
        assert_eq!((0..10).filter(|_| again()).count(), 9, "{key}");
    }
}

#[test]
fn the_overrides_of_a_policy_count_to_its_quota() {
    let store = MemoryStore::new(1_000).with_keys_per_policy_max(10);
    let rule_sets: Vec<_> = (0..20).map(|_| per_second(1)).collect();
    for (key, rules) in rule_sets.iter().enumerate() {
        check_in(&store, Quota::of("p"), rules, (&key.to_string(), 0));
    }
    assert_eq!((store.len(), store.overflows()), (10, 10));
    assert!(check_in(&store, Quota::of("other"), &rule_sets[0], ("a", 0)));
    assert_eq!(store.len(), 11, "another policy has its own");
}

#[test]
fn beyond_a_quota_keys_that_are_full_again_make_room_and_no_others() {
    let store = MemoryStore::new(1_000).with_keys_per_policy_max(10);
    let (rules, quota) = (per_second(2), Quota::of("p"));
    for key in 0..10 {
        check_in(&store, quota, &rules, (&key.to_string(), 100_000 * key));
    }
    // The first is full again half a second after it was used.
    assert!(check_in(&store, quota, &rules, ("a", 900_000)));
    assert_eq!(store.overflows(), 0);
    let denied = Quota { beyond: BeyondQuota::Deny, ..quota };
    let full = MemoryStore::new(1_000).with_keys_per_policy_max(1);
    assert!(check_in(&full, denied, &rules, ("a", 0)));
    assert!(!check_in(&full, denied, &rules, ("b", 0)), "there is no room");
    assert!(check_in(&full, denied, &rules, ("a", 0)), "its own budget");
    assert!(check_in(&full, denied, &rules, ("b", 1_000_000)), "it is full again");
    assert_eq!((full.len(), full.overflows(), full.evictions()), (1, 1, 0));
}

#[test]
fn a_key_without_a_budget_of_its_own_is_neither_reset_nor_refunded_and_the_answer_shows_it() {
    let (rules, three) = (per_second(3), Cost::new(3).unwrap());
    for (beyond, left) in [(BeyondQuota::Share, 1), (BeyondQuota::Deny, 0)] {
        let store = MemoryStore::new(1_000).with_keys_per_policy_max(1);
        let quota = Quota { beyond, ..Quota::of("p") };
        let ask = |key: &str, verb: &Verb| {
            let (key, rules, origin) = (key.as_bytes(), &rules, RuleOrigin::default());
            let request = StoreRequest { policy: "p", key, rules, verb, origin, quota };
            store.decide_now(&request, &Moment::new(Micros::ZERO)).unwrap().decision
        };
        for verb in [Verb::Refund { cost: three }, Verb::Reset] {
            assert_eq!(ask("new", &verb).remaining, 3, "there is room: {beyond:?}");
        }
        ask("own", &Verb::Check { cost: three });
        ask("shares", &Verb::Check { cost: Cost::new(2).unwrap() });
        for verb in [Verb::Refund { cost: three }, Verb::Reset] {
            for key in ["shares", "new"] {
                let answer = ask(key, &verb);
                let seen = (answer.allowed(), answer.granted(), answer.remaining);
                assert_eq!(seen, (true, 0, left), "{key}: {verb:?}, {beyond:?}");
                let look = ask(key, &Verb::Peek { cost: Cost::ONE });
                assert_eq!(look.remaining, left, "{key} after {verb:?}, {beyond:?}");
            }
        }
        assert_eq!(ask("own", &Verb::Refund { cost: Cost::ONE }).granted(), 1);
        assert_eq!(ask("own", &Verb::Reset).remaining, 3);
    }
}

#[test]
fn permits_of_the_shared_budget_come_back_to_it() {
    let store = MemoryStore::new(1_000).with_keys_per_policy_max(1);
    let hold = Concurrency::new(2, Micros::SECOND, 0).unwrap();
    let rules = Arc::new(RuleSet::single("slots", hold));
    let ask = |key: &str, verb: &Verb| {
        let key = key.as_bytes();
        let request = StoreRequest {
            policy: "p",
            key,
            rules: &rules,
            verb,
            origin: RuleOrigin::default(),
            quota: Quota::of("p"),
        };
        let at = Moment::new(Micros::ZERO);
        store.decide_now(&request, &at).unwrap().decision.allowed()
    };
    let permit = PermitId::named("mine");
    let (acquire, release) = (Verb::Acquire { cost: Cost::ONE, permit }, Verb::Release { permit });
    assert!(ask("own", &acquire));
    // Permits with one name, of two keys.
    assert!(ask("a", &acquire) && ask("b", &acquire));
    assert!(!ask("a", &acquire), "it holds it");
    assert!(!ask("c", &acquire), "both are held");
    assert!(!ask("c", &release), "it holds none");
    assert!(ask("a", &release) && !ask("a", &release));
    assert!(ask("c", &acquire));
    assert!(ask("own", &release));
}

#[test]
fn the_key_with_the_most_left_goes_first_and_none_with_less_than_half() {
    let (store, rules) = (MemoryStore::new(8), per_second(10));
    let take = |key: &str, permits: u64| {
        (0..permits).filter(|_| check(&store, &rules, key, 0)).count() as u64
    };
    let left = |key: u64| {
        let verb = Verb::Peek { cost: Cost::ONE };
        let (key, quota) = (key.to_string(), Quota::default());
        let key = key.as_bytes();
        let request = StoreRequest {
            policy: "p",
            key,
            rules: &rules,
            verb: &verb,
            origin: RuleOrigin::default(),
            quota,
        };
        let seen = store.decide_now(&request, &Moment::new(Micros::ZERO)).unwrap();
        seen.decision.remaining
    };
    for key in 0..8 {
        assert_eq!(take(&key.to_string(), key + 1), key + 1);
    }
    // Each new key takes six at once, so that none of the new keys has to go.
    for (newcomer, gone) in ["a", "b", "c", "d", "e"].into_iter().zip(0..) {
        let before: Vec<_> = (gone..8).map(left).collect();
        assert_eq!(before, (gone..8).map(|key| 9 - key).collect::<Vec<_>>());
        assert_eq!(take(newcomer, 6), 6, "{newcomer}");
        assert_eq!(store.evictions(), gone + 1);
    }
    // Each of the remaining keys has less than half left: the next ones share a budget.
    assert_eq!(take("f", 6) + take("g", 6), 10);
    assert_eq!((store.evictions(), store.overflows()), (5, 12));
    assert_eq!((5..8).map(|key| take(&key.to_string(), 10)).collect::<Vec<_>>(), [4, 3, 2]);
}

#[test]
fn long_states_are_bounded_in_bytes() {
    let log = SlidingLog::new(1_000, Micros::from_secs(3_600)).unwrap();
    let rules = Arc::new(RuleSet::single("log", log));
    let bytes_max = 1 << 20;
    let store = MemoryStore::with_shards(1, 100_000, 64).with_state_bytes_max(bytes_max);
    for key in 0..20_000 {
        check(&store, &rules, &key.to_string(), 0);
    }
    assert!(store.state_bytes() <= bytes_max, "{} bytes", store.state_bytes());
    assert!(store.evictions() > 0, "keys with one entry make room");
    // Now they grow: those of which more than half is left make room for those that are used.
    for round in 0..1_000 {
        for key in 0..200 {
            check(&store, &rules, &key.to_string(), round);
        }
        let bytes = store.state_bytes();
        assert!(bytes <= 2 * bytes_max, "{bytes} bytes after {round} rounds");
    }
    assert!(store.overflows() > 0, "where nothing makes room, new keys share a budget");
}

#[test]
fn where_a_segment_is_full_a_peek_shows_the_budget_that_keys_share() {
    let (store, rules) = (MemoryStore::with_shards(1, 20, 2), per_second(4));
    let at = Moment::new(Micros::SECOND);
    // Tags that no split tells apart.
    let ask = |tag: u64, verb: &Verb| {
        let verdict = store.decide_hashed(KeyHash { shard: 0, tag }, &rules, verb, &at);
        verdict.unwrap().decision
    };
    let three = Cost::new(3).unwrap();
    for tag in 0..10 {
        assert_eq!(ask(tag, &Verb::Check { cost: three }).remaining, 1);
    }
    assert_eq!(ask(10, &Verb::Check { cost: three }).remaining, 1);
    assert_eq!((store.len(), store.overflows(), store.evictions()), (10, 1, 0));
    for tag in 10..12 {
        assert_eq!(ask(tag, &Verb::Peek { cost: three }).remaining, 1, "of the shared budget");
    }
    // A key of the segment makes room for one that comes there, and none of another segment does.
    ask(3, &Verb::Refund { cost: three });
    ask(u64::MAX, &Verb::Check { cost: Cost::ONE });
    assert!(ask(12, &Verb::Check { cost: three }).allowed());
    assert_eq!((store.len(), store.overflows()), (11, 3));
}

#[test]
fn more_rule_sets_than_ids_share_what_they_can_and_push_nobody_out() {
    let store = MemoryStore::new(8_000);
    let rule_sets: Vec<_> = (0..5_000).map(|_| per_second(1)).collect();
    for (key, rules) in rule_sets.iter().enumerate() {
        assert!(check(&store, rules, &key.to_string(), 0));
        assert!(!check(&store, rules, &key.to_string(), 0));
    }
    let ids = u64::from(bucket::ID_MAX);
    assert_eq!((store.len() as u64, store.evictions()), (ids, 0));
    assert!(!check(&store, &rule_sets[0], "0", 0), "it keeps its state");
    // A key under rules without an id keeps its state, too.
    check(&store, &rule_sets[1], "another key of these rules", 0);
    assert!(!check(&store, &rule_sets[4_999], "1", 0));
    assert!(!check(&store, &rule_sets[1], "1", 0));
}

#[test]
fn threads_never_take_more_than_there_is() {
    let (store, rules) = (MemoryStore::default(), per_second(1_000));
    assert_eq!(taken(&store, &rules, &["a"], 1_000), 1_000);
}

/// Runs eight threads, each of which asks for every key `times` times; returns how many permits they
/// got.
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

#[test]
fn a_store_of_an_earlier_snapshot_finds_its_keys_and_writes_that_version_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.snap");
    let rules = per_second(1);
    let mut store = MemoryStore::new(1_000);
    store.hasher.layout = KeyLayout::LengthFirst;
    assert!(check(&store, &rules, "a", 0));
    for (new, version) in [("b", 2), ("c", 1)] {
        store.snapshot(&path).unwrap();
        let mut file = std::fs::read(&path).unwrap();
        assert_eq!(file[8], 2, "the version");
        if version == 1 {
            // Without the instant after magic, version, seed and shards.
            file[8] = 1;
            file.drain(32..40);
            let end = file.len() - 4;
            let checksum = crc32fast::hash(&file[..end]).to_le_bytes();
            file[end..].copy_from_slice(&checksum);
            std::fs::write(&path, file).unwrap();
        }
        let ours = [("p", Arc::clone(&rules))];
        (store, _) = MemoryStore::restore(&path, 1_000, &ours, Micros::ZERO).unwrap();
        assert!(!check(&store, &rules, "a", 0), "it is used up");
        assert!(check(&store, &rules, new, 0));
    }
    store.snapshot(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap()[8], 2, "the version");
}
