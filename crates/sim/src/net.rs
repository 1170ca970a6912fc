//! The way between a node and the store: one connection each, in order, and the faults that it can
//! have.

use fastrand::Rng;

use crate::plan::{MS, Plan};

/// The longest silence until a connection is given up, µs: as in the client of Redis.
pub(crate) const SILENCE_MAX_US: u64 = 500 * MS;

/// One node's connection.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Number of faults that lose requests.
    pub(crate) requests_lost: u32,
    /// Number of faults that lose answers.
    pub(crate) answers_lost: u32,
    /// The delay of everything, µs.
    pub(crate) late_us: u64,
    /// The delay after which messages about leases arrive again, µs; 0: they do not.
    pub(crate) repeats_after_us: u64,
    /// Messages about leases take another way, which takes up to this much longer, µs.
    pub(crate) strays_us: u64,
    pub(crate) is_connected: bool,
    /// The number of the connection: answers on an earlier one are lost.
    pub(crate) epoch: u32,
    /// The time at which the last answer arrived, or the node went on after it had stood still.
    pub(crate) heard_at: u64,
    /// The time at which the last request arrives: the messages of each direction are in order.
    last_request: u64,
    last_answer: u64,
    rng: Rng,
}

impl Link {
    pub(crate) fn new(rng: Rng) -> Self {
        Self {
            requests_lost: 0,
            answers_lost: 0,
            late_us: 0,
            repeats_after_us: 0,
            strays_us: 0,
            is_connected: true,
            epoch: 0,
            heard_at: 0,
            last_request: 0,
            last_answer: 0,
            rng,
        }
    }

    /// Returns when a request that is sent now arrives; `None`: never.
    pub(crate) fn request(&mut self, plan: &Plan, now: u64, is_message: bool) -> Option<u64> {
        let arrives = now + self.delay(plan);
        let arrives = match is_message && self.strays_us > 0 {
            true => arrives + self.rng.u64(0..=self.strays_us),
            false => in_order(&mut self.last_request, arrives),
        };
        (self.requests_lost == 0).then_some(arrives)
    }

    /// Returns when an answer that is sent now arrives; `None`: never.
    pub(crate) fn answer(&mut self, plan: &Plan, now: u64, is_message: bool) -> Option<u64> {
        let arrives = now + self.delay(plan);
        let arrives = match is_message && self.strays_us > 0 {
            true => arrives + self.rng.u64(0..=self.strays_us),
            false => in_order(&mut self.last_answer, arrives),
        };
        (self.answers_lost == 0).then_some(arrives)
    }

    /// Returns whether both directions work.
    pub(crate) fn carries(&self) -> bool {
        self.requests_lost == 0 && self.answers_lost == 0
    }

    /// Returns the pause until the next attempt to connect, µs.
    pub(crate) fn pause(&mut self) -> u64 {
        self.rng.u64(20 * MS..=200 * MS)
    }

    /// Opens a new connection.
    pub(crate) fn connect(&mut self, now: u64) {
        self.is_connected = true;
        self.epoch += 1;
        self.heard_at = now;
        (self.last_request, self.last_answer) = (now, now);
    }

    /// Returns how long a message takes, µs.
    pub(crate) fn delay(&mut self, plan: &Plan) -> u64 {
        plan.latency_us + self.rng.u64(0..=plan.jitter_us) + self.late_us
    }
}

/// Returns when a message arrives, not before those that were sent sooner.
fn in_order(last: &mut u64, arrives: u64) -> u64 {
    *last = arrives.max(*last);
    *last
}
