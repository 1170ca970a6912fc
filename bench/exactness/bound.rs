//! The admissions that a limit allows, and the excess of a history of admissions over it.
//!
//! A client does not see when a server decides, only that it was between sending the request and
//! reading the reply. So an admission counts towards an interval only if it was sent **and** answered
//! in it: a reported excess is a real one.
//!
//! Example: `10/s burst 2`. Three requests are sent at 0 ms and admitted; the replies come at 1 ms.
//! The interval from 0 to 1 ms has 3 admissions and allows 2.01: 0.99 too many. Had one of the replies
//! come at 100 ms, all three would fit into an interval that allows 3.

use std::fmt;
use std::time::Duration;

/// A limit for each key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    /// `token_bucket`: at most `burst + rate·Δ` in any interval Δ.
    Bucket { per_s: u32, burst: u32 },
    /// `fixed_window` of a day: at most `limit` in it. No run continues past midnight.
    Day { limit: u32 },
    /// `sliding_window`: at most `limit` in any interval of its length.
    Window { limit: u32, window_s: u32 },
    /// `concurrency`: at most `limit` permits held at once, each for `ttl_s` seconds unless it is released; `permits.rs` judges it.
    Held { limit: u32, ttl_s: u32 },
    /// A limit that no machine reaches, for measurements of rates instead of bounds.
    Unreached(Price),
}

/// The cost of a decision for Redis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Price {
    /// One bucket: so cheap that on two cores clients and servers run out of time before Redis does.
    Cheap,
    /// Eight sliding windows: so expensive that Redis runs out of time first.
    Dear,
}

impl Price {
    /// Number of keys. For expensive rules they are few, so that their windows stay filled, since a decision costs more
    /// with a fuller window; and many enough that two requests for one key are rarely sent together.
    pub(crate) fn keys(self) -> u32 {
        match self {
            Self::Cheap => 10_000,
            Self::Dear => 300,
        }
    }

    /// Requests outstanding on each of sixteen connections that give the most decisions per second in Redis.
    pub(crate) fn outstanding(self) -> usize {
        match self {
            Self::Cheap => 16,
            Self::Dear => 4,
        }
    }

    /// Time that keys are requested until a decision has its lasting cost.
    pub(crate) fn warm_up(self) -> Duration {
        match self {
            Self::Cheap => Duration::from_secs(1),
            Self::Dear => Duration::from_secs(WINDOW_S + 2),
        }
    }
}

/// The windows of expensive rules, s.
const WINDOW_S: u64 = 10;

/// A permit that was granted; times in µs since the run began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) sent_us: u64,
    pub(crate) replied_us: u64,
    pub(crate) key: u32,
    /// The server had no answer of Redis, and granted it from its share.
    pub(crate) by_share: bool,
}

