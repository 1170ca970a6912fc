//! The body of a settlement.

use serde::Serialize;
use sluicegate::Admission;
use sluicegate::internals::Settled;
use utoipa::ToSchema;

use super::reply::{DecisionBody, decided, json};

/// The result of a settlement, and what is left of the budget.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Settlement)]
pub(crate) struct SettledBody<'a> {
    /// 1: settled.
    #[schema(minimum = 1, maximum = 1)]
    code: i8,
    /// Permits given back; fewer than the difference if the budget was full before.
    refunded: u64,
    /// Additional permits taken.
    taken: u64,
    /// Permits that could not be taken because the budget was empty; they are not owed.
    missing: u64,
    /// The decision of the correction; if nothing had to be corrected, the state of the budget.
    decision: DecisionBody<'a>,
}

/// Writes the result of a settlement.
pub(crate) fn encode(settled: Settled) -> Vec<u8> {
    let Settled { refunded, taken, missing, answer } = settled;
    let admission = Admission::from(answer);
    let decision = decided(&admission, None);
    json(&SettledBody { code: 1, refunded, taken, missing, decision })
}
