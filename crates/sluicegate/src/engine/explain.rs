//! Which rules hold for a request, and what each of them would say.

use std::sync::Arc;

use sluicegate_kernel::lease::{Holder, Marks, Message, Number};
use sluicegate_kernel::{Cost, Decision, Micros, Moment, NamedRule, RuleSet, Verb, Word};
use sluicegate_policy::{Policy, Rules};
use sluicegate_store::{RuleOrigin, Store, StoreError};

use super::request::ResolvedBudget;
use super::{Answer, DecideError, Mode, Observer, Patience, Request, Turn};
use crate::lease::{LeaseStatus, LeasedKey};

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
    /// How the key is leased; `None`: this engine leases nothing.
    pub lease: Option<ExplainedLease>,
}

/// How a key is leased.
#[derive(Clone, Debug)]
pub struct ExplainedLease {
    /// Whether its rules and its policy permit it.
    pub status: LeaseStatus,
    /// Permits that all holders have, spent and not reported yet or unspent, and how many holders there are;
    /// `None` where nothing is leased, or the store does not answer.
    pub out: Option<(u32, usize)>,
    /// What this engine has of them.
    pub here: Option<LeasedKey>,
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
        let lease = self.lease_of(&budget, rules.is_some()).await;
        Ok(Explanation { policy: Arc::clone(policy), is_override, answer, rules, lease })
    }

    /// Asks the store alone whether it answers for the budget of `request`: what changes a budget needs the store,
    /// and neither a share nor a lease answers in its place. Nothing is charged. The observer sees nothing of it.
    ///
    /// # Errors
    /// [`DecideError`]: also of a store that does not answer, whatever the policy says for that time.
    pub async fn check_store(&self, request: &Request<'_>) -> Result<(), DecideError> {
        let budget = ResolvedBudget::of(&self.policies, request, self.now)?;
        let look = Verb::Peek { cost: Cost::ONE };
        let asked = self.engine.ask_without_learning(&budget, &look, self.now).await;
        if let Some(guard) = &self.engine.guard {
            // A store that is back must not be taken for one that is away by the change that follows.
            guard.note_answer(asked.as_ref().map(drop), self.now);
        }
        Ok(asked.map(drop)?)
    }

    /// How the key of `budget` is leased; the store is asked if it answers.
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
            if let Ok(Word::Stands(stands)) = store.lease(&request, &looking(), &moment).await {
                out = Some((stands.hint.held, stands.holders));
            }
        }
        Some(ExplainedLease { status, out, here: guard.lease_here(&request) })
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

/// A message that only looks.
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
        | Verb::Acquire { cost, .. } => cost,
        Verb::Reset | Verb::Release { .. } | Verb::Renew { .. } => Cost::ONE,
    }
}