impl Limit {
    /// The rules of a policy.
    pub(crate) fn rules(self) -> String {
        match self {
            Self::Bucket { per_s, burst } => {
                format!("{{ token_bucket: {{ rate: {per_s}/s, burst: {burst} }} }}")
            }
            Self::Day { limit } => format!("{{ fixed_window: {{ limit: {limit}, window: 1d }} }}"),
            Self::Window { limit, window_s } => {
                format!("{{ sliding_window: {{ limit: {limit}, window: {window_s}s }} }}")
            }
            Self::Held { limit, ttl_s } => {
                format!("{{ concurrency: {{ limit: {limit}, ttl: {ttl_s}s, queue: 1000 }} }}")
            }
            Self::Unreached(Price::Cheap) => {
                Self::Bucket { per_s: 1_000_000, burst: 1_000_000 }.rules()
            }
            Self::Unreached(Price::Dear) => {
                let window = format!(
                    "sliding_window: {{ limit: 1000000, window: {WINDOW_S}s, buckets: 60 }}"
                );
                let named = (0..8).map(|n| format!("{{ name: r{n}, {window} }}"));
                named.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// Returns the number of permits that a key may get in `us`, from the first request on.
    pub(crate) fn allows(self, us: u64) -> f64 {
        match self {
            Self::Bucket { per_s, burst } => f64::from(burst) + f64::from(per_s) * us as f64 / 1e6,
            Self::Day { limit } => limit.into(),
            // This many windows cover the time.
            Self::Window { limit, window_s } => {
                f64::from(limit) * ((us as f64 / 1e6 / f64::from(window_s)).floor() + 1.0)
            }
            Self::Held { .. } | Self::Unreached(_) => f64::INFINITY,
        }
    }

    /// The most that was admitted beyond the bound, in any interval and for any key; negative where
    /// every interval stays below it.
    pub(crate) fn most_over(self, admitted: &[Admitted]) -> f64 {
        let mut by_key = admitted.to_vec();
        by_key.sort_by_key(|event| event.key);
        let keys = by_key.chunk_by(|one, next| one.key == next.key);
        let over = keys.map(|events| match self {
            Self::Bucket { per_s, burst } => {
                most_within(events, f64::from(per_s) / 1e6) - f64::from(burst)
            }
            Self::Day { limit } => events.len() as f64 - f64::from(limit),
            Self::Window { limit, window_s } => {
                most_in_window(events, u64::from(window_s) * 1_000_000) as f64 - f64::from(limit)
            }
            Self::Held { .. } | Self::Unreached(_) => f64::NEG_INFINITY,
        });
        over.fold(f64::NEG_INFINITY, f64::max)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bucket { per_s, burst } => write!(f, "{per_s}/s burst {burst}"),
            Self::Day { limit } => write!(f, "{limit}/day"),
            Self::Window { limit, window_s } => write!(f, "{limit}/{window_s} s"),
            Self::Held { limit, .. } => write!(f, "{limit} held"),
            Self::Unreached(Price::Cheap) => write!(f, "not reached"),
            Self::Unreached(Price::Dear) => write!(f, "not reached, 8 windows"),
        }
    }
}

/// The maximum, over all intervals, of the admissions that are certainly in one, less `per_us` times its length.
///
/// It suffices to consider intervals that begin where a request is sent and end where a reply is read. Ends are walked
/// in order; a tree holds, for every beginning, the admissions in the interval so far.
fn most_within(events: &[Admitted], per_us: f64) -> f64 {
    let mut begins: Vec<_> = events.iter().map(|event| event.sent_us).collect();
    begins.sort_unstable();
    let mut by_end = events.to_vec();
    by_end.sort_by_key(|event| event.replied_us);
    let mut tree = Tree::new(begins.iter().map(|begin| per_us * *begin as f64));
    let mut most = f64::NEG_INFINITY;
    for event in by_end {
        // The admission is in every interval that begins before it was sent.
        tree.add_one_to_first(begins.partition_point(|begin| *begin <= event.sent_us));
        let begun = begins.partition_point(|begin| *begin <= event.replied_us);
        most = most.max(tree.most_of_first(begun) - per_us * event.replied_us as f64);
    }
    most
}

/// The most admissions that are certainly in an interval of `window_us`, which does not contain its own end.
fn most_in_window(events: &[Admitted], window_us: u64) -> usize {
    let mut by_begin = events.to_vec();
    by_begin.sort_by_key(|event| event.sent_us);
    let within = |place: usize| {
        let begin_us = by_begin[place].sent_us;
        let begun = by_begin[place..].iter().take_while(|it| it.sent_us < begin_us + window_us);
        begun.filter(|it| it.replied_us < begin_us + window_us).count()
    };
    (0..by_begin.len()).map(within).max().unwrap_or(0)
}

/// A row of numbers; adding one to the first few, and finding the maximum of the first few, take logarithmic time.
struct Tree {
    /// A power of two: the number of leaves, whose nodes follow those above them.
    leaves: usize,
    /// The maximum below a node, including additions at the node or below, but not above.
    most: Vec<f64>,
    added: Vec<f64>,
}

impl Tree {
    fn new(row: impl ExactSizeIterator<Item = f64>) -> Self {
        let leaves = row.len().next_power_of_two();
        let mut most = vec![f64::NEG_INFINITY; 2 * leaves];
        for (leaf, number) in most[leaves..].iter_mut().zip(row) {
            *leaf = number;
        }
        for node in (1..leaves).rev() {
            most[node] = most[2 * node].max(most[2 * node + 1]);
        }
        Self { leaves, most, added: vec![0.0; 2 * leaves] }
    }

    fn add_one_to_first(&mut self, count: usize) {
        self.add(1, self.leaves, count);
    }

    fn most_of_first(&self, count: usize) -> f64 {
        self.most_below(1, self.leaves, count)
    }

    /// Adds one to the first `count` of the `width` leaves of `node`.
    fn add(&mut self, node: usize, width: usize, count: usize) {
        if count >= width {
            self.most[node] += 1.0;
            self.added[node] += 1.0;
        } else if count > 0 {
            let half = width / 2;
            self.add(2 * node, half, count);
            self.add(2 * node + 1, half, count.saturating_sub(half));
            self.most[node] = self.most[2 * node].max(self.most[2 * node + 1]) + self.added[node];
        }
    }

    fn most_below(&self, node: usize, width: usize, count: usize) -> f64 {
        if count == 0 {
            f64::NEG_INFINITY
        } else if count >= width {
            self.most[node]
        } else {
            let half = width / 2;
            let left = self.most_below(2 * node, half, count);
            let right = self.most_below(2 * node + 1, half, count.saturating_sub(half));
            left.max(right) + self.added[node]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Limit = Limit::Bucket { per_s: 10, burst: 2 };

    fn check(limit: Limit, history: &[(u64, u64, u32)], expected: f64) {
        let event =
            |&(sent_us, replied_us, key)| Admitted { sent_us, replied_us, key, by_share: false };
        let over = limit.most_over(&history.iter().map(event).collect::<Vec<_>>());
        assert!((over - expected).abs() < 1e-9, "{over}, not {expected}");
    }

    #[test]
    fn what_was_surely_admitted_in_an_interval_counts_against_it() {
        check(TEN, &[(0, 1_000, 0); 3], 0.99);
        check(TEN, &[(0, 1_000, 0), (0, 1_000, 0), (0, 100_000, 0)], 0.0);
    }

    #[test]
    fn an_excess_is_found_wherever_it_is() {
        let calm = (0..50).map(|second| (second * 1_000_000, second * 1_000_000 + 1, 0));
        let late = (0..5).map(|_| (60_000_000, 60_010_000, 0));
        check(TEN, &calm.chain(late).collect::<Vec<_>>(), 2.9);
    }

    #[test]
    fn every_key_has_its_own_budget() {
        check(TEN, &[(0, 1_000, 0), (0, 1_000, 1), (0, 1_000, 2), (0, 1_000, 2)], -0.01);
        check(Limit::Day { limit: 1 }, &[(0, 1, 0), (0, 1, 1), (5, 6, 1)], 1.0);
    }

    #[test]
    fn a_window_is_looked_for_wherever_it_begins() {
        let limit = Limit::Window { limit: 2, window_s: 1 };
        check(limit, &[(0, 1, 0), (600_000, 600_001, 0), (1_000_000, 1_000_001, 0)], 0.0);
        check(limit, &[(0, 1, 0), (600_000, 600_001, 0), (999_000, 999_001, 0)], 1.0);
        check(limit, &[(0, 1, 0), (600_000, 600_001, 0), (999_000, 1_000_000, 0)], 0.0);
    }

    #[test]
    fn the_tree_finds_what_looking_at_every_interval_finds() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let events: Vec<_> = (0..random.u64(1..40))
                .map(|_| {
                    let sent_us = random.u64(0..1_000);
                    let replied_us = sent_us + random.u64(0..200);
                    Admitted { sent_us, replied_us, key: 0, by_share: false }
                })
                .collect();
            let per_us = random.f64() / 10.0;
            let within = |from: u64, to: u64| {
                let inside = |event: &&Admitted| event.sent_us >= from && event.replied_us <= to;
                events.iter().filter(inside).count() as f64 - per_us * (to as f64 - from as f64)
            };
            let ends = || events.iter().map(|event| event.replied_us);
            let begins = events.iter().map(|event| event.sent_us);
            let intervals = begins.flat_map(|from| ends().map(move |to| (from, to)));
            let all = intervals.filter(|(from, to)| from <= to);
            let expected = all.map(|(from, to)| within(from, to)).fold(f64::MIN, f64::max);
            assert!((most_within(&events, per_us) - expected).abs() < 1e-9);
        }
    }
}
