//! What a decision over HTTP costs a server: its own CPU time, read from the kernel's accounts, beside
//! a server of axum that reads the same JSON and answers with one that is always the same.
//! `bench/README.md` says how to run it.

mod ceiling;
mod load;
mod server;

use anyhow::Context as _;
use load::Load;
use server::Server;

/// That of the server, so that the ceiling has it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds of each case, all cases in turn; a figure is the median of as many.
const ROUNDS: usize = 5;

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(ceiling::CHILD) {
        return ceiling::serve();
    }
    let load = Load::new()?;
    let cases = [
        ("a fixed JSON, axum", Server::ceiling()?),
        ("a check", Server::sluicegate("ratelimit")?),
        ("the same, without header fields", Server::sluicegate("off")?),
        ("the same, with `x-ratelimit` too", Server::sluicegate("ratelimit,x-ratelimit")?),
    ];
    for (_, server) in &cases {
        load.run(server)?;
    }
    let mut figures = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (figures, (_, server)) in figures.iter_mut().zip(&cases) {
            let before = server.cpu_ns()?;
            let decisions = load.run(server)?;
            let spent = server.cpu_ns()? - before;
            figures.push(spent as f64 / decisions as f64 / 1_000.0);
        }
    }
    println!("| server, on one core | server CPU, µs a decision | × the fixed JSON |");
    println!("|---|--:|--:|");
    let fixed = figures.first().context("the first case is the fixed JSON")?.clone();
    for ((name, _), own) in cases.iter().zip(&figures) {
        let ratios = own.iter().zip(&fixed).map(|(own, fixed)| own / fixed).collect();
        let ((least, median, most), (_, ratio, _)) = (spread(own.clone()), spread(ratios));
        println!("| {name} | {median:.2} [{least:.2}..{most:.2}] | {ratio:.2} |");
    }
    Ok(())
}

/// The least, the median and the most.
fn spread(mut figures: Vec<f64>) -> (f64, f64, f64) {
    figures.sort_by(f64::total_cmp);
    (figures[0], figures[figures.len() / 2], figures[figures.len() - 1])
}
