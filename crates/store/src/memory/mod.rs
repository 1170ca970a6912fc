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
//! The state of one rule of constant size lies in the bucket itself, beside 64 bits of the key's hash: a
//! decision on a cold key misses the cache once. A longer state (several rules, logs) lies in a second place
//! that the bucket leads to.
//!
//! A state that is equal to no state at all is forgotten before a segment grows. At the hard cap, one of a
//! few budgets that are examined makes room, of any algorithm: the one with the most left of its limit,
//! since it loses the least. A key of which less than half is left makes no room for another. A new key
//! without room shares one budget with all others like it (`beyond_quota`), also if the quota of keys of its
//! policy is used up.

mod arena;
mod beyond_quota;
mod bucket;
mod key_hash;
#[cfg(test)]
mod model;
mod rules;
mod shard;
mod snapshot;
#[cfg(test)]
mod tests;

use std::hash::Hash;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use sluicegate_kernel::{
    Called, HeldPermits, Micros, Moment, PermitId, RuleSet, States, Unsupported, Verb, Verdict,
};

pub use self::key_hash::KeyHash;
pub use self::snapshot::{Restored, Saved, SnapshotError};

use self::arena::Arena;
use self::beyond_quota::KeysBeyondQuota;
use self::key_hash::KeyHasher;
use self::shard::{Shard, ShardLayout, TaggedRequest, TaggedRules};
use crate::{PolicyKey, Quota, RuleOrigin, StoreError, StoreRequest};

/// Most keys that a store holds by default: about 50 MB, and the memory of long states besides.
pub const KEYS_MAX_DEFAULT: usize = 1_000_000;

/// Bytes of long states (several rules, logs, sliding windows, held permits) by default, for each key that a store
/// may hold: a log of a handful of entries.
const STATE_BYTES_PER_KEY: usize = 256;

/// The lower bound of this default: a small store may hold some long logs too.
const STATE_BYTES_MIN: usize = 16 << 20;

/// Most keys that a store holds, whatever it is configured with: as many as 32 bits of bucket numbers can
/// address at the loosest packing.
pub const KEYS_MAX: usize = u32::MAX as usize;

/// Most shards: enough that dozens of threads seldom meet, few enough to stay in the caches.
const SHARDS_MAX: u32 = 1024;

/// Keys below which another shard is not worth its unevenness.
const KEYS_PER_SHARD_MIN: usize = 4096;

/// Buckets of the shortest segments; the longest have twice as many. The lengths in between let the
/// shards' segments fill up at different times: they never are all half empty at once.
const SEGMENT_BUCKETS_MIN: u32 = 64;

/// Keys that are fetched together: about as many cache lines as a core has under way at most, times
/// four.
const EXPECTED_TOGETHER_MAX: usize = 64;

/// State in memory, shared by all threads of this process.
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[CachePadded<Mutex<Shard>>]>,
    arena: Arena,
    beyond_quota: KeysBeyondQuota,
    hasher: KeyHasher,
}

/// A value with cache lines of its own, so that threads do not take them from each other.
#[derive(Debug)]
#[repr(align(64))]
struct CachePadded<T>(T);

impl MemoryStore {
    /// A store for at most `keys_max` keys (at least 1, at most [`KEYS_MAX`]).
    ///
    /// Address space is reserved for all of them, memory is only used for those that there are. The
    /// cap is shared out evenly to the shards, so a store is full when it holds a few keys less.
    ///
    /// # Panics
    /// If the system has no address space for so many.
    pub fn new(keys_max: usize) -> Self {
        let keys_max = keys_max.clamp(1, KEYS_MAX);
        let shards = u32::try_from(keys_max / KEYS_PER_SHARD_MIN).unwrap_or(u32::MAX);
        let shards = shards.clamp(1, SHARDS_MAX);
        Self::with_shards(shards, keys_max / shards as usize, SEGMENT_BUCKETS_MIN)
    }

    fn with_shards(shards: u32, keys_per_shard_max: usize, segment_buckets_min: u32) -> Self {
        let mut begin = 0;
        let mut plot = |shard: u32| {
            let buckets = segment_buckets_min + segment_buckets_min * shard / shards;
            begin += buckets;
            ShardLayout { begin: begin - buckets, buckets }
        };
        let bytes_max = (keys_per_shard_max * shards as usize).saturating_mul(STATE_BYTES_PER_KEY);
        let bytes_max = bytes_max.max(STATE_BYTES_MIN) / shards as usize;
        let shards = (0..shards)
            .map(|shard| {
                CachePadded(Mutex::new(Shard::new(plot(shard), keys_per_shard_max, bytes_max)))
            })
            .collect();
        // Segments that were split are a quarter full at least, save for a few.
        let slots = segment_buckets_min as usize * bucket::SLOTS;
        let arena = Arena::new(2 + 4 * keys_per_shard_max.div_ceil(slots), begin as usize);
        Self {
            shards,
            arena,
            beyond_quota: KeysBeyondQuota::default(),
            hasher: KeyHasher::random(),
        }
    }

    /// Limits the keys that count to the same [`Quota`] to `keys_max` (at least 1), so that a flood of keys
    /// of one policy leaves room for those of others. Beyond it keys that are full again make room, and if
    /// none is found, new keys share one budget or are refused.
    ///
    /// This cap is shared out to the shards as well, rounded up.
    #[must_use]
    pub fn with_keys_per_policy_max(mut self, keys_max: usize) -> Self {
        let keys_per_shard_max = keys_max.div_ceil(self.shards.len()).max(1);
        for shard in &mut self.shards {
            shard.0.get_mut().set_keys_per_quota_max(keys_per_shard_max);
        }
        self
    }

