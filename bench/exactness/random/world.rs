//! The processes of a round, and their faults.

use std::time::Duration;

use sluicegate_testkit::{FaultProxy, Faults, Options, RedisServer, SentinelOptions, Sentinels};
use tokio::time::{sleep, timeout};

use crate::bound::Limit;
use crate::fleet::{Build, Fleet, Setup};
use crate::load::Running;

use super::judge::Facts;
use super::plan::{Fault, Kind, Plan, SERVERS, StoreKind};
use super::sentinel::{SentinelView, Shown};

/// Time after which leases of an earlier limit have ended: two seconds, and an allowance for clocks (`docs/leases.md`).
const LEASES_END_US: u64 = 2_400_000;

/// Interval between checks of the servers' logs, which say when a lowered limit is in force.
const LOOK_EVERY_US: u64 = 50_000;

/// Longest wait for a `FLUSHALL`: Redis may be frozen or gone.
const FLUSH_MAX: Duration = Duration::from_millis(500);

/// Silence of a master after which Sentinels replace it. On a busy machine, processes stand still for up to a second
/// without a fault, and a master that is replaced while it runs splits the group.
const DOWN_AFTER: Duration = Duration::from_secs(2);

/// Beginning of a log line that names the policies in force.
const LOADED: &str = "policies: version ";

/// Servers, their proxies and their Redis. They stop when this is dropped.
pub(crate) struct World<'a> {
    setup: Setup<'a>,
    plan: &'a Plan,
    pub(crate) fleet: Fleet,
    urls: Vec<String>,
    /// Proxies of each server, one for each node of Redis.
    proxies: Vec<Vec<FaultProxy>>,
    _views: Vec<SentinelView>,
    store: Store,
    /// The node of Redis that is frozen or killed.
    down: Option<usize>,
    /// Number of masters that the Sentinels had replaced at the start.
    epoch: u64,
    /// Killed masters that were replaced.
    dead_replaced: u32,
    lowering: Option<Lowering>,
    lowered: Vec<(u64, u64, Limit)>,
}

/// The Redis that the servers share.
enum Store {
    Plain(Box<RedisServer>),
    Group(Sentinels),
}

/// An edit that lowers the limit, until it is raised.
struct Lowering {
    /// Lines about policies in the log of each server before; `None` once the server has read the new file.
    lines: Vec<Option<usize>>,
    /// Time at which all servers had read it; `None` before.
    since_us: Option<u64>,
}

