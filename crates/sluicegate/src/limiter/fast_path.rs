//! The fast lane of a limiter: a smooth token bucket in one atomic word, decided without a lock.
//!
//! **What it remembers**: the instant at which the bucket will be full again, in exact units since
//! the lane's zero. With `flowed` = µs since zero × units that flow in per µs, the usage is
//! `full_at - flowed`, or nothing if that instant has passed. This is the kernel's level in one
//! number, so both decide alike, to the unit.
//!
//! **Worked example**: 10 permits a second, burst 2: one unit flows in per µs, a permit weighs
//! 100,000 units, and a full bucket has 200,000.
//!
//! | now (µs) | `full_at` before | in use + 1 permit | answer | `full_at` after |
//! |---|---|---|---|---|
//! | 1,000 | 0 | 100,000 | pass | 101,000 |
//! | 1,000 | 101,000 | 200,000 | pass | 201,000 |
//! | 31,000 | 201,000 | 270,000 | refused: above 200,000 | unchanged, nothing is written |
//! | 101,000 | 201,000 | 200,000 | pass | 301,000 |
//!
//! **The word**: 8 bits of generation and 56 bits of `full_at`; all ones mean *closed*: ask the lock.
//! The lane is closed while anything but a plain check goes on: a change of the rule, a booking, a
//! refund, callers that wait. Rules that do not fit leave it closed for good.
//!
//! **Why a decision is made by the terms of its word.** The terms (zero,
//! flow, weight, depth) lie beside the word, each an atomic of its own, so a reader could see them
//! half changed. They change only between `close` and `open`, and then the generation changes too.
//!
//! 1. A reader loads the word, then the terms. The word's store came after the stores of its terms
//!    and both are release/acquire, so what it reads is at least as new as its word's generation.
//! 2. If it read any newer term, then, that load being an acquire of a store made after the lane was
//!    closed, it can no longer find its old word: the CAS of an allowed permit fails, and the second
//!    look at the word, before a refusal is given out, shows another generation. Either way it tries
//!    again.
//!
//! So a decision that stands was made by exactly the terms of its word. (A generation is 8 bits: to
//! be fooled, a thread would have to sleep, between two neighbouring instructions, through a
//! multiple of 255 changes of the rule and find the very same instant in the word.)
//!
//! **Why time is read after the word.** The writer of the word had read the time before, so a time
//! read now is not earlier, and no refusal results from a clock that was read before others
//! used the bucket. A clock that lags nevertheless (counters of two cores, a few ns apart) sees more
//! in use, not less: it never admits too much.

use super::atomic::{AtomicU64, Ordering};

/// The word of a closed lane: the lock has to be taken.
const CLOSED: u64 = u64::MAX;

/// Number of bits of the word for the instant.
const FULL_AT_BITS: u32 = 56;

/// The instant's part of the word, and its largest value.
pub(crate) const FULL_AT_MAX: u64 = (1 << FULL_AT_BITS) - 1;

/// Pauses after a first lost race: about as long as ten decisions of the core that won it.
const PAUSES_MIN: u32 = 8;

/// Most pauses between two tries: about a microsecond, so that the loser tries again soon.
const PAUSES_MAX: u32 = 64;

/// One lane.
#[derive(Debug)]
pub(crate) struct FastPath {
    word: CachePadded<AtomicU64>,
    terms: CachePadded<SharedTerms>,
}

/// The bucket in the lane's units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The zero of `full_at`, in µs of the limiter's clock.
    pub(crate) zero_us: u64,
    /// µs after zero up to which `full_at` fits; later, the lock moves zero on.
    pub(crate) horizon_us: u64,
    /// Units that flow in per µs.
    pub(crate) per_us: u64,
    /// Units that a permit weighs.
    pub(crate) per_permit: u64,
    /// Units of a full bucket.
    pub(crate) depth: u64,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastCheck {
    /// The permits are taken.
    Taken {
        /// Units in use now, with them.
        used: u64,
        /// The terms of the decision.
        terms: Terms,
    },
    /// The bucket has less; nothing was taken.
    Refused {
        /// Units in use now, without them.
        used: u64,
        /// The terms of the decision.
        terms: Terms,
    },
    /// The lane is closed, and the lock has to be taken.
    Closed,
}

/// Puts a value on cache lines of its own, and not on those that the processor fetches along with them: the
/// word is written all the time, the terms hardly ever.
#[derive(Debug)]
#[repr(align(128))]
struct CachePadded<T>(T);

#[derive(Debug)]
struct SharedTerms {
    zero_us: AtomicU64,
    horizon_us: AtomicU64,
    per_us: AtomicU64,
    per_permit: AtomicU64,
    depth: AtomicU64,
}

