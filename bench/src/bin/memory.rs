//! Measures the memory store with ten million keys and prints its tables. `bench/README.md` says how.

use sluicegate_bench::measure::measure;
use sluicegate_bench::memory::{self, Peer};
use sluicegate_bench::process::{self, CHILD};
use sluicegate_bench::table::{print, print_head};

/// Rounds of the first table; a figure is the median of as many.
const ROUNDS: usize = 41;

/// Children that grow, each peer in turn; a figure is the median of as many.
const GROWTHS: usize = 3;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    if first.as_deref() == Some(CHILD) {
        let name = args.next().unwrap_or_default();
        let peer = Peer::named(&name);
        return process::child(peer.ok_or_else(|| anyhow::anyhow!("nobody is called `{name}`"))?);
    }
    if first.as_deref() != Some("cases") {
        print_growth()?;
    }
    println!();
    let cases = memory::cases()?;
    print_head();
    measure(&cases, ROUNDS).iter().for_each(print);
    Ok(())
}

fn print_growth() -> anyhow::Result<()> {
    let mut grown = Peer::ALL.map(|peer| (peer, Vec::new()));
    for _ in 0..GROWTHS {
        for (peer, children) in &mut grown {
            children.push(process::grow(*peer)?);
        }
    }
    println!("| 0 to 10 M keys | bytes per key | p50, µs | p99, µs | p99.9, µs | most, µs |");
    println!("|---|--:|--:|--:|--:|--:|");
    for (peer, children) in &grown {
        let median = |figure: fn(&process::Grown) -> f64| {
            let mut figures: Vec<_> = children.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        println!(
            "| {} | {:.1} | {:.2} | {:.2} | {:.2} | {:.0} |",
            peer.name(),
            median(|child| child.bytes_per_key),
            median(|child| child.p50),
            median(|child| child.p99),
            median(|child| child.p999),
            median(|child| child.max),
        );
    }
    Ok(())
}
