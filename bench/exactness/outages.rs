//! Scenarios in which servers lose Redis, or Redis loses its data.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sluicegate_testkit::{
    Client, FaultProxy, Faults, Options, RedisServer, SentinelOptions, Sentinels, until,
};
use tokio::time::sleep;

use crate::bound::{Admitted, Limit};
use crate::fleet::{Build, Leases, Setup};
use crate::load::Tally;
use crate::report::{Outcome, RECOVERY_US};
use crate::wire::{POLICY, Wire};

/// The limit of most scenarios, and the requests per second to each of two servers: together four times the limit.
const LIMIT: Limit = Limit::Bucket { per_s: 100, burst: 100 };
const PER_S: u32 = 200;

/// Permits that one of two servers may grant at once from its share, before they are charged: half the burst.
const SHARE: f64 = 50.0;

/// Permits that a Redis without its data grants again.
const BURST: f64 = 100.0;

const QUOTA: Limit = Limit::Day { limit: 1_000 };

/// Longest time until Sentinels make a replica of the old master: ten seconds are usual, but on a busy machine they
/// sometimes lose track of time and begin again.
const REJOIN_MAX: Duration = Duration::from_secs(60);

/// Redis is frozen ten times for two seconds, under steady load on one server.
pub(crate) async fn frozen_often(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let setup =
        Setup { build, limit: QUOTA, nodes: 1, on_store_failure: "local", leases: Leases::Usual };
    let fleet = setup.start(&[redis.url()]).await?;
    let running = fleet.steady(600).start()?;
    let mut faults = Vec::new();
    sleep(Duration::from_secs(1)).await;
    for _ in 0..10 {
        let from = running.now_us();
        freeze(&redis, Duration::from_secs(2)).await?;
        faults.push((from, running.now_us()));
        sleep(Duration::from_secs(1)).await;
    }
    outcome(QUOTA, running.stop().await?, faults)
}

/// Ten times: Redis is frozen, 1,500 requests follow one after the other, Redis continues, and a peek at the key that
/// it answers.
pub(crate) async fn frozen_in_step(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let setup =
        Setup { build, limit: QUOTA, nodes: 1, on_store_failure: "local", leases: Leases::Usual };
    let fleet = setup.start(&[redis.url()]).await?;
    let mut client = Client::connect(fleet.address(0, Wire::Resp).1).await?;
    let begin = Instant::now();
    let now_us = || u64::try_from(begin.elapsed().as_micros()).expect("a run is short");
    let (mut tally, mut faults, mut each) = (Tally::default(), Vec::new(), Vec::new());
    for _ in 0..10 {
        let (from, before) = (now_us(), tally.admitted.len());
        redis.stop_process()?;
        for _ in 0..1_500 {
            let sent_us = now_us();
            let reply = client.call(&["SG.CHECK", POLICY, "k0"]).await?;
            let event = Admitted { sent_us, replied_us: now_us(), key: 0, by_share: false };
            tally.sent += 1;
            let took_us = u32::try_from(event.replied_us - sent_us)?;
            tally.latencies_us.push(took_us);
            tally.decided(event, reply.list()[0].int() == 1, &reply.list()[7].text());
        }
        redis.continue_process()?;
        until("the store answered a peek", Duration::from_secs(5), async || {
            let reply = client.call(&["SG.PEEK", POLICY, "k0"]).await.ok()?;
            matches!(&*reply.list()[7].text(), "store" | "remembered").then_some(())
        })
        .await?;
        faults.push((from, now_us()));
        each.push((tally.admitted.len() - before).to_string());
    }
    tally.last_replied_us = now_us();
    let remark = format!("each time: {}", each.join(", "));
    Ok(Outcome { remark, ..outcome(QUOTA, tally, faults)? })
}

