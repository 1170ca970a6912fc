//! The bound of each rule, over everything that was admitted.
//!
//! A judge is given every admission with its true instant, in order, and returns by how much the bound
//! of the rule's own definition is exceeded. All arithmetic is exact.

use std::collections::VecDeque;

/// The promise of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// `depth + permits/period_us · Δ` in every interval Δ.
    Bucket { depth: u64, permits: u64, period_us: u64 },
    /// `depth + permits · (⌊Δ/period_us⌋ + 1)` in every interval Δ.
    Stepped { depth: u64, permits: u64, period_us: u64 },
    /// `limit` in each window that begins at a multiple of its length.
    Aligned { limit: u64, window_us: u64 },
    /// `limit` in each window that the store ever showed.
    Shown { limit: u64 },
    /// `limit` in every interval of this length.
    Sliding { limit: u64, window_us: u64 },
    /// `limit` in each aligned window, and `limit · (1 + elapsed/window)` in the interval of a window's
    /// length that ends when `elapsed` of a window is over.
    Counter { limit: u64, window_us: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Judge {
    bound: Bound,
    /// For a bucket: permits · period in use, as of the last admission.
    level: u128,
    last_us: u64,
    /// Admissions that can still matter, and their sum.
    recent: VecDeque<(u64, u64)>,
    sum: u64,
    /// The aligned window of the last admission, and its count.
    window: u64,
    count: u64,
    shown: Vec<(u64, u64)>,
    /// The worst so far, in millionths of a permit above the bound.
    worst: i128,
}

impl Judge {
    pub(crate) fn new(bound: Bound) -> Self {
        Self {
            bound,
            level: 0,
            last_us: 0,
            recent: VecDeque::new(),
            sum: 0,
            window: 0,
            count: 0,
            shown: Vec::new(),
            worst: i128::MIN,
        }
    }

    pub(crate) fn worst(&self) -> i128 {
        self.worst
    }

    /// Forgets usage: permits that were admitted before count no more.
    pub(crate) fn reset(&mut self) {
        *self = Self { worst: self.worst, ..Self::new(self.bound) };
    }

    /// The store shows a window from `start_us` until before `end_us`.
    pub(crate) fn show(&mut self, start_us: u64, end_us: u64) {
        if let Bound::Shown { limit } = self.bound
            && !self.shown.contains(&(start_us, end_us))
        {
            self.shown.push((start_us, end_us));
            let inside = self.recent.iter().filter(|(at, _)| (start_us..end_us).contains(at));
            let sum: u64 = inside.map(|(_, permits)| permits).sum();
            self.over(i128::from(sum) - i128::from(limit), 1);
        }
    }

    pub(crate) fn admit(&mut self, permits: u64, at_us: u64) {
        assert!(at_us >= self.last_us, "admissions come in order");
        let since_us = at_us - self.last_us;
        self.last_us = at_us;
        self.recent.push_back((at_us, permits));
        self.sum += permits;
        match self.bound {
            Bound::Bucket { depth, permits: rate, period_us } => {
                let out = u128::from(since_us) * u128::from(rate);
                let taken = u128::from(permits) * u128::from(period_us);
                self.level = self.level.saturating_sub(out) + taken;
                let full = i128::from(depth) * i128::from(period_us);
                self.over(i128::try_from(self.level).unwrap() - full, period_us);
                self.recent.clear();
            }
            Bound::Stepped { depth, permits: rate, period_us } => {
                let mut sum = 0;
                let worst = self.recent.iter().rev().map(|(from_us, permits)| {
                    sum += i128::from(*permits);
                    let steps = (at_us - from_us) / period_us + 1;
                    sum - i128::from(depth) - i128::from(steps) * i128::from(rate)
                });
                let worst = worst.max().unwrap();
                self.over(worst, 1);
            }
            Bound::Aligned { limit, window_us } => self.aligned(permits, limit, window_us),
            Bound::Shown { limit } => {
                let sum_of = |(start, end): &(u64, u64)| {
                    let inside = self.recent.iter().filter(|(at, _)| (*start..*end).contains(at));
                    inside.map(|(_, permits)| i128::from(*permits)).sum::<i128>()
                };
                let now = self.shown.iter().filter(|(start, end)| (*start..*end).contains(&at_us));
                if let Some(sum) = now.map(sum_of).max() {
                    self.over(sum - i128::from(limit), 1);
                }
            }
            Bound::Sliding { limit, window_us } => {
                self.forget_before(window_us);
                self.over(i128::from(self.sum) - i128::from(limit), 1);
            }
            Bound::Counter { limit, window_us } => {
                self.aligned(permits, limit, window_us);
                self.forget_before(window_us);
                let elapsed = i128::from(at_us % window_us);
                let (sum, limit, window) =
                    (i128::from(self.sum), i128::from(limit), i128::from(window_us));
                self.over(sum * window - limit * (window + elapsed), window_us);
            }
        }
    }

    fn aligned(&mut self, permits: u64, limit: u64, window_us: u64) {
        let window = self.last_us / window_us;
        if window != self.window {
            (self.window, self.count) = (window, 0);
        }
        self.count += permits;
        self.over(i128::from(self.count) - i128::from(limit), 1);
    }

    fn forget_before(&mut self, window_us: u64) {
        while let Some((at_us, permits)) = self.recent.front().copied() {
            if at_us + window_us > self.last_us {
                break;
            }
            self.recent.pop_front();
            self.sum -= permits;
        }
    }

    /// Records that `parts` are above the bound; a permit has `per_permit` of them.
    fn over(&mut self, parts: i128, per_permit: u64) {
        let millionths = parts * 1_000_000;
        // Rounded up: not the least part may be above.
        let rounded = millionths.div_euclid(i128::from(per_permit))
            + i128::from(millionths.rem_euclid(i128::from(per_permit)) > 0);
        self.worst = self.worst.max(rounded);
    }
}
