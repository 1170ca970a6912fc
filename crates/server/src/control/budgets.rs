//! Live budgets, looked up for the admin API.

use std::net::IpAddr;
use std::sync::Arc;

use sluicegate::internals::ExplainedLease;
use sluicegate::internals::http::{AddressKey, V6Prefix};
use sluicegate::policy::PolicySet;
use sluicegate::{Answer, Charged, Cost, DecideError, Decision, Micros, Mode, Request, Verb};
use sluicegate_control::api::{
    Budget, BudgetError, BudgetFuture, Budgets, ExplainError, ExplainFuture, ExplainRequest,
    ExplainedKey, HeldError, HeldFuture, HeldPermit, HeldPermits, KeyOutlook, LeasedPermits,
    ReleaseFuture, RuleOutlook, StoreFuture, ToExplain,
};
use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_kernel::{ListedPermit, NamedRule, PermitId};
use sluicegate_policy::{Attributes, Overflow, Policy, attribute, finding};
use sluicegate_text::terminal;

use crate::engine::ServerEngine;
use crate::protocol::Wire;

const NO_STORE: &str = "the store does not answer in time";
const NOT_LOADED: &str = "this node has not loaded the policy yet";

/// The budgets that this server decides by.
#[derive(Debug)]
pub(super) struct EngineBudgets(pub(super) Arc<ServerEngine>);

impl EngineBudgets {
    async fn ask(&self, policy: &str, key: &[u8], verb: Verb) -> Result<Budget, BudgetError> {
        let turn = self.0.turn(Wire::Admin);
        let found = turn.policies().resolve(policy).ok_or(NOT_LOADED)?;
        let decided = turn.decide(&entitled(found, key, verb)).await;
        let answer = decided.map_err(|error| budget_error(&error))?.answer;
        // Without the store the budget is unknown, whatever the policy does then.
        if matches!(answer.mode, Mode::Allow | Mode::Deny | Mode::Shed) {
            return Err(NO_STORE.into());
        }
        let decision = &answer.decision;
        Ok(Budget {
            allowed: decision.allowed(),
            limit: decision.limit,
            remaining: decision.remaining,
            retry_after_us: decision.retry_after().map(Micros::get),
            reset_after_us: decision.reset_after.get(),
            rule: answer.rule().to_owned(),
            mode: answer.mode.name(),
        })
    }

    /// Lists the permits that are held.
    async fn list_held(&self, policy: &str, key: &[u8]) -> Result<HeldPermits, HeldError> {
        let no_answer = |reason: &str| HeldError::Unavailable(reason.to_owned());
        let turn = self.0.turn(Wire::Admin);
        let found = turn.policies().resolve(policy).ok_or_else(|| no_answer(NOT_LOADED))?;
        let held = turn.held_permits(&entitled(found, key, Verb::Peek { cost: Cost::ONE })).await;
        let held = held.map_err(|error| match error {
            DecideError::Unsupported(_) => HeldError::NoPermits,
            error => no_answer(&terminal::decide_error(&error)),
        })?;
        let items = held.permits.into_iter().map(|held| {
            let ListedPermit { permit, cost, lapses_after } = held;
            HeldPermit { permit, cost, lapses_after_us: lapses_after.get() }
        });
        Ok(HeldPermits::of(items.collect(), held.waiting))
    }

    /// Releases a permit in the store; returns whether it was held. The share of this node does not count.
    async fn release_held(
        &self,
        policy: &str,
        key: &[u8],
        permit: PermitId,
    ) -> Result<bool, BudgetError> {
        let turn = self.0.turn(Wire::Admin);
        let found = turn.policies().resolve(policy).ok_or(NOT_LOADED)?;
        let decided = turn.decide(&entitled(found, key, Verb::Release { permit })).await;
        let answer = decided.map_err(|error| budget_error(&error))?.answer;
        if answer.mode != Mode::Store {
            // A release whose answer was lost may have freed the permit.
            return Err(BudgetError { reason: NO_STORE.to_owned(), is_perhaps_done: true });
        }
        Ok(answer.decision.allowed())
    }

