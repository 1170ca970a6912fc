//! Results of requests over the last minutes, the last hour and the last day, for every policy.
//!
//! **What it remembers**: for each policy that had traffic a ring of 360 buckets of 10 s and one of 288
//! buckets of 5 min; for each policy that a client watches also one of 120 buckets of 1 s. A bucket is nine
//! counts ([`RESULTS`](sluicegate_control::traffic::RESULTS)).
//!
//! Example: a counter says 5 at 12:00:01 and 7 at 12:00:02. The second 12:00:00 has 5 of them and 12:00:01
//! has 2; so the buckets of 10 s and of 5 min that begin at 12:00:00 have 7.
//!
//! **One property that always holds**: the buckets of all policies add up to what the counters counted, as
//! far as the rings go back.
//!
//! Nothing here is on the path of a decision: once a second the counters, which exist anyway, are read.
//! The time is passed in. A clock that goes back stays in the latest bucket.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_control::traffic::{Bucket, Counts, OTHER, PolicyCounts, RESULTS, Step};
use tokio::sync::watch;

use super::counts::PolicyTotal;

/// Maximum number of policies with rings of their own: 23 MB. The one that was busy least recently
/// makes room for another, and its counts join `(other)`.
const HISTORY_POLICIES_MAX: usize = 1_000;

/// Maximum number of policies whose seconds are kept: two for each stream that there can be.
pub(crate) const WATCHED_MAX: usize = 64;

/// Number of seconds that are kept: a client that reads slowly misses none of them.
pub(crate) const SECONDS: usize = 120;

/// Counts of a bucket. No policy has four billion decisions in five minutes.
type SlotCounts = [u32; RESULTS.len()];

/// The history of a server.
#[derive(Debug)]
pub(crate) struct TrafficHistory {
    rings: Mutex<Rings>,
    /// The second that was counted last; `None`: nothing is recorded.
    second: watch::Sender<Option<i64>>,
    /// Ends of the last buckets that the catalog has, by step.
    written: [AtomicI64; 2],
    /// Number of rows that the catalog did not take.
    dropped: AtomicU64,
}

/// The buckets.
#[derive(Debug, Default)]
struct Rings {
    policies: HashMap<Box<str>, Series>,
    /// Number of policies with slots, without `(other)`.
    kept: usize,
    watched: HashMap<Box<str>, Watched>,
    /// The first and the last second that were counted, since 1970; `None`: none was.
    seconds: Option<(i64, i64)>,
}

/// The history of one policy.
#[derive(Debug, Default)]
struct Series {
    /// The last values of its counters.
    seen: Counts,
    /// The last second in which it had traffic.
    busy_at: i64,
    /// Buckets of 10 s and behind them those of 5 min; `None`: it had no traffic, or made room.
    slots: Option<Box<[SlotCounts]>>,
}

/// The seconds of a policy that clients watch.
#[derive(Debug)]
struct Watched {
    watchers: usize,
    slots: Box<[SlotCounts]>,
}

impl Default for TrafficHistory {
    fn default() -> Self {
        let (second, _) = watch::channel(None);
        Self { rings: Mutex::default(), second, written: Default::default(), dropped: 0.into() }
    }
}

impl TrafficHistory {
    /// Records the decisions until `until_ms` since 1970: `totals` has the counters of each policy.
    pub(super) fn record(&self, until_ms: i64, totals: &[PolicyTotal]) {
        let second = self.rings().record(until_ms, totals);
        self.second.send_replace(Some(second));
    }

    /// Ends recording.
    pub(crate) fn end(&self) {
        self.second.send_replace(None);
    }

    /// Ends the buckets that contain `at_ms` since 1970, though they have time left.
    pub(crate) fn end_buckets(&self, at_ms: i64) {
        self.record(Step::Coarse.floor(at_ms) + Step::Coarse.ms(), &[]);
    }

    /// A receiver of the second that was counted last, and of those that follow.
    pub(crate) fn seconds(&self) -> watch::Receiver<Option<i64>> {
        self.second.subscribe()
    }

    /// The end of the last bucket that has ended, ms since 1970; `None`: nothing is recorded.
    pub(crate) fn through(&self, step: Step) -> Option<i64> {
        self.second.borrow().map(|second| step.floor((second + 1) * 1_000))
    }

    /// The buckets that have ended, from `since` on, except those that begin at `known`.
    pub(crate) fn buckets(&self, step: Step, since: i64, known: &BTreeSet<i64>) -> Vec<Bucket> {
        self.rings().buckets(step, since, known)
    }

    /// The counts of watched policies in this second, one of the last [`SECONDS`].
    pub(crate) fn second(&self, second: i64, policies: &[String]) -> Vec<Counts> {
        let rings = self.rings();
        let place = place(second, SECONDS);
        let of = |policy: &String| {
            rings
                .watched
                .get(policy.as_str())
                .map_or_else(Counts::default, |of| counts(&of.slots[place]))
        };
        policies.iter().map(of).collect()
    }

