//! Explanations: the rules that apply to a request, and what each of them would decide.

use std::sync::Arc;

use sluicegate_kernel::lease::{Holder, Marks, Message, Number};
use sluicegate_kernel::{
    Cost, Decision, HeldPermits, LeaseReply, Micros, Moment, NamedRule, PermitId, Rate, RuleSet,
    Verb,
};
use sluicegate_policy::{Endurance, Policy, Rules};
use sluicegate_store::{RuleOrigin, Store, StoreError};
use tokio::task::spawn_blocking;

use super::request::ResolvedBudget;
use super::{Answer, DecideError, Mode, Observer, Patience, Request, Turn};
use crate::lease::{LeaseStatus, LeasedKey};

/// The decision that a check would get, and its reasons.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The policy that guards the request.
    pub policy: Arc<Policy>,
    /// The key has an override in the policy that is in force.
    pub is_override: bool,
    /// The answer that a check would get now.
    pub answer: Answer,
    /// The decision of each rule alone, in the order of [`Answer::rules`]; `None` while the store does
    /// not answer.
    pub rules: Option<Vec<Decision>>,
    /// The lease of the key; `None`: this engine leases nothing.
    pub lease: Option<ExplainedLease>,
    /// Endurance of the rules under the load that was asked about; `None` without one, and where a rule holds permits by id.
    pub endurance: Option<Endurance>,
}

