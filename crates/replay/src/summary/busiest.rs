//! The busiest second: its count, and its instant. Seconds begin at whole seconds of the clock.

use std::collections::BTreeMap;

use sluicegate::Micros;

/// Most seconds that are counted ahead of time. Of waits that spread further than a day only
/// this many are counted; a second so far ahead is hardly the busiest.
const SECONDS_AHEAD_MAX: usize = 86_400;

/// Counts per second, of which only the highest is kept.
#[derive(Debug, Default)]
pub(crate) struct Busiest {
    /// The second that is being counted, since zero.
    second: u64,
    count: u64,
    /// The counts of later seconds.
    ahead: BTreeMap<u64, u64>,
    best: Option<Second>,
}

/// A second and its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Second {
    /// Its beginning.
    pub(crate) at: Micros,
    /// Number of events in it.
    pub(crate) count: u64,
}

impl Busiest {
    /// Counts one event at `at`, when it is `now`: `at` is not before `now`, and `now` never goes back.
    pub(crate) fn add(&mut self, at: Micros, now: Micros) {
        self.advance(second(now));
        let second = second(at);
        if second == self.second {
            self.count += 1;
        } else if let Some(count) = self.ahead.get_mut(&second) {
            *count += 1;
        } else if self.ahead.len() < SECONDS_AHEAD_MAX {
            self.ahead.insert(second, 1);
        }
    }

    /// The busiest second, the first of equals; `None` if nothing was counted.
    pub(crate) fn best(&self) -> Option<Second> {
        let ahead = self.ahead.iter().map(|(second, count)| (*second, *count));
        ahead.fold(better(self.best, self.second, self.count), |best, (second, count)| {
            better(best, second, count)
        })
    }

    fn advance(&mut self, now: u64) {
        if now <= self.second {
            return;
        }
        self.best = better(self.best, self.second, self.count);
        while let Some(first) = self.ahead.first_entry().filter(|first| *first.key() < now) {
            let (second, count) = first.remove_entry();
            self.best = better(self.best, second, count);
        }
        self.second = now;
        self.count = self.ahead.remove(&now).unwrap_or(0);
    }
}

fn better(best: Option<Second>, second: u64, count: u64) -> Option<Second> {
    if count > best.map_or(0, |best| best.count) {
        return Some(Second { at: Micros::from_secs(second), count });
    }
    best
}

fn second(at: Micros) -> u64 {
    at.get() / Micros::SECOND.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(events: &[(u64, u64)]) -> Option<(u64, u64)> {
        let mut busiest = Busiest::default();
        for (at_ms, now_ms) in events {
            busiest.add(Micros::from_millis(*at_ms), Micros::from_millis(*now_ms));
        }
        busiest.best().map(|second| (second.at.get() / 1_000, second.count))
    }

    #[test]
    fn the_busiest_second_is_the_first_of_equals() {
        assert_eq!(best(&[]), None);
        assert_eq!(best(&[(5_500, 5_500)]), Some((5_000, 1)));
        assert_eq!(best(&[(0, 0), (999, 999), (1_000, 1_000), (1_999, 1_999)]), Some((0, 2)));
        assert_eq!(best(&[(0, 0), (1_000, 1_000), (1_999, 1_999)]), Some((1_000, 2)));
    }

    #[test]
    fn what_waits_counts_in_the_second_in_which_it_passes() {
        assert_eq!(best(&[(0, 0), (2_000, 0), (2_500, 100), (2_600, 2_600)]), Some((2_000, 3)));
        assert_eq!(best(&[(0, 0), (2_000, 0), (2_500, 100), (4_000, 4_000)]), Some((2_000, 2)));
        assert_eq!(best(&[(0, 0), (9_000, 0), (9_500, 100)]), Some((9_000, 2)));
    }
}
