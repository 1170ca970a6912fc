//! Runs histories by hand: `replay TOKEN`, `soak --minutes N` from a seed on, `seeds FROM TO`; and the table of leases: `table`.
//! `--scripts` asks the scripts of Redis too, `--edits` runs histories of edited quotas, `--permits` those of permits that are
//! held.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sluicegate_sim::plan::Plan;
use sluicegate_sim::report::{Losses, Quiet};
use sluicegate_sim::{HistoryResult, HistoryToken, run, run_traced, shrink, table};

const USAGE: &str = "usage: sluicegate-sim replay TOKEN | soak --minutes N [--from SEED] [--scripts|--edits|--permits] | \
                     seeds FROM TO [--scripts|--edits|--permits] | table [PART_OF_A_NAME]";

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let mut args: Vec<_> = args.iter().map(String::as_str).collect();
    let history: fn(u64) -> HistoryToken = match args.pop_if(|last| last.starts_with("--")) {
        Some("--scripts") => |seed| HistoryToken::of(seed).with_scripts(),
        Some("--edits") => |seed| HistoryToken::of_edits(seed).with_scripts(),
        Some("--permits") => |seed| HistoryToken::of_permits(seed).with_scripts(),
        Some(_) => return wrong(USAGE),
        None => HistoryToken::of,
    };
    match *args {
        ["replay", token] => match token.parse() {
            Ok(token) => replay(&token),
            Err(error) => wrong(&error),
        },
        ["soak", "--minutes", minutes] => soak(history, minutes, "0"),
        ["soak", "--minutes", minutes, "--from", seed] => soak(history, minutes, seed),
        ["seeds", from, to] => match (from.parse(), to.parse()) {
            (Ok(from), Ok(to)) => seeds(history, from..to, None),
            _ => wrong(USAGE),
        },
        ["table"] => print_table(""),
        ["table", name] => print_table(name),
        _ => wrong(USAGE),
    }
}

fn print_table(name: &str) -> ExitCode {
    println!("{}", table::HEAD);
    table::run(name, |line| println!("{line}"));
    ExitCode::SUCCESS
}

fn wrong(error: &str) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(2)
}

/// Runs one history with its trace.
fn replay(token: &HistoryToken) -> ExitCode {
    let plan = Plan::of(token.seed, &token.cut);
    (0..plan.versions.len()).for_each(|version| println!("{}", plan.document(version)));
    let Plan { nodes, keys, deadline_us, latency_us, jitter_us, reminds, calls_max, .. } = plan;
    println!(
        "nodes {nodes}, keys {keys}, deadline {deadline_us} µs, latency {latency_us} µs + {jitter_us} µs, \
         calls of a node at a time: {calls_max:?}, reminds: {reminds}"
    );
    plan.faults.iter().for_each(|fault| println!("{fault:?}"));
    let outcome = run_traced(token, true);
    outcome.trace.iter().for_each(|line| println!("{line}"));
    println!(
        "{:?}, {} decided, {} calls, hash {:016x}",
        outcome.used, outcome.decided, outcome.calls, outcome.hash
    );
    verdict(token, &outcome)
}

/// Runs histories for `minutes`, from the seed `from` on.
fn soak(history: fn(u64) -> HistoryToken, minutes: &str, from: &str) -> ExitCode {
    match (minutes.parse::<u64>(), from.parse::<u64>()) {
        (Ok(minutes), Ok(from)) => {
            seeds(history, from..u64::MAX, Some(Duration::from_secs(60 * minutes)))
        }
        _ => wrong(USAGE),
    }
}

#[expect(clippy::disallowed_methods, reason = "a soak ends by the clock of the machine")]
fn seeds(
    history: fn(u64) -> HistoryToken,
    seeds: std::ops::Range<u64>,
    span: Option<Duration>,
) -> ExitCode {
    let begun = Instant::now();
    let (mut histories, mut decided, mut calls, mut slowest, mut failed) = (0_u64, 0, 0, 0, 0_u64);
    let (mut quiet, mut lost) = (Quiet::default(), Losses::default());
    for seed in seeds {
        if span.is_some_and(|span| begun.elapsed() >= span) {
            break;
        }
        let token = history(seed);
        let outcome = run(&token);
        histories += 1;
        decided += outcome.decided;
        calls += outcome.calls;
        slowest = slowest.max(outcome.slowest_deadlines);
        quiet.see(&token, &outcome);
        lost.see(&outcome);
        if outcome.violation.is_some() {
            failed += 1;
            if failed <= 10 {
                let smallest = shrink::shrink(&token, &outcome);
                verdict(&smallest, &run(&smallest));
            }
        }
    }
    println!(
        "{histories} histories in {:.1} s, {failed} failed, {decided} decided, {calls} calls, \
         slowest decision {slowest} deadlines",
        begun.elapsed().as_secs_f64()
    );
    println!("{quiet}\n{lost}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn verdict(token: &HistoryToken, outcome: &HistoryResult) -> ExitCode {
    match &outcome.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("sim: {violation}; SIM={token}");
            ExitCode::FAILURE
        }
    }
}
