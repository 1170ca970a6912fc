//! An engine on a store that leases, by a clock that tests advance.
#![cfg(feature = "engine")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::StoreError;
use sluicegate::{
    Admission, Cost, Engine, LEASE_PATIENCE, ManualClock, Micros, Request, StoreFailure, Verb,
};
use sluicegate_kernel::Moment;
use sluicegate_store::lease::{LeaseReply, Leased, Message};
use sluicegate_store::{Executed, Store, StoreAnswer, StoreRequest};
use tokio::task::{JoinHandle, yield_now};

pub(crate) const POLICIES: &str = "
policies:
  - { name: hot, rules: [ { token_bucket: { rate: 1000/s, burst: 1000 } } ] }
  - { name: small, rules: [ { token_bucket: { rate: 159/s, burst: 159 } } ] }
  - { name: off, leases: off, rules: [ { token_bucket: { rate: 1000/s, burst: 1000 } } ] }
  - { name: half, leases: { max_share: 50%, term: 100ms }, rules: [ { token_bucket: { rate: 1000/s, burst: 1000 } } ] }
  - { name: window, rules: [ { fixed_window: { limit: 1000, window: 1s } } ] }
  - { name: closed, on_store_failure: deny, rules: [ { token_bucket: { rate: 1000/s, burst: 1000 } } ] }
  - { name: held, overflow: { queue: { max_wait: 2s } }, rules: [ { token_bucket: { rate: 1000/s, burst: 1000 } } ] }
  - { name: hour, rules: [ { fixed_window: { limit: 1000, window: 1h } } ] }
  - name: both
    rules:
      - { name: hour, fixed_window: { limit: 1000, window: 1h } }
      - { name: day, fixed_window: { limit: 5000, window: 1day } }
  - { name: jobs, rules: [ { concurrency: { limit: 1000, ttl: 30s } } ] }
";

pub(crate) const START: Micros = Micros::from_secs(1_000_000);

/// A store in this process that leases, by the kernel, and can stop answering.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leasing(pub(crate) Arc<State>);

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) keys: Mutex<HashMap<(String, Vec<u8>), Leased>>,
    pub(crate) is_silent: AtomicBool,
    pub(crate) is_busy: AtomicBool,
    pub(crate) asked: AtomicU64,
    pub(crate) messages: AtomicU64,
    /// The numbers of messages about the key `k`.
    pub(crate) numbers: Mutex<Vec<u32>>,
    /// Time for which the process stands still while the next message is under way.
    pub(crate) stall: Mutex<Option<(Arc<ManualClock>, Micros)>>,
}

impl Leasing {
    fn answers<R>(
        &self,
        request: &StoreRequest<'_>,
        answer: impl FnOnce(&mut Leased) -> R,
    ) -> Result<R, StoreError> {
        if self.0.is_silent.load(Ordering::Relaxed) {
            let reason = "silent".to_owned();
            return Err(StoreError::Unavailable { reason, executed: Executed::Perhaps });
        }
        if self.0.is_busy.load(Ordering::Relaxed) {
            return Err(StoreError::Overloaded { executed: Executed::No });
        }
        let name = (request.policy.to_owned(), request.key.to_vec());
        Ok(answer(self.0.keys.lock().unwrap().entry(name).or_default()))
    }

    /// Leased permits of the hot key of a policy.
    pub(crate) fn held(&self, policy: &str) -> u64 {
        let keys = self.0.keys.lock().unwrap();
        keys.get(&(policy.to_owned(), b"k".to_vec())).map_or(0, |leased| leased.leases.held())
    }
}

impl Store for Leasing {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        let decide = |leased: &mut Leased| request.rules.decide_beside(leased, request.verb, at);
        Ok(self.answers(request, decide)??.into())
    }

    fn leases(&self) -> bool {
        true
    }

    async fn lease(
        &self,
        request: &StoreRequest<'_>,
        message: &Message,
        at: &Moment<'_>,
    ) -> Result<LeaseReply, StoreError> {
        self.0.messages.fetch_add(1, Ordering::Relaxed);
        if request.key == b"k" {
            self.0.numbers.lock().unwrap().push(message.number.0);
        }
        // As over a network: others run meanwhile.
        yield_now().await;
        if let Some((clock, span)) = self.0.stall.lock().unwrap().take() {
            clock.advance(span);
        }
        self.answers(request, |leased| request.rules.lease(leased, message, at))
    }
}

pub(crate) struct World {
    pub(crate) engine: Arc<Engine<Leasing>>,
    pub(crate) store: Leasing,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) keeper: JoinHandle<()>,
}

impl World {
    pub(crate) fn new() -> Self {
        let (store, clock) = (Leasing::default(), Arc::new(ManualClock::at(START)));
        let policies = PolicySet::new(Document::parse(POLICIES).unwrap());
        let engine = Engine::new(policies, store.clone(), Arc::clone(&clock) as _)
            .with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN))
            .with_leases(LEASE_PATIENCE);
        let engine = Arc::new(engine);
        let keeper = Arc::clone(&engine);
        let keeper = tokio::spawn(async move { keeper.keep_leases().await });
        Self { engine, store, clock, keeper }
    }

    /// Returns a world with a hot key of `policy`, and its first permits.
    pub(crate) async fn hot(policy: &str) -> Self {
        let world = Self::new();
        world.settle().await;
        for _ in 0..20 {
            world.check(policy, 1).await;
            world.advance(Micros::from_millis(5)).await;
        }
        world
    }

    pub(crate) async fn check(&self, policy: &str, cost: u64) -> Admission {
        self.ask(policy, Verb::Check { cost: Cost::new(cost).unwrap() }).await
    }

    pub(crate) async fn ask(&self, policy: &str, verb: Verb) -> Admission {
        self.engine.turn().decide(&Request::new(policy, Some(b"k"), verb)).await.unwrap()
    }

    /// Lets all tasks run until none has anything to do.
    pub(crate) async fn settle(&self) {
        for _ in 0..20 {
            yield_now().await;
        }
    }

    pub(crate) async fn advance(&self, span: Micros) {
        self.clock.advance(span);
        self.settle().await;
    }

    pub(crate) fn asked(&self) -> u64 {
        self.store.0.asked.load(Ordering::Relaxed)
    }

    pub(crate) fn messages(&self) -> u64 {
        self.store.0.messages.load(Ordering::Relaxed)
    }

    pub(crate) fn left(&self) -> u32 {
        self.engine.leased_keys().first().map_or(0, |key| key.left)
    }
}
