//! The connections of one thread, each of which sends requests when they are due.

use std::cell::RefCell;
use std::fs;
use std::time::Duration;

use anyhow::{Result, anyhow};
use futures_util::future::join_all;
use sluicegate_text::human;
use tokio::time::{sleep, timeout};

use super::connection::BenchConnection;
use super::plan::BenchPlan;
use super::schedule::Schedule;
use super::tally::{BenchOutcome, BenchTally};

/// Longest wait for an answer, as long as servers take at most.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// Pause before a broken connection is made again, so that a server that closes all connections is not asked without
/// end.
const BROKEN_PAUSE: Duration = Duration::from_millis(10);

/// Makes `connections` connections. The first asks once, for a key of its own, so that a wrong request fails before the
/// run.
///
/// # Errors
/// If one cannot be made, or the question is not answered with a decision.
pub(super) async fn connect(plan: &BenchPlan, connections: usize) -> Result<Vec<BenchConnection>> {
    let mut lines = Vec::with_capacity(connections);
    for _ in 0..connections {
        lines.push(BenchConnection::connect(plan).await?);
    }
    if let Some(line) = lines.first_mut() {
        try_out(line, plan.keys).await?;
    }
    Ok(lines)
}

async fn try_out(line: &mut BenchConnection, key: u64) -> Result<()> {
    let mut reported = None;
    let (keys, answered) = ([key], |_, _, outcome| reported = Some(outcome));
    let result = timeout(ANSWER_WAIT_MAX, line.ask(&keys, answered)).await;
    result.map_err(|_| anyhow!(late())).flatten()?;
    match reported {
        Some(BenchOutcome::Failed(problem)) => Err(anyhow!(problem)),
        _ => Ok(()),
    }
}

/// Sends the requests of `schedule`, until no more are due.
pub(super) async fn run(
    plan: &BenchPlan,
    lines: Vec<BenchConnection>,
    schedule: &Schedule,
) -> BenchTally {
    let tally = RefCell::new(BenchTally::new());
    let before = busy();
    join_all(lines.into_iter().map(|line| keep_asking(plan, line, schedule, &tally))).await;
    let mut tally = tally.into_inner();
    tally.busy = before.zip(busy()).map(|(before, after)| after.saturating_sub(before));
    tally
}

async fn keep_asking(
    plan: &BenchPlan,
    mut line: BenchConnection,
    schedule: &Schedule,
    tally: &RefCell<BenchTally>,
) {
    let (mut due, mut keys, mut random) = (Vec::new(), Vec::new(), fastrand::Rng::new());
    loop {
        schedule.next(plan.pipeline, &mut due).await;
        if due.is_empty() {
            return;
        }
        keys.clear();
        keys.extend(due.iter().map(|_| random.u64(0..plan.keys)));
        let mut answers = 0;
        let asking = line.ask(&keys, |place, now, outcome| {
            answers += 1;
            tally.borrow_mut().answered(due[place], now, outcome);
        });
        let problem = match timeout(ANSWER_WAIT_MAX, asking).await {
            Ok(Ok(())) => continue,
            Ok(Err(problem)) => format!("{problem:#}"),
            Err(_) => late(),
        };
        tally.borrow_mut().failed(due.len() as u64 - answers, problem);
        sleep(BROKEN_PAUSE).await;
        match BenchConnection::connect(plan).await {
            Ok(again) => line = again,
            Err(_) => {
                tally.borrow_mut().lost += 1;
                return;
            }
        }
    }
}

fn late() -> String {
    format!("no answer within {}", human::span(ANSWER_WAIT_MAX.into()))
}

/// The time that this thread has run on a core; `None` where the system does not report it.
fn busy() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
