//! Rounds in turn: A B C … A B C …, so that a disturbance of the machine affects all alike.

use std::fmt;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use core_affinity::CoreId;

/// Duration of one round of one case: long beside a scheduler's tick, short enough that a table does not take minutes.
const ROUND: Duration = Duration::from_millis(25);

/// Operations of a first, short run that determines how many fit into a round.
const TRIAL_OPS: u64 = 20_000;

/// An operation that is repeated. It holds the loop itself, so that only the work is called in it.
pub type Work = Box<dyn Fn(u64) + Sync>;

/// A line of the table.
#[expect(missing_debug_implementations, reason = "work cannot be shown")]
pub struct Case {
    /// The operation.
    pub work: &'static str,
    /// Number of threads at once.
    pub threads: usize,
    /// The operation of Sluicegate.
    pub ours: Work,
    /// The operation of a peer, with its name.
    pub peer: Option<(&'static str, Work)>,
    /// The ratio to reach.
    pub target: Option<f64>,
}

/// A measured line.
#[expect(missing_debug_implementations, reason = "work cannot be shown")]
pub struct Row<'a> {
    /// The measured case.
    pub case: &'a Case,
    /// Sluicegate's figure.
    pub ours: Figure,
    /// The peer's, if there is one.
    pub peers: Option<Figure>,
    /// Ours over the peer's: the median of the rounds' own ratios, so that a slow moment of the
    /// machine, which disturbs both sides of a round, does not count.
    pub ratio: Option<f64>,
}

/// Time per operation and thread, ns.
#[derive(Debug)]
pub struct Figure {
    /// The median of all rounds.
    pub median: f64,
    least: f64,
    most: f64,
}

/// Runs all cases `rounds` times in turn.
pub fn measure(cases: &[Case], rounds: usize) -> Vec<Row<'_>> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let ops: Vec<_> = cases
        .iter()
        .map(|case| {
            let fitting = |work: &Work| fitting(work, case.threads, &cores);
            (fitting(&case.ours), case.peer.as_ref().map(|(_, work)| fitting(work)))
        })
        .collect();
    let mut samples: Vec<_> = cases.iter().map(|_| (Vec::new(), Vec::new())).collect();
    for _ in 0..rounds {
        for ((case, ops), samples) in cases.iter().zip(&ops).zip(&mut samples) {
            samples.0.push(ns_per_op(&case.ours, ops.0, case.threads, &cores));
            if let (Some((_, work)), Some(ops)) = (&case.peer, ops.1) {
                samples.1.push(ns_per_op(work, ops, case.threads, &cores));
            }
        }
    }
    let rows = cases.iter().zip(samples);
    rows.map(|(case, (ours, peers))| row(case, ours, peers)).collect()
}

fn row(case: &Case, ours: Vec<f64>, peers: Vec<f64>) -> Row<'_> {
    let ratios = ours.iter().zip(&peers).map(|(ours, peer)| ours / peer).collect();
    Row {
        case,
        ratio: Figure::of(ratios).map(|ratio| ratio.median),
        ours: Figure::of(ours).expect("there is at least one round"),
        peers: Figure::of(peers),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of operations, positive and far below 2^53"
)]
fn fitting(work: &Work, threads: usize, cores: &[CoreId]) -> u64 {
    let ns = ns_per_op(work, TRIAL_OPS, threads, cores).max(0.1);
    (ROUND.as_nanos() as f64 / ns) as u64
}

/// Lets `threads` threads do `ops` operations each and returns the time of the slowest. Thread k is on core k if the
/// machine has one and permits the choice.
#[expect(clippy::disallowed_methods, reason = "a stop-watch")]
pub fn run(work: &Work, ops: u64, threads: usize, cores: &[CoreId]) -> Duration {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, core) = (&barrier, cores.get(thread).copied());
                scope.spawn(move || {
                    core.map(core_affinity::set_for_current);
                    barrier.wait();
                    let start = Instant::now();
                    work(ops);
                    start.elapsed()
                })
            })
            .collect();
        let elapsed = running.into_iter().map(|thread| thread.join().expect("no work panics"));
        elapsed.max().unwrap_or_default()
    })
}

fn ns_per_op(work: &Work, ops: u64, threads: usize, cores: &[CoreId]) -> f64 {
    run(work, ops, threads, cores).as_nanos() as f64 / ops as f64
}

impl Figure {
    fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let median = *samples.get(samples.len() / 2)?;
        Some(Self { median, least: *samples.first()?, most: *samples.last()? })
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = self;
        write!(f, "{median:.1} [{least:.1}..{most:.1}]")
    }
}
