//! The result of a measurement, for people and as data.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use sluicegate_text::human::{percent, thousands};
use sluicegate_text::terminal::OutputFormat;

use super::plan::{BenchPlan, BenchProtocol};
use super::schedule::Schedule;
use super::tally::BenchTally;

/// If the generator ran for this share of its threads' time, it was probably the bottleneck.
const BUSY_TOO_MUCH: f64 = 0.9;

/// The result of a measurement.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    wire: BenchProtocol,
    to: String,
    policy: String,
    connections: usize,
    pipeline: usize,
    keys: u64,
    threads: usize,
    /// Target questions per second; null: as many as were answered.
    rate: Option<u32>,
    elapsed_s: f64,
    decisions: u64,
    decisions_per_s: f64,
    passed: u64,
    refused: u64,
    failed: u64,
    /// The errors, each with its number of failures.
    problems: BTreeMap<String, u64>,
    /// Connections that broke and could not be made again.
    connections_lost: u64,
    /// Latencies of decisions; null if there was none.
    latency_us: Option<Latency>,
    /// Share of its threads' time that the generator was running; null where the system does not
    /// report it.
    generator_busy: Option<f64>,
    /// CPU time of the generator per decision, µs.
    generator_us_per_decision: Option<f64>,
}

/// Latencies, in µs.
#[derive(Clone, Copy, Debug, Serialize)]
struct Latency {
    p50: f64,
    p90: f64,
    p99: f64,
    p99_9: f64,
    max: f64,
}

impl Report {
    /// Computes the report of `tally`, for a run of `plan`.
    pub(super) fn new(plan: &BenchPlan, schedule: &Schedule, tally: BenchTally) -> Self {
        let decisions = tally.decided();
        let BenchTally { latency, passed, refused, failed, problems, lost, end, busy } = tally;
        let elapsed = end.map_or(Duration::ZERO, |end| end - schedule.begin());
        let at = |part| latency.value_at_quantile(part) as f64 / 1_000.0;
        let latency_us = (decisions > 0).then(|| Latency {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: latency.max() as f64 / 1_000.0,
        });
        let busy = busy.map(|busy| busy.as_secs_f64());
        Self {
            wire: plan.wire,
            to: plan.to.to_string(),
            policy: plan.question.policy.clone(),
            connections: plan.connections,
            pipeline: plan.pipeline,
            keys: plan.keys,
            threads: plan.threads,
            rate: plan.rate.map(std::num::NonZero::get),
            elapsed_s: elapsed.as_secs_f64(),
            decisions,
            decisions_per_s: ratio(decisions as f64, elapsed.as_secs_f64()).unwrap_or(0.0),
            passed,
            refused,
            failed,
            problems,
            connections_lost: lost,
            latency_us,
            generator_busy: busy
                .and_then(|busy| ratio(busy, elapsed.as_secs_f64() * plan.threads as f64)),
            generator_us_per_decision: busy.and_then(|busy| ratio(busy * 1e6, decisions as f64)),
        }
    }

    /// Returns whether every question was decided, and no connection was lost.
    pub(super) const fn is_clean(&self) -> bool {
        self.failed == 0 && self.connections_lost == 0
    }

    /// The report in the format `output`, without the last end of line.
    pub(super) fn in_format(&self, output: OutputFormat) -> String {
        match output {
            OutputFormat::Json => {
                serde_json::to_string(self).expect("texts and numbers are always JSON")
            }
            OutputFormat::Text => self.text().expect("a text takes all"),
        }
    }

    fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        let Self { to, policy, connections, pipeline, keys, decisions, elapsed_s, .. } = self;
        let wire = match self.wire {
            BenchProtocol::Http => "http",
            BenchProtocol::Resp => "resp",
            BenchProtocol::Rls => "rls",
        };
        write!(
            text,
            "{wire} {to}, policy {policy}, {} connections",
            thousands(*connections as u64)
        )?;
        if *pipeline > 1 {
            write!(text, " of {pipeline} at a time")?;
        }
        write!(text, ", {} keys, {elapsed_s:.1} s", thousands(*keys))?;
        match self.rate {
            Some(rate) => writeln!(text, ", target {} a second", thousands(rate.into()))?,
            None => writeln!(text)?,
        }
        let per_second = format!("{:.0} a second", self.decisions_per_s);
        writeln!(text, "\ndecisions {:>15}   {per_second}", thousands(*decisions))?;
        let all = decisions + self.failed;
        for (name, count) in
            [("passed", self.passed), ("refused", self.refused), ("failed", self.failed)]
        {
            writeln!(text, "  {name:<8}{:>15}   {:>7}", thousands(count), percent(count, all))?;
        }
        for (problem, count) in &self.problems {
            writeln!(text, "    {} × {problem}", thousands(*count))?;
        }
        if self.connections_lost > 0 {
            writeln!(text, "  {} connections were lost", self.connections_lost)?;
        }
        self.add_latency(&mut text)?;
        self.add_generator(&mut text)?;
        Ok(text.trim_end().to_owned())
    }

    fn add_latency(&self, text: &mut String) -> std::fmt::Result {
        let Some(Latency { p50, p90, p99, p99_9, max }) = self.latency_us else { return Ok(()) };
        let what = if self.rate.is_some() {
            "since the scheduled time"
        } else {
            "since the request was sent"
        };
        writeln!(text, "\nlatency, ms, {what}")?;
        for (name, us) in [("p50", p50), ("p90", p90), ("p99", p99), ("p99.9", p99_9), ("max", max)]
        {
            writeln!(text, "  {name:<8}{:>15.3}", us / 1_000.0)?;
        }
        Ok(())
    }

    fn add_generator(&self, text: &mut String) -> std::fmt::Result {
        let Some((busy, us)) = self.generator_busy.zip(self.generator_us_per_decision) else {
            return Ok(());
        };
        let threads = match self.threads {
            1 => "its thread".to_owned(),
            threads => format!("its {threads} threads"),
        };
        let percent = busy * 100.0;
        writeln!(
            text,
            "\nthe generator was busy for {percent:.0} % of {threads}, {us:.1} µs a decision"
        )?;
        if busy > BUSY_TOO_MUCH {
            writeln!(
                text,
                "it may be slower than the server: use more --threads, or fewer --connections"
            )?;
        }
        Ok(())
    }
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}