impl<'a> World<'a> {
    /// Starts all processes, without faults.
    ///
    /// # Errors
    /// If a process does not start.
    pub(crate) async fn start(build: &'a Build, plan: &'a Plan) -> anyhow::Result<Self> {
        let store = Store::start(plan.store).await?;
        let (mut urls, mut proxies, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..SERVERS {
            let mut own = Vec::new();
            for node in store.nodes() {
                own.push(FaultProxy::start(node.address()).await?);
            }
            let (url, seen) = store.url(&own).await?;
            urls.push(url);
            proxies.push(own);
            views.extend(seen);
        }
        let Plan { limit, leases, on_store_failure, .. } = *plan;
        let setup = Setup { build, limit, nodes: SERVERS, on_store_failure, leases };
        let fleet = setup.start(&urls).await?;
        let epoch = store.epoch().await?;
        let (down, dead_replaced, lowering, lowered) = (None, 0, None, Vec::new());
        let _views = views;
        Ok(Self {
            setup,
            plan,
            fleet,
            urls,
            proxies,
            _views,
            store,
            down,
            epoch,
            dead_replaced,
            lowering,
            lowered,
        })
    }

    /// Waits until `us` on the clock of the clients.
    pub(crate) async fn wait_until(&mut self, us: u64, clients: &Running) {
        loop {
            self.look(clients.now_us());
            let left = us.saturating_sub(clients.now_us());
            if left == 0 {
                return;
            }
            sleep(Duration::from_micros(left.min(LOOK_EVERY_US))).await;
        }
    }

    /// Begins a fault.
    ///
    /// # Errors
    /// If a process is gone that was not killed by a fault.
    pub(crate) async fn begin(&mut self, fault: &Fault, clients: &Running) -> anyhow::Result<()> {
        match fault.kind {
            Kind::Network { server, faults, name: _ } => self.network(server, faults).await?,
            Kind::Closed { server } => {
                self.network(server, Faults::refuse()).await?;
                for proxy in &self.proxies[server] {
                    proxy.reset_connections().await?;
                }
            }
            Kind::ServerFrozen { server } => self.fleet.program(server).stop_process()?,
            Kind::ServerKilled { server } => self.fleet.kill(server),
            Kind::RedisFrozen => {
                let node = self.store.master().await?;
                self.store.nodes()[node].stop_process()?;
                self.down = Some(node);
            }
            Kind::RedisKilled => {
                let node = self.store.master().await?;
                self.store.nodes_mut()[node].kill();
                self.down = Some(node);
            }
            Kind::Flushed => {
                let node = self.store.master().await?;
                // It counts as a loss, even if no answer comes.
                timeout(FLUSH_MAX, self.store.nodes()[node].cli(&["FLUSHALL"])).await.ok();
            }
            Kind::Lowered { apart_ms } => {
                self.setup.limit = self.plan.lowered;
                let lines = (0..SERVERS).map(|place| Some(loaded(&self.fleet, place))).collect();
                self.edit(apart_ms).await?;
                self.lowering = Some(Lowering { lines, since_us: None });
            }
        }
        self.look(clients.now_us());
        Ok(())
    }

    /// Ends a fault.
    ///
    /// # Errors
    /// If a killed process does not start again.
    pub(crate) async fn end(&mut self, fault: &Fault, clients: &Running) -> anyhow::Result<()> {
        match fault.kind {
            Kind::Network { server, .. } | Kind::Closed { server } => {
                self.network(server, Faults::default()).await?;
            }
            Kind::ServerFrozen { server } => self.fleet.program(server).continue_process()?,
            Kind::ServerKilled { server } => {
                let url = &self.urls[server];
                self.setup.start_again(&mut self.fleet, server, url).await?;
                if let Some(lowering) = &mut self.lowering {
                    lowering.lines[server] = None;
                }
            }
            Kind::RedisFrozen => {
                if let Some(node) = self.down.take() {
                    self.store.nodes()[node].continue_process()?;
                }
            }
            Kind::RedisKilled => self.start_redis().await?,
            Kind::Flushed => {}
            Kind::Lowered { apart_ms } => {
                let lowering = self.lowering.take();
                let from = lowering.and_then(|it| it.since_us).map(|since| since + LEASES_END_US);
                let to = clients.now_us();
                if let Some(from) = from.filter(|from| *from < to) {
                    self.lowered.push((from, to, self.plan.lowered));
                }
                self.setup.limit = self.plan.limit;
                self.edit(apart_ms).await?;
            }
        }
        Ok(())
    }

    /// Collects the facts on which the promise depends.
    ///
    /// # Errors
    /// If a Sentinel does not answer.
    pub(crate) async fn facts(self) -> anyhow::Result<Facts> {
        let redis_kills = self.plan.count(|kind| matches!(kind, Kind::RedisKilled));
        let replaced = u32::try_from(self.store.epoch().await? - self.epoch)?;
        let (lost, splits) = match self.plan.store {
            StoreKind::Forgets => (redis_kills, 0),
            StoreKind::Lasts => (0, 0),
            StoreKind::Group => (replaced, replaced.saturating_sub(self.dead_replaced)),
        };
        Ok(Facts {
            limit: self.plan.limit,
            lowered: self.lowered,
            losses: lost + self.plan.count(|kind| matches!(kind, Kind::Flushed)),
            splits,
            kills: self.plan.count(|kind| matches!(kind, Kind::ServerKilled { .. })),
        })
    }

    async fn network(&self, server: usize, faults: Faults) -> anyhow::Result<()> {
        for proxy in &self.proxies[server] {
            proxy.set(faults).await?;
        }
        Ok(())
    }

    /// Starts the Redis that was killed. One of a group stays down if it is still the master: it would start empty, and
    /// its replicas would follow.
    async fn start_redis(&mut self) -> anyhow::Result<()> {
        let Some(node) = self.down.take() else { return Ok(()) };
        if matches!(self.store, Store::Group(_)) {
            if self.store.master().await? == node {
                return Ok(());
            }
            self.dead_replaced += 1;
        }
        Ok(self.store.nodes_mut()[node].restart().await?)
    }

    /// Writes the policies of each server, `apart_ms` after those of the previous one.
    async fn edit(&self, apart_ms: u64) -> anyhow::Result<()> {
        for place in 0..SERVERS {
            self.setup.edit(&self.fleet, place, "")?;
            sleep(Duration::from_millis(apart_ms)).await;
        }
        Ok(())
    }

    /// Records when all servers have read the lowered limit.
    fn look(&mut self, now_us: u64) {
        let Some(lowering) = &mut self.lowering else { return };
        let lines = (0..SERVERS).map(|place| loaded(&self.fleet, place));
        for (before, now) in lowering.lines.iter_mut().zip(lines) {
            *before = before.filter(|before| now <= *before);
        }
        if lowering.lines.iter().all(Option::is_none) {
            lowering.since_us.get_or_insert(now_us);
        }
    }
}

/// The number of lines about policies in a server's log.
fn loaded(fleet: &Fleet, place: usize) -> usize {
    let log = std::fs::read_to_string(fleet.program(place).log()).unwrap_or_default();
    log.matches(LOADED).count()
}

impl Store {
    async fn start(kind: StoreKind) -> anyhow::Result<Self> {
        let lasting = ["appendonly yes", "appendfsync always"].map(str::to_owned).to_vec();
        Ok(match kind {
            StoreKind::Forgets => {
                Self::Plain(Box::new(RedisServer::start(Options::default()).await?))
            }
            StoreKind::Lasts => {
                let options = Options { config: lasting, ..Options::default() };
                Self::Plain(Box::new(RedisServer::start(options).await?))
            }
            StoreKind::Group => {
                let options = SentinelOptions { down_after: DOWN_AFTER, ..Default::default() };
                Self::Group(Sentinels::start(options).await?)
            }
        })
    }