    /// Explains a request, rule by rule. With `does_charge` it is decided as any other; otherwise nothing is charged.
    async fn explain_one(
        &self,
        question: ToExplain,
        does_charge: bool,
    ) -> Result<ExplainedKey, ExplainError> {
        let cost = Cost::new(question.cost).map_err(|error| unavailable(&error.to_string()))?;
        let turn = self.0.turn(Wire::Admin);
        let (policy, key) = policy_and_key(turn.policies(), &question)?;
        let key_bytes = key.as_deref().unwrap_or_default().as_bytes();
        let check = entitled(&policy, key_bytes, Verb::Check { cost });
        let charged = match does_charge {
            true => {
                let decided = turn.decide(&check).await;
                Some(decided.map_err(|error| unavailable(&terminal::decide_error(&error)))?.answer)
            }
            false => None,
        };
        let explained = turn.explain(&check, None).await;
        let explained = explained.map_err(|error| unavailable(&terminal::decide_error(&error)))?;
        let answer = charged.as_ref().unwrap_or(&explained.answer);
        let rules = explained.rules.as_ref().map(|decisions| {
            let named = answer.rules().rules().iter().zip(decisions);
            named.map(|(named, decision)| outlook(named, decision, answer.rule())).collect()
        });
        Ok(ExplainedKey {
            policy: policy.name().to_owned(),
            key,
            is_override: explained.is_override,
            outcome: outcome(answer, &policy),
            mode: answer.mode.name(),
            rules,
            leased: explained.lease.and_then(|lease| leased_permits(&lease)),
        })
    }
}

/// A request of an app that may do everything with the budget, which all apps of the policy share.
fn entitled<'a>(policy: &'a Policy, key: &'a [u8], verb: Verb) -> Request<'a> {
    let app = policy.named_apps().next().or(policy.owner());
    let key = (!key.is_empty()).then_some(key);
    Request { app, ..Request::new(policy.name(), key, verb) }
}

/// The policy and the key that `question` means.
fn policy_and_key(
    policies: &PolicySet,
    question: &ToExplain,
) -> Result<(Arc<Policy>, Option<String>), ExplainError> {
    if let Some(request) = &question.request {
        return guarded(policies, question, request);
    }
    let found = policies.resolve(question.policy.as_deref().unwrap_or_default());
    let found = found.ok_or_else(|| unavailable(NOT_LOADED))?;
    Ok((Arc::clone(found), question.key.clone().filter(|key| !key.is_empty())))
}

/// The permits of a key that nodes hold, if they hold any.
fn leased_permits(ExplainedLease { out, here, .. }: &ExplainedLease) -> Option<LeasedPermits> {
    let (out, holders) = out.filter(|(_, holders)| *holders > 0)?;
    let here = here.as_ref().map_or(0, |here| here.left);
    Some(LeasedPermits { out, holders: u32::try_from(holders).unwrap_or(u32::MAX), here })
}

fn unavailable(problem: &str) -> ExplainError {
    ExplainError::Unavailable(problem.to_owned())
}

/// The policy that guards a request of HTTP, and its key there.
fn guarded(
    policies: &PolicySet,
    question: &ToExplain,
    request: &ExplainRequest,
) -> Result<(Arc<Policy>, Option<String>), ExplainError> {
    let remote_ip = match &request.remote_ip {
        None => None,
        Some(text) => {
            let address: Result<IpAddr, _> = text.parse();
            let address = address.map_err(|_| {
                let problem =
                    finding!("bad_address", "`{given}` is not an IP address", given = text);
                ExplainError::Invalid("/request/remote_ip", problem)
            })?;
            Some(AddressKey::text_of(address, V6Prefix::default()))
        }
    };
    let headers: Vec<_> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let user_agent = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("user-agent"));
    let attributes = Attributes {
        remote_ip: remote_ip.as_deref(),
        path: request.path.as_deref(),
        method: request.method.as_deref(),
        user_agent: user_agent.map(|(_, value)| *value),
        status: None,
        host: request.host.as_deref(),
        headers: &headers,
    };
    let policy = match &question.policy {
        Some(name) => policies
            .resolve(name)
            .ok_or_else(|| ExplainError::Unavailable(NOT_LOADED.to_owned()))?,
        None => {
            let mut guarding = policies.matching(&attributes);
            let guard = guarding.find(|policy| policy.owner() == Some(question.app.as_str()));
            guard.ok_or(ExplainError::NoPolicy)?
        }
    };
    let key = attribute::key_of(policy.key(), &attributes);
    if key.len() > KEY_BYTES_MAX {
        let problem = finding!("key_too_long", "expected at most {max} bytes", max = KEY_BYTES_MAX);
        return Err(ExplainError::Invalid("/request", problem));
    }
    Ok((Arc::clone(policy), (!key.is_empty()).then_some(key)))
}

fn budget_error(error: &DecideError) -> BudgetError {
    let is_perhaps_done = error.charged() != Charged::No;
    BudgetError { reason: terminal::decide_error(error), is_perhaps_done }
}

fn outlook(named: &NamedRule, decision: &Decision, decides: &str) -> RuleOutlook {
    RuleOutlook {
        rule: named.name.to_string(),
        algorithm: named.rule.algorithm(),
        decides: *named.name == *decides,
        allowed: decision.allowed(),
        limit: decision.limit,
        remaining: decision.remaining,
        retry_after_us: decision.retry_after().map(Micros::get),
        reset_after_us: decision.reset_after.get(),
    }
}

