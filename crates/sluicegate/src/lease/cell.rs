//! The permits of a lease: many threads take from them without a lock.
//!
//! **What is remembered**: `hits | left` in one word, 32 bits each, and the instant until which permits may be
//! used. A hit reads the end, reads the clock, and then takes its permits and counts itself in one step.
//!
//! **Why no permit is used beyond the store's grant.** One thread at a time changes the lease, under
//! the lock of its state, and in this order: void permits are taken out before any are added, and the end
//! moves before permits are added. So the end never covers permits of a later answer only, and permits that are
//! given back or have ended were taken out in one step, whose result the message contains. A thread that is held
//! up between its reading of the clock and its step decides one request late; the next finds the end past.

use super::atomic::{AtomicU64, Ordering};

/// Permits, and the instant until which they may be used.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Cell {
    /// The number of hits in the high half (it wraps around), and permits that are left in the low half.
    word: AtomicU64,
    /// The end, by the steady clock in µs; 0: closed.
    end: AtomicU64,
}

/// One hit in the high half of a word.
const HIT: u64 = 1 << 32;

impl Cell {
    /// Returns a closed cell without permits.
    pub(crate) fn closed() -> Self {
        Self { word: AtomicU64::new(0), end: AtomicU64::new(0) }
    }

    /// Takes `cost` permits, if they are there and `now`, which is read after the end, is before it. Returns
    /// the number that is left.
    #[inline]
    pub(crate) fn take(&self, cost: u32, now: impl FnOnce() -> u64) -> Option<u32> {
        let end = self.end.load(Ordering::Acquire);
        if end == 0 || now() >= end {
            return None;
        }
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if left(word) < cost {
                return None;
            }
            let next = word.wrapping_add(HIT).wrapping_sub(cost.into());
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(left(next)),
                Err(other) => word = other,
            }
        }
    }

    /// Number of permits that are left, whether they may be used or not.
    pub(crate) fn left(&self) -> u32 {
        left(self.word.load(Ordering::Relaxed))
    }

    /// Number of hits; it wraps around.
    pub(crate) fn hits(&self) -> u32 {
        hits(self.word.load(Ordering::Relaxed))
    }

    /// The end of its permits, by the steady clock in µs.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Adds permits, and sets the end of all. Only under the lock of its state.
    pub(crate) fn open(&self, granted: u32, end: u64) {
        self.end.store(end, Ordering::Release);
        self.change(|left| left.saturating_add(granted));
    }

    /// Ends the use of permits; those that are left stay. Only under the lock of its state.
    pub(crate) fn stop(&self) {
        self.end.store(0, Ordering::Release);
    }

    /// Takes all permits out. Returns their number. Only under the lock of its state.
    pub(crate) fn close(&self) -> u32 {
        self.stop();
        self.change(|_| 0)
    }

    /// Takes at most `permits` out. Returns the number before. Only under the lock of its state.
    pub(crate) fn give_back(&self, permits: u32) -> u32 {
        self.change(|left| left.saturating_sub(permits))
    }

    /// Puts permits back that were taken, unless more than `most` would then be left. Returns whether it did. Only
    /// under the lock of its state.
    pub(crate) fn put_back(&self, permits: u32, most: u32) -> bool {
        let fits = |left: u32| left.checked_add(permits).filter(|left| *left <= most);
        self.change(|left| fits(left).unwrap_or(left))
            .checked_add(permits)
            .is_some_and(|left| left <= most)
    }

    /// Changes the number that is left. Returns the number before.
    fn change(&self, to: impl Fn(u32) -> u32) -> u32 {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let next = (word & !(HIT - 1)) | u64::from(to(left(word)));
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return left(word),
                Err(other) => word = other,
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half")]
const fn left(word: u64) -> u32 {
    word as u32
}

const fn hits(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
impl Clone for Cell {
    fn clone(&self) -> Self {
        let (word, end) = (&self.word, &self.end);
        let [word, end] = [word, end].map(|it| AtomicU64::new(it.load(Ordering::Relaxed)));
        Self { word, end }
    }
}
