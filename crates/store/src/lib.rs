//! Stores of the state of limits, which decide each request in one step.
//!
//! A store takes a [`StoreRequest`] — the rules of a policy, a key and a verb — and decides it in one step: it
//! reads the key's state, lets the kernel decide, and writes the state that the kernel returns, so that no other
//! request of the same key comes between. A store does not interpret the rules.
//!
//! [`MemoryStore`] keeps the state in this process. Other stores implement [`Store`] beside it.

mod memory;
#[cfg(feature = "redis")]
pub mod redis;

use std::future::Future;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
pub use memory::{
    KEYS_MAX, KEYS_MAX_DEFAULT, KeyHash, MemoryStore, Restored, Saved, SnapshotError,
};
pub use sluicegate_kernel::Verdict;
pub use sluicegate_kernel::lease;
use sluicegate_kernel::lease::Message;
use sluicegate_kernel::limits::RULES_MAX;
use sluicegate_kernel::{
    Called, HeldPermits, LeaseReply, Micros, Moment, NamedRule, RangeError, RuleSet, States,
    Status, Unsupported, Verb,
};

/// One request as a store sees it.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest<'a> {
    /// The policy's name: the same key under another policy is another budget.
    pub policy: &'a str,
    /// The owner of the budget; empty: the budget that all requests share.
    pub key: &'a [u8],
    /// The rules that hold for this key now.
    pub rules: &'a Arc<RuleSet>,
    /// The verb.
    pub verb: &'a Verb,
    /// The origin of the rules.
    pub origin: RuleOrigin,
    /// The quota that the key counts to.
    pub quota: Quota<'a>,
}

/// The origin of rules: it orders two rule sets that meet at a key. A store of one process does not need it,
/// because there the rules of each request are those in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleOrigin {
    /// A policy's, of a version that this process took over at that instant. Of two versions that meet
    /// at a key the one that was taken over later decides, for every caller.
    Policy {
        /// The instant: the same for all rules of a version, and later than that of any earlier version.
        since: Micros,
    },
    /// The caller sent them with the request: they decide about it, whatever was there before.
    Caller,
}

impl Default for RuleOrigin {
    /// Returns the origin of a policy that was taken over before every other.
    fn default() -> Self {
        Self::Policy { since: Micros::ZERO }
    }
}

/// The quota of keys that a key counts to, in a store that holds only so many, and the treatment of new keys
/// beyond it. A key that already has a state keeps its own budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota<'a> {
    /// Keys under one name have one quota: all of a policy, with its overrides.
    pub name: &'a str,
    /// The treatment of new keys beyond it.
    pub beyond: BeyondQuota,
}

/// The treatment of a new key when a store has no room for a budget of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeyondQuota {
    /// All such keys of the same rules share one budget.
    #[default]
    Share,
    /// They are refused.
    Deny,
}

impl<'a> Quota<'a> {
    /// The quota of all limits that callers send with their requests. No policy has this name.
    pub const CALLERS: Quota<'static> = Quota::of("(caller)");

    /// Returns the quota of this name, beyond which new keys share a budget.
    pub const fn of(name: &'a str) -> Self {
        Self { name, beyond: BeyondQuota::Share }
    }
}

/// Why a store gave no verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The rules do not know the verb; no state was changed.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The store did not answer in time, or answered that it cannot decide.
    #[error("{reason}")]
    Unavailable {
        /// A description, without secrets.
        reason: String,
        /// `Perhaps` if the request may have taken effect nevertheless.
        executed: Executed,
    },
    /// The store answers, but has more to do than it can within the deadline of this request.
    #[error("overloaded: it answers, but not within the deadline of this request{}", executed.remark())]
    Overloaded {
        /// `Perhaps` if the request may have taken effect nevertheless.
        executed: Executed,
    },
    /// The store answers, but callers with other rules came in between each time.
    #[error("too many concurrent rule changes on this key{}", executed.remark())]
    Contended {
        /// `Perhaps` if the request may have taken effect nevertheless.
        executed: Executed,
    },
    /// The store answers, but cannot decide on this key: what is stored there is not a state that it can
    /// read or write. Other keys are not affected. The request took no effect.
    #[error("{reason}")]
    Unreadable {
        /// A description of the problem, without secrets.
        reason: String,
    },
    /// A decision by these rules could take more of the store's time than any key may. The request took no
    /// effect.
    #[error("rules: {0}")]
    TooDear(RangeError),
}

