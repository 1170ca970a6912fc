//! `sluicegate bench`: load on a server, and how long its decisions take.
//!
//! ```text
//! plan ─▶ threads ─▶ lines: one connection each ─▶ tally ─▶ report
//!                      ▲ schedule: which questions are due, and when
//! ```
//!
//! **Closed loop** (the default): each connection asks, waits for the answer, asks again. A slow server
//! is asked less, so latencies are those of the load that it could bear.
//!
//! **Open loop** (`--rate`): question *n* is due at `n / rate`, independent of earlier answers, and its latency counts
//! from then. So a server that stands still for a second is charged for all requests of that second (the correction for
//! coordinated omission).
//!
//! A pipeline is sent together and waited for together: on RESP in one write, on rls as streams of one
//! connection. HTTP/1 has none.

mod connection;
mod connections;
mod plan;
mod report;
mod schedule;
mod tally;

use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use tokio::runtime::Runtime;

pub(super) use plan::BenchArgs;

use super::print_line;
use crate::exit;
use connection::BenchConnection;
use plan::BenchPlan;
use report::Report;
use schedule::Schedule;
use tally::BenchTally;

/// Measures, and prints the report. Exit status 1: requests or connections failed.
pub(super) fn run(args: BenchArgs, runtime: &Runtime) -> Result<ExitCode> {
    let output = args.output();
    let planned = async { BenchPlan::new(args.with_url_of_environment()?).await };
    let plan = match runtime.block_on(planned) {
        Ok(plan) => plan,
        Err(error) => return Ok(exit::invalid(&error)),
    };
    let report = match measure(&plan) {
        Ok(report) => report,
        Err(error) => {
            return Err(match runtime.block_on(plan.other_protocol()) {
                Some(other) => error.context(other),
                None => error,
            });
        }
    };
    print_line(&report.in_format(output))?;
    if report.is_clean() { Ok(ExitCode::SUCCESS) } else { Ok(ExitCode::FAILURE) }
}

/// Runs every thread of the plan: all connect, then all begin at the same time.
fn measure(plan: &BenchPlan) -> Result<Report> {
    thread::scope(|scope| {
        let (mut waiting, mut loading) = (Vec::new(), Vec::new());
        for share in plan.shares() {
            let ((ready, is_ready), (start, started)) =
                (mpsc::sync_channel(1), mpsc::sync_channel(1));
            loading.push(scope.spawn(move || load(plan, share, &ready, &started)));
            waiting.push((is_ready, start));
        }
        for (is_ready, _) in &waiting {
            // If this returns early, threads that wait for the start end, too.
            is_ready.recv().unwrap_or_else(|_| Err(anyhow!(PANICKED)))?;
        }
        let schedule = Schedule::new(plan);
        for (_, start) in &waiting {
            start.send(schedule.clone()).ok();
        }
        let mut tally = BenchTally::new();
        for thread in loading {
            tally.add(thread.join().ok().flatten().context(PANICKED)?);
        }
        Ok(Report::new(plan, &schedule, tally))
    })
}

/// Runs one thread: connects, reports whether it is ready, waits for the start, asks. `None` if it did not start.
fn load(
    plan: &BenchPlan,
    connections: usize,
    ready: &mpsc::SyncSender<Result<()>>,
    started: &mpsc::Receiver<Schedule>,
) -> Option<BenchTally> {
    let (runtime, lines) = match prepare(plan, connections) {
        Ok(prepared) => prepared,
        Err(error) => {
            ready.send(Err(error)).ok();
            return None;
        }
    };
    ready.send(Ok(())).ok();
    let schedule = started.recv().ok()?;
    Some(runtime.block_on(connections::run(plan, lines, &schedule)))
}

fn prepare(plan: &BenchPlan, connections: usize) -> Result<(Runtime, Vec<BenchConnection>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let lines = runtime.block_on(connections::connect(plan, connections))?;
    Ok((runtime, lines))
}

/// The error of a thread that panicked.
const PANICKED: &str = "a thread that loads the server panicked";
