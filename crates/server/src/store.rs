//! The stores that a configuration can name, behind one type.

mod fleet;
mod key_errors;
mod outage;
mod status;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use sluicegate::internals::store::redis::codec::ScriptClock;
use sluicegate::internals::store::redis::{
    Fleet, FleetPresence, Publication, PublishError, PublishOutcome, RedisError, Revisions, Stats,
};
use sluicegate::internals::store::{
    Debt, Executed, Permits, PolicyKey, RequestAt, Store, StoreAnswer, StoreRequest, Verdict,
};
use sluicegate::store::redis::{RedisConfig, RedisStore};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate_kernel::lease::Message;
use sluicegate_kernel::{Called, HeldPermits, LeaseReply, Micros, Moment};

use crate::config::TimeSource;
use crate::histogram::{Histogram, Spans};
use crate::trace;
pub(crate) use fleet::{FleetStatus, run as keep_fleet};
use key_errors::KeyErrors;
pub(crate) use outage::log as log_outages;

/// The store that the configuration names.
#[derive(Debug)]
pub(crate) enum AnyStore {
    Memory(Arc<MemoryStore>),
    Redis(Box<RedisBackend>),
}

/// A store on Redis, and its status.
#[derive(Debug)]
pub(crate) struct RedisBackend {
    store: RedisStore,
    /// Its URL without the password.
    name: Box<str>,
    latency: Histogram,
    fleet: FleetStatus,
    /// The number of nodes that share a limit, if it is configured.
    nodes: Option<NonZeroU32>,
    /// Numbers of decisions without an answer: surely not charged, and perhaps charged.
    errors: [AtomicU64; 2],
    /// The problem of the last call without an answer.
    last_error: Mutex<Option<Box<str>>>,
    /// The error with which Redis refused the last note of this server, if Redis refuses writes.
    refusal: Mutex<Option<Box<str>>>,
    /// Redis could not be reached at the start, and the log has a line about that.
    was_away_at_start: bool,
    /// The start of the present outage, and its cause; absent while the store is available.
    away: Mutex<Option<(Micros, Box<str>)>>,
    key_errors: KeyErrors,
}

impl AnyStore {
    /// Opens the store on this Redis, which the log calls `name`. If it cannot be reached yet, logs a
    /// line and goes on connecting.
    pub(crate) async fn open(
        name: String,
        config: &RedisConfig,
        time: TimeSource,
        nodes: Option<NonZeroU32>,
    ) -> Result<Self> {
        let clock = match time {
            TimeSource::Server => ScriptClock::Server,
            TimeSource::Client => ScriptClock::Client,
        };
        let store = RedisStore::start(config)?.with_clock(clock);
        let ready = store.ready().await;
        if let Err(error) = &ready {
            tracing::warn!(
                "store {name}: {error}; retrying, meanwhile falling back to `on_store_failure`"
            );
        }
        Ok(Self::Redis(Box::new(RedisBackend {
            store,
            name: name.into(),
            latency: Histogram::default(),
            fleet: FleetStatus::default(),
            nodes,
            errors: Default::default(),
            last_error: Mutex::default(),
            refusal: Mutex::default(),
            was_away_at_start: ready.is_err(),
            away: Mutex::default(),
            key_errors: KeyErrors::default(),
        })))
    }
}

impl AnyStore {
    /// The store, if it is on Redis.
    pub(crate) const fn on_redis(&self) -> Option<&RedisBackend> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis),
        }
    }
}