    /// Keeps the seconds of these policies from now on. Returns `false` if too many are watched.
    pub(crate) fn watch(&self, policies: &[String]) -> bool {
        self.rings().watch(policies)
    }

    /// Ends one client's watch of these policies.
    pub(crate) fn unwatch(&self, policies: &[String]) {
        self.rings().unwatch(policies);
    }

    /// The ends of the last buckets that the catalog has, by step; 0: none.
    pub(crate) fn written(&self) -> [i64; 2] {
        [0, 1].map(|step: usize| self.written[step].load(Relaxed))
    }

    /// Records that the catalog has the buckets until `through`, as far as it took them.
    pub(crate) fn set_written(&self, step: Step, through: i64) {
        self.written[step as usize].store(through, Relaxed);
    }

    /// Counts a row that the catalog did not take.
    pub(crate) fn drop_row(&self) {
        self.dropped.fetch_add(1, Relaxed);
    }

    /// The number of rows that the catalog did not take.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rings {
    /// Records the results until `until_ms` as those of the second before. Returns that second.
    fn record(&mut self, until_ms: i64, totals: &[PolicyTotal]) -> i64 {
        let second = until_ms.div_euclid(1_000) - 1;
        let second = self.seconds.map_or(second, |(_, last)| second.max(last));
        self.advance(second);
        for PolicyTotal { policy, counts: total } in totals {
            let series = match self.policies.get_mut(policy) {
                Some(series) => series,
                None => self.policies.entry(policy.clone()).or_default(),
            };
            let news = total.since(&series.seen);
            series.seen = *total;
            if news.is_zero() {
                continue;
            }
            series.busy_at = second;
            if let Some(watched) = self.watched.get_mut(policy) {
                add(&mut watched.slots[place(second, SECONDS)], &news);
            }
            let keeps = series.slots.is_some() || self.make_room(policy, second);
            let series = self.policies.entry(if keeps { policy.clone() } else { OTHER.into() });
            let slots = series.or_default().slots.get_or_insert_with(empty);
            for step in Step::ALL {
                add(&mut slots[slot(step, second)], &news);
            }
        }
        second
    }

    /// Empties the buckets that begin until `second`.
    fn advance(&mut self, second: i64) {
        let Some((begun, last)) = self.seconds else {
            self.seconds = Some((second, second));
            return;
        };
        self.seconds = Some((begun, second));
        for begins in (last + 1..=second).rev().take(SECONDS) {
            for watched in self.watched.values_mut() {
                watched.slots[place(begins, SECONDS)] = SlotCounts::default();
            }
        }
        for step in Step::ALL {
            let each = step.ms() / 1_000;
            let begin = |second: i64| second.div_euclid(each);
            for bucket in (begin(last) + 1..=begin(second)).rev().take(step.buckets()) {
                let place = slot(step, bucket * each);
                for slots in self.policies.values_mut().filter_map(|of| of.slots.as_mut()) {
                    slots[place] = SlotCounts::default();
                }
            }
        }
    }

    /// Returns whether `policy` may have slots; a policy that was not busy in this second makes room.
    fn make_room(&mut self, policy: &str, second: i64) -> bool {
        if policy == OTHER {
            return true;
        }
        if self.kept < HISTORY_POLICIES_MAX {
            self.kept += 1;
            return true;
        }
        let others = self.policies.iter_mut();
        let others = others.filter(|(name, of)| of.slots.is_some() && &***name != OTHER);
        let least = others.min_by_key(|(_, of)| of.busy_at).map(|(_, of)| of);
        let Some(gone) = least.filter(|of| of.busy_at < second).and_then(|of| of.slots.take())
        else {
            return false;
        };
        let other = self.policies.entry(OTHER.into()).or_default().slots.get_or_insert_with(empty);
        for (slot, gone) in other.iter_mut().zip(&gone) {
            add(slot, &counts(gone));
        }
        true
    }

    fn buckets(&self, step: Step, since: i64, known: &BTreeSet<i64>) -> Vec<Bucket> {
        let Some((begun, last)) = self.seconds else { return Vec::new() };
        let end = step.floor((last + 1) * 1_000);
        // One of the buckets is not over yet.
        let first = step.floor(last * 1_000) - step.kept_ms() + step.ms();
        let first = first.max(step.floor(begun * 1_000)).max(step.floor(since));
        let begins = (0..).map(|number| first + number * step.ms()).take_while(|at| *at < end);
        let bucket = |at| {
            let place = slot(step, at / 1_000);
            let counted = |policy: &str, of: &Series| {
                let counts = counts(&of.slots.as_ref()?[place]);
                let policy = policy.to_owned();
                (!counts.is_zero()).then(|| PolicyCounts { policy, counts, top: Vec::new() })
            };
            let policies = self.policies.iter().filter_map(|(policy, of)| counted(policy, of));
            Bucket { at, policies: policies.collect() }
        };
        begins.filter(|at| !known.contains(at)).map(bucket).collect()
    }

