//! A store that may fail, and the decisions around it.
//!
//! ```text
//! request ─▶ lease ─▶ refused already? ─▶ breaker ─▶ debt, then request ─▶ store ─▶ answer ─▶ recorded
//!              │            │                │                               │
//!              ▼            ▼                ▼                               ├▶ no answer: `on_store_failure`
//!     `Mode::Leased`   `Mode::Remembered`   `on_store_failure`              └▶ overloaded: `Mode::Shed`
//! ```
//!
//! A store that answers decides, however long its queue is: a request that it cannot decide in time is
//! refused, never decided here. Permits admitted here while it did not answer are a debt
//! ([`Debts`](super::debts::Debts)): every request of that key carries it, so each answer of the store
//! takes it into account.

use std::num::NonZeroU32;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use sluicegate_kernel::limits::COST_MAX;
use sluicegate_kernel::{Cost, Micros, Moment, RuleSet, Verb, Verdict};
use sluicegate_policy::{OnOverload, OnStoreFailure};
use sluicegate_store::{
    Charge, Debt, Executed, KeyHash, Quota, RequestAt, RuleOrigin, Store, StoreAnswer, StoreError,
    StoreRequest,
};

use super::account::{Billed, Debtor};
use super::breaker::Breaker;
use super::conditions::{Conditions, RequestWithConditions, WithoutStore};
use super::debts::Uncharged;
use super::deny_cache::DenyCache;
use super::fallback::{self, Share};
use super::repair::Repair;
use super::turn::{ask_store, ask_store_each};
use super::{Mode, Ruling, StoreFailure};
use crate::lease::{LeaseTerms, Leasing, QueueTicket, WaitOutcome};

/// Most questions to the store for one request: to clear up a debt that was perhaps charged, for the
/// decision, and again if others were admitted here meanwhile.
const ASKED_MAX: usize = 4;

/// Mean pause before an overloaded store is asked again: about a deadline, in which it works off its
/// queue.
const OVERLOAD_PAUSE: Micros = Micros::from_millis(20);

/// Rules, and where they come from.
#[derive(Clone, Copy)]
pub(super) struct OriginatedRules<'r> {
    pub(super) rules: &'r Arc<RuleSet>,
    pub(super) origin: RuleOrigin,
}

/// The state that an engine keeps for a store that may fail.
#[derive(Debug)]
pub(super) struct StoreGuard {
    pub(super) denials: DenyCache,
    pub(super) breaker: Breaker,
    pub(super) share: Share,
    repair: Repair,
    pub(super) leasing: Option<Leasing>,
}

/// One request, with its key's hash and its policy's settings.
#[derive(Clone, Copy)]
pub(super) struct GuardedRequest<'a> {
    pub(super) key: KeyHash,
    pub(super) request: &'a StoreRequest<'a>,
    /// `None`: then there is no decision.
    pub(super) without_store: Option<WithoutStore>,
    pub(super) lease: Option<LeaseTerms<'a>>,
    pub(super) at: &'a Moment<'a>,
}

/// The result of trying to decide without the store.
pub(super) enum LocalDecision {
    Decided(Result<Ruling, StoreError>),
    /// A message about its lease is on its way.
    Pending(QueueTicket),
    /// The store has to be asked.
    AskStore,
}

impl StoreGuard {
    pub(super) fn new(failure: StoreFailure) -> Self {
        let StoreFailure { nodes, keys_max } = failure;
        let share = Share::new(nodes, keys_max);
        let (denials, breaker) = (DenyCache::new(), Breaker::default());
        Self { denials, breaker, share, repair: Repair::default(), leasing: None }
    }

    /// Returns this guard, leasing permits of hot keys.
    pub(super) fn with_leases(self, leasing: Leasing) -> Self {
        Self { leasing: Some(leasing), ..self }
    }

    /// The leases, if this engine leases.
    pub(super) const fn leasing(&self) -> Option<&Leasing> {
        self.leasing.as_ref()
    }

