//! A snapshot is restored whole or not at all.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluicegate_kernel::algorithm::{Delay, WindowKind};
use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, LeakyBucket, Micros, Moment, NamedRule, PermitId, Rate, Rule,
    RuleSet, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket,
    Verb, Verdict,
};
use sluicegate_store::{MemoryStore, Quota, Restored, RuleOrigin, SnapshotError, StoreRequest};
use tempfile::TempDir;

const START: u64 = 1_700_000_000_000_000;

fn bucket(permits: u64) -> Arc<RuleSet> {
    let rate = Rate::per_second(permits).expect("it is not zero");
    set(TokenBucket::new(rate, permits).expect("in range").into())
}

fn set(rule: Rule) -> Arc<RuleSet> {
    Arc::new(RuleSet::single("rule", rule))
}

/// Returns these rules, whose keys all count to one quota.
fn in_quota(rules: &[Arc<RuleSet>]) -> Vec<(&'static str, Arc<RuleSet>)> {
    rules.iter().map(|rules| ("p", Arc::clone(rules))).collect()
}

fn check(store: &MemoryStore, rules: &Arc<RuleSet>, key: &str, now: u64) -> bool {
    let verb = Verb::Check { cost: Cost::ONE };
    let request = StoreRequest {
        policy: "p",
        key: key.as_bytes(),
        rules,
        verb: &verb,
        origin: RuleOrigin::default(),
        quota: Quota::default(),
    };
    let verdict = store.decide_now(&request, &Moment::new(Micros::new(now)));
    verdict.expect("every rule here knows check").decision.allowed()
}

/// Returns a directory with the snapshot of 1,000 keys that have used 1 to 4 of 5 permits a second.
fn saved() -> (TempDir, PathBuf) {
    let (directory, store, rules) =
        (tempfile::tempdir().unwrap(), MemoryStore::default(), bucket(5));
    for key in 0..1_000 {
        for _ in 0..=key % 4 {
            assert!(check(&store, &rules, &key.to_string(), START));
        }
    }
    let path = directory.path().join("state");
    assert_eq!(store.snapshot(&path).unwrap().keys, 1_000);
    (directory, path)
}

fn restore(path: &Path, keys_max: usize, now: u64) -> Result<(MemoryStore, Restored), String> {
    let restored = MemoryStore::restore(path, keys_max, &[("p", bucket(5))], Micros::new(now));
    restored.map_err(|error| error.to_string())
}

#[test]
fn what_was_used_is_used_after_a_restart_and_drains_by_the_time_that_has_passed() {
    let (_directory, path) = saved();
    // Whatever the new size, the keys are found: more shards, fewer, one.
    for keys_max in [1_000_000, 4_000_000, 40_000] {
        let (store, restored) = restore(&path, keys_max, START).unwrap();
        assert_eq!(restored, Restored { keys: 1_000, full: 0, other_rules: 0 });
        assert_eq!((store.len(), store.evictions()), (1_000, 0));
        let rules = bucket(5);
        for key in 0..1_000 {
            let left = (0..9).filter(|_| check(&store, &rules, &key.to_string(), START)).count();
            assert_eq!(left, 4 - key % 4, "{key}");
        }
    }
    // After 0.4 s two permits have come back: half of the keys are as good as new.
    let (store, restored) = restore(&path, 1_000_000, START + 400_000).unwrap();
    assert_eq!(restored, Restored { keys: 500, full: 500, other_rules: 0 });
    assert_eq!(store.len(), 500);
}

#[test]
fn a_state_is_taken_over_under_the_rules_that_wrote_it_and_no_others() {
    let (_directory, path) = saved();
    let now = Micros::new(START);
    let (store, restored) =
        MemoryStore::restore(&path, 1_000_000, &[("p", bucket(6))], now).unwrap();
    assert_eq!(restored, Restored { keys: 0, full: 0, other_rules: 1_000 });
    assert!(store.is_empty());
}

/// Returns every algorithm alone, two together, and as many as a policy may have.
fn every_kind() -> Vec<Arc<RuleSet>> {
    let (rate, second) = (Rate::per_second(3).unwrap(), Micros::SECOND);
    let first = WindowKind::First(second);
    let rules: Vec<Rule> = vec![
        TokenBucket::new(rate, 3).unwrap().into(),
        LeakyBucket::new(rate, 3, Delay::Above(1)).unwrap().into(),
        FixedWindow::new(3, first).unwrap().into(),
        SlidingWindow::new(3, second, 5).unwrap().into(),
        SlidingCounter::new(3, second).unwrap().into(),
        SlidingLog::new(3, second).unwrap().into(),
        SmoothBursty::new(rate, second).unwrap().into(),
        SmoothWarmup::new(rate, second, 3.0).unwrap().into(),
        Concurrency::new(3, second, 0).unwrap().into(),
    ];
    let together = |rules: &[Rule]| {
        let named = rules.iter().enumerate();
        let named = named
            .map(|(n, rule)| NamedRule { name: format!("rule-{n}").into(), rule: rule.clone() });
        Arc::new(RuleSet::new(named.collect()).expect("1 to 8 rules"))
    };
    let sets = rules.iter().map(|rule| set(rule.clone()));
    sets.chain([together(&rules[..2]), together(&rules[..8]), together(&rules[4..])]).collect()
}

