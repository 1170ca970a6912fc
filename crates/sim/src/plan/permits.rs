//! Histories of permits that are held: acquired by many clients, renewed or not, released or left to lapse.

use crate::token::Cut;

use super::{
    Arrival, Ask, FAULTS_MAX, Fault, FaultKind, Hold, LOADS_MAX, Leases, MS, Plan, PolicySpec,
    RuleSpec, SECOND, clock_step, generator,
};

/// Requests of one load at most.
const HOLDS_MAX: usize = 60;

impl Plan {
    /// Makes a rule of concurrency whose limit is edited, clients that hold its permits for about their time to live, and
    /// faults of the store, the network and the processes.
    pub(super) fn make_permits(&mut self, cut: &Cut) {
        let mut rng = generator(self.seed, 12);
        (self.calls_max, self.leaves) = (None, false);
        (self.nodes, self.keys) = (rng.usize(1..=4).min(cut.nodes), rng.usize(1..=2).min(cut.keys));
        self.span_us = rng.u64(3..=8) * SECOND;
        let ttl_us = [200, 500, 1_000, 2_000][rng.usize(0..4)] * MS;
        let version = |limit| PolicySpec {
            rules: vec![RuleSpec::Concurrency { limit, ttl_us }],
            carry: "usage",
            leases: Leases::Auto,
        };
        self.versions = vec![version(rng.u64(1..=12))];
        for number in (0..rng.u32(1..=LOADS_MAX)).filter(|number| cut.has_load(*number)) {
            self.add_holds(number, ttl_us);
        }
        let faults = if rng.u8(0..5) == 0 { 0 } else { rng.u32(1..=FAULTS_MAX) };
        for number in (0..faults).filter(|number| cut.has_fault(*number)) {
            let limit = generator(self.seed, 900 + u64::from(number)).u64(1..=12);
            self.add_fault_of_permits(number, version(limit));
        }
    }

    fn add_holds(&mut self, load: u32, ttl_us: u64) {
        let mut rng = generator(self.seed, 100 + u64::from(load));
        let (node, key) = (rng.usize(0..6) % self.nodes, rng.usize(0..3) % self.keys);
        let (gap, cost_max) = (rng.u64(10 * MS..=200 * MS), [1, 1, 3][rng.usize(0..3)]);
        let mut at = rng.u64(0..self.span_us / 2);
        let mut number = 0;
        while at < self.span_us && number < HOLDS_MAX {
            // Now and then a client acquires a permit of the same id again, as if it had no answer.
            let nth = number - usize::from(number > 0 && rng.u8(0..10) == 0);
            let ask = Ask::Hold(Hold {
                id: (nth as u64) << 8 | u64::from(load),
                cost: rng.u64(1..=cost_max),
                for_us: ttl_us * rng.u64(5..=130) / 100,
                renewals: [0, 0, 1, 3][rng.usize(0..4)],
                is_released: rng.u8(0..6) > 0,
            });
            self.arrivals.push(Arrival { at, load, number, node, key, ask, is_batched: false });
            (at, number) = (at + rng.u64(1..=2 * gap), number + 1);
        }
    }

    fn add_fault_of_permits(&mut self, number: u32, version: PolicySpec) {
        let mut rng = generator(self.seed, 200 + u64::from(number));
        let (mut at, mut span, node) = self.place_of_fault(&mut rng);
        let kind = match rng.u8(0..20) {
            0 => FaultKind::RequestsLost,
            1..=3 => FaultKind::AnswersLost,
            4..=5 => FaultKind::LinkDown,
            6..=7 => FaultKind::Partition,
            8 => FaultKind::Late(rng.u64(1..=100) * MS),
            9 => FaultKind::StorePaused,
            10 => FaultKind::StoreKilled([0, rng.u64(1..=2_000) * MS, u64::MAX][rng.usize(0..3)]),
            11 => FaultKind::Flushed,
            12 => FaultKind::Evicted(rng.usize(0..3) % self.keys),
            13 => FaultKind::StoreClock(clock_step(&mut rng)),
            14 => FaultKind::NodeKilled,
            15 => FaultKind::NodeStopped,
            16 => FaultKind::NodePaused,
            17 => FaultKind::Refuses,
            _ => {
                (at, span) = (self.changes_at(number), rng.u64(0..=300) * MS);
                self.add_version(version)
            }
        };
        self.faults.push(Fault { number, at, span, node, kind });
    }
}
