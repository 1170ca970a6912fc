//! Scenarios in which nothing is wrong with Redis, and more is asked than can be decided in time.

use std::time::Duration;

use sluicegate_testkit::{Options, RedisServer};
use tokio::time::sleep;

use crate::bound::{Limit, Price};
use crate::fleet::{Build, Fleet, Setup};
use crate::load::{Load, Pace, Tally};
use crate::report::Outcome;
use crate::wire::Wire;

/// How long servers are kept busy.
const SPAN: Duration = Duration::from_secs(10);

/// Requests that are sent together on a connection.
const PIPELINE: usize = 128;

/// Keys of the scenario that looks for the highest rate.
const KEYS: u32 = 10_000;

/// So many servers, each with so many connections of 128 outstanding requests, all for one key, on a
/// quota of 20,000; or for a thousand keys with twenty each.
pub(crate) async fn outstanding(
    build: &Build,
    servers: usize,
    connections: usize,
    keys: u32,
) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let limit = Limit::Day { limit: 20_000 / keys };
    let setup = Setup { build, limit, nodes: servers, on_store_failure: "local" };
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
    let setup = Setup { build, limit, nodes: 1, on_store_failure: "local" };
    let fleet = setup.start(&[redis.url()]).await?;
    let load = fleet.load(Wire::Http, 900, Pace::Closed { outstanding: 1 });
    let tally = run(load, SPAN / 2).await?;
    Ok(Outcome { limit, keys: 1, tally, faults: Vec::new(), beside: 0.0, remark: String::new() })
}

/// The most decisions a second that Redis makes for one server, and how many it makes when four times as
/// many are asked for.
pub(crate) async fn goodput(build: &Build, price: Price) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let limit = Limit::Unreached(price);
    let setup = Setup { build, limit, nodes: 1, on_store_failure: "local" };
    let fleet = setup.start(&[redis.url()]).await?;
    let (mut peak, mut steps) = (0.0_f64, Vec::new());
    for (connections, outstanding) in [(16, 1), (16, 4), (16, 16), (16, 64), (32, 64)] {
        let load = busy(&fleet, connections, Pace::Closed { outstanding });
        let tally = run(load, Duration::from_secs(2)).await?;
        let per_s = by_store(&tally);
        steps.push(format!("{}: {per_s:.0}", connections * outstanding));
        peak = peak.max(per_s);
    }
    const CONNECTIONS: u32 = 64;
    let pace = Pace::Open { per_s: 4.0 * peak / f64::from(CONNECTIONS) };
    let load = busy(&fleet, CONNECTIONS as usize, pace);
    let tally = run(load, SPAN / 2).await?;
    let goodput = by_store(&tally);
    let remark = format!(
        "{goodput:.0}/s by the store, {:.2} of the peak of {peak:.0}/s (by requests outstanding {})",
        goodput / peak,
        steps.join(", ")
    );
    Ok(Outcome { limit, keys: KEYS, tally, faults: Vec::new(), beside: 0.0, remark })
}

fn busy(fleet: &Fleet, connections: usize, pace: Pace) -> Load {
    Load { keys: KEYS, ..fleet.load(Wire::Resp, connections, pace) }
}

async fn run(load: Load, span: Duration) -> anyhow::Result<Tally> {
    let running = load.start()?;
    sleep(span).await;
    running.stop().await
}

/// Decisions a second that the store made.
fn by_store(tally: &Tally) -> f64 {
    let decided: u64 = ["store", "remembered"].iter().flat_map(|mode| tally.of_mode(mode)).sum();
    decided as f64 * 1e6 / (tally.last_replied_us - tally.first_sent_us) as f64
}
