//! A check made with an estimate, corrected to what it cost in truth.
//!
//! ```text
//! check 1000 ─▶ work ─▶ settle(id, charged 1000, cost 640) ─▶ 360 go back
//!                          └▶ the same id again: `SettleError::Settled`, nothing changes
//! ```
//!
//! **Once.** Whether an id was settled before is itself a decision: one permit an hour, for a key
//! made of policy, key and id, in the same store, whichever app asks. So it holds in a fleet as it does in one
//! process, for two that settle at the same moment, and needs no memory but the store's. An hour: the
//! caller that asks again because it heard no answer does so within minutes, and every id that is
//! remembered takes the place of a key.
//!
//! **Who dies in between** (after the id was taken, before the difference is) leaves what was
//! charged as it was. Nothing is ever given back twice.

use std::sync::{Arc, LazyLock};

use sluicegate_kernel::limits::{COST_MAX, KEY_BYTES_MAX};
use sluicegate_kernel::{Cost, Micros, Rate, RuleSet, TokenBucket, Verb};
use sluicegate_policy::Rules;
use sluicegate_store::{Executed, Quota, RuleOrigin, Store, StoreError};

use super::guard::Conditions;
use super::request::{ResolvedBudget, unconfigured};
use super::{Answer, DecideError, ObservedRequest, Observer, Request, Turn};

/// How long an id is remembered after it was settled.
const REMEMBERED: Micros = Micros::from_secs(3_600);

/// Under this name stands who was settled: capital letters are in no policy's name.
const SETTLED: &str = "Settled";

/// To which quota of keys these count, in a memory store. Beyond it nothing more is settled until some
/// are an hour old: to settle twice would be worse.
const QUOTA: Quota<'static> = Quota::of(SETTLED);

/// What was charged for a piece of work, and what it cost.
#[derive(Clone, Debug)]
pub struct Settlement<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Whose budget it is, 1..=1024 bytes; `None` is the budget that all share.
    pub key: Option<&'a [u8]>,
    /// The application that asks.
    pub app: Option<&'a str>,
    /// What the caller calls this piece of work, 1..=1024 bytes; of this policy and key it can be
    /// settled once an hour, whichever app asks.
    pub id: &'a [u8],
    /// Permits that were charged.
    pub charged: Cost,
    /// Permits that it cost, 0..=2^31.
    pub cost: u64,
}

/// What a settlement did.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Permits given back: fewer than the difference where the budget is full before.
    pub refunded: u64,
    /// Permits taken beside those that were charged.
    pub taken: u64,
    /// Permits that were not there to be taken. Nobody owes them.
    pub missing: u64,
    /// What is left of the budget.
    pub answer: Answer,
}

/// Why nothing was settled. What was charged stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// It was settled within the last hour.
    #[error("id: already settled within the last hour; nothing was changed")]
    Settled,
    /// The id is empty or too long.
    #[error("id: `{0}` bytes are outside 1..={KEY_BYTES_MAX}")]
    Id(usize),
    /// The cost is too high.
    #[error("cost: `{0}` is outside 0..={COST_MAX}")]
    Cost(u64),
    /// No decision on this budget; also of rules that count held permits, as no cost is charged there.
    #[error(transparent)]
    Decide(#[from] DecideError),
    /// The store did not carry out the correction. The same id may be settled again.
    #[error("store: {0}; nothing was changed, retry")]
    Undone(StoreError),
    /// The store did not say whether it has taken the id, so that no correction was made. What was charged stands, and
    /// the id may count as settled for an hour.
    #[error("store: {0}; nothing was corrected; the id may count as settled for an hour")]
    Unclaimed(StoreError),
    /// Nobody knows whether the store carried out the correction, so it is not tried again.
    #[error("store: {0}; it is unknown whether the correction was made; it is not retried")]
    Unknown(StoreError),
}

/// The rules by which ids are remembered, of all engines: whoever keeps the state of a memory store
/// keeps what was settled with it. With the quota that their keys count to.
pub fn settled_rules() -> (&'static str, Arc<RuleSet>) {
    (QUOTA.name, Arc::clone(ONCE.set()))
}

