//! Measures a server's CPU time per decision over HTTP, read from the kernel's accounts, beside a server of axum that
//! reads the same JSON and answers with a constant one. `bench/README.md` says how to run it.

mod ceiling;
mod load;

use load::Load;
use sluicegate_bench::served::{Served, print_beside_the_first};

/// The allocator of the server, so that the ceiling has the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A limit that is not reached.
const POLICIES: &str = "
policies:
  - { name: bench, rules: [ { token_bucket: { rate: 1000000/s, burst: 1000000 } } ] }
";

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(ceiling::CHILD) {
        return ceiling::serve();
    }
    let load = Load::new()?;
    let cases = [
        ("a fixed JSON, axum", Served::this(ceiling::CHILD, "http")?),
        ("a check", sluicegate("ratelimit")?),
        ("the same, without header fields", sluicegate("off")?),
        ("the same, with `x-ratelimit` too", sluicegate("ratelimit,x-ratelimit")?),
    ];
    print_beside_the_first(&cases, |port| load.run(port))
}

/// Sluicegate that sends these header fields to clients.
fn sluicegate(headers: &str) -> anyhow::Result<Served> {
    Served::sluicegate("http", ("--policies", POLICIES), |command| {
        command.env("SLUICEGATE__HTTP__HEADERS", headers);
    })
}
