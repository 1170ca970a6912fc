//! Measures a server's CPU time per decision over RESP, for Sluicegate, for a server that only reads the command and
//! writes a fixed reply, and for throttlecrab-server if it is installed. `bench/README.md` says how to run it.

mod fixed;
mod server;

use server::Server;
use sluicegate_bench::served::{ROUNDS, spread};

/// Rounds that are not counted, in which keys are made.
const ROUNDS_BEFORE: usize = 1;

/// Commands that a connection sends before it reads the replies, and commands in a round: one to two seconds of the
/// client's time.
const LOADS: [(u32, u32); 3] = [(1, 100_000), (16, 1_000_000), (64, 1_500_000)];

/// CPU time of redis-cell in Redis 7 on such a machine, µs, for each of the loads. It cannot be installed from a
/// registry, so it is not part of the run.
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
            let [least, cpu, most] = spread(figures.iter().map(|(cpu, _)| *cpu));
            let [_, rate, _] = spread(figures.iter().map(|(_, rate)| *rate));
            let [_, ratio, _] =
                spread(figures.iter().zip(&rounds[0]).map(|(own, fixed)| own.0 / fixed.0));
            println!(
                "| {pipelined} | {} | {cpu:.3} [{least:.3}..{most:.3}] | {ratio:.2} | {:.2} | {rate:.0} |",
                server.name(),
                cpu / redis_cell_us,
            );
        }
    }
    Ok(())
}
