//! Messages to questions, decisions to messages. No IO.
//!
//! ```text
//! RateLimitRequest ─▶ decode ─▶ one DescriptorRequest a descriptor ─▶ (decided) ─▶ ResponseBuilder ─▶ RateLimitResponse
//! ```

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

pub(super) use error::RlsError;
pub(super) use limit::WindowRuleCache;
pub(super) use reply::{BudgetDecision, Overall, ResponseBuilder, is_refused};
pub(super) use request::{BudgetRequest, DescriptorRequest, decode, is_known, make_text, verb_at};

use super::proto::RateLimitRequest;

/// How many descriptors a message, in bytes or in JSON, has that policies decide on; `None`: it is no
/// message, or makes no sense. What fuzzing feeds with bytes.
#[must_use]
pub fn request_in(bytes: &[u8], tree: &DescriptorTree, policies: &PolicySet) -> Option<usize> {
    let mut message = RateLimitRequest::decode(bytes).ok().or_else(|| json::decode(bytes).ok())?;
    make_text(&mut message);
    let asks = decode(&message, tree, policies).ok()?;
    Some(asks.iter().filter(|ask| matches!(ask, DescriptorRequest::Budget(_))).count())
}
