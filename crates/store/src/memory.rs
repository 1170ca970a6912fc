//! The store in this process: shards of locked maps, bounded.
//!
//! A key is remembered by a keyed 128-bit hash of (policy, key), never as text, so that neither
//! memory dumps nor chosen collisions give anything away. One lock covers a decision, so several
//! rules are charged together or not at all.
//!
//! A state that says no more than no state at all is forgotten before the map grows, and at the
//! hard cap the fullest budget among a few makes room: whoever used the least loses the least.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128, SipHasher13};
use sluicegate_kernel::{Micros, Moment, RuleSet, States, Unsupported, Verb, Verdict};

use crate::Request;

/// Keys that a store holds at most unless told otherwise: about 200 MB at the outside.
pub const KEYS_MAX_DEFAULT: usize = 1_000_000;

/// Most shards: enough that a handful of threads seldom meet.
const SHARDS_MAX: usize = 64;

/// Keys below which another shard is not worth its unevenness.
const KEYS_PER_SHARD_MIN: usize = 4096;

/// Entries looked at to find one to evict: enough to find a full one, few enough not to be felt.
const EVICTION_SAMPLE_MAX: usize = 16;

/// State in memory, shared by all threads of this process.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    keys_per_shard_max: usize,
    seed: (u64, u64),
    evictions: AtomicU64,
}

/// A keyed hash that stands for (policy, key) in one store of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(u128);

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<u128, Entry, BuildHasherDefault<FoldHash>>,
    /// Insertions that may still come before the whole shard is looked through again.
    insertions_before_sweep: usize,
}

/// What is remembered of one key, with the rules that wrote it: they say in which units.
#[derive(Debug)]
struct Entry {
    rules: Arc<RuleSet>,
    states: States,
}

