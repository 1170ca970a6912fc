//! Decisions on descriptors, and their statuses.

use prost_types::Duration;
use sluicegate::internals::http::headers::window_s;
use sluicegate::{Admission, Answer, Decision, Disposition, Micros, Rule};
use sluicegate_kernel::algorithm::CalendarUnit;
use sluicegate_policy::Fallback;

use super::limit::UNITS;
use super::request::{BudgetRequest, ZeroLimit};
use crate::wire::rls::proto::{Code, DescriptorStatus, RateLimit, Unit};

/// The decision on a budget.
#[derive(Clone, Debug)]
pub(in crate::wire::rls) struct BudgetDecision<'a> {
    /// The name of the limit; may be empty.
    pub(super) name: &'a str,
    pub(super) answer: Answer,
    pub(super) way: Disposition,
    quota: bool,
}

/// The answer for a descriptor that has a limit.
#[derive(Clone, Debug)]
pub(super) enum Limited<'a> {
    /// The budget decided.
    Decided(BudgetDecision<'a>),
    /// The limit is zero, in a window that lasts for so long yet.
    Zero(ZeroLimit<'a>, Micros),
}

/// Returns whether a request that goes this `way` is answered with OVER_LIMIT.
pub(in crate::wire::rls) fn is_refused(way: &Disposition) -> bool {
    *way == Disposition::Refused || matches!(way.fallback(), Some(Fallback::Response { .. }))
}

impl<'a> BudgetDecision<'a> {
    /// The decision on `budget`. A request that gives permits back is always allowed.
    pub(in crate::wire::rls) fn new(budget: &BudgetRequest<'a>, admission: Admission) -> Self {
        let Admission { answer, way, held: _ } = admission;
        let way = match way {
            Disposition::Refused if budget.gives_back() => Disposition::Allowed,
            way => way,
        };
        Self { name: budget.name.unwrap_or_default(), answer, way, quota: budget.quota }
    }

    /// Returns whether the request is refused.
    fn is_refused(&self) -> bool {
        is_refused(&self.way)
    }
}

impl<'a> Limited<'a> {
    /// Returns whether the descriptor is over the limit.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Decided(decided) => decided.is_refused(),
            Self::Zero(zero, _) => zero.is_over(),
        }
    }

    /// Returns whether the descriptor is a quota.
    pub(super) const fn is_quota(&self) -> bool {
        match self {
            Self::Decided(decided) => decided.quota,
            Self::Zero(zero, _) => zero.quota,
        }
    }

    /// The decision, if there is one.
    pub(super) const fn decided(&self) -> Option<&BudgetDecision<'a>> {
        match self {
            Self::Decided(decided) => Some(decided),
            Self::Zero(..) => None,
        }
    }

    /// The name of the limit; may be empty.
    pub(super) const fn name(&self) -> &'a str {
        match self {
            Self::Decided(decided) => decided.name,
            Self::Zero(zero, _) => zero.name,
        }
    }

    /// The limit, and what remains of it.
    pub(super) const fn limit(&self) -> (u64, u64) {
        match self {
            Self::Decided(BudgetDecision { answer, .. }) => {
                (answer.decision.limit, answer.decision.remaining)
            }
            Self::Zero(..) => (0, 0),
        }
    }

    /// The unit in which all of the limit comes back, with its seconds.
    pub(super) fn unit(&self) -> Option<(Unit, u64)> {
        match self {
            Self::Decided(decided) => unit(rule(&decided.answer)),
            Self::Zero(zero, _) => zero.unit,
        }
    }

    /// The time until the same request can pass, or until the budget is full if it has passed.
    pub(super) fn until_reset(&self) -> Micros {
        match self {
            Self::Decided(decided) => until_reset(&decided.answer.decision),
            Self::Zero(_, left) => *left,
        }
    }

    pub(super) fn status(&self) -> DescriptorStatus {
        let (limit, remaining) = self.limit();
        let code = if self.is_over() { Code::OverLimit } else { Code::Ok };
        let unit = self.unit().map_or(Unit::Unknown, |(unit, _)| unit);
        // A refusal for ever has no end, unless it is by a limit of zero with a unit.
        let has_end = match self {
            Self::Decided(decided) => {
                let decision = &decided.answer.decision;
                decision.allowed() || decision.retry_after().is_some()
            }
            Self::Zero(zero, _) => zero.unit.is_some(),
        };
        DescriptorStatus {
            code: code.into(),
            current_limit: Some(RateLimit {
                requests_per_unit: capped(limit),
                unit: unit.into(),
                name: self.name().to_owned(),
            }),
            limit_remaining: capped(remaining),
            duration_until_reset: has_end.then(|| duration(self.until_reset())),
        }
    }
}

/// The rule that decided.
fn rule(answer: &Answer) -> &Rule {
    let name = answer.rule();
    let rules = answer.rules().rules();
    let named = rules.iter().find(|named| *named.name == *name).unwrap_or(&rules[0]);
    &named.rule
}

/// The unit in which all of a rule's limit comes back, with its seconds.
fn unit(rule: &Rule) -> Option<(Unit, u64)> {
    if let Some((calendar, _)) = rule.calendar() {
        let unit = match calendar {
            CalendarUnit::Day => Unit::Day,
            CalendarUnit::Week => Unit::Week,
            CalendarUnit::Month => Unit::Month,
            CalendarUnit::Year => Unit::Year,
        };
        return UNITS.into_iter().find(|(known, _)| *known == unit);
    }
    let window_s = window_s(rule)?;
    UNITS.into_iter().find(|(_, seconds)| *seconds == window_s)
}

/// The time until the same request can pass, or until the budget is full if it has passed.
fn until_reset(decision: &Decision) -> Micros {
    match decision.retry_after() {
        Some(retry) if !decision.allowed() => retry,
        _ => decision.reset_after,
    }
}

fn duration(span: Micros) -> Duration {
    let (seconds, us) = (span.get() / 1_000_000, span.get() % 1_000_000);
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Duration { seconds, nanos: i32::try_from(us * 1_000).expect("below 10^9") }
}

fn capped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
