//! Runs of thousands of histories, and the promises of the simulator itself.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sluicegate_sim::report::{Losses, Quiet};
use sluicegate_sim::{
    HistoryResult, HistoryToken, Invariant, Violation, run, run_traced, shrink, table,
};

/// Histories of a run; `SIM_HISTORIES` sets another number.
const HISTORIES: u64 = 20_000;

/// The number of histories, the first ones, that run the scripts of Redis too.
const SCRIPTED: u64 = 3_000;

/// Histories of quotas, which take longer; `SIM_HISTORIES` sets another number, in proportion.
const QUOTAS: u64 = 500;

/// Histories of quotas that are edited, half of which run the scripts of Redis too; `SIM_HISTORIES` sets another number,
/// in proportion.
const EDITS: u64 = 500;

/// Histories of permits that are held, half of which run the scripts of Redis too; `SIM_HISTORIES` sets another number,
/// in proportion.
const PERMITS: u64 = 1_000;

/// The fewest keys with lost writes from which figures are computed.
const LOST_MIN: usize = 100;

/// Seeds that are run twice.
const TWICE: u64 = 200;

/// The most events of a trace that are shown: the last ones.
const SHOWN_MAX: usize = 60;

/// Panics with a line that names the smallest part of `token` that fails, and its trace.
fn report(token: &HistoryToken, outcome: &HistoryResult) -> ! {
    let smallest = shrink::shrink(token, outcome);
    let outcome = run_traced(&smallest, true);
    let violation = outcome.violation.as_ref().unwrap();
    let from = outcome.trace.len().saturating_sub(SHOWN_MAX);
    outcome.trace[from..].iter().for_each(|line| eprintln!("{line}"));
    panic!("sim: {violation}; SIM={smallest} (of {token})");
}

#[test]
fn histories_that_failed_before_do_not_fail() {
    let lines = include_str!("../../regressions.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let token: HistoryToken = line.split_whitespace().next().unwrap().parse().unwrap();
        let outcome = run(&token);
        if outcome.violation.is_some() {
            report(&token, &outcome);
        }
    }
}

/// Returns the number of histories of a run, by default `of`.
fn histories(of: u64) -> u64 {
    match std::env::var("SIM_HISTORIES") {
        Ok(number) => number.parse::<u64>().unwrap() * of / HISTORIES,
        Err(_) => of,
    }
}

/// Runs the histories `of` the seeds below `histories` on all cores, and reports the first that fails.
fn run_all(histories: u64, of: fn(u64) -> HistoryToken) -> (Quiet, Losses) {
    let (next, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let all = Mutex::new((Quiet::default(), Losses::default()));
    let run_some = || {
        let (mut quiet, mut lost) = (Quiet::default(), Losses::default());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // The failing history with the lowest seed is reported, whatever the other threads do.
            if seed >= histories || seed > failed.load(Ordering::Relaxed) {
                break;
            }
            let token = of(seed);
            let outcome = run(&token);
            quiet.see(&token, &outcome);
            lost.see(&outcome);
            if outcome.violation.is_some() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
        let mut all = all.lock().unwrap();
        all.0.add(&quiet);
        all.1.add(lost);
    };
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run_some))));
    let failed = failed.into_inner();
    if failed < u64::MAX {
        let token = of(failed);
        eprintln!("history {failed} is the first that fails");
        report(&token, &run(&token));
    }
    all.into_inner().unwrap()
}

#[test]
fn no_history_breaks_an_invariant() {
    let (quiet, lost) = run_all(histories(HISTORIES), |seed| match seed {
        0..SCRIPTED => HistoryToken::of(seed).with_scripts(),
        _ => HistoryToken::of(seed),
    });
    eprintln!("{quiet}\n{lost}");
    // `LostWritesCostLittle` holds of many keys together, and a few prove nothing.
    if lost.len() >= LOST_MIN {
        assert!(
            lost.within_percent() >= 99.0 && lost.mean_percent() <= 1.0,
            "LostWritesCostLittle: {lost}"
        );
    }
}

#[test]
fn a_violation_names_the_promise_that_it_breaks() {
    let violation = Violation {
        invariant: Invariant::ChargedAtMostAdmitted,
        at: 1_500_000,
        what: "node 0 …".to_owned(),
    };
    let line = violation.to_string();
    assert_eq!(
        line,
        "ChargedAtMostAdmitted at 1.500 s: node 0 …; promised: no more is charged than was admitted"
    );
}

#[test]
fn no_edit_and_no_late_message_admits_more_than_a_quota() {
    run_all(histories(QUOTAS), HistoryToken::of_quota);
}

#[test]
fn no_edit_and_no_outage_admits_more_than_a_quota() {
    run_all(histories(EDITS), |seed| match seed % 2 {
        0 => HistoryToken::of_edits(seed).with_scripts(),
        _ => HistoryToken::of_edits(seed),
    });
}

#[test]
fn no_history_holds_more_permits_than_the_limit() {
    run_all(histories(PERMITS), |seed| match seed % 2 {
        0 => HistoryToken::of_permits(seed).with_scripts(),
        _ => HistoryToken::of_permits(seed),
    });
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in 0..TWICE {
        for token in
            [HistoryToken::of(seed), HistoryToken::of_permits(seed), HistoryToken::of_edits(seed)]
        {
            assert_eq!(run(&token).hash, run(&token).hash, "of {token}");
        }
    }
}

#[test]
fn a_history_without_a_fault_has_all_other_events_planned_alike() {
    let cut = "s2-7".parse::<HistoryToken>().unwrap().cut;
    let whole = sluicegate_sim::plan::Plan::of(7, &cut);
    let token: HistoryToken = "s2-7-f".parse().unwrap();
    let part = sluicegate_sim::plan::Plan::of(7, &token.cut);
    assert!(!whole.faults.is_empty() && part.faults.is_empty());
    assert_eq!(whole.arrivals, part.arrivals);
}

#[test]
fn a_token_is_read_as_it_is_written() {
    for text in [
        "s1-7",
        "s2-7",
        "s3-7",
        "h3-1",
        "h4-1",
        "q1-2a",
        "e1-2a-r",
        "p2-2a-r",
        "h2-7-n1k1-f0.1",
        "s1-6f3a9c20-n2k1-f3.7-l0-t2213",
        "s1-ff-f",
        "s1-1-l1.2",
        "h3-5-n2k1-t90-r",
    ] {
        let token: HistoryToken = text.parse().unwrap();
        assert_eq!(token.to_string(), text);
        assert_eq!(format!("SIM={text}").parse(), Ok(token));
    }
    for text in ["", "s1", "s1-x", "s1-7-q1", "s1-7-n1", "s1-7-tx", "s1-7-rx", "s4-7", "p1-7"] {
        assert!(text.parse::<HistoryToken>().is_err(), "{text}");
    }
}

#[test]
fn leases_of_a_hot_key_admit_what_one_limiter_does_with_few_calls() {
    let lines = table::run("2000/s burst 2000, N=4, ×2", |_| {});
    assert!(!lines.is_empty());
    for line in lines {
        assert!(line.admitted >= 99.0 && line.admitted_least >= 97.0, "{line}");
        assert!(line.calls <= 2.5 && line.over <= 0, "{line}");
    }
}

#[test]
fn a_small_limit_is_as_exact_as_without_leases() {
    for line in table::run("5/min on 20 nodes", |_| {}) {
        assert!(line.admitted >= 99.9 && line.over <= 0, "{line}");
        assert!((line.calls - line.central_calls).abs() < 0.01, "{line}");
    }
}
