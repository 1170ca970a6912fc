//! Measures a server's CPU time per decision of the rls wire, read from the kernel's accounts, beside a server that
//! answers every request with the same message. `bench/README.md` says how to run it.

mod ceiling;
mod load;
mod redis;

use load::Load;
use redis::Redis;
use sluicegate_bench::served::{Served, print_beside_the_first};

/// The allocator of the server, so that the ceiling has the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A limit that is not reached.
const CONFIG: &str = "
domain: bench
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 4294967295 } }
";

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(ceiling::CHILD) {
        return ceiling::serve();
    }
    let load = Load::new()?;
    let (redis, memory) = (Redis::start()?, "memory");
    let both = "ratelimit,x-ratelimit";
    let cases = [
        ("a fixed reply, tonic", Served::this(ceiling::CHILD, "rls")?),
        ("one descriptor of a tree", sluicegate("off", memory)?),
        ("the same, with `ratelimit` headers", sluicegate("ratelimit", memory)?),
        ("the same, with `x-ratelimit` too", sluicegate(both, memory)?),
        ("one descriptor of a tree, on Redis", sluicegate("off", &redis.url())?),
    ];
    print_beside_the_first(&cases, |port| load.run(port))
}

/// Sluicegate that sends these header fields to clients, with its counters in that store.
fn sluicegate(headers: &str, store: &str) -> anyhow::Result<Served> {
    Served::sluicegate("rls", ("--envoy-config", CONFIG), |command| {
        command.args(["--store", store]).env("SLUICEGATE__RLS__HEADERS", headers);
    })
}
