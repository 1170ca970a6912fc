//! Decisions as a message.

use sluicegate::{Disposition, Micros};
use sluicegate_policy::Fallback;

use super::decision::{BudgetDecision, Limited};
use super::headers::field;
use super::request::DescriptorRequest;
use crate::wire::headers::BudgetHeaders;
use crate::wire::rls::proto::{Code, DescriptorStatus, RateLimitResponse};

/// The field of a request over the limit that passes for a fallback: the tag.
const DEGRADE: &str = "x-sluicegate-degrade";

/// The field of a diverted request, by which gateways route: the target.
const DIVERT: &str = "x-sluicegate-divert";

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
