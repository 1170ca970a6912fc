//! The engine: decides requests by policies on a store.
//!
//! ```text
//! Request ─▶ Turn ─▶ ResolvedBudget (policy, key, rules) ─▶ StoreGuard ─▶ Store ─▶ Answer ─▶ Admission
//! ```
//!
//! | file | task |
//! |---|---|
//! | `request` | the request, and the budget and rules that it resolves to |
//! | `turn` | one reading of the clock, one set of policies, and the only wait for a decision of the store |
//! | `hold` | delays requests as their policies require |
//! | `acquire`, `waiters` | the wait for a permit, and the requests of this process that wait |
//! | `held_permit` | a permit that is held as long as its owner is not dropped |
//! | `late_grants` | releases of permits that the store may have granted too late |
//! | `all` | decides several together: all pass, or none is charged |
//! | `refusals` | notes that a budget has refused a charge, until it has permits again |
//! | `conditions` | the settings of a policy beside its rules, which the guard follows |
//! | `guard` | surrounds a store that may fail: known refusals, a breaker, this engine's share |
//! | `leased`, `deny_cache`, `breaker` | what the guard looks at before the store: permits, refusals, failures |
//! | `fallback`, `known_usage`, `debts`, `account` | the share while the store is away; what the store charges later |
//! | `answer` | the decision, and its consequences |

mod account;
mod acquire;
mod all;
mod answer;
mod booking;
mod breaker;
mod charged;
mod conditions;
mod debts;
mod deny_cache;
mod explain;
mod fallback;
mod guard;
#[cfg(feature = "tower")]
mod held_permit;
mod hold;
mod known_usage;
mod late_grants;
mod leased;
mod refusals;
mod repair;
mod request;
mod settle;
mod turn;
mod vacancies;
mod waiters;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use sluicegate_kernel::ruleset::is_name;
use sluicegate_kernel::{Micros, Moment};
use sluicegate_policy::{PolicySet, RulesInForce};
use sluicegate_store::{KEYS_MAX_DEFAULT, MemoryStore, RuleOrigin, Store};

use crate::clock::{Clock, SteadyClock};
use crate::lease::{LeaseStats, LeasedKey, Leasing};
use account::Debtor;
pub use all::{BatchError, BatchOutcome, ChargedBatch};
use answer::Ruling;
pub use answer::{Admission, Answer, Disposition, Mode};
pub use charged::Charged;
pub use debts::Uncharged;
pub use explain::{ExplainedLease, Explanation};
use guard::{OriginatedRules, StoreGuard};
#[cfg(feature = "tower")]
pub(crate) use held_permit::HeldPermit;
pub use hold::HELD_MAX;
pub use request::{DecideError, Limits, Patience, Request};
pub use settle::{SettleError, Settled, Settlement, settled_rules};
pub use turn::{ObservedRequest, Observer, Turn};

/// Most debts that are paid together: as many round trips as a store has under way anyway.
const PAID_TOGETHER_MAX: usize = 64;

/// An engine that decides requests by the policies in force, on a store.
///
/// ```
/// use std::sync::Arc;
///
/// use sluicegate::{Cost, Engine, Micros, Request, Verb};
/// use sluicegate::policy::{Document, PolicySet};
///
/// let document = Document::parse(
///     "policies: [{ name: login, rules: [{ token_bucket: { rate: 1/s, burst: 2 } }] }]",
/// )?;
/// let engine = Arc::new(Engine::in_memory(PolicySet::new(document)));
/// let request = Request::new("login", Some(b"alice"), Verb::Check { cost: Cost::ONE });
/// // State in memory need not be waited for.
/// let admission = engine.turn_at(Micros::ZERO).try_decide(&request).expect("nothing to wait for")?;
/// assert!(admission.way.passes());
/// assert_eq!((admission.answer.decision.remaining, admission.answer.rule()), (1, "token_bucket"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S = MemoryStore, O: Observer = ()> {
    policies: ArcSwap<PolicySet>,
    store: S,
    /// The guard of a store that may fail.
    guard: Option<StoreGuard>,
    clock: Arc<dyn Clock>,
    held: hold::HeldCount,
    vacancies: vacancies::Vacancies,
    waiters: waiters::Waiters,
    late_grants: late_grants::LateGrants,
    observer: O,
}

/// Settings of an engine for the time when its store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// Engines that share the store: under `on_store_failure: local` each enforces that part of the
    /// limits.
    pub nodes: NonZeroU32,
    /// Most keys whose usage is remembered for that time.
    pub keys_max: usize,
}

impl Engine<MemoryStore> {
    /// Returns an engine on a memory store of the default size and the steady clock.
    pub fn in_memory(policies: PolicySet) -> Self {
        Self::new(policies, MemoryStore::default(), Arc::new(SteadyClock::new()))
    }
}

