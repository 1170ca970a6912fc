//! One request, end to end: which rules hold, what the store says, what the answer is.
//!
//! ```text
//! Request ─▶ PolicySet::resolve ─▶ rules for the key ─▶ Store::decide ─▶ Answer
//! ```
//!
//! A store that may fail has a [`Guard`] around it: known refusals, a breaker, and what the policy
//! says for the time without a store.
//!
//! The clock is read once per request, here; everything below is told the time.

mod breaker;
mod debts;
mod denials;
mod explain;
mod fallback;
mod guard;
mod known;
#[cfg(feature = "tokio")]
mod passage;
mod repair;
mod settle;
#[cfg(feature = "tokio")]
mod turns;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_kernel::ruleset::is_name;
use sluicegate_kernel::{Decision, Micros, Moment, RuleSet, Unsupported, Verb, Verdict};
use sluicegate_policy::{OnKeyQuota, Policy, PolicySet, Rules};
use sluicegate_store::{
    BeyondQuota, KEYS_MAX_DEFAULT, MemoryStore, Origin, Quota, Request as StoreRequest, Store,
    StoreError,
};

use crate::clock::{Clock, SteadyClock};
use debts::Debtor;
pub use explain::Explanation;
use guard::{Guard, Otherwise};
#[cfg(feature = "tokio")]
pub use passage::{HELD_MAX, Passage, Way};
pub use settle::{SettleError, Settled, Settlement, settled_rules};

/// Debts that are paid together at most: as many round trips as a store has under way anyway.
const PAID_TOGETHER_MAX: usize = 64;

/// Decides requests by the policies that are in force, on a store.
///
/// ```
/// use sluicegate::{Cost, Engine, Micros, Request, Verb};
/// use sluicegate::policy::{Document, PolicySet};
///
/// let document = Document::parse(
///     "policies: [{ name: login, rules: [{ token_bucket: { rate: 1/s, burst: 2 } }] }]",
/// )?;
/// let engine = Engine::in_memory(PolicySet::new(document));
/// let request = Request::new("login", Some(b"alice"), Verb::Check { cost: Cost::ONE });
/// let answer = engine.decide_at(&request, Micros::ZERO)?;
/// assert!(answer.decision.allowed());
/// assert_eq!((answer.decision.remaining, answer.rule()), (1, "token_bucket"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S = MemoryStore> {
    policies: ArcSwap<PolicySet>,
    store: S,
    /// Where the store may fail.
    guard: Option<Guard>,
    clock: Arc<dyn Clock>,
    #[cfg(feature = "tokio")]
    held: passage::Held,
    #[cfg(feature = "tokio")]
    turns: turns::Turns,
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

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The store.
    Store,
    /// This engine, which knows from the store that this is refused until then.
    Remembered,
    /// This engine without the store: its share of the limit.
    Local,
    /// Nobody: the store does not answer, and the policy says `allow`.
    Allow,
    /// Nobody: the store does not answer, and the policy says `deny`.
    Deny,
    /// Nobody: the store answers, but could not decide this in time. It was refused.
    Shed,
}

/// What a caller asks of the engine.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Whose budget it is, 1..=1024 bytes; `None` is the budget that all share.
    pub key: Option<&'a [u8]>,
    /// The application that asks; a policy may be for some only.
    pub app: Option<&'a str>,
    /// What is wanted.
    pub verb: Verb,
}

/// The engine's answer: a decision and the rule that made it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// Who made it.
    pub mode: Mode,
    rules: Arc<RuleSet>,
    rule: usize,
}

/// Why there is no decision. No state was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// There is no policy of this name.
    #[error("policy: there is no policy `{0}`")]
    UnknownPolicy(String),
    /// The policy is not for this application.
    #[error("app: policy `{policy}` is not configured for {}", app_name(.app))]
    Unconfigured {
        /// The policy.
        policy: String,
        /// Who asked.
        app: Option<String>,
    },
    /// The key is empty.
    #[error(
        "key: is empty, expected 1..={KEY_BYTES_MAX} bytes; leave it out for the shared budget"
    )]
    EmptyKey,
    /// The key is too long. It is never cut: two users must not share a budget.
    #[error("key: `{0}` bytes are outside 1..={KEY_BYTES_MAX}")]
    LongKey(usize),
    /// The policy's rules do not know the verb.
    #[error("op: {0}")]
    Unsupported(#[from] Unsupported),
    /// The store gave no verdict.
    #[error("store: {0}")]
    Store(StoreError),
}

impl Engine<MemoryStore> {
    /// An engine on a memory store of the default size and the steady clock.
    pub fn in_memory(policies: PolicySet) -> Self {
        Self::new(policies, MemoryStore::default(), Arc::new(SteadyClock::new()))
    }

    /// Decides `request` as if it were `now`, µs since the Unix epoch.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub fn decide_at(&self, request: &Request<'_>, now: Micros) -> Result<Answer, DecideError> {
        let policies = self.policies.load();
        let (policy, key, rules) = admit(&policies, request)?;
        let windows = rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let asked = store_request(request, key, (rules, origin(policy), quota_of(policy)));
        let verdict = self.store.decide_now(&asked, &moment)?;
        Ok(Answer::new(verdict, Mode::Store, rules))
    }

    /// Decides `request` now.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub fn decide_now(&self, request: &Request<'_>) -> Result<Answer, DecideError> {
        self.decide_at(request, self.clock.now())
    }
}

