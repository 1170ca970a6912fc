//! Scenarios in which servers lease permits of one hot key. `docs/leases.md` states the promise.

mod lost;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use sluicegate_testkit::{
    Client, Cluster, ClusterOptions, FaultProxy, Faults, Options, RedisServer, Reply,
};
use tokio::time::sleep;

pub(crate) use lost::{evicted, failover, flushed, outage, restarted};

use crate::bound::Limit;
use crate::fleet::{Build, Fleet, Leases, Setup};
use crate::load::Tally;
use crate::report::Outcome;
use crate::wire::{POLICY, Wire};

/// The limit of most scenarios, and the requests per second to each of three servers: together twice the limit.
const LIMIT: Limit = Limit::Bucket { per_s: RATE, burst: BURST };
const RATE: u32 = 2_000;
const BURST: u32 = 2_000;
const PER_S: u32 = 1_333;

/// Duration of the longest scenarios.
const SPAN: Duration = Duration::from_secs(60);

/// No faults for a minute; or the same without leases. One server is used over HTTP.
pub(crate) async fn three_servers(build: &Build, leases: bool) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let setup = Setup { leases: leases.into(), ..three(build) };
    let fleet = setup.start(&[redis.url(), redis.url(), redis.url()]).await?;
    let before = calls(&redis).await?;
    let mut load = fleet.steady(PER_S);
    load.servers[2] = fleet.address(2, Wire::Http);
    let running = load.start()?;
    sleep(build.span(SPAN)).await;
    let tally = running.stop().await?;
    let remark = share_of_calls(calls(&redis).await? - before, &tally);
    outcome(tally, Vec::new(), remark)
}

/// One of three servers is killed every other second, and starts again at once.
pub(crate) async fn killed(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let setup = three(build);
    let mut fleet = setup.start(&[redis.url(), redis.url(), redis.url()]).await?;
    let before = calls(&redis).await?;
    let mut load = fleet.steady(PER_S);
    load.reconnects = true;
    let running = load.start()?;
    for round in 0..build.times(30) {
        sleep(Duration::from_secs(2)).await;
        setup.restart(&mut fleet, round % 3, &redis.url()).await?;
    }
    let tally = running.stop().await?;
    let mut remark = share_of_calls(calls(&redis).await? - before, &tally);
    sleep(Duration::from_secs(3)).await;
    remark.push_str(&format!("; {} of the burst are left 3 s later", left(&fleet).await?));
    outcome(tally, Vec::new(), remark)
}

/// One of three servers is frozen twenty times for ten seconds.
pub(crate) async fn stopped(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let fleet = three(build).start(&[redis.url(), redis.url(), redis.url()]).await?;
    let running = fleet.steady(PER_S).start()?;
    for round in 0..build.times(20) {
        sleep(Duration::from_secs(1)).await;
        fleet.program(round % 3).stop_process()?;
        sleep(Duration::from_secs(10)).await;
        fleet.program(round % 3).continue_process()?;
    }
    sleep(Duration::from_secs(2)).await;
    outcome(running.stop().await?, Vec::new(), String::new())
}

/// Replies of Redis are lost for 50 ms of each second: one of twenty, and with it its connection.
pub(crate) async fn replies_lost(build: &Build, leases: bool) -> anyhow::Result<Outcome> {
    through_bad_network(build, leases, Duration::ZERO).await
}

/// Like [`replies_lost`], and for another half of each second replies come 30 ms late.
pub(crate) async fn bad_network(build: &Build, leases: bool) -> anyhow::Result<Outcome> {
    through_bad_network(build, leases, Duration::from_millis(500)).await
}

