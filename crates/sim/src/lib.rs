//! A fleet in a box: real engines, a store, the network between them and their clocks, by a seed.
//!
//! A history is one thread and some milliseconds: nothing sleeps, and the same seed gives the same events.
//! `docs/exactness.md` sets the bound of what it may admit; a violation is one line with a token, which
//! `cargo run -p sluicegate-sim -- replay TOKEN` runs again with a trace.
//!
//! | file | what |
//! |---|---|
//! | [`plan`] | a seed → nodes, keys, rules, loads, faults |
//! | `world`, `queue` | events in the order of true time; calls under way; an executor of futures |
//! | `world/faults`, `world/failover` | what a fault does |
//! | `net`, `wire` | connections; an engine's end |
//! | `server` | the store, by the kernel |
//! | `scripts` | the same decisions by the scripts of Redis |
//! | `node`, `clock` | an engine and its clients; their clocks |
//! | `world/permits` | the permits that clients hold, and those that the store holds for them |
//! | `world/waits` | the requests that wait for permits, in the order of the store |
//! | `promises` | the invariants, as a violation names them |
//! | `bounds`, `meter` | the record of what was admitted, and the bound of it |
//! | `world/*_checks`, `world/memory`, `oracle` | the checks of the invariants |
//! | [`shrink`], [`token`] | the smallest history that fails, in one line |
//! | [`report`] | sums over many histories |
//! | [`table`] | what leases admit, and how many calls they take, under loads of millions of requests |

mod bounds;
mod clock;
mod meter;
mod net;
mod node;
mod oracle;
pub mod plan;
mod promises;
mod queue;
pub mod report;
mod scripts;
mod server;
pub mod shrink;
pub mod table;
pub mod token;
mod wire;
mod world;

pub use bounds::{Lost, Used, Violation};
pub use promises::Invariant;
pub use token::HistoryToken;
pub use world::HistoryResult;

use plan::Plan;

/// Runs the history of a token.
pub fn run(token: &HistoryToken) -> HistoryResult {
    run_traced(token, false)
}

/// Runs the history of a token; with a trace of all events if `traced`.
pub fn run_traced(token: &HistoryToken, traced: bool) -> HistoryResult {
    let plan = Plan::of(token.seed, &token.cut);
    world::World::run(&plan, traced)
}
