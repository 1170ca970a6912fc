//! Follows the catalog: a change there is in force here within a second.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use rustix::system::uname;
use sluicegate::internals::WallClock;
use sluicegate::internals::store::redis::Revisions;
use sluicegate_control::api::{Api, Setup};
use sluicegate_control::node::{CatalogCopy, CatalogDelta, Follower, Presence};
use sluicegate_control::{Catalog, CatalogAddress, Url};
use sluicegate_policy::PolicySet;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::budgets::EngineBudgets as LiveBudgets;
use super::live_traffic::EngineTraffic;
use super::publish::Publisher;
use super::subscribers::Subscribers;
use super::sync_state::{LOOK_WAIT_MAX, SyncState, now};
use super::whatif::ReplayWhatIf;
use super::{AdminApi, cache_file, node_reporter, seed, traffic};
use crate::authenticator::Authenticator;
use crate::config::{CatalogConfig, HistoryKept, Listen};
use crate::policies::PolicyManager;
use crate::store::RedisBackend;
use crate::telemetry::Telemetry;

/// Interval between looks at the catalog's revision: an edit must be in force everywhere within a
/// second, and a look reads one row by its key.
const EVERY: Duration = Duration::from_millis(250);

/// Shortest pause between looks, also after a notification.
const EVERY_MIN: Duration = Duration::from_millis(5);

/// Pause between looks while the catalog does not answer.
const AWAY_EVERY: Duration = Duration::from_secs(1);

/// Longest wait for the admin API to open, a shorter one before requests are answered, and the pause after a failure.
const OFFICE_WAIT_MAX: Duration = Duration::from_secs(10);
const OFFICE_START_WAIT_MAX: Duration = Duration::from_secs(1);
const OFFICE_AFTER: Duration = Duration::from_secs(5);

/// Longest wait at the end of the process for the catalog to forget the node: it is forgotten after a day anyway.
const FORGET_WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest wait at the end of the process for connections to the catalog to close, twice: a WAL of SQLite is some MB.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(2);

/// Follows the catalog, and keeps a copy.
#[derive(Debug)]
pub(crate) struct CatalogSync {
    looks: Poller,
    presence: Presence,
    /// The file for a copy of the catalog.
    copy: CatalogCopy,
    history: HistoryKept,
}

/// The last writes of a node to the catalog.
#[derive(Debug)]
pub(crate) struct NodeEnd {
    /// The catalog, if it answered the last request.
    catalog: Option<Catalog>,
    history: HistoryKept,
    node: String,
    started_at: i64,
}

/// Polls the catalog.
#[derive(Debug)]
struct Poller {
    follower: Follower,
    url: Url,
    is_away: bool,
    /// The start of the last look that was answered.
    asked_at: Instant,
    /// The file that the snapshot was restored from, and when it was written; absent once the catalog has answered.
    restored: Option<String>,
}