impl StoreError {
    /// Returns whether the request may have taken effect nevertheless.
    pub const fn executed(&self) -> Executed {
        match self {
            Self::Unsupported(_) | Self::Unreadable { .. } | Self::TooDear(_) => Executed::No,
            Self::Unavailable { executed, .. }
            | Self::Overloaded { executed }
            | Self::Contended { executed } => *executed,
        }
    }
}

/// The effect of a request that was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// The request was not executed; it can be sent again.
    No,
    /// Unknown; if the request is sent again, it might be charged twice.
    Perhaps,
}

impl Executed {
    /// Returns what a message adds about a request that may have taken effect.
    const fn remark(self) -> &'static str {
        match self {
            Self::No => "",
            Self::Perhaps => "; it is unknown whether the request took effect",
        }
    }
}

/// Permits that a caller admitted while it could not ask the store, and that the store is to charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// The id of this debt: however often it is sent, it is charged once. A store need not remember an id of which
    /// it charged nothing: the debt is then sent under the same id again.
    pub id: u128,
    /// Permits of each rule, in the order of the rules; each at most
    /// [`COST_MAX`](sluicegate_kernel::limits::COST_MAX).
    pub permits: Permits,
    /// The way in which they are charged.
    pub charge: Charge,
}

/// The way in which permits are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// Besides what is in use: see [`RuleSet::debit`].
    Added,
    /// Until so many are in use: see [`RuleSet::raise`]. For a store that has forgotten.
    AtLeast,
}

/// Permits of each rule of a set, in the order of the rules.
pub type Permits = [u64; RULES_MAX];

/// A request, and the moment at which it is decided.
#[derive(Clone, Copy, Debug)]
pub struct RequestAt<'a> {
    /// The request.
    pub request: StoreRequest<'a>,
    /// The moment.
    pub at: Moment<'a>,
}

/// A key of a policy.
#[derive(Clone, Copy, Debug)]
pub struct PolicyKey<'k> {
    /// Name of the policy.
    pub policy: &'k str,
    /// The key.
    pub key: &'k [u8],
}

/// The answer of a store to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAnswer {
    /// The decision.
    pub verdict: Verdict,
    /// The permits in use under each rule: the place of the rule, and the number, which is above the limit if that
    /// was lowered. Empty if the store does not report it: then the verdict has the number, at most the limit, for the
    /// rule that decided.
    pub in_use: Vec<(usize, u64)>,
    /// Waiting requests that would pass now ([`RuleSet::called`]). Only answers to verbs of permits have them.
    pub called: Vec<Called>,
}

impl StoreAnswer {
    /// Returns the answer of a store that decided by `rules` and keeps `states` from now on.
    pub fn of(verdict: Verdict, rules: &RuleSet, states: &States, at: &Moment<'_>) -> Self {
        let called = rules.called(states, at);
        let used = rules.in_use(states, at).into_iter().zip(rules.rules()).enumerate();
        let in_use = used.map(|(place, (used, NamedRule { rule, .. }))| {
            let state = states.as_slice().get(place).and_then(Option::as_ref);
            let Status { remaining, .. } = rule.status(state, &at.for_rule(place));
            let limit = rule.limit();
            // The doubles of Guava's two round a use and what is left apart.
            (place, if remaining > 0 { limit - remaining } else { used.max(limit) })
        });
        Self { verdict, in_use: in_use.collect(), called }
    }
}

impl From<Verdict> for StoreAnswer {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, in_use: Vec::new(), called: Vec::new() }
    }
}

/// A store of states.
pub trait Store: Send + Sync {
    /// Decides `request` at the moment `at`, atomically.
    ///
    /// # Errors
    /// [`StoreError`] if there is no verdict. A refusal is a verdict.
    fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<StoreAnswer, StoreError>> + Send;

