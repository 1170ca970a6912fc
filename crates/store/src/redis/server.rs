//! The calls of a store to Redis, so that the same store runs on a server in the network and on one in the process of a
//! test.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use sluicegate_kernel::{Called, Micros};
use tokio::time::Instant;

use super::{RedisClient, RedisError, ScriptArgs};

/// Redis with the script, as [`RedisStore`](super::RedisStore) calls it: [`RedisClient`] over the network.
///
/// Every call ends by its deadline. [`RedisError::outcome`] tells whether a failed call may have been executed.
pub trait ScriptServer: Debug + Send + Sync {
    /// Returns the deadline of a call that is made now. A decision that takes several calls keeps to one deadline.
    fn deadline(&self) -> Instant;

    /// Returns the error with which a call would be refused now, if that is known before it is made.
    fn refuses(&self) -> Option<RedisError> {
        None
    }

    /// Returns the script's reply to `ask`.
    fn eval(
        &self,
        ask: ScriptArgs,
        deadline: Instant,
    ) -> impl Future<Output = Result<Bytes, RedisError>> + Send;

    /// Returns the script's reply to `ask`, which begins with a debt. The script notes the charged permits at `noted`,
    /// a key in the same slot, and charges the debt once however often it is called.
    fn eval_once(
        &self,
        ask: ScriptArgs,
        noted: &[u8],
        deadline: Instant,
    ) -> impl Future<Output = Result<Bytes, RedisError>> + Send;

    /// Passes to `on_reply` the script's reply to each of `asks`, with its place, as soon as it is there.
    fn eval_each(
        &self,
        asks: Vec<ScriptArgs>,
        deadline: Instant,
        on_reply: &mut (impl FnMut(usize, Result<Bytes, RedisError>) + Send),
    ) -> impl Future<Output = ()> + Send;

    /// Returns the string at `key`; `None` if there is none.
    fn get(
        &self,
        key: &[u8],
        deadline: Instant,
    ) -> impl Future<Output = Result<Option<Bytes>, RedisError>> + Send;

    /// Returns the time of the server that has `key`; `None` if it has no clock of its own.
    fn time(
        &self,
        _key: &[u8],
        _deadline: Instant,
    ) -> impl Future<Output = Result<Option<Micros>, RedisError>> + Send {
        std::future::ready(Ok(None))
    }

    /// Writes `value` at `key`, to be removed after `ttl` (at least a millisecond).
    fn set(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Duration,
        deadline: Instant,
    ) -> impl Future<Output = Result<(), RedisError>> + Send;

    /// Announces waiting requests to the processes that they are of.
    fn announce(&self, _: &[Called]) -> impl Future<Output = Result<(), RedisError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Returns the next waiting requests that are announced.
    fn announced(&self) -> impl Future<Output = Vec<Called>> + Send {
        std::future::pending()
    }
}

impl ScriptServer for RedisClient {
    fn deadline(&self) -> Instant {
        self.deadline()
    }

    fn refuses(&self) -> Option<RedisError> {
        self.refuses()
    }

    async fn eval(&self, ask: ScriptArgs, deadline: Instant) -> Result<Bytes, RedisError> {
        self.eval(ask, deadline).await
    }

    async fn eval_once(
        &self,
        ask: ScriptArgs,
        noted: &[u8],
        deadline: Instant,
    ) -> Result<Bytes, RedisError> {
        self.eval_once(ask, noted, deadline).await
    }

    async fn eval_each(
        &self,
        asks: Vec<ScriptArgs>,
        deadline: Instant,
        on_reply: &mut (impl FnMut(usize, Result<Bytes, RedisError>) + Send),
    ) {
        self.eval_each(asks, deadline, on_reply).await;
    }

    async fn get(&self, key: &[u8], deadline: Instant) -> Result<Option<Bytes>, RedisError> {
        self.get(key, deadline).await
    }

    async fn time(&self, key: &[u8], deadline: Instant) -> Result<Option<Micros>, RedisError> {
        self.time(key, deadline).await.map(Some)
    }

    async fn set(
        &self,
        key: &[u8],
        value: &[u8],
        ttl: Duration,
        deadline: Instant,
    ) -> Result<(), RedisError> {
        self.set(key, value, ttl, deadline).await
    }

    async fn announce(&self, called: &[Called]) -> Result<(), RedisError> {
        self.announce(called).await
    }

    async fn announced(&self) -> Vec<Called> {
        self.announced().await
    }
}