    /// Returns the result of [`decide`](Self::decide) if the store need not be waited for: permits are leased, the
    /// refusal is known, or the store is overloaded. Otherwise `None`, and nothing was done.
    pub(super) fn decide_at_once(
        &self,
        store: &impl Store,
        conditions: Conditions<'_>,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Option<Result<Ruling, StoreError>> {
        let Conditions { without_store, lease } = conditions;
        let question = self.guarded(conditions, request, at);
        let GuardedRequest { key, .. } = question;
        if let (Some(leasing), Some(_)) = (&self.leasing, lease) {
            if let Some(hit) = self.take_leased(leasing, question) {
                return Some(Ok(hit.into()));
            }
            if let Verb::Check { cost } = *request.verb
                && self.leases_now(key)
                && let Some(verdict) = leasing.would_refuse(key, request, cost)
            {
                return Some(Ok(Ruling::by(Mode::Remembered, verdict)));
            }
        }
        if let Some(verdict) = self.denials.find(key, request, at.now()) {
            return Some(Ok(Ruling::by(Mode::Remembered, verdict)));
        }
        let without_store = without_store?;
        let is_patient = without_store.on_overload != OnOverload::Refuse;
        if is_patient || is_refund(request.verb) || self.breaker.is_open() {
            return None;
        }
        let Some(Err(error @ StoreError::Overloaded { .. })) = store.decide_at_once(request, at)
        else {
            return None;
        };
        Some(self.shed(question, error))
    }

    /// Decides `request` on `store`, or without it by `conditions.without_store`.
    pub(super) async fn decide(
        &self,
        store: &impl Store,
        conditions: Conditions<'_>,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<Ruling, StoreError> {
        let question = self.guarded(conditions, request, at);
        let local = match self.decide_locally(question) {
            LocalDecision::Pending(place) => {
                self.waited(question, place.await.unwrap_or(WaitOutcome::Ask))
            }
            local => local,
        };
        match local {
            LocalDecision::Decided(decided) => decided,
            _ => self.decided(question, self.ask_with_retries(store, question).await),
        }
    }

