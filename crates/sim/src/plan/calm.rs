//! Demand that goes on after the last fault: effects of faults that remain show in the permits admitted then.

use crate::token::{Cut, Generation};

use super::{Arrival, Ask, Fault, LOADS_MAX, MS, Plan, SECOND, generator};

/// The time from the last fault to the first request, µs.
const AFTER_FAULTS_US: u64 = 50 * MS;

/// The time from then until all faults are without effect, µs: the store is found again, debts are paid, leased permits
/// have lapsed, and refusals are forgotten.
const HEALED_AFTER_US: u64 = 3_500 * MS;

/// The span in which admitted permits are then compared, µs.
const SEEN_US: u64 = 2 * SECOND;

impl Plan {
    /// The number of the load that goes on after the last fault: no other load has it.
    pub(crate) const CALM_LOAD: u32 = LOADS_MAX;

    /// Adds demand after the last fault.
    pub(super) fn add_calm(&mut self, cut: &Cut) {
        let mut rng = generator(self.seed, 10);
        let is_meant = self.generation >= Generation::Third && rng.u8(0..8) == 0;
        let last = self.faults.iter().map(|fault: &Fault| fault.at + fault.span).max();
        let (true, Some(last), true) = (is_meant, last, cut.has_load(Self::CALM_LOAD)) else {
            return;
        };
        let begin = last.max(self.span_us) + AFTER_FAULTS_US;
        let healed = begin + HEALED_AFTER_US;
        let (gap, mut number) = (rng.u64(2 * MS..=40 * MS), 0);
        for key in 0..self.keys {
            let mut at = begin + rng.u64(0..gap);
            while at < healed + SEEN_US {
                let node = rng.usize(0..6) % self.nodes;
                let (load, ask, is_batched) = (Self::CALM_LOAD, Ask::Check(1), false);
                self.arrivals.push(Arrival { at, load, number, node, key, ask, is_batched });
                (at, number) = (at + rng.u64(1..=2 * gap), number + 1);
            }
        }
        (self.span_us, self.healed_at) = (healed + SEEN_US, Some(healed));
    }
}
