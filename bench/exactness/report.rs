//! The result of a run, as a line of the table and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::bound::Limit;
use crate::load::Tally;

/// A scenario that was run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) limit: Limit,
    pub(crate) keys: u32,
    pub(crate) tally: Tally,
    /// Times of faults: from, to, in µs.
    pub(crate) faults: Vec<(u64, u64)>,
    /// Permits that may pass beyond the limit because of faults: shares of servers that are cut off, and budgets that
    /// Redis forgets. `docs/exactness.md` has the formulas.
    pub(crate) beside: f64,
    pub(crate) remark: String,
}

/// Time in which servers notice that a fault is over.
pub(crate) const RECOVERY_US: u64 = 1_000_000;

/// The head of the table.
pub(crate) fn print_head() {
    println!(
        "| scenario | build | limit | s | offered | admitted | bound | admitted / bound \
         | most over in an interval | may be over | by store | by local | refused | shed, failed \
         | share while healthy | p50, ms | p99, ms | longest, ms | remarks |"
    );
    println!("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|");
}

impl Outcome {
    /// Sets the permits that may pass beyond the limit.
    pub(crate) fn with_beside(self, beside: f64) -> Self {
        Self { beside, ..self }
    }

    /// The line of the table.
    pub(crate) fn line(&self, scenario: &str, build: &str) -> String {
        let Self { limit, tally, .. } = self;
        let admitted = tally.admitted.len();
        let [p50, p99, longest] = self.latencies_ms();
        let [store, leased, remembered, local] =
            ["store", "leased", "remembered", "local"].map(|mode| tally.of_mode(mode)[0]);
        let figure = |number: Option<f64>, digits| {
            number.filter(|number| number.is_finite()).map_or("–".to_owned(), |number| {
                // Not `-0`, the result of rounding a small negative number.
                format!("{:.digits$}", if number.abs() < 0.5 && digits == 0 { 0.0 } else { number })
            })
        };
        let reached = Some(self.bound()).filter(|bound| bound.is_finite());
        let bound = figure(reached, 0);
        let ratio = figure(reached.map(|bound| admitted as f64 / bound), 2);
        let (over, healthy) = (figure(Some(self.over()), 0), figure(self.healthy(), 3));
        let keys = if self.keys > 1 { format!(", {} keys", self.keys) } else { String::new() };
        format!(
            "| {scenario} | {build} | {limit}{keys} | {:.1} | {} | {admitted} | {bound} | {ratio} \
             | {over} | {:.0} | {} | {local} | {} | {} | {healthy} | {p50:.2} | {p99:.1} | {longest:.0} | {} |",
            self.span_us() as f64 / 1e6,
            tally.sent + tally.unsent,
            self.beside,
            store + leased + remembered,
            self.refused(),
            self.shed(),
            self.remarks(),
        )
    }

    /// The result as JSON, with the decisions by mode in slots of 100 ms: admitted, refused.
    pub(crate) fn data(&self, scenario: &str, build: &str) -> Value {
        let Self { limit, keys, tally, faults, beside, remark } = self;
        let [p50, p99, longest] = self.latencies_ms();
        let modes = tally.modes.iter().map(|decided| {
            json!({ "mode": decided.mode, "admitted": decided.admitted, "refused": decided.refused,
                    "slots": decided.slots })
        });
        json!({
            "scenario": scenario, "build": build, "limit": limit.to_string(), "keys": keys,
            "span_us": self.span_us(), "sent": tally.sent, "unsent": tally.unsent,
            "unanswered": tally.unanswered, "failed": tally.failed,
            "admitted": tally.admitted.len(), "bound": self.bound(), "beside": beside,
            "most_over": self.over(), "healthy": self.healthy(), "faults_us": faults,
            "p50_ms": p50, "p99_ms": p99, "longest_ms": longest, "clients_busy": tally.busy,
            "modes": modes.collect::<Vec<_>>(), "remark": remark,
        })
    }