/// Replies of Redis are lost for 50 ms of each second, and come 30 ms late for `late` of it.
async fn through_bad_network(
    build: &Build,
    leases: bool,
    late: Duration,
) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let proxy = FaultProxy::start(redis.address()).await?;
    let url = format!("redis://{}", proxy.address());
    let setup = Setup { on_store_failure: "deny", leases: leases.into(), ..three(build) };
    let fleet = setup.start(&[&url, &url, &url]).await?;
    let running = fleet.steady(PER_S).start()?;
    sleep(Duration::from_secs(2)).await;
    let from = running.now_us();
    for _ in 0..build.times(20) {
        proxy.set(Faults::cut_replies()).await?;
        sleep(Duration::from_millis(50)).await;
        if !late.is_zero() {
            proxy.set(Faults::delay(Duration::ZERO, Duration::from_millis(30))).await?;
            sleep(late).await;
        }
        proxy.heal().await?;
        sleep(Duration::from_millis(950) - late).await;
    }
    let faults = vec![(from, running.now_us())];
    sleep(Duration::from_secs(2)).await;
    outcome(running.stop().await?, faults, String::new())
}

/// The clock of Redis is set back by a minute, and by up to a second every other second.
pub(crate) async fn clocks(build: &Build) -> anyhow::Result<Outcome> {
    let back = [-60_000_000, -1_000_000, -1_000_000, -50_000, -1_000_000, -1_000];
    with_clock(build, &back).await
}

/// The clock of Redis jumps a second ahead, three times. Beyond the limit may pass the permits that refill then, and
/// those that are leased, at most half of the burst.
pub(crate) async fn clock_ahead(build: &Build) -> anyhow::Result<Outcome> {
    let ahead = [1_000_000; 3];
    let beside = ahead.len() as f64 * (f64::from(RATE) + f64::from(BURST) / 2.0);
    Ok(with_clock(build, &ahead).await?.with_beside(beside))
}

/// The clock of Redis is moved by the next of `steps_us` every other second.
async fn with_clock(build: &Build, steps_us: &[i64]) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options { clock: true, ..Options::default() }).await?;
    let fleet = three(build).start(&[redis.url(), redis.url(), redis.url()]).await?;
    let running = fleet.steady(PER_S).start()?;
    let mut ahead_us = 0_i64;
    for by_us in steps_us {
        sleep(Duration::from_secs(2)).await;
        ahead_us += by_us;
        redis.set_clock_offset_us(ahead_us)?;
    }
    sleep(Duration::from_secs(4)).await;
    outcome(running.stop().await?, Vec::new(), String::new())
}

/// Limits of a day from 1 to 40, each requested by eight clients of three servers at once.
pub(crate) async fn small(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let (mut all, mut wrong) = (Tally::new(), Vec::new());
    let most = u32::try_from(build.times(40))?;
    for limit in 1..=most {
        // A share would be beyond the limit if Redis gets no time on a busy machine.
        let on_store_failure = "deny";
        let setup = Setup { limit: Limit::Day { limit }, on_store_failure, ..three(build) };
        let fleet = setup.start(&[redis.url(), redis.url(), redis.url()]).await?;
        let running = fleet.steady(200).start()?;
        sleep(Duration::from_millis(600)).await;
        let tally = running.stop().await?;
        let (admitted, limit) = (tally.admitted.len(), limit as usize);
        // Permits that were charged but not answered in time were not given to anyone.
        let may_lose = ["deny", "shed"].iter().any(|mode| tally.of_mode(mode) != [0; 2]);
        if admitted > limit || admitted < limit && !may_lose {
            wrong.push(format!("{admitted} of {limit}"));
        }
        all.add(tally);
        redis.cli(&["FLUSHALL"]).await?;
    }
    ensure!(wrong.is_empty(), "not the limit: {}", wrong.join(", "));
    let limit = Limit::Day { limit: (1..=most).sum() };
    let remark = "each its limit, or less where Redis got no time".to_owned();
    Ok(Outcome { limit, ..outcome(all, Vec::new(), remark)? })
}

