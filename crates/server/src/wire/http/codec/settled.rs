//! What a settlement did.

use serde::Serialize;
use sluicegate::{Passage, Settled};
use utoipa::ToSchema;

use super::reply::{Decided, decided, json};

/// What a settlement did, and what is left of the budget.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Settlement)]
pub(crate) struct SettledBody<'a> {
    /// 1: it is settled.
    #[schema(minimum = 1, maximum = 1)]
    code: i8,
    /// Permits given back: fewer than the difference where the budget was full before.
    refunded: u64,
    /// Permits taken beside those that were charged.
    taken: u64,
    /// Permits that were not there to be taken. Nobody owes them.
    missing: u64,
    /// The decision that gave back or took; where nothing was to be done, a look at the budget.
    decision: Decided<'a>,
}

/// Writes what was done.
pub(crate) fn encode(settled: Settled) -> Vec<u8> {
    let Settled { refunded, taken, missing, answer } = settled;
    let passage = Passage::from(answer);
    let decision = decided(&passage, None);
    json(&SettledBody { code: 1, refunded, taken, missing, decision })
}