    /// Decides each of `requests` on its own, as [`decide`](Self::decide) does. The store is asked once for
    /// all that can be asked together: keys that owe nothing, of policies without patience.
    pub(super) async fn decide_each(
        &self,
        store: &impl Store,
        requests: &[RequestWithConditions<'_>],
    ) -> Vec<Result<Ruling, StoreError>> {
        let questions = requests.iter();
        let questions: Vec<_> = questions
            .map(|RequestWithConditions { conditions, asked: RequestAt { request, at } }| {
                self.guarded(*conditions, request, at)
            })
            .collect();
        let questions = &*questions;
        let mut decided: Vec<_> = questions.iter().map(|_| None).collect();
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for (place, question) in questions.iter().enumerate() {
            match self.decide_locally(*question) {
                LocalDecision::Decided(said) => decided[place] = Some(said),
                LocalDecision::Pending(waits) => alone.push((place, Some(waits))),
                LocalDecision::AskStore if self.is_asked_alone(*question) => {
                    alone.push((place, None));
                }
                LocalDecision::AskStore => together.push(place),
            }
        }
        let asking_alone = alone.into_iter().map(|(place, waits)| async move {
            let question = questions[place];
            let local = match waits {
                Some(waits) => self.waited(question, waits.await.unwrap_or(WaitOutcome::Ask)),
                None => LocalDecision::AskStore,
            };
            let decided = match local {
                LocalDecision::Decided(decided) => decided,
                _ => self.decided(question, self.ask_with_retries(store, question).await),
            };
            (place, decided)
        });
        let asking_alone: Vec<BoxFuture<'_, _>> =
            asking_alone.map(|asking| Box::pin(asking) as _).collect();
        let asks = together.iter().map(|place| requests[*place].asked);
        let asks: Vec<_> = asks.collect();
        let asking_together = async {
            let (mut answered, mut left) = (Vec::with_capacity(asks.len()), Vec::new());
            // Grants are learned as they come, and before anything is decided without the store.
            let mut hear = |nth: usize, said: Result<StoreAnswer, StoreError>| {
                let (place, question) = (together[nth], questions[together[nth]]);
                match said {
                    Ok(answer) if !self.is_unpaid_for(question, &answer.verdict) => {
                        answered.push((place, self.decided(question, Ok(answer))));
                    }
                    said => left.push((place, said)),
                }
            };
            ask_store_each(store, &asks, &mut hear).await;
            let deciding = left.into_iter().map(|(place, said)| async move {
                let said = match said {
                    Ok(_) => self.ask_after_unused(store, questions[place]).await,
                    said => said,
                };
                (place, self.decided(questions[place], said))
            });
            let deciding: Vec<BoxFuture<'_, _>> =
                deciding.map(|deciding| Box::pin(deciding) as _).collect();
            answered.extend(join_all(deciding).await);
            answered
        };
        let (of_alone, of_together) = tokio::join!(join_all(asking_alone), asking_together);
        for (place, said) in of_alone.into_iter().chain(of_together) {
            decided[place] = Some(said);
        }
        decided
            .into_iter()
            .map(|decided| decided.expect("each is local, alone or together"))
            .collect()
    }

    /// Asks again after a grant that stays unused, as others were admitted here meanwhile. A permit of this name is held in
    /// the store now, so it would refuse the same one.
    async fn ask_after_unused(
        &self,
        store: &impl Store,
        question: GuardedRequest<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        if is_named(question.request.verb) {
            return Err(StoreError::Contended { executed: Executed::Perhaps });
        }
        self.ask(store, question).await
    }

    fn guarded<'a>(
        &self,
        Conditions { without_store, lease }: Conditions<'a>,
        request: &'a StoreRequest<'a>,
        at: &'a Moment<'a>,
    ) -> GuardedRequest<'a> {
        let key = self.share.hash(request.policy, request.key);
        GuardedRequest { key, request, without_store, lease, at }
    }

    /// Returns whether the store must charge a debt or be repaired before it decides, or may be asked more than
    /// once.
    fn is_asked_alone(&self, question: GuardedRequest<'_>) -> bool {
        let GuardedRequest { key, at, .. } = question;
        question.is_patient()
            || self.repair.is_due(key, at.now())
            || self.share.debts().has_account(key)
    }

    /// Returns whether `verdict` grants something although the key still owes.
    fn is_unpaid_for(&self, question: GuardedRequest<'_>, verdict: &Verdict) -> bool {
        let GuardedRequest { key, request, at, .. } = question;
        let is_granted = verdict.decision.granted() > 0 && takes(request.verb);
        is_granted && self.share.debts().has_debt(key, at)
    }

    /// Decides without the store if it can, in this order: permits are leased here or on their way, the refusal is
    /// known, the permit was granted here while the store was away, or the breaker is open.
    pub(super) fn decide_locally(&self, question: GuardedRequest<'_>) -> LocalDecision {
        match self.by_lease(question) {
            LocalDecision::AskStore => self.decide_beside_leases(question),
            leased => leased,
        }
    }

    /// Decides without the store and without a lease, if it can.
    pub(super) fn decide_beside_leases(&self, question: GuardedRequest<'_>) -> LocalDecision {
        let GuardedRequest { key, request, at, .. } = question;
        if let Some(verdict) = self.denials.find_or_ask(key, request, at.now()) {
            return LocalDecision::Decided(Ok(Ruling::by(Mode::Remembered, verdict)));
        }
        if let Some(verdict) = self.share.debts().decide_held(key, request, at) {
            return LocalDecision::Decided(Ok(Ruling::by(Mode::Local, verdict)));
        }
        if self.breaker.allows(at.now()) {
            return LocalDecision::AskStore;
        }
        LocalDecision::Decided(self.decide_by_failure_policy(question, given_up()))
    }

    /// Returns the ruling after the store returned `asked`, and records what follows from it.
    fn decided(
        &self,
        question: GuardedRequest<'_>,
        asked: Result<StoreAnswer, StoreError>,
    ) -> Result<Ruling, StoreError> {
        if !is_named(question.request.verb) {
            return self.ruling_after(question, asked);
        }
        let is_lost = asked.as_ref().is_err_and(|error| error.executed() == Executed::Perhaps);
        let mut ruling = self.ruling_after(question, asked)?;
        ruling.is_perhaps_granted = is_lost;
        Ok(ruling)
    }

    #[inline]
    fn ruling_after(
        &self,
        question: GuardedRequest<'_>,
        asked: Result<StoreAnswer, StoreError>,
    ) -> Result<Ruling, StoreError> {
        let GuardedRequest { key, request, without_store, at, .. } = question;
        let now = at.now();
        match asked {
            Ok(answer) => {
                self.breaker.record_success(now);
                self.denials.insert(key, request, now, &answer.verdict);
                self.share.record_usage(key, request, &answer, at);
                let ruling = Ruling::by(Mode::Store, self.beside_lease(question, answer.verdict));
                Ok(Ruling { called: answer.called, ..ruling })
            }
            Err(error @ StoreError::Unavailable { .. }) => {
                self.breaker.record_failure(now);
                self.decide_by_failure_policy(question, error)
            }
            // It answers, so the breaker stays closed, although it did not decide on this key.
            Err(error @ (StoreError::Overloaded { .. } | StoreError::Contended { .. })) => {
                self.breaker.record_success(now);
                self.shed(question, error)
            }
            // It answers others: this engine's share is not granted beside what they take there.
            Err(error @ StoreError::Unreadable { .. }) => {
                self.breaker.record_success(now);
                let deny = |settings: WithoutStore| match settings.on_failure {
                    OnStoreFailure::Local => {
                        WithoutStore { on_failure: OnStoreFailure::Deny, ..settings }
                    }
                    _ => settings,
                };
                let without_store = without_store.map(deny);
                self.decide_by_failure_policy(GuardedRequest { without_store, ..question }, error)
            }
            // It was not asked.
            Err(error @ StoreError::TooDear(_)) => Err(error),
            Err(error) => {
                self.breaker.record_success(now);
                Err(error)
            }
        }
    }

    /// Records the result of a question that was put to the store alone, at `now`.
    pub(super) fn note_answer(&self, result: Result<(), &StoreError>, now: Micros) {
        match result {
            Err(StoreError::Unavailable { .. }) => self.breaker.record_failure(now),
            // It was not asked.
            Err(StoreError::TooDear(_)) => {}
            _ => self.breaker.record_success(now),
        }
    }

    /// Asks the store, repeatedly while it is overloaded and the policy has patience left.
    async fn ask_with_retries(
        &self,
        store: &impl Store,
        question: GuardedRequest<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let Some(WithoutStore { on_overload: OnOverload::Wait { max }, .. }) =
            question.without_store
        else {
            return self.ask(store, question).await;
        };
        let begun = tokio::time::Instant::now();
        loop {
            match self.ask(store, question).await {
                Err(StoreError::Overloaded { executed: Executed::No }) => {
                    let pause = OVERLOAD_PAUSE.get() / 2 + fastrand::u64(0..=OVERLOAD_PAUSE.get());
                    let pause = std::time::Duration::from_micros(pause);
                    if begun.elapsed() + pause > std::time::Duration::from(max) {
                        return Err(StoreError::Overloaded { executed: Executed::No });
                    }
                    tokio::time::sleep(pause).await;
                }
                asked => return asked,
            }
        }
    }

    /// Asks the store, and has it charge all that is owed for the key.
    ///
    /// Others may be admitted here while the store is asked, and a debt that was perhaps charged before may
    /// have been charged in part: the store was full then. A permit that it granted before it charged all debts
    /// stays unused, and the store is asked again.
    async fn ask(
        &self,
        store: &impl Store,
        question: GuardedRequest<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let GuardedRequest { key, request, at, .. } = question;
        let debts = self.share.debts();
        if self.repair.is_due(key, at.now()) {
            Box::pin(self.restore_usage(store, question)).await?;
        }
        let mut executed = Executed::No;
        for _ in 0..ASKED_MAX {
            let answer = match debts.bill(key, request.rules, at) {
                None => ask_store(store, None, request, at).await?.0,
                Some(Billed { debt, is_all: true }) => {
                    Box::pin(self.charge(store, question, debt)).await?
                }
                Some(Billed { debt, is_all: false }) => {
                    let look = StoreRequest { verb: &Verb::Peek { cost: Cost::ONE }, ..*request };
                    Box::pin(self.charge(
                        store,
                        GuardedRequest { request: &look, ..question },
                        debt,
                    ))
                    .await?;
                    continue;
                }
            };
            if !self.is_unpaid_for(question, &answer.verdict) {
                return Ok(answer);
            }
            // It stays charged.
            self.share.record_usage(key, request, &answer, at);
            executed = Executed::Perhaps;
            if is_named(request.verb) {
                break;
            }
        }
        Err(StoreError::Contended { executed })
    }

    /// Has the store raise the usage of a key to its own last report.
    async fn restore_usage(
        &self,
        store: &impl Store,
        GuardedRequest { key, request, at, .. }: GuardedRequest<'_>,
    ) -> Result<(), StoreError> {
        let permits = self.share.in_use(key, request.rules, at).map(|used| used.min(COST_MAX));
        if permits.iter().any(|permits| *permits > 0) {
            let debt = Debt { id: fastrand::u128(..), permits, charge: Charge::AtLeast };
            let look = StoreRequest { verb: &Verb::Peek { cost: Cost::ONE }, ..*request };
            ask_store(store, Some(&debt), &look, at).await?;
        }
        self.repair.done(key);
        Ok(())
    }

    /// Has the store charge `debt` and decide `request`.
    async fn charge(
        &self,
        store: &impl Store,
        GuardedRequest { key, request, at, .. }: GuardedRequest<'_>,
        debt: Debt,
    ) -> Result<StoreAnswer, StoreError> {
        // A caller that goes away in between leaves a debt that was perhaps charged.
        let mut carried =
            CarriedDebt { share: &self.share, key, id: debt.id, executed: Executed::Perhaps };
        match ask_store(store, Some(&debt), request, at).await {
            Ok((answer, permits)) => {
                self.share.debts().paid(key, debt.id, permits, at);
                // The debt is paid: record its usage before the request is decided, so that a share that begins
                // then counts it.
                self.share.record_usage(key, request, &answer, at);
                Ok(answer)
            }
            Err(error) => {
                carried.executed = error.executed();
                Err(error)
            }
        }
    }

    /// Pays the debt of a key, if the store answers.
    pub(super) async fn pay(
        &self,
        store: &impl Store,
        debtor: &Debtor,
        rules: OriginatedRules<'_>,
        at: &Moment<'_>,
    ) {
        let OriginatedRules { rules, origin } = rules;
        let verb = Verb::Peek { cost: Cost::ONE };
        let (policy, key) = (&*debtor.policy, &*debtor.key);
        let request =
            StoreRequest { policy, key, rules, verb: &verb, origin, quota: Quota::of(policy) };
        // `decide` records the result; an error leaves the debt for the next time.
        let _ = self.decide(store, Conditions::default(), &request, at).await;
    }

    /// Number of keys with an account of debts.
    pub(super) fn debts(&self) -> usize {
        self.share.debts().len()
    }

    /// Permits that were admitted here, and that the store never charges.
    pub(super) fn uncharged(&self, now: Micros) -> Uncharged {
        self.share.debts().uncharged(&Moment::new(now))
    }

    /// At most `count` keys whose debts are not on their way to the store.
    pub(super) fn debtors(&self, count: usize) -> Vec<Debtor> {
        self.share.debts().debtors(count)
    }

    /// Forgets the debt of a key whose policy is gone.
    pub(super) fn forget(&self, debtor: &Debtor) {
        self.share.debts().forget(self.share.hash(&debtor.policy, &debtor.key));
    }

    /// Sets the number of engines that share the limits from now on.
    pub(super) fn set_nodes(&self, nodes: NonZeroU32) {
        self.share.set_nodes(nodes);
    }

    /// Begins to restore usage in a store that has lost its data.
    pub(super) fn remind_store(&self, now: Micros) {
        self.repair.begin(now);
    }

    /// Returns whether the breaker is open.
    pub(super) fn is_open(&self) -> bool {
        self.breaker.is_open()
    }

    pub(super) fn shed(
        &self,
        GuardedRequest { key, request, without_store, .. }: GuardedRequest<'_>,
        error: StoreError,
    ) -> Result<Ruling, StoreError> {
        if is_refund(request.verb) {
            self.denials.forget(key);
            return Err(error);
        }
        match without_store {
            None => Err(error),
            Some(_) => Ok(Ruling::by(Mode::Shed, fallback::shed(request)?)),
        }
    }

    pub(super) fn decide_by_failure_policy(
        &self,
        question: GuardedRequest<'_>,
        error: StoreError,
    ) -> Result<Ruling, StoreError> {
        let GuardedRequest { key, request, without_store, at, .. } = question;
        if is_refund(request.verb) {
            // A caller that gives something back must learn that the store did not take it.
            self.denials.forget(key);
            return Err(error);
        }
        let Some(WithoutStore { on_failure, .. }) = without_store else { return Err(error) };
        if on_failure != OnStoreFailure::Deny {
            self.retire_lease(question);
        }
        Ok(match on_failure {
            OnStoreFailure::Local => Ruling::by(Mode::Local, self.share.decide(key, request, at)?),
            OnStoreFailure::Allow => Ruling::by(Mode::Allow, self.share.allow(key, request, at)?),
            OnStoreFailure::Deny => Ruling::by(Mode::Deny, fallback::refused(request)?),
        })
    }
}