impl<S> Engine<S> {
    /// Returns a turn for requests that came in now.
    pub fn turn(self: &Arc<Self>) -> Turn<'_, S> {
        self.turn_for(())
    }

    /// Returns a turn for requests that came in at `now`, µs since the Unix epoch.
    pub fn turn_at(self: &Arc<Self>, now: Micros) -> Turn<'_, S> {
        self.turn_for_at((), now)
    }

    /// Returns this engine with `observer`, which sees its decisions.
    #[doc(hidden)]
    pub fn observed_by<O: Observer>(self, observer: O) -> Engine<S, O> {
        let Self {
            policies,
            store,
            guard,
            clock,
            held,
            vacancies,
            waiters,
            late_grants,
            observer: (),
        } = self;
        Engine { policies, store, guard, clock, held, vacancies, waiters, late_grants, observer }
    }
}

impl<S, O: Observer> Engine<S, O> {
    /// Returns a turn for requests that came in now, under `label`.
    #[doc(hidden)]
    pub fn turn_for(self: &Arc<Self>, label: O::Label) -> Turn<'_, S, O> {
        self.turn_for_at(label, self.clock.now())
    }

    /// Returns a turn for requests that came in at `now`, µs since the Unix epoch, under `label`.
    #[inline]
    #[doc(hidden)]
    pub fn turn_for_at(self: &Arc<Self>, label: O::Label, now: Micros) -> Turn<'_, S, O> {
        Turn { engine: self, policies: self.policies.load(), now, label }
    }

    /// The observer of the decisions.
    #[doc(hidden)]
    pub const fn observer(&self) -> &O {
        &self.observer
    }
}

impl<S: Store, O: Observer> Engine<S, O> {
    /// Has the store charge what was admitted without it, for at most 64 keys and as far as it answers.
    /// Returns [`debts`](Self::debts), the number of keys that may still owe something.
    ///
    /// Each request of a key pays what is owed for it; this pays for keys that no request uses any
    /// more. Call it every now and then, a few times a second, while [`debts`](Self::debts) is not 0.
    pub async fn pay_debts(&self) -> usize {
        let Some(guard) = self.guard.as_ref().filter(|guard| guard.debts() > 0) else { return 0 };
        let policies = self.policies.load_full();
        let debtors = guard.debtors(PAID_TOGETHER_MAX);
        let paying = debtors.iter().map(|debtor| self.pay(guard, &policies, debtor));
        join_all(paying).await;
        guard.debts()
    }

    async fn pay(&self, guard: &StoreGuard, policies: &PolicySet, debtor: &Debtor) {
        let now = self.clock.now();
        if let Some(policy) = policies.resolve(&debtor.policy) {
            let RulesInForce { rules, since, .. } = policy.rules_at(&debtor.key, now);
            let windows = rules.windows(now);
            let moment = Moment::with_windows(now, windows.as_slice());
            let origin = RuleOrigin::Policy { since };
            let rules = OriginatedRules { rules: rules.set(), origin };
            guard.pay(&self.store, debtor, rules, &moment).await;
        } else if is_name(&debtor.policy) {
            // The policy was removed, and its budgets with it.
            guard.forget(debtor);
        } else {
            // Limits that callers bring along follow no calendar.
            let brought = OriginatedRules { rules: &debtor.rules, origin: RuleOrigin::Caller };
            guard.pay(&self.store, debtor, brought, &Moment::new(now)).await;
        }
    }
}

impl<S> Engine<S> {
    /// Returns an engine that decides by `policies` on `store`, with the time of `clock`.
    pub fn new(policies: PolicySet, store: S, clock: Arc<dyn Clock>) -> Self {
        let policies = policies.in_force(&PolicySet::default(), clock.now());
        Self {
            policies: ArcSwap::from_pointee(policies),
            store,
            guard: None,
            clock,
            held: hold::HeldCount::default(),
            vacancies: vacancies::Vacancies::default(),
            waiters: waiters::Waiters::default(),
            late_grants: late_grants::LateGrants::default(),
            observer: (),
        }
    }

    /// Returns this engine for a store that may fail: it remembers refusals, stops asking a store that
    /// does not answer, and then decides by each policy's `on_store_failure`.
    #[must_use]
    pub fn with_fallback(self, failure: StoreFailure) -> Self {
        Self { guard: Some(StoreGuard::new(failure)), ..self }
    }

    /// Returns this engine, leasing permits of hot keys from its store and deciding them without a question,
    /// as far as the store [leases](Store::leases), the clock is [steady](Clock::steady), the policies permit
    /// it, and [`keep_leases`](Self::keep_leases) runs. Leases never admit more. Call
    /// [`with_fallback`](Self::with_fallback) first: an engine without fallback counts as the only one.
    ///
    /// `patience` is the longest time until an answer about a lease is accepted: the deadline of the store or longer,
    /// at most 250 ms; [`LEASE_PATIENCE`](crate::LEASE_PATIENCE) suits most. The permits of a process that crashes come
    /// back that much later.
    #[must_use]
    pub fn with_leases(self, patience: Micros) -> Self {
        let guard =
            self.guard.unwrap_or_else(|| StoreGuard::new(StoreFailure::shared_by(NonZeroU32::MIN)));
        let leasing = Leasing::new(patience, Arc::clone(&self.clock));
        Self { guard: Some(guard.with_leases(leasing)), ..self }
    }
}