/// Returns the answer of `store` about one permit of `key`, which it takes if it can.
fn take(store: &MemoryStore, rules: &Arc<RuleSet>, key: u32, now: u64) -> Verdict {
    let (cost, permit) = (Cost::ONE, PermitId(now.into()));
    let check = Verb::Check { cost };
    let verb = if rules.supports(&check).is_ok() { check } else { Verb::Acquire { cost, permit } };
    let request = StoreRequest {
        policy: "p",
        key: &key.to_le_bytes(),
        rules,
        verb: &verb,
        origin: RuleOrigin::default(),
        quota: Quota::default(),
    };
    store.decide_now(&request, &Moment::new(Micros::new(now))).expect("it is one of the two")
}

/// Keys of a small snapshot.
const KEYS: u32 = 24;

/// Returns a small snapshot of every kind of state, with its store and rules.
fn saved_of_every_kind() -> (TempDir, PathBuf, MemoryStore, Vec<Arc<RuleSet>>) {
    let (directory, store) = (tempfile::tempdir().unwrap(), MemoryStore::new(1_000));
    let rules = every_kind();
    for key in 0..KEYS {
        for step in 0..=u64::from(key % 4) {
            take(&store, &rules[key as usize % rules.len()], key, START + step * 1_000);
        }
    }
    let path = directory.path().join("state");
    let saved = store.snapshot(&path).unwrap();
    assert_eq!(saved.keys, u64::from(KEYS));
    assert_eq!(saved.bytes, fs::metadata(&path).unwrap().len());
    (directory, path, store, rules)
}

#[test]
fn every_algorithm_and_every_policy_goes_on_as_if_nothing_had_happened() {
    let (_directory, path, before, rules) = saved_of_every_kind();
    let now = Micros::new(START + 5_000);
    let (after, restored) = MemoryStore::restore(&path, 1_000, &in_quota(&rules), now).unwrap();
    assert_eq!(restored, Restored { keys: KEYS.into(), full: 0, other_rules: 0 });
    for step in 0..40 {
        for key in 0..KEYS {
            let rules = &rules[key as usize % rules.len()];
            let now = START + 5_000 + step * 37_000;
            let (expected, got) = (take(&before, rules, key, now), take(&after, rules, key, now));
            assert_eq!(got, expected, "key {key} in step {step} under {rules:?}");
        }
    }
}

#[test]
fn a_torn_file_is_refused_wherever_it_was_torn() {
    let (_directory, path, _, rules) = saved_of_every_kind();
    let whole = fs::read(&path).unwrap();
    let restore = || {
        let error = MemoryStore::restore(&path, 1_000, &in_quota(&rules), Micros::new(START)).err();
        error.expect("it is refused").to_string()
    };
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let reason =
            if length < 8 { "not a snapshot of a memory store" } else { "unexpected end of file" };
        let error = restore();
        assert!(error.contains(reason), "{length} bytes: {error}");
    }
    let longer = [&whole[..], &[0]].concat();
    fs::write(&path, longer).unwrap();
    assert!(restore().contains("trailing data"));
}

#[test]
fn a_file_with_any_byte_changed_is_refused() {
    let (_directory, path, _, rules) = saved_of_every_kind();
    let whole = fs::read(&path).unwrap();
    for byte in 0..whole.len() {
        for bits in [1 << (byte % 8), 0xff] {
            let mut changed = whole.clone();
            changed[byte] ^= bits;
            fs::write(&path, changed).unwrap();
            let restored =
                MemoryStore::restore(&path, 1_000, &in_quota(&rules), Micros::new(START));
            assert!(restored.is_err(), "byte {byte} with {bits:x} changed");
        }
    }
}

