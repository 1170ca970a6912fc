//! What makes sense, and locks out those whom it is for.

use sluicegate_policy::{PathMatch, Policy};

use super::State;

/// How many times less a limit becomes with a warning.
const CUT_MAX: u64 = 10;

/// Whom `policy` of `app` would lock out; `was` is what held until now.
pub(super) fn warnings(
    app: &str,
    was: Option<&Policy>,
    (policy, state): (&Policy, State),
) -> Vec<String> {
    if state != State::Active {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    if !policy.admits(Some(app)) {
        warnings.push(format!("its own app `{app}` may not use it"));
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
        warnings.push("every request of every client shares one budget".to_owned());
    }
    if let Some(was) = was {
        let (before, after) = (least(was), least(policy));
        if let (Some(before), Some(after)) = (before, after)
            && after.saturating_mul(CUT_MAX) <= before
        {
            warnings.push(format!("its limit of {before} becomes {after}"));
        }
    }
    warnings
}

/// The least of the limits.
fn least(policy: &Policy) -> Option<u64> {
    policy.rules().set().rules().iter().map(|named| named.rule.limit()).min()
}
