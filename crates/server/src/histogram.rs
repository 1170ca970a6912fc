//! Histograms of durations: counts in fixed buckets, cheap to record and to add up.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets, ns: from a decision in memory to the longest wait for a store.
/// Longer spans are in one more bucket.
const BOUNDS_NS: [u64; 18] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
];

const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// Spans being counted, by one thread mostly.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// Spans that were counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans {
    buckets: [u64; BUCKETS],
    sum_ns: u64,
}

impl Histogram {
    /// Counts a span of `took`.
    pub(crate) fn record(&self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let place = BOUNDS_NS.partition_point(|bound| *bound < took_ns);
        self.buckets[place].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(took_ns, Relaxed);
    }

    /// Adds what was counted to `spans`.
    pub(crate) fn add_to(&self, spans: &mut Spans) {
        let Self { buckets, sum_ns } = self;
        for (sum, bucket) in spans.buckets.iter_mut().zip(buckets) {
            *sum += bucket.load(Relaxed);
        }
        spans.sum_ns += sum_ns.load(Relaxed);
    }
}

impl Spans {
    /// The number of spans.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The spans that were counted since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut news = self.clone();
        for (bucket, earlier) in news.buckets.iter_mut().zip(earlier.buckets) {
            *bucket = bucket.saturating_sub(earlier);
        }
        news.sum_ns = self.sum_ns.wrapping_sub(earlier.sum_ns);
        news
    }

    /// Adds `more`.
    pub(crate) fn add(&mut self, more: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(more.buckets) {
            *bucket += more;
        }
        self.sum_ns += more.sum_ns;
    }

    /// The bound, µs rounded up, that `percent` of the spans do not exceed; the largest bound also stands
    /// for longer spans. `None` if there are no spans.
    pub(crate) fn percentile_us(&self, percent: u64) -> Option<u64> {
        let count = self.count();
        let mut within = 0;
        let place = self.buckets.iter().position(|bucket| {
            within += bucket;
            within * 100 >= count * percent
        });
        let bound = BOUNDS_NS[place?.min(BOUNDS_NS.len() - 1)];
        (count > 0).then(|| bound.div_ceil(1_000))
    }

    /// The sum of all spans, seconds.
    #[expect(clippy::cast_precision_loss, reason = "seconds are told with 53 bits")]
    pub(crate) fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The buckets: upper bounds in seconds, the last infinite, and the number of spans in each alone.
    #[expect(clippy::cast_precision_loss, reason = "the bounds are small round numbers")]
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS_NS.iter().map(|bound| *bound as f64 / 1e9).chain([f64::INFINITY]);
        bounds.zip(self.buckets).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_in_the_first_bucket_that_it_fits_in() {
        let histogram = Histogram::default();
        for ns in [0, 250, 251, 100_000_000, 100_000_001] {
            histogram.record(Duration::from_nanos(ns));
        }
        let mut spans = Spans::default();
        histogram.add_to(&mut spans);
        let buckets = spans.buckets();
        assert_eq!((buckets[0], buckets[1]), ((250e-9, 2), (500e-9, 1)));
        assert_eq!((buckets[17], buckets[18]), ((0.1, 1), (f64::INFINITY, 1)));
        assert_eq!((spans.count(), spans.sum_seconds()), (5, 0.200_000_502));
    }

    #[test]
    fn a_percentile_is_the_bound_that_so_many_did_not_exceed() {
        let (histogram, mut before, mut after) =
            (Histogram::default(), Spans::default(), Spans::default());
        histogram.record(Duration::from_secs(1));
        histogram.add_to(&mut before);
        assert_eq!(before.percentile_us(50), Some(100_000));
        for us in [2, 2, 2, 900] {
            histogram.record(Duration::from_micros(us));
        }
        histogram.add_to(&mut after);
        let news = after.since(&before);
        assert_eq!((news.percentile_us(50), news.percentile_us(99)), (Some(3), Some(1_000)));
        assert_eq!(after.since(&after).percentile_us(50), None);
    }
}
