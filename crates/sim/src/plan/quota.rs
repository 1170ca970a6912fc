//! Histories of a quota: usage does not flow out, and so no more is admitted than its largest limit and one permit,
//! whatever is edited meanwhile and however late a message arrives.

use crate::token::Cut;

use super::{
    Arrival, Ask, Fault, FaultKind, LeasesSpec, MS, OnFailure, Plan, PolicySpec, RuleSpec, SECOND,
    WindowSpec, generator,
};

/// The length of a history, µs: a server forgets a key without requests after ten seconds.
const SPAN_US: u64 = 32 * SECOND;

/// A window that no history leaves: it is a part of the instant at which all begin, µs.
pub(super) const WINDOW_US: u64 = 1_000 * SECOND;

/// The largest limit of a log.
pub(super) const LIMIT_MAX: u64 = 10_000;

/// Numbers of the faults: edits come first, in pairs.
const PAIRS_MAX: u32 = 4;
const REPEATED: u32 = 2 * PAIRS_MAX;
const PROCESSES: u32 = REPEATED + 1;
const LATE: u32 = PROCESSES + 1;

impl Plan {
    /// Makes a quota that several nodes lease, and that is lowered and raised again, once or several times. Messages
    /// arrive again after the key was forgotten, and a node stops or is killed. Or the store is far away for a while.
    pub(super) fn make_quota(&mut self, cut: &Cut) {
        let mut rng = generator(self.seed, 7);
        (self.on_failure, self.calls_max, self.leaves) = (OnFailure::Deny, None, false);
        (self.nodes, self.keys, self.span_us) = (rng.usize(1..=4).min(cut.nodes), 1, SPAN_US);
        (0..4).for_each(|load| self.add_quota_load(load));
        // Some of the quota is left when demand comes back, and none in the end.
        let wanted: u64 = self.arrivals.iter().map(|arrival| arrival.ask.cost()).sum();
        let limit = (wanted * rng.u64(40..=90) / 100).clamp(100, LIMIT_MAX);
        let algorithm = rng.u8(0..6);
        self.arrivals.retain(|arrival| cut.has_load(arrival.load));
        let leases = [LeasesSpec::Auto, LeasesSpec::Large][rng.usize(0..2)];
        let version =
            |limit| PolicySpec { rules: vec![quota(algorithm, limit)], carry: "usage", leases };
        self.versions = vec![version(limit)];
        // The same bound as in histories of edits, where a leaky bucket takes one more.
        self.quota = Some(limit + 1);
        if rng.u8(0..4) == 0 {
            let (at, span) = (rng.u64(SECOND..=4 * SECOND), rng.u64(4..=20) * SECOND);
            let kind = FaultKind::Late(rng.u64(15..=120) * MS);
            self.add_if(cut, Fault { number: LATE, at, span, node: 0, kind });
            return;
        }
        let mut at = rng.u64(SECOND..=4 * SECOND);
        for pair in 0..rng.u32(0..=PAIRS_MAX) {
            let lowered = limit.div_ceil(rng.u64(2..=20));
            for (number, limit) in [(2 * pair, lowered), (2 * pair + 1, limit)] {
                let kind = self.add_version(version(limit));
                let fault = Fault { number, at, span: rng.u64(0..=400) * MS, node: 0, kind };
                self.add_if(cut, fault);
                at += fault.span + rng.u64(50..=1_500) * MS;
            }
        }
        if rng.bool() {
            let kind = FaultKind::Repeated(rng.u64(8..=20) * SECOND);
            let node = rng.usize(0..4) % self.nodes;
            self.add_if(cut, Fault { number: REPEATED, at: 0, span: SPAN_US, node, kind });
        }
        if rng.u8(0..3) == 0 {
            let kind = [FaultKind::NodeKilled, FaultKind::NodeStopped][rng.usize(0..2)];
            let (at, span) = (rng.u64(SECOND..=10 * SECOND), rng.u64(50..=2_000) * MS);
            let node = rng.usize(0..4) % self.nodes;
            self.add_if(cut, Fault { number: PROCESSES, at, span, node, kind });
        }
    }

    pub(super) fn add_if(&mut self, cut: &Cut, fault: Fault) {
        if cut.has_fault(fault.number) {
            self.faults.push(fault);
        }
    }

    /// Adds demand that stops for longer than a server remembers a key, and goes on.
    fn add_quota_load(&mut self, load: u32) {
        let mut rng = generator(self.seed, 100 + u64::from(load));
        let node = load as usize % self.nodes;
        let (gap, cost_max) = (rng.u64(10 * MS..=60 * MS), [1, 1, 4][rng.usize(0..3)]);
        let spells = [0..rng.u64(4..=8) * SECOND, rng.u64(19..=22) * SECOND..SPAN_US];
        let mut number = 0;
        for spell in spells {
            let mut at = spell.start + rng.u64(0..=SECOND);
            while at < spell.end {
                let (key, ask, is_batched) = (0, Ask::Check(rng.u64(1..=cost_max)), false);
                self.arrivals.push(Arrival { at, load, number, node, key, ask, is_batched });
                (at, number) = (at + rng.u64(1..=2 * gap), number + 1);
            }
        }
    }
}

/// Returns a rule whose usage does not flow out while a history lasts.
pub(super) fn quota(algorithm: u8, limit: u64) -> RuleSpec {
    let (permits, period_us, window_us) = (1, 4 * WINDOW_US, WINDOW_US);
    let counted = |window| RuleSpec::Window { window, limit, window_us };
    match algorithm {
        0..=1 => counted(WindowSpec::Fixed),
        2 => counted(WindowSpec::Log),
        3 => counted(WindowSpec::Buckets),
        4 => counted(WindowSpec::Estimate),
        _ => RuleSpec::TokenBucket { permits, period_us, burst: limit },
    }
}