/// The outcome of a request with this answer.
fn outcome(answer: &Answer, policy: &Policy) -> KeyOutlook {
    if answer.decision.allowed() {
        return KeyOutlook::Passes;
    }
    match policy.overflow() {
        Overflow::Shadow => KeyOutlook::Shadowed,
        Overflow::Queue { max_wait }
            if answer.decision.retry_after().is_some_and(|wait| wait <= *max_wait) =>
        {
            KeyOutlook::Held
        }
        Overflow::Reject | Overflow::Queue { .. } => KeyOutlook::Refused,
        Overflow::Degrade(_) => KeyOutlook::Degraded,
        Overflow::Divert { .. } => KeyOutlook::Diverted,
    }
}

impl Budgets for EngineBudgets {
    fn explain(&self, question: ToExplain) -> ExplainFuture<'_> {
        Box::pin(self.explain_one(question, false))
    }

    fn check_store<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> StoreFuture<'a> {
        Box::pin(async move {
            let turn = self.0.turn(Wire::Admin);
            let found = turn.policies().resolve(policy).ok_or(NOT_LOADED)?;
            let look = entitled(found, key, Verb::Peek { cost: Cost::ONE });
            let answers = turn.check_store(&look).await;
            answers.map_err(|error| terminal::decide_error(&error))
        })
    }

    fn check_try(&self, question: &ToExplain) -> Result<(), ExplainError> {
        let turn = self.0.turn(Wire::Admin);
        let (policy, key) = policy_and_key(turn.policies(), question)?;
        let key = key.as_deref().unwrap_or_default().as_bytes();
        let check = turn.check(&entitled(&policy, key, Verb::Check { cost: Cost::ONE }));
        check.map_err(|error| match error {
            DecideError::Unsupported(_) => ExplainError::NoChecks,
            error => unavailable(&terminal::decide_error(&error)),
        })
    }

    fn try_one(&self, question: ToExplain) -> ExplainFuture<'_> {
        Box::pin(self.explain_one(question, true))
    }

    fn peek<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a> {
        Box::pin(self.ask(policy, key, Verb::Peek { cost: Cost::ONE }))
    }

    fn reset<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a> {
        Box::pin(async move {
            let done = self.ask(policy, key, Verb::Reset).await?;
            // The budget was reset, even if it cannot be read now.
            Ok(self.peek(policy, key).await.unwrap_or(done))
        })
    }

    fn held<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> HeldFuture<'a> {
        Box::pin(self.list_held(policy, key))
    }

    fn release<'a>(
        &'a self,
        policy: &'a str,
        key: &'a [u8],
        permit: PermitId,
    ) -> ReleaseFuture<'a> {
        Box::pin(self.release_held(policy, key, permit))
    }

    fn grant<'a>(&'a self, policy: &'a str, key: &'a [u8], permits: u64) -> BudgetFuture<'a> {
        Box::pin(async move {
            let cost =
                Cost::new(permits).map_err(|error| BudgetError::from(&*error.to_string()))?;
            let done = self.ask(policy, key, Verb::Refund { cost }).await?;
            Ok(self.peek(policy, key).await.unwrap_or(done))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sluicegate::policy::Document;
    use sluicegate::{Engine, ManualClock};

    use super::*;
    use crate::store::AnyStore;

    const POLICIES: &str = "
policies:
  - name: orders
    apps: [shop]
    match: { path: { prefix: /orders } }
    key: [remote_ip, 'header:x-tenant']
    rules:
      - { name: burst, fixed_window: { limit: 5, window: 1s } }
      - { name: hourly, fixed_window: { limit: 7, window: 1h } }
    overrides: [{ key: '192.0.2.1|gold', rules: [{ fixed_window: { limit: 9, window: 1s } }] }]
  - name: watched
    apps: [shop]
    rules: [{ fixed_window: { limit: 1, window: 1m } }]
    overflow: shadow
  - name: waits
    rules: [{ token_bucket: { rate: 1/s, burst: 1 } }]
    overflow: { queue: { max_wait: 1s } }
";

    fn budgets() -> EngineBudgets {
        let document = Document::parse(POLICIES).expect("a good document");
        let policies = document.into_policies().into_iter().map(|policy| policy.of_app("shop"));
        let policies =
            PolicySet::default().changed(policies.collect(), &[]).expect("three of them");
        let clock = Arc::new(ManualClock::at(Micros::from_secs(1_700_000_000)));
        let store = AnyStore::Memory(Arc::default());
        EngineBudgets(Arc::new(ServerEngine::new(Engine::new(policies, store, clock))))
    }

    fn asked(
        policy: Option<&str>,
        key: Option<&str>,
        request: Option<ExplainRequest>,
    ) -> ToExplain {
        let (policy, key) = (policy.map(str::to_owned), key.map(str::to_owned));
        ToExplain { app: "shop".to_owned(), policy, key, request, cost: 1 }
    }

    fn request(path: &str, remote_ip: &str, tenant: &str) -> ExplainRequest {
        let headers = BTreeMap::from([("X-Tenant".to_owned(), tenant.to_owned())]);
        let (path, remote_ip) = (Some(path.to_owned()), Some(remote_ip.to_owned()));
        ExplainRequest { path, remote_ip, headers, ..ExplainRequest::default() }
    }

    async fn charge(budgets: &EngineBudgets, policy: &str, key: &str, times: u64) {
        for _ in 0..times {
            let verb = Verb::Check { cost: Cost::ONE };
            let request = Request::new(policy, Some(key.as_bytes()), verb);
            let request = Request { app: Some("shop"), ..request };
            budgets.0.turn(Wire::Admin).decide(&request).await.expect("an answer");
        }
    }

    #[tokio::test]
    async fn every_rule_says_what_is_left_and_the_one_that_decides_is_named() {
        let budgets = budgets();
        charge(&budgets, "orders", "alice", 5).await;
        let explained = budgets.explain(asked(Some("orders"), Some("alice"), None)).await;
        let explained = explained.expect("an explanation");
        assert_eq!((explained.outcome, explained.mode), (KeyOutlook::Refused, "store"));
        let rules = explained.rules.expect("the store answers");
        let found: Vec<_> =
            rules.iter().map(|rule| (&*rule.rule, rule.decides, rule.remaining)).collect();
        assert_eq!(found, [("burst", true, 0), ("hourly", false, 2)]);
        assert!(rules[0].retry_after_us.is_some_and(|wait| wait <= 1_000_000));
        // The explanation charged nothing.
        let again = budgets.explain(asked(Some("orders"), Some("alice"), None)).await;
        assert_eq!(again.expect("an explanation").rules.expect("rules")[1].remaining, 2);
    }

    #[tokio::test]
    async fn a_request_that_is_tried_is_charged() {
        let budgets = budgets();
        for left in [4, 3, 2, 1, 0] {
            let tried = budgets.try_one(asked(Some("orders"), Some("alice"), None)).await;
            let tried = tried.expect("a decision");
            assert_eq!(tried.outcome, KeyOutlook::Passes);
            assert_eq!(tried.rules.expect("rules")[0].remaining, left);
        }
        let tried = budgets.try_one(asked(Some("orders"), Some("alice"), None)).await;
        assert_eq!(tried.expect("a decision").outcome, KeyOutlook::Refused);
    }

    #[tokio::test]
    async fn a_request_finds_its_policy_and_its_key() {
        let budgets = budgets();
        let gold = request("/orders/7", "192.0.2.1", "gold");
        let explained = budgets.explain(asked(None, None, Some(gold))).await;
        let explained = explained.expect("an explanation");
        assert_eq!(explained.policy, "orders");
        assert_eq!(explained.key.as_deref(), Some("192.0.2.1|gold"));
        assert!(explained.is_override);
        assert_eq!(explained.rules.expect("rules")[0].limit, 9);
        let v6 = request("/orders", "2001:db8::1", "a|b");
        let explained = budgets.explain(asked(None, None, Some(v6))).await.expect("an explanation");
        assert_eq!(explained.key.as_deref(), Some(r"2001:db8::/64|a\|b"));
        let elsewhere = request("/", "192.0.2.1", "");
        let refused = budgets.explain(asked(None, None, Some(elsewhere))).await;
        assert_eq!(refused, Err(ExplainError::NoPolicy));
        let wrong = request("/orders", "192.0.2.1:80", "");
        let refused = budgets.explain(asked(None, None, Some(wrong))).await;
        assert!(
            matches!(refused, Err(ExplainError::Invalid("/request/remote_ip", _))),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn what_follows_from_a_refusal_is_told_apart() {
        let budgets = budgets();
        for (policy, expected) in [("watched", KeyOutlook::Shadowed), ("waits", KeyOutlook::Held)] {
            let look = async || budgets.explain(asked(Some(policy), Some("a"), None)).await;
            assert_eq!(look().await.expect("an explanation").outcome, KeyOutlook::Passes);
            charge(&budgets, policy, "a", 1).await;
            assert_eq!(look().await.expect("an explanation").outcome, expected, "{policy}");
        }
        let refused = budgets.explain(asked(Some("none"), None, None)).await;
        assert_eq!(refused, Err(ExplainError::Unavailable(NOT_LOADED.to_owned())));
    }
}
