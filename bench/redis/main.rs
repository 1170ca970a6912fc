//! Measures a Redis server's CPU time per decision, read from the kernel's accounts, for
//! Sluicegate's script and for the smallest limiter. `bench/README.md` says how to run it.

mod cases;
mod engine;
mod server;

use std::collections::BTreeMap;

use anyhow::Context as _;
use cases::Case;
use server::Server;

/// Rounds of each case, all cases in turn; a figure is the median of as many.
const ROUNDS: usize = 61;

/// Decisions of one case in one round: about 50 ms of the server's time, short enough that a
/// disturbance of the machine affects a case and its neighbour alike.
const DECISIONS_PER_ROUND: u64 = 4_800;

/// Keys that decisions are spread over; most exist when they are requested again.
const KEYS: u64 = 20_000;

/// Rounds that are not counted, in which keys are made.
const ROUNDS_BEFORE: usize = 10;

/// Keys whose memory is measured.
const KEYS_IN_MEMORY: u64 = 1_000_000;

fn main() -> anyhow::Result<()> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    if wanted == "memory" {
        let mut server = Server::start(&["--enable-debug-command", "yes"])?;
        server.keep_what_has_ended()?;
        let mut cases = cases::all(&mut server)?;
        cases.push(cases::deep()?);
        return memory(&mut server, &cases);
    }
    let mut server = Server::start(&[])?;
    if wanted == "engine" {
        return engine::run(&mut server);
    }
    let cases = cases::all(&mut server)?;
    let (smallest, others) = (cases.first(), cases.iter().skip(1));
    let others = others.filter(|case| case.name.contains(&wanted));
    cpu(&mut server, &smallest.into_iter().chain(others).collect::<Vec<_>>())
}

/// CPU time of the server per decision.
fn cpu(server: &mut Server, cases: &[&Case]) -> anyhow::Result<()> {
    let mut figures: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for round in 0..ROUNDS_BEFORE + ROUNDS {
        for (place, case) in cases.iter().enumerate() {
            let before = server.cpu_ns()?;
            server.run(case, DECISIONS_PER_ROUND, KEYS)?;
            let spent = server.cpu_ns()? - before;
            if round >= ROUNDS_BEFORE {
                let each = spent as f64 / DECISIONS_PER_ROUND as f64 / 1_000.0;
                figures.entry(place).or_default().push(each);
            }
        }
    }
    println!("| script | server CPU, µs a decision | × the smallest |");
    println!("|---|--:|--:|");
    let smallest = figures.get(&0).context("the first case is the smallest limiter")?.clone();
    for (place, case) in cases.iter().enumerate() {
        let own = &figures[&place];
        let mut ratios: Vec<_> =
            own.iter().zip(&smallest).map(|(own, least)| own / least).collect();
        let mut sorted = own.clone();
        sorted.sort_by(f64::total_cmp);
        ratios.sort_by(f64::total_cmp);
        let (least, median, most) = (sorted[0], sorted[ROUNDS / 2], sorted[ROUNDS - 1]);
        let ratio = ratios[ROUNDS / 2];
        println!("| {} | {median:.2} [{least:.2}..{most:.2}] | {ratio:.2} |", case.name);
    }
    Ok(())
}

/// Memory of the server per key.
fn memory(server: &mut Server, cases: &[Case]) -> anyhow::Result<()> {
    println!("| script | used_memory, bytes a key | keys |");
    println!("|---|--:|--:|");
    // A refused request leaves no key.
    let cases = cases.iter().filter(|case| case.decisions == 1 && !case.name.contains("refused"));
    for case in cases {
        server.flush()?;
        let before = server.used_memory()?;
        server.run_in_order(case, KEYS_IN_MEMORY)?;
        let keys = server.keys()?;
        let each = (server.used_memory()? - before) as f64 / keys.max(1) as f64;
        println!("| {} | {each:.1} | {keys} |", case.name);
    }
    Ok(())
}
