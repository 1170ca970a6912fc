//! The cost of a decision from a lease, beside one on the memory store: policy, key and answer included, and the steady
//! clock by which a lease ends.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::{Cost, Engine, LEASE_PATIENCE, Micros, Mode, Request, SteadyClock, Verb};
use sluicegate_kernel::Moment;
use sluicegate_store::lease::{LeaseReply, Leased, Message};
use sluicegate_store::{Store, StoreAnswer, StoreRequest};

use crate::measure::{Case, Work};

/// One policy whose limit no machine reaches.
const POLICY: &str =
    "policies: [{ name: orders, rules: [{ token_bucket: { rate: 4294967296/s } }] }]";

const KEY: &[u8] = b"user:0123456789abcde";

/// The time of every decision: it is given, as where one reading of the clock is one turn.
const NOW: Micros = Micros::from_secs(1_770_000_000);

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

/// A store of one key that leases, in this process.
#[derive(Debug, Default)]
struct OneKey(Mutex<Leased>);

impl Store for OneKey {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let mut leased = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(request.rules.decide_beside(&mut leased, request.verb, at)?.into())
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
        let mut leased = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(request.rules.lease(&mut leased, message, at))
    }
}

/// A leased decision by one thread, and by two on one key.
///
/// # Errors
/// If the policy cannot be read, or the key does not become hot.
pub fn cases() -> anyhow::Result<Vec<Case>> {
    let case = |work, threads| -> anyhow::Result<Case> {
        let peer = Some(("on the memory store", in_memory()?));
        Ok(Case { work, threads, peer, ours: leased()?, target: None })
    };
    Ok(vec![
        case("lease: `Turn::try_decide` of a leased key", 1)?,
        case("lease: the same, two threads on one key", 2)?,
    ])
}

fn leased() -> anyhow::Result<Work> {
    let policies = PolicySet::new(Document::parse(POLICY)?);
    let engine = Engine::new(policies, OneKey::default(), Arc::new(SteadyClock::new()));
    let engine = Arc::new(engine.with_leases(LEASE_PATIENCE));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    let keeper = Arc::clone(&engine);
    runtime.spawn(async move { keeper.keep_leases().await });
    let mode = runtime.block_on(async {
        let request = Request::new("orders", Some(KEY), CHECK);
        for _ in 0..1_000 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            if engine.turn().decide(&request).await?.answer.mode == Mode::Leased {
                return anyhow::Ok(Mode::Leased);
            }
        }
        Ok(Mode::Store)
    })?;
    anyhow::ensure!(mode == Mode::Leased, "the key is not leased");
    Ok(Box::new(move |ops| {
        // The runtime ends with the work.
        let _runtime = &runtime;
        for _ in 0..ops {
            let request = Request::new(black_box("orders"), Some(black_box(KEY)), CHECK);
            // Without permits, a message is under way.
            while black_box(engine.turn_at(NOW).try_decide(&request).is_none()) {
                runtime.block_on(async { engine.turn().decide(&request).await }).ok();
            }
        }
    }))
}

fn in_memory() -> anyhow::Result<Work> {
    let policies = PolicySet::new(Document::parse(POLICY)?);
    let engine =
        Arc::new(Engine::new(policies, MemoryStore::default(), Arc::new(SteadyClock::new())));
    Ok(Box::new(move |ops| {
        for _ in 0..ops {
            let request = Request::new(black_box("orders"), Some(black_box(KEY)), CHECK);
            black_box(engine.turn_at(NOW).try_decide(&request).is_some());
        }
    }))
}
