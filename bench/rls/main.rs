//! What a decision of the rls wire costs a server: its own CPU time, read from the kernel's accounts,
//! beside a server that answers every request with the same message. `bench/README.md` says how to
//! run it.

mod ceiling;
mod load;
mod redis;
mod server;

use anyhow::Context as _;
use load::Load;
use redis::Redis;
use server::Server;

/// That of the server, so that the ceiling has it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds of each case, all cases in turn; a figure is the median of as many.
const ROUNDS: usize = 5;

/// Decisions of one case in one round: about a second of the server's time.
const DECISIONS_PER_ROUND: u64 = 100_000;

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(ceiling::CHILD) {
        return ceiling::serve();
    }
    let load = Load::new()?;
    let (redis, memory) = (Redis::start()?, "memory");
    let both = "ratelimit,x-ratelimit";
    let cases = [
        ("a fixed reply, tonic", Server::ceiling()?),
        ("one descriptor of a tree", Server::sluicegate("off", memory)?),
        ("the same, with `ratelimit` headers", Server::sluicegate("ratelimit", memory)?),
        ("the same, with `x-ratelimit` too", Server::sluicegate(both, memory)?),
        ("one descriptor of a tree, on Redis", Server::sluicegate("off", &redis.url())?),
    ];
    for (_, server) in &cases {
        load.run(server.port(), DECISIONS_PER_ROUND / 10)?;
    }
    let mut figures = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (figures, (_, server)) in figures.iter_mut().zip(&cases) {
            let before = server.cpu_ns()?;
            load.run(server.port(), DECISIONS_PER_ROUND)?;
            let spent = server.cpu_ns()? - before;
            figures.push(spent as f64 / DECISIONS_PER_ROUND as f64 / 1_000.0);
        }
    }
    println!("| server, on one core | server CPU, µs a decision | × the fixed reply |");
    println!("|---|--:|--:|");
    let fixed = figures.first().context("the first case is the fixed reply")?.clone();
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