impl MemoryStore {
    /// A store for at most `keys_max` keys (at least 1).
    pub fn new(keys_max: usize) -> Self {
        let shards = (keys_max / KEYS_PER_SHARD_MIN).clamp(1, SHARDS_MAX);
        let random = RandomState::new();
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            keys_per_shard_max: (keys_max / shards).max(1),
            seed: (random.hash_one(0), random.hash_one(1)),
            evictions: AtomicU64::new(0),
        }
    }

    /// The hash that stands for `key` under `policy`.
    pub fn hash(&self, policy: &str, key: &[u8]) -> KeyHash {
        self.hash_of(&(policy, key))
    }

    /// The hash that stands for any value that can be hashed.
    pub fn hash_of(&self, key: &(impl Hash + ?Sized)) -> KeyHash {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        key.hash(&mut hasher);
        KeyHash(hasher.finish128().as_u128())
    }

    /// Decides `request` at the moment `at`.
    ///
    /// # Errors
    /// [`Unsupported`] if the rules do not know the verb; no state was changed.
    pub fn decide_now(
        &self,
        request: &Request<'_>,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        let key = self.hash(request.policy, request.key);
        self.decide_hashed(key, request.rules, request.verb, at)
    }

    /// Decides `verb` on the key that `key` stands for.
    ///
    /// # Errors
    /// [`Unsupported`] if the rules do not know the verb; no state was changed.
    pub fn decide_hashed(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        verb: &Verb,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        let mut shard = self.shard(key);
        if let Some(entry) = shard.entries.get_mut(&key.0) {
            if !Arc::ptr_eq(&entry.rules, rules) {
                return decide_under_new_rules(&mut shard, key, rules, verb, at);
            }
            let verdict = rules.decide(&mut entry.states, verb, at)?;
            if matches!(verb, Verb::Reset) {
                shard.entries.remove(&key.0);
            }
            return Ok(verdict);
        }
        let mut states = States::default();
        let verdict = rules.decide(&mut states, verb, at)?;
        if !states.is_empty() {
            self.make_room(&mut shard, at.now());
            shard.entries.insert(key.0, Entry { rules: Arc::clone(rules), states });
        }
        Ok(verdict)
    }

    /// Puts down that `used` permits of rule `rule` are in use, as somebody who knows better says.
    pub fn learn(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        (rule, used): (usize, u64),
        at: &Moment<'_>,
    ) {
        let mut shard = self.shard(key);
        let entry = shard.entries.remove(&key.0);
        let mut states = match entry {
            Some(entry) if Arc::ptr_eq(&entry.rules, rules) => entry.states,
            Some(entry) => rules.take_over(&entry.rules, &entry.states, at),
            None => States::default(),
        };
        rules.set_used(&mut states, rule, used, at);
        if !states.is_empty() {
            self.make_room(&mut shard, at.now());
            shard.entries.insert(key.0, Entry { rules: Arc::clone(rules), states });
        }
    }

    /// Keys that are remembered now.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).entries.len()).sum()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Budgets that were dropped at the cap although they were not full.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    fn shard(&self, key: KeyHash) -> MutexGuard<'_, Shard> {
        let place = usize::try_from((key.0 >> 64) % self.shards.len() as u128)
            .expect("a remainder of the number of shards");
        lock(&self.shards[place])
    }

    /// Before an insertion that would make the map grow or pass its cap.
    fn make_room(&self, shard: &mut Shard, now: Micros) {
        let at_cap = shard.entries.len() >= self.keys_per_shard_max;
        if !at_cap && shard.entries.len() < shard.entries.capacity() {
            return;
        }
        if !at_cap || shard.insertions_before_sweep == 0 {
            shard.entries.retain(|_, entry| !is_forgettable(entry, now));
            // At the cap, where every insertion comes by, the next sweep waits its turn.
            shard.insertions_before_sweep = if at_cap { shard.entries.len() / 2 } else { 0 };
        }
        shard.insertions_before_sweep = shard.insertions_before_sweep.saturating_sub(1);
        while shard.entries.len() >= self.keys_per_shard_max {
            let sample = shard.entries.iter().take(EVICTION_SAMPLE_MAX);
            let fullest = sample.min_by_key(|(_, entry)| entry.rules.full_at(&entry.states));
            let Some((&key, entry)) = fullest else { return };
            if !is_forgettable(entry, now) {
                self.evictions.fetch_add(1, Ordering::Relaxed);
            }
            shard.entries.remove(&key);
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(KEYS_MAX_DEFAULT)
    }
}

/// The first decision under rules other than those that wrote the state: the state is taken over
/// first. If the verb is refused as unsupported, the old state stays.
fn decide_under_new_rules(
    shard: &mut Shard,
    key: KeyHash,
    rules: &Arc<RuleSet>,
    verb: &Verb,
    at: &Moment<'_>,
) -> Result<Verdict, Unsupported> {
    let entry =
        shard.entries.get_mut(&key.0).expect("the caller holds the lock and has seen the entry");
    let mut states = rules.take_over(&entry.rules, &entry.states, at);
    let verdict = rules.decide(&mut states, verb, at)?;
    if matches!(verb, Verb::Peek { .. }) {
        return Ok(verdict);
    }
    if states.is_empty() {
        shard.entries.remove(&key.0);
    } else {
        *entry = Entry { rules: Arc::clone(rules), states };
    }
    Ok(verdict)
}

fn is_forgettable(entry: &Entry, now: Micros) -> bool {
    entry.rules.forgettable_at(&entry.states).is_some_and(|at| at <= now)
}

/// The shard, also after a panic elsewhere: a decision writes its state in one assignment.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Folds what is already a hash.
#[derive(Debug, Default)]
struct FoldHash(u64);

impl Hasher for FoldHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low half is the hash")]
    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::{Cost, Rate, TokenBucket};

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
    fn threads_never_take_more_than_there_is() {
        let (store, rules) = (MemoryStore::default(), per_second(1_000));
        let passed = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| (0..1_000).filter(|_| check(&store, &rules, "a", 0)).count())
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(passed, 1_000);
    }
}
