//! Settlement: corrects a check that was made with an estimate to the actual cost.
//!
//! ```text
//! check 1000 ─▶ work ─▶ settle(id, charged 1000, cost 640) ─▶ 360 go back
//!                          └▶ the same id again: `SettleError::Settled`, nothing changes
//! ```
//!
//! **Once.** Whether an id was settled before is itself a decision: one permit an hour, for a key
//! made of policy, key and id, in the same store, whichever app asks. So it holds in a fleet as it does in one
//! process, and for two that settle at the same moment, and needs no other memory. An hour: a
//! caller that asks again because it got no answer does so within minutes, and every id that is
//! remembered takes the place of a key.
//!
//! **A caller that fails in between** (after the id was taken, before the difference is) leaves the
//! charge as it was. Nothing is ever given back twice.

use std::sync::{Arc, LazyLock};

use sluicegate_kernel::limits::{COST_MAX, KEY_BYTES_MAX};
use sluicegate_kernel::{Cost, Micros, Rate, RuleSet, TokenBucket, Verb};
use sluicegate_policy::Rules;
use sluicegate_store::{Executed, Quota, RuleOrigin, Store, StoreError};

use super::conditions::Conditions;
use super::request::{ResolvedBudget, unconfigured};
use super::{Answer, DecideError, ObservedRequest, Observer, Request, Turn};

/// Time for which an id is remembered after it was settled.
const REMEMBERED: Micros = Micros::from_secs(3_600);

/// The name under which stores keep settled ids: capital letters are in no policy's name.
const SETTLED: &str = "Settled";

/// The quota of keys of settled ids, in a memory store. Beyond it nothing more is settled until some
/// are an hour old: to settle twice would be worse.
const QUOTA: Quota<'static> = Quota::of(SETTLED);

/// The charge for a piece of work, and its actual cost.
#[derive(Clone, Debug)]
pub struct Settlement<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The key of the budget, 1..=1024 bytes; `None` is the budget that all share.
    pub key: Option<&'a [u8]>,
    /// The application that asks.
    pub app: Option<&'a str>,
    /// The caller's name for this piece of work, 1..=1024 bytes; with this policy and key it can be
    /// settled once an hour, whichever app asks.
    pub id: &'a [u8],
    /// Permits that were charged.
    pub charged: Cost,
    /// The actual cost in permits, 0..=2^31.
    pub cost: u64,
}

/// The effect of a settlement.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Permits given back: fewer than the difference if the budget is full before.
    pub refunded: u64,
    /// Permits taken beside those that were charged.
    pub taken: u64,
    /// Permits that could not be taken because the budget had no more. They are not owed.
    pub missing: u64,
    /// The budget after the correction.
    pub answer: Answer,
}

/// The reason for which nothing was settled. The charge stands, except perhaps after [`Unknown`](Self::Unknown).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The id was settled within the last hour.
    #[error("id: already settled within the last hour; nothing was changed")]
    Settled,
    /// The id is empty or too long.
    #[error("id: `{0}` bytes are outside 1..={KEY_BYTES_MAX}")]
    Id(usize),
    /// The cost is too high.
    #[error("cost: `{0}` is outside 0..={COST_MAX}")]
    Cost(u64),
    /// The budget cannot be decided; also if its rules count held permits, because no cost is charged there.
    #[error(transparent)]
    Decide(#[from] DecideError),
    /// The store did not carry out the correction. The same id may be settled again.
    #[error("store: {0}; nothing was changed, retry")]
    Undone(StoreError),
    /// The store did not report whether it has taken the id, so that no correction was made. The charge stands, and
    /// the id may count as settled for an hour.
    #[error("store: {0}; nothing was corrected; the id may count as settled for an hour")]
    Unclaimed(StoreError),
    /// The store did not report whether it carried out the correction, so it is not tried again.
    #[error("store: {0}; it is unknown whether the correction was made; it is not retried")]
    Unknown(StoreError),
}

/// Returns the rules by which all engines remember ids, with the name of the quota of their keys. A program that
/// saves the state of a memory store can save the settled ids with it.
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
    /// Corrects the charge to the actual cost: the difference is given back, or taken as far as the budget
    /// has it. Once for each id; only the store itself can ensure that, so while it does not answer
    /// nothing is settled, whatever the policy configures.
    ///
    /// It is two decisions. If the future is dropped between them, the id is settled and the charge stays
    /// as it was: run it in a task of its own. The observer sees the correction.
    ///
    /// # Errors
    /// [`SettleError`].
    #[doc(hidden)]
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
        // A settlement claims a charge and takes the id, so it needs the right also where nothing goes back.
        if let Some(policy) = budget.policy.filter(|policy| !policy.entrusts(app)) {
            return Err(unconfigured(policy, app).into());
        }
        // Also for refunds: rules that count held permits never charged a cost.
        let charge = Verb::AtMost { cost: Cost::ONE };
        let supported = budget.rules.set().supports(&charge);
        supported.map_err(|error| DecideError::from(error.of("settle")))?;

        let name = name_of(settlement);
        self.take_turn(&name).await?;
        // Without the store the correction would change this engine's share, which was not charged.
        let alone = Conditions { lease: budget.lease(), ..Conditions::default() };
        let ruling = match self.engine.ask(&budget, &request.verb, alone, self.now).await {
            Ok(corrected) => corrected,
            Err(error) => return Err(self.undo(&name, error).await),
        };
        let answer = Answer::new(&ruling, budget.rules);
        let granted = answer.decision.granted();
        let short = cost.saturating_sub(charged.get());
        let (refunded, taken) = match request.verb {
            Verb::Refund { .. } => (granted, 0),
            Verb::AtMost { .. } => (0, granted),
            _ => (0, 0),
        };
        Ok(Settled { refunded, taken, missing: short.saturating_sub(taken), answer })
    }

    /// Takes the one turn of `name`.
    async fn take_turn(&self, name: &[u8]) -> Result<(), SettleError> {
        let (turn, take) = (settled(name), Verb::Check { cost: Cost::ONE });
        // Only the store knows the settled ids: without it nothing can be settled.
        let asking = self.engine.ask(&turn, &take, Conditions::default(), self.now);
        let ruling = asking.await.map_err(|error| match error.executed() {
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

/// Returns the budget that remembers whether the settlement of this name was made.
fn settled(name: &[u8]) -> ResolvedBudget<'_> {
    let (policy, origin) = (None, RuleOrigin::Caller);
    ResolvedBudget { policy, name: SETTLED.into(), key: name, rules: &ONCE, origin, quota: QUOTA }
}

impl<'a> Settlement<'a> {
    fn request(&self) -> Request<'a> {
        let Self { policy, key, app, .. } = *self;
        Request { app, ..Request::new(policy, key, self.correction()) }
    }

    /// Returns the verb that corrects the difference; a `peek` if there is none.
    pub fn correction(&self) -> Verb {
        let Self { charged, cost, .. } = *self;
        match Cost::new(cost.abs_diff(charged.get())) {
            Ok(difference) if cost < charged.get() => Verb::Refund { cost: difference },
            Ok(difference) => Verb::AtMost { cost: difference },
            // There is no difference.
            Err(_) => Verb::Peek { cost: Cost::ONE },
        }
    }
}

/// Returns a name that is unique to the settlement. Each part has its length in front, so that no two
/// are equal.
fn name_of(settlement: &Settlement<'_>) -> Vec<u8> {
    // The app is left out: a caller that may choose its app could settle an id again as another one.
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
