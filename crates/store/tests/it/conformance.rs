//! The memory store answers every vector of `spec/` as the kernel does.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use sluicegate_conformance::{Subject, load, run};
use sluicegate_kernel::{Moment, RuleSet, Unsupported, Verb, Verdict};
use sluicegate_store::{MemoryStore, Quota, RuleOrigin, StoreRequest};

/// One key of a store.
struct InMemory {
    store: MemoryStore,
    rules: Arc<RuleSet>,
}

impl InMemory {
    fn new(rules: &RuleSet) -> Self {
        Self { store: MemoryStore::default(), rules: Arc::new(rules.clone()) }
    }
}

impl Subject for InMemory {
    fn start(&mut self, rules: &RuleSet) {
        *self = Self::new(rules);
    }

    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        let request = StoreRequest {
            policy: "p",
            key: b"k",
            rules: &self.rules,
            verb,
            origin: RuleOrigin::default(),
            quota: Quota::default(),
        };
        self.store.decide_now(&request, at)
    }

    fn configure(&mut self, rules: &RuleSet) {
        self.rules = Arc::new(rules.clone());
    }
}

#[test]
fn the_memory_store_answers_every_vector() {
    let vectors = load().unwrap();
    assert!(vectors.len() > 50, "only {} vectors", vectors.len());
    let mut subject = InMemory::new(&RuleSet::single("none", any_rule()));
    let problems: Vec<_> = vectors
        .iter()
        .filter_map(|(_, vector)| run(vector, &mut subject).err())
        .map(|problem| problem.to_string())
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Returns a rule for a subject that has not started a vector yet; its kind does not matter.
fn any_rule() -> sluicegate_kernel::Rule {
    let rate = sluicegate_kernel::Rate::per_second(1).unwrap();
    sluicegate_kernel::TokenBucket::new(rate, 1).unwrap().into()
}