/// Redis is frozen eight times for 1.2 s, and runs for 1.4 s in between.
pub(crate) async fn flapping(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let fleet = two(build, "local").start(&[redis.url(), redis.url()]).await?;
    let running = fleet.steady(PER_S).start()?;
    let mut faults = Vec::new();
    sleep(Duration::from_secs(1)).await;
    for _ in 0..8 {
        let from = running.now_us();
        freeze(&redis, Duration::from_millis(1_200)).await?;
        faults.push((from, running.now_us()));
        sleep(Duration::from_millis(1_400)).await;
    }
    outcome(LIMIT, running.stop().await?, faults).map(|outcome| outcome.with_beside(SHARE))
}

/// Redis is killed and starts again after eight seconds, with its data or without.
pub(crate) async fn killed(
    build: &Build,
    remembers: bool,
    on_store_failure: &str,
) -> anyhow::Result<Outcome> {
    let killed = killed_under(&two(build, on_store_failure), remembers, PER_S).await?;
    let share = if on_store_failure == "local" { SHARE } else { 0.0 };
    Ok(killed.with_beside(if remembers { share } else { share + BURST }))
}

/// Like [`killed`], on a quota of which a quarter is left when Redis is killed, and which Redis forgets.
pub(crate) async fn killed_quota(build: &Build) -> anyhow::Result<Outcome> {
    let killed = killed_under(&Setup { limit: QUOTA, ..two(build, "local") }, false, 125).await?;
    Ok(killed.with_beside(QUOTA.allows(0)))
}

async fn killed_under(setup: &Setup<'_>, remembers: bool, per_s: u32) -> anyhow::Result<Outcome> {
    let lasting = ["appendonly yes", "appendfsync always"].map(str::to_owned);
    let config = if remembers { lasting.to_vec() } else { Vec::new() };
    let mut redis = RedisServer::start(Options { config, ..Options::default() }).await?;
    let fleet = setup.start(&[redis.url(), redis.url()]).await?;
    let running = fleet.steady(per_s).start()?;
    sleep(Duration::from_secs(3)).await;
    let from = running.now_us();
    redis.kill();
    sleep(Duration::from_secs(8)).await;
    redis.restart().await?;
    let faults = vec![(from, running.now_us())];
    sleep(Duration::from_secs(5)).await;
    outcome(setup.limit, running.stop().await?, faults)
}

/// The master is killed, or frozen, three times; the Sentinels choose another one each time, and the old one returns as
/// a replica before the next.
pub(crate) async fn failover(build: &Build, kill: bool) -> anyhow::Result<Outcome> {
    let mut group = Sentinels::start(SentinelOptions::default()).await?;
    let addresses: Vec<_> = group.addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis+sentinel://{}/{}", addresses.join(","), Sentinels::NAME);
    let fleet = two(build, "local").start(&[&url, &url]).await?;
    let running = fleet.steady(PER_S).start()?;
    let (mut faults, mut took) = (Vec::new(), Vec::new());
    sleep(Duration::from_secs(2)).await;
    for _ in 0..3 {
        let from = running.now_us();
        let old = if kill { group.kill_master().await? } else { group.master().await? };
        if !kill {
            group.nodes()[old].stop_process()?;
        }
        group.master_other_than(old).await?;
        faults.push((from, running.now_us()));
        took.push(format!("{:.1} s", (running.now_us() - from) as f64 / 1e6));
        sleep(Duration::from_secs(2)).await;
        match kill {
            true => group.nodes_mut()[old].restart().await?,
            false => group.nodes()[old].continue_process()?,
        }
        let replica = until("the old master was a replica", REJOIN_MAX, async || {
            let status = group.nodes()[old].info("master_link_status").await.ok()?;
            (status == "up").then_some(())
        });
        if replica.await.is_err() {
            took.push("and the old master did not come back".to_owned());
            break;
        }
    }
    sleep(Duration::from_secs(2)).await;
    let remark = format!("failovers took {}", took.join(", "));
    // A killed master may have acknowledged writes that its replica never received.
    let beside = if kill { SHARE + 3.0 * BURST } else { SHARE };
    Ok(Outcome { remark, beside, ..outcome(LIMIT, running.stop().await?, faults)? })
}

