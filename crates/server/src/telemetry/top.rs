//! The keys of a policy that are refused most: a bounded sketch for each worker, added up on request.
//!
//! **What it remembers**: [`COUNTERS`] keys with a count each ("space-saving", Metwally, Agrawal and
//! El Abbadi, 2005). A key that has a counter adds to it. Another one takes over the counter with the
//! least count, and begins with that count, which is its error.
//!
//! Example with two counters: `a a b c` leaves `a: 2` and `c: 2, error 1`; `c` was refused once or
//! twice.
//!
//! **One property that always holds**: of `n` refusals, a key that was refused more than `n / COUNTERS`
//! times has a counter, and its count is too high by its error at most, never too low.
//!
//! ```text
//! count ┤██ a
//!       ┤██ a ▓▓ c        ▓ may be another's
//!       ┤██ a ██ c
//! ```
//!
//! Keys are stored in the form in which operators see them ([`KeyWriter`]), cut to [`KEY_BYTES_MAX`]. A
//! refusal does not wait for a sketch that is being read: it is not counted here.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError, TryLockError};

use foldhash::quality::RandomState;
use serde::Serialize;
use sluicegate_control::traffic::RefusedKey;

use super::keys::KeyWriter;

/// Number of counters of a sketch: any key with a 64th of the refusals is found.
const COUNTERS: usize = 64;

/// Maximum number of bytes of a key that are kept: enough to recognise one.
const KEY_BYTES_MAX: usize = 128;

/// Maximum number of sketches, over all policies and workers: with the longest keys one is 22 KB,
/// so all of them take 90 MB at most, and 5 MB with keys of sixteen bytes.
const SKETCHES_MAX: usize = 4_096;

/// Maximum number of keys that are shown: as many as a worker's sketch counts.
pub(crate) const SHOWN_MAX: usize = COUNTERS;

/// The sketches of one policy, one a shard, made when first needed.
#[derive(Debug)]
pub(super) struct PolicySketches {
    sketches: Box<[OnceLock<Option<Mutex<SketchPair>>>]>,
}

/// The refusals of the present span, and of the span before.
#[derive(Debug, Default)]
struct SketchPair {
    now: Sketch,
    before: Sketch,
}

#[derive(Debug, Default)]
struct Sketch {
    /// Hashes of the keys, stored apart so that a look-up is quick.
    hashes: Vec<u64>,
    counters: Vec<KeyCounter>,
}

#[derive(Clone, Debug)]
struct KeyCounter {
    count: u64,
    error: u64,
    key: Option<Vec<u8>>,
    is_cut: bool,
}

/// A key that was refused, and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Top {
    /// `null`: the budget that all requests share.
    key: Option<String>,
    /// The key is not UTF-8, or is longer: `key` is as much of it as can be shown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    key_is_cut: bool,
    refused_at_least: u64,
    refused_at_most: u64,
}

impl From<Top> for RefusedKey {
    fn from(top: Top) -> Self {
        let Top { key, key_is_cut, refused_at_least, refused_at_most } = top;
        Self { key, key_is_cut, refused_at_least, refused_at_most }
    }
}

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::default);

impl PolicySketches {
    /// Creates the sketches of so many shards.
    pub(super) fn new(shards: usize) -> Self {
        Self { sketches: (0..shards).map(|_| OnceLock::new()).collect() }
    }

