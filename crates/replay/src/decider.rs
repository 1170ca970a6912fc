//! The engine of a replay, on the configured store.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::Result;
use sluicegate::internals::gateway::{self, GuardingBudget, PolicyDecision};
use sluicegate::internals::store::Store;
use sluicegate::internals::store::redis::codec::ScriptClock;
use sluicegate::store::MemoryStore;
use sluicegate::store::redis::{RedisConfig, RedisStore};
use sluicegate::{Admission, Clock, DecideError, Engine, Micros, Request, Turn};
use sluicegate_policy::PolicySet;
use tokio::runtime::{Builder, Runtime};

use super::request::StreamedRequest;

/// An engine that decides requests in virtual time.
pub(crate) struct Decider {
    clock: Arc<VirtualClock>,
    engine: StoredEngine,
    runtime: Runtime,
}

enum StoredEngine {
    Memory(Arc<Engine>),
    Redis(Arc<Engine<RedisStore>>),
}

/// The pending decision on a gateway's request, which may be delayed.
pub(crate) type Deciding = Pin<Box<dyn Future<Output = Result<Vec<PolicyDecision>, DecideError>>>>;

/// The progress of a gateway's request.
pub(crate) enum Progressed {
    /// Its decision.
    Decided(Result<Vec<PolicyDecision>, DecideError>),
    /// The request is delayed until then.
    HeldUntil(Micros),
}

/// The clock of an engine whose time is that of the input. It keeps the next instant for which a delayed request waits.
#[derive(Debug)]
struct VirtualClock {
    now: AtomicU64,
    /// `u64::MAX`: none.
    wanted: AtomicU64,
}

/// The instant at which the first version of the policies was taken over, for states in Redis: any instant from
/// which they can count. Each later version is a millisecond later.
const VERSIONS_SINCE: Micros = Micros::from_secs(1_800_000_000);

/// Longest wait of a decision for the reply of Redis: virtual time has no deadline, and a missing decision
/// changes all that follow.
const REPLY_MAX: Duration = Duration::from_secs(10);

impl Decider {
    /// Returns a decider in this process that remembers at most `keys_max` keys.
    pub(crate) fn in_memory(policies: PolicySet, keys_max: usize) -> Self {
        let clock = Arc::new(VirtualClock::at(Micros::ZERO));
        let engine = Engine::new(policies, MemoryStore::new(keys_max), clock.clone());
        // Nothing waits for IO; permits that a refused request took of other policies go back in a task.
        let runtime = Builder::new_current_thread().build().expect("a runtime without IO");
        Self { clock, engine: StoredEngine::Memory(Arc::new(engine)), runtime }
    }

