//! Warnings about valid policies that lock out those who should use them.

use std::collections::{BTreeMap, BTreeSet};

use sluicegate_kernel::{Micros, Rule};
use sluicegate_policy::{KeyOverride, MatchCase, PathMatch, Policy, Rules};

use super::PolicyState;
use super::limits::refill_span;
use crate::error::PlacedFinding;
use sluicegate_policy::finding;

/// Factor from which on a reduced limit causes a warning.
const CUT_MAX: u64 = 10;

/// Maximum number of keys that are named in warnings: a person reads them.
const KEYS_WARNED_MAX: usize = 3;

/// Returns the warnings about `policy` of `app`; `was` is the policy that was enforced until now.
pub(super) fn warnings(
    app: &str,
    was: Option<&Policy>,
    policy: &Policy,
    state: PolicyState,
) -> Vec<PlacedFinding> {
    if state != PolicyState::Active {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    if !policy.admits(Some(app)) {
        let locked_out = finding!(
            "owner_locked_out",
            "the owning app `{app}` is not in `apps` and cannot use the policy",
            app
        );
        warnings.push(PlacedFinding::new("/document/apps", locked_out));
    }
    if policy.says_every_app() && !was.is_some_and(Policy::says_every_app) {
        let open =
            finding!("every_app", "every app can use its budgets and read its keys (`apps`: `*`)");
        warnings.push(PlacedFinding::new("/document/apps", open));
    }
    let is_all = |case: &MatchCase| {
        let conditions = case.conditions();
        let all_paths = match conditions.path() {
            None => true,
            Some(PathMatch::Prefix(path) | PathMatch::StartsWith(path)) => **path == *"/",
            Some(PathMatch::Exact(_)) => false,
        };
        all_paths
            && conditions.hosts().is_empty()
            && conditions.methods().len() == 0
            && case.except().is_empty()
    };
    let guards_all = policy.matcher().is_some_and(|matcher| matcher.cases().iter().any(is_all));
    if guards_all && policy.key().is_empty() {
        let one = finding!("one_budget", "all requests of all clients share one budget");
        warnings.push(PlacedFinding::new("/document/match", one));
    }
    let Some(was) = was else { return warnings };
    match drop_between(was.rules(), policy.rules()) {
        Some(Drop { before, after, is_a_day: false }) => {
            let drops =
                finding!("limit_drops", "the limit drops from {before} to {after}", before, after);
            warnings.push(PlacedFinding::new("/document/rules", drops));
        }
        Some(Drop { before, after, is_a_day: true }) => {
            let fewer = finding!(
                "fewer_a_day",
                "it allows {after} a day instead of {before}",
                before,
                after
            );
            warnings.push(PlacedFinding::new("/document/rules", fewer));
        }
        None => {}
    }
    warnings.extend(key_warnings(was, policy));
    warnings
}

/// Returns warnings about keys whose own limits drop, the first few of them.
fn key_warnings(was: &Policy, policy: &Policy) -> Vec<PlacedFinding> {
    let (own_before, own_after): (BTreeMap<_, _>, BTreeMap<_, _>) =
        (was.overrides().collect(), policy.overrides().collect());
    let drop = |key: &[u8]| {
        let lasting = own_before.get(key).copied().filter(|own| own.until().is_none());
        let after = own_after.get(key).copied();
        if lasting.is_none() && after.is_none() {
            return None;
        }
        // A key could not count on a limit that ends by itself.
        let before = lasting.map_or(was.rules(), KeyOverride::rules);
        drop_between(before, after.map_or(policy.rules(), KeyOverride::rules))
    };
    let keys: BTreeSet<&[u8]> = own_before.keys().chain(own_after.keys()).copied().collect();
    let drops = keys.into_iter().filter_map(|key| drop(key).map(|drop| (key, drop)));
    let warning = |(key, Drop { before, after, is_a_day }): (&[u8], Drop)| {
        let key = String::from_utf8_lossy(key);
        let drops = if is_a_day {
            finding!(
                "key_fewer_a_day",
                "key `{key}` is allowed {after} a day instead of {before}",
                key,
                after,
                before
            )
        } else {
            finding!(
                "key_limit_drops",
                "the limit of key `{key}` drops from {before} to {after}",
                key,
                before,
                after
            )
        };
        PlacedFinding::new("/document/overrides", drops)
    };
    drops.take(KEYS_WARNED_MAX).map(warning).collect()
}

/// A large reduction of a limit.
struct Drop {
    before: u64,
    after: u64,
    /// `true` if the values are what passes in a day, rather than the limit.
    is_a_day: bool,
}

fn drop_between(before: &Rules, after: &Rules) -> Option<Drop> {
    let drop = |before: Option<u64>, after: Option<u64>, is_a_day| {
        let (before, after) = (before?, after?);
        (after.saturating_mul(CUT_MAX) <= before).then_some(Drop { before, after, is_a_day })
    };
    drop(least(before), least(after), false)
        .or_else(|| drop(least_a_day(before), least_a_day(after), true))
}

/// Returns the least of what the limits let pass in a day.
fn least_a_day(rules: &Rules) -> Option<u64> {
    rules.set().rules().iter().filter_map(|named| a_day(&named.rule)).min()
}

/// Returns the permits of a limit in a day; none: it does not recover by itself.
fn a_day(rule: &Rule) -> Option<u64> {
    let of_day = u128::from(rule.limit()) * u128::from(Micros::from_secs(24 * 60 * 60).get());
    let per_day = of_day.checked_div(u128::from(refill_span(rule)?.get()))?;
    Some(u64::try_from(per_day).unwrap_or(u64::MAX))
}

/// Returns the least of the limits.
fn least(rules: &Rules) -> Option<u64> {
    rules.set().rules().iter().map(|named| named.rule.limit()).min()
}
