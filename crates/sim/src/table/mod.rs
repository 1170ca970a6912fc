//! The table of leases: permits admitted and calls made by the engine itself under each load, a case a line.
//!
//! | file | what |
//! |---|---|
//! | `cases` | the rules, fleets and loads |
//! | `load` | the rate of requests, and their keys |
//! | `fleet` | one run of a case, and an exact limiter beside it |
//! | `level` | the excess of a rule over its limit, at the same cost for each request |
//!
//! Histories check what must never happen, and have a few hundred requests. Here a case has up to three
//! million; it checks no invariant.

mod cases;
mod fleet;
mod level;
mod load;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use sluicegate::policy::{Document, PolicySet};

use crate::plan::RuleSpec;
use fleet::{Figures, FleetRun};
use load::Load;

/// Runs of each case.
const SEEDS: u64 = 5;

/// The first of their seeds.
const SEED: u64 = 100;

/// One line of the table.
#[derive(Debug)]
struct Case {
    name: String,
    rule: RuleSpec,
    nodes: usize,
    span_us: u64,
    round_trip_us: u64,
    /// Part of the messages that are lost, each way.
    lost_percent: f64,
    /// The period after which a node is killed, µs, again and again.
    dies_every_us: Option<u64>,
    flushed_at_us: Vec<u64>,
    load: Load,
}

/// The mean of the runs of a case.
#[derive(Clone, Debug)]
pub struct Line {
    /// Rule, fleet and load.
    pub name: String,
    /// Permits admitted, in percent of those that one exact limiter admits; the mean.
    pub admitted: f64,
    /// The lowest [`admitted`](Self::admitted) of a run.
    pub admitted_least: f64,
    /// Calls of the store, in percent of the requests; the mean.
    pub calls: f64,
    /// The highest [`calls`](Self::calls) of a run.
    pub calls_most: f64,
    /// Permits admitted without leases, in percent of those that one exact limiter admits.
    pub central_admitted: f64,
    /// Calls of the store without leases, in percent of the requests.
    pub central_calls: f64,
    /// Permits over the limit in the worst interval of all runs; below 0: permits left.
    pub over: i64,
    /// Requests that waited for an answer, in percent.
    pub waited: f64,
}

/// The head of the table, as Markdown.
pub const HEAD: &str = "\
| Case, 5 seeds | Admitted, % of exact (worst) | Calls, % (worst) | Central: admitted, calls, % | Over | Waited, % |
|---|---|---|---|--:|--:|";

/// Runs the cases whose names contain `name`; all if it is empty. Calls `show` with each line as soon as it
/// and all before it are ready.
pub fn run(name: &str, show: impl Fn(&Line) + Sync) -> Vec<Line> {
    let mut cases = cases::all();
    cases.retain(|case| case.name.contains(name));
    let next = AtomicUsize::new(0);
    let made = Mutex::new((0, vec![None; cases.len()]));
    let run_some = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(place) else { return };
            let line = case.line();
            let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
            let (shown, lines) = &mut *made;
            lines[place] = Some(line);
            while let Some(Some(line)) = lines.get(*shown) {
                show(line);
                *shown += 1;
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run_some))));
    let (_, lines) = made.into_inner().unwrap_or_else(PoisonError::into_inner);
    lines.into_iter().flatten().collect()
}

impl Case {
    fn policies(&self) -> PolicySet {
        let text =
            format!("policies:\n  - name: p\n    rules:\n      - {{ {} }}\n", self.rule.text());
        let document = Document::parse(&text);
        PolicySet::new(document.unwrap_or_else(|errors| panic!("{errors}\n{text}")))
    }

    fn line(&self) -> Line {
        let run = |leases| -> Vec<Figures> {
            (SEED..SEED + SEEDS).map(|seed| FleetRun::run(self, seed, leases)).collect()
        };
        let (leased, central) = (run(true), run(false));
        let (admitted, calls) = (each(&leased, admitted), each(&leased, calls));
        Line {
            name: self.name.clone(),
            admitted: mean(&admitted),
            admitted_least: admitted.iter().copied().fold(f64::INFINITY, f64::min),
            calls: mean(&calls),
            calls_most: calls.iter().copied().fold(0.0, f64::max),
            central_admitted: mean(&each(&central, self::admitted)),
            central_calls: mean(&each(&central, self::calls)),
            over: leased.iter().map(|figures| figures.over).max().unwrap_or(0),
            waited: mean(&each(&leased, |figures| percent(figures.waited, figures.asks))),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, admitted, admitted_least, calls, calls_most, over, waited, .. } = self;
        let Self { central_admitted, central_calls, .. } = self;
        write!(
            f,
            "| {name} | {admitted:.2} ({admitted_least:.2}) | {calls:.2} ({calls_most:.2}) | \
             {central_admitted:.2}, {central_calls:.1} | {over:+} | {waited:.2} |"
        )
    }
}

fn admitted(figures: &Figures) -> f64 {
    percent(figures.admitted, figures.exact)
}

fn calls(figures: &Figures) -> f64 {
    percent(figures.calls, figures.asks)
}

fn each(runs: &[Figures], of: impl Fn(&Figures) -> f64) -> Vec<f64> {
    runs.iter().map(of).collect()
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}
