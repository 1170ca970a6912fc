//! Histories of a quota that is edited: to rules that count less, to rules that cannot be leased, and around an outage.
//! Usage does not flow out meanwhile, and so no more is admitted than the quota and one permit.

use fastrand::Rng;

use crate::token::Cut;

use super::quota::{LIMIT_MAX, WINDOW_US, quota};
use super::{
    Arrival, Ask, Fault, FaultKind, LeasesSpec, MS, OnFailure, Plan, PolicySpec, RuleSpec, SECOND,
    WindowSpec, generator,
};

/// The length of a history, µs.
const SPAN_US: u64 = 12 * SECOND;

/// The time after an edit, or the start of a process, in which all of its requests have seen the key, µs.
const SEEN_AFTER_US: u64 = 600 * MS;

/// Numbers of the faults: edits come first, in pairs.
const PAIRS_MAX: u32 = 3;
const OUTAGE: u32 = 2 * PAIRS_MAX;
const PROCESSES: u32 = OUTAGE + 1;

impl Plan {
    /// Makes a quota that other rules replace once or several times, each time for a while. In each second history one
    /// node is alone, and loses the store before the quota comes back.
    pub(super) fn make_edits(&mut self, cut: &Cut) {
        let mut rng = generator(self.seed, 12);
        let has_outage = rng.bool();
        (self.calls_max, self.leaves, self.keys, self.span_us) = (None, false, 1, SPAN_US);
        (self.on_failure, self.nodes) = match has_outage {
            true => (OnFailure::Local, 1),
            false => (OnFailure::Deny, rng.usize(1..=4).min(cut.nodes)),
        };
        (0..3).for_each(|load| self.add_steady_load(load));
        let wanted: u64 = self.arrivals.iter().map(|arrival| arrival.ask.cost()).sum();
        let limit = (wanted * rng.u64(30..=80) / 100).clamp(100, LIMIT_MAX);
        self.arrivals.retain(|arrival| cut.has_load(arrival.load));
        let leases = [LeasesSpec::Auto, LeasesSpec::Large, LeasesSpec::Off][rng.usize(0..3)];
        let version = |rules: Vec<RuleSpec>| {
            let large = leases == LeasesSpec::Large && rules.iter().any(|rule| !rule.is_leasable());
            let leases = if large { LeasesSpec::Auto } else { leases };
            PolicySpec { rules, carry: "usage", leases }
        };
        let whole = quota(rng.u8(0..6), limit);
        self.versions = vec![version(vec![whole])];
        // A leaky bucket that replaces it takes one permit beside its burst, and its burst may be the whole limit.
        self.quota = Some(limit + 1);
        let (pairs, mut at) = (rng.u32(1..=PAIRS_MAX), rng.u64(500 * MS..=3 * SECOND));
        for pair in 0..pairs {
            let back = at + rng.u64(800..=2_500) * MS;
            let replaced = replacement(&mut rng, &whole, limit);
            for (number, at, rules) in [(2 * pair, at, replaced), (2 * pair + 1, back, vec![whole])]
            {
                let (kind, span) = (self.add_version(version(rules)), rng.u64(0..=200) * MS);
                self.add_if(cut, Fault { number, at, span, node: 0, kind });
            }
            if has_outage && pair + 1 == pairs {
                let mut fault = |number, at, span, kind| {
                    self.add_if(cut, Fault { number, at, span, node: 0, kind });
                };
                let begin = rng.u64(at + SEEN_AFTER_US..=back);
                let end = back + rng.u64(300..=3_000) * MS;
                fault(OUTAGE, begin, end - begin, FaultKind::Partition);
                if rng.bool() {
                    // The next process sees the key only while less is permitted.
                    fault(PROCESSES, at, rng.u64(1..=50) * MS, FaultKind::NodeKilled);
                }
            }
            at = back + rng.u64(200..=1_500) * MS;
        }
    }

    /// Adds demand that goes on for the whole history.
    fn add_steady_load(&mut self, load: u32) {
        let mut rng = generator(self.seed, 100 + u64::from(load));
        let node = load as usize % self.nodes;
        let (gap, cost_max) = (rng.u64(4 * MS..=40 * MS), [1, 1, 4][rng.usize(0..3)]);
        let (mut at, mut number) = (rng.u64(0..=SECOND), 0);
        while at < SPAN_US {
            let (key, ask, is_batched) = (0, Ask::Check(rng.u64(1..=cost_max)), false);
            self.arrivals.push(Arrival { at, load, number, node, key, ask, is_batched });
            (at, number) = (at + rng.u64(1..=2 * gap), number + 1);
        }
    }
}

/// Returns the rules that replace `whole`, a quota of `limit`, for a while.
fn replacement(rng: &mut Rng, whole: &RuleSpec, limit: u64) -> Vec<RuleSpec> {
    let lowered = limit.div_ceil(rng.u64(1..=20));
    let (permits, period_us) = (1, 4 * WINDOW_US);
    match rng.u8(0..6) {
        0..=2 => vec![quota(rng.u8(0..6), lowered)],
        3 => vec![RuleSpec::LeakyBucket { permits, period_us, burst: lowered, delays: true }],
        4 => vec![quota(rng.u8(0..6), limit)],
        _ => {
            let (window, window_us) = (WindowSpec::Buckets, 9 * SECOND);
            vec![*whole, RuleSpec::Window { window, limit: lowered, window_us }]
        }
    }
}