    fn watch(&mut self, policies: &[String]) -> bool {
        let new = policies.iter().filter(|policy| !self.watched.contains_key(policy.as_str()));
        if self.watched.len() + new.count() > WATCHED_MAX {
            return false;
        }
        for policy in policies {
            let slots = || vec![SlotCounts::default(); SECONDS].into();
            let new = || Watched { watchers: 0, slots: slots() };
            self.watched.entry(policy.as_str().into()).or_insert_with(new).watchers += 1;
        }
        true
    }

    fn unwatch(&mut self, policies: &[String]) {
        for policy in policies {
            let Some(watched) = self.watched.get_mut(policy.as_str()) else { continue };
            watched.watchers -= 1;
            if watched.watchers == 0 {
                self.watched.remove(policy.as_str());
            }
        }
    }
}

fn empty() -> Box<[SlotCounts]> {
    let buckets = Step::ALL.map(Step::buckets).iter().sum();
    vec![SlotCounts::default(); buckets].into()
}

/// The place of the bucket of `step` that contains `second`.
fn slot(step: Step, second: i64) -> usize {
    let before = if step == Step::Fine { 0 } else { Step::Fine.buckets() };
    before + place(second.div_euclid(step.ms() / 1_000), step.buckets())
}

fn place(number: i64, len: usize) -> usize {
    let len = i64::try_from(len).expect("rings are short");
    usize::try_from(number.rem_euclid(len)).expect("it is below the length")
}

fn add(slot: &mut SlotCounts, counts: &Counts) {
    for (count, more) in slot.iter_mut().zip(counts.0) {
        *count = count.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    }
}