    /// Limits the long states (several rules, logs, sliding windows, held permits) to about `bytes` in all;
    /// by default 256 for each key, and at least 16 MiB. This cap is enforced like the cap of keys. Existing
    /// states can still grow, so for a moment it can be twice as much.
    ///
    /// This cap is shared out to the shards as well.
    #[must_use]
    pub fn with_state_bytes_max(mut self, bytes: usize) -> Self {
        let bytes_per_shard_max = bytes / self.shards.len();
        for shard in &mut self.shards {
            shard.0.get_mut().set_bytes_max(bytes_per_shard_max);
        }
        self
    }

    /// Returns the hash that stands for `key` under `policy`.
    pub fn hash(&self, policy: &str, key: &[u8]) -> KeyHash {
        self.hasher.hash(policy, key)
    }

    /// Returns the hash that stands for any value that can be hashed.
    #[inline]
    pub fn hash_of(&self, key: &(impl Hash + ?Sized)) -> KeyHash {
        self.hasher.hash_of(key)
    }

    /// Decides `request` at the moment `at`.
    ///
    /// # Errors
    /// [`Unsupported`] if the rules do not know the verb; no state was changed.
    pub fn decide_now(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        self.decide_request(self.hash(request.policy, request.key), request, at)
    }

    /// Decides `verb` on the key with the hash `key`; it counts to the quota without a name.
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
        let (policy, origin, quota) = ("", RuleOrigin::default(), Quota::default());
        self.decide_request(key, &StoreRequest { policy, key: &[], rules, verb, origin, quota }, at)
    }

    #[inline]
    fn decide_request(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        let mut has_room = true;
        // The lock of the shard is released before the shared budgets are locked.
        let decided = self.shard(key).decide(
            &self.arena,
            TaggedRequest { tag: key.tag, request, at },
            &mut has_room,
        );
        if has_room { decided } else { self.beyond_quota.decide(key, request, at) }
    }

    /// Fetches the memory that decisions on these keys will read, so that they do not
    /// wait for it one after the other. Changes nothing but speed.
    pub fn prefetch<'k>(&self, keys: impl IntoIterator<Item = PolicyKey<'k>>) {
        let mut keys =
            keys.into_iter().map(|PolicyKey { policy, key }| self.hash(policy, key)).peekable();
        while keys.peek().is_some() {
            let mut places = [0; EXPECTED_TOGETHER_MAX];
            let mut expected = 0;
            for (place, key) in places.iter_mut().zip(keys.by_ref()) {
                *place = self.shard(key).home(&self.arena, key.tag);
                expected += 1;
            }
            // No lock is taken between these, so that the processor has all of them under way.
            let seen = places[..expected].iter().map(|place| self.arena.touch(*place));
            std::hint::black_box(seen.fold(0, u64::wrapping_add));
        }
    }

    /// Records the permits of each of `rules` that are in use at `at`: `used` returns their number, given
    /// the place of a rule and the number here. Where it returns `None`, the state stays.
    pub fn record_usage(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        used: impl FnMut(usize, u64) -> Option<u64>,
        at: &Moment<'_>,
    ) {
        self.shard(key).record_usage(&self.arena, TaggedRules { tag: key.tag, rules }, used, at);
    }

    /// Returns the states of the key, in the units of `rules`.
    pub fn states(&self, key: KeyHash, rules: &Arc<RuleSet>, at: &Moment<'_>) -> States {
        self.shard(key).states(&self.arena, key.tag, rules, at)
    }

    /// Returns the waiting requests of a key that would pass now; none unless `request` is of a verb of permits, and its
    /// rules have a queue.
    pub(crate) fn called(&self, request: &StoreRequest<'_>, at: &Moment<'_>) -> Vec<Called> {
        let StoreRequest { policy, key, rules, verb, .. } = *request;
        if !verb.is_of_permits() || !rules.queues() {
            return Vec::new();
        }
        let states = self.states(self.hash(policy, key), rules, at);
        rules.called(&states, at)
    }

    /// Returns the permits that are held of the key of `request`, and how many requests wait.
    pub(crate) fn held_now(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<HeldPermits, StoreError> {
        let StoreRequest { policy, key, rules, .. } = *request;
        rules.supports(&Verb::Release { permit: PermitId(0) })?;
        let states = self.states(self.hash(policy, key), rules, at);
        if states.is_empty() && self.beyond_quota.is_in_use(rules, at) {
            // Whose they are is not remembered.
            let reason = "the store has no room for this key: its permits cannot be told from those of other keys";
            return Err(StoreError::Unreadable { reason: reason.to_owned() });
        }
        Ok(rules.held(&states, at))
    }

    /// Returns the number of keys with a state now.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().keys()).sum()
    }

    /// Returns the latest instant of a decision, also of one before the snapshot that it was restored from.
    pub fn latest(&self) -> Micros {
        let latest = self.shards.iter().map(|shard| shard.0.lock().latest());
        latest.max().unwrap_or_default()
    }

    /// Returns whether no key has a state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of budgets that were dropped at the cap although they were not full.
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().evictions()).sum()
    }

    /// Returns the number of requests whose keys had no state, and no room for one: a shared budget decided
    /// them, or they were refused.
    pub fn overflows(&self) -> u64 {
        self.beyond_quota.decisions()
    }

    /// Returns the bytes that long states take.
    pub fn state_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().bytes()).sum()
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
