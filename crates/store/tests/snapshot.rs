//! A snapshot is taken over whole or not at all.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluicegate_kernel::{
    Cost, Micros, Moment, Rate, Rule, RuleSet, SlidingLog, SmoothBursty, TokenBucket, Verb,
};
use sluicegate_store::{MemoryStore, Request, Restored, Saved, SnapshotError};
use tempfile::TempDir;

const START: u64 = 1_700_000_000_000_000;

fn bucket(permits: u64) -> Arc<RuleSet> {
    let rate = Rate::per_second(permits).expect("it is not zero");
    set(TokenBucket::new(rate, permits).expect("in range").into())
}

fn set(rule: Rule) -> Arc<RuleSet> {
    Arc::new(RuleSet::single("rule", rule))
}

fn check(store: &MemoryStore, rules: &Arc<RuleSet>, key: &str, now: u64) -> bool {
    let verb = Verb::Check { cost: Cost::ONE };
    let request = Request { policy: "p", key: key.as_bytes(), rules, verb: &verb };
    let verdict = store.decide_now(&request, &Moment::new(Micros::new(now)));
    verdict.expect("every rule here knows check").decision.allowed()
}

/// A directory with the snapshot of 1,000 keys that have used 1 to 4 of 5 permits a second.
fn saved() -> (TempDir, PathBuf) {
    let (directory, store, rules) =
        (tempfile::tempdir().unwrap(), MemoryStore::default(), bucket(5));
    for key in 0..1_000 {
        for _ in 0..=key % 4 {
            assert!(check(&store, &rules, &key.to_string(), START));
        }
    }
    let path = directory.path().join("state");
    assert_eq!(store.snapshot(&path).unwrap(), Saved { keys: 1_000, left_out: 0 });
    (directory, path)
}

fn restore(path: &Path, keys_max: usize, now: u64) -> Result<(MemoryStore, Restored), String> {
    let restored = MemoryStore::restore(path, keys_max, &[bucket(5)], Micros::new(now));
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
    let (store, restored) = MemoryStore::restore(&path, 1_000_000, &[bucket(6)], now).unwrap();
    assert_eq!(restored, Restored { keys: 0, full: 0, other_rules: 1_000 });
    assert!(store.is_empty());
}

#[test]
fn longer_states_are_left_out_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (path, store) = (directory.path().join("state"), MemoryStore::default());
    let log = set(SlidingLog::new(3, Micros::SECOND).unwrap().into());
    let rate = Rate::per_second(3).unwrap();
    let bursty = set(SmoothBursty::new(rate, Micros::SECOND).unwrap().into());
    check(&store, &log, "log", START);
    check(&store, &bursty, "bursty", START);
    assert_eq!(store.snapshot(&path).unwrap(), Saved { keys: 1, left_out: 1 });
    let (store, restored) =
        MemoryStore::restore(&path, 1_000, &[log, bursty], Micros::new(START)).unwrap();
    assert_eq!((store.len(), restored.keys), (1, 1));
}

#[test]
fn a_torn_file_is_refused_wherever_it_was_torn() {
    let (_directory, path) = saved();
    let whole = fs::read(&path).unwrap();
    for length in (0..200).chain((200..whole.len()).step_by(97)).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..length]).unwrap();
        let error = restore(&path, 1_000_000, START).err().unwrap();
        let reason = if length < 8 { "is not one of a memory store" } else { "ends too early" };
        assert!(error.contains(reason), "{length} bytes: {error}");
    }
    let longer = [&whole[..], &[0]].concat();
    fs::write(&path, longer).unwrap();
    assert!(restore(&path, 1_000_000, START).err().unwrap().contains("behind its end"));
}

#[test]
fn a_file_with_any_bit_changed_is_refused() {
    let (_directory, path) = saved();
    let whole = fs::read(&path).unwrap();
    for byte in (0..120).chain((120..whole.len()).step_by(61)) {
        let mut changed = whole.clone();
        changed[byte] ^= 1 << (byte % 8);
        fs::write(&path, changed).unwrap();
        assert!(restore(&path, 1_000_000, START).is_err(), "byte {byte}");
    }
}

#[test]
fn a_foreign_or_newer_or_missing_file_is_refused_with_its_reason() {
    let (directory, path) = saved();
    let mut whole = fs::read(&path).unwrap();
    whole[8] = 2;
    fs::write(&path, &whole).unwrap();
    let error = restore(&path, 1_000, START).err().unwrap();
    assert_eq!(error, "snapshot: the file has version `2`, expected 1..=1");
    fs::write(&path, "#!/bin/sh\n").unwrap();
    let error = restore(&path, 1_000, START).err().unwrap();
    assert_eq!(error, "snapshot: the file is not one of a memory store");
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
