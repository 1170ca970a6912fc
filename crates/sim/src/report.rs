//! Invariants of many histories together: calls that leases save, and `LostWritesCostLittle`.

use std::fmt;

use crate::{HistoryResult, HistoryToken, Lost};

/// Calls of hot keys while nothing goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet {
    histories: u64,
    decided: u64,
    calls: u64,
}

/// Writes that the store lost while a holder lived.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// For each key: permits over the limit per fault, in thousandths of the limit.
    over: Vec<u64>,
}

impl Quiet {
    /// Counts a history, if it is of hot keys and quiet.
    pub fn see(&mut self, token: &HistoryToken, outcome: &HistoryResult) {
        if token.cut.leases && outcome.is_quiet {
            self.histories += 1;
            self.decided += outcome.decided;
            self.calls += outcome.calls;
        }
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        let Self { histories, decided, calls } = other;
        self.histories += histories;
        self.decided += decided;
        self.calls += calls;
    }

    /// Returns the calls of the store for each 100 decisions.
    pub fn calls_percent(&self) -> f64 {
        self.calls as f64 * 100.0 / self.decided.max(1) as f64
    }
}

impl Losses {
    /// Counts the keys of a history that lost writes.
    pub fn see(&mut self, outcome: &HistoryResult) {
        let per_fault = |lost: &Lost| lost.over * 1_000 / (lost.limit * lost.faults).max(1);
        self.over.extend(outcome.lost.iter().map(per_fault));
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Self) {
        self.over.extend(other.over);
    }

    /// Returns the number of keys that lost writes.
    pub fn len(&self) -> usize {
        self.over.len()
    }

    /// Returns whether no key lost writes.
    pub fn is_empty(&self) -> bool {
        self.over.is_empty()
    }

    /// Returns the part of the keys, in percent, with an excess of 5 % of the limit or less per
    /// fault.
    pub fn within_percent(&self) -> f64 {
        let within = self.over.iter().filter(|over| **over <= 50).count();
        within as f64 * 100.0 / self.len().max(1) as f64
    }

    /// Returns the mean excess per fault, in percent of the limit.
    pub fn mean_percent(&self) -> f64 {
        self.over.iter().sum::<u64>() as f64 / 10.0 / self.len().max(1) as f64
    }
}

impl fmt::Display for Quiet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { histories, decided, .. } = self;
        let calls = self.calls_percent();
        write!(
            f,
            "hot keys, nothing wrong: {histories} histories, {decided} decided, {calls:.1} % of them by a call"
        )
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, within, mean) = (self.len(), self.within_percent(), self.mean_percent());
        let worst = self.over.iter().max().map_or(0.0, |over| *over as f64 / 10.0);
        write!(
            f,
            "lost writes: {keys} keys, over 5 % of the limit or less {within:.1} %, mean {mean:.2} %, worst {worst:.1} %"
        )
    }
}
