//! The budgets of keys for which there is no room, in the store or in the key quota of their policy: new keys of the
//! same rules share one.
//!
//! So a flood of made-up keys gets what one key gets, once, and does not affect the keys that were there before. Honest
//! keys that come later share with the flood: that is the price of a bound, and it lasts until keys are full again and
//! make room.
//!
//! ```text
//! key ─▶ shard: it has a state, or there is room for one ─▶ its own budget
//!          └▶ neither ─▶ `Share`: the one budget of these rules │ `Deny`: refused
//! ```

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use sluicegate_kernel::{
    Decision, Left, Micros, Moment, Outcome, PermitId, Retry, RuleSet, States, Unsupported, Verb,
    Verdict,
};

use super::KeyHash;
use super::shard::is_late;
use crate::{BeyondQuota, StoreRequest};

/// Most shared budgets: as many as a shard tells rule sets apart. The keys of further rules are refused.
const BUDGETS_MAX: usize = 4_096;

/// The period in which full budgets are removed, if there are [`BUDGETS_MAX`].
const SWEEP_EVERY: Micros = Micros::SECOND;

/// The retry of a refusal if there is no budget at all.
const ASK_AGAIN: Micros = Micros::SECOND;

/// The budgets that keys share, and the number of their decisions.
#[derive(Debug, Default)]
pub(super) struct KeysBeyondQuota {
    budgets: Mutex<SharedBudgets>,
    decisions: AtomicU64,
}

#[derive(Debug, Default)]
struct SharedBudgets {
    /// The budgets by the address of their rules, which are held.
    by_rules: HashMap<usize, SharedBudget>,
    /// The latest instant of a decision, since the clock was last put back.
    latest: Micros,
    swept: Micros,
}

#[derive(Debug)]
struct SharedBudget {
    rules: Arc<RuleSet>,
    states: States,
}

impl KeysBeyondQuota {
    /// Decides on a key that has no state and no room for one.
    ///
    /// # Errors
    /// [`Unsupported`] if the rules do not know the verb; no state was changed.
    pub(super) fn decide(
        &self,
        key: KeyHash,
        &StoreRequest { rules, verb, quota, .. }: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        rules.supports(verb)?;
        let has_permit =
            matches!(verb, Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. });
        if !has_permit {
            self.decisions.fetch_add(1, Relaxed);
            if quota.beyond == BeyondQuota::Deny {
                return Ok(nothing_left(rules, verb));
            }
        }
        let verb = &of_key(verb, key);
        let mut budgets = self.budgets.lock();
        let is_late = is_late(&mut budgets.latest, at.now());
        let at = &if is_late { at.as_of(budgets.latest) } else { *at };
        match budgets.of(rules, !has_permit, at.now()) {
            Some(states) if is_of_own_budget(verb) => Ok(rules.unchanged(states, at)),
            Some(states) => rules.decide(states, verb, at),
            None if has_permit => rules.decide(&mut States::default(), verb, at),
            None => Ok(nothing_left(rules, verb)),
        }
    }

    /// Returns whether keys without room hold permits of `rules`, or wait for some, in the budget that they share.
    pub(super) fn is_in_use(&self, rules: &Arc<RuleSet>, at: &Moment<'_>) -> bool {
        let mut budgets = self.budgets.lock();
        let states = budgets.of(rules, false, at.now());
        states.is_some_and(|states| {
            let held = rules.held(states, at);
            !held.permits.is_empty() || held.waiting > 0
        })
    }

    /// Returns the number of requests that were decided here.
    pub(super) fn decisions(&self) -> u64 {
        self.decisions.load(Relaxed)
    }
}

impl SharedBudgets {
    /// Returns the states of the budget under `rules`; makes a new one if `is_wanted` and there is room.
    fn of(&mut self, rules: &Arc<RuleSet>, is_wanted: bool, now: Micros) -> Option<&mut States> {
        let address = Arc::as_ptr(rules).addr();
        if is_wanted && !self.by_rules.contains_key(&address) && self.has_room(now) {
            let budget = SharedBudget { rules: Arc::clone(rules), states: States::default() };
            self.by_rules.insert(address, budget);
        }
        self.by_rules.get_mut(&address).map(|budget| &mut budget.states)
    }

    fn has_room(&mut self, now: Micros) -> bool {
        let is_swept = self.swept <= now && now.since(self.swept) < SWEEP_EVERY;
        if self.by_rules.len() >= BUDGETS_MAX && !is_swept {
            self.swept = now;
            self.by_rules.retain(|_, budget| budget.rules.left(&budget.states, now) < Left::ALL);
        }
        self.by_rules.len() < BUDGETS_MAX
    }
}

/// Returns `verb`, with a permit that no other key has: callers may use the same permit ids for all their keys.
fn of_key(verb: &Verb, KeyHash { shard, tag }: KeyHash) -> Verb {
    let own = |permit: PermitId| PermitId(permit.0 ^ (u128::from(shard) << 64 | u128::from(tag)));
    match *verb {
        // Requests of keys that share a budget do not wait in its queue.
        Verb::Acquire { cost, permit } | Verb::Wait { cost, permit, .. } => {
            Verb::Acquire { cost, permit: own(permit) }
        }
        Verb::Leave { permit, process } => Verb::Leave { permit: own(permit), process },
        Verb::Release { permit } => Verb::Release { permit: own(permit) },
        Verb::Renew { permit } => Verb::Renew { permit: own(permit) },
        _ => verb.clone(),
    }
}

/// Returns whether `verb` gives permits back to a budget of the key's own alone: a caller must not refill one that
/// others share.
const fn is_of_own_budget(verb: &Verb) -> bool {
    matches!(verb, Verb::Refund { .. } | Verb::Reset)
}

/// Returns the answer to `verb` without a budget: no permit is left, and none is given back.
fn nothing_left(rules: &RuleSet, verb: &Verb) -> Verdict {
    let outcome = match is_of_own_budget(verb) {
        true => Outcome::Allow { granted: 0, wait: Micros::ZERO },
        false => Outcome::Deny { retry: Retry::After(ASK_AGAIN) },
    };
    let limit = rules.rules()[0].rule.limit();
    let decision = Decision { outcome, limit, remaining: 0, reset_after: ASK_AGAIN };
    Verdict { decision, rule: 0 }
}
