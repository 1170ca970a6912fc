//! Scenarios without faults of Redis, but with more requests than can be decided in time.

use std::time::Duration;

use sluicegate_testkit::{Options, RedisServer};
use tokio::time::sleep;

use crate::bound::{Limit, Price};
use crate::fleet::{Build, Leases, Setup};
use crate::load::{Load, Pace, Tally};
use crate::report::Outcome;
use crate::wire::Wire;

/// Time under full load.
const SPAN: Duration = Duration::from_secs(10);

/// Number of seconds at the highest rate, and of those above it.
const ROUNDS: usize = 15;

/// Requests that are sent together on a connection.
const PIPELINE: usize = 128;

/// `servers` servers, each with `connections` connections of 128 outstanding requests, all for one key, on a quota of
/// 20,000; or for a thousand keys with twenty each.
pub(crate) async fn outstanding(
    build: &Build,
    servers: usize,
    connections: usize,
    keys: u32,
) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let limit = Limit::Day { limit: 20_000 / keys };
    let setup =
        Setup { build, limit, nodes: servers, on_store_failure: "local", leases: Leases::Usual };
    let fleet = setup.start(&vec![redis.url(); servers]).await?;
    let pace = Pace::Closed { outstanding: PIPELINE };
    let load = Load { keys, ..fleet.load(Wire::Resp, connections, pace) };
    let tally = run(load, SPAN).await?;
    Ok(Outcome { limit, keys, tally, faults: Vec::new(), beside: 0.0, remark: String::new() })
}

/// 900 connections of HTTP, with a request on each at a time, on a quota of 1,000.
pub(crate) async fn http(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let limit = Limit::Day { limit: 1_000 };
    let setup = Setup { build, limit, nodes: 1, on_store_failure: "local", leases: Leases::Usual };
    let fleet = setup.start(&[redis.url()]).await?;
    let load = fleet.load(Wire::Http, 900, Pace::Closed { outstanding: 1 });
    let tally = run(load, SPAN / 2).await?;
    Ok(Outcome { limit, keys: 1, tally, faults: Vec::new(), beside: 0.0, remark: String::new() })
}

/// The most decisions a second that Redis makes for one server, and its decisions when four times as many are
/// requested. Both in turn, a second each: machines that share their processors are a quarter faster in one second than
/// in the next.
pub(crate) async fn goodput(build: &Build, price: Price) -> anyhow::Result<Outcome> {
    const CONNECTIONS: u32 = 64;
    let redis = RedisServer::start(Options::default()).await?;
    let limit = Limit::Unreached(price);
    let setup = Setup { build, limit, nodes: 1, on_store_failure: "local", leases: Leases::Usual };
    let fleet = setup.start(&[redis.url()]).await?;
    let keys = price.keys();
    let busy = |connections, pace| Load { keys, ..fleet.load(Wire::Resp, connections, pace) };
    let pace = Pace::Closed { outstanding: price.outstanding() };
    run(busy(16, pace), price.warm_up()).await?;
    let most = || run(busy(16, pace), SPAN / 10);
    let (mut alone, mut overloaded) = (most().await?, Tally::new());
    let overload = Pace::Open { per_s: 4.0 * by_store(&alone) / f64::from(CONNECTIONS) };
    for _ in 0..ROUNDS {
        overloaded.add(run(busy(CONNECTIONS as usize, overload), SPAN / 10).await?);
        alone.add(most().await?);
    }
    let (goodput, peak) = (by_store(&overloaded), by_store(&alone));
    let share = goodput / peak;
    let remark = format!("{goodput:.0}/s by the store, {share:.2} of the peak of {peak:.0}/s");
    let tally = overloaded;
    Ok(Outcome { limit, keys, tally, faults: Vec::new(), beside: 0.0, remark })
}

async fn run(load: Load, span: Duration) -> anyhow::Result<Tally> {
    let running = load.start()?;
    sleep(span).await;
    running.stop().await
}

/// Decisions per second that came from the store.
fn by_store(tally: &Tally) -> f64 {
    let decided: u64 =
        ["store", "leased", "remembered"].iter().flat_map(|mode| tally.of_mode(mode)).sum();
    decided as f64 * 1e6 / (tally.last_replied_us - tally.first_sent_us) as f64
}
