//! Scenarios in which Redis loses writes, or does not answer: a replaced master, deleted keys, full memory, a freeze.

use std::time::Duration;

use sluicegate_testkit::{Options, RedisServer, SentinelOptions, Sentinels, until};
use tokio::time::sleep;

use super::{BURST, PER_S, outcome, three};
use crate::fleet::{Build, Setup};
use crate::report::Outcome;

/// Permits that may pass beyond the limit when Redis forgets a key: a twentieth of its burst if the key is leased, else
/// all of it, each of `times` times.
fn forgotten(leases: bool, times: usize) -> f64 {
    let burst = f64::from(BURST) * times as f64;
    if leases { burst / 20.0 } else { burst }
}

/// The master is killed and replaced twenty times; its last writes are lost.
pub(crate) async fn failover(build: &Build, leases: bool) -> anyhow::Result<Outcome> {
    /// Longest time until Sentinels make a replica of the old master.
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

/// Memory is full: keys with a longer expiry evict the leased key, every five seconds.
pub(crate) async fn evicted(build: &Build) -> anyhow::Result<Outcome> {
    /// Memory for Redis itself, the clients and the script, with a reserve, in bytes.
    const MAXMEMORY: u64 = 8 << 20;
    /// Fills twice that in one command: values of mostly zeros, which expire after a day.
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

/// `forget` makes Redis forget its keys every five seconds.
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

/// Redis is frozen for a second, ten times; or the same without leases.
///
/// There are as many connections as a pool has, so that hardly any request waits behind another one of its connection
/// that waits for the store.
pub(crate) async fn outage(build: &Build, leases: bool) -> anyhow::Result<Outcome> {
    /// Number of connections; each has ten requests a second.
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
