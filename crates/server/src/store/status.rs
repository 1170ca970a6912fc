//! The store as operators see it: its URL, whether it is available, and since when it is away.

use std::sync::PoisonError;

use futures_util::FutureExt;
use serde::Serialize;
use sluicegate_kernel::Micros;

use super::{AnyStore, RedisBackend};

/// The answer to `/v1/store`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StoreStatus {
    /// `memory`, or the URL without the password.
    store: String,
    available: bool,
    /// The time when the store was first seen away, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    /// The reason why the store is away.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl AnyStore {
    /// The state at the last look, at most a tenth of a second ago.
    pub(crate) fn status(&self) -> StoreStatus {
        let Some(redis) = self.on_redis() else {
            let store = "memory".to_owned();
            return StoreStatus { store, available: true, since_ms: None, error: None };
        };
        let away = redis.away.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let since_ms = away.as_ref().map(|(since, _)| since.get() / 1_000);
        StoreStatus {
            store: redis.name.to_string(),
            available: away.is_none(),
            since_ms,
            error: away.map(|(_, error)| error.into()),
        }
    }
}

impl RedisBackend {
    /// Checks at `now` whether the store is available: there is a connection, it takes writes, and decisions are made
    /// by it. Returns the reason why it is away, if it is.
    pub(super) fn look(&self, is_without_store: bool, now: Micros) -> Option<Box<str>> {
        // Without waiting: a first attempt that is still under way says nothing.
        let no_connection = self.store.ready().now_or_never().and_then(Result::err);
        let refusal = || self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let error: Option<Box<str>> = match (no_connection, is_without_store) {
            (Some(error), _) => Some(error.to_string().into()),
            (None, true) => Some(self.last_error().unwrap_or_else(|| "no answer".into())),
            (None, false) => refusal(),
        };
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let since = away.as_ref().map_or(now, |(since, _)| *since);
        *away = error.clone().map(|error| (since, error));
        error
    }
}
