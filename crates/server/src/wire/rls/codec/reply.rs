//! What was decided, as a message.

use prost_types::Duration;
use sluicegate::http::headers::window_s;
use sluicegate::{Answer, CalendarUnit, Decision, Micros, Rule};

use super::ask::{Ask, Budget};
use super::headers::Headers;
use super::limit::UNITS;
use crate::wire::rls::proto::{Code, DescriptorStatus, RateLimit, RateLimitResponse, Unit};

/// What the engine said of a budget.
#[derive(Clone, Debug)]
pub(in crate::wire::rls) struct Decided<'a> {
    /// The name of the limit; may be empty.
    pub(super) name: &'a str,
    pub(super) answer: Answer,
    /// Whether the request is to be refused.
    pub(super) over: bool,
}

/// A response in the making: a status for each descriptor, in their order.
#[derive(Debug)]
pub(in crate::wire::rls) struct Reply<'a> {
    statuses: Vec<DescriptorStatus>,
    decided: Vec<Decided<'a>>,
    over: bool,
}

impl<'a> Decided<'a> {
    /// What the engine `answer`s to `budget`. `passes_over_limit`: the policy lets it pass even if it
    /// is over the limit.
    pub(in crate::wire::rls) fn new(
        budget: &Budget<'a>,
        answer: Answer,
        passes_over_limit: impl FnOnce() -> bool,
    ) -> Self {
        let short = answer.decision.granted() < budget.wanted();
        let over = (!answer.decision.allowed() || short) && !budget.gives_back();
        let over = over && !passes_over_limit();
        Self { name: budget.name.unwrap_or_default(), answer, over }
    }
}

impl<'a> Reply<'a> {
    /// A reply to so many descriptors.
    pub(in crate::wire::rls) fn with_capacity(descriptors: usize) -> Self {
        Self { statuses: Vec::with_capacity(descriptors), decided: Vec::new(), over: false }
    }

    /// Adds the status of a descriptor that no policy decides on.
    pub(in crate::wire::rls) fn push_undecided(&mut self, ask: &Ask<'a>) {
        let ok = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
        self.statuses.push(match ask {
            Ask::Allowed => DescriptorStatus { limit_remaining: u32::MAX, ..ok },
            Ask::Refused { name } => {
                self.over = true;
                let limit = RateLimit { name: (*name).to_owned(), ..RateLimit::default() };
                DescriptorStatus { code: Code::OverLimit.into(), current_limit: Some(limit), ..ok }
            }
            Ask::NoLimit | Ask::Budget(_) => ok,
        });
    }

    /// Adds the status of a descriptor that a budget decided on.
    pub(in crate::wire::rls) fn push(&mut self, decided: Decided<'a>) {
        let Decided { name, answer, over } = &decided;
        let decision = &answer.decision;
        self.over |= over;
        self.statuses.push(DescriptorStatus {
            code: if *over { Code::OverLimit } else { Code::Ok }.into(),
            current_limit: Some(current_limit(name, answer)),
            limit_remaining: capped(decision.remaining),
            duration_until_reset: Some(duration(until_reset(decision))),
        });
        self.decided.push(decided);
    }

    /// The message, with the header fields that `headers` says.
    pub(in crate::wire::rls) fn finish(self, headers: Headers) -> RateLimitResponse {
        let Self { statuses, decided, over } = self;
        RateLimitResponse {
            overall_code: if over { Code::OverLimit } else { Code::Ok }.into(),
            statuses,
            response_headers_to_add: headers.of(&decided),
            ..RateLimitResponse::default()
        }
    }
}

/// The limit of the rule that decided.
fn current_limit(name: &str, answer: &Answer) -> RateLimit {
    let unit = unit(rule(answer)).map_or(Unit::Unknown, |(unit, _)| unit);
    RateLimit {
        requests_per_unit: capped(answer.decision.limit),
        unit: unit.into(),
        name: name.to_owned(),
    }
}

/// The rule that decided.
pub(super) fn rule(answer: &Answer) -> &Rule {
    let name = answer.rule();
    let rules = answer.rules().rules();
    let named = rules.iter().find(|named| *named.name == *name).unwrap_or(&rules[0]);
    &named.rule
}

/// The unit in which all of a rule's limit comes back, with its seconds.
pub(super) fn unit(rule: &Rule) -> Option<(Unit, u64)> {
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

/// Until the same request can pass, or until the budget is full if it has passed.
pub(super) fn until_reset(decision: &Decision) -> Micros {
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
