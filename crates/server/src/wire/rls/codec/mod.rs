//! Messages to requests, decisions to messages. No IO.
//!
//! ```text
//! RateLimitRequest ─▶ decode ─▶ one DescriptorRequest a descriptor ─▶ (decided) ─▶ ResponseBuilder ─▶ RateLimitResponse
//! ```

mod decision;
mod error;
mod headers;
pub(super) mod json;
mod limit;
mod reply;
mod request;
#[cfg(test)]
mod tests;

use prost::Message;
use sluicegate_policy::{DescriptorTree, PolicySet};

pub(super) use decision::{BudgetDecision, is_refused};
pub(super) use error::RlsError;
pub(super) use limit::WindowRuleCache;
pub(super) use reply::{Overall, ResponseBuilder};
pub(super) use request::{
    BudgetRequest, DescriptorRequest, decode, giving_back, is_known, make_text, verb_at,
};

use super::proto::RateLimitRequest;

/// The number of descriptors that policies decide, of a message in bytes or in JSON; `None` if it is
/// invalid. For fuzzing.
#[must_use]
pub fn request_in(bytes: &[u8], tree: &DescriptorTree, policies: &PolicySet) -> Option<usize> {
    let mut message = RateLimitRequest::decode(bytes).ok().or_else(|| json::decode(bytes).ok())?;
    make_text(&mut message);
    let asks = decode(&message, tree, policies).ok()?;
    Some(asks.iter().filter(|ask| matches!(ask, DescriptorRequest::Budget(_))).count())
}
