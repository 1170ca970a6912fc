//! The store in this process: shards of small tables, bounded.
//!
//! A key is remembered by a keyed hash of (policy, key), never as text, so that neither memory dumps
//! nor chosen collisions give anything away. One lock covers a decision, so several rules are
//! charged together or not at all.
//!
//! ```text
//! (policy, key) ─▶ SipHash-1-3, 128 bits ─▶ shard (a lock) ─▶ segment ─▶ bucket: tag, rules, state
//! ```
//!
//! The state of one rule of constant size lies in the bucket itself, beside 64 bits of the key's
//! hash: a decision on a cold key misses the cache once. What is longer (several rules, logs) lies
//! in a second place that the bucket leads to.
//!
//! A state that says no more than no state at all is forgotten before a segment grows, and at the
//! hard cap the fullest budget among a few makes room: whoever used the least loses the least.

mod arena;
mod bucket;
mod rules;
mod shard;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use siphasher::sip128::{Hasher128, SipHasher13};
use sluicegate_kernel::{Moment, RuleSet, Unsupported, Verb, Verdict};

use self::arena::Arena;
use self::bucket::SLOTS;
use self::shard::{Limits, Shard};
use crate::Request;

/// Keys that a store holds at most unless told otherwise: about 40 MB.
pub const KEYS_MAX_DEFAULT: usize = 1_000_000;

/// Keys that a store holds at most, whatever it is told: what 32 bits of bucket numbers can address
/// at the loosest packing.
pub const KEYS_MAX: usize = u32::MAX as usize;

/// Most shards: enough that dozens of threads seldom meet, few enough to stay in the caches.
const SHARDS_MAX: usize = 1024;

/// Keys below which another shard is not worth its unevenness.
const KEYS_PER_SHARD_MIN: usize = 4096;

/// Buckets of the shortest segments; the longest have twice as many. The lengths in between let the
/// shards' segments fill up at different times: they never are all half empty at once.
const SEGMENT_BUCKETS_MIN: usize = 64;

/// State in memory, shared by all threads of this process.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Line<Mutex<Shard>>]>,
    arena: Arena,
    seed: (u64, u64),
}

/// A keyed hash that stands for (policy, key) in one store of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash {
    shard: u64,
    tag: u64,
}

/// A value with cache lines of its own, so that threads do not take them from each other.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

impl MemoryStore {
    /// A store for at most `keys_max` keys (at least 1, at most [`KEYS_MAX`]).
    ///
    /// Address space is reserved for all of them, memory is only used for those that there are.
    ///
    /// # Panics
    /// If the system has no address space for so many.
    pub fn new(keys_max: usize) -> Self {
        Self::with_limits(keys_max, usize::MAX)
    }

    /// A store for at most `keys_max` keys, of which at most `keys_per_policy_max` (at least 1) are
    /// held to the same rules, so that a flood of keys of one policy does not push out others.
    ///
    /// Both limits are shared out evenly to the store's shards, so that a policy with few keys may
    /// reach its limit some per cent early.
    ///
    /// # Panics
    /// If the system has no address space for so many.
    pub fn with_limits(keys_max: usize, keys_per_policy_max: usize) -> Self {
        let keys_max = keys_max.clamp(1, KEYS_MAX);
        let shards = (keys_max / KEYS_PER_SHARD_MIN).clamp(1, SHARDS_MAX);
        let limits = Limits {
            keys_max: keys_max / shards,
            keys_per_rules_max: (keys_per_policy_max / shards).max(1),
        };
        let lengths =
            (0..shards).map(|shard| SEGMENT_BUCKETS_MIN + SEGMENT_BUCKETS_MIN * shard / shards);
        // Split segments are at least a quarter full, save for a few.
        let arena = Arena::new(lengths.clone().sum::<usize>() * 2 + keys_max.div_ceil(SLOTS) * 4);
        let shard = |length| Line(Mutex::new(Shard::new(&arena, length, limits)));
        let shards = lengths.map(shard).collect();
        let random = RandomState::new();
        Self { shards, arena, seed: (random.hash_one(0), random.hash_one(1)) }
    }

    /// The hash that stands for `key` under `policy`.
    pub fn hash(&self, policy: &str, key: &[u8]) -> KeyHash {
        self.hash_of(&(policy, key))
    }

    /// The hash that stands for any value that can be hashed.
    #[inline]
    pub fn hash_of(&self, key: &(impl Hash + ?Sized)) -> KeyHash {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        key.hash(&mut hasher);
        let hash = hasher.finish128();
        KeyHash { shard: hash.h1, tag: hash.h2 }
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
    #[inline]
    pub fn decide_hashed(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        verb: &Verb,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        self.shard(key).decide(&self.arena, key.tag, (rules, verb), at)
    }

    /// Keys that are remembered now.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().keys()).sum()
    }

    /// Whether no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Budgets that were dropped at the cap although they were not full.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().evictions()).sum()
    }

    #[inline]
    fn shard(&self, key: KeyHash) -> MutexGuard<'_, Shard> {
        let place = (u128::from(key.shard) * self.shards.len() as u128) >> 64;
        let place = usize::try_from(place).expect("a part of the number of shards");
        self.shards[place].0.lock()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(KEYS_MAX_DEFAULT)
    }
}

#[cfg(test)]
mod tests {
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