    /// Counts a refused request of `key`. `made` is the number of all sketches.
    pub(super) fn record(
        &self,
        shard: usize,
        key: Option<&[u8]>,
        keys: &KeyWriter,
        made: &AtomicUsize,
    ) {
        let sketch = self.sketches[shard].get_or_init(|| {
            let has_room = made.fetch_add(1, Relaxed) < SKETCHES_MAX;
            has_room.then(Mutex::default)
        });
        let Some(sketch) = sketch else { return };
        match sketch.try_lock() {
            Ok(mut turns) => turns.now.record(key, keys),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().now.record(key, keys),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Ends the present span, which becomes the span before.
    pub(super) fn turn(&self) {
        for sketch in self.sketches.iter().filter_map(|sketch| sketch.get()?.as_ref()) {
            let mut turns = sketch.lock().unwrap_or_else(PoisonError::into_inner);
            turns.before = std::mem::take(&mut turns.now);
        }
    }

    /// The `count` keys that were refused most.
    pub(super) fn list(&self, count: usize) -> Vec<Top> {
        let mut sketches = Vec::new();
        for sketch in self.sketches.iter().filter_map(|sketch| sketch.get()?.as_ref()) {
            let turns = sketch.lock().unwrap_or_else(PoisonError::into_inner);
            sketches.extend([turns.now.sorted(), turns.before.sorted()]);
        }
        let mut tops = joined(&sketches);
        tops.sort_unstable_by_key(|top| {
            (u64::MAX - top.refused_at_least, u64::MAX - top.refused_at_most, top.key.clone())
        });
        tops.truncate(count);
        tops
    }
}

impl Sketch {
    fn record(&mut self, key: Option<&[u8]>, keys: &KeyWriter) {
        let hash = HASHER.hash_one(key);
        if let Some(place) = self.hashes.iter().position(|known| *known == hash) {
            self.counters[place].count += 1;
            return;
        }
        if self.hashes.len() < COUNTERS {
            self.hashes.push(hash);
            let mut counter = KeyCounter { count: 1, error: 0, key: None, is_cut: false };
            counter.name(key, keys);
            self.counters.push(counter);
            return;
        }
        let counts = self.counters.iter().map(|counter| counter.count).enumerate();
        let least = counts.min_by_key(|(_, count)| *count);
        let (place, count) = least.expect("a full sketch has counters");
        self.hashes[place] = hash;
        let counter = &mut self.counters[place];
        (counter.error, counter.count) = (count, count + 1);
        counter.name(key, keys);
    }

    /// The most refusals that a key without a counter can have.
    fn least(&self) -> u64 {
        if self.counters.len() < COUNTERS {
            return 0;
        }
        self.counters.iter().map(|counter| counter.count).min().unwrap_or_default()
    }

    /// A copy for look-ups by hash.
    fn sorted(&self) -> SortedSketch {
        let mut sorted: Vec<_> =
            self.hashes.iter().copied().zip(self.counters.iter().cloned()).collect();
        sorted.sort_unstable_by_key(|(hash, _)| *hash);
        SortedSketch { least: self.least(), sorted }
    }
}

/// A copy of a sketch.
struct SortedSketch {
    /// The most refusals of other keys.
    least: u64,
    /// The counters by the hashes of their keys.
    sorted: Vec<(u64, KeyCounter)>,
}

impl KeyCounter {
    /// Sets the key, in the memory of the one before.
    fn name(&mut self, key: Option<&[u8]>, keys: &KeyWriter) {
        let Some(key) = key else {
            (self.key, self.is_cut) = (None, false);
            return;
        };
        let key = keys.shown(key);
        let name = self.key.get_or_insert_default();
        name.clear();
        name.extend_from_slice(&key[..key.len().min(KEY_BYTES_MAX)]);
        self.is_cut = key.len() > KEY_BYTES_MAX;
    }
}

/// Joins the keys of these sketches: a sketch without a key adds as much as it may have missed.
fn joined(sketches: &[SortedSketch]) -> Vec<Top> {
    let mut hashes: Vec<u64> =
        sketches.iter().flat_map(|sketch| sketch.sorted.iter().map(|(hash, _)| *hash)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    let of_hash = |hash: &u64| {
        let (mut name, mut count, mut error) = (None, 0, 0);
        for SortedSketch { least, sorted } in sketches {
            match sorted.binary_search_by_key(hash, |(hash, _)| *hash) {
                Ok(place) => {
                    let (_, counter) = &sorted[place];
                    count += counter.count;
                    error += counter.error;
                    name = Some(counter);
                }
                Err(_) => {
                    count += least;
                    error += least;
                }
            }
        }
        let KeyCounter { key, is_cut, .. } = name?;
        let shown = key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned());
        let is_utf8 = key.as_ref().is_none_or(|key| std::str::from_utf8(key).is_ok());
        Some(Top {
            key: shown,
            key_is_cut: *is_cut || !is_utf8,
            refused_at_least: count - error,
            refused_at_most: count,
        })
    };
    hashes.iter().filter_map(of_hash).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::config::KeyFormat;

    fn clear() -> KeyWriter {
        KeyWriter::new(KeyFormat::Clear)
    }

    /// Draws ranks 1..=keys, the rank r in proportion to `1 / r^1.1`.
    fn zipf(seed: u64, keys: usize, draws: usize) -> Vec<usize> {
        #[expect(clippy::cast_precision_loss, reason = "a few thousand keys")]
        let weights: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-1.1)).collect();
        let mut sums = Vec::with_capacity(keys);
        let mut sum = 0.0;
        for weight in weights {
            sum += weight;
            sums.push(sum);
        }
        let mut random = fastrand::Rng::with_seed(seed);
        let draw = |_| {
            let drawn = random.f64() * sum;
            sums.partition_point(|below| *below < drawn)
        };
        (0..draws).map(draw).collect()
    }