    /// Returns a decider in Redis, with budgets that no other replay and no server sees.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub(crate) fn in_redis(policies: PolicySet, config: &RedisConfig) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let store = runtime.block_on(async {
            let config = config.clone().with_deadline(REPLY_MAX);
            let store = RedisStore::start(&config)?.with_clock(ScriptClock::Given);
            store.ready().await?;
            anyhow::Ok(store.in_namespace(&format!("replay-{:016x}", fastrand::u64(..))))
        })?;
        let clock = Arc::new(VirtualClock::at(VERSIONS_SINCE));
        let engine = Arc::new(Engine::new(policies, store, clock.clone()));
        Ok(Self { clock, engine: StoredEngine::Redis(engine), runtime })
    }

    /// Decides `request` at `at`, and never delays it.
    pub(crate) fn decide_at(
        &self,
        request: &Request<'_>,
        at: Micros,
    ) -> Result<Admission, DecideError> {
        match &self.engine {
            StoredEngine::Memory(engine) => {
                let decided = engine.turn_at(at).try_decide(request);
                decided.expect("what is not held back need not be waited for in memory")
            }
            StoredEngine::Redis(engine) => {
                self.runtime.block_on(engine.turn_at(at).decide(request))
            }
        }
    }

    /// Checks that `request` can be decided, without the store: no time passes there.
    pub(crate) fn check(&self, request: &Request<'_>, at: Micros) -> Result<(), DecideError> {
        match &self.engine {
            StoredEngine::Memory(engine) => engine.turn_at(at).check(request),
            StoredEngine::Redis(engine) => engine.turn_at(at).check(request),
        }
    }

    /// Returns a gateway's request that takes a permit from each of `budgets` at `at`: to be moved on by
    /// [`progress`](Self::progress).
    pub(crate) fn ask_as_gateway(&self, budgets: Vec<GuardingBudget>, at: Micros) -> Deciding {
        match &self.engine {
            StoredEngine::Memory(engine) => {
                let engine = Arc::clone(engine);
                Box::pin(async move { gateway::decide(&engine.turn_at(at), &budgets, None).await })
            }
            StoredEngine::Redis(engine) => {
                let engine = Arc::clone(engine);
                Box::pin(async move { gateway::decide(&engine.turn_at(at), &budgets, None).await })
            }
        }
    }

    /// Returns a request of a server, decided again at `at`: to be moved on by [`progress`](Self::progress).
    pub(crate) fn ask_again(&self, request: StreamedRequest, at: Micros) -> Deciding {
        match &self.engine {
            StoredEngine::Memory(engine) => {
                let engine = Arc::clone(engine);
                Box::pin(async move { decide_again(&engine.turn_at(at), &request).await })
            }
            StoredEngine::Redis(engine) => {
                let engine = Arc::clone(engine);
                Box::pin(async move { decide_again(&engine.turn_at(at), &request).await })
            }
        }
    }

    /// Moves a request of a gateway on at `now`, until it is decided or delayed.
    pub(crate) fn progress(&self, deciding: &mut Deciding, now: Micros) -> Progressed {
        self.clock.set(now);
        let entered = self.runtime.enter();
        let at_once = deciding.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(entered);
        if let Poll::Ready(decided) = at_once {
            return Progressed::Decided(decided);
        }
        if let Some(until) = self.clock.wanted() {
            return Progressed::HeldUntil(until);
        }
        // It waits for the store, or for the return of permits that it took.
        self.runtime.block_on(std::future::poll_fn(|cx| {
            if let Poll::Ready(decided) = deciding.as_mut().poll(cx) {
                return Poll::Ready(Progressed::Decided(decided));
            }
            self.clock
                .wanted()
                .map_or(Poll::Pending, |until| Poll::Ready(Progressed::HeldUntil(until)))
        }))
    }

    /// The policies in force.
    pub(crate) fn policies(&self) -> Arc<PolicySet> {
        match &self.engine {
            StoredEngine::Memory(engine) => engine.policies(),
            StoredEngine::Redis(engine) => engine.policies(),
        }
    }

    /// Puts `policies` in force.
    pub(crate) fn set_policies(&self, policies: PolicySet) {
        match &self.engine {
            StoredEngine::Memory(engine) => engine.set_policies(policies),
            StoredEngine::Redis(engine) => engine.set_policies(policies),
        }
    }

    /// Number of budgets that were forgotten although they were not full, and of requests without room for a budget
    /// of their own.
    pub(crate) fn evictions(&self) -> u64 {
        match &self.engine {
            StoredEngine::Memory(engine) => engine.store().evictions() + engine.store().overflows(),
            // Redis evicts by its own rules, which its `INFO` reports.
            StoredEngine::Redis(_) => 0,
        }
    }
}

async fn decide_again<S: Store + 'static>(
    turn: &Turn<'_, S>,
    streamed: &StreamedRequest,
) -> Result<Vec<PolicyDecision>, DecideError> {
    let StreamedRequest { policy, key, verb, patience, .. } = streamed;
    let request = Request::new(policy, key.as_deref().map(str::as_bytes), verb.clone());
    let admission = turn.decide(&request.with_patience(*patience)).await?;
    let policy = turn.policies().resolve(policy);
    let policy = policy.ok_or_else(|| DecideError::UnknownPolicy(streamed.policy.clone()))?;
    let key = key.as_ref().map(|key| key.as_bytes().to_vec());
    Ok(vec![PolicyDecision { policy: Arc::clone(policy), key, admission }])
}

impl VirtualClock {
    fn at(now: Micros) -> Self {
        Self { now: AtomicU64::new(now.get()), wanted: AtomicU64::new(u64::MAX) }
    }

    /// Moves to `now`, and forgets the instant for which a request waited.
    fn set(&self, now: Micros) {
        self.now.store(now.get(), Ordering::Relaxed);
        self.wanted.store(u64::MAX, Ordering::Relaxed);
    }

    /// The first instant for which a request has waited since the clock was set.
    fn wanted(&self) -> Option<Micros> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        (wanted != u64::MAX).then_some(Micros::new(wanted))
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Micros {
        Micros::new(self.now.load(Ordering::Relaxed))
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn wake_at(&self, at: Micros, _: &Waker) -> bool {
        self.wanted.fetch_min(at.get(), Ordering::Relaxed);
        true
    }
}