impl FastPath {
    /// Returns a closed lane.
    pub(crate) fn closed() -> Self {
        let terms = SharedTerms {
            zero_us: AtomicU64::new(0),
            horizon_us: AtomicU64::new(0),
            per_us: AtomicU64::new(0),
            per_permit: AtomicU64::new(0),
            depth: AtomicU64::new(0),
        };
        Self { word: CachePadded(AtomicU64::new(CLOSED)), terms: CachePadded(terms) }
    }

    /// Takes `permits` (at least 1), if the bucket has them at the instant that `now_us` returns.
    #[inline]
    pub(crate) fn take(&self, permits: u64, now_us: impl Fn() -> u64) -> FastCheck {
        match self.attempt(permits, &now_us) {
            Some(taking) => taking,
            None => self.take_contended(permits, &now_us),
        }
    }

    /// Tries once; `None` if another thread wrote in the middle of it.
    #[inline(always)]
    fn attempt(&self, permits: u64, now_us: impl Fn() -> u64) -> Option<FastCheck> {
        let word = self.word.0.load(Ordering::Acquire);
        if word == CLOSED {
            return Some(FastCheck::Closed);
        }
        let now_us = now_us();
        let terms = self.terms.0.load();
        // Before zero, which only a lagging clock is, counts as beyond the horizon too.
        let elapsed_us = now_us.wrapping_sub(terms.zero_us);
        if elapsed_us > terms.horizon_us {
            return Some(FastCheck::Closed);
        }
        let flowed = elapsed_us.wrapping_mul(terms.per_us);
        let used = (word & FULL_AT_MAX).saturating_sub(flowed);
        let wanted = used.saturating_add(permits.saturating_mul(terms.per_permit));
        if wanted > terms.depth {
            let unchanged = generation(self.word.0.load(Ordering::Acquire)) == generation(word);
            return unchanged.then_some(FastCheck::Refused { used, terms });
        }
        let taken = (word & !FULL_AT_MAX) | flowed.wrapping_add(wanted);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let swapped = self.word.0.compare_exchange_weak(word, taken, success, failure);
        swapped.is_ok().then_some(FastCheck::Taken { used: wanted, terms })
    }

    /// Tries on, with pauses in between: the core that has just won the word's cache line can then
    /// use it more than once before it has to hand it over, which is what costs time.
    #[cold]
    #[inline(never)]
    fn take_contended(&self, permits: u64, now_us: &impl Fn() -> u64) -> FastCheck {
        let mut pauses = PAUSES_MIN;
        loop {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if let Some(taking) = self.attempt(permits, now_us) {
                return taking;
            }
            pauses = (pauses * 2).min(PAUSES_MAX);
        }
    }

    /// Returns `full_at`, if the lane is open. Under the lock, its terms are known.
    pub(crate) fn full_at(&self) -> Option<u64> {
        open_part(self.word.0.load(Ordering::Acquire))
    }

    /// Closes the lane and returns the last `full_at`, if it was open. Only under the lock.
    pub(crate) fn close(&self) -> Option<u64> {
        open_part(self.word.0.swap(CLOSED, Ordering::AcqRel))
    }

    /// Changes the terms of a closed lane. The next `open` must have another generation.
    pub(crate) fn set_terms(&self, terms: Terms) {
        self.terms.0.store(terms);
    }

    /// Opens a closed lane again. Only under the lock.
    pub(crate) fn open(&self, generation: u8, full_at: u64) {
        debug_assert!(generation < u8::MAX && full_at <= FULL_AT_MAX);
        self.word.0.store(u64::from(generation) << FULL_AT_BITS | full_at, Ordering::Release);
    }
}

impl SharedTerms {
    #[inline]
    fn load(&self) -> Terms {
        Terms {
            zero_us: self.zero_us.load(Ordering::Acquire),
            horizon_us: self.horizon_us.load(Ordering::Acquire),
            per_us: self.per_us.load(Ordering::Acquire),
            per_permit: self.per_permit.load(Ordering::Acquire),
            depth: self.depth.load(Ordering::Acquire),
        }
    }

    fn store(&self, terms: Terms) {
        let Terms { zero_us, horizon_us, per_us, per_permit, depth } = terms;
        self.zero_us.store(zero_us, Ordering::Release);
        self.horizon_us.store(horizon_us, Ordering::Release);
        self.per_us.store(per_us, Ordering::Release);
        self.per_permit.store(per_permit, Ordering::Release);
        self.depth.store(depth, Ordering::Release);
    }
}

fn open_part(word: u64) -> Option<u64> {
    (word != CLOSED).then_some(word & FULL_AT_MAX)
}

const fn generation(word: u64) -> u64 {
    word >> FULL_AT_BITS
}