    /// Returns whether in every interval no more passed than permitted.
    pub(crate) fn is_within(&self) -> bool {
        self.over() <= self.beside
    }

    /// The most that may be admitted in the whole run.
    fn bound(&self) -> f64 {
        f64::from(self.keys) * self.limit.allows(self.span_us()) + self.beside
    }

    fn over(&self) -> f64 {
        self.limit.most_over(&self.tally.admitted)
    }

    fn span_us(&self) -> u64 {
        self.tally.last_replied_us.saturating_sub(self.tally.first_sent_us)
    }

    /// Admissions outside faults, as a share of what the limit allows in that time. A quota that is used up before a
    /// fault is over has no such share.
    fn healthy(&self) -> Option<f64> {
        let Tally { admitted, first_sent_us, last_replied_us, .. } = &self.tally;
        let (per_s, burst) = match self.limit {
            Limit::Bucket { per_s, burst } => (per_s, burst),
            Limit::Day { limit } => {
                let share = admitted.len() as f64 / f64::from(self.keys) / f64::from(limit);
                return self.faults.is_empty().then_some(share.min(1.0));
            }
            Limit::Window { .. } | Limit::Held { .. } | Limit::Unreached(_) => return None,
        };
        let (mut allowed, mut given, mut from) = (f64::from(burst), 0, *first_sent_us);
        for &(fault, healed) in self.faults.iter().chain([&(*last_replied_us, *last_replied_us)]) {
            let healthy = from..fault.max(from);
            allowed += f64::from(per_s) * (healthy.end - healthy.start) as f64 / 1e6;
            given += admitted.iter().filter(|event| healthy.contains(&event.replied_us)).count();
            from = healed + RECOVERY_US;
        }
        Some(given as f64 / allowed)
    }

    fn refused(&self) -> u64 {
        let known = self.tally.modes.iter().filter(|decided| is_known(&decided.mode));
        known.map(|decided| decided.refused).sum()
    }

    /// Requests without a decision, or with one of another mode than the known ones.
    fn shed(&self) -> u64 {
        let others = self.tally.modes.iter().filter(|decided| !is_known(&decided.mode));
        let others: u64 = others.map(|decided| decided.refused).sum();
        let failed: u64 = self.tally.failed.values().sum();
        others + failed + self.tally.unanswered + self.tally.unsent
    }

    fn remarks(&self) -> String {
        let (tally, mut remarks) = (&self.tally, self.remark.clone());
        for decided in &tally.modes {
            let count = decided.admitted + decided.refused;
            if !matches!(&*decided.mode, "store" | "remembered") {
                write!(remarks, "; {count} decided by {}", decided.mode).ok();
            }
        }
        if let Some((reason, count)) = tally.failed.iter().max_by_key(|(_, count)| **count) {
            write!(remarks, "; {count} × `{}`", reason.replace('|', "/")).ok();
        }
        if tally.unsent + tally.unanswered > 0 {
            write!(remarks, "; {} not sent, {} unanswered", tally.unsent, tally.unanswered).ok();
        }
        if tally.busy > CLIENTS_BUSY_MAX {
            write!(remarks, "; the clients used {:.0} % of a core", tally.busy * 100.0).ok();
        }
        remarks.trim_start_matches("; ").to_owned()
    }

    fn latencies_ms(&self) -> [f64; 3] {
        let mut sorted = self.tally.latencies_us.clone();
        sorted.sort_unstable();
        let at = |part: usize| {
            let place = (sorted.len() * part / 1_000).min(sorted.len().saturating_sub(1));
            sorted.get(place).map_or(0.0, |us| f64::from(*us) / 1e3)
        };
        [at(500), at(990), at(1_000)]
    }
}

fn is_known(mode: &str) -> bool {
    matches!(mode, "store" | "leased" | "remembered" | "local" | "allow" | "deny")
}

/// If clients are busier than this, they may be the bottleneck.
const CLIENTS_BUSY_MAX: f64 = 0.8;
