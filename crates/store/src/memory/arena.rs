//! The memory that buckets lie in: one mapping, reserved at once and resident only where used.
//!
//! The system gives a page of reserved memory when it is first written to. So the table grows in
//! place, from a few pages to gigabytes, and no bucket is ever moved to make room.
//!
//! ```text
//! row 0 │ segment 0 of shard 0 │ segment 0 of shard 1 │ … │
//! row 1 │ segment 1 of shard 0 │ segment 1 of shard 1 │ … │
//! ```
//!
//! Shards grow alike, so the rows fill up one after the other; and the place of a segment need not
//! be looked up, it follows from its number.
//!
//! Everything behind the first [`SMALL_BYTES`] asks for huge pages (2 MiB): a look-up of a cold key
//! then misses the cache once, and not a second time for the page table. A small store does without,
//! so that a handful of keys does not cost megabytes.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use memmap2::{MmapMut, MmapOptions};
use self_cell::{MutBorrow, self_cell};
use zerocopy::FromBytes;

/// 128 bytes: two neighbouring cache lines, which processors like to fetch together.
///
/// A thread that uses a bucket holds the lock of the shard that took it; the words are atomic so
/// that this needs no unsafe code, and are only ever read and written plainly (`Relaxed`).
pub(super) type Bucket = [AtomicU64; BUCKET_WORDS];

/// Words of a [`Bucket`].
pub(super) const BUCKET_WORDS: usize = 16;

/// The size up to which a store uses small pages: about what the processor's caches hold anyway.
const SMALL_BYTES: usize = 4 << 20;

type Buckets<'a> = &'a [Bucket];

self_cell!(
    struct Mapping {
        owner: MutBorrow<MmapMut>,
        #[covariant]
        dependent: Buckets,
    }
);

/// Rows of zeroed buckets.
pub(super) struct Arena {
    mapping: Mapping,
    buckets_per_row: usize,
}

impl Arena {
    /// Returns an arena of `rows` rows of `buckets_per_row` buckets.
    ///
    /// # Panics
    /// If the system has no address space for them, as an allocation would.
    pub(super) fn new(rows: usize, buckets_per_row: usize) -> Self {
        let bytes = rows * buckets_per_row * size_of::<Bucket>();
        let map = MmapOptions::new().len(bytes).no_reserve_swap().map_anon();
        let map = map.unwrap_or_else(|error| panic!("no room for {bytes} bytes of keys: {error}"));
        advise_huge_pages(&map);
        let mapping = Mapping::new(MutBorrow::new(map), |map| {
            <[Bucket]>::mut_from_bytes(map.borrow_mut())
                .expect("a mapping begins at a page and is whole buckets long")
        });
        Self { mapping, buckets_per_row }
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        self.buckets().len() / self.buckets_per_row
    }

    /// Returns `count` buckets of a row, from its bucket number `begin` on.
    #[inline]
    pub(super) fn slice(&self, row: usize, begin: usize, count: usize) -> &[Bucket] {
        let begin = self.number(row, begin);
        &self.buckets()[begin..begin + count]
    }

    /// Returns the number of a bucket among all, from its row and its place there.
    #[inline]
    pub(super) const fn number(&self, row: usize, place: usize) -> usize {
        row * self.buckets_per_row + place
    }

    /// Reads something of both cache lines of the bucket with this number.
    #[inline]
    pub(super) fn touch(&self, number: usize) -> u64 {
        let bucket = &self.buckets()[number];
        bucket[0].load(Relaxed).wrapping_add(bucket[BUCKET_WORDS - 1].load(Relaxed))
    }

    #[inline]
    fn buckets(&self) -> &[Bucket] {
        self.mapping.borrow_dependent()
    }
}

/// Asks for huge pages; a system without them uses small ones.
fn advise_huge_pages(map: &MmapMut) {
    #[cfg(target_os = "linux")]
    if let Some(bytes) = map.len().checked_sub(SMALL_BYTES).filter(|bytes| *bytes > 0) {
        map.advise_range(memmap2::Advice::HugePage, SMALL_BYTES, bytes).ok();
    }
    #[cfg(not(target_os = "linux"))]
    let _ = map;
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mapping: _, buckets_per_row } = self;
        f.debug_struct("Arena")
            .field("rows", &self.rows())
            .field("buckets_per_row", buckets_per_row)
            .finish_non_exhaustive()
    }
}
