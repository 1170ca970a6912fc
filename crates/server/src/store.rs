//! The stores that the command line can name. Nobody else in the server knows which one it is.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluicegate::store::redis::codec::Clock;
use sluicegate::store::redis::{ConfigError, RedisConfig, RedisStore, acl, sentinel_acl};
use sluicegate::store::{MemoryStore, Request, Store, StoreError, Verdict};
use sluicegate_kernel::Moment;

use crate::say;

/// Where state is to be kept: `memory`, or the URL of a Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreName {
    /// In this process.
    Memory,
    /// In Redis or Valkey.
    Redis(Box<RedisConfig>),
}

/// Whose clock a store on Redis goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeSource {
    /// Redis' own: one clock for all servers.
    Server,
    /// Each server's, where Redis refuses `TIME`. The state of a key never goes back.
    Client,
}

/// A store that was named.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(Arc<MemoryStore>),
    Redis(RedisStore),
}

impl StoreName {
    /// The store of this name. An error does not repeat what was given: there may be a password in
    /// it.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub(crate) fn parse(name: &str) -> Result<Self, ConfigError> {
        match name {
            "memory" | "memory://" => Ok(Self::Memory),
            url => Ok(Self::Redis(Box::new(config(url)?))),
        }
    }
}

/// `sluicegate redis-acl`.
pub(crate) fn print_acl(url: &str) -> Result<ExitCode> {
    let config = config(url).context("URL")?;
    let mut lines = acl(&config) + "\n";
    if let Some(sentinels) = sentinel_acl(&config) {
        lines += &format!("# for the Sentinels:\n{sentinels}\n");
    }
    say::print(lines.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn config(url: &str) -> Result<RedisConfig, ConfigError> {
    url.parse()
}

impl AnyStore {
    /// The store on this Redis. One that cannot be reached yet is told and waited for.
    pub(crate) async fn open(config: &RedisConfig, time: TimeSource) -> Result<Self> {
        let clock = match time {
            TimeSource::Server => Clock::Server,
            TimeSource::Client => Clock::Client,
        };
        let store = RedisStore::start(config)?.with_clock(clock);
        if let Err(error) = store.ready().await {
            say::note(format_args!(
                "store: {error}; trying again, and until then policies decide by `on_store_failure`"
            ));
        }
        Ok(Self::Redis(store))
    }
}

impl Store for AnyStore {
    async fn decide(&self, request: &Request<'_>, at: &Moment<'_>) -> Result<Verdict, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.decide_now(request, at)?),
            Self::Redis(store) => store.decide(request, at).await,
        }
    }

    #[inline]
    fn decide_at_once(
        &self,
        request: &Request<'_>,
        at: &Moment<'_>,
    ) -> Option<Result<Verdict, StoreError>> {
        match self {
            Self::Memory(store) => store.decide_at_once(request, at),
            Self::Redis(store) => store.decide_at_once(request, at),
        }
    }

    fn expect<'k>(&self, keys: impl Iterator<Item = (&'k str, &'k [u8])>) {
        match self {
            Self::Memory(store) => store.expect(keys),
            Self::Redis(store) => Store::expect(store, keys),
        }
    }
}
