//! What callers of the memory store may rely on.

use sluicegate_kernel::{Cost, Micros, Rate, TokenBucket};

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
