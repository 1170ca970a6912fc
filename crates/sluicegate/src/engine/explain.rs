//! Which rules hold for a request, and what each of them would say.

use std::sync::Arc;

use sluicegate_kernel::{Cost, Decision, Micros, Moment, NamedRule, RuleSet, Verb};
use sluicegate_policy::{Policy, Rules};
use sluicegate_store::{Origin, Store, StoreError};

use super::{Answer, DecideError, Engine, Mode, Request, admit, quota_of, store_request};

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

impl<S: Store> Engine<S> {
    /// What a check of `request` would be answered now, rule by rule. Whatever the verb of `request`
    /// is, it is only looked at: nothing is charged.
    ///
    /// Every rule is looked at by itself, so others may be charged in between.
    ///
    /// # Errors
    /// [`DecideError`]; that the store does not answer is none, as long as the policy says what holds
    /// then.
    pub async fn explain(&self, request: &Request<'_>) -> Result<Explanation, DecideError> {
        let cost = cost_of(&request.verb);
        let look = Request { verb: Verb::Peek { cost }, ..request.clone() };
        let (policies, now) = (self.policies(), self.now());
        let (policy, key, rules) = admit(&policies, &look)?;
        let answer = self.decide_in(&policies, &look, now).await?;
        let is_override = !std::ptr::eq(rules, policy.rules());
        let policy = Arc::clone(policy);
        if !matches!(answer.mode, Mode::Store | Mode::Remembered) {
            return Ok(Explanation { policy, is_override, answer, rules: None });
        }
        if rules.set().rules().len() == 1 {
            let alone = vec![answer.decision];
            return Ok(Explanation { policy, is_override, answer, rules: Some(alone) });
        }
        let mut alone = Vec::with_capacity(rules.set().rules().len());
        for NamedRule { name, rule } in rules.set().rules() {
            let rule = Rules::new(RuleSet::single(name, rule.clone()));
            let rule = rule.expect("its time zone was found before");
            let windows = rule.windows(now);
            let moment = Moment::with_windows(now, windows.as_slice());
            // Not by way of the guard: what it learns is about all rules together.
            // Later than whatever wrote the state: what is asked for is what this rule says.
            let latest = (&rule, Origin::Policy { since: Micros::MAX }, quota_of(&policy));
            match self.store.decide(&store_request(&look, key, latest), &moment).await {
                Ok(verdict) => alone.push(verdict.decision),
                Err(
                    StoreError::Unavailable { .. }
                    | StoreError::Overloaded { .. }
                    | StoreError::Contended { .. }
                    | StoreError::Unreadable { .. },
                ) => {
                    return Ok(Explanation { policy, is_override, answer, rules: None });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Explanation { policy, is_override, answer, rules: Some(alone) })
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
