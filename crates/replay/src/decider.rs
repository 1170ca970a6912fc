//! The engine of a replay, on the store that was named.

use std::sync::Arc;

use anyhow::Result;
use sluicegate::store::MemoryStore;
use sluicegate::store::redis::codec::ScriptClock;
use sluicegate::store::redis::{RedisConfig, RedisStore};
use sluicegate::{Answer, DecideError, Engine, ManualClock, Micros, Request};
use sluicegate_policy::PolicySet;
use tokio::runtime::{Builder, Runtime};

/// Decides one request after the other, in virtual time.
pub(crate) enum Decider {
    Memory(Arc<Engine>),
    Redis(RedisDecider),
}

/// When the first version of the policies was taken over, as states in Redis have it: any time that they
/// can count from. Each later version is a millisecond later.
const VERSIONS_SINCE: Micros = Micros::from_secs(1_800_000_000);

pub(crate) struct RedisDecider {
    engine: Arc<Engine<RedisStore>>,
    runtime: Runtime,
}

impl Decider {
    /// In this process, remembering at most `keys_max` keys.
    pub(crate) fn in_memory(policies: PolicySet, keys_max: usize) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self::Memory(Arc::new(Engine::new(policies, MemoryStore::new(keys_max), clock)))
    }

    /// In Redis, with budgets that no other replay and no server sees.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub(crate) fn in_redis(policies: PolicySet, config: &RedisConfig) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let store = runtime.block_on(async {
            let store = RedisStore::start(config)?.with_clock(ScriptClock::Given);
            store.ready().await?;
            anyhow::Ok(store.in_namespace(&format!("replay-{:016x}", fastrand::u64(..))))
        })?;
        let clock = Arc::new(ManualClock::at(VERSIONS_SINCE));
        let engine = Arc::new(Engine::new(policies, store, clock));
        Ok(Self::Redis(RedisDecider { engine, runtime }))
    }

    /// Decides `request` at `at`.
    pub(crate) fn decide_at(
        &self,
        request: &Request<'_>,
        at: Micros,
    ) -> Result<Answer, DecideError> {
        let decided = match self {
            Self::Memory(engine) => {
                let decided = engine.turn_at(at).try_decide(request);
                decided.expect("what is not held back need not be waited for in memory")
            }
            Self::Redis(redis) => redis.runtime.block_on(redis.engine.turn_at(at).decide(request)),
        };
        decided.map(|admission| admission.answer)
    }

    /// The policies in force.
    pub(crate) fn policies(&self) -> Arc<PolicySet> {
        match self {
            Self::Memory(engine) => engine.policies(),
            Self::Redis(redis) => redis.engine.policies(),
        }
    }

    /// Puts `policies` in force.
    pub(crate) fn set_policies(&self, policies: PolicySet) {
        match self {
            Self::Memory(engine) => engine.set_policies(policies),
            Self::Redis(redis) => redis.engine.set_policies(policies),
        }
    }

    /// Budgets that had to be forgotten although they were not full.
    pub(crate) fn evictions(&self) -> u64 {
        match self {
            Self::Memory(engine) => engine.store().evictions() + engine.store().overflows(),
            // Redis evicts by its own rules, which its `INFO` tells.
            Self::Redis(_) => 0,
        }
    }
}
