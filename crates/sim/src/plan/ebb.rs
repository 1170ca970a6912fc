//! Histories of a key that is asked for up to its limit, then for seconds less often; then the store falls silent.
//! What is known of usage by then is what is in use by then, and not what was at the peak.

use crate::token::Cut;

use super::{
    Arrival, Ask, Fault, FaultKind, Leases, MS, OnFailure, Plan, PolicySpec, RuleSpec, SECOND,
    generator,
};

/// How long the store is silent, µs.
const SILENT_US: u64 = SECOND;

impl Plan {
    /// Makes it such a history, as much of it as `cut` leaves: one fault, and two loads.
    pub(super) fn make_ebb(&mut self, cut: &Cut) {
        let mut rng = generator(self.seed, 5);
        (self.on_failure, self.calls_max, self.keys) = (OnFailure::Local, None, 1);
        let (limit, window_us) = (rng.u64(10..=40) * self.nodes as u64, rng.u64(1..=4) * SECOND);
        let rule = match rng.u8(0..3) {
            0 => RuleSpec::SlidingLog { limit, window_us },
            1 => RuleSpec::SlidingWindow { limit, window_us },
            _ => RuleSpec::SlidingCounter { limit, window_us },
        };
        self.versions =
            vec![PolicySpec { rules: vec![rule], carry: "usage", leases: Leases::Auto }];
        let peak = rng.u64(100 * MS..SECOND);
        let silence = peak + 2 * window_us + rng.u64(2_500..=5_000) * MS;
        self.span_us = silence + SILENT_US;
        if cut.has_load(0) {
            (0..limit + limit / 2).for_each(|nth| self.ask_once((0, nth), peak + nth * MS));
        }
        let (mut at, mut made) = (peak + 400 * MS, 0);
        while at < self.span_us && cut.has_load(1) {
            self.ask_once((1, made), at);
            (at, made) = (at + rng.u64(100 * MS..=700 * MS), made + 1);
        }
        if cut.has_fault(0) {
            let (at, span, kind) = (silence, SILENT_US, FaultKind::Partition);
            self.faults.push(Fault { number: 0, at, span, node: 0, kind });
        }
    }

    fn ask_once(&mut self, (load, number): (u32, u64), at: u64) {
        let number = usize::try_from(number).expect("a load has some hundred requests");
        let (node, key, ask, is_batched) = (0, 0, Ask::Check(1), false);
        self.arrivals.push(Arrival { at, load, number, node, key, ask, is_batched });
    }
}
