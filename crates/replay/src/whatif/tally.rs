//! What is counted while two sets of policies are compared, in bounded memory.

use std::collections::BTreeMap;

use serde::Serialize;
use sluicegate::Micros;

use crate::logs::GuardedLine;
use crate::summary::keys::{Keys, RefusalCount};

/// Keys that are listed.
const LISTED_MAX: usize = 10;

/// What is counted.
pub(super) struct WhatifTally {
    requests: u64,
    today: u64,
    new: u64,
    newly_refused: u64,
    no_longer_refused: u64,
    /// Lines that no policy guards, today or then.
    pub(super) unguarded: u64,
    /// Lines that were not decided.
    pub(super) errors: u64,
    /// Lines that came too late to be put in order.
    pub(super) late: u64,
    /// Budgets that were forgotten although they were not full.
    pub(super) evicted: u64,
    span: Option<(Micros, Micros)>,
    /// By name: as many as there are in both sets.
    policies: BTreeMap<Box<str>, PolicyTally>,
    refused: Keys,
    passed: Keys,
}

/// What is told at the end.
#[derive(Debug, Serialize)]
pub(super) struct WhatifSummary {
    /// Lines that a policy guards, today or then.
    pub(super) requests: u64,
    pub(super) refused_today: u64,
    pub(super) refused_new: u64,
    /// Refused by the new policies only.
    pub(super) newly_refused: u64,
    /// Refused by today's policies only.
    pub(super) no_longer_refused: u64,
    pub(super) unguarded: u64,
    pub(super) errors: u64,
    pub(super) late: u64,
    pub(super) evicted: u64,
    /// Whether the log was read to its end.
    pub(super) complete: bool,
    pub(super) first_at_us: Option<u64>,
    pub(super) last_at_us: Option<u64>,
    pub(super) policies: Vec<NamedPolicy>,
    pub(super) keys_newly_refused: Vec<AffectedKey>,
    pub(super) keys_no_longer_refused: Vec<AffectedKey>,
    /// By how much the counts of keys may be too high.
    pub(super) keys_excess: u64,
}

/// What became of the requests of one policy.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct PolicyTally {
    pub(super) today: SideCounts,
    pub(super) new: SideCounts,
    pub(super) newly_refused: u64,
    pub(super) no_longer_refused: u64,
}

/// What one set of policies did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct SideCounts {
    pub(super) requests: u64,
    pub(super) refused: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct NamedPolicy {
    pub(super) policy: String,
    #[serde(flatten)]
    pub(super) counts: PolicyTally,
}

#[derive(Debug, Serialize)]
pub(super) struct AffectedKey {
    pub(super) policy: String,
    pub(super) key: Option<String>,
    pub(super) requests: u64,
}

impl WhatifTally {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            requests: 0,
            today: 0,
            new: 0,
            newly_refused: 0,
            no_longer_refused: 0,
            unguarded: 0,
            errors: 0,
            late: 0,
            evicted: 0,
            span: None,
            policies: BTreeMap::new(),
            refused: Keys::new(),
            passed: Keys::new(),
        }
    }

    /// A request of `at` was decided by both: what guards it there, and whether it is refused.
    pub(super) fn decided(
        &mut self,
        at: Micros,
        today: (Option<&GuardedLine>, bool),
        new: (Option<&GuardedLine>, bool),
    ) {
        let first = self.span.map_or(at, |(first, _)| first);
        self.span = Some((first, at));
        self.requests += 1;
        self.today += u64::from(today.1);
        self.new += u64::from(new.1);
        if let Some(guarded) = today.0 {
            let newly = today.1 && !new.1;
            let counts = self.of(guarded);
            counts.today.requests += 1;
            counts.today.refused += u64::from(today.1);
            counts.no_longer_refused += u64::from(newly);
            if newly {
                self.no_longer_refused += 1;
                add(&mut self.passed, guarded);
            }
        }
        if let Some(guarded) = new.0 {
            let newly = new.1 && !today.1;
            let counts = self.of(guarded);
            counts.new.requests += 1;
            counts.new.refused += u64::from(new.1);
            counts.newly_refused += u64::from(newly);
            if newly {
                self.newly_refused += 1;
                add(&mut self.refused, guarded);
            }
        }
    }

    fn of(&mut self, guarded: &GuardedLine) -> &mut PolicyTally {
        let name = guarded.policy.name();
        if !self.policies.contains_key(name) {
            self.policies.insert(name.into(), PolicyTally::default());
        }
        self.policies.get_mut(name).expect("it was put there, if it was not there")
    }

    /// What is told at the end; `complete` is whether the log was read to its end.
    pub(super) fn summary(&self, complete: bool) -> WhatifSummary {
        let named = self.policies.iter();
        let named =
            named.map(|(name, counts)| NamedPolicy { policy: name.to_string(), counts: *counts });
        WhatifSummary {
            requests: self.requests,
            refused_today: self.today,
            refused_new: self.new,
            newly_refused: self.newly_refused,
            no_longer_refused: self.no_longer_refused,
            unguarded: self.unguarded,
            errors: self.errors,
            late: self.late,
            evicted: self.evicted,
            complete,
            first_at_us: self.span.map(|(first, _)| first.get()),
            last_at_us: self.span.map(|(_, last)| last.get()),
            policies: named.collect(),
            keys_newly_refused: most(&self.refused),
            keys_no_longer_refused: most(&self.passed),
            keys_excess: self.refused.refused_excess().max(self.passed.refused_excess()),
        }
    }
}

fn add(keys: &mut Keys, guarded: &GuardedLine) {
    keys.add(guarded.policy.name(), guarded.key().map(str::as_bytes), true);
}

fn most(keys: &Keys) -> Vec<AffectedKey> {
    let affected = |RefusalCount { count, policy, key }: RefusalCount| AffectedKey {
        policy: policy.into(),
        key: key.map(|key| String::from_utf8_lossy(&key).into_owned()),
        requests: count,
    };
    keys.most_refused(LISTED_MAX).into_iter().map(affected).collect()
}
