//! The cost of the engine on top of the store: finding the policy, its rules for the key, the answer.

use std::hint::black_box;
use std::sync::Arc;

use sluicegate::internals::WallClock;
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::MemoryStore;
use sluicegate::{Cost, Engine, Micros, Request, Verb};
use sluicegate_kernel::Moment;
use sluicegate_store::{Quota, RuleOrigin, StoreRequest};

use crate::measure::{Case, Work};

/// One policy whose limit no machine reaches: every check is allowed, and written.
const POLICY: &str =
    "policies: [{ name: orders, rules: [{ token_bucket: { rate: 4294967296/s } }] }]";

const KEY: &[u8] = b"user:0123456789abcde";

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

/// Returns the engine beside the store alone; both get the time as an argument.
///
/// # Errors
/// If the policy cannot be read.
pub fn case() -> anyhow::Result<Case> {
    let policies = PolicySet::new(Document::parse(POLICY)?);
    Ok(Case {
        work: "`Turn::try_decide`, one policy, one key",
        threads: 1,
        peer: Some(("the store alone", store(&policies)?)),
        ours: engine(policies),
        target: None,
    })
}

fn engine(policies: PolicySet) -> Work {
    let engine = Arc::new(Engine::new(policies, MemoryStore::default(), Arc::new(WallClock)));
    Box::new(move |ops| {
        for op in 0..ops {
            let request = Request::new(black_box("orders"), Some(black_box(KEY)), CHECK);
            let decided = engine.turn_at(Micros::new(op)).try_decide(&request);
            black_box(decided.is_some_and(|decided| decided.is_ok()));
        }
    })
}

fn store(policies: &PolicySet) -> anyhow::Result<Work> {
    let policy = policies.resolve("orders").ok_or_else(|| anyhow::anyhow!("no such policy"))?;
    let (rules, store) = (Arc::clone(policy.rules().set()), MemoryStore::default());
    Ok(Box::new(move |ops| {
        for op in 0..ops {
            let (policy, key) = (black_box("orders"), black_box(KEY));
            let request = StoreRequest {
                policy,
                key,
                rules: &rules,
                verb: &CHECK,
                origin: RuleOrigin::default(),
                quota: Quota::of(policy),
            };
            black_box(store.decide_now(&request, &Moment::new(Micros::new(op))).is_ok());
        }
    }))
}
