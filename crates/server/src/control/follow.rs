//! Follows the catalog: what changes there holds here within a second.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::system::uname;
use sluicegate::store::redis::Revisions;
use sluicegate::{Clock, WallClock};
use sluicegate_control::api::{Api, Setup};
use sluicegate_control::node::{Follower, News};
use sluicegate_control::{Catalog, Url};
use sluicegate_policy::PolicySet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Office;
use super::budgets::Live as LiveBudgets;
use super::publish::Publisher;
use crate::callers::Callers;
use crate::config::{CatalogConfig, Listen};
use crate::gate::Gate;
use crate::policies::Live;
use crate::say;
use crate::store::OnRedis;
use crate::wire::Bound;

/// How often the catalog is asked for its revision: an edit is to hold everywhere within a second,
/// and this is one row by its key.
const EVERY: Duration = Duration::from_millis(250);

/// How long is waited at least, also if somebody says that there is news.
const EVERY_MIN: Duration = Duration::from_millis(5);

/// How long is waited between two looks while the catalog does not answer.
const AWAY_EVERY: Duration = Duration::from_secs(1);

/// How long a look may take: the tables of a new catalog are made in it, or ten thousand policies
/// are read.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(15);

/// How often what is held is written to its file at most: it is all of it, and only for a start
/// without the catalog.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// How often the catalog is told which tokens were used, and how long that may take: nothing is as
/// little urgent.
const USED_EVERY: Duration = Duration::from_secs(10);
const USED_WAIT_MAX: Duration = Duration::from_millis(500);

/// What follows the catalog.
#[derive(Debug)]
pub(crate) struct Following {
    follower: Follower,
    kind: &'static str,
    /// Whether what is held is not in its file yet, and when the file was written last.
    is_unkept: bool,
    kept_at: Option<Instant>,
    /// When the catalog was told last which tokens were used.
    used_at: Option<Instant>,
    is_away: bool,
}

/// What is told of what is news.
pub(crate) struct Told<'a> {
    pub(crate) gate: &'a Arc<Gate>,
    pub(crate) live: &'a Live,
    pub(crate) callers: &'a Callers,
    pub(crate) office: &'a Office,
}

impl Following {
    /// What the catalog says now, or what was kept of it if it does not answer.
    ///
    /// # Errors
    /// If it does not answer, and nothing was kept.
    pub(crate) async fn start(
        config: &CatalogConfig,
        bound: &[Bound],
    ) -> Result<(Self, Vec<News>)> {
        let Some(url) = &config.url else { bail!("catalog.url: is not set") };
        let url: Url = url.expose().parse().context("catalog.url")?;
        let kind = url.kind();
        let name = match &config.node {
            Some(name) => name.clone(),
            None => node_name(bound)?,
        };
        let called = (name.as_str(), env!("CARGO_PKG_VERSION"));
        let mut follower = Follower::new(url, config.kept.clone(), called, now());
        let mut news = Vec::new();
        match follower.restore() {
            Ok(held) => news.push(held),
            Err(error) => tracing::warn!("catalog.kept: it is left aside: {error}"),
        }
        let mut following =
            Self { follower, kind, is_unkept: false, kept_at: None, used_at: None, is_away: false };
        match following.look().await {
            Ok(new) => news.extend(new),
            Err(error) if following.follower.held().revision() == 0 => {
                let file = config.kept.display();
                return Err(error.context(format!(
                    "catalog.url: it does not answer, and {file} has nothing of it"
                )));
            }
            Err(error) => following.missed(&error),
        }
        Ok((following, news))
    }

