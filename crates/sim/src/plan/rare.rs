//! Histories of situations that random plans seldom have.

use crate::token::Cut;

use super::{
    Arrival, Ask, Fault, FaultKind, LeasesSpec, MS, OnFailure, Plan, PolicySpec, RuleSpec, SECOND,
    WindowSpec, generator,
};

/// The length of the silence of the store, µs.
const SILENT_US: u64 = SECOND;

impl Plan {
    /// A key has requests up to its limit, then fewer for seconds; then the store falls silent. The share must start
    /// from the usage by then, and not from the peak.
    pub(super) fn make_ebb(&mut self, cut: &Cut) {
        let mut rng = generator(self.seed, 5);
        (self.on_failure, self.calls_max, self.keys) = (OnFailure::Local, None, 1);
        let (limit, window_us) = (rng.u64(10..=40) * self.nodes as u64, rng.u64(1..=4) * SECOND);
        let window = match rng.u8(0..3) {
            0 => WindowSpec::Log,
            1 => WindowSpec::Buckets,
            _ => WindowSpec::Estimate,
        };
        let rule = RuleSpec::Window { window, limit, window_us };
        self.versions =
            vec![PolicySpec { rules: vec![rule], carry: "usage", leases: LeasesSpec::Auto }];
        let peak = rng.u64(100 * MS..SECOND);
        let silence = peak + 2 * window_us + rng.u64(2_500..=5_000) * MS;
        self.span_us = silence + SILENT_US;
        if cut.has_load(0) {
            (0..limit + limit / 2).for_each(|nth| self.ask_once(0, nth, peak + nth * MS));
        }
        let (mut at, mut made) = (peak + 400 * MS, 0);
        while at < self.span_us && cut.has_load(1) {
            self.ask_once(1, made, at);
            (at, made) = (at + rng.u64(100 * MS..=700 * MS), made + 1);
        }
        if cut.has_fault(0) {
            let (at, span, kind) = (silence, SILENT_US, FaultKind::Partition);
            self.faults.push(Fault { number: 0, at, span, node: 0, kind });
        }
    }

    /// A node that receives no answers admits alone, and sends its bill in vain; the policy changes its rate, and the
    /// node admits more; then it receives answers again.
    pub(super) fn make_change_in_debt(&mut self, cut: &Cut) {
        let mut rng = generator(self.seed, 5);
        (self.on_failure, self.calls_max, self.leaves) = (OnFailure::Local, None, false);
        (self.keys, self.nodes) = (1, 1);
        let (slow, burst) = (rng.u64(5..=20), rng.u64(60..=100));
        let mut rates = [slow, slow * rng.u64(2..=10)];
        rng.shuffle(&mut rates);
        let version = |permits| PolicySpec {
            rules: vec![RuleSpec::TokenBucket { permits, period_us: SECOND, burst }],
            carry: "usage",
            leases: LeasesSpec::Auto,
        };
        self.versions = rates.into_iter().map(version).collect();
        let unheard = rng.u64(200..=500) * MS;
        let change = unheard + rng.u64(200..=500) * MS;
        let heard = change + rng.u64(50..=200) * MS;
        self.span_us = heard + SECOND;
        let mut fault = |number, at, span, kind| {
            if cut.has_fault(number) {
                self.faults.push(Fault { number, at, span, node: 0, kind });
            }
        };
        fault(0, unheard, heard - unheard, FaultKind::AnswersLost);
        fault(1, change, 20 * MS, FaultKind::Policy(1));
        let (mut at, mut made) = (MS, 0);
        while at < self.span_us && cut.has_load(0) {
            self.ask_once(0, made, at);
            (at, made) = (at + rng.u64(5 * MS..=40 * MS), made + 1);
        }
    }

    fn ask_once(&mut self, load: u32, number: u64, at: u64) {
        let number = usize::try_from(number).expect("a load has some hundred requests");
        let (node, key, ask, is_batched) = (0, 0, Ask::Check(1), false);
        self.arrivals.push(Arrival { at, load, number, node, key, ask, is_batched });
    }
}
