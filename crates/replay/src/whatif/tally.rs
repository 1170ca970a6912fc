//! Counts of a comparison of two sets of policies, in bounded memory.

use std::collections::BTreeMap;

use serde::Serialize;
use sluicegate::Micros;
use sluicegate::internals::gateway::GuardingBudget;

use crate::paths::UnmatchedPaths;
use crate::summary::UndecidedPolicy;
use crate::summary::keys::{Keys, RefusalCount};
use crate::summary::timeline::{RequestFate, TimeBucket, Timeline};

/// Most keys that are listed.
const LISTED_MAX: usize = 10;

/// Most buckets of time: enough for a picture.
const BUCKETS_MAX: usize = 400;

/// The counts of a comparison while it runs.
pub(super) struct WhatifTally {
    requests: u64,
    today: u64,
    new: u64,
    newly_refused: u64,
    no_longer_refused: u64,
    /// Lines that no policy guards, in neither set.
    pub(super) unguarded: u64,
    /// Their paths.
    pub(super) unguarded_paths: UnmatchedPaths,
    /// Policies of the new set that match lines and were not decided, because one was chosen.
    pub(super) undecided: Vec<(String, u64)>,
    /// Number of times that a policy was not decided because too many guard one line.
    pub(super) left_out: u64,
    /// Lines that were not decided.
    pub(super) errors: u64,
    /// Lines that came too late to be put in order.
    pub(super) late: u64,
    /// Budgets that were forgotten although they were not full, and requests without room for a budget of their own.
    pub(super) evicted: u64,
    span: Option<(Micros, Micros)>,
    /// The policies by name: as many as there are in both sets.
    policies: BTreeMap<Box<str>, PolicyTally>,
    refused: Keys,
    passed: Keys,
    timeline_today: Timeline,
    timeline_new: Timeline,
}

/// The decision of one set of policies on a request.
#[derive(Debug, Default)]
pub(super) struct SideVerdict {
    /// The budgets from which the request takes; empty: no policy guards it.
    pub(super) budgets: Vec<GuardingBudget>,
    /// The index of the one that refuses; `None`: the request passes.
    pub(super) refused_by: Option<usize>,
}

/// The summary at the end.
#[derive(Clone, Debug, Serialize)]
pub struct WhatifSummary {
    /// Lines that a policy guards, of either set.
    pub requests: u64,
    /// Refused by today's policies.
    pub refused_today: u64,
    /// Refused by the new policies.
    pub refused_new: u64,
    /// Refused by the new policies only.
    pub newly_refused: u64,
    /// Refused by today's policies only.
    pub no_longer_refused: u64,
    /// Lines that no policy guards, in neither set.
    pub unguarded: u64,
    /// Policies of the new set that match lines and were not decided, because one was chosen.
    pub undecided_policies: Vec<UndecidedPolicy>,
    /// Number of times that a policy was not decided because too many guard one line.
    pub policies_left_out: u64,
    /// Lines that were not decided.
    pub errors: u64,
    /// Lines that came too late to be put in order.
    pub late: u64,
    /// Budgets that were forgotten although they were not full, and requests without room for a budget of their own.
    pub evicted: u64,
    /// The log was read to its end.
    pub complete: bool,
    /// The time of the first request that was decided.
    pub first_at_us: Option<u64>,
    /// The time of the last one.
    pub last_at_us: Option<u64>,
    /// The policies, by name.
    pub policies: Vec<NamedPolicy>,
    /// The keys that are newly refused the most.
    pub keys_newly_refused: Vec<AffectedKey>,
    /// The keys that are no longer refused the most.
    pub keys_no_longer_refused: Vec<AffectedKey>,
    /// The most by which the counts of keys may be too high.
    pub keys_excess: u64,
}

/// The counts of the requests of one policy.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PolicyTally {
    /// By today's policies.
    pub today: SideCounts,
    /// By the new policies.
    pub new: SideCounts,
    /// Refused by the new policies only.
    pub newly_refused: u64,
    /// Refused by today's policies only.
    pub no_longer_refused: u64,
}

/// The counts of one set of policies.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct SideCounts {
    /// Requests that it guards.
    pub requests: u64,
    /// Requests of these that were refused.
    pub refused: u64,
}

/// The counts of the requests of the policy of this name.
#[derive(Clone, Debug, Serialize)]
pub struct NamedPolicy {
    /// The name.
    pub policy: String,
    /// The counts.
    #[serde(flatten)]
    pub counts: PolicyTally,
}

/// A key for which the policies differ.
#[derive(Clone, Debug, Serialize)]
pub struct AffectedKey {
    /// The policy.
    pub policy: String,
    /// The key; `None`: the budget that all share.
    pub key: Option<String>,
    /// Number of its requests that the sets decide differently.
    pub requests: u64,
}

/// The counts over time, in buckets of one width.
#[derive(Clone, Debug)]
pub struct WhatifTimeline {
    /// The width, µs.
    pub bucket_us: u64,
    /// The buckets, at most 400, without gaps.
    pub buckets: Vec<WhatifBucket>,
}

