//! A keyed hash that stands for a key: SipHash-1-3 with 128 bits
//! (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use siphasher::sip128::{Hash128, Hasher128, SipHasher13};

/// A keyed hash that stands for (policy, key) in one store of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash {
    pub(super) shard: u64,
    pub(super) tag: u64,
}

/// Hashes keys with a secret of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyHasher {
    pub(super) seed: (u64, u64),
    pub(super) layout: KeyLayout,
}

/// The layout in which a policy and a key become one text. Two pairs never become the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyLayout {
    /// The policy, one byte `ff`, the key's length in 8 bytes, the key: stores that were restored from a
    /// snapshot of version 1 or 2.
    LengthFirst,
    /// The policy, one byte `ff` (no text in UTF-8 has it), zeros up to a multiple of 8 bytes, the key. Whole
    /// words are hashed in two thirds of the time.
    WholeWords,
}

impl KeyHash {
    /// Returns half of its bits, for tables of their own. They are as random as the whole.
    #[inline]
    pub const fn word(self) -> u64 {
        self.tag
    }
}

impl KeyHasher {
    /// Returns a hasher with a random secret.
    pub(super) fn random() -> Self {
        let random = RandomState::new();
        let seed = (random.hash_one(0), random.hash_one(1));
        Self { seed, layout: KeyLayout::WholeWords }
    }

    /// Returns the hash that stands for `key` under `policy`.
    pub(super) fn hash(&self, policy: &str, key: &[u8]) -> KeyHash {
        match self.layout {
            KeyLayout::LengthFirst => self.hash_of(&(policy, key)),
            KeyLayout::WholeWords => self.hash_words(policy, key),
        }
    }

    /// Returns the hash that stands for any value that can be hashed.
    #[inline]
    pub(super) fn hash_of(&self, key: &(impl Hash + ?Sized)) -> KeyHash {
        let mut hasher = self.hasher();
        key.hash(&mut hasher);
        hasher.finish128().into()
    }

    fn hash_words(&self, policy: &str, key: &[u8]) -> KeyHash {
        let mut hasher = self.hasher();
        let (words, rest) = policy.as_bytes().as_chunks();
        for word in words {
            hasher.write_u64(u64::from_ne_bytes(*word));
        }
        let last = rest.iter().rev().fold(0xff, |word, byte| word << 8 | u64::from(*byte));
        hasher.write_u64(u64::to_le(last));
        hasher.hash(key).into()
    }

    fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.seed.0, self.seed.1)
    }
}

impl From<Hash128> for KeyHash {
    fn from(hash: Hash128) -> Self {
        Self { shard: hash.h1, tag: hash.h2 }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const LAYOUTS: [KeyLayout; 2] = [KeyLayout::LengthFirst, KeyLayout::WholeWords];

    /// Texts of 0 to 40 bytes, cut into a policy and a key at each place.
    fn pairs() -> impl Iterator<Item = (String, Vec<u8>)> {
        let text = |length: usize| "abcdefgh".chars().cycle().take(length).collect::<String>();
        (0..=40).flat_map(move |length| {
            let text = text(length);
            (0..=length).map(move |at| (text[..at].to_owned(), text.as_bytes()[at..].to_vec()))
        })
    }

    #[test]
    fn no_two_pairs_of_a_policy_and_a_key_have_one_hash() {
        for layout in LAYOUTS {
            let hasher = KeyHasher { seed: (1, 2), layout };
            let hashes: Vec<_> = pairs().map(|(policy, key)| hasher.hash(&policy, &key)).collect();
            assert_eq!(hashes.iter().collect::<HashSet<_>>().len(), hashes.len(), "{layout:?}");
        }
        let hasher = KeyHasher { seed: (1, 2), layout: KeyLayout::WholeWords };
        // The padding, written by a key.
        let keys: [(&str, &[u8]); 4] =
            [("p", b""), ("p", b"\0"), ("p", b"\xff\0\0\0\0\0\0\0"), ("p", &[0; 8])];
        let hashes: HashSet<_> =
            keys.iter().map(|(policy, key)| hasher.hash(policy, key)).collect();
        assert_eq!(hashes.len(), keys.len());
    }

    #[test]
    fn the_hash_is_sip_hash_of_the_text_that_the_layout_says() {
        let sip = |text: &[u8]| KeyHash::from(SipHasher13::new_with_keys(1, 2).hash(text));
        let hash = |layout, policy, key| KeyHasher { seed: (1, 2), layout }.hash(policy, key);
        let [length_first, whole_words] = LAYOUTS;
        assert_eq!(hash(length_first, "login", b"ada"), sip(b"login\xff\x03\0\0\0\0\0\0\0ada"));
        assert_eq!(hash(whole_words, "login", b"ada"), sip(b"login\xff\0\0ada"));
        assert_eq!(hash(whole_words, "password", b"ada"), sip(b"password\xff\0\0\0\0\0\0\0ada"));
        assert_eq!(hash(whole_words, "", b"ada"), sip(b"\xff\0\0\0\0\0\0\0ada"));
    }
}
