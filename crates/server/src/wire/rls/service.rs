//! The service: a message in, decisions of the engine, a message out.

mod decide;

use std::sync::Arc;
use std::time::Instant;

use axum::http::HeaderMap;
use sluicegate::DecideError;
use sluicegate_control::Scope;
use sluicegate_net::headers::bearer;
use sluicegate_policy::DescriptorTree;
use sluicegate_policy::descriptor::RESERVED_DOMAIN;
use sluicegate_text::terminal::one_line;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status};

use self::decide::AskedBudget;
use super::codec::{
    BudgetDecision, BudgetRequest, DescriptorRequest, Overall, ResponseBuilder, RlsError,
    WindowRuleCache, decode, giving_back, is_known, make_text, verb_at,
};
use super::proto::{RateLimitRequest, RateLimitResponse, RateLimitService};
use crate::authenticator::{Caller, ListenerAuth};
use crate::engine::ServerEngine;
use crate::log_pace::LogPace;
use crate::policies::InForce;
use crate::protocol::Wire;
use crate::trace::Parent;
use crate::wire::headers::BudgetHeaders;

/// Decides requests of gateways by descriptors, through the engine.
#[derive(Debug)]
pub(crate) struct RateLimits {
    in_force: InForce,
    headers: BudgetHeaders,
    options: RlsOptions,
    limits: WindowRuleCache,
    /// Requests for unknown domains.
    unknown_domains: LogPace,
}

/// Options of decisions, where `envoyproxy/ratelimit` decides otherwise or has an option.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RlsOptions {
    /// A peek at an empty budget is OK until a charge was refused.
    pub(crate) looks_pass: bool,
    /// A request that is over the limit is not counted for the descriptors that are not.
    pub(crate) stop_increment_when_over_limit: bool,
}

/// The service on one address.
#[derive(Clone, Debug)]
pub(super) struct RlsHandler {
    limits: Arc<RateLimits>,
    listener_auth: ListenerAuth,
}

impl RlsHandler {
    pub(super) const fn new(limits: Arc<RateLimits>, listener_auth: ListenerAuth) -> Self {
        Self { limits, listener_auth }
    }

    /// Returns the caller whose token is in `headers`.
    pub(super) fn caller(&self, headers: &HeaderMap) -> Result<Caller, RlsError> {
        let now = || self.limits.in_force.engine().core().now();
        let caller = self.listener_auth.authenticate(bearer(headers), now);
        caller.map_err(|refused| self.listener_auth.count_refused(refused).into())
    }

    /// The trace that a gateway names in `headers`.
    pub(super) fn parent(&self, headers: &HeaderMap) -> Parent {
        self.limits.in_force.engine().parent(headers)
    }

    /// Decides every descriptor of `message`, which `caller` sends.
    pub(super) async fn decide(
        &self,
        caller: &Caller,
        message: &RateLimitRequest,
    ) -> Result<RateLimitResponse, RlsError> {
        let decided = self.limits.decide(caller, message).await;
        if let Err(RlsError::Caller(refused)) = decided {
            self.listener_auth.count_refused(refused);
        }
        decided
    }
}

impl RlsHandler {
    /// Decides `message`, which names permits, in a task of its own: a gateway whose client goes away cancels its call, and
    /// gives nothing back later. Then `back` does that.
    async fn decide_on_permits(
        self,
        caller: Caller,
        message: RateLimitRequest,
        back: RateLimitRequest,
    ) -> Result<RateLimitResponse, RlsError> {
        let (mut answer, answered) = oneshot::channel();
        tokio::spawn(async move {
            let decided = tokio::select! {
                biased;
                decided = self.decide(&caller, &message) => answer.send(decided).is_ok(),
                () = answer.closed() => false,
            };
            if !decided {
                // If the store does not answer, the permits lapse.
                self.decide(&caller, &back).await.ok();
            }
        });
        answered.await.expect("the task answers, unless it has panicked")
    }
}

impl RateLimits {
    /// Creates a service on `engine`, to whose policies `tree` leads.
    pub(crate) fn new(
        engine: Arc<ServerEngine>,
        tree: DescriptorTree,
        headers: BudgetHeaders,
    ) -> Self {
        let in_force = InForce::new(engine, tree);
        let options = RlsOptions::default();
        let (limits, unknown_domains) = (WindowRuleCache::default(), LogPace::default());
        Self { in_force, headers, options, limits, unknown_domains }
    }

    /// Sets the options.
    pub(crate) fn with_options(self, options: RlsOptions) -> Self {
        Self { options, ..self }
    }

    /// The policies that decide, and the tree that leads to them.
    pub(crate) const fn in_force(&self) -> &InForce {
        &self.in_force
    }

