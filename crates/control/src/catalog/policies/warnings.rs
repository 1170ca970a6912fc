//! What makes sense, and locks out those whom it is for.

use sluicegate_kernel::{Micros, Rule};
use sluicegate_policy::{PathMatch, Policy};

use super::PolicyState;
use super::limits::refill_span;
use crate::error::PlacedFinding;
use sluicegate_policy::finding;

/// How many times less a limit becomes with a warning.
const CUT_MAX: u64 = 10;

/// Whom `policy` of `app` would lock out; `was` is what held until now.
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
    let guards_all = policy.matcher().is_some_and(|matcher| {
        let all_paths = match matcher.path() {
            None => true,
            Some(PathMatch::Prefix(path)) => **path == *"/",
            Some(PathMatch::Exact(_)) => false,
        };
        all_paths && matcher.methods().len() == 0
    });
    if guards_all && policy.key().is_empty() {
        let one = finding!("one_budget", "all requests of all clients share one budget");
        warnings.push(PlacedFinding::new("/document/match", one));
    }
    if let Some(was) = was {
        let (before, after) = (least(was), least(policy));
        if let (Some(before), Some(after)) = (before, after)
            && after.saturating_mul(CUT_MAX) <= before
        {
            let drops =
                finding!("limit_drops", "the limit drops from {before} to {after}", before, after);
            warnings.push(PlacedFinding::new("/document/rules", drops));
        } else if let (Some(before), Some(after)) = (least_a_day(was), least_a_day(policy))
            && after.saturating_mul(CUT_MAX) <= before
        {
            let fewer = finding!(
                "fewer_a_day",
                "it allows {after} a day instead of {before}",
                before,
                after
            );
            warnings.push(PlacedFinding::new("/document/rules", fewer));
        }
    }
    warnings
}

/// The least of what the limits let pass in a day.
fn least_a_day(policy: &Policy) -> Option<u64> {
    policy.rules().set().rules().iter().filter_map(|named| a_day(&named.rule)).min()
}

/// What a limit lets pass in a day; none: it does not come back by itself.
fn a_day(rule: &Rule) -> Option<u64> {
    let of_day = u128::from(rule.limit()) * u128::from(Micros::from_secs(24 * 60 * 60).get());
    let per_day = of_day.checked_div(u128::from(refill_span(rule)?.get()))?;
    Some(u64::try_from(per_day).unwrap_or(u64::MAX))
}

/// The least of the limits.
fn least(policy: &Policy) -> Option<u64> {
    policy.rules().set().rules().iter().map(|named| named.rule.limit()).min()
}
