//! Live budgets, looked up for the admin API.

use std::sync::Arc;

use sluicegate::{Cost, Micros, Request, Verb};
use sluicegate_control::api::{Budget, BudgetFuture, Budgets};
use sluicegate_text::terminal;

use crate::engine::ServerEngine;
use crate::protocol::Wire;

/// The budgets that this server decides by.
#[derive(Debug)]
pub(super) struct EngineBudgets(pub(super) Arc<ServerEngine>);

impl EngineBudgets {
    /// Asks as an app that may do everything with it: a budget is shared by all that may use it.
    async fn ask(&self, policy: &str, key: &[u8], verb: Verb) -> Result<Budget, String> {
        let turn = self.0.turn(Wire::Admin);
        let found =
            turn.policies().resolve(policy).ok_or("this node has not loaded the policy yet")?;
        let app = found.named_apps().next().or(found.owner());
        let key = (!key.is_empty()).then_some(key);
        let request = Request { app, ..Request::new(policy, key, verb) };
        let decided = turn.decide(&request).await;
        let answer = decided.map_err(|error| terminal::decide_error(&error))?.answer;
        let decision = &answer.decision;
        Ok(Budget {
            allowed: decision.allowed(),
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_us: decision.retry_after().map(Micros::get),
            reset_after_us: decision.reset_after.get(),
            rule: answer.rule().to_owned(),
        })
    }
}

impl Budgets for EngineBudgets {
    fn peek<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a> {
        Box::pin(self.ask(policy, key, Verb::Peek { cost: Cost::ONE }))
    }

    fn reset<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a> {
        Box::pin(async move {
            let done = self.ask(policy, key, Verb::Reset).await?;
            // What is done is done, whether it can be looked at or not.
            Ok(self.peek(policy, key).await.unwrap_or(done))
        })
    }

    fn grant<'a>(&'a self, policy: &'a str, key: &'a [u8], permits: u64) -> BudgetFuture<'a> {
        Box::pin(async move {
            let cost = Cost::new(permits).map_err(|error| error.to_string())?;
            let done = self.ask(policy, key, Verb::Refund { cost }).await?;
            Ok(self.peek(policy, key).await.unwrap_or(done))
        })
    }
}