impl<S: Store> Engine<S> {
    /// Decides `request` now.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub async fn decide(&self, request: &Request<'_>) -> Result<Answer, DecideError> {
        self.decide_as_of(request, self.clock.now()).await
    }

    /// Decides `request` as if it were `now`, µs since the Unix epoch.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub async fn decide_as_of(
        &self,
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Answer, DecideError> {
        self.decide_in(&self.policies.load_full(), request, now).await
    }

    async fn decide_in(
        &self,
        policies: &PolicySet,
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Answer, DecideError> {
        let (policy, key, rules) = admit(policies, request)?;
        let (otherwise, rules_of) =
            (Some(Otherwise::of(policy)), (rules, origin(policy), quota_of(policy)));
        let (verdict, mode) = self.ask_store(otherwise, rules_of, (request, key), now).await?;
        Ok(Answer::new(verdict, mode, rules))
    }

    /// Decides `request` as if it were `now`, µs since the Unix epoch, by `rules` that are in no
    /// policy, such as those that a caller sends along.
    ///
    /// [`Request::policy`] is only a name then: under another name the same key has another budget.
    /// One that no policy can have, with capital letters say, keeps clear of theirs. Everybody may
    /// use it, and while the store does not answer, this engine enforces its share. All keys that are
    /// decided so count to one quota in a memory store, [`Quota::CALLERS`].
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub async fn decide_by(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Answer, DecideError> {
        let key = key_of(request)?;
        let (otherwise, brought) =
            (Some(Otherwise::default()), (rules, Origin::Caller, Quota::CALLERS));
        let (verdict, mode) = self.ask_store(otherwise, brought, (request, key), now).await?;
        Ok(Answer::new(verdict, mode, rules))
    }

    /// What [`decide_by`](Self::decide_by) says if nobody has to be waited for; otherwise `None`, and
    /// nothing was done.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    #[inline]
    pub fn decide_by_at_once(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        now: Micros,
    ) -> Option<Result<Answer, DecideError>> {
        match key_of(request) {
            Ok(key) => {
                let brought = (rules, Origin::Caller, Quota::CALLERS);
                self.ask_at_once(Otherwise::default, brought, (request, key), now)
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Says that these requests will be decided next: a store in memory fetches what it needs for all
    /// of them at once. Changes nothing.
    pub fn expect<'a>(&self, requests: impl IntoIterator<Item = &'a Request<'a>>) {
        let key = |request: &'a Request<'a>| (request.policy, request.key.unwrap_or_default());
        self.store.expect(requests.into_iter().map(key));
    }

    /// `None`: the store has to be waited for.
    #[inline]
    fn ask_at_once(
        &self,
        otherwise: impl FnOnce() -> Otherwise,
        (rules, origin, quota): (&Rules, Origin, Quota<'_>),
        (request, key): (&Request<'_>, &[u8]),
        now: Micros,
    ) -> Option<Result<Answer, DecideError>> {
        let windows = rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let asked = store_request(request, key, (rules, origin, quota));
        let decided = match &self.guard {
            None => {
                let decided = self.store.decide_at_once(&asked, &moment)?;
                decided.map(|verdict| (verdict, Mode::Store))
            }
            Some(guard) => guard.decide_at_once(&self.store, otherwise(), &asked, &moment)?,
        };
        Some(decided.map(|(verdict, mode)| Answer::new(verdict, mode, rules)).map_err(Into::into))
    }

    /// What the store says, or what is decided otherwise; `None` decides nothing.
    async fn ask_store(
        &self,
        otherwise: Option<Otherwise>,
        (rules, origin, quota): (&Rules, Origin, Quota<'_>),
        (request, key): (&Request<'_>, &[u8]),
        now: Micros,
    ) -> Result<(Verdict, Mode), StoreError> {
        let windows = rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let asked = store_request(request, key, (rules, origin, quota));
        match &self.guard {
            None => Ok((self.store.decide(&asked, &moment).await?, Mode::Store)),
            Some(guard) => guard.decide(&self.store, otherwise, &asked, &moment).await,
        }
    }
}

impl<S: Store> Engine<S> {
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

    async fn pay(&self, guard: &Guard, policies: &PolicySet, debtor: &Debtor) {
        let now = self.clock.now();
        if let Some(policy) = policies.resolve(&debtor.policy) {
            let rules = policy.rules_for(&debtor.key);
            let windows = rules.windows(now);
            let moment = Moment::with_windows(now, windows.as_slice());
            guard.pay(&self.store, debtor, (rules.set(), origin(policy)), &moment).await;
        } else if is_name(&debtor.policy) {
            // The policy was removed, and its budgets with it.
            guard.forget(debtor);
        } else {
            // Limits that callers bring along follow no calendar.
            let brought = (&debtor.rules, Origin::Caller);
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
            #[cfg(feature = "tokio")]
            held: passage::Held::default(),
            #[cfg(feature = "tokio")]
            turns: turns::Turns::default(),
        }
    }

    /// The same engine on a store that may fail: it remembers refusals, stops asking a store that
    /// does not answer, and decides then as each policy says under `on_store_failure`.
    #[must_use]
    pub fn surviving(self, failure: StoreFailure) -> Self {
        Self { guard: Some(Guard::new(failure)), ..self }
    }

    /// The time that decisions go by: µs since the Unix epoch. Whoever decides many requests that
    /// came together reads it once for all.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Whether it decides also while its store does not answer: see [`surviving`](Self::surviving).
    pub const fn goes_on_without_store(&self) -> bool {
        self.guard.is_some()
    }

    /// Whether the store is given up for the moment.
    pub fn is_without_store(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_open)
    }

    /// Keys for which more was admitted without the store than it has charged yet.
    pub fn debts(&self) -> usize {
        self.guard.as_ref().map_or(0, Guard::debts)
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
        let policies = policies.in_force(&self.policies.load(), self.clock.now());
        self.policies.store(Arc::new(policies));
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }
}

impl<'a> Request<'a> {
    /// A request of nobody in particular.
    pub const fn new(policy: &'a str, key: Option<&'a [u8]>, verb: Verb) -> Self {
        Self { policy, key, app: None, verb }
    }
}

impl Default for StoreFailure {
    /// The only engine, and as many keys as a memory store holds by default.
    fn default() -> Self {
        Self { nodes: NonZeroU32::MIN, keys_max: KEYS_MAX_DEFAULT }
    }
}

impl From<StoreError> for DecideError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unsupported(unsupported) => unsupported.into(),
            other => Self::Store(other),
        }
    }
}

impl Answer {
    fn new(verdict: Verdict, mode: Mode, rules: &Rules) -> Self {
        let Verdict { decision, rule } = verdict;
        Self { decision, mode, rules: Arc::clone(rules.set()), rule }
    }

    /// Permits that the store was charged, or 0: what can be given back to it. What was granted without
    /// the store was taken of this engine's share or of nothing, and lapses.
    pub const fn charged(&self) -> u64 {
        match self.mode {
            Mode::Store => self.decision.granted(),
            Mode::Remembered | Mode::Local | Mode::Allow | Mode::Deny | Mode::Shed => 0,
        }
    }

    /// The name of the rule that decided.
    pub fn rule(&self) -> &str {
        &self.rules.rules()[self.rule].name
    }

    /// All rules that were decided together; the very same for as long as the policy has them.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }
}

impl<S: fmt::Debug> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, clock, .. } = self;
        f.debug_struct("Engine").field("store", store).field("clock", clock).finish_non_exhaustive()
    }
}

