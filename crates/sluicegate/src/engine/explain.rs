//! Which rules hold for a request, and what each of them would say.

use std::sync::Arc;

use sluicegate_kernel::{Cost, Decision, Micros, NamedRule, RuleSet, Verb};
use sluicegate_policy::{Policy, Rules};
use sluicegate_store::{RuleOrigin, Store, StoreError};

use super::request::ResolvedBudget;
use super::{Answer, DecideError, Mode, Observer, Patience, Request, Turn};

/// What would be decided, and why.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The policy that guards the request.
    pub policy: Arc<Policy>,
    /// Whether the key has rules of its own in it.
    pub is_override: bool,
    /// What a check would be answered now.
    pub answer: Answer,
    /// What each rule alone would say, in the order of [`Answer::rules`]; `None` while the store does
    /// not answer.
    pub rules: Option<Vec<Decision>>,
}

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// What a check of `request` would be answered now, rule by rule. Whatever the verb of `request`
    /// is, it is only looked at: nothing is charged. The observer sees that look.
    ///
    /// Every rule is looked at by itself, so others may be charged in between.
    ///
    /// # Errors
    /// [`DecideError`]; that the store does not answer is none, as long as the policy says what holds
    /// then.
    pub async fn explain(&self, request: &Request<'_>) -> Result<Explanation, DecideError> {
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
        Ok(Explanation { policy: Arc::clone(policy), is_override, answer, rules })
    }

    /// What each rule of `budget` would say alone; `None` while the store does not answer.
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
            // Later than whatever wrote the state: what is asked for is what this rule says.
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

fn cost_of(verb: &Verb) -> Cost {
    match *verb {
        Verb::Check { cost }
        | Verb::Reserve { cost, .. }
        | Verb::AtMost { cost }
        | Verb::Peek { cost }
        | Verb::Refund { cost }
        | Verb::Acquire { cost, .. } => cost,
        Verb::Reset | Verb::Release { .. } | Verb::Renew { .. } => Cost::ONE,
    }
}