impl CatalogSync {
    /// Reads the catalog, or its copy if the catalog does not answer.
    ///
    /// # Errors
    /// If the catalog does not answer, and there is no copy.
    pub(crate) async fn start(
        config: &CatalogConfig,
        listens: &[Listen],
    ) -> Result<(Self, Vec<CatalogDelta>)> {
        let Some(url) = &config.url else { bail!("catalog.url: is not set") };
        let url: Url = url.expose().parse().context("catalog.url")?;
        let name = match &config.node {
            Some(name) => name.clone(),
            None => node_name(listens),
        };
        let copy = copy_of(&url, config)?;
        let mut unmade = None;
        if url.is_missing() && copy.path.exists() {
            // Its volume is not mounted, or the path is wrong: a new catalog would replace the copy.
            let (file, copy) = (url.file().unwrap_or_default(), copy.path.display());
            tracing::warn!(
                "catalog.url: {} does not exist, but {copy} does: no new catalog is made; remove the copy to begin one",
                file.display()
            );
        } else {
            // Without a copy, the look below fails with this error.
            unmade = url.create().err();
            if let Some(file) = &config.seed {
                seed::run(&url, file).await.context("catalog.seed")?;
            }
        }
        let presence = Presence::new(&name, env!("CARGO_PKG_VERSION"), now());
        let mut follower = Follower::new(url.clone(), copy.clone());
        let mut news = Vec::new();
        let restored = follower.restore();
        let problem = restored.as_ref().err().map(ToString::to_string);
        news.extend(restored.ok());
        let restored = (follower.held().revision() > 0).then(|| described(&copy.path));
        let asked_at = Instant::now();
        let mut looks = Poller { follower, url, is_away: false, asked_at, restored };
        let polled = looks.poll().await;
        if let Some(problem) = &problem {
            tracing::warn!("catalog.kept: ignored: {problem}");
        }
        match polled {
            Ok(new) => news.extend(new),
            Err(error) if looks.revision() == 0 => {
                let nothing = || format!("{} has no copy of it", copy.path.display());
                let problem = problem.unwrap_or_else(nothing);
                let problem =
                    format!("catalog.url: cannot read the catalog {}, and {problem}", copy.of);
                return Err(unmade.map_or(error, Into::into).context(problem));
            }
            Err(error) => looks.record_failure(&error),
        }
        Ok((Self { looks, presence, copy, history: config.history }, news))
    }

    /// The kind of database.
    pub(crate) const fn kind(&self) -> &'static str {
        self.looks.url.kind()
    }

    /// The revision that is held.
    pub(crate) fn revision(&self) -> i64 {
        self.looks.revision()
    }

    /// Opens the admin API, if the catalog answers: a client that sees the server start finds it.
    pub(crate) async fn open_admin_api(&self, subscribers: Subscribers<'_>) {
        if !self.looks.is_away {
            let node = self.presence.name().to_owned();
            let opening = AdminApiOpener { subscribers, url: self.looks.url.clone(), node };
            // It opens later, if it takes longer.
            opening.open(OFFICE_START_WAIT_MAX).await.ok();
        }
    }

    /// Polls the catalog until `stop`, and applies updates. Tasks that no request waits for run beside that. With
    /// `publishes`, programs find the policies in Redis. Returns what is left to write after the last decision.
    pub(crate) async fn run(
        self,
        subscribers: Subscribers<'_>,
        publishes: bool,
        stop: &CancellationToken,
    ) -> NodeEnd {
        let Self { looks, presence, copy, history } = self;
        let is_restored = looks.restored.is_some();
        let (node, telemetry) = (presence.name().to_owned(), subscribers.engine.telemetry());
        let started_at = presence.started_at();
        let redis = subscribers.engine.core().store().on_redis();
        let (tell, holding) = watch::channel(looks.holding());
        let published = async {
            if let Some(redis) = redis.filter(|_| publishes) {
                Publisher::default().run(redis, holding.clone(), stop).await;
            }
        };
        let opening = AdminApiOpener { subscribers, url: looks.url.clone(), node: node.clone() };
        tokio::join!(
            opening.run(holding.clone(), stop),
            looks.run(&subscribers, redis.map(RedisBackend::revisions), &tell, stop),
            node_reporter::run(presence, &subscribers, holding.clone(), stop),
            traffic::run(telemetry, history, &node, &holding, stop),
            cache_file::run(&copy, is_restored, holding.clone(), stop),
            published,
        );
        let catalog = holding.borrow().catalog.clone();
        NodeEnd { catalog, history, node, started_at }
    }
}