    #[test]
    fn the_keys_that_are_refused_most_are_found_and_every_bound_holds() {
        const REFUSED: usize = 200_000;
        for seed in 0..5 {
            let (tops, keys, made) = (PolicySketches::new(4), clear(), AtomicUsize::new(0));
            let mut truth: HashMap<usize, u64> = HashMap::new();
            for (number, rank) in zipf(seed, 10_000, REFUSED).into_iter().enumerate() {
                *truth.entry(rank).or_default() += 1;
                tops.record(number % 4, Some(format!("k{rank}").as_bytes()), &keys, &made);
                if number == REFUSED / 2 {
                    tops.turn();
                }
            }
            let found = tops.list(SHOWN_MAX);
            for top in &found {
                let rank: usize = top.key.as_ref().unwrap()[1..].parse().unwrap();
                let is = truth[&rank];
                let bounds = top.refused_at_least..=top.refused_at_most;
                assert!(bounds.contains(&is), "seed {seed}: {is} of {top:?}");
            }
            // Every key with more than a 64th of all refusals of each of the sketches must be found.
            let heavy = truth.iter().filter(|(_, count)| **count > (REFUSED / COUNTERS) as u64);
            let mut count = 0;
            for (rank, times) in heavy {
                let key = Some(format!("k{rank}"));
                assert!(found.iter().any(|top| top.key == key), "seed {seed}: k{rank}, {times}");
                count += 1;
            }
            assert!(count >= 5, "seed {seed}: only {count} are heavy");
            let first: Vec<_> = found.iter().take(5).map(|top| top.key.clone().unwrap()).collect();
            assert_eq!(first, ["k0", "k1", "k2", "k3", "k4"], "seed {seed}");
        }
    }

    #[test]
    fn the_example_of_the_essay_is_true_of_a_full_sketch() {
        let mut sketch = Sketch::default();
        for number in 0..COUNTERS {
            sketch.record(Some(&[u8::try_from(number).unwrap()]), &clear());
        }
        sketch.record(Some(b"another"), &clear());
        let counter = sketch.counters.iter().find(|counter| counter.count == 2).unwrap();
        assert_eq!((counter.key.as_deref(), counter.error), (Some(&b"another"[..]), 1));
        assert_eq!((sketch.counters.len(), sketch.least()), (COUNTERS, 1));
    }

    #[test]
    fn refusals_are_forgotten_after_two_turns() {
        let (tops, made) = (PolicySketches::new(1), AtomicUsize::new(0));
        tops.record(0, None, &clear(), &made);
        tops.turn();
        assert_eq!(tops.list(9).len(), 1);
        tops.turn();
        assert_eq!(tops.list(9), []);
    }

    #[test]
    fn a_long_key_is_cut_and_one_that_is_no_text_is_shown_as_far_as_it_is() {
        let (tops, made) = (PolicySketches::new(1), AtomicUsize::new(0));
        tops.record(0, Some(&[b'x'; 1024]), &clear(), &made);
        tops.record(0, Some(&[0xff, b'a']), &clear(), &made);
        let shown = serde_json::to_string(&tops.list(9)).unwrap();
        assert!(shown.contains(&format!(r#""{}","key_is_cut":true"#, "x".repeat(128))), "{shown}");
        assert!(shown.contains(r#""\u{fffd}a","key_is_cut":true"#) || shown.contains("\u{fffd}a"));
    }

    #[test]
    fn keys_are_hashed_whole_where_that_is_wanted() {
        let (tops, made) = (PolicySketches::new(2), AtomicUsize::new(0));
        let keys = KeyWriter::new(KeyFormat::Hashed);
        for (shard, end) in [(0, b'a'), (1, b'a'), (0, b'b')] {
            let mut key = [b'x'; 1024];
            key[1023] = end;
            tops.record(shard, Some(&key), &keys, &made);
        }
        let list = tops.list(9);
        let counts: Vec<_> = list.iter().map(|top| top.refused_at_least).collect();
        assert_eq!(counts, [2, 1]);
        for Top { key, key_is_cut, .. } in list {
            let key = key.unwrap();
            assert!(key.len() == 17 && key.starts_with('#') && !key_is_cut, "{key}");
        }
    }

    #[test]
    fn there_are_no_more_sketches_than_there_may_be() {
        let made = AtomicUsize::new(SKETCHES_MAX - 1);
        let (first, second) = (PolicySketches::new(1), PolicySketches::new(1));
        first.record(0, Some(b"k"), &clear(), &made);
        second.record(0, Some(b"k"), &clear(), &made);
        assert_eq!((first.list(9).len(), second.list(9).len()), (1, 0));
    }
}
