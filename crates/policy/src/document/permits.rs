//! Fields that have no meaning where rules hand out permits: `acquire` takes those, never a check.

use alloc::format;
use alloc::string::String;

use super::overrides::WrittenOverride;
use crate::attribute::Matcher;
use crate::error::At;
use crate::finding;
use crate::policy::{Overflow, Rules};

/// Fields of a policy that are not possible with a rule that hands out permits: an `acquire` is never held back, and
/// gateways only send checks.
pub(super) struct PermitFields<'p> {
    pub(super) overflow: &'p mut Overflow,
    pub(super) matcher: &'p mut Option<Matcher>,
}

impl PermitFields<'_> {
    /// Reports those that are set, at their policy `at`, if a rule of the policy or of an override hands out permits.
    pub(super) fn check(
        &self,
        rules: &Rules,
        overrides: &[WrittenOverride<'_>],
        at: &At<'_>,
    ) -> Option<()> {
        let Some(rule) = permit_rule(rules, overrides) else { return Some(()) };
        let queues = matches!(self.overflow, Overflow::Queue { .. });
        if queues {
            at.field("overflow").report::<()>(finding!(
                "queue_for_permits",
                "`queue` is not supported with the `concurrency` rule at `{rule}`: `acquire` does not wait; expected \
                 `reject`, `degrade`, `divert` or `shadow`",
                rule
            ));
        }
        let is_matched = self.matcher.is_some();
        if is_matched {
            at.field("match").report::<()>(finding!(
                "match_for_permits",
                "not supported with the `concurrency` rule at `{rule}`: gateways only check requests; remove `match` \
                 and acquire permits in your program, or limit the requests by another rule in a policy of its own",
                rule
            ));
        }
        (!queues && !is_matched).then_some(())
    }

    /// Resets those that are set as if they were absent, if a rule of the policy or of an override hands out permits.
    pub(super) fn drop(self, rules: &Rules, overrides: &[WrittenOverride<'_>]) {
        if permit_rule(rules, overrides).is_none() {
            return;
        }
        if matches!(self.overflow, Overflow::Queue { .. }) {
            *self.overflow = Overflow::default();
        }
        *self.matcher = None;
    }
}

/// The path of the first rule that hands out permits.
fn permit_rule(rules: &Rules, overrides: &[WrittenOverride<'_>]) -> Option<String> {
    let place =
        |rules: &Rules| rules.set().rules().iter().position(|named| named.rule.holds_permits());
    if let Some(place) = place(rules) {
        return Some(format!("rules[{place}]"));
    }
    let of_override = |(at, own): (usize, &WrittenOverride<'_>)| {
        Some(format!("overrides[{at}].rules[{}]", place(own.rules())?))
    };
    overrides.iter().enumerate().find_map(of_override)
}
