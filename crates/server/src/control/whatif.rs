//! Comparisons of draft policies on logs, for the admin API.

use std::io::Cursor;

use sluicegate_control::api::{
    BucketCounts, ComparedBucket, ComparedCounts, ComparedKey, ComparedPolicy, ComparedTimeline,
    ComparedUndecided, Comparison, ToCompare, WhatIf, WhatIfError,
};
use sluicegate_replay::ClientArgs;
use sluicegate_replay::error::GuardError;
use sluicegate_replay::whatif::{
    self, AffectedKey, CompareError, CompareOptions, LogComparison, NamedPolicy, PolicyTally,
    REORDER_DEFAULT, ReadLimits, SideCounts, UndecidedPolicy, WhatifBucket, WhatifSummary,
    WhatifTimeline, compare_log,
};

/// Maximum size of a log, inflated, bytes.
const LOG_BYTES_MAX: u64 = 256 << 20;

/// Maximum number of lines of a log.
const LOG_LINES_MAX: u64 = 1_000_000;

/// Comparisons in this process, with budgets of their own.
#[derive(Debug)]
pub(super) struct ReplayWhatIf;

impl WhatIf for ReplayWhatIf {
    fn compare(&self, question: ToCompare) -> Result<Comparison, WhatIfError> {
        let ToCompare { today, draft, policy, key, log, is_over } = question;
        let clients = ClientArgs::default();
        let options = CompareOptions { policy, key, clients, reorder: REORDER_DEFAULT };
        let limits = ReadLimits { bytes_max: LOG_BYTES_MAX, lines_max: LOG_LINES_MAX, is_over };
        let compared = compare_log(Cursor::new(log), today, draft, &options, &limits);
        compared.map(comparison).map_err(problem)
    }
}

fn problem(error: CompareError) -> WhatIfError {
    match error {
        CompareError::Events => WhatIfError::Events,
        CompareError::Read(error) => WhatIfError::Unreadable(error.to_string()),
        CompareError::UnknownPolicy { name, .. }
        | CompareError::Today(GuardError::UnknownPolicy { name, .. })
        | CompareError::New(GuardError::UnknownPolicy { name, .. }) => {
            WhatIfError::UnknownPolicy(name)
        }
        CompareError::Today(GuardError::PolicyMissing(count))
        | CompareError::New(GuardError::PolicyMissing(count)) => WhatIfError::PolicyMissing(count),
        CompareError::Today(GuardError::NotLogged(attribute))
        | CompareError::New(GuardError::NotLogged(attribute)) => {
            WhatIfError::NotLogged(attribute.to_string())
        }
    }
}

fn comparison(LogComparison { summary, timeline }: LogComparison) -> Comparison {
    let WhatifSummary {
        requests,
        refused_today,
        refused_new,
        newly_refused,
        no_longer_refused,
        unguarded,
        undecided_policies,
        policies_left_out,
        errors,
        late,
        evicted,
        complete,
        first_at_us,
        last_at_us,
        policies,
        keys_newly_refused,
        keys_no_longer_refused,
        keys_excess,
    } = summary;
    let WhatifTimeline { bucket_us, buckets } = timeline;
    let buckets = buckets.into_iter().map(bucket).collect();
    let undecided = |UndecidedPolicy { policy, lines }| ComparedUndecided { policy, lines };
    Comparison {
        undecided_policies: undecided_policies.into_iter().map(undecided).collect(),
        policies_left_out,
        requests,
        refused_today,
        refused_new,
        newly_refused,
        no_longer_refused,
        unguarded,
        errors,
        late,
        evicted,
        complete,
        first_at_us,
        last_at_us,
        policies: policies.into_iter().map(compared_policy).collect(),
        keys_newly_refused: keys_newly_refused.into_iter().map(key).collect(),
        keys_no_longer_refused: keys_no_longer_refused.into_iter().map(key).collect(),
        keys_excess,
        timeline: ComparedTimeline { bucket_us, buckets },
    }
}

fn compared_policy(NamedPolicy { policy, counts }: NamedPolicy) -> ComparedPolicy {
    let PolicyTally { today, new, newly_refused, no_longer_refused } = counts;
    let counts = |SideCounts { requests, refused }| ComparedCounts { requests, refused };
    let (today, new) = (counts(today), counts(new));
    ComparedPolicy { policy, today, new, newly_refused, no_longer_refused }
}

fn key(AffectedKey { policy, key, requests }: AffectedKey) -> ComparedKey {
    ComparedKey { policy, key, requests }
}

fn bucket(WhatifBucket { at_us, today, new }: WhatifBucket) -> ComparedBucket {
    let counts = |whatif::BucketCounts { allowed, refused }| BucketCounts { allowed, refused };
    ComparedBucket { at_us, today: counts(today), new: counts(new) }
}
