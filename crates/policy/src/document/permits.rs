//! Fields that have no meaning where rules hand out permits: `acquire` takes those, never a check.

use alloc::format;
use alloc::string::String;

use sluicegate_kernel::Rule;

use super::overrides::WrittenOverride;
use crate::attribute::Matcher;
use crate::error::At;
use crate::finding;
use crate::policy::{Overflow, Rules};

/// Fields of a policy that are not possible with a rule that hands out permits: an `acquire` waits in the queue of a rule,
/// and gateways that ask for all policies of a request hold no permits.
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
        let Some(rule) = permit_rule(rules, overrides, |_| true) else { return Some(()) };
        let without_queue = self.without_queue(rules, overrides);
        let queues = without_queue.is_some();
        if let Some(rule) = without_queue {
            at.field("overflow").report::<()>(finding!(
                "queue_for_permits",
                "`queue` needs a queue at the `concurrency` rule at `{rule}`, whose `queue` is 0; expected `queue: 1` to \
                 `queue: 10000` there, or `reject`, `degrade`, `divert` or `shadow` here",
                rule
            ));
        }
        let is_matched = self.matcher.is_some();
        if is_matched {
            at.field("match").report::<()>(finding!(
                "match_for_permits",
                "not supported with the `concurrency` rule at `{rule}`: gateways that ask for all policies hold \
                 no permits; remove `match`, and have the gateway name the policy or acquire permits in your program, or \
                 limit the requests by another rule in a policy of its own",
                rule
            ));
        }
        (!queues && !is_matched).then_some(())
    }

    /// The path of the first rule that hands out permits and has no queue, if requests are to wait.
    fn without_queue(&self, rules: &Rules, overrides: &[WrittenOverride<'_>]) -> Option<String> {
        let has_none = |rule: &Rule| matches!(rule, Rule::Concurrency(rule) if rule.queue() == 0);
        let waits = matches!(self.overflow, Overflow::Queue { .. });
        if waits { permit_rule(rules, overrides, has_none) } else { None }
    }

    /// Resets those that are set as if they were absent, if a rule of the policy or of an override hands out permits.
    pub(super) fn drop(self, rules: &Rules, overrides: &[WrittenOverride<'_>]) {
        if permit_rule(rules, overrides, |_| true).is_none() {
            return;
        }
        if self.without_queue(rules, overrides).is_some() {
            *self.overflow = Overflow::default();
        }
        *self.matcher = None;
    }
}

/// The path of the first rule that hands out permits and of which `is_meant` is true.
fn permit_rule(
    rules: &Rules,
    overrides: &[WrittenOverride<'_>],
    is_meant: impl Fn(&Rule) -> bool,
) -> Option<String> {
    let place = |rules: &Rules| {
        let mut all = rules.set().rules().iter().map(|named| &named.rule);
        all.position(|rule| rule.holds_permits() && is_meant(rule))
    };
    if let Some(place) = place(rules) {
        return Some(format!("rules[{place}]"));
    }
    let of_override = |(at, own): (usize, &WrittenOverride<'_>)| {
        Some(format!("overrides[{at}].rules[{}]", place(own.rules())?))
    };
    overrides.iter().enumerate().find_map(of_override)
}
