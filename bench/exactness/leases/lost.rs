//! Redis loses what it wrote, or does not answer: the master is replaced, everything is deleted, memory is short.

use std::time::Duration;

use sluicegate_testkit::{Options, RedisServer, SentinelOptions, Sentinels, until};
use tokio::time::sleep;

use super::{BURST, PER_S, outcome, three};
use crate::fleet::{Build, Setup};
use crate::report::Outcome;

/// What may pass beside the limit when Redis forgets a key: a twentieth of its burst where it is leased, and all of
/// it otherwise.
fn forgotten(leases: bool, times: usize) -> f64 {
    let burst = f64::from(BURST) * times as f64;
    if leases { burst / 20.0 } else { burst }
}

/// The master is killed and replaced twenty times; what it wrote last is lost.
pub(crate) async fn failover(build: &Build, leases: bool) -> anyhow::Result<Outcome> {
    /// How long sentinels may take to make a replica of the old master.
    const REJOIN_MAX: Duration = Duration::from_secs(60);
    let mut group = Sentinels::start(SentinelOptions::default()).await?;
    let addresses: Vec<_> = group.addresses().iter().map(ToString::to_string).collect();
    let url = format!("redis+sentinel://{}/{}", addresses.join(","), Sentinels::NAME);
    let setup = Setup { leases: leases.into(), on_store_failure: "deny", ..three(build) };
    let fleet = setup.start(&[&url, &url, &url]).await?;
    let running = fleet.steady(PER_S).start()?;
    let (mut faults, mut took) = (Vec::new(), Vec::new());
    sleep(Duration::from_secs(3)).await;
    let times = build.times(20);
    for _ in 0..times {
        let from = running.now_us();
        let old = group.kill_master().await?;
        group.master_other_than(old).await?;
        faults.push((from, running.now_us()));
        took.push(format!("{:.1} s", (running.now_us() - from) as f64 / 1e6));
        sleep(Duration::from_secs(3)).await;
        group.nodes_mut()[old].restart().await?;
        until("the old master was a replica", REJOIN_MAX, async || {
            let status = group.nodes()[old].info("master_link_status").await.ok()?;
            (status == "up").then_some(())
        })
        .await?;
    }
    let remark = format!("failovers took {}", took.join(", "));
    Ok(outcome(running.stop().await?, faults, remark)?.with_beside(forgotten(leases, times)))
}

/// Everything in Redis is deleted each five seconds.
pub(crate) async fn flushed(build: &Build, leases: bool) -> anyhow::Result<Outcome> {
    forgets(build, leases, Options::default(), async |redis| {
        Ok(redis.cli(&["FLUSHALL"]).await.map(drop)?)
    })
    .await
}

/// Redis is killed and started again without its data each five seconds.
pub(crate) async fn restarted(build: &Build) -> anyhow::Result<Outcome> {
    forgets(build, true, Options::default(), async |redis| Ok(redis.restart().await?)).await
}

/// Memory is short: keys that stay longer push out the one that is leased, each five seconds.
pub(crate) async fn evicted(build: &Build) -> anyhow::Result<Outcome> {
    /// What Redis needs for itself, the clients and the script, and some.
    const MAXMEMORY: u64 = 8 << 20;
    /// Fills twice that in one command: so much of its value is zeros, for a day.
    const FILL: &str = "for n = 1, 160 do redis.call('SETRANGE', 'other:' .. n, 102400, 'x') \
                        redis.call('EXPIRE', 'other:' .. n, 86400) end";
    let options = Options {
        maxmemory: Some(MAXMEMORY),
        config: vec!["maxmemory-policy volatile-ttl".to_owned()],
        ..Options::default()
    };
    let evicted = forgets(build, true, options, async |redis| {
        redis.cli(&["EVAL", FILL, "0"]).await?;
        Ok(())
    });
    evicted.await
}

/// Redis is made to forget its keys each five seconds by `forget`.
async fn forgets(
    build: &Build,
    leases: bool,
    options: Options,
    mut forget: impl AsyncFnMut(&mut RedisServer) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let mut redis = RedisServer::start(options).await?;
    let setup = Setup { leases: leases.into(), ..three(build) };
    let fleet = setup.start(&[redis.url(), redis.url(), redis.url()]).await?;
    let running = fleet.steady(PER_S).start()?;
    let times = build.times(10);
    for _ in 0..times {
        sleep(Duration::from_secs(5)).await;
        forget(&mut redis).await?;
    }
    sleep(Duration::from_secs(3)).await;
    let remark = format!("{} keys were evicted", redis.info("evicted_keys").await?);
    let forgot = outcome(running.stop().await?, Vec::new(), remark)?;
    Ok(forgot.with_beside(forgotten(leases, times)))
}

/// Redis stands still for a second, ten times; or the same without leases.
///
/// Connections are as many as a pool has, so that hardly any request is sent behind another one of its connection
/// that waits for the store: it would be answered after that.
pub(crate) async fn outage(build: &Build, leases: bool) -> anyhow::Result<Outcome> {
    /// Each asks ten times a second.
    const CONNECTIONS: u16 = 32;
    let redis = RedisServer::start(Options::default()).await?;
    let setup = Setup { leases: leases.into(), ..three(build) };
    let fleet = setup.start(&[redis.url(), redis.url(), redis.url()]).await?;
    let running = fleet.steady_over(PER_S / 4, CONNECTIONS).start()?;
    let mut faults = Vec::new();
    for _ in 0..build.times(10) {
        sleep(Duration::from_secs(2)).await;
        let from = running.now_us();
        redis.stop_process()?;
        sleep(Duration::from_secs(1)).await;
        redis.continue_process()?;
        faults.push((from, running.now_us()));
    }
    sleep(Duration::from_secs(2)).await;
    let beside = f64::from(BURST) / 3.0 * 2.0;
    Ok(outcome(running.stop().await?, faults, String::new())?.with_beside(beside))
}
