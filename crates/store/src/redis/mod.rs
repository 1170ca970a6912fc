//! The way to Redis and Valkey: one script, called with keys and arguments.
//!
//! [`RedisClient`] does not interpret rules or decisions. It carries an [`ScriptArgs`], a key with two
//! arguments, to the server that has the key, and returns the script's reply, or a [`RedisError`] that
//! tells whether the call may have been executed.
//!
//! ```no_run
//! # use sluicegate_store::redis::{ScriptArgs, LuaScript, RedisClient, RedisConfig};
//! # async fn example(script: LuaScript, ask: ScriptArgs) -> Result<(), Box<dyn std::error::Error>> {
//! let config: RedisConfig = "redis://127.0.0.1:6379?connections=2&deadline_ms=20".parse()?;
//! let client = RedisClient::start(&config, script)?;
//! let reply = client.eval(ask, client.deadline()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Its promises:
//!
//! - No call returns later than its deadline. While there is no connection it fails at once.
//! - A call that may have been executed is never sent again. If the server lacks the script, or the key has
//!   moved, the call was surely not executed, and goes again within its deadline.
//! - Connections come back by themselves, with jittered pauses, for ever.
//! - Policies are [published](RedisClient::publish) whole or not at all, and [announced](Revisions).
//! - The bounds: calls that wait, requests in flight, repeats and pauses have their maxima beside
//!   the code that keeps them.

mod acl;
mod active;
mod address;
mod announcements;
mod backoff;
mod batch;
mod blob;
mod cluster;
pub mod codec;
mod config;
mod config_error;
mod connection;
mod dialer;
mod error;
mod fleet;
mod group;
mod handle;
mod held;
mod kind;
mod late;
pub mod lease;
mod leasing;
mod load;
mod numbers;
mod publish;
mod published;
mod record;
mod request;
mod revisions;
pub mod script;
mod sentinel;
mod server;
mod server_time;
mod setup;
mod slots;
mod standalone;
mod stats;
mod store;
mod task;
mod url;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use sluicegate_kernel::{Called, Micros};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::acl::{acl, program_acl, sentinel_acl};
pub use self::address::{Address, HOSTS_MAX, Topology};
use self::announcements::Announcements;
pub use self::announcements::CALLS_CHANNEL;
use self::cluster::Cluster;
use self::codec::called_bytes;
pub use self::config::RedisConfig;
pub use self::config_error::RedisConfigError;
use self::dialer::Dialer;
pub use self::error::{CallEffect, ConnectError, RedisError, ServerErrorReply};
pub use self::fleet::{Fleet, FleetPresence};
pub use self::publish::{
    POLICIES_CHANNEL, POLICIES_FORMAT, POLICIES_KEY, Publication, PublicationPolicy,
    PublicationSource, PublishError, PublishOutcome, REVISION_MAX, RevisionDiff,
};
pub use self::published::PublishedPolicies;
pub use self::record::{
    KeyOverride, PolicyRecord, RECORD_FORMAT, RecordOverflow, RecordResponse, RecordSettings,
};
pub use self::request::ScriptArgs;
use self::request::{RequestKind, ServerRequest};
use self::revisions::ListenTarget;
pub use self::revisions::Revisions;
use self::sentinel::Sentinel;
pub use self::server::ScriptServer;
pub use self::server_time::{DECISION_US_MAX, affordable};
use self::setup::ConnectionSetup;
use self::standalone::Standalone;
use self::stats::Counters;
pub use self::stats::Stats;
pub use self::store::RedisStore;

/// The script by which a client decides. Its reply for n keys is a list of n values, in their order;
/// for one key it is the value itself. It reads and writes its keys only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LuaScript {
    /// The source.
    pub text: &'static str,
    /// The SHA-1 of the source: 40 lower-case hexadecimal digits.
    pub sha1: &'static str,
}

/// A client of one Redis server, one replicated set or one cluster.
#[derive(Debug)]
pub struct RedisClient {
    servers: Servers,
    dialer: Dialer,
    deadline: Duration,
    reconnected: Arc<Notify>,
    counters: Arc<Counters>,
    announcements: OnceLock<Announcements>,
}

#[derive(Debug)]
enum Servers {
    Standalone(Standalone),
    Sentinel(Sentinel),
    Cluster(Cluster),
}

impl RedisClient {
    /// Starts to connect, in tasks of the present tokio runtime that end with this client.
    ///
    /// # Errors
    /// [`RedisConfigError`] if the certificates to trust cannot be read. An unreachable server is not an
    /// error here: it may come later.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and IO.
    pub fn start(config: &RedisConfig, script: LuaScript) -> Result<Self, RedisConfigError> {
        let (counters, reconnected) = (Arc::new(Counters::default()), Arc::new(Notify::new()));
        let dialer = Dialer::for_data(config)?;
        let setup = ConnectionSetup {
            dialer: dialer.clone(),
            script,
            joined_max: config.joined_max,
            master_only: false,
            suspicion: Arc::new(Notify::new()),
            reconnected: Arc::clone(&reconnected),
            deadline: config.deadline,
            silence_max: ConnectionSetup::silence_max(config.deadline),
            counters: Arc::clone(&counters),
        };
        let connections = config.connections;
        let servers = match &config.topology {
            Topology::Standalone(address) => {
                Servers::Standalone(Standalone::start(&setup, address.clone(), connections))
            }
            Topology::Sentinel { sentinels, master } => {
                let dialer = Dialer::for_sentinels(config)?;
                let watch = sentinel::MasterWatch::new(dialer, sentinels, master);
                Servers::Sentinel(Sentinel::start(setup, watch, connections))
            }
            Topology::Cluster { seeds } => {
                Servers::Cluster(Cluster::start(setup, seeds.clone(), connections))
            }
        };
        let (deadline, announcements) = (config.deadline, OnceLock::new());
        Ok(Self { servers, dialer, deadline, reconnected, counters, announcements })
    }

