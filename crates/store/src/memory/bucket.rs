//! A bucket: five keys in two neighbouring cache lines.
//!
//! | word | holds |
//! |---|---|
//! | 0 | the rule ids of the five slots, 12 bits each (0: the slot is free); bit 63: *overflows* |
//! | 1–5 | the tags: 64 bits of the key's hash |
//! | 6–15 | the states, 16 bytes each |
//!
//! A bucket overflows if a key whose search passes it lies further on.

use std::sync::atomic::Ordering::Relaxed;

use super::arena::Bucket;

/// Keys of one bucket.
pub(super) const SLOTS: usize = 5;

/// Bits of a rule id: five of them and the mark fit one word.
const ID_BITS: usize = 12;

/// Largest rule id; 0 marks a free slot.
pub(super) const ID_MAX: u16 = (1 << ID_BITS) - 1;

const OVERFLOWS: u64 = 1 << 63;
const TAGS: usize = 1;
const STATES: usize = TAGS + SLOTS;

/// The content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// 64 bits of the key's hash.
    pub(super) tag: u64,
    /// The id of the rules that wrote the state; not 0.
    pub(super) id: u16,
    /// The state, or where it lies.
    pub(super) state: u128,
}

/// Returns the slot that holds `tag`.
#[inline]
pub(super) fn find(bucket: &Bucket, tag: u64) -> Option<usize> {
    (0..SLOTS).find(|slot| bucket[TAGS + slot].load(Relaxed) == tag && id(bucket, *slot) != 0)
}

/// Returns a free slot.
pub(super) fn free(bucket: &Bucket) -> Option<usize> {
    (0..SLOTS).find(|slot| id(bucket, *slot) == 0)
}

/// Returns the rule id of a slot; 0 if it is free.
#[inline]
pub(super) fn id(bucket: &Bucket, slot: usize) -> u16 {
    let shifted = bucket[0].load(Relaxed) >> (slot * ID_BITS);
    u16::try_from(shifted & u64::from(ID_MAX)).expect("an id is masked to its bits")
}

/// Returns the state of a slot.
#[inline]
pub(super) fn state(bucket: &Bucket, slot: usize) -> u128 {
    let word = |half: usize| u128::from(bucket[STATES + 2 * slot + half].load(Relaxed));
    word(0) | (word(1) << 64)
}

/// Returns the content of a slot; `None` if it is free.
pub(super) fn content(bucket: &Bucket, slot: usize) -> Option<Content> {
    let id = id(bucket, slot);
    let tag = bucket[TAGS + slot].load(Relaxed);
    (id != 0).then(|| Content { tag, id, state: state(bucket, slot) })
}

/// Writes a slot.
pub(super) fn put(bucket: &Bucket, slot: usize, content: Content) {
    let Content { tag, id, state } = content;
    bucket[TAGS + slot].store(tag, Relaxed);
    set_state(bucket, slot, state);
    set_id(bucket, slot, id);
}

/// Writes the state of a slot.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
pub(super) fn set_state(bucket: &Bucket, slot: usize, state: u128) {
    bucket[STATES + 2 * slot].store(state as u64, Relaxed);
    bucket[STATES + 2 * slot + 1].store((state >> 64) as u64, Relaxed);
}

/// Frees a slot. Searches still pass the bucket as before.
pub(super) fn clear(bucket: &Bucket, slot: usize) {
    set_id(bucket, slot, 0);
}

fn set_id(bucket: &Bucket, slot: usize, id: u16) {
    let others = bucket[0].load(Relaxed) & !(u64::from(ID_MAX) << (slot * ID_BITS));
    bucket[0].store(others | u64::from(id) << (slot * ID_BITS), Relaxed);
}

/// Frees all slots and lets searches end here.
pub(super) fn clear_all(bucket: &Bucket) {
    bucket[0].store(0, Relaxed);
}

/// Returns whether a search that did not find its key here must go on.
#[inline]
pub(super) fn overflows(bucket: &Bucket) -> bool {
    bucket[0].load(Relaxed) & OVERFLOWS != 0
}

/// Lets searches go on behind this bucket.
pub(super) fn set_overflows(bucket: &Bucket) {
    bucket[0].store(bucket[0].load(Relaxed) | OVERFLOWS, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_slots_do_not_disturb_each_other_or_the_mark() {
        let bucket = Bucket::default();
        set_overflows(&bucket);
        let of = |slot: u16| Content {
            tag: u64::MAX - u64::from(slot),
            id: ID_MAX - slot,
            state: u128::MAX - u128::from(slot),
        };
        for slot in 0..5 {
            assert_eq!(free(&bucket), Some(slot.into()));
            put(&bucket, slot.into(), of(slot));
        }
        assert_eq!(free(&bucket), None);
        for slot in 0..5 {
            assert_eq!(content(&bucket, slot.into()), Some(of(slot)));
            assert_eq!(find(&bucket, of(slot).tag), Some(slot.into()));
        }
        clear(&bucket, 2);
        assert_eq!((free(&bucket), find(&bucket, of(2).tag)), (Some(2), None));
        assert_eq!(content(&bucket, 3), Some(of(3)));
        assert!(overflows(&bucket));
        clear_all(&bucket);
        assert!(!overflows(&bucket) && content(&bucket, 0).is_none());
    }
}
