//! The keys that are leased here.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use sluicegate_kernel::Micros;
use sluicegate_store::KeyHash;

use super::Lease;

/// Most keys that one process leases, 1 KB each; the next ones ask the store. It is more than two cores can
/// keep hot.
pub(super) const LEASED_KEYS_MAX: usize = 4_096;

/// Number of parts; a change copies one of them: 256 keys at most.
const PARTS: usize = 16;

/// Interval at which a full part looks for a key with fewer requests than a newcomer: that walks all its keys.
const YIELDS_EVERY: Micros = Micros::SECOND;

type Part = HashMap<KeyHash, Arc<Lease>, BuildHasherDefault<Folded>>;

/// The leases, read by every request without a lock; changed when a key becomes hot, or cold.
#[derive(Debug)]
pub(super) struct Table {
    parts: [ArcSwap<Part>; PARTS],
    /// The instant at which each full part last looked for a key that yields, by the steady clock in µs.
    yielded: [AtomicU64; PARTS],
    /// Locked while a part is changed.
    changes: Mutex<()>,
}

/// A hasher for keys that are hashes already.
#[derive(Debug, Default)]
pub(super) struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 ^= word;
    }
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            parts: std::array::from_fn(|_| ArcSwap::default()),
            yielded: std::array::from_fn(|_| AtomicU64::new(0)),
            changes: Mutex::default(),
        }
    }

    /// Returns the part of the table for `key`.
    #[inline]
    pub(super) fn part(&self, key: KeyHash) -> Guard<Arc<Part>> {
        self.parts[place(key)].load()
    }

    /// Adds a lease, unless the key has one. Returns the lease of the key; `None` if there is no place.
    pub(super) fn add(&self, key: KeyHash, lease: impl FnOnce() -> Lease) -> Option<Arc<Lease>> {
        let _change = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let part = &self.parts[place(key)];
        let old = part.load();
        if let Some(lease) = old.get(&key) {
            return Some(Arc::clone(lease));
        }
        if old.len() >= LEASED_KEYS_MAX / PARTS {
            return None;
        }
        let lease = Arc::new(lease());
        let mut new = Part::clone(&old);
        new.insert(key, Arc::clone(&lease));
        part.store(Arc::new(new));
        Some(lease)
    }

    /// Returns the lease that makes room for `key` in a full part: that with the least `rate`, which is
    /// `None` for a lease that yields already. Once a second for each part, otherwise `None`.
    pub(super) fn coldest(
        &self,
        key: KeyHash,
        now: Micros,
        rate: impl Fn(&Lease) -> Option<u64>,
    ) -> Option<(u64, Arc<Lease>)> {
        let last = &self.yielded[place(key)];
        let before = last.load(Ordering::Relaxed);
        let is_due = before == 0 || now.since(Micros::new(before)) >= YIELDS_EVERY;
        let (relaxed, now) = (Ordering::Relaxed, now.get());
        if !is_due || last.compare_exchange(before, now, relaxed, relaxed).is_err() {
            return None;
        }
        let part = self.part(key);
        let rates = part.values().filter_map(|lease| Some((rate(lease)?, lease)));
        let coldest = rates.min_by_key(|(rate, lease)| (*rate, lease.number));
        coldest.map(|(rate, lease)| (rate, Arc::clone(lease)))
    }

    /// Removes the leases that `is_over`.
    pub(super) fn sweep(&self, is_over: impl Fn(&Lease) -> bool) {
        let _change = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        for part in &self.parts {
            let old = part.load();
            if old.values().any(|lease| is_over(lease)) {
                let mut new = Part::clone(&old);
                new.retain(|_, lease| !is_over(lease));
                part.store(Arc::new(new));
            }
        }
    }

    /// Visits all leases, part by part.
    pub(super) fn each(&self, mut see: impl FnMut(&Arc<Lease>)) {
        for part in &self.parts {
            part.load().values().for_each(&mut see);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.load().len()).sum()
    }
}

fn place(key: KeyHash) -> usize {
    usize::try_from(key.word() % PARTS as u64).expect("a place in an array")
}

#[cfg(test)]
mod tests {
    use sluicegate_store::MemoryStore;

    use super::*;
    use crate::lease::key_lease::tests::Key;

    #[test]
    fn a_full_part_looks_for_the_lease_with_the_least_requests_once_a_second() {
        let (table, store) = (Table::new(), MemoryStore::new(1));
        let of_one_part = |key: &u32| place(store.hash("p", &key.to_be_bytes())) == 0;
        let keys = (0..).filter(of_one_part).take(3);
        let keys: Vec<_> = keys.map(|key| store.hash("p", &key.to_be_bytes())).collect();
        for (number, key) in (0..).zip(&keys[..2]) {
            assert!(table.add(*key, || Key::hot(1).into_lease(number, *key)).is_some());
        }
        let coldest = |ms| {
            let found = table.coldest(keys[2], Micros::from_millis(ms), |it| Some(9 - it.number));
            found.map(|(rate, lease)| (rate, lease.number))
        };
        assert_eq!(coldest(5_000), Some((8, 1)));
        assert_eq!(coldest(5_999), None);
        assert_eq!(coldest(6_000), Some((8, 1)));
        assert_eq!(coldest(6_001), None);
    }
}
