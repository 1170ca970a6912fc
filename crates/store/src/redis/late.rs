//! Refunds of permits that were granted too late.
//!
//! A caller waits until its deadline. A reply that comes later may grant permits that are never used; so may
//! one whose caller went away. The next packet of the connection gives them back: one refund for all that a
//! key was granted. That is done only where it cannot let more than the limit pass (see [`undoing`]), and a
//! refund whose outcome is unknown is not repeated: then less passes.

use std::collections::HashMap;

use bytes::Bytes;
use redis::Value;
use sluicegate_kernel::limits::COST_MAX;

use super::codec::undoing;
use super::load::WAITING_MAX;
use super::numbers::number;
use super::request::{RequestKind, ScriptArgs, ServerRequest};

/// Most refunds that wait: as many as calls. Late grants beyond them stay charged.
const REFUNDS_MAX: usize = WAITING_MAX;

/// Most refunds that go before waiting calls, each time: as many as travel together.
const AT_ONCE_MAX: usize = 16;

/// The place of the cost in a request, in bytes.
const COST: std::ops::Range<usize> = 2..6;

/// The refunds that are due on a connection.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// The refunds without their costs, and the costs.
    refunds: HashMap<ScriptArgs, u64>,
}

impl Late {
    /// Notes `value`, the reply to `request` without a waiting caller.
    pub(super) fn record(&mut self, request: &ServerRequest, value: &Value) {
        let (
            RequestKind::Script(ask) | RequestKind::InDebt(ask, _),
            Value::BulkString(reply),
            false,
        ) = (&request.what, value, request.asking)
        else {
            return;
        };
        let [rules, asked] = &ask.args;
        let Some(mut undo) = undoing(rules, asked, reply) else { return };
        let cost = number(&undo[COST]);
        undo[COST].fill(0);
        let refund = ScriptArgs { key: ask.key.clone(), args: [rules.clone(), undo.into()] };
        if self.refunds.len() < REFUNDS_MAX || self.refunds.contains_key(&refund) {
            // More than a request can give back stays charged.
            let known = self.refunds.entry(refund).or_default();
            *known = (*known + cost).min(COST_MAX);
        }
    }

    /// Takes the refunds that go before all waiting calls.
    pub(super) fn take(&mut self) -> Vec<ServerRequest> {
        let asks: Vec<_> = self.refunds.keys().take(AT_ONCE_MAX).cloned().collect();
        asks.into_iter().filter_map(|ask| self.take_one(ask)).collect()
    }

    fn take_one(&mut self, mut ask: ScriptArgs) -> Option<ServerRequest> {
        let cost = self.refunds.remove(&ask)?;
        let mut undo = ask.args[1].to_vec();
        undo[COST].copy_from_slice(&cost.to_le_bytes()[..COST.len()]);
        ask.args[1] = Bytes::from(undo);
        Some(ServerRequest::script(ask))
    }
}