fn counts(slot: &SlotCounts) -> Counts {
    Counts(slot.map(u64::from))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const BEGIN: i64 = 1_800_000_000;

    fn totals(of: &[(&str, u64)]) -> Vec<PolicyTotal> {
        let total = |(policy, count): &(&str, u64)| PolicyTotal {
            policy: (*policy).into(),
            counts: refused(*count),
        };
        of.iter().map(total).collect()
    }

    fn refused(count: u64) -> Counts {
        Counts([0, 0, 0, 0, 0, count, 0, 0, 0])
    }

    fn sum(buckets: &[Bucket], policy: Option<&str>) -> Counts {
        let mut sum = Counts::default();
        let all = buckets.iter().flat_map(|bucket| &bucket.policies);
        for of in all.filter(|of| policy.is_none_or(|policy| of.policy == policy)) {
            sum.add(&of.counts);
        }
        sum
    }

    fn all(rings: &Rings, step: Step) -> Vec<Bucket> {
        rings.buckets(step, 0, &BTreeSet::new())
    }

    #[test]
    fn the_example_of_the_essay_is_true() {
        let mut rings = Rings::default();
        assert!(rings.watch(&["p".to_owned()]));
        rings.record((BEGIN + 1) * 1_000 + 3, &totals(&[("p", 5)]));
        rings.record((BEGIN + 2) * 1_000 + 7, &totals(&[("p", 7)]));
        let watched = &rings.watched["p"].slots;
        let of = |second| counts(&watched[place(second, SECONDS)]);
        assert_eq!((of(BEGIN), of(BEGIN + 1)), (refused(5), refused(2)));
        assert_eq!(all(&rings, Step::Fine), [], "it is not over");
        rings.record((BEGIN + 300) * 1_000, &totals(&[("p", 7)]));
        for step in Step::ALL {
            let first = &all(&rings, step)[0];
            assert_eq!(
                (first.at, sum(std::slice::from_ref(first), None)),
                (BEGIN * 1_000, refused(7))
            );
        }
        assert_eq!(all(&rings, Step::Fine).len(), 30);
    }

    #[test]
    fn a_ring_goes_back_so_far_and_no_further() {
        let mut rings = Rings::default();
        for second in 1..=25 * 3_600_i64 {
            let total = u64::try_from(second).unwrap();
            rings.record((BEGIN + second) * 1_000, &totals(&[("p", total)]));
        }
        let (fine, coarse) = (all(&rings, Step::Fine), all(&rings, Step::Coarse));
        assert_eq!((fine.len(), coarse.len()), (360, 288));
        assert_eq!(sum(&fine, None), refused(3_600));
        assert_eq!(sum(&coarse, None), refused(24 * 3_600));
        assert_eq!(fine[0].at, (BEGIN + 24 * 3_600) * 1_000);
        let known = fine[1..].iter().map(|bucket| bucket.at).collect();
        assert_eq!(rings.buckets(Step::Fine, 0, &known), fine[..1]);
        // Nothing for longer than a ring.
        rings.record((BEGIN + 50 * 3_600) * 1_000, &totals(&[("p", 25 * 3_600 + 1)]));
        assert_eq!(sum(&all(&rings, Step::Coarse), None), refused(1));
    }

    #[test]
    fn a_clock_that_went_back_stays_in_the_latest_bucket() {
        let mut rings = Rings::default();
        rings.record((BEGIN + 100) * 1_000, &totals(&[("p", 1)]));
        assert_eq!(rings.record((BEGIN + 10) * 1_000, &totals(&[("p", 3)])), BEGIN + 99);
        rings.record((BEGIN + 110) * 1_000, &totals(&[("p", 3)]));
        assert_eq!(sum(&all(&rings, Step::Fine), None), refused(3));
        assert_eq!(all(&rings, Step::Fine)[0].at, (BEGIN + 90) * 1_000);
    }

    #[test]
    fn the_policy_that_was_busy_least_recently_makes_room_and_no_count_is_lost() {
        let mut rings = Rings::default();
        let name = |number: usize| Box::<str>::from(format!("p{number}"));
        let more = HISTORY_POLICIES_MAX + 200;
        let mut all_totals: Vec<_> =
            (0..more).map(|at| PolicyTotal { policy: name(at), counts: refused(0) }).collect();
        for (second, (at, busy)) in (1_i64..).zip((0..more).map(|at| (at, refused(2)))) {
            all_totals[at].counts = busy;
            rings.record((BEGIN + second) * 1_000, &all_totals);
        }
        rings.record((BEGIN + 1_500) * 1_000, &all_totals);
        let buckets = all(&rings, Step::Coarse);
        assert_eq!(sum(&buckets, None), refused(2 * more as u64));
        assert_eq!(sum(&buckets, Some(OTHER)), refused(400));
        assert_eq!(
            (sum(&buckets, Some("p199")), sum(&buckets, Some("p200"))),
            (refused(0), refused(2))
        );
        let with_slots = rings.policies.values().filter(|of| of.slots.is_some()).count();
        assert_eq!(with_slots, HISTORY_POLICIES_MAX + 1);

        // Of policies that are all busy at the same time none pushes out another.
        for PolicyTotal { counts, .. } in &mut all_totals {
            counts.add(&refused(1));
        }
        rings.record((BEGIN + 1_501) * 1_000, &all_totals);
        rings.record((BEGIN + 1_800) * 1_000, &all_totals);
        assert_eq!(sum(&all(&rings, Step::Coarse), None), refused(3 * more as u64));
    }

    #[test]
    fn so_many_policies_are_watched_and_no_more_until_one_is_not() {
        let mut rings = Rings::default();
        let names: Vec<_> = (0..WATCHED_MAX).map(|at| format!("p{at}")).collect();
        assert!(rings.watch(&names) && rings.watch(&names[..2]));
        assert!(!rings.watch(&["more".to_owned()]));
        rings.unwatch(&names[..2]);
        assert!(!rings.watch(&["more".to_owned()]), "somebody else still watches them");
        rings.unwatch(&names[..1]);
        assert!(rings.watch(&["more".to_owned()]));
        assert_eq!(rings.watched.len(), WATCHED_MAX);
    }

    proptest! {
        #[test]
        fn buckets_add_up_to_what_was_counted(
            walk in vec((0_i64..12_000, 0_usize..6, 0..RESULTS.len(), 0_u64..1_000, prop::bool::weighted(0.05)), 1..250),
        ) {
            let (mut rings, mut now) = (Rings::default(), BEGIN * 1_000 + 1_000);
            let mut counters = vec![Counts::default(); 6];
            let mut truth = counters.clone();
            let name = |at: usize| format!("p{at}");
            let totals = |counters: &[Counts]| {
                let total = |(at, counts): (_, &Counts)| {
                    PolicyTotal { policy: name(at).into(), counts: *counts }
                };
                counters.iter().enumerate().map(total).collect::<Vec<_>>()
            };
            for (span, policy, result, count, begins_anew) in walk {
                if begins_anew {
                    // What was counted since the last look is gone with the counters.
                    counters.fill(Counts::default());
                    rings.record(now, &totals(&counters));
                }
                counters[policy].0[result] += count;
                truth[policy].0[result] += count;
                now += span;
                rings.record(now, &totals(&counters));
            }
            // All buckets end.
            rings.record(now + 600_000, &totals(&counters));
            for (at, truth) in truth.iter().enumerate() {
                for step in Step::ALL {
                    prop_assert_eq!(sum(&all(&rings, step), Some(&name(at))), *truth);
                }
            }
        }
    }
}