#[test]
fn a_state_that_no_key_can_have_is_refused_whoever_computed_the_checksum() {
    let (directory, path) = (tempfile::tempdir().unwrap(), "state");
    let (path, store) = (directory.path().join(path), MemoryStore::new(1_000));
    let log = set(SlidingLog::new(3, Micros::SECOND).unwrap().into());
    take(&store, &log, 1, START);
    store.snapshot(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // Head, number, hash, tag and length: then comes the sum of the log's costs.
    let sum_at = 40 + 4 + 16 + 8 + 4;
    assert_eq!(bytes[sum_at..sum_at + 8], [1, 0, 0, 0, 1, 0, 0, 0]);
    bytes[sum_at] = 2;
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error =
        MemoryStore::restore(&path, 1_000, &in_quota(&[log]), Micros::new(START)).err().unwrap();
    assert_eq!(error.to_string(), "snapshot: file is truncated or corrupt: invalid state");
}

#[test]
fn a_snapshot_under_load_holds_every_key_that_was_there_before() {
    let (directory, store, rules) =
        (tempfile::tempdir().unwrap(), MemoryStore::default(), bucket(5));
    let path = directory.path().join("state");
    for key in 0..5_000 {
        check(&store, &rules, &key.to_string(), START);
    }
    std::thread::scope(|scope| {
        // Grows the table, so that segments are split while they are written.
        scope.spawn(|| {
            for key in 5_000..200_000 {
                check(&store, &rules, &key.to_string(), START);
            }
        });
        for _ in 0..5 {
            store.snapshot(&path).unwrap();
            let rules = std::slice::from_ref(&rules);
            let (after, _) =
                MemoryStore::restore(&path, 1_000_000, &in_quota(rules), Micros::new(START))
                    .unwrap();
            for key in 0..5_000 {
                let left =
                    (0..9).filter(|_| check(&after, &rules[0], &key.to_string(), START)).count();
                assert_eq!(left, 4, "{key}");
            }
        }
    });
}

#[test]
fn a_foreign_or_newer_or_missing_file_is_refused_with_its_reason() {
    let (directory, path) = saved();
    let mut whole = fs::read(&path).unwrap();
    whole[8] = 4;
    fs::write(&path, &whole).unwrap();
    let error = restore(&path, 1_000, START).err().unwrap();
    assert_eq!(error, "snapshot: unsupported version `4`, expected 1..=3");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    let error = restore(&path, 1_000, START).err().unwrap();
    assert_eq!(error, "snapshot: not a snapshot of a memory store");
    let missing = directory.path().join("missing");
    let error = MemoryStore::restore(&missing, 1_000, &[], Micros::ZERO).err().unwrap();
    assert!(matches!(error, SnapshotError::Io(_)), "{error}");
}

#[test]
fn a_snapshot_replaces_the_one_before_and_leaves_nothing_beside_it() {
    let (directory, path) = saved();
    fs::write(directory.path().join("state.new"), "an attempt that did not come to its end")
        .unwrap();
    let store = MemoryStore::default();
    check(&store, &bucket(5), "only", START);
    assert_eq!(store.snapshot(&path).unwrap().keys, 1);
    assert_eq!(restore(&path, 1_000, START).unwrap().1.keys, 1);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("taken");
    fs::create_dir(&path).unwrap();
    assert!(matches!(MemoryStore::default().snapshot(&path), Err(SnapshotError::Io(_))));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
#[cfg(unix)]
fn only_the_owner_may_read_the_seed() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, path) = saved();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn keys_that_are_restored_count_to_their_policy_s_quota() {
    let (_directory, path) = saved();
    let (store, _) = restore(&path, 1_000_000, START).unwrap();
    let store = store.with_keys_per_policy_max(1);
    let rules = bucket(5);
    let verb = Verb::Check { cost: Cost::ONE };
    for key in 0..1_000_u32 {
        let (policy, key, quota) = ("p", &key.to_be_bytes()[..], Quota::of("p"));
        let request = StoreRequest {
            policy,
            key,
            rules: &rules,
            verb: &verb,
            origin: RuleOrigin::default(),
            quota,
        };
        store.decide_now(&request, &Moment::new(Micros::new(START))).unwrap();
    }
    // One a shard, and most shards have keys.
    assert!(store.overflows() > 900, "{} of new keys", store.overflows());
    assert_eq!(store.len() as u64, 2_000 - store.overflows());
}

#[test]
fn a_snapshot_of_the_future_gives_no_budget_back() {
    let hour = 3_600_000_000;
    let (_directory, path) = saved();
    // The clock has been put back by an hour; the restored store returns the later instant.
    let (store, restored) = restore(&path, 1_000_000, START - hour).unwrap();
    assert_eq!((restored.keys, restored.full), (1_000, 0));
    assert_eq!(store.latest(), Micros::new(START));
    let rules = bucket(5);
    for key in 0..1_000 {
        let left = (0..9).filter(|_| check(&store, &rules, &key.to_string(), START)).count();
        assert_eq!(left, 4 - key % 4, "{key}");
    }
    // A clock that uses the wall time nevertheless gives nothing back, and freezes no budget.
    let (store, _) = restore(&path, 1_000_000, START - hour).unwrap();
    let taken =
        |key: usize, at| (0..9).filter(|_| check(&store, &rules, &key.to_string(), at)).count();
    for key in 0..1_000 {
        assert_eq!(taken(key, START - hour), 4 - key % 4, "{key}");
    }
    for key in 0..1_000 {
        assert_eq!(taken(key, START - hour + 1_000_000), 5, "{key}");
    }
}

#[test]
fn a_file_of_the_version_before_is_read() {
    let (_directory, path) = saved();
    let mut bytes = fs::read(&path).unwrap();
    // Magic, version, seed, shards; then the instant that version 1 does not have.
    bytes[8] = 1;
    bytes.drain(32..40);
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&checksum);
    fs::write(&path, bytes).unwrap();
    let (store, restored) = restore(&path, 1_000_000, START).unwrap();
    assert_eq!((restored.keys, store.latest()), (1_000, Micros::ZERO));
}