    /// Logs a request for an unknown domain: it passes, as with `envoyproxy/ratelimit`, which does not log it either.
    #[cold]
    #[expect(clippy::disallowed_methods, reason = "the log is paced, nothing is decided by it")]
    fn log_unknown(&self, domain: &str) {
        let Some(count) = self.unknown_domains.count(Instant::now()) else { return };
        let domain = one_line(domain);
        tracing::warn!(
            "rls: unknown domain `{domain}`, nothing is limited ({count} such requests since the last line); expected a \
             domain of `rls.descriptors` or `rls.envoy_config`, the name of a policy, or `{RESERVED_DOMAIN}`"
        );
    }

    /// Decides every descriptor of `message`.
    async fn decide(
        &self,
        caller: &Caller,
        message: &RateLimitRequest,
    ) -> Result<RateLimitResponse, RlsError> {
        let tree = self.in_force.tree();
        let decided = self.decide_by(&tree, caller, message).await;
        if let Err(RlsError::Undecided(DecideError::UnknownPolicy(_))) = &decided {
            // The tree may have led to a policy that has just been taken away with it.
            let now = self.in_force.tree_after_change();
            if !Arc::ptr_eq(&tree, &now) {
                return Box::pin(self.decide_by(&now, caller, message)).await;
            }
        }
        decided
    }

    /// Decides every descriptor of `message` by `tree`. They are decided together, so that a store
    /// is called once and not one time after the other.
    async fn decide_by(
        &self,
        tree: &DescriptorTree,
        caller: &Caller,
        message: &RateLimitRequest,
    ) -> Result<RateLimitResponse, RlsError> {
        let turn = self.in_force.engine().turn(Wire::Rls);
        let mut asks = decode(message, tree, turn.policies())?;
        if matches!(asks.first(), Some(DescriptorRequest::NoLimit))
            && !is_known(&message.domain, tree, turn.policies())
        {
            self.log_unknown(&message.domain);
        }
        for (place, ask) in asks.iter_mut().enumerate() {
            match ask {
                DescriptorRequest::Budget(budget) => budget.asked_by(caller)?,
                DescriptorRequest::NoLimit
                | DescriptorRequest::Allowed
                | DescriptorRequest::Zero(_) => {
                    caller.permits(verb_at(message, place))?;
                    caller.may(Scope::Check)?;
                }
            }
        }
        let mut reply = ResponseBuilder::with_capacity(asks.len());
        // Most messages have one descriptor.
        if let [DescriptorRequest::Budget(budget)] = &*asks {
            let rules = budget.limit.map(|limit| self.limits.rules(limit));
            let request = budget.request_by(rules.as_ref());
            let decided = turn.decide(&request).await?;
            let admission = match self.options.is_more_to_do(budget, &decided) {
                false => decided,
                true => {
                    let asked = AskedBudget { budget, request: &request };
                    Box::pin(self.options.complete(&turn, asked, decided)).await?
                }
            };
            reply.push(BudgetDecision::new(budget, admission));
            return Ok(reply.finish(self.headers));
        }
        let budgets: Vec<_> = asks.iter().filter_map(DescriptorRequest::budget).collect();
        let rules =
            |budget: &&BudgetRequest<'_>| budget.limit.map(|limit| self.limits.rules(limit));
        let rules: Vec<_> = budgets.iter().map(rules).collect();
        let requests = budgets.iter().zip(&rules);
        let requests = requests.map(|(budget, rules)| budget.request_by(rules.as_ref()));
        let requests: Vec<_> = requests.collect();
        let asked = budgets.iter().zip(&requests);
        let asked: Vec<_> =
            asked.map(|(budget, request)| AskedBudget { budget, request }).collect();
        // On the heap: a message with one descriptor should not carry the space for many.
        let mut decided = match self.options.stop_increment_when_over_limit {
            false => Box::pin(self.options.decide_apart(&turn, &asked, &requests)).await?,
            true => {
                let zeros = asks.iter().filter_map(DescriptorRequest::zero);
                let mut zero = Overall::default();
                zeros.for_each(|limit| zero.push(limit.is_quota(), limit.is_over()));
                Box::pin(self.options.decide_together(&turn, &asked, &requests, zero)).await?
            }
        }
        .into_iter();
        for ask in &asks {
            match ask {
                DescriptorRequest::Budget(budget) => {
                    let admission = decided.next().expect("there is one for each budget");
                    reply.push(BudgetDecision::new(budget, admission));
                }
                other => reply.push_undecided(other, turn.now()),
            }
        }
        Ok(reply.finish(self.headers))
    }
}

#[tonic::async_trait]
impl RateLimitService for RlsHandler {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let head = request.metadata().as_ref();
        let (caller, parent) = (self.caller(head)?, self.parent(head));
        let mut message = request.into_inner();
        make_text(&mut message);
        if let Some(back) = giving_back(&message) {
            let deciding = self.clone().decide_on_permits(caller, message, back);
            return Ok(Response::new(parent.over(deciding).await?));
        }
        Ok(Response::new(parent.over(self.decide(&caller, &message)).await?))
    }
}

#[cfg(test)]
mod tests;