impl Store for AnyStore {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        match self {
            Self::Memory(store) => store.decide(request, at).await,
            Self::Redis(redis) => {
                let begun = StoreTimer::now();
                let decided = match trace::within() {
                    None => redis.store.decide(request, at).await,
                    Some(within) => Box::pin(within.store(redis.store.decide(request, at))).await,
                };
                redis.measured(begun, request, decided)
            }
        }
    }

    async fn decide_each(
        &self,
        requests: &[RequestAt<'_>],
        on_answer: &mut (impl FnMut(usize, Result<StoreAnswer, StoreError>) + Send),
    ) {
        match self {
            Self::Memory(store) => store.decide_each(requests, on_answer).await,
            Self::Redis(redis) => {
                let begun = StoreTimer::now();
                let mut hear = |place: usize, decided| {
                    on_answer(place, redis.measured(begun, &requests[place].request, decided));
                };
                redis.store.decide_each(requests, &mut hear).await;
            }
        }
    }

    async fn charge_and_decide(
        &self,
        debt: &Debt,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        match self {
            Self::Memory(store) => store.charge_and_decide(debt, request, at).await,
            Self::Redis(redis) => {
                let begun = StoreTimer::now();
                let charging = Box::pin(redis.store.charge_and_decide(debt, request, at));
                let decided = match trace::within() {
                    None => charging.await,
                    Some(within) => within.store(charging).await,
                };
                redis.measured(begun, request, decided)
            }
        }
    }

    async fn held(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<HeldPermits, StoreError> {
        match self {
            Self::Memory(store) => store.held(request, at).await,
            Self::Redis(redis) => {
                let begun = StoreTimer::now();
                redis.measured(begun, request, redis.store.held(request, at).await)
            }
        }
    }

    async fn announce(&self, called: &[Called]) {
        if let Self::Redis(redis) = self {
            redis.store.announce(called).await;
        }
    }

    async fn announced(&self) -> Vec<Called> {
        match self {
            Self::Memory(_) => std::future::pending().await,
            Self::Redis(redis) => redis.store.announced().await,
        }
    }

    fn leases(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Redis(redis) => redis.store.leases(),
        }
    }

    async fn lease(
        &self,
        request: &StoreRequest<'_>,
        message: &Message,
        at: &Moment<'_>,
    ) -> Result<LeaseReply, StoreError> {
        match self {
            Self::Memory(store) => store.lease(request, message, at).await,
            Self::Redis(redis) => {
                let begun = StoreTimer::now();
                redis.measured(begun, request, redis.store.lease(request, message, at).await)
            }
        }
    }

    #[inline]
    fn decide_at_once(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Option<Result<Verdict, StoreError>> {
        match self {
            Self::Memory(store) => store.decide_at_once(request, at),
            Self::Redis(redis) => redis.store.decide_at_once(request, at),
        }
    }

    fn prefetch<'k>(&self, keys: impl Iterator<Item = PolicyKey<'k>>) {
        match self {
            Self::Memory(store) => store.prefetch(keys),
            Self::Redis(redis) => Store::prefetch(&redis.store, keys),
        }
    }
}

/// The start of a call of the store.
#[derive(Clone, Copy)]
struct StoreTimer(Instant);

impl StoreTimer {
    #[expect(clippy::disallowed_methods, reason = "a span is measured, nothing is decided by it")]
    fn now() -> Self {
        Self(Instant::now())
    }
}

impl RedisBackend {
    /// Records the error of `decided` and the time since `begun`, and returns `decided`.
    fn measured<T>(
        &self,
        begun: StoreTimer,
        request: &StoreRequest<'_>,
        decided: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let took = begun.0.elapsed();
        self.latency.record(took);
        match &decided {
            Err(StoreError::Unavailable { executed, reason }) => {
                self.errors[usize::from(*executed == Executed::Perhaps)].fetch_add(1, Relaxed);
                self.failed(reason);
            }
            Err(StoreError::Unreadable { reason }) => {
                self.key_errors.record(&self.name, request, reason, begun.0 + took);
            }
            _ => {}
        }
        decided
    }

    /// Keeps the problem of a call without an answer.
    fn failed(&self, reason: &str) {
        let mut last = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_deref() != Some(reason) {
            *last = Some(reason.into());
        }
    }

    /// Its URL without the password.
    pub(crate) const fn name(&self) -> &str {
        &self.name
    }