/// The key and the rules that hold for it, if the request may be asked at all.
fn admit<'p, 'r>(
    policies: &'p PolicySet,
    request: &Request<'r>,
) -> Result<(&'p Arc<Policy>, &'r [u8], &'p Rules), DecideError> {
    let key = key_of(request)?;
    let Some(policy) = policies.resolve(request.policy) else {
        return Err(DecideError::UnknownPolicy(request.policy.to_owned()));
    };
    let is_for = match request.verb {
        Verb::Refund { .. } | Verb::Reset => policy.entrusts(request.app),
        _ => policy.admits(request.app),
    };
    if !is_for {
        return Err(unconfigured(policy, request.app));
    }
    Ok((policy, key, policy.rules_for(key)))
}

/// The key as stores know it: empty where all share.
fn key_of<'r>(request: &Request<'r>) -> Result<&'r [u8], DecideError> {
    match request.key {
        None => Ok(&[]),
        Some([]) => Err(DecideError::EmptyKey),
        Some(key) if key.len() > KEY_BYTES_MAX => Err(DecideError::LongKey(key.len())),
        Some(key) => Ok(key),
    }
}

#[inline]
fn store_request<'a>(
    request: &'a Request<'_>,
    key: &'a [u8],
    (rules, origin, quota): (&'a Rules, Origin, Quota<'a>),
) -> StoreRequest<'a> {
    StoreRequest {
        policy: request.policy,
        key,
        rules: rules.set(),
        verb: &request.verb,
        origin,
        quota,
    }
}

fn origin(policy: &Policy) -> Origin {
    Origin::Policy { since: policy.in_force_since() }
}

/// To which quota of keys the keys of `policy` count, with its overrides.
#[inline]
fn quota_of(policy: &Policy) -> Quota<'_> {
    let beyond = match policy.on_key_quota() {
        OnKeyQuota::Share => BeyondQuota::Share,
        OnKeyQuota::Deny => BeyondQuota::Deny,
    };
    Quota { name: policy.name(), beyond }
}

#[cold]
fn unconfigured(policy: &Policy, app: Option<&str>) -> DecideError {
    DecideError::Unconfigured { policy: policy.name().to_owned(), app: app.map(ToOwned::to_owned) }
}

fn app_name(app: &Option<String>) -> String {
    app.as_ref().map_or_else(|| "a caller without an app".to_owned(), |app| format!("app `{app}`"))
}
