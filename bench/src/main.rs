//! Measures Sluicegate beside its peers and prints one table in Markdown. `bench/README.md` says how.

use sluicegate_bench::measure::{Row, measure};
use sluicegate_bench::table::{print, print_head};
use sluicegate_bench::{engine, lease, limiter};

/// Rounds of each table; a figure is the median of as many.
const ROUNDS: usize = 25;

/// Most time that the engine may take on top of the store, ns.
const ENGINE_NS_MAX: f64 = 80.0;

fn main() -> anyhow::Result<()> {
    let mut cases = limiter::cases()?;
    cases.extend(lease::cases()?);
    // `-- precise` measures only the lines that contain this word.
    if let Some(wanted) = std::env::args().nth(1) {
        cases.retain(|case| case.work.contains(&wanted));
    }
    let engine = engine::case()?;
    print_head();
    for row in measure(&cases, ROUNDS) {
        print(&row);
    }
    for row in measure(std::slice::from_ref(&engine), ROUNDS) {
        print(&row);
        print_on_top(&row);
    }
    Ok(())
}

/// Prints the difference between ours and its peer, for work that contains the peer's.
fn print_on_top(row: &Row<'_>) {
    if let Some(peers) = &row.peers {
        let more = row.ours.median - peers.median;
        println!("\n{} on top of it: {more:.1} ns (to reach ≤ {ENGINE_NS_MAX:.0})", row.case.work);
    }
}
