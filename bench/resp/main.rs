//! What a decision over RESP costs a server: its own CPU time, for Sluicegate, for a server that
//! only reads the command and writes a fixed reply, and for throttlecrab-server where it is installed.
//! `bench/README.md` says how to run it.

mod fixed;
mod server;

use anyhow::ensure;
use server::Server;

/// Rounds, all servers in turn; a figure is the median of as many.
const ROUNDS: usize = 5;

/// Rounds that are not counted, in which keys are made.
const ROUNDS_BEFORE: usize = 1;

/// Commands that a connection sends before it reads the replies, and how many are sent in a round:
/// one to two seconds of the client's time.
const LOADS: [(u32, u32); 3] = [(1, 100_000), (16, 1_000_000), (64, 1_500_000)];

/// What redis-cell in Redis 7 took on such a machine, in µs, for each of the loads. It cannot be
/// installed from a registry, so it is not part of the run.
const REDIS_CELL_US: [f64; 3] = [9.63, 2.75, 2.28];

fn main() -> anyhow::Result<()> {
    let wanted: Vec<_> = std::env::args().skip(1).collect();
    if wanted.first().is_some_and(|word| word == fixed::CHILD) {
        return fixed::run();
    }
    let mut servers = vec![Server::fixed()?, Server::sluicegate()?];
    servers.extend(Server::throttlecrab()?);
    println!(
        "| pipelined | server | CPU, µs a decision | × the fixed reply | × redis-cell | decisions/s |"
    );
    println!("|--:|---|--:|--:|--:|--:|");
    for (load, redis_cell_us) in LOADS.iter().zip(REDIS_CELL_US) {
        let (pipelined, commands) = *load;
        let chosen = wanted.is_empty() || wanted.contains(&pipelined.to_string());
        if !chosen {
            continue;
        }
        let mut rounds: Vec<Vec<(f64, f64)>> = vec![Vec::new(); servers.len()];
        for round in 0..ROUNDS_BEFORE + ROUNDS {
            for (server, figures) in servers.iter().zip(&mut rounds) {
                let figure = server.measure(pipelined, commands)?;
                if round >= ROUNDS_BEFORE {
                    figures.push(figure);
                }
            }
        }
        for (server, figures) in servers.iter().zip(&rounds) {
            ensure!(figures.len() == ROUNDS, "every round has a figure");
            let cpu = column(figures, |(cpu, _)| cpu);
            let rate = column(figures, |(_, rate)| rate);
            let pairs = figures.iter().zip(&rounds[0]);
            let mut ratios: Vec<_> = pairs.map(|(own, fixed)| own.0 / fixed.0).collect();
            ratios.sort_by(f64::total_cmp);
            println!(
                "| {pipelined} | {} | {:.3} [{:.3}..{:.3}] | {:.2} | {:.2} | {:.0} |",
                server.name(),
                cpu[ROUNDS / 2],
                cpu[0],
                cpu[ROUNDS - 1],
                ratios[ROUNDS / 2],
                cpu[ROUNDS / 2] / redis_cell_us,
                rate[ROUNDS / 2],
            );
        }
    }
    Ok(())
}

fn column(figures: &[(f64, f64)], pick: impl Fn((f64, f64)) -> f64) -> Vec<f64> {
    let mut column: Vec<_> = figures.iter().copied().map(pick).collect();
    column.sort_by(f64::total_cmp);
    column
}