    /// The problem of the last call without an answer.
    pub(crate) fn last_error(&self) -> Option<Box<str>> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes policies in this Redis.
    ///
    /// # Errors
    /// [`PublishError`].
    pub(crate) async fn publish(
        &self,
        publication: &Publication<'_>,
    ) -> Result<PublishOutcome, PublishError> {
        let nodes = self.nodes.map(NonZeroU32::get);
        self.store.publish(&Publication { nodes, ..*publication }).await
    }

    /// The revisions that others publish in this Redis.
    pub(crate) fn revisions(&self) -> Revisions {
        self.store.revisions()
    }

    /// Records that this server is alive. Returns the servers that are.
    ///
    /// # Errors
    /// [`RedisError`] if there is no answer.
    pub(crate) async fn record_presence(
        &self,
        presence: &mut FleetPresence,
        now: Micros,
    ) -> Result<Fleet, RedisError> {
        let recorded = self.store.record_presence(presence, now).await;
        let refusal = match &recorded {
            Ok(_) => None,
            Err(error) => {
                self.failed(&error.to_string());
                let RedisError::Refused(reply) = error else { return recorded };
                reply.means_no_writes().then(|| error.to_string().into())
            }
        };
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
        recorded
    }

    /// Records that this server stops.
    ///
    /// # Errors
    /// [`RedisError`] if there is no answer.
    pub(crate) async fn record_leave(
        &self,
        presence: &FleetPresence,
        now: Micros,
    ) -> Result<(), RedisError> {
        self.store.record_leave(presence, now).await
    }

    /// Returns as soon as a lost connection has been replaced.
    pub(crate) async fn reconnected(&self) {
        self.store.reconnected().await;
    }

    /// The status of the servers that share this store.
    pub(crate) const fn fleet(&self) -> &FleetStatus {
        &self.fleet
    }

    /// Statistics of the client.
    pub(crate) fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// The durations of calls.
    pub(crate) fn latency(&self) -> Spans {
        let mut spans = Spans::default();
        self.latency.add_to(&mut spans);
        spans
    }

    /// Numbers of decisions without an answer: surely not charged, and perhaps charged.
    pub(crate) fn errors(&self) -> [u64; 2] {
        self.errors.each_ref().map(|errors| errors.load(Relaxed))
    }

    /// The number of calls that were answered by an error about their key alone.
    pub(crate) fn key_errors(&self) -> u64 {
        self.key_errors.total()
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::internals::store::{Quota, RuleOrigin};
    use sluicegate::policy::{Document, PolicySet};
    use sluicegate::{Cost, PermitId, Verb};
    use sluicegate_kernel::ProcessId;

    use super::*;

    #[tokio::test]
    async fn an_answer_of_the_memory_store_calls_the_next_in_line() {
        let document =
            "policies: [{ name: jobs, rules: [{ concurrency: { limit: 1, ttl: 1m, queue: 9 } }] }]";
        let policies = PolicySet::new(Document::parse(document).expect("it is a document"));
        let policy = policies.resolve("jobs").expect("it is there");
        let store = AnyStore::Memory(Arc::default());
        let (cost, process) = (Cost::ONE, ProcessId(7));
        let [first, second] = [PermitId(1), PermitId(2)];
        let mut called = Vec::new();
        for verb in [
            Verb::Acquire { cost, permit: first },
            Verb::Wait { cost, permit: second, process },
            Verb::Release { permit: first },
        ] {
            let rules = policy.rules().set();
            let request = StoreRequest {
                policy: "jobs",
                key: b"k",
                rules,
                verb: &verb,
                origin: RuleOrigin::default(),
                quota: Quota::default(),
            };
            let answer = store.decide(&request, &Moment::new(Micros::SECOND)).await;
            called = answer.expect("it knows them").called;
        }
        assert_eq!(called, [Called { permit: second, process }]);
    }
}