/// One permit an hour.
static ONCE: LazyLock<Rules> = LazyLock::new(|| {
    let rate = Rate::new(1, REMEMBERED).expect("an hour is a period");
    let bucket = TokenBucket::new(rate, 1).expect("one permit is a burst");
    Rules::new(RuleSet::single("once", bucket)).expect("it follows no calendar")
});

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// Corrects what was charged to what it cost: the difference is given back, or taken as far as
    /// it is there. Once for each id; only the store itself can say that, so while it does not answer
    /// nothing is settled, whatever the policy says.
    ///
    /// It is two decisions. If the future is dropped between them, the id is settled and the charge stays
    /// as it was: run it in a task of its own. The observer sees the correction.
    ///
    /// # Errors
    /// [`SettleError`].
    pub async fn settle(&self, settlement: &Settlement<'_>) -> Result<Settled, SettleError> {
        let begun = self.engine.observer.begin();
        let settled = self.try_settle(settlement).await;
        let seen = match &settled {
            Ok(settled) => Ok(settled.answer.clone().into()),
            Err(SettleError::Decide(error)) => Err(error.clone()),
            Err(
                SettleError::Undone(error)
                | SettleError::Unclaimed(error)
                | SettleError::Unknown(error),
            ) => Err(DecideError::Store(error.clone())),
            // Nothing was decided about a budget.
            Err(_) => return settled,
        };
        let observer = &self.engine.observer;
        let asked = ObservedRequest { now: self.now, request: &settlement.request() };
        observer.observe(self.label, asked, seen.as_ref(), begun);
        settled
    }

    async fn try_settle(&self, settlement: &Settlement<'_>) -> Result<Settled, SettleError> {
        let Settlement { app, id, charged, cost, .. } = *settlement;
        if !(1..=KEY_BYTES_MAX).contains(&id.len()) {
            return Err(SettleError::Id(id.len()));
        }
        if cost > COST_MAX {
            return Err(SettleError::Cost(cost));
        }
        let request = settlement.request();
        let budget = ResolvedBudget::of(&self.policies, &request, self.now)?;
        // A settlement says what was charged, and takes the id: also where nothing goes back.
        if let Some(policy) = budget.policy.filter(|policy| !policy.entrusts(app)) {
            return Err(unconfigured(policy, app).into());
        }
        // Also of what goes back: rules that count held permits never charged a cost.
        let charge = Verb::AtMost { cost: Cost::ONE };
        let supported = budget.rules.set().supports(&charge);
        supported.map_err(|error| DecideError::from(error.of("settle")))?;

        let name = name_of(settlement);
        self.take_turn(&name).await?;
        // Without the store others would take from this engine's share, which is not what was charged.
        let alone = Conditions { lease: budget.lease(), ..Conditions::default() };
        let ruling = match self.engine.ask(&budget, &request.verb, alone, self.now).await {
            Ok(corrected) => corrected,
            Err(error) => return Err(self.undo(&name, error).await),
        };
        let answer = Answer::new(ruling, budget.rules);
        let granted = answer.decision.granted();
        let short = cost.saturating_sub(charged.get());
        let (refunded, taken) = match request.verb {
            Verb::Refund { .. } => (granted, 0),
            Verb::AtMost { .. } => (0, granted),
            _ => (0, 0),
        };
        Ok(Settled { refunded, taken, missing: short.saturating_sub(taken), answer })
    }

    /// Takes the one turn that `name` has.
    async fn take_turn(&self, name: &[u8]) -> Result<(), SettleError> {
        let (turn, take) = (settled(name), Verb::Check { cost: Cost::ONE });
        // Only the store knows what was settled: without it there is nothing to go on.
        let asked = self.engine.ask(&turn, &take, Conditions::default(), self.now);
        let ruling = asked.await.map_err(|error| match error.executed() {
            Executed::No => SettleError::Undone(error),
            Executed::Perhaps => SettleError::Unclaimed(error),
        })?;
        if ruling.verdict.decision.allowed() { Ok(()) } else { Err(SettleError::Settled) }
    }

    /// Gives the turn of `name` back, if the correction was surely not made.
    async fn undo(&self, name: &[u8], error: StoreError) -> SettleError {
        if error.executed() == Executed::Perhaps {
            return SettleError::Unknown(error);
        }
        match self.engine.ask(&settled(name), &Verb::Reset, Conditions::default(), self.now).await {
            Ok(_) => SettleError::Undone(error),
            Err(_) => SettleError::Unknown(error),
        }
    }
}

/// What says whether the settlement of this name was made.
fn settled(name: &[u8]) -> ResolvedBudget<'_> {
    let (policy, origin) = (None, RuleOrigin::Caller);
    ResolvedBudget { policy, name: SETTLED.into(), key: name, rules: &ONCE, origin, quota: QUOTA }
}

impl<'a> Settlement<'a> {
    fn request(&self) -> Request<'a> {
        let Self { policy, key, app, .. } = *self;
        Request { app, ..Request::new(policy, key, self.correction()) }
    }

    /// What is to be done about the difference.
    pub fn correction(&self) -> Verb {
        let Self { charged, cost, .. } = *self;
        match Cost::new(cost.abs_diff(charged.get())) {
            Ok(difference) if cost < charged.get() => Verb::Refund { cost: difference },
            Ok(difference) => Verb::AtMost { cost: difference },
            // They are the same.
            Err(_) => Verb::Peek { cost: Cost::ONE },
        }
    }
}

/// All that makes the settlement this one and no other. Lengths stand in front, so that two never
/// read the same.
fn name_of(settlement: &Settlement<'_>) -> Vec<u8> {
    // The app is left out: a caller that may say its app could settle an id again as another one.
    let Settlement { policy, key, app: _, id, charged: _, cost: _ } = *settlement;
    let mut name = Vec::new();
    for part in [Some(policy.as_bytes()), key, Some(id)] {
        match part {
            Some(part) => {
                name.extend_from_slice(&part.len().to_be_bytes());
                name.extend_from_slice(part);
            }
            // No part is as long.
            None => name.extend_from_slice(&usize::MAX.to_be_bytes()),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settlement<'a>(policy: &'a str, key: Option<&'a [u8]>, id: &'a [u8]) -> Settlement<'a> {
        Settlement { policy, key, app: None, id, charged: Cost::ONE, cost: 0 }
    }

    #[test]
    fn no_two_settlements_have_the_same_name() {
        let name = |policy, key, id| name_of(&settlement(policy, key, id));
        assert_ne!(name("a", Some(b"bc"), b"d"), name("ab", Some(b"c"), b"d"));
        assert_ne!(name("a", None, b"d"), name("a", Some(b""), b"d"));
        assert_ne!(name("a", Some(b"k"), b"d"), name("a", Some(b"k"), b"e"));
    }

    #[test]
    fn a_settlement_has_the_same_name_whichever_app_asks() {
        let one = settlement("a", None, b"i");
        let other = Settlement { app: Some("d"), ..one.clone() };
        assert_eq!(name_of(&other), name_of(&one));
    }
}
