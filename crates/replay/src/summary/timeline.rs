//! Requests over time, in a bounded number of buckets.
//!
//! The buckets begin as microseconds. When the span of time no longer fits, neighbours are joined
//! into the next wider bucket that a person would choose (a second, 5 seconds, .. a day), so memory
//! is constant and the span need not be known beforehand. Buckets begin at whole multiples of their
//! width.

use sluicegate::Micros;

/// Most buckets of a chart: about as many as it has pixels across.
pub(crate) const BUCKETS_MAX: usize = 1_200;

/// Widths, µs: each divides the next.
pub(crate) const WIDTHS_US: [u64; 27] = {
    const MS: u64 = 1_000;
    const S: u64 = 1_000 * MS;
    const MIN: u64 = 60 * S;
    const H: u64 = 60 * MIN;
    const D: u64 = 24 * H;
    [
        1,
        10,
        100,
        MS,
        5 * MS,
        10 * MS,
        50 * MS,
        100 * MS,
        500 * MS,
        S,
        5 * S,
        10 * S,
        30 * S,
        MIN,
        5 * MIN,
        10 * MIN,
        30 * MIN,
        H,
        3 * H,
        6 * H,
        12 * H,
        D,
        7 * D,
        28 * D,
        364 * D,
        3_640 * D,
        36_400 * D,
    ]
};

/// Counts per bucket of time.
#[derive(Debug)]
pub(crate) struct Timeline {
    buckets_max: usize,
    /// The index of the width in [`WIDTHS_US`].
    width: usize,
    /// The beginning of the first bucket, in widths.
    first: u64,
    buckets: Vec<TimeBucket>,
}

/// The requests of one bucket of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeBucket {
    /// Requests that passed at once.
    pub(crate) passed: u64,
    /// Requests that passed after a wait.
    pub(crate) waited: u64,
    /// Requests that were refused.
    pub(crate) refused: u64,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFate {
    /// The request passed at once.
    Passed,
    /// The request passed after a wait.
    Waited,
    /// The request was refused.
    Refused,
}

impl Timeline {
    /// Returns a timeline of at most `buckets_max` buckets, at least 2.
    pub(crate) const fn new(buckets_max: usize) -> Self {
        Self { buckets_max, width: 0, first: 0, buckets: Vec::new() }
    }

    /// Returns a timeline for times in whole seconds: no bucket is shorter than a second.
    pub(crate) fn of_seconds(buckets_max: usize) -> Self {
        let width = WIDTHS_US.iter().position(|width| *width == 1_000_000);
        Self { width: width.expect("a second is a width"), ..Self::new(buckets_max) }
    }

    /// Begins the timeline at `at`, if this is the first request, whenever it is counted.
    pub(crate) fn begin(&mut self, at: Micros) {
        if self.buckets.is_empty() {
            self.first = at.get() / self.width().get();
            self.buckets.push(TimeBucket::default());
        }
    }

    /// Counts a request that came at `at`, which is not before the first one.
    pub(crate) fn add(&mut self, at: Micros, fate: RequestFate) {
        self.begin(at);
        let bucket = loop {
            let place = at.get() / self.width().get();
            match usize::try_from(place.saturating_sub(self.first)) {
                Ok(bucket) if bucket < self.buckets_max => break bucket,
                _ => self.widen(),
            }
        };
        if bucket >= self.buckets.len() {
            self.buckets.resize(bucket + 1, TimeBucket::default());
        }
        let TimeBucket { passed, waited, refused } = &mut self.buckets[bucket];
        *match fate {
            RequestFate::Passed => passed,
            RequestFate::Waited => waited,
            RequestFate::Refused => refused,
        } += 1;
    }

    /// The length of a bucket.
    pub(crate) fn width(&self) -> Micros {
        Micros::new(WIDTHS_US[self.width])
    }

    /// The buckets from the first to the last that has requests, each with its beginning.
    pub(crate) fn buckets(&self) -> impl ExactSizeIterator<Item = (Micros, TimeBucket)> {
        let (first, width) = (self.first, self.width().get());
        let buckets = self.buckets.iter().enumerate();
        buckets.map(move |(place, bucket)| (Micros::new((first + place as u64) * width), *bucket))
    }

    fn widen(&mut self) {
        let factor = WIDTHS_US[self.width + 1] / WIDTHS_US[self.width];
        let first = self.first / factor;
        let mut joined: Vec<TimeBucket> = Vec::with_capacity(self.buckets.len());
        for (place, bucket) in self.buckets.iter().enumerate() {
            let place = (self.first + place as u64) / factor - first;
            let place = usize::try_from(place).expect("not more buckets than before");
            joined.resize(joined.len().max(place + 1), TimeBucket::default());
            let TimeBucket { passed, waited, refused } = &mut joined[place];
            *passed += bucket.passed;
            *waited += bucket.waited;
            *refused += bucket.refused;
        }
        (self.width, self.first, self.buckets) = (self.width + 1, first, joined);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_kernel::limits::SPAN_MAX_US;

    use super::*;

    fn timeline(times: &[u64]) -> Timeline {
        let mut timeline = Timeline::new(BUCKETS_MAX);
        for at in times {
            timeline.add(Micros::new(*at), RequestFate::Passed);
        }
        timeline
    }

    #[test]
    fn a_log_of_one_second_has_one_bucket_of_a_second() {
        let mut timeline = Timeline::of_seconds(BUCKETS_MAX);
        for at in [7_000_000, 7_000_000, 7_999_999] {
            timeline.add(Micros::new(at), RequestFate::Passed);
        }
        let buckets: Vec<_> = timeline.buckets().collect();
        assert_eq!(timeline.width(), Micros::SECOND);
        assert!(
            matches!(buckets[..], [(at, TimeBucket { passed: 3, .. })] if at == Micros::from_secs(7))
        );
    }

    #[test]
    fn each_width_divides_the_next_and_the_last_holds_all_of_time() {
        assert!(WIDTHS_US.windows(2).all(|pair| pair[1] % pair[0] == 0));
        assert!(SPAN_MAX_US / WIDTHS_US[WIDTHS_US.len() - 1] < BUCKETS_MAX as u64);
    }

    #[test]
    fn buckets_begin_at_multiples_of_a_width_that_people_use() {
        let timeline = timeline(&[65_000_000, 66_000_000, 3 * 3_600_000_000]);
        assert_eq!(timeline.width(), Micros::from_secs(10));
        let buckets: Vec<_> = timeline.buckets().filter(|(_, bucket)| bucket.passed > 0).collect();
        let counts: Vec<_> = buckets.iter().map(|(at, bucket)| (at.get(), bucket.passed)).collect();
        assert_eq!(counts, [(60_000_000, 2), (10_800_000_000, 1)]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_memory_is_bounded(
            mut times in proptest::collection::vec(0_u64..=SPAN_MAX_US, 0..50),
            shift in 0_u32..53,
        ) {
            times.iter_mut().for_each(|at| *at >>= shift);
            times.sort_unstable();
            let timeline = timeline(&times);
            prop_assert!(timeline.buckets().len() <= BUCKETS_MAX);
            let width = timeline.width().get();
            for (start, bucket) in timeline.buckets() {
                let inside = |at: &&u64| (start.get()..start.get() + width).contains(*at);
                prop_assert_eq!(bucket.passed, times.iter().filter(inside).count() as u64);
            }
            let total: u64 = timeline.buckets().map(|(_, bucket)| bucket.passed).sum();
            prop_assert_eq!(total, times.len() as u64);
        }
    }
}
