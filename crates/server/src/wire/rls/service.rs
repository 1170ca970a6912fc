//! The service: a message in, decisions of the engine, a message out.

use std::sync::Arc;

use futures_util::future::try_join_all;
use sluicegate::store::Store;
use sluicegate::{DecideError, Engine, Micros};
use sluicegate_policy::{DescriptorTree, Overflow};
use tonic::{Request, Response, Status};

use super::codec::{Ask, Budget, Decided, Headers, KnownLimits, Refusal, Reply, decode};
use super::proto::{RateLimitRequest, RateLimitResponse, RateLimitService};

/// Decides what gateways ask, by descriptors, on an engine.
#[derive(Debug)]
pub(crate) struct RateLimits<S> {
    engine: Arc<Engine<S>>,
    tree: DescriptorTree,
    headers: Headers,
    limits: KnownLimits,
}

impl<S: Store> RateLimits<S> {
    /// A service on `engine`, whose policies `tree` leads to.
    pub(crate) fn new(engine: Arc<Engine<S>>, tree: DescriptorTree, headers: Headers) -> Self {
        Self { engine, tree, headers, limits: KnownLimits::default() }
    }

    /// Decides every descriptor of `message`. They are decided together, so that a store is asked
    /// once and not one time after the other.
    pub(super) async fn decide(
        &self,
        message: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Refusal> {
        let asks = decode(message, &self.tree, &self.engine.policies())?;
        let now = self.engine.now();
        let mut reply = Reply::with_capacity(asks.len());
        if let [Ask::Budget(budget)] = &*asks {
            reply.push(self.ask(budget, now).await?);
            return Ok(reply.finish(self.headers));
        }
        let budgets = asks.iter().filter_map(|ask| match ask {
            Ask::Budget(budget) => Some(self.ask(budget, now)),
            _ => None,
        });
        let mut decided = try_join_all(budgets).await?.into_iter();
        for ask in &asks {
            match ask {
                Ask::Budget(_) => reply.push(decided.next().expect("one for each budget")),
                other => reply.push_undecided(other),
            }
        }
        Ok(reply.finish(self.headers))
    }

    /// The one place where this wire asks the engine.
    async fn ask<'a>(&self, budget: &Budget<'a>, now: Micros) -> Result<Decided<'a>, DecideError> {
        let request = budget.request();
        let answer = match budget.limit {
            None => self.engine.decide_as_of(&request, now).await?,
            Some(limit) => self.engine.decide_by(&self.limits.rules(limit), &request, now).await?,
        };
        let in_the_shadow = || {
            let policies = self.engine.policies();
            let policy = policies.resolve(request.policy);
            policy.is_some_and(|policy| *policy.overflow() == Overflow::Shadow)
        };
        Ok(Decided::new(budget, answer, in_the_shadow))
    }
}

#[tonic::async_trait]
impl<S: Store + 'static> RateLimitService for RateLimits<S> {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(self.decide(request.get_ref()).await?))
    }
}

#[cfg(test)]
mod tests;
