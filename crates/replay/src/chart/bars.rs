//! The bars of a picture: buckets of a width that suits their counts.

use super::axis::steps;
use crate::summary::{CountedBucket, TimeBuckets};

/// Most bars, each of which has a tooltip: more would be thinner than their gaps.
pub(super) const BARS_MAX: u64 = 150;

/// Fewest bars, where few requests ask for wide ones: fewer have no shape.
pub(super) const BARS_MIN: u64 = 24;

/// Fewest requests of the median bar: fewer are noise.
pub(super) const MEDIAN_MIN: u64 = 20;

/// Buckets in a row, each as wide as the others.
pub(super) struct Bars {
    pub(super) width_us: u64,
    pub(super) buckets: Vec<CountedBucket>,
}

impl Bars {
    /// Returns the narrowest of at most [`BARS_MAX`] whose median has [`MEDIAN_MIN`] requests, or the widest
    /// of at least [`BARS_MIN`].
    pub(super) fn of(timeline: &TimeBuckets) -> Self {
        let TimeBuckets { bucket_us, buckets } = timeline;
        let count = buckets.len() as u64;
        let fits = |width: &u64| {
            width.is_multiple_of(*bucket_us) && count.div_ceil(width / bucket_us) <= BARS_MAX
        };
        let narrowest = bucket_us * count.div_ceil(BARS_MAX).max(1);
        let mut widths = steps().filter(fits);
        let mut bars = Self::joined(buckets, widths.next().unwrap_or(narrowest));
        for width in widths {
            if bars.median() >= MEDIAN_MIN || count * bucket_us / width < BARS_MIN {
                break;
            }
            bars = Self::joined(buckets, width);
        }
        bars
    }

    /// Returns `buckets` in wider ones, which begin at multiples of `width_us`.
    fn joined(buckets: &[CountedBucket], width_us: u64) -> Self {
        let mut bars: Vec<CountedBucket> = Vec::new();
        for bucket in buckets {
            let at_us = bucket.at_us - bucket.at_us % width_us;
            match bars.last_mut().filter(|last| last.at_us == at_us) {
                None => bars.push(CountedBucket { at_us, ..*bucket }),
                Some(last) => {
                    last.passed += bucket.passed;
                    last.waited += bucket.waited;
                    last.refused += bucket.refused;
                }
            }
        }
        Self { width_us, buckets: bars }
    }

    /// Requests in the median of the bars that are not empty.
    pub(super) fn median(&self) -> u64 {
        let mut counts: Vec<u64> =
            self.buckets.iter().map(requests).filter(|count| *count > 0).collect();
        counts.sort_unstable();
        counts.get(counts.len() / 2).copied().unwrap_or(0)
    }

    /// Requests in the highest bar.
    pub(super) fn most(&self) -> u64 {
        self.buckets.iter().map(requests).max().unwrap_or(0)
    }

    /// The instant at which the first bar begins, µs.
    pub(super) fn first_us(&self) -> u64 {
        self.buckets.first().map_or(0, |bar| bar.at_us)
    }

    /// The instant at which the last bar ends, µs.
    pub(super) fn end_us(&self) -> u64 {
        self.buckets.last().map_or(0, |bar| bar.at_us) + self.width_us
    }
}

/// All requests of a bucket.
pub(super) fn requests(bucket: &CountedBucket) -> u64 {
    bucket.passed + bucket.waited + bucket.refused
}