    /// Decides each of `requests`, at its moment, on its own: as [`decide`](Self::decide), but waited for
    /// together. Passes the place of each and its answer to `on_answer` as soon as the answer is there: a grant must
    /// not reach its caller late.
    fn decide_each(
        &self,
        requests: &[RequestAt<'_>],
        on_answer: &mut (impl FnMut(usize, Result<StoreAnswer, StoreError>) + Send),
    ) -> impl Future<Output = ()> + Send {
        async move {
            let deciding =
                requests.iter().enumerate().map(|(place, RequestAt { request, at })| async move {
                    (place, self.decide(request, at).await)
                });
            let mut deciding: FuturesUnordered<_> = deciding.collect();
            while let Some((place, answer)) = deciding.next().await {
                on_answer(place, answer);
            }
        }
    }

    /// Charges `debt` and then decides `request`, in one step. Returns also the permits of the debt that were
    /// charged, now or when its id came before; the rest is still owed.
    ///
    /// # Errors
    /// [`StoreError`] if there is no verdict. A store that always answers has no debtors, and accepts no debts:
    /// [`StoreError::Unavailable`].
    fn charge_and_decide(
        &self,
        debt: &Debt,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<(StoreAnswer, Permits), StoreError>> + Send {
        let _ = (debt, request, at);
        let reason = "this store does not support debts".to_owned();
        std::future::ready(Err(StoreError::Unavailable { reason, executed: Executed::No }))
    }

    /// Returns whether holders can lease permits of this store: whether many processes share it, by one clock.
    fn leases(&self) -> bool {
        false
    }

    /// Answers `message`, which a holder sends about the key of `request`; the verb of `request` is ignored. An
    /// error reports whether the message may have been executed. It is never repeated: a holder sends its next
    /// one.
    ///
    /// # Errors
    /// [`StoreError`] if there is no answer; from a store that does not [lease](Self::leases):
    /// [`StoreError::Unavailable`].
    fn lease(
        &self,
        request: &StoreRequest<'_>,
        message: &Message,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<LeaseReply, StoreError>> + Send {
        let _ = (request, message, at);
        let reason = "this store does not support leases".to_owned();
        std::future::ready(Err(StoreError::Unavailable { reason, executed: Executed::No }))
    }

    /// Returns the permits that are held of the key of `request`, and how many requests wait; the verb of `request` is
    /// ignored. No usage changes. A state that was written under other rules is taken over as by a decision.
    ///
    /// # Errors
    /// [`StoreError`] if there is no list: [`StoreError::Unsupported`] if the rules hold no permits,
    /// [`StoreError::Contended`] if a later version of the rules wrote the state.
    fn held(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<HeldPermits, StoreError>> + Send {
        let _ = (request, at);
        let reason = "this store does not list held permits".to_owned();
        std::future::ready(Err(StoreError::Unavailable { reason, executed: Executed::No }))
    }

    /// Passes `called`, requests that wait in other processes, on to these: see [`announced`](Self::announced). They may be
    /// lost: each process asks again within a second anyway.
    fn announce(&self, called: &[Called]) -> impl Future<Output = ()> + Send {
        let _ = called;
        std::future::ready(())
    }

    /// Returns the next requests that another process has [announced](Self::announce); never, if no other process shares
    /// the store.
    fn announced(&self) -> impl Future<Output = Vec<Called>> + Send {
        std::future::pending()
    }

    /// Returns the verdict alone, from a store that decides without waiting, or [`StoreError::Overloaded`] if it
    /// is clear at once that the store cannot decide in time; otherwise `None`, and nothing was done.
    fn decide_at_once(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Option<Result<Verdict, StoreError>> {
        let _ = (request, at);
        None
    }

    /// Announces that these keys, (policy, key) each, will be decided next. Changes nothing.
    fn prefetch<'k>(&self, keys: impl Iterator<Item = PolicyKey<'k>>) {
        drop(keys);
    }
}

impl Store for MemoryStore {
    fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<StoreAnswer, StoreError>> + Send {
        let decided = self.decide_now(request, at).map(|verdict| {
            let called = self.called(request, at);
            StoreAnswer { called, ..StoreAnswer::from(verdict) }
        });
        std::future::ready(decided.map_err(StoreError::from))
    }

    fn held(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<HeldPermits, StoreError>> + Send {
        std::future::ready(self.held_now(request, at))
    }

    #[inline]
    fn decide_at_once(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Option<Result<Verdict, StoreError>> {
        Some(self.decide_now(request, at).map_err(StoreError::from))
    }

    fn prefetch<'k>(&self, keys: impl Iterator<Item = PolicyKey<'k>>) {
        self.prefetch(keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_if_a_request_may_have_taken_effect() {
        let text = |executed| StoreError::Overloaded { executed }.to_string();
        assert!(
            text(Executed::Perhaps).ends_with("; it is unknown whether the request took effect")
        );
        assert!(text(Executed::No).ends_with("not within the deadline of this request"));
    }
}
