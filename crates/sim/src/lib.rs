//! A fleet in a box: real engines, a store, the network between them and their clocks, by a seed.
//!
//! A history is one thread and some milliseconds: nothing sleeps, and the same seed gives the same events.
//! What it may admit is judged by `docs/exactness.md`; a violation is one line with a token, which
//! `cargo run -p sluicegate-sim -- replay TOKEN` runs again with a trace.
//!
//! | file | what |
//! |---|---|
//! | [`plan`] | a seed → nodes, keys, rules, loads, faults |
//! | `world`, `queue` | events in the order of true time, and an executor of futures |
//! | `faults` | what a fault does |
//! | `net`, `calls`, `wire` | connections; what is under way on them; an engine's end |
//! | `server` | the store, by the kernel |
//! | `scripts` | the same by the scripts of Redis |
//! | `node`, `clock` | an engine and its clients; their clocks |
//! | `answers`, `grants`, `judge`, `meter`, `oracle`, `probes` | the invariants |
//! | [`shrink`], [`token`] | the smallest history that fails, in one line |
//! | [`report`] | what holds of many histories together |
//! | [`table`] | what leases admit, and how many calls they take, under loads of millions of requests |
//!
//! The invariants, as a violation names them:
//!
//! | | |
//! |---|---|
//! | I1 | the fleet admits no more than `docs/exactness.md` allows |
//! | I2 | the store has no more in use than the limit |
//! | I3, I4 | the store stands for what a node holds; a node takes nothing that has lapsed |
//! | I5 | where nothing goes wrong, as much is admitted as by one limiter |
//! | I7 | what lost writes cost on leased keys, of all histories together |
//! | I8 | a refusal holds until its `retry_after`, and no longer |
//! | I9 | a decision takes five deadlines at most |
//! | I10 | a look and a refusal change nothing |
//! | I11, I12 | nothing stays of what nobody asks for; a key has 64 holders at most |
//! | I13 | an answer says by whose word it is, and a busy store is not replaced |
//! | I14 | no more is given back or settled than was taken |
//! | I16 | a store that is given up is asked now and then |
//! | I17 | no more is charged than was admitted |
//! | I18 | a hot key is leased |
//! | I19 | a node that stops gives its leases back |
//! | I20 | a store that answers nothing is given up |
//! | I21 | a message keeps no more than its node can use |
//! | I22 | what was not paid of a bill is on the next |
//! | I23 | a store that answers is not given up, nor any more once it answers about a lease |
//! | I24 | what is owed is paid before permits are used |
//! | I25 | a share begins from what the store said last |
//! | I26 | a request that takes permits carries all that is owed |
//! | I27 | an answer names the limit of its rule |
//! | I28 | what was admitted alone is owed until it is paid |
//! | I29 | a node remembers what was refused, and asks no more for it |
//! | I30 | a store that has forgotten is reminded of a key before it is asked |
//! | I31 | permits are used by the rules by which they were asked for |
//! | I32 | a holder is charged for what it admitted, and for no more |
//! | I33 | what lapses counts as used by its deadline |
//! | I34 | what is given back is no longer in use |
//! | I35 | edits and late messages admit no more of a quota than its largest limit |
//! | I36 | of a quota behind a slow network no more is gone than was admitted |
//! | I37 | the scripts of Redis answer as the kernel does |
//! | debts | what is owed is charged once the store answers |

mod answers;
mod calls;
mod clock;
mod dues;
mod faults;
mod grants;
mod judge;
mod memory;
mod meter;
mod net;
mod node;
mod oracle;
pub mod plan;
mod probes;
mod queue;
pub mod report;
mod scripts;
mod server;
pub mod shrink;
pub mod table;
pub mod token;
mod wire;
mod world;

pub use judge::{Lost, Used, Violation};
pub use token::Token;
pub use world::Outcome;

use plan::Plan;

/// Runs the history of a token.
pub fn run(token: &Token) -> Outcome {
    run_traced(token, false)
}

/// The same; with all events if `traced`.
pub fn run_traced(token: &Token, traced: bool) -> Outcome {
    let plan = Plan::of(token.seed, &token.cut);
    world::World::run(&plan, traced)
}
