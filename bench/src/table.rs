//! Tables in Markdown.

use crate::measure::{Case, Row};

/// The head of a table of [`Row`]s.
pub fn print_head() {
    println!("| work | threads | sluicegate, ns | peer | peer, ns | ratio | to reach |");
    println!("|---|--:|--:|---|--:|--:|--:|");
}

/// Prints one line of the table.
pub fn print(row: &Row<'_>) {
    let Case { work, threads, peer, target, .. } = row.case;
    let target = target.map_or("–".to_owned(), |target| format!("≤ {target:.2}"));
    let ours = &row.ours;
    match (peer, &row.peers, row.ratio) {
        (Some((name, _)), Some(peers), Some(ratio)) => {
            println!("| {work} | {threads} | {ours} | {name} | {peers} | {ratio:.2} | {target} |");
        }
        _ => println!("| {work} | {threads} | {ours} | – | – | – | {target} |"),
    }
}