    fn nodes(&self) -> &[RedisServer] {
        match self {
            Self::Plain(redis) => std::slice::from_ref(redis),
            Self::Group(group) => group.nodes(),
        }
    }

    fn nodes_mut(&mut self) -> &mut [RedisServer] {
        match self {
            Self::Plain(redis) => std::slice::from_mut(redis),
            Self::Group(group) => group.nodes_mut(),
        }
    }

    async fn master(&self) -> anyhow::Result<usize> {
        Ok(match self {
            Self::Plain(_) => 0,
            Self::Group(group) => group.master().await?,
        })
    }

    /// The URL for a server behind these proxies, and its views of the Sentinels.
    async fn url(&self, proxies: &[FaultProxy]) -> anyhow::Result<(String, Vec<SentinelView>)> {
        let Self::Group(group) = self else {
            return Ok((format!("redis://{}", proxies[0].address()), Vec::new()));
        };
        let pairs = group.nodes().iter().zip(proxies);
        let shown =
            pairs.map(|(node, proxy)| Shown { node: node.address(), proxy: proxy.address() });
        let (shown, mut views) = (shown.collect::<Vec<_>>(), Vec::new());
        for sentinel in group.addresses() {
            views.push(SentinelView::start(sentinel, shown.clone()).await?);
        }
        let addresses: Vec<_> = views.iter().map(|view| view.address.to_string()).collect();
        Ok((format!("redis+sentinel://{}/{}", addresses.join(","), Sentinels::NAME), views))
    }

    /// Number of masters that the Sentinels have replaced.
    async fn epoch(&self) -> anyhow::Result<u64> {
        let Self::Group(group) = self else { return Ok(0) };
        let mut newest = 0;
        for sentinel in group.sentinels() {
            let reply = sentinel.cli(&["SENTINEL", "MASTER", Sentinels::NAME]).await?;
            let fields: Vec<_> = reply.list().iter().map(sluicegate_testkit::Reply::text).collect();
            let epoch = fields.windows(2).find(|pair| pair[0] == "config-epoch");
            let epoch = epoch.and_then(|pair| pair[1].parse().ok());
            newest = newest.max(epoch.unwrap_or(0));
        }
        Ok(newest)
    }
}
