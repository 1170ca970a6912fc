//! `sluicegate bench`: load on a server, and how long its decisions take.
//!
//! ```text
//! plan ─▶ threads ─▶ lines: one connection each ─▶ tally ─▶ report
//!                      ▲ schedule: what is due, and when
//! ```
//!
//! **Closed loop** (the default): each connection asks, waits for the answer, asks again. A slow server
//! is asked less, so latencies are those of the load that it could bear.
//!
//! **Open loop** (`--rate`): question *n* is due at `n / rate` whatever became of those before, and
//! its latency counts from then, so that a server that stands still for a second is charged for all
//! who would have come meanwhile (what is called the correction for coordinated omission).
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

/// Measures, and prints what was measured. Exit status 1: something failed.
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
    print_line(&report.said(output))?;
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
            // Whoever still waits for the start when this returns ends, too.
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

/// One thread: connects, says whether it is ready, waits for the start, asks. None if it came to no
/// start.
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

/// What is said of a thread that ended without a word.
const PANICKED: &str = "a thread that loads the server panicked";