impl NodeEnd {
    /// Writes the counts since the last rows, and that the node is gone. Then closes all connections to the catalog.
    pub(crate) async fn record(self, telemetry: &Telemetry, admin_api: &AdminApi) {
        let Some(catalog) = &self.catalog else { return };
        traffic::write_last(telemetry, self.history, &self.node, catalog).await;
        let forgetting = timeout(FORGET_WAIT_MAX, catalog.forget_node(&self.node, self.started_at));
        if !matches!(forgetting.await, Ok(Ok(()))) {
            tracing::debug!("catalog: could not record that this node has ended");
        }
        // The last connection to SQLite writes its log (WAL) back into the database. If two close at once, each
        // still sees the other, and neither writes it.
        timeout(CLOSE_WAIT_MAX, catalog.close()).await.ok();
        timeout(CLOSE_WAIT_MAX, admin_api.close()).await.ok();
    }
}

impl Poller {
    async fn run(
        mut self,
        subscribers: &Subscribers<'_>,
        mut revisions: Option<Revisions>,
        tell: &watch::Sender<SyncState>,
        stop: &CancellationToken,
    ) {
        loop {
            let looked = async {
                self.pause(subscribers, &mut revisions).await;
                let changes = subscribers.admin_api.changes();
                self.poll().await.map(|news| (news, changes))
            };
            let Some(looked) = stop.run_until_cancelled(looked).await else { return };
            let looked = looked.map_err(|error| self.record_failure(&error)).ok();
            self.is_away = looked.is_none();
            subscribers.live.set_catalog_answers(!self.is_away);
            let (news, changes) =
                looked.map_or((None, None), |(news, changes)| (news, Some(changes)));
            self.publish(tell, news.as_ref());
            if let Some(news) = news {
                subscribers.apply(news, self.revision());
            }
            if let Some(changes) = changes {
                subscribers.admin_api.set_applied(changes);
            }
        }
    }

    /// Waits until the next look is due, or a change is announced.
    async fn pause(&self, subscribers: &Subscribers<'_>, revisions: &mut Option<Revisions>) {
        let pause = if self.is_away { AWAY_EVERY } else { EVERY };
        let later = async {
            let Some(revisions) = revisions else { return pending().await };
            while revisions.next().await <= self.revision() {}
        };
        // However many changes are announced, looks keep a distance.
        sleep(EVERY_MIN).await;
        tokio::select! {
            // Nodes that started together do not poll together for ever.
            () = sleep(pause.mul_f64(0.9 + 0.2 * fastrand::f64())) => {}
            () = subscribers.admin_api.changed() => {}
            () = later => {}
        }
    }

    /// Returns the changes since the last look.
    async fn poll(&mut self) -> Result<Option<CatalogDelta>> {
        let asked_at = Instant::now();
        let looked = timeout(LOOK_WAIT_MAX, self.follower.poll(now())).await;
        let news = looked.context("no answer in time")??;
        self.asked_at = asked_at;
        self.restored = None;
        Ok(news)
    }

    fn record_failure(&mut self, error: &anyhow::Error) {
        if !self.is_away {
            let (catalog, revision) = (CatalogAddress::of(&self.url), self.revision());
            let held = self.restored.as_deref().unwrap_or("what it said last");
            tracing::warn!(
                "catalog {catalog}: unavailable ({error:#}); using {held} (revision {revision})"
            );
        }
        self.is_away = true;
    }

    fn revision(&self) -> i64 {
        self.follower.held().revision()
    }

    fn holding(&self) -> SyncState {
        let catalog = self.follower.catalog().filter(|_| !self.is_away).cloned();
        let (held, asked_at) = (Arc::clone(self.follower.held()), self.asked_at);
        SyncState { held, tokens: 0, catalog, asked_at }
    }

    /// Sends the present state; receivers wake if it is another snapshot, or if the catalog is back or away.
    fn publish(&self, tell: &watch::Sender<SyncState>, news: Option<&CatalogDelta>) {
        let now = self.holding();
        let tokens = u64::from(news.is_some_and(|news| news.tokens.is_some()));
        tell.send_if_modified(|holding| {
            let is_same = Arc::ptr_eq(&holding.held, &now.held)
                && holding.catalog.is_some() == now.catalog.is_some();
            *holding = SyncState { tokens: holding.tokens + tokens, ..now };
            !is_same
        });
    }
}