impl<S: Store, O: Observer> Engine<S, O> {
    /// Sends the messages of leases to the store, and serves the requests that wait for it. Spawn it: while it
    /// does not run, nothing is leased. Ends after [`return_leases`](Self::return_leases), when
    /// the store has taken the permits back or 250 ms have passed; at once where nothing can be leased.
    pub async fn keep_leases(&self) {
        let Some(guard) = &self.guard else { return };
        let Some(leasing) = guard.leasing().filter(|_| self.store.leases()) else { return };
        let deliver =
            |lease, outgoing| guard.deliver(&self.store, lease, outgoing, self.clock.now());
        leasing.keep(deliver, |key, subject, permits| guard.forgotten(key, subject, permits)).await;
    }
}

impl<S, O: Observer> Engine<S, O> {
    /// The keys of which this engine holds permits, at most 4,096, those with the most requests first: see
    /// [`with_leases`](Self::with_leases).
    #[doc(hidden)]
    pub fn leased_keys(&self) -> Vec<LeasedKey> {
        self.guard.as_ref().and_then(StoreGuard::leasing).map_or_else(Vec::new, Leasing::keys)
    }

    /// Counts of leases so far; `None`: this engine has none, see [`with_leases`](Self::with_leases).
    #[doc(hidden)]
    pub fn lease_stats(&self) -> Option<LeaseStats> {
        self.guard.as_ref().and_then(StoreGuard::leasing).map(Leasing::stats)
    }

    /// Gives all leased permits back, and leases no more; [`keep_leases`](Self::keep_leases) then
    /// ends.
    pub fn return_leases(&self) {
        if let Some(leasing) = self.guard.as_ref().and_then(StoreGuard::leasing) {
            leasing.stop();
        }
    }

    /// The time of decisions: µs since the Unix epoch.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Returns whether it also decides while its store does not answer: see [`with_fallback`](Self::with_fallback).
    pub const fn has_fallback(&self) -> bool {
        self.guard.is_some()
    }

    /// Returns whether the breaker is open: decisions are made without the store for now.
    pub fn is_without_store(&self) -> bool {
        self.guard.as_ref().is_some_and(StoreGuard::is_open)
    }

    /// Number of keys with an account of permits that were admitted without the store, until it has charged them.
    pub fn debts(&self) -> usize {
        self.guard.as_ref().map_or(0, StoreGuard::debts)
    }

    /// Numbers of permits that were admitted without the store, and that it never charges.
    #[doc(hidden)]
    pub fn uncharged(&self) -> Uncharged {
        let guard = self.guard.as_ref();
        guard.map_or_else(Uncharged::default, |guard| guard.uncharged(self.now()))
    }

    /// Sets the number of engines that share the limits from now on: each enforces that part of them while the
    /// store does not answer.
    pub fn set_nodes(&self, nodes: NonZeroU32) {
        if let Some(guard) = &self.guard {
            guard.set_nodes(nodes);
        }
    }

    /// Begins to restore usage in a store that has lost data, as after a failover: for a minute the
    /// first request of each key carries the usage that this engine knows.
    pub fn remind_store(&self) {
        if let Some(guard) = &self.guard {
            guard.remind_store(self.clock.now());
        }
    }

    /// The policies in force.
    pub fn policies(&self) -> Arc<PolicySet> {
        self.policies.load_full()
    }

    /// Puts `policies` in force from the next request on. Usage is carried over.
    pub fn set_policies(&self, policies: PolicySet) {
        self.set_policies_as_of(policies, |_| None);
    }

    /// Puts `policies` in force, where a policy that is new or changed counts as taken over at the instant that `since`
    /// gives for its name; now, if that is `None`. Of two versions of a policy in several processes, the one that was
    /// taken over later decides.
    pub fn set_policies_as_of(&self, policies: PolicySet, since: impl Fn(&str) -> Option<Micros>) {
        let now = self.clock.now();
        let old = self.policies.load();
        let policies = policies.in_force_as_of(&old, |name| since(name).unwrap_or(now));
        self.policies.store(Arc::new(policies));
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }
}

impl StoreFailure {
    /// Returns the settings for `nodes` engines that share the store, 1 for the only one; each remembers as many keys
    /// as a memory store holds by default. There is no default for `nodes`: with too few, the shares of all engines
    /// together exceed the limit while the store does not answer.
    pub const fn shared_by(nodes: NonZeroU32) -> Self {
        Self { nodes, keys_max: KEYS_MAX_DEFAULT }
    }
}

impl<S: fmt::Debug, O: Observer> fmt::Debug for Engine<S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, clock, .. } = self;
        f.debug_struct("Engine").field("store", store).field("clock", clock).finish_non_exhaustive()
    }
}
