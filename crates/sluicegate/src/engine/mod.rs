//! Policies and a store, and the way between them.
//!
//! ```text
//! Request ─▶ Turn ─▶ ResolvedBudget (policy, key, rules) ─▶ StoreGuard ─▶ Store ─▶ Answer ─▶ Admission
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `request` | what is asked, and whose budget it is by which rules |
//! | `turn` | one reading of the clock and one set of policies, and the only place that asks the store |
//! | `hold` | holds requests back as their policies say |
//! | `all` | decides several together: all pass, or none is charged |
//! | `refusals` | notes that a budget has refused a charge, until it has something again |
//! | `guard` | surrounds a store that may fail: known refusals, a breaker, this engine's share |
//! | `answer` | the decision, and what follows from it |

mod all;
mod answer;
mod booking;
mod breaker;
mod charged;
mod debts;
mod deny_cache;
mod explain;
mod fallback;
mod guard;
mod hold;
mod known_usage;
mod leased;
mod refusals;
mod repair;
mod request;
mod settle;
mod turn;
mod vacancies;

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
use crate::lease::{LeaseOptions, LeaseStats, LeasedKey, Leasing};
pub use all::{BatchError, BatchOutcome, ChargedBatch};
use answer::Ruling;
pub use answer::{Admission, Answer, Disposition, Mode};
pub use charged::Charged;
use debts::Debtor;
pub use debts::Uncharged;
pub use explain::{ExplainedLease, Explanation};
use guard::StoreGuard;
pub use hold::HELD_MAX;
pub use request::{DecideError, Limits, Patience, Request};
pub use settle::{SettleError, Settled, Settlement, settled_rules};
pub use turn::{ObservedRequest, Observer, Turn};

/// Debts that are paid together at most: as many round trips as a store has under way anyway.
const PAID_TOGETHER_MAX: usize = 64;

/// Decides requests by the policies that are in force, on a store.
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
    /// Where the store may fail.
    guard: Option<StoreGuard>,
    clock: Arc<dyn Clock>,
    held: hold::HeldCount,
    vacancies: vacancies::Vacancies,
    observer: O,
}

/// How an engine decides while its store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// Engines that share the store: under `on_store_failure: local` each enforces that part of the
    /// limits.
    pub nodes: NonZeroU32,
    /// Keys whose usage is remembered for that time at most.
    pub keys_max: usize,
}

impl Engine<MemoryStore> {
    /// An engine on a memory store of the default size and the steady clock.
    pub fn in_memory(policies: PolicySet) -> Self {
        Self::new(policies, MemoryStore::default(), Arc::new(SteadyClock::new()))
    }
}

impl<S> Engine<S> {
    /// A turn of its own for what came in now.
    pub fn turn(self: &Arc<Self>) -> Turn<'_, S> {
        self.turn_for(())
    }

    /// The same as if it were `now`, µs since the Unix epoch.
    pub fn turn_at(self: &Arc<Self>, now: Micros) -> Turn<'_, S> {
        self.turn_for_at((), now)
    }

    /// The same engine, whose decisions `observer` sees.
    pub fn observed_by<O: Observer>(self, observer: O) -> Engine<S, O> {
        let Self { policies, store, guard, clock, held, vacancies, observer: () } = self;
        Engine { policies, store, guard, clock, held, vacancies, observer }
    }
}

impl<S, O: Observer> Engine<S, O> {
    /// A turn of its own for what came in now, from where `label` says.
    pub fn turn_for(self: &Arc<Self>, label: O::Label) -> Turn<'_, S, O> {
        self.turn_for_at(label, self.clock.now())
    }

    /// The same as if it were `now`, µs since the Unix epoch.
    #[inline]
    pub fn turn_for_at(self: &Arc<Self>, label: O::Label, now: Micros) -> Turn<'_, S, O> {
        Turn { engine: self, policies: self.policies.load(), now, label }
    }

    /// What sees the decisions.
    pub const fn observer(&self) -> &O {
        &self.observer
    }
}

impl<S: Store, O: Observer> Engine<S, O> {
    /// Has the store charge what was admitted without it, as far as it answers: at most
    /// 64 keys. Returns how many keys still owe something.
    ///
    /// Each request of a key pays what is owed for it; this pays for keys that are not asked for any
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
            guard.pay(&self.store, debtor, (rules.set(), origin), &moment).await;
        } else if is_name(&debtor.policy) {
            // The policy was removed, and its budgets with it.
            guard.forget(debtor);
        } else {
            // Limits that callers bring along follow no calendar.
            let brought = (&debtor.rules, RuleOrigin::Caller);
            guard.pay(&self.store, debtor, brought, &Moment::new(now)).await;
        }
    }
}

