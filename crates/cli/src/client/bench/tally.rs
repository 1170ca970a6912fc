//! Counts of outcomes.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::time::Instant;

/// Longest latency that is distinguished, in ns: an hour, more than any wait.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Significant digits of a latency.
const DIGITS: u8 = 3;

/// Most kinds of failures that are distinguished; others are counted together.
const PROBLEMS_MAX: usize = 8;

/// The outcome of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BenchOutcome {
    /// The request passes.
    Passed,
    /// The request is over the limit.
    Refused,
    /// The request was not decided, for this reason.
    Failed(String),
}

/// The outcomes of many questions.
#[derive(Debug)]
pub(super) struct BenchTally {
    /// Latencies of decisions, in ns.
    pub(super) latency: Histogram<u64>,
    pub(super) passed: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
    /// The errors, each with its number of failures.
    pub(super) problems: BTreeMap<String, u64>,
    /// Connections that broke and could not be made again.
    pub(super) lost: u64,
    /// The time at which the last outcome was counted.
    pub(super) end: Option<Instant>,
    /// Time that threads have run, as the system counts; `None` where it does not.
    pub(super) busy: Option<Duration>,
}

impl BenchTally {
    /// A tally without outcomes.
    pub(super) fn new() -> Self {
        let latency = Histogram::new_with_max(LATENCY_NS_MAX, DIGITS);
        Self {
            latency: latency.expect("three digits of an hour in ns are a valid histogram"),
            passed: 0,
            refused: 0,
            failed: 0,
            problems: BTreeMap::new(),
            lost: 0,
            end: None,
            busy: Some(Duration::ZERO),
        }
    }

    /// Counts an answer that came `now` to a question that counts from `due`.
    pub(super) fn answered(&mut self, due: Instant, now: Instant, outcome: BenchOutcome) {
        match outcome {
            BenchOutcome::Passed => self.passed += 1,
            BenchOutcome::Refused => self.refused += 1,
            BenchOutcome::Failed(problem) => return self.failed(1, problem),
        }
        self.end = Some(now);
        let ns = u64::try_from((now - due).as_nanos()).unwrap_or(LATENCY_NS_MAX);
        self.latency.saturating_record(ns.max(1));
    }

    /// Counts `count` questions that were not decided.
    pub(super) fn failed(&mut self, count: u64, problem: String) {
        self.end = Some(Instant::now());
        self.failed += count;
        self.record(count, problem);
    }

    /// Adds the tally of another thread.
    pub(super) fn add(&mut self, other: Self) {
        let Self { latency, passed, refused, failed, problems, lost, end, busy } = other;
        self.latency.add(latency).expect("both are made alike");
        self.passed += passed;
        self.refused += refused;
        self.failed += failed;
        for (problem, count) in problems {
            self.record(count, problem);
        }
        self.lost += lost;
        self.end = self.end.max(end);
        self.busy = self.busy.zip(busy).map(|(mine, other)| mine + other);
    }

    /// Returns the number of decisions.
    pub(super) const fn decided(&self) -> u64 {
        self.passed + self.refused
    }

    fn record(&mut self, count: u64, problem: String) {
        let is_known = self.problems.contains_key(&problem);
        let problem =
            if is_known || self.problems.len() < PROBLEMS_MAX { problem } else { OTHERS.into() };
        *self.problems.entry(problem).or_default() += count;
    }
}

/// The name of failures that are counted together.
const OTHERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_are_counted_and_failures_have_no_latency() {
        let (mut tally, begin) = (BenchTally::new(), Instant::now());
        for (ms, outcome) in [
            (1, BenchOutcome::Passed),
            (2, BenchOutcome::Refused),
            (100, BenchOutcome::Failed("no".to_owned())),
        ] {
            tokio::time::advance(Duration::from_millis(ms) - begin.elapsed()).await;
            tally.answered(begin, Instant::now(), outcome);
        }
        let mut all = BenchTally::new();
        all.add(tally);
        assert_eq!((all.passed, all.refused, all.failed, all.decided()), (1, 1, 1, 2));
        assert_eq!((all.latency.len(), all.latency.max() / 1_000_000), (2, 2));
        assert_eq!(all.end, Some(Instant::now()));
        assert_eq!(all.problems, BTreeMap::from([("no".to_owned(), 1)]));
    }

    #[test]
    fn however_many_kinds_of_failures_there_are_few_are_told_apart() {
        let mut tally = BenchTally::new();
        for kind in 0..100 {
            tally.failed(2, format!("kind {kind}"));
        }
        assert_eq!(tally.failed, 200);
        assert_eq!(tally.problems.len(), PROBLEMS_MAX + 1);
        assert_eq!(tally.problems.values().sum::<u64>(), 200);
    }
}