    /// Waits for the end of the first attempt to connect, which the connect timeout bounds. Calls may be
    /// made before.
    ///
    /// # Errors
    /// [`ConnectError`] if there is none; further attempts go on in the background.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        match &self.servers {
            Servers::Standalone(servers) => servers.lanes.ready().await,
            Servers::Sentinel(servers) => servers.lanes.ready().await,
            Servers::Cluster(servers) => servers.ready().await,
        }
    }

    /// Returns the deadline of a call that is made now. A decision that takes several calls keeps to one
    /// deadline.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.deadline
    }

    /// Returns the error with which a call would be refused now, if that is known before it is made: the
    /// queue is full.
    pub(crate) fn refuses(&self) -> Option<RedisError> {
        match &self.servers {
            Servers::Standalone(servers) => servers.lanes.refuses(),
            Servers::Sentinel(servers) => servers.lanes.refuses(),
            Servers::Cluster(_) => None,
        }
    }

    /// Returns the script's reply to `ask`.
    ///
    /// # Errors
    /// [`RedisError`] if there is no answer by `deadline`;
    /// [`RedisError::outcome`] says whether the script may have run.
    pub async fn eval(&self, ask: ScriptArgs, deadline: Instant) -> Result<Bytes, RedisError> {
        self.counters.calls.add_one();
        let reply = match &self.servers {
            Servers::Cluster(cluster) => Box::pin(cluster.eval(ask, deadline)).await,
            Servers::Standalone(servers) => {
                servers.lanes.call(ServerRequest::script(ask), deadline).await
            }
            Servers::Sentinel(servers) => {
                servers.lanes.call(ServerRequest::script(ask), deadline).await
            }
        };
        self.account(reply.and_then(bytes))
    }

    /// Passes the script's reply to each of `asks`, with its place, to `on_reply` as soon as it is there: as
    /// [`eval`](Self::eval), but waited for together. In a cluster each goes to the server of its key.
    pub async fn eval_each(
        &self,
        asks: Vec<ScriptArgs>,
        deadline: Instant,
        on_reply: &mut (impl FnMut(usize, Result<Bytes, RedisError>) + Send),
    ) {
        let lanes = match &self.servers {
            Servers::Cluster(_) => {
                let asking = asks.into_iter().enumerate();
                let asking = asking
                    .map(|(place, ask)| async move { (place, self.eval(ask, deadline).await) });
                let mut asking: FuturesUnordered<_> = asking.collect();
                while let Some((place, reply)) = asking.next().await {
                    on_reply(place, reply);
                }
                return;
            }
            Servers::Standalone(servers) => &servers.lanes,
            Servers::Sentinel(servers) => &servers.lanes,
        };
        asks.iter().for_each(|_| self.counters.calls.add_one());
        let mut hear = |place, reply: Result<Value, RedisError>| {
            on_reply(place, self.account(reply.and_then(bytes)));
        };
        lanes.call_each(asks.into_iter().map(ServerRequest::script), deadline, &mut hear).await;
    }

    /// Returns the script's reply to `ask`, which begins with a debt. The script notes the charged permits
    /// at `noted`, a key in the same slot, and charges the debt once however often it is called.
    ///
    /// # Errors
    /// As [`eval`](Self::eval).
    pub(crate) async fn eval_once(
        &self,
        ask: ScriptArgs,
        noted: &[u8],
        deadline: Instant,
    ) -> Result<Bytes, RedisError> {
        let (key, noted) = (ask.key.clone(), Bytes::copy_from_slice(noted));
        let reply = self.command(&key, RequestKind::InDebt(ask, noted), deadline).await;
        self.account(reply.and_then(bytes))
    }

    /// Returns the string at `key`; `None` if there is none.
    ///
    /// # Errors
    /// As [`eval`](Self::eval).
    pub async fn get(&self, key: &[u8], deadline: Instant) -> Result<Option<Bytes>, RedisError> {
        let mut command = redis::cmd("GET");
        command.arg(key);
        let reply = self.command(key, RequestKind::Plain(command), deadline).await;
        self.account(reply.and_then(|value| match value {
            Value::Nil => Ok(None),
            value => bytes(value).map(Some),
        }))
    }

    /// Returns the time of the server that has `key`.
    ///
    /// # Errors
    /// As [`eval`](Self::eval).
    pub(crate) async fn time(&self, key: &[u8], deadline: Instant) -> Result<Micros, RedisError> {
        let command = RequestKind::Plain(redis::cmd("TIME"));
        let reply = self.command(key, command, deadline).await;
        self.account(reply.and_then(|value| match value {
            Value::ServerError(error) => Err(RedisError::Refused(ServerErrorReply::from(&error))),
            value => {
                let (seconds, us): (u64, u64) =
                    redis::from_redis_value(value).map_err(|_| RedisError::Malformed)?;
                Ok(Micros::from_secs(seconds).plus(Micros::new(us)))
            }
        }))
    }

    /// Writes `value` at `key`, to be removed after `ttl` (at least a millisecond).
    ///
    /// # Errors
    /// As [`eval`](Self::eval).
    pub async fn set(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Duration,
        deadline: Instant,
    ) -> Result<(), RedisError> {
        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut command = redis::cmd("SET");
        command.arg(key).arg(value).arg("PX").arg(ttl_ms);
        let reply = self.command(key, RequestKind::Plain(command), deadline).await;
        self.account(reply.and_then(|value| match value {
            Value::Okay => Ok(()),
            value => bytes(value).map(drop),
        }))
    }

    /// Writes `publication` to the key from which programs that decide in Redis themselves read policies,
    /// unless it is there already; see `spec/redis-protocol.md`. It takes one call if there is no change,
    /// and two if little has changed. A whole publication takes as many calls as its size needs, and
    /// becomes visible with the last of them. It may be tried again after any outcome.
    ///
    /// # Errors
    /// [`PublishError`] if it cannot be published, or if Redis did not answer in time, which is a
    /// second for each call and 30 s in all.
    pub async fn publish(
        &self,
        publication: &Publication<'_>,
    ) -> Result<PublishOutcome, PublishError> {
        publish::publish(self, publication).await
    }

    /// Returns the policies that servers publish here; `None`: there are none in a known format.
    ///
    /// # Errors
    /// [`RedisError`] if there is no answer within a second.
    pub async fn published(&self) -> Result<Option<PublishedPolicies>, RedisError> {
        published::read(self).await
    }

    /// Returns the published policies without their texts: enough to find a new revision.
    ///
    /// # Errors
    /// As [`published`](Self::published).
    pub async fn published_head(&self) -> Result<Option<PublishedPolicies>, RedisError> {
        published::read_head(self).await
    }

    /// Returns the revisions that are published from now on: over a connection of its own, in a task of the
    /// present tokio runtime.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and IO.
    pub fn revisions(&self) -> Revisions {
        Revisions::start(self.dialer.clone(), self.whereabouts())
    }

    /// Announces waiting requests to the processes that they are of.
    ///
    /// # Errors
    /// [`RedisError`] if there is no answer by the deadline.
    pub(crate) async fn announce(&self, called: &[Called]) -> Result<(), RedisError> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(CALLS_CHANNEL).arg(called_bytes(called));
        let command = RequestKind::Plain(command);
        let reply = self.command(CALLS_CHANNEL.as_bytes(), command, self.deadline()).await;
        self.account(reply.map(drop))
    }

    /// Returns the next waiting requests that are announced, from the first call on.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and IO.
    pub(crate) async fn announced(&self) -> Vec<Called> {
        let start = || Announcements::start(self.dialer.clone(), self.whereabouts());
        self.announcements.get_or_init(start).next().await
    }

    fn whereabouts(&self) -> ListenTarget {
        match &self.servers {
            Servers::Standalone(server) => ListenTarget::At(server.target()),
            Servers::Sentinel(master) => ListenTarget::At(master.target()),
            Servers::Cluster(cluster) => ListenTarget::Cluster(cluster.nodes()),
        }
    }

    /// Returns when a connection that was lost has been replaced. Of several waiters one returns each time.
    pub async fn reconnected(&self) {
        self.reconnected.notified().await;
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    async fn command(
        &self,
        key: &[u8],
        what: RequestKind,
        deadline: Instant,
    ) -> Result<Value, RedisError> {
        self.counters.calls.add_one();
        match &self.servers {
            Servers::Cluster(cluster) => cluster.command(key, &what, deadline).await,
            Servers::Standalone(servers) => servers.lanes.call(what.into(), deadline).await,
            Servers::Sentinel(servers) => servers.lanes.call(what.into(), deadline).await,
        }
    }

    fn account<T>(&self, result: Result<T, RedisError>) -> Result<T, RedisError> {
        if let Err(error) = &result {
            if matches!(error, RedisError::Timeout { .. }) {
                self.counters.timeouts.add_one();
            }
            if error.outcome() == CallEffect::Unknown {
                self.counters.unknown_outcomes.add_one();
            }
        }
        result
    }
}

/// Returns the string of a reply.
fn bytes(reply: Value) -> Result<Bytes, RedisError> {
    match reply {
        Value::BulkString(bytes) => Ok(Bytes::from(bytes)),
        Value::ServerError(error) => Err(RedisError::Refused(ServerErrorReply::from(&error))),
        _ => Err(RedisError::Malformed),
    }
}