/// Opens the admin API of a node.
struct AdminApiOpener<'a> {
    subscribers: Subscribers<'a>,
    url: Url,
    node: String,
}

impl AdminApiOpener<'_> {
    /// Opens the admin API once the catalog answers, and then renews the setup token, until `stop`.
    async fn run(&self, mut holding: watch::Receiver<SyncState>, stop: &CancellationToken) {
        let opened = async {
            while !self.subscribers.admin_api.is_open() {
                // An error means that no sender is left; then this ends as well.
                if holding.wait_for(|holding| holding.catalog.is_some()).await.is_err() {
                    return;
                }
                if let Err(error) = self.open(OFFICE_WAIT_MAX).await {
                    tracing::warn!("catalog: the admin API is not available yet: {error:#}");
                    sleep(OFFICE_AFTER).await;
                }
            }
            self.subscribers.admin_api.renew_setup().await;
        };
        stop.run_until_cancelled(opened).await;
    }

    async fn open(&self, wait: Duration) -> Result<()> {
        let admin_api = self.subscribers.admin_api;
        let opened = async {
            // Connections of its own: however many requests there are, a look need not wait for one.
            let catalog = Catalog::join(&self.url).await?;
            let catalog = catalog.keeping_versions(admin_api.versions_max());
            let budgets = Arc::new(LiveBudgets(Arc::clone(self.subscribers.engine)));
            let traffic = EngineTraffic {
                node: self.node.clone(),
                engine: Arc::clone(self.subscribers.engine),
                live: Arc::clone(self.subscribers.live),
                stop: self.subscribers.stop.clone(),
            };
            let api = Api::new(catalog, Arc::new(WallClock), Setup::none(), budgets);
            let api = api.with_traffic(Arc::new(traffic)).with_what_if(Arc::new(ReplayWhatIf));
            admin_api.open(api).await
        };
        Ok(timeout(wait, opened).await.context("no answer in time")??)
    }
}

/// The policies of a server that starts, after all of `news` in their order.
pub(crate) fn initial_policies(
    news: Vec<CatalogDelta>,
    live: &PolicyManager,
    authenticator: &Authenticator,
    revision: i64,
) -> PolicySet {
    news.into_iter().fold(PolicySet::default(), |policies, news| {
        if let Some(tokens) = &news.tokens {
            authenticator.set(Arc::clone(tokens));
        }
        live.apply_delta(&policies, news, revision).unwrap_or(policies)
    })
}

/// The file for a copy of the catalog at `url`.
fn copy_of(url: &Url, config: &CatalogConfig) -> Result<CatalogCopy> {
    let default = || {
        let path = cache_file::default_path(url, |name| std::env::var_os(name));
        cache_file::make_folder(&path);
        path
    };
    let copy = CatalogCopy::new(config.kept.clone().unwrap_or_else(default), url);
    let of_before = config.kept_of.as_deref().map(str::parse).transpose();
    Ok(CatalogCopy { of_before: of_before.context("catalog.kept_of")?, ..copy })
}

/// The path of the file, with the time when it was written.
fn described(path: &Path) -> String {
    let written = || {
        let written = path.metadata().and_then(|file| file.modified()).ok()?;
        let since = written.duration_since(UNIX_EPOCH).ok()?;
        Timestamp::from_second(since.as_secs().try_into().ok()?).ok()
    };
    let path = path.display();
    written().map_or_else(|| path.to_string(), |written| format!("{path} of {written}"))
}

/// The name of this host, with the first port that it listens on.
fn node_name(listens: &[Listen]) -> String {
    let host = uname().nodename().to_string_lossy().into_owned();
    let first = listens.iter().find_map(|listen| match listen {
        Listen::Tcp(address) => Some(address.port()),
        Listen::Unix(_) => None,
    });
    first.map_or(host.clone(), |port| format!("{host}:{port}"))
}
