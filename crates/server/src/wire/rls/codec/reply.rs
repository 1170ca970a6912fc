//! What was decided, as a message.

use prost_types::Duration;
use sluicegate::http::headers::window_s;
use sluicegate::policy::Fallback;
use sluicegate::{Answer, CalendarUnit, Decision, Micros, Rule, Way};

use super::ask::{Ask, Budget};
use super::headers::field;
use super::limit::UNITS;
use crate::wire::headers::Headers;
use crate::wire::rls::proto::{Code, DescriptorStatus, RateLimit, RateLimitResponse, Unit};

/// The field of a request that goes on, over the limit, for a fallback: which one.
const DEGRADE: &str = "x-sluicegate-degrade";

/// The field of a request that goes elsewhere, by which gateways route: where to.
const DIVERT: &str = "x-sluicegate-divert";

/// What was said of a budget.
#[derive(Clone, Debug)]
pub(in crate::wire::rls) struct Decided<'a> {
    /// The name of the limit; may be empty.
    pub(super) name: &'a str,
    pub(super) answer: Answer,
    way: Way,
}

/// A response in the making: a status for each descriptor, in their order.
#[derive(Debug)]
pub(in crate::wire::rls) struct Reply<'a> {
    message: RateLimitResponse,
    decided: Vec<Decided<'a>>,
}

impl<'a> Decided<'a> {
    /// What is decided on `budget`, and what is to be done with the request.
    pub(in crate::wire::rls) fn new(budget: &Budget<'a>, answer: Answer, way: Way) -> Self {
        let way = match way {
            Way::Refused if budget.gives_back() => Way::Through,
            way => way,
        };
        Self { name: budget.name.unwrap_or_default(), answer, way }
    }

    /// Whether the request is to be refused.
    pub(in crate::wire::rls) fn is_refused(&self) -> bool {
        self.way == Way::Refused || matches!(self.way.fallback(), Some(Fallback::Response { .. }))
    }
}

impl<'a> Reply<'a> {
    /// A reply to so many descriptors.
    pub(in crate::wire::rls) fn with_capacity(descriptors: usize) -> Self {
        let statuses = Vec::with_capacity(descriptors);
        let overall_code = Code::Ok.into();
        let message = RateLimitResponse { overall_code, statuses, ..RateLimitResponse::default() };
        Self { message, decided: Vec::new() }
    }

    /// Adds the status of a descriptor that no policy decides on.
    pub(in crate::wire::rls) fn push_undecided(&mut self, ask: &Ask<'a>) {
        let ok = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
        self.push_status(match ask {
            Ask::Allowed => DescriptorStatus { limit_remaining: u32::MAX, ..ok },
            Ask::Refused { name } => {
                let limit = RateLimit { name: (*name).to_owned(), ..RateLimit::default() };
                DescriptorStatus { code: Code::OverLimit.into(), current_limit: Some(limit), ..ok }
            }
            Ask::NoLimit | Ask::Budget(_) => ok,
        });
    }

    /// Adds the status of a descriptor that a budget decided on.
    pub(in crate::wire::rls) fn push(&mut self, decided: Decided<'a>) {
        let Decided { name, answer, way } = &decided;
        let decision = &answer.decision;
        self.push_way(way);
        self.push_status(DescriptorStatus {
            code: if decided.is_refused() { Code::OverLimit } else { Code::Ok }.into(),
            current_limit: Some(current_limit(name, answer)),
            limit_remaining: capped(decision.remaining),
            duration_until_reset: Some(duration(until_reset(decision))),
        });
        self.decided.push(decided);
    }

    fn push_status(&mut self, status: DescriptorStatus) {
        if status.code() == Code::OverLimit {
            self.message.overall_code = Code::OverLimit.into();
        }
        self.message.statuses.push(status);
    }

    /// What the gateway is told of a request over the limit that is not just refused.
    fn push_way(&mut self, way: &Way) {
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

    /// The message, with the header fields that `headers` says.
    pub(in crate::wire::rls) fn finish(self, headers: Headers) -> RateLimitResponse {
        let Self { mut message, decided } = self;
        message.response_headers_to_add.extend(headers.tell(&decided));
        message
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
