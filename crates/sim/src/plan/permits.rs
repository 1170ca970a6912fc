//! Histories of permits that are held: acquired by many clients, renewed or not, released or left to lapse. In half of them
//! requests wait for a permit.

use crate::token::Cut;

use super::{
    Arrival, Ask, FAULTS_MAX, Fault, FaultKind, Hold, HoldWait, LOADS_MAX, LeasesSpec, MS, Plan,
    PolicySpec, RuleSpec, SECOND, clock_step, generator,
};

/// Requests of one load at most.
const HOLDS_MAX: usize = 60;

/// Most requests that may wait for a permit.
const QUEUE_MAX: u64 = 8;

impl Plan {
    /// Makes a rule of concurrency whose limit is edited, clients that hold its permits for about their time to live, and
    /// faults of the store, the network and the processes.
    pub(super) fn make_permits(&mut self, cut: &Cut) {
        let mut rng = generator(self.seed, 12);
        (self.calls_max, self.leaves) = (None, false);
        (self.nodes, self.keys) = (rng.usize(1..=4).min(cut.nodes), rng.usize(1..=2).min(cut.keys));
        self.span_us = rng.u64(3..=8) * SECOND;
        let ttl_us = [200, 500, 1_000, 2_000][rng.usize(0..4)] * MS;
        let version = |limit, queue| PolicySpec {
            rules: vec![RuleSpec::Concurrency { limit, ttl_us, queue }],
            carry: "usage",
            leases: LeasesSpec::Auto,
        };
        let limit = rng.u64(1..=12);
        let queue = self.make_queue();
        self.versions = vec![version(limit, queue)];
        for number in (0..rng.u32(1..=LOADS_MAX)).filter(|number| cut.has_load(*number)) {
            self.add_holds(number, ttl_us);
        }
        let faults = if rng.u8(0..5) == 0 { 0 } else { rng.u32(1..=FAULTS_MAX) };
        for number in (0..faults).filter(|number| cut.has_fault(*number)) {
            let mut rng = generator(self.seed, 900 + u64::from(number));
            let limit = rng.u64(1..=12);
            let queue = self.edited_queue(number, queue);
            self.add_fault_of_permits(number, version(limit, queue));
        }
    }

    /// Has requests wait in every second history. Returns the length of the queue.
    fn make_queue(&mut self) -> u64 {
        let mut rng = generator(self.seed, 13);
        if rng.bool() {
            return 0;
        }
        self.max_wait_us = Some(wait(&mut rng));
        rng.u64(1..=QUEUE_MAX)
    }

    /// Returns the length of the queue after an edit: most leave it as it is, and few remove it.
    fn edited_queue(&self, fault: u32, queue: u64) -> u64 {
        let mut rng = generator(self.seed, 960 + u64::from(fault));
        match (queue, rng.u8(0..8)) {
            (0, _) | (_, 0) => 0,
            (_, 1..=2) => rng.u64(1..=QUEUE_MAX),
            _ => queue,
        }
    }

    /// The time to live of the permits of the history: edits leave it as it is.
    pub(crate) fn ttl_us(&self) -> u64 {
        match self.versions[0].rules[..] {
            [RuleSpec::Concurrency { ttl_us, .. }, ..] => ttl_us,
            _ => unreachable!("only rules of concurrency hand out permits"),
        }
    }

    fn add_holds(&mut self, load: u32, ttl_us: u64) {
        let mut rng = generator(self.seed, 100 + u64::from(load));
        let mut waits = generator(self.seed, 970 + u64::from(load));
        let (node, key) = (rng.usize(0..6) % self.nodes, rng.usize(0..3) % self.keys);
        let (gap, cost_max) = (rng.u64(10 * MS..=200 * MS), [1, 1, 3][rng.usize(0..3)]);
        let mut at = rng.u64(0..self.span_us / 2);
        let mut number = 0;
        while at < self.span_us && number < HOLDS_MAX {
            // Now and then a client acquires a permit of the same id again, as if it had no answer.
            let nth = number - usize::from(number > 0 && rng.u8(0..10) == 0);
            let hold = Hold {
                id: (nth as u64) << 8 | u64::from(load),
                cost: rng.u64(1..=cost_max),
                for_us: ttl_us * rng.u64(5..=130) / 100,
                renewals: [0, 0, 1, 3][rng.usize(0..4)],
                is_released: rng.u8(0..6) > 0,
                wait: HoldWait::No,
                is_unnamed: false,
                leaves_after_us: None,
            };
            let ask = Ask::Hold(if self.max_wait_us.is_some() {
                waiting(hold, &mut waits)
            } else {
                hold
            });
            // A client that asks again may come to another node.
            let is_elsewhere = self.max_wait_us.is_some() && nth < number && waits.bool();
            let node = if is_elsewhere { (node + 1) % self.nodes } else { node };
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

/// Returns `hold` with a wait in seven of eight cases, and now and then with a client that goes away.
fn waiting(hold: Hold, rng: &mut fastrand::Rng) -> Hold {
    let wait = match rng.u8(0..8) {
        0 => HoldWait::No,
        1..=3 => HoldWait::Policy,
        _ => HoldWait::UpTo(wait(rng)),
    };
    let leaves_after_us = (rng.u8(0..8) == 0).then(|| rng.u64(0..=1_500 * MS));
    // Only one request has the id of a permit that its client does not name.
    let is_unnamed = rng.u8(0..3) == 0;
    let id = if is_unnamed { rng.u64(1 << 32..1 << 63) } else { hold.id };
    Hold { id, wait, is_unnamed, leaves_after_us, ..hold }
}

/// Returns a longest wait, µs.
fn wait(rng: &mut fastrand::Rng) -> u64 {
    let most = [100, 500, 2_000, 5_000][rng.usize(0..4)];
    rng.u64(50..=most) * MS
}
