//! Limits of policies, for a chart.

use serde::Serialize;
use sluicegate_kernel::algorithm::CalendarUnit;
use sluicegate_kernel::ruleset::NamedRule;
use sluicegate_kernel::{Micros, Moment, Rule};
use utoipa::ToSchema;

use super::PolicyView;
use super::document::read;
use crate::error::Error;

/// One limit of a policy, for keys without an override.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PolicyLimit {
    /// The policy.
    pub policy: String,
    /// The rule.
    pub rule: String,
    /// Permits per second and key over time; null: the rule has no rate.
    pub per_second: Option<f64>,
    /// Permits that a key can use at once.
    pub burst: u64,
}

impl PolicyView {
    /// Returns the limits of the policy.
    ///
    /// # Errors
    /// [`Error::Invalid`], if the document is one of a later version.
    pub fn limits(&self) -> Result<Vec<PolicyLimit>, Error> {
        let policy = read(&self.document)?;
        let limit = |NamedRule { name, rule }: &NamedRule| PolicyLimit {
            policy: self.name.clone(),
            rule: name.to_string(),
            per_second: per_second(rule),
            burst: rule.limit(),
        };
        Ok(policy.rules().set().rules().iter().map(limit).collect())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a chart is drawn with 53 bits")]
fn per_second(rule: &Rule) -> Option<f64> {
    let span = refill_span(rule).filter(|span| *span > Micros::ZERO)?;
    Some(rule.limit() as f64 * 1e6 / span.get() as f64)
}

/// Returns the time after which all of a limit that was used at once can be used again; none: it does not
/// recover by itself.
pub(super) fn refill_span(rule: &Rule) -> Option<Micros> {
    let days = |days: u64| Micros::from_secs(days * 24 * 60 * 60);
    Some(match rule.calendar() {
        Some((CalendarUnit::Day, _)) => days(1),
        Some((CalendarUnit::Week, _)) => days(7),
        Some((CalendarUnit::Month, _)) => days(30),
        Some((CalendarUnit::Year, _)) => days(365),
        None => {
            let begin = Moment::new(Micros::ZERO);
            let used = rule.with_used(rule.limit(), &begin)?;
            rule.status(Some(&used), &begin).reset_after
        }
    })
}
