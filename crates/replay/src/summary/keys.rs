//! The number of keys, and the keys that were refused the most, in bounded memory.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use foldhash::quality::RandomState;

/// Most keys that are counted one by one: 16 MB of hashes.
const DISTINCT_MAX: usize = 1_000_000;

/// Most refused keys whose text is kept at a time: 75 MB even of the longest keys.
const REFUSED_MAX: usize = 65_536;

/// The keys of a replay.
///
/// A key, together with its policy, is represented by a 64-bit hash with a random seed: among a million
/// keys the chance that any two are confused is below one in ten million.
#[derive(Debug)]
pub(crate) struct Keys {
    hasher: RandomState,
    distinct: HashSet<u64, BuildHasherDefault<Identity>>,
    refused: HashMap<u64, RefusalCount, BuildHasherDefault<Identity>>,
    refused_max: usize,
    /// Every count of a refused key may be too high by this much: keys that came and were dropped
    /// to make room had this many refusals at most.
    excess: u64,
    overflowed: bool,
}

/// A key and the number of its refusals.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RefusalCount {
    /// Its refusals.
    pub(crate) count: u64,
    /// The policy.
    pub(crate) policy: Box<str>,
    /// The key; `None` is the budget that all share.
    pub(crate) key: Option<Box<[u8]>>,
}

impl Keys {
    /// Returns an empty set.
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::default(),
            distinct: HashSet::default(),
            refused: HashMap::default(),
            refused_max: REFUSED_MAX,
            excess: 0,
            overflowed: false,
        }
    }

    /// Counts a request of `key`.
    pub(crate) fn add(&mut self, policy: &str, key: Option<&[u8]>, refused: bool) {
        let hash = self.hasher.hash_one((policy, key));
        // A key that was refused before was counted before: one look-up is enough.
        if refused && let Some(refused) = self.refused.get_mut(&hash) {
            refused.count += 1;
            return;
        }
        if key.is_some() {
            if self.distinct.len() < DISTINCT_MAX {
                self.distinct.insert(hash);
            } else if !self.overflowed && !self.distinct.contains(&hash) {
                self.overflowed = true;
            }
        }
        if refused {
            self.add_refused(hash, policy, key);
        }
    }

    fn add_refused(&mut self, hash: u64, policy: &str, key: Option<&[u8]>) {
        if self.refused.len() >= self.refused_max {
            self.drop_the_least();
        }
        // A key that was dropped before comes back with the most refusals that it may have had.
        let count = self.excess + 1;
        let refused = RefusalCount { count, policy: policy.into(), key: key.map(Into::into) };
        self.refused.insert(hash, refused);
    }

    /// Makes room by forgetting the half that was refused the least.
    #[cold]
    fn drop_the_least(&mut self) {
        let mut counts: Vec<_> = self.refused.values().map(|refused| refused.count).collect();
        let middle = counts.len() / 2;
        let (_, &mut median, _) = counts.select_nth_unstable(middle);
        self.refused.retain(|_, refused| refused.count > median);
        self.excess = self.excess.max(median);
    }

    /// Returns the number of keys, and whether that is exact; otherwise there were more.
    pub(crate) fn distinct(&self) -> (usize, bool) {
        (self.distinct.len(), !self.overflowed)
    }

    /// The `count` keys that were refused the most, the most first.
    pub(crate) fn most_refused(&self, count: usize) -> Vec<RefusalCount> {
        let mut most: Vec<_> = self.refused.values().cloned().collect();
        most.sort_unstable_by(|a, b| {
            (b.count, &a.policy, &a.key).cmp(&(a.count, &b.policy, &b.key))
        });
        most.truncate(count);
        most
    }

    /// The most by which counts of refused keys may be too high: 0 unless there were very many.
    pub(crate) fn refused_excess(&self) -> u64 {
        self.excess
    }
}

/// A hasher for values that are hashes already.
#[derive(Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are kept, which are written as numbers");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_counts_once_per_policy_and_the_shared_budget_is_no_key() {
        let mut keys = Keys::new();
        for (policy, key) in [("p", Some("a")), ("p", Some("a")), ("q", Some("a")), ("p", None)] {
            keys.add(policy, key.map(str::as_bytes), false);
        }
        assert_eq!(keys.distinct(), (2, true));
        assert!(keys.most_refused(10).is_empty());
    }

    #[test]
    fn the_most_refused_come_first_and_equals_by_name() {
        let mut keys = Keys::new();
        for key in [Some("b"), Some("c"), Some("a"), Some("c"), None] {
            keys.add("p", key.map(str::as_bytes), true);
        }
        let most = keys.most_refused(3);
        let most: Vec<_> =
            most.iter().map(|refused| (refused.count, refused.key.as_deref())).collect();
        assert_eq!(most, [(2, Some(&b"c"[..])), (1, None), (1, Some(&b"a"[..]))]);
        assert_eq!(keys.refused_excess(), 0);
    }

    #[test]
    fn among_too_many_keys_the_heaviest_stay_and_the_possible_error_is_known() {
        let mut keys = Keys { refused_max: 100, ..Keys::new() };
        for round in 0..10_000_u32 {
            keys.add("p", Some(&round.to_le_bytes()), true);
            if round % 10 == 0 {
                keys.add("p", Some(b"heavy"), true);
            }
        }
        let most = keys.most_refused(1);
        assert_eq!(most[0].key.as_deref(), Some(&b"heavy"[..]));
        assert!(keys.refused.len() <= 100);
        let excess = keys.refused_excess();
        assert!((1_000..=1_000 + excess).contains(&most[0].count), "{} {excess}", most[0].count);
    }
}