/// The lease of a key, over all holders and in this engine.
#[derive(Clone, Debug)]
pub struct ExplainedLease {
    /// The lease status by its rules and its policy.
    pub status: LeaseStatus,
    /// Permits that all holders have, spent and not reported yet or unspent, and the number of holders;
    /// `None` where nothing is leased, or the store does not answer.
    pub out: Option<(u32, usize)>,
    /// The part of this engine; `None` if it has none.
    pub here: Option<LeasedKey>,
}

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// Returns the answer that a check of `request` would get now, rule by rule. Whatever the verb of `request`,
    /// this is a `peek`: nothing is charged. The observer sees it.
    ///
    /// Every rule is looked at separately, so others may be charged in between. With `load`, the explanation has the
    /// [`Endurance`] of the rules under it.
    ///
    /// # Errors
    /// [`DecideError`]; a store that does not answer is an error only if the policy does not configure what
    /// holds then.
    #[doc(hidden)]
    pub async fn explain(
        &self,
        request: &Request<'_>,
        load: Option<Rate>,
    ) -> Result<Explanation, DecideError> {
        let cost = cost_of(&request.verb);
        let look = request.with_verb(Verb::Peek { cost }).with_patience(Patience::None);
        let answer = self.decide(&look).await?.answer;
        let budget = ResolvedBudget::of(&self.policies, &look, self.now)?;
        let name = look.limits.name();
        let Some(policy) = budget.policy else {
            return Err(DecideError::UnknownPolicy(name.to_owned()));
        };
        let is_override = policy.rules_at(budget.key, self.now).is_override;
        let rules = match answer.mode {
            Mode::Store | Mode::Remembered => self.alone(&budget, &look.verb, &answer).await?,
            _ => None,
        };
        let lease = self.lease_of(&budget, rules.is_some()).await;
        let endurance = match load {
            Some(load) => {
                let (rules, now) = (budget.rules.clone(), self.now);
                // It can take 80 ms, in which other requests go on.
                let calculated = spawn_blocking(move || rules.endurance(load, now)).await;
                calculated.expect("the calculation does not panic")
            }
            None => None,
        };
        let policy = Arc::clone(policy);
        Ok(Explanation { policy, is_override, answer, rules, lease, endurance })
    }

    /// Checks that the store itself answers for the budget of `request`: a change of a budget needs the store,
    /// and neither a share nor a lease can replace it. Nothing is charged. The observer does not see it.
    ///
    /// # Errors
    /// [`DecideError`], also if the store does not answer, whatever the policy configures for that time.
    #[doc(hidden)]
    pub async fn check_store(&self, request: &Request<'_>) -> Result<(), DecideError> {
        let budget = ResolvedBudget::of(&self.policies, request, self.now)?;
        let look = Verb::Peek { cost: Cost::ONE };
        let answer = self.engine.ask_without_learning(&budget, &look, self.now).await;
        if let Some(guard) = &self.engine.guard {
            // Record a store that is back, so that the change that follows does not find the breaker open.
            guard.note_answer(answer.as_ref().map(drop), self.now);
        }
        Ok(answer.map(drop)?)
    }

    /// Returns the permits that are held of the budget of `request`, from the store itself: no share can replace it. No
    /// usage changes. The observer does not see it.
    ///
    /// # Errors
    /// [`DecideError`], also if the policy holds no permits, and if the store does not answer.
    #[doc(hidden)]
    pub async fn held_permits(&self, request: &Request<'_>) -> Result<HeldPermits, DecideError> {
        let budget = ResolvedBudget::of(&self.policies, request, self.now)?;
        budget.rules.set().supports(&Verb::Release { permit: PermitId(0) })?;
        let windows = budget.rules.windows(self.now);
        let moment = Moment::with_windows(self.now, windows.as_slice());
        let held = self.engine.store.held(&budget.ask(&request.verb), &moment).await;
        if let Some(guard) = &self.engine.guard {
            // As of `check_store`: a release may follow.
            guard.note_answer(held.as_ref().map(drop), self.now);
        }
        Ok(held?)
    }

    /// Returns the lease of the key of `budget`, with the store's part if the store answers.
    async fn lease_of(&self, budget: &ResolvedBudget<'_>, answers: bool) -> Option<ExplainedLease> {
        let guard = self.engine.guard.as_ref().filter(|guard| guard.leasing().is_some())?;
        let (policy, store) = (budget.policy?, &self.engine.store);
        let status = LeaseStatus::of(policy, budget.rules);
        let look = Verb::Peek { cost: Cost::ONE };
        let request = budget.ask(&look);
        let mut out = None;
        if answers && store.leases() && matches!(status, LeaseStatus::Within(_)) {
            let windows = budget.rules.windows(self.now);
            let moment = Moment::with_windows(self.now, windows.as_slice());
            if let Ok(LeaseReply::Granted(grant)) = store.lease(&request, &looking(), &moment).await
            {
                out = Some((grant.hint.held, grant.holders));
            }
        }
        Some(ExplainedLease { status, out, here: guard.lease_here(&request) })
    }

    /// Returns the decision of each rule of `budget` alone; `None` while the store does not answer.
    async fn alone(
        &self,
        budget: &ResolvedBudget<'_>,
        look: &Verb,
        answer: &Answer,
    ) -> Result<Option<Vec<Decision>>, DecideError> {
        let rules = budget.rules.set().rules();
        if let [_] = rules {
            return Ok(Some(vec![answer.decision]));
        }
        let mut alone = Vec::with_capacity(rules.len());
        for NamedRule { name, rule } in rules {
            let rule = Rules::new(RuleSet::single(name, rule.clone()));
            let rule = rule.expect("its time zone was found before");
            // Later than every write of the state, so that this rule alone decides.
            let origin = RuleOrigin::Policy { since: Micros::MAX };
            let budget = ResolvedBudget { rules: &rule, origin, ..budget.clone() };
            match self.engine.ask_without_learning(&budget, look, self.now).await {
                Ok(verdict) => alone.push(verdict.decision),
                Err(
                    StoreError::Unavailable { .. }
                    | StoreError::Overloaded { .. }
                    | StoreError::Contended { .. }
                    | StoreError::Unreadable { .. },
                ) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(alone))
    }
}

/// Returns a message that changes nothing.
fn looking() -> Message {
    Message {
        holder: Holder::NONE,
        number: Number(0),
        heard: Number(0),
        stood: 0,
        unspent: 0,
        keep: 0,
        need: 0,
        least: 1,
        want: 0,
        share: 0,
        term_us: 0,
        patience_us: 0,
        ends: Micros::ZERO,
        ended: false,
        marks: Marks::default(),
        hint: None,
    }
}

fn cost_of(verb: &Verb) -> Cost {
    match *verb {
        Verb::Check { cost }
        | Verb::Reserve { cost, .. }
        | Verb::AtMost { cost }
        | Verb::Peek { cost }
        | Verb::Refund { cost }
        | Verb::Acquire { cost, .. }
        | Verb::Wait { cost, .. } => cost,
        Verb::Reset | Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. } => Cost::ONE,
    }
}
