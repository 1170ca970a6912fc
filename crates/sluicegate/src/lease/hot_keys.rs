//! Heat: finds the keys with so many requests that a lease saves calls.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate_kernel::Micros;

/// Requests within [`HOT_WITHIN`] that make a key hot: from 16 a second a lease saves calls.
pub(super) const HOT_ASKS: u64 = 8;

/// See [`HOT_ASKS`].
pub(super) const HOT_WITHIN: Micros = Micros::from_millis(500);

/// Number of keys that are counted at a time: 64 KiB. Of two that share a word, the one with more requests stays.
const WORDS: usize = 8_192;

/// Recent counts of requests per key. Approximate: a key may be hot a few requests late.
#[derive(Debug)]
pub(super) struct HotKeyDetector {
    /// Each is `tag (32) | since, ms (24) | count (8)`.
    words: Box<[AtomicU64]>,
}

impl HotKeyDetector {
    pub(super) fn new() -> Self {
        Self { words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts a request for the key of this hash. Returns the time in which [`HOT_ASKS`] came, if they have.
    pub(super) fn ask(&self, hash: u64, now: Micros) -> Option<Micros> {
        let place = usize::try_from(hash % WORDS as u64).expect("a place in an array");
        let tag = hash >> 32;
        let now_ms = (now.get() / 1_000) & 0xff_ffff;
        let word = &self.words[place];
        let old = word.load(Ordering::Relaxed);
        let (old_tag, since_ms, count) = (old >> 32, old >> 8 & 0xff_ffff, old & 0xff);
        let over_ms = now_ms.wrapping_sub(since_ms) & 0xff_ffff;
        let over = Micros::from_millis(over_ms);
        let next = if count == 0 || over > HOT_WITHIN {
            pack(tag, now_ms, 1)
        } else if tag != old_tag {
            pack(old_tag, since_ms, count - 1)
        } else if count + 1 < HOT_ASKS {
            pack(tag, since_ms, count + 1)
        } else {
            0
        };
        word.store(next, Ordering::Relaxed);
        (next == 0 && tag == old_tag).then_some(over)
    }
}

const fn pack(tag: u64, since_ms: u64, count: u64) -> u64 {
    tag << 32 | since_ms << 8 | count
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: u64 = 7 << 32 | 5;

    fn asks(
        hot_keys: &HotKeyDetector,
        hash: u64,
        every: Micros,
        count: u64,
    ) -> Option<(u64, Micros)> {
        let at = |nth| Micros::from_secs(9).plus(Micros::new(every.get() * nth));
        (0..count).find_map(|nth| hot_keys.ask(hash, at(nth)).map(|over| (nth + 1, over)))
    }

    #[test]
    fn eight_asks_within_half_a_second_are_hot() {
        let ms = Micros::from_millis;
        assert_eq!(asks(&HotKeyDetector::new(), HASH, ms(71), 8), Some((8, ms(497))));
        assert_eq!(asks(&HotKeyDetector::new(), HASH, ms(10), 100), Some((8, ms(70))));
        assert_eq!(asks(&HotKeyDetector::new(), HASH, ms(80), 1_000), None);
    }

    #[test]
    fn a_hotter_key_takes_the_word_of_a_colder_one() {
        let hot_keys = HotKeyDetector::new();
        let other = 9 << 32 | 5;
        let now = Micros::from_secs(1);
        assert_eq!(hot_keys.ask(HASH, now), None);
        assert_eq!((0..9).find_map(|_| hot_keys.ask(other, now)), Some(Micros::ZERO));
    }
}
