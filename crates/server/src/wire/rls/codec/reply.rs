//! Decisions as a message.

use prost_types::Duration;
use sluicegate::http::headers::window_s;
use sluicegate::policy::Fallback;
use sluicegate::{Admission, Answer, CalendarUnit, Decision, Disposition, Micros, Rule};

use super::headers::field;
use super::limit::UNITS;
use super::request::{BudgetRequest, DescriptorRequest, ZeroLimit};
use crate::wire::headers::BudgetHeaders;
use crate::wire::rls::proto::{Code, DescriptorStatus, RateLimit, RateLimitResponse, Unit};

/// The field of a request over the limit that passes for a fallback: the tag.
const DEGRADE: &str = "x-sluicegate-degrade";

/// The field of a diverted request, by which gateways route: the target.
const DIVERT: &str = "x-sluicegate-divert";

/// The decision on a budget.
#[derive(Clone, Debug)]
pub(in crate::wire::rls) struct BudgetDecision<'a> {
    /// The name of the limit; may be empty.
    pub(super) name: &'a str,
    pub(super) answer: Answer,
    way: Disposition,
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

/// A response in the making: a status for each descriptor, in their order.
#[derive(Debug)]
pub(in crate::wire::rls) struct ResponseBuilder<'a> {
    message: RateLimitResponse,
    limited: Vec<Limited<'a>>,
    overall: Overall,
}

/// The result of a request, by its descriptors.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::wire::rls) struct Overall {
    /// A limit that is not a quota is exceeded.
    is_refused: bool,
    /// The number of quotas, and of those that are over the limit.
    quotas: usize,
    quotas_over: usize,
}

impl Overall {
    /// Counts a descriptor that has a limit.
    pub(in crate::wire::rls) fn push(&mut self, is_quota: bool, is_over: bool) {
        if is_quota {
            self.quotas += 1;
            self.quotas_over += usize::from(is_over);
        } else {
            self.is_refused |= is_over;
        }
    }

    /// Returns whether the request is over the limit.
    pub(in crate::wire::rls) const fn is_over(self) -> bool {
        self.is_refused || (self.quotas > 0 && self.quotas == self.quotas_over)
    }
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

impl<'a> ResponseBuilder<'a> {
    /// Begins a reply to so many descriptors.
    pub(in crate::wire::rls) fn with_capacity(descriptors: usize) -> Self {
        let statuses = Vec::with_capacity(descriptors);
        let overall_code = Code::Ok.into();
        let message = RateLimitResponse { overall_code, statuses, ..RateLimitResponse::default() };
        Self { message, limited: Vec::new(), overall: Overall::default() }
    }

    /// Adds the status of a descriptor that no policy decides on.
    pub(in crate::wire::rls) fn push_undecided(
        &mut self,
        ask: &DescriptorRequest<'a>,
        now: Micros,
    ) {
        let ok = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
        match ask {
            DescriptorRequest::Allowed => {
                self.message.statuses.push(DescriptorStatus { limit_remaining: u32::MAX, ..ok });
            }
            DescriptorRequest::Zero(zero) => {
                let window = zero.unit.map(|(_, window_s)| Micros::from_secs(window_s).get());
                let left = window.map_or(0, |window| window - now.get() % window);
                self.push_limited(Limited::Zero(*zero, Micros::new(left)));
            }
            DescriptorRequest::NoLimit | DescriptorRequest::Budget(_) => {
                self.message.statuses.push(ok);
            }
        }
    }

    /// Adds the status of a descriptor that a budget decided on.
    pub(in crate::wire::rls) fn push(&mut self, decided: BudgetDecision<'a>) {
        self.push_way(&decided.way);
        self.push_limited(Limited::Decided(decided));
    }

    fn push_limited(&mut self, limited: Limited<'a>) {
        self.overall.push(limited.is_quota(), limited.is_over());
        self.message.statuses.push(limited.status());
        self.limited.push(limited);
    }

    /// Adds the fields and the body for a request over the limit that is not just refused.
    fn push_way(&mut self, way: &Disposition) {
        if let Some(target) = way.target() {
            self.message.request_headers_to_add.push(field(DIVERT, target.to_owned()));
        }
        match way.fallback() {
            Some(Fallback::Tag(tag)) => {
                self.message.request_headers_to_add.push(field(DEGRADE, tag.to_string()));
            }
            Some(Fallback::Response { status: _, body, headers }) => {
                self.message.raw_body = body.as_bytes().to_vec();
                let fields = headers.iter().map(|(name, value)| field(name, value.to_string()));
                self.message.response_headers_to_add.extend(fields);
            }
            None => {}
        }
    }

    /// The message, with the header fields that `headers` selects.
    pub(in crate::wire::rls) fn finish(self, headers: BudgetHeaders) -> RateLimitResponse {
        let Self { mut message, limited, overall } = self;
        let is_over = overall.is_over();
        if is_over {
            message.overall_code = Code::OverLimit.into();
        }
        message.response_headers_to_add.extend(headers.values(&limited, is_over));
        message
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

    fn status(&self) -> DescriptorStatus {
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