/// The counts of one bucket of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhatifBucket {
    /// Its beginning, µs since the Unix epoch.
    pub at_us: u64,
    /// The counts of today's policies.
    pub today: BucketCounts,
    /// The counts of the new policies.
    pub new: BucketCounts,
}

/// The counts of one set of policies in one bucket of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCounts {
    /// Requests that passed.
    pub allowed: u64,
    /// Requests that were refused.
    pub refused: u64,
}

impl WhatifSummary {
    /// Number of lines of the log, those that were not decided included.
    pub(super) fn lines(&self) -> u64 {
        self.requests + self.unguarded + self.errors
    }
}

impl WhatifTally {
    /// Returns counts of 0.
    pub(super) fn new() -> Self {
        Self {
            requests: 0,
            today: 0,
            new: 0,
            newly_refused: 0,
            no_longer_refused: 0,
            unguarded: 0,
            unguarded_paths: UnmatchedPaths::default(),
            undecided: Vec::new(),
            left_out: 0,
            errors: 0,
            late: 0,
            evicted: 0,
            span: None,
            policies: BTreeMap::new(),
            refused: Keys::new(),
            passed: Keys::new(),
            timeline_today: Timeline::of_seconds(BUCKETS_MAX),
            timeline_new: Timeline::of_seconds(BUCKETS_MAX),
        }
    }

    /// Records that a request came at `at`.
    pub(super) fn arrived(&mut self, at: Micros) {
        self.timeline_today.begin(at);
        self.timeline_new.begin(at);
    }

    /// Counts the request that came at `at`, after both sides have decided it.
    pub(super) fn decided(&mut self, at: Micros, today: &SideVerdict, new: &SideVerdict) {
        let (first, last) = self.span.unwrap_or((at, at));
        self.span = Some((first.min(at), last.max(at)));
        self.requests += 1;
        self.today += u64::from(today.is_refused());
        self.new += u64::from(new.is_refused());
        self.timeline_today.add(at, fate(today.is_refused()));
        self.timeline_new.add(at, fate(new.is_refused()));
        for budget in &today.budgets {
            self.of(budget).today.requests += 1;
        }
        for budget in &new.budgets {
            self.of(budget).new.requests += 1;
        }
        if let Some(by) = today.refusing() {
            let no_longer = !new.is_refused();
            let counts = self.of(by);
            counts.today.refused += 1;
            counts.no_longer_refused += u64::from(no_longer);
            if no_longer {
                self.no_longer_refused += 1;
                add(&mut self.passed, by);
            }
        }
        if let Some(by) = new.refusing() {
            let newly = !today.is_refused();
            let counts = self.of(by);
            counts.new.refused += 1;
            counts.newly_refused += u64::from(newly);
            if newly {
                self.newly_refused += 1;
                add(&mut self.refused, by);
            }
        }
    }

    /// The counts over time.
    pub(super) fn timeline(&self) -> WhatifTimeline {
        // Both have counted the same requests at the same times, so they have the same buckets.
        let both = self.timeline_today.buckets().zip(self.timeline_new.buckets());
        let bucket = |((at, today), (_, new)): ((Micros, TimeBucket), (Micros, TimeBucket))| {
            WhatifBucket { at_us: at.get(), today: counts(today), new: counts(new) }
        };
        let bucket_us = self.timeline_today.width().get();
        WhatifTimeline { bucket_us, buckets: both.map(bucket).collect() }
    }

    fn of(&mut self, budget: &GuardingBudget) -> &mut PolicyTally {
        let name = budget.policy.name();
        if !self.policies.contains_key(name) {
            self.policies.insert(name.into(), PolicyTally::default());
        }
        self.policies.get_mut(name).expect("it was put there, if it was not there")
    }

    /// Returns the summary; `complete`: the log was read to its end.
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
            undecided_policies: self
                .undecided
                .iter()
                .map(|(policy, lines)| UndecidedPolicy::new(policy, *lines))
                .collect(),
            policies_left_out: self.left_out,
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

fn fate(is_refused: bool) -> RequestFate {
    if is_refused { RequestFate::Refused } else { RequestFate::Passed }
}

fn counts(TimeBucket { passed, waited, refused }: TimeBucket) -> BucketCounts {
    BucketCounts { allowed: passed + waited, refused }
}

fn add(keys: &mut Keys, budget: &GuardingBudget) {
    keys.add(budget.policy.name(), budget.key.as_deref(), true);
}

impl SideVerdict {
    fn is_refused(&self) -> bool {
        self.refused_by.is_some()
    }

    /// The budget that refuses.
    fn refusing(&self) -> Option<&GuardingBudget> {
        self.refused_by.and_then(|place| self.budgets.get(place))
    }
}

fn most(keys: &Keys) -> Vec<AffectedKey> {
    let affected = |RefusalCount { count, policy, key }: RefusalCount| AffectedKey {
        policy: policy.into(),
        key: key.map(|key| String::from_utf8_lossy(&key).into_owned()),
        requests: count,
    };
    keys.most_refused(LISTED_MAX).into_iter().map(affected).collect()
}