impl GuardedRequest<'_> {
    /// Returns whether it waits for an overloaded store.
    pub(super) fn is_patient(&self) -> bool {
        self.without_store.is_some_and(|settings| settings.on_overload != OnOverload::Refuse)
    }
}

/// A debt on its way to the store. Dropping it records it as unpaid, which has no effect once it is paid.
struct CarriedDebt<'a> {
    share: &'a Share,
    key: KeyHash,
    id: u128,
    executed: Executed,
}

impl Drop for CarriedDebt<'_> {
    fn drop(&mut self) {
        self.share.debts().unpaid(self.key, self.id, self.executed);
    }
}

fn given_up() -> StoreError {
    let reason = "unavailable; retrying shortly".to_owned();
    StoreError::Unavailable { reason, executed: Executed::No }
}

/// Returns whether `verb` may take permits.
pub(super) const fn takes(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Check { .. }
            | Verb::Reserve { .. }
            | Verb::AtMost { .. }
            | Verb::Acquire { .. }
            | Verb::Wait { .. }
    )
}

/// Returns whether `verb` takes permits of a name: asked again, the store answers that they are held.
const fn is_named(verb: &Verb) -> bool {
    matches!(verb, Verb::Acquire { .. })
}

/// Returns whether `verb` gives back or renews a grant of the store, so that only the store can answer it.
fn is_refund(verb: &Verb) -> bool {
    matches!(
        verb,
        Verb::Refund { .. }
            | Verb::Reset
            | Verb::Release { .. }
            | Verb::Leave { .. }
            | Verb::Renew { .. }
    )
}