    /// Which kind of database it is.
    pub(crate) const fn kind(&self) -> &'static str {
        self.kind
    }

    /// Which revision is held.
    pub(crate) const fn revision(&self) -> i64 {
        self.follower.held().revision()
    }

    /// Looks again and again until `stop`, and tells of what is news.
    pub(crate) async fn keep(mut self, told: Told<'_>, stop: &CancellationToken) {
        let redis = told.gate.engine().store().on_redis();
        let mut heard = redis.map(OnRedis::revisions);
        let mut publisher = Publisher::default();
        loop {
            let looked = tokio::select! {
                () = stop.cancelled() => break,
                looked = async {
                    self.pause(&told, &mut heard).await;
                    self.look().await
                } => looked,
            };
            match looked {
                Ok(news) => {
                    if let Some(news) = news {
                        publisher.note(&news);
                        told.take(news, self.revision());
                    }
                    told.live.asked(true);
                    self.is_away = false;
                    self.open_office(&told).await;
                    self.note_used(told.callers).await;
                    if let Some(redis) = redis {
                        publisher.look(redis, self.follower.held()).await;
                    }
                }
                Err(error) => {
                    told.live.asked(false);
                    self.missed(&error);
                }
            }
            self.write().await;
        }
        (self.kept_at, self.used_at) = (None, None);
        self.write().await;
        if !self.is_away {
            self.note_used(told.callers).await;
        }
    }

    /// Waits until it is time to look, or somebody says that there is something to see.
    async fn pause(&self, told: &Told<'_>, heard: &mut Option<Revisions>) {
        let pause = if self.is_away { AWAY_EVERY } else { EVERY };
        let later = async {
            let Some(heard) = heard else { return pending().await };
            while heard.next().await <= self.revision() {}
        };
        // However much is said, looks have a distance.
        sleep(EVERY_MIN).await;
        tokio::select! {
            // Nodes that started together do not ask together for ever.
            () = sleep(pause.mul_f64(0.9 + 0.2 * fastrand::f64())) => {}
            () = told.office.changed() => {}
            () = later => {}
        }
    }

    /// What changed since the last look.
    async fn look(&mut self) -> Result<Option<News>> {
        let looked = timeout(LOOK_WAIT_MAX, async {
            let news = self.follower.look(now()).await?;
            Ok::<_, sluicegate_control::Error>(news)
        });
        let news = looked.await.context("it does not answer in time")??;
        self.is_unkept |= news.is_some();
        if news.is_none()
            && let Err(error) = self.follower.say(now()).await
        {
            tracing::debug!("catalog: {error}");
        }
        Ok(news)
    }

    fn missed(&mut self, error: &anyhow::Error) {
        if !self.is_away {
            tracing::warn!("catalog: what it said last holds: {error:#}");
        }
        self.is_away = true;
    }

    /// Opens the admin API, once the catalog is there.
    pub(crate) async fn open_office(&self, told: &Told<'_>) {
        let Some(catalog) = self.follower.catalog() else { return };
        if self.is_away || told.office.is_open() {
            return;
        }
        let setup = match setup(catalog).await {
            Ok(setup) => setup,
            Err(error) => return tracing::warn!("catalog: {error}"),
        };
        let budgets = Arc::new(LiveBudgets(Arc::clone(told.gate)));
        told.office.open(&Api::new(catalog.clone(), Arc::new(WallClock), setup, budgets));
    }

    /// Tells the catalog which tokens were used, if it is not too soon.
    async fn note_used(&mut self, callers: &Callers) {
        let Some(catalog) = self.follower.catalog() else { return };
        if self.used_at.is_some_and(|at| at.elapsed() < USED_EVERY) {
            return;
        }
        self.used_at = Some(Instant::now());
        let used = callers.used();
        let noted = timeout(USED_WAIT_MAX, catalog.note_tokens_used(&used)).await;
        if !matches!(noted, Ok(Ok(()))) {
            tracing::debug!("catalog: it was not told which tokens were used");
        }
    }

    /// Writes what is held to its file, if it is not there and not too soon.
    async fn write(&mut self) {
        let is_soon = self.kept_at.is_some_and(|at| at.elapsed() < KEEP_EVERY);
        if !self.is_unkept || is_soon {
            return;
        }
        (self.is_unkept, self.kept_at) = (false, Some(Instant::now()));
        if let Err(error) = self.follower.keep().await {
            tracing::warn!("catalog.kept: the server could not start without the catalog: {error}");
        }
    }
}

impl Told<'_> {
    fn take(&self, news: News, revision: i64) {
        if let Some(tokens) = &news.tokens {
            self.callers.set(Arc::clone(tokens));
        }
        if let Some(policies) = self.live.take(&self.gate.engine().policies(), news, revision) {
            self.gate.set_policies(policies);
        }
    }
}

/// The policies that `news` come to, one after the other, for a server that starts.
pub(crate) fn first(
    news: Vec<News>,
    (live, callers): (&Live, &Callers),
    revision: i64,
) -> PolicySet {
    news.into_iter().fold(PolicySet::default(), |policies, news| {
        if let Some(tokens) = &news.tokens {
            callers.set(Arc::clone(tokens));
        }
        live.take(&policies, news, revision).unwrap_or(policies)
    })
}

/// What the first account is made with, told to whoever started the server; nothing if there are
/// accounts.
async fn setup(catalog: &Catalog) -> Result<Setup, sluicegate_control::Error> {
    if catalog.has_accounts().await? {
        return Ok(Setup::none());
    }
    let (secret, setup) = Setup::new(now());
    // Not by the log, which is kept.
    say::note(format_args!(
        "the catalog has no accounts: make the first with this setup token, within 15 minutes\n  {}",
        secret.expose()
    ));
    Ok(setup)
}

/// This host, and the first port that it listens on.
fn node_name(bound: &[Bound]) -> Result<String> {
    let host = uname().nodename().to_string_lossy().into_owned();
    for bound in bound {
        if let Listen::Tcp(address) = bound.address()? {
            return Ok(format!("{host}:{}", address.port()));
        }
    }
    Ok(host)
}

/// Milliseconds since 1970.
fn now() -> i64 {
    i64::try_from(WallClock.now().get() / 1_000).unwrap_or(i64::MAX)
}