impl<S> Engine<S> {
    /// An engine that decides by `policies` on `store`, told the time by `clock`.
    pub fn new(policies: PolicySet, store: S, clock: Arc<dyn Clock>) -> Self {
        let policies = policies.in_force(&PolicySet::default(), clock.now());
        Self {
            policies: ArcSwap::from_pointee(policies),
            store,
            guard: None,
            clock,
            held: hold::HeldCount::default(),
            vacancies: vacancies::Vacancies::default(),
            observer: (),
        }
    }

    /// The same engine on a store that may fail: it remembers refusals, stops asking a store that
    /// does not answer, and decides then as each policy says under `on_store_failure`.
    #[must_use]
    pub fn with_fallback(self, failure: StoreFailure) -> Self {
        Self { guard: Some(StoreGuard::new(failure)), ..self }
    }

    /// The same engine, which leases permits of hot keys from its store and decides them without a question,
    /// as far as the store [leases](Store::leases), the clock is [steady](Clock::steady), the policies permit
    /// it, and [`keep_leases`](Self::keep_leases) runs. It never admits more for that. Call
    /// [`with_fallback`](Self::with_fallback) first: an engine without fallback counts as the only one.
    #[must_use]
    pub fn with_leases(self, options: LeaseOptions) -> Self {
        let guard =
            self.guard.unwrap_or_else(|| StoreGuard::new(StoreFailure::shared_by(NonZeroU32::MIN)));
        let leasing = Leasing::new(options, Arc::clone(&self.clock));
        Self { guard: Some(guard.with_leases(leasing)), ..self }
    }
}

impl<S: Store, O: Observer> Engine<S, O> {
    /// Sends what leases have to say to the store, and serves the requests that wait for it. It must be
    /// spawned: while nobody sends, nothing is leased. Ends after [`return_leases`](Self::return_leases), when
    /// the store has taken the permits back or 250 ms have passed; at once where nothing can be leased.
    pub async fn keep_leases(&self) {
        let Some(guard) = &self.guard else { return };
        let Some(leasing) = guard.leasing().filter(|_| self.store.leases()) else { return };
        let deliver = |lease, letter| guard.deliver(&self.store, (lease, letter), self.clock.now());
        leasing.keep(deliver).await;
    }
}

impl<S, O: Observer> Engine<S, O> {
    /// The keys of which this engine holds permits, at most 4,096, those that are asked for most first: see
    /// [`with_leases`](Self::with_leases).
    pub fn leased_keys(&self) -> Vec<LeasedKey> {
        self.guard.as_ref().and_then(StoreGuard::leasing).map_or_else(Vec::new, Leasing::keys)
    }

    /// What was counted of leases so far; `None`: this engine has none, see [`with_leases`](Self::with_leases).
    pub fn lease_stats(&self) -> Option<LeaseStats> {
        self.guard.as_ref().and_then(StoreGuard::leasing).map(Leasing::stats)
    }

    /// Gives all permits that are leased back, and leases no more; [`keep_leases`](Self::keep_leases) ends
    /// then.
    pub fn return_leases(&self) {
        if let Some(leasing) = self.guard.as_ref().and_then(StoreGuard::leasing) {
            leasing.stop();
        }
    }

    /// The time that decisions go by: µs since the Unix epoch.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Whether it decides also while its store does not answer: see [`with_fallback`](Self::with_fallback).
    pub const fn has_fallback(&self) -> bool {
        self.guard.is_some()
    }

    /// Whether the store is given up for the moment.
    pub fn is_without_store(&self) -> bool {
        self.guard.as_ref().is_some_and(StoreGuard::is_open)
    }

    /// Keys for which more was admitted without the store than it has charged yet.
    pub fn debts(&self) -> usize {
        self.guard.as_ref().map_or(0, StoreGuard::debts)
    }

    /// Permits that were admitted without the store, and that it never charges.
    pub fn uncharged(&self) -> Uncharged {
        let guard = self.guard.as_ref();
        guard.map_or_else(Uncharged::default, |guard| guard.uncharged(self.now()))
    }

    /// How many engines share the limits from now on: each enforces that part of them while the store
    /// does not answer.
    pub fn set_nodes(&self, nodes: NonZeroU32) {
        if let Some(guard) = &self.guard {
            guard.set_nodes(nodes);
        }
    }

    /// The store was found to have forgotten what it was given, as after a failover: for a minute the
    /// first request of each key takes along what this engine knows to have been in use.
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

    /// The same, where a policy that is new or changed counts as taken over at the instant that `since` gives for
    /// its name; now, where that is `None`. Of two versions that processes hold of a policy, the one that was taken
    /// over later decides.
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
    /// `nodes` engines share the store, 1 for the only one; each remembers as many keys as a memory store holds by
    /// default. There is no default for `nodes`: with too few, the shares of all engines together exceed the limit
    /// while the store does not answer.
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