/// One of two servers loses Redis for five seconds; the other one does not.
pub(crate) async fn partition(build: &Build) -> anyhow::Result<Outcome> {
    const CUT: Duration = Duration::from_secs(5);
    let redis = RedisServer::start(Options::default()).await?;
    let proxy = FaultProxy::start(redis.address()).await?;
    let through = format!("redis://{}", proxy.address());
    let fleet = two(build, "local").start(&[redis.url(), through]).await?;
    let running = fleet.steady(PER_S).start()?;
    sleep(Duration::from_secs(4)).await;
    let from = running.now_us();
    proxy.set(Faults::black_hole()).await?;
    sleep(CUT).await;
    proxy.heal().await?;
    let healed = running.now_us();
    sleep(Duration::from_secs(5)).await;
    let (faults, share) = (vec![(from, healed)], LIMIT.allows(healed + RECOVERY_US - from) / 2.0);
    outcome(LIMIT, running.stop().await?, faults).map(|outcome| outcome.with_beside(share))
}

/// For ten seconds replies of Redis are lost for 300 ms of every second, or come 30 ms late in every
/// other half second.
pub(crate) async fn bad_replies(build: &Build, lost: bool) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let proxy = FaultProxy::start(redis.address()).await?;
    let url = format!("redis://{}", proxy.address());
    let fleet = two(build, "local").start(&[&url, &url]).await?;
    let running = fleet.steady(PER_S).start()?;
    sleep(Duration::from_secs(3)).await;
    let from = running.now_us();
    let late = Faults::delay(Duration::ZERO, Duration::from_millis(30));
    for _ in 0..10 {
        let (fault, span) = if lost { (Faults::cut_replies(), 300) } else { (late, 500) };
        proxy.set(fault).await?;
        sleep(Duration::from_millis(span)).await;
        proxy.heal().await?;
        sleep(Duration::from_millis(1_000 - span)).await;
    }
    let faults = vec![(from, running.now_us())];
    sleep(Duration::from_secs(4)).await;
    outcome(LIMIT, running.stop().await?, faults).map(|outcome| outcome.with_beside(SHARE))
}

/// Everything in Redis is deleted six times, every other second.
pub(crate) async fn flushed(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let fleet = two(build, "local").start(&[redis.url(), redis.url()]).await?;
    let running = fleet.steady(PER_S).start()?;
    for _ in 0..6 {
        sleep(Duration::from_secs(2)).await;
        redis.cli(&["FLUSHALL"]).await?;
    }
    sleep(Duration::from_secs(2)).await;
    let flushed = outcome(LIMIT, running.stop().await?, Vec::new())?;
    Ok(flushed.with_beside(6.0 * BURST))
}

/// No faults for ten seconds.
pub(crate) async fn healthy(build: &Build) -> anyhow::Result<Outcome> {
    let redis = RedisServer::start(Options::default()).await?;
    let limit = Limit::Bucket { per_s: 1_000, burst: 100 };
    let fleet = Setup { limit, ..two(build, "local") }.start(&[redis.url(), redis.url()]).await?;
    let running = fleet.steady(2_000).start()?;
    sleep(Duration::from_secs(10)).await;
    outcome(limit, running.stop().await?, Vec::new())
}

/// Two servers, configured as two.
fn two<'a>(build: &'a Build, on_store_failure: &'a str) -> Setup<'a> {
    Setup { build, limit: LIMIT, nodes: 2, on_store_failure, leases: Leases::Usual }
}

async fn freeze(redis: &RedisServer, span: Duration) -> anyhow::Result<()> {
    redis.stop_process()?;
    sleep(span).await;
    Ok(redis.continue_process()?)
}

fn outcome(limit: Limit, tally: Tally, faults: Vec<(u64, u64)>) -> anyhow::Result<Outcome> {
    ensure!(!tally.latencies_us.is_empty(), "nothing was answered");
    Ok(Outcome { limit, keys: 1, tally, faults, beside: 0.0, remark: String::new() })
}