/// The slot of the key is moved a hundred times.
pub(crate) async fn cluster(build: &Build) -> anyhow::Result<Outcome> {
    let cluster = Cluster::start(ClusterOptions::default()).await?;
    let nodes: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis+cluster://{}", nodes.join(","));
    let setup = Setup { on_store_failure: "deny", ..three(build) };
    let fleet = setup.start(&[&url, &url, &url]).await?;
    let running = fleet.steady(PER_S).start()?;
    sleep(Duration::from_secs(2)).await;
    let mut key = None;
    for node in cluster.nodes() {
        let keys = node.cli(&["KEYS", "sg:{*"]).await?;
        key = key.or_else(|| keys.list().first().map(Reply::text));
    }
    let slot = cluster.slot_of(&key.context("the key is on a node")?).await?;
    for _ in 0..build.times(100) {
        let from = cluster.node_of(slot).await?;
        cluster.migrate_slot(slot, (from + 1) % Cluster::MASTERS).await?;
        sleep(Duration::from_millis(300)).await;
    }
    outcome(running.stop().await?, Vec::new(), String::new())
}

/// The rules are edited twice a second, at one server after the other, while a quota of a day is used up: the rate of
/// another rule changes, which is never reached.
pub(crate) async fn edited(build: &Build) -> anyhow::Result<Outcome> {
    /// Permits per edit: fewer than are requested in the time that an edit takes.
    const PER_EDIT: u32 = 1_000;
    let redis = RedisServer::start(Options::default()).await?;
    let edits = u32::try_from(build.times(30))?;
    let limit = Limit::Day { limit: PER_EDIT * edits };
    let setup = Setup { limit, ..three(build) };
    let fleet = setup.start(&[redis.url(), redis.url(), redis.url()]).await?;
    let running = fleet.steady(PER_S).start()?;
    for edit in 0..edits {
        let wide = format!(", {{ name: wide, token_bucket: {{ rate: {}/s }} }}", 100_000 + edit);
        for place in 0..3 {
            sleep(Duration::from_millis(150)).await;
            setup.edit(&fleet, place, &wide)?;
        }
    }
    sleep(Duration::from_secs(3)).await;
    let (spent, tally) = (PER_EDIT * edits, running.stop().await?);
    let unused = left(&fleet).await?;
    let remark = format!("{edits} edits; {unused} of {spent} are left");
    Ok(Outcome { limit, ..outcome(tally, Vec::new(), remark)? })
}

/// Two servers lease, one does not.
pub(crate) async fn mixed(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let mut fleet = three(build).start(&[redis.url(), redis.url()]).await?;
    let central = Setup { leases: Leases::Off, ..three(build) };
    central.join(&mut fleet, &redis.url()).await?;
    let running = fleet.steady(PER_S).start()?;
    sleep(build.span(SPAN / 2)).await;
    let tally = running.stop().await?;
    let by_store = tally.of_mode("store")[0];
    let share = by_store as f64 * 3.0 / tally.admitted.len().max(1) as f64;
    outcome(tally, Vec::new(), format!("the one without leases got {share:.2} of its share"))
}

/// Three servers, configured as three.
fn three(build: &Build) -> Setup<'_> {
    Setup { build, limit: LIMIT, nodes: 3, on_store_failure: "local", leases: Leases::Usual }
}

/// Returns the number of script calls in Redis.
pub(crate) async fn calls(redis: &RedisServer) -> anyhow::Result<u64> {
    let stats = redis.cli(&["INFO", "commandstats"]).await?.text();
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    let Some(calls) = calls else { return Ok(0) };
    calls.split(',').next().and_then(|calls| calls.parse().ok()).context("a number of calls")
}

fn share_of_calls(calls: u64, tally: &Tally) -> String {
    let decided: u64 = tally.modes.iter().map(|mode| mode.admitted + mode.refused).sum();
    format!("calls {:.2} % of decisions", 100.0 * calls as f64 / decided.max(1) as f64)
}

/// Returns the permits of the key that are left, according to the first server.
async fn left(fleet: &Fleet) -> anyhow::Result<i64> {
    let mut client = Client::connect(fleet.address(0, Wire::Resp).1).await?;
    let reply = client.call(&["SG.PEEK", POLICY, "k0"]).await?;
    Ok(reply.list()[2].int())
}

fn outcome(tally: Tally, faults: Vec<(u64, u64)>, remark: String) -> anyhow::Result<Outcome> {
    ensure!(!tally.latencies_us.is_empty(), "nothing was answered");
    Ok(Outcome { limit: LIMIT, keys: 1, tally, faults, beside: 0.0, remark })
}
