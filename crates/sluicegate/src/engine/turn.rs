//! The path to a decision: one reading of the clock, one set of policies, one place that waits for a decision of the
//! store.
//!
//! ```text
//! Request ─▶ Turn ─▶ ResolvedBudget (policy, key, rules) ─▶ StoreGuard ─▶ Store ─▶ Answer ─▶ Admission
//!                                                      every step is seen by the Observer
//! ```

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard as Loaded;
use futures_util::future::join_all;
use sluicegate_kernel::{Micros, Moment, Rule, Verb, Verdict};
use sluicegate_policy::{Overflow, PolicySet};
use sluicegate_store::{
    Debt, MemoryStore, Permits, PolicyKey, RequestAt, Store, StoreAnswer, StoreError, StoreRequest,
};

use super::conditions::{Conditions, RequestWithConditions};
use super::hold::{holds_for_gateways, permit_wait};
use super::request::ResolvedBudget;
use super::{Admission, Answer, DecideError, Engine, Mode, Patience, Request, Ruling};

/// Requests that are decided together: by one reading of the clock and one set of policies.
///
/// Requests that came in at one time are one turn. A request that is delayed is decided anew when its time has
/// come, by the clock and the policies of that moment.
pub struct Turn<'e, S = MemoryStore, O: Observer = ()> {
    pub(super) engine: &'e Arc<Engine<S, O>>,
    pub(super) policies: Loaded<Arc<PolicySet>>,
    pub(super) now: Micros,
    pub(super) label: O::Label,
}

/// One of several requests that are asked of the store together.
struct PendingRequest<'a> {
    /// Its place among all requests.
    place: usize,
    request: &'a Request<'a>,
    budget: &'a ResolvedBudget<'a>,
}

/// A request, and the instant at which it was made.
#[derive(Clone, Copy, Debug)]
pub struct ObservedRequest<'a> {
    /// The instant of the decision, µs since the Unix epoch.
    pub now: Micros,
    /// The request.
    pub request: &'a Request<'a>,
}

/// An observer of every decision of an engine, which counts or traces it.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// A label that distinguishes the turns of an engine: the origin of their requests.
    type Label: Copy + fmt::Debug + Send + Sync + 'static;
    /// The state that the observer keeps from the beginning of a decision.
    type Begun: Send;

    /// Called when a decision begins.
    fn begin(&self) -> Self::Begun;

    /// Called when a decision was made, or could not be.
    fn observe(
        &self,
        label: Self::Label,
        asked: ObservedRequest<'_>,
        decided: Result<&Admission, &DecideError>,
        begun: Self::Begun,
    );

    /// Returns whether every decision is to go through [`wrap`](Self::wrap).
    fn wraps_decisions(&self) -> bool {
        false
    }

    /// Wraps `deciding`, a decision that has to be waited for.
    fn wrap(
        &self,
        _label: Self::Label,
        _request: &Request<'_>,
        deciding: impl Future<Output = Result<Admission, DecideError>> + Send,
    ) -> impl Future<Output = Result<Admission, DecideError>> + Send {
        deciding
    }
}

/// An observer that does nothing.
impl Observer for () {
    type Label = ();
    type Begun = ();

    fn begin(&self) {}

    fn observe(&self, (): (), _: ObservedRequest<'_>, _: Result<&Admission, &DecideError>, (): ()) {
    }
}

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// Decides `request`, if neither a store nor anything else has to be waited for; otherwise `None`,
    /// and nothing was done.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    #[inline]
    pub fn try_decide(&self, request: &Request<'_>) -> Option<Result<Admission, DecideError>> {
        self.try_decide_on(request, &ResolvedBudget::of(&self.policies, request, self.now))
    }

    /// Decides `request` and carries out its policy's overflow. It is delayed up to its
    /// [`Patience`]; if the future is dropped, its place is free, and another request gets its turn.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub async fn decide(&self, request: &Request<'_>) -> Result<Admission, DecideError> {
        let budget = ResolvedBudget::of(&self.policies, request, self.now);
        match self.try_decide_on(request, &budget) {
            Some(decided) => decided,
            None => {
                // On the heap: decisions made at once should not carry the space for waiting, and an
                // observer that wraps it should not move it.
                let deciding =
                    Box::pin(async move { self.decide_and_hold(request, &budget?).await });
                self.decide_in_time(request, deciding).await
            }
        }
    }

    /// Checks that `request` can be decided: that its policy, key and verb go together. Asks no store and changes
    /// nothing.
    ///
    /// # Errors
    /// [`DecideError`], as for deciding it, except for those of the store.
    pub fn check(&self, request: &Request<'_>) -> Result<(), DecideError> {
        let budget = ResolvedBudget::of(&self.policies, request, self.now)?;
        Ok(budget.rules.set().supports(&request.verb)?)
    }

    /// Decides each of `requests` on its own, all at once: one that is delayed delays no other. Those that
    /// can neither be decided at once nor be delayed are sent to the store together.
    pub async fn decide_each(
        &self,
        requests: &[Request<'_>],
    ) -> Vec<Result<Admission, DecideError>> {
        if let [request] = requests {
            return vec![self.decide(request).await];
        }
        let budgets: Vec<_> = requests
            .iter()
            .map(|request| ResolvedBudget::of(&self.policies, request, self.now))
            .collect();
        let asked = || requests.iter().zip(&budgets);
        let mut decided: Vec<_> =
            asked().map(|(request, budget)| self.try_decide_on(request, budget)).collect();
        let (mut alone, mut together) = (Vec::new(), Vec::new());
        for (place, (request, budget)) in asked().enumerate() {
            match budget {
                _ if decided[place].is_some() => {}
                Ok(budget) if self.is_asked_with_others(request, budget) => {
                    together.push(PendingRequest { place, request, budget });
                }
                _ => alone.push((place, request)),
            }
        }
        let deciding = join_all(alone.iter().map(|(_, request)| self.decide(request)));
        let (decided_alone, decided_together) =
            tokio::join!(deciding, self.decide_together(&together));
        for ((place, _), admission) in alone.into_iter().zip(decided_alone) {
            decided[place] = Some(admission);
        }
        for (PendingRequest { place, .. }, admission) in together.iter().zip(decided_together) {
            decided[*place] = Some(admission);
        }
        decided.into_iter().map(|decided| decided.expect("each is decided by now")).collect()
    }

    /// Returns whether `request` may wait for a permit: if its future is dropped then, it holds nothing.
    #[doc(hidden)]
    pub fn may_wait_for_permit(&self, request: &Request<'_>) -> bool {
        let budget = ResolvedBudget::of(&self.policies, request, self.now);
        budget.is_ok_and(|budget| permit_wait(request.patience, &budget).is_some())
    }

    /// The instant of the decisions, µs since the Unix epoch.
    pub const fn now(&self) -> Micros {
        self.now
    }

    /// The policies of the decisions.
    pub fn policies(&self) -> &PolicySet {
        &self.policies
    }

    /// Announces that these requests will be decided next: a store in memory fetches what it needs for all
    /// of them at once. Changes nothing.
    pub fn prefetch<'a>(&self, requests: impl IntoIterator<Item = &'a Request<'a>>) {
        let key = |request: &'a Request<'a>| PolicyKey {
            policy: request.limits.name(),
            key: request.key.unwrap_or_default(),
        };
        self.engine.store.prefetch(requests.into_iter().map(key));
    }

    /// Returns whether the store is all that has to be waited for.
    #[inline]
    fn is_asked_with_others(&self, request: &Request<'_>, budget: &ResolvedBudget<'_>) -> bool {
        !self.engine.observer.wraps_decisions() && !self.may_be_held(request, budget)
    }

    /// Decides all of `asked` by one call of the store. The observer sees each decision.
    async fn decide_together(
        &self,
        asked: &[PendingRequest<'_>],
    ) -> Vec<Result<Admission, DecideError>> {
        let observer = &self.engine.observer;
        let begun: Vec<_> = asked.iter().map(|_| observer.begin()).collect();
        let answers = self.engine.ask_each(asked, self.now).await;
        let mut admissions = Vec::with_capacity(asked.len());
        for ((PendingRequest { request, budget, .. }, answer), begun) in
            asked.iter().zip(answers).zip(begun)
        {
            let decided = match answer {
                Err(error) => Err(error.into()),
                Ok(ruling) => {
                    let answer = Answer::new(&ruling, budget.rules);
                    let Request { verb, patience, .. } = request;
                    let admission = Admission::new(answer, verb, *patience, budget.policy);
                    if let Verb::Acquire { permit, .. } = *verb {
                        self.release_late(request, permit, &admission);
                    }
                    Ok(admission)
                }
            };
            admissions.push(self.seen(request, decided, begun));
        }
        admissions
    }

    #[inline]
    fn try_decide_on(
        &self,
        request: &Request<'_>,
        budget: &Result<ResolvedBudget<'_>, DecideError>,
    ) -> Option<Result<Admission, DecideError>> {
        let observer = &self.engine.observer;
        if observer.wraps_decisions() {
            return None;
        }
        let begun = observer.begin();
        let decided = match budget {
            Err(error) => Err(error.clone()),
            Ok(budget) if self.may_be_held(request, budget) => return None,
            Ok(budget) => match self.engine.ask_at_once(budget, &request.verb, self.now)? {
                Err(error) => Err(error.into()),
                Ok(ruling) => {
                    let answer = Answer::new(&ruling, budget.rules);
                    let Request { verb, patience, .. } = request;
                    Ok(Admission::new(answer, verb, *patience, budget.policy))
                }
            },
        };
        Some(self.seen(request, decided, begun))
    }

    /// Awaits `deciding`, wrapped by the observer if it wants that, and lets it see the result.
    async fn decide_in_time(
        &self,
        request: &Request<'_>,
        deciding: impl Future<Output = Result<Admission, DecideError>> + Send,
    ) -> Result<Admission, DecideError> {
        let observer = &self.engine.observer;
        let begun = observer.begin();
        let decided = match observer.wraps_decisions() {
            false => deciding.await,
            true => Box::pin(observer.wrap(self.label, request, deciding)).await,
        };
        self.seen(request, decided, begun)
    }

    /// Lets the observer see `decided`, and returns it.
    #[inline]
    fn seen(
        &self,
        request: &Request<'_>,
        decided: Result<Admission, DecideError>,
        begun: O::Begun,
    ) -> Result<Admission, DecideError> {
        let asked = ObservedRequest { now: self.now, request };
        self.engine.observer.observe(self.label, asked, decided.as_ref(), begun);
        decided
    }

    /// Returns whether `request` may have to be delayed, whatever the store answers.
    #[inline]
    fn may_be_held(&self, request: &Request<'_>, budget: &ResolvedBudget<'_>) -> bool {
        let Some(policy) = budget.policy else {
            // Limits that callers bring along have no overflow, but may have a queue for permits.
            let is_waiting = matches!(request.patience, Patience::Permit(_));
            return is_waiting && matches!(request.verb, Verb::Acquire { .. });
        };
        match (request.patience, &request.verb, policy.overflow()) {
            (Patience::None, ..) => false,
            (Patience::Policy, Verb::Check { .. }, overflow) => {
                matches!(overflow, Overflow::Queue { .. })
            }
            (Patience::Gateway(_), Verb::Check { .. } | Verb::AtMost { .. }, overflow) => {
                let mut rules = budget.rules.set().rules().iter();
                holds_for_gateways(budget)
                    && (matches!(overflow, Overflow::Queue { .. })
                        || !self.engine.vacancies.is_empty()
                        || rules.any(|named| may_delay(&named.rule)))
            }
            (Patience::Permit(_), Verb::Acquire { .. }, _) => true,
            (Patience::Policy | Patience::Gateway(_), Verb::Acquire { .. }, _) => {
                budget.rules.set().queues()
            }
            _ => false,
        }
    }
}

impl<S: Store, O: Observer> Engine<S, O> {
    /// Asks the store about `budget`; without an answer, decides by these conditions.
    pub(super) async fn ask(
        &self,
        budget: &ResolvedBudget<'_>,
        verb: &Verb,
        conditions: Conditions<'_>,
        now: Micros,
    ) -> Result<Ruling, StoreError> {
        let windows = budget.rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let mut ruling = match &self.guard {
            None => {
                let asked = ask_store(&self.store, None, &budget.ask(verb), &moment).await;
                let (StoreAnswer { verdict, called, .. }, _) = asked?;
                Ruling { called, ..Ruling::by(Mode::Store, verdict) }
            }
            Some(guard) => {
                guard.decide(&self.store, conditions, &budget.ask(verb), &moment).await?
            }
        };
        self.call_waiters(budget, verb, &mut ruling);
        Ok(ruling)
    }

    /// Returns the result of [`ask`](Self::ask) for each of `asked`. The store is asked once.
    async fn ask_each(
        &self,
        asked: &[PendingRequest<'_>],
        now: Micros,
    ) -> Vec<Result<Ruling, StoreError>> {
        let windows: Vec<_> = asked.iter().map(|asked| asked.budget.rules.windows(now)).collect();
        let asks =
            asked.iter().zip(&windows).map(|(PendingRequest { request, budget, .. }, windows)| {
                let at = Moment::with_windows(now, windows.as_slice());
                let asked = RequestAt { request: budget.ask(&request.verb), at };
                RequestWithConditions { conditions: budget.conditions(), asked }
            });
        let mut rulings: Vec<Result<Ruling, StoreError>> = match &self.guard {
            None => {
                let asks: Vec<_> = asks.map(|request| request.asked).collect();
                let mut answers = vec![None; asks.len()];
                let mut hear = |place: usize, said| answers[place] = Some(said);
                ask_store_each(&self.store, &asks, &mut hear).await;
                let answers = answers.into_iter().map(|said| said.expect("of each"));
                let ruling = |StoreAnswer { verdict, called, .. }: StoreAnswer| Ruling {
                    called,
                    ..Ruling::by(Mode::Store, verdict)
                };
                answers.map(|said| said.map(ruling)).collect()
            }
            Some(guard) => guard.decide_each(&self.store, &asks.collect::<Vec<_>>()).await,
        };
        for (PendingRequest { request, budget, .. }, ruling) in asked.iter().zip(&mut rulings) {
            if let Ok(ruling) = ruling {
                self.call_waiters(budget, &request.verb, ruling);
            }
        }
        rulings
    }

    /// Returns the answer of the store alone, and records nothing of it.
    pub(super) async fn ask_without_learning(
        &self,
        budget: &ResolvedBudget<'_>,
        look: &Verb,
        now: Micros,
    ) -> Result<Verdict, StoreError> {
        let windows = budget.rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let asked = ask_store(&self.store, None, &budget.ask(look), &moment).await;
        asked.map(|(answer, _)| answer.verdict)
    }

    /// Returns the result of [`ask`](Self::ask) if it needs no wait; otherwise `None`, and nothing was done.
    #[inline]
    pub(super) fn ask_at_once(
        &self,
        budget: &ResolvedBudget<'_>,
        verb: &Verb,
        now: Micros,
    ) -> Option<Result<Ruling, StoreError>> {
        // An answer may call requests that wait.
        if verb.is_of_permits() && budget.rules.set().queues() {
            return None;
        }
        let windows = budget.rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let request = budget.ask(verb);
        match &self.guard {
            None => {
                let decided = self.store.decide_at_once(&request, &moment)?;
                Some(decided.map(|verdict| Ruling::by(Mode::Store, verdict)))
            }
            Some(guard) => {
                guard.decide_at_once(&self.store, budget.conditions(), &request, &moment)
            }
        }
    }
}

/// Asks the store, after it has charged `debt` if there is one. Each single request that waits for the decision of a
/// store goes through here.
pub(super) async fn ask_store(
    store: &impl Store,
    debt: Option<&Debt>,
    request: &StoreRequest<'_>,
    at: &Moment<'_>,
) -> Result<(StoreAnswer, Permits), StoreError> {
    match debt {
        None => store.decide(request, at).await.map(|answer| (answer, Permits::default())),
        Some(debt) => store.charge_and_decide(debt, request, at).await,
    }
}

/// Asks the store about each of `requests`, none of which has a debt, at once; `on_answer` gets the place of each
/// and its answer as soon as that has come.
pub(super) async fn ask_store_each(
    store: &impl Store,
    requests: &[RequestAt<'_>],
    on_answer: &mut (impl FnMut(usize, Result<StoreAnswer, StoreError>) + Send),
) {
    if !requests.is_empty() {
        store.decide_each(requests, on_answer).await;
    }
}

/// Returns whether a request that passes under `rule` may have to wait before it goes on.
const fn may_delay(rule: &Rule) -> bool {
    matches!(rule, Rule::LeakyBucket(_) | Rule::SmoothBursty(_) | Rule::SmoothWarmup(_))
}

impl<S: fmt::Debug, O: Observer> fmt::Debug for Turn<'_, S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { now, label, .. } = self;
        f.debug_struct("Turn").field("now", now).field("label", label).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_store::redis::RedisStore;

    use super::*;

    type OnRedis = Turn<'static, RedisStore>;

    const fn size_of_future<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_is_decided_at_once_does_not_carry_the_space_for_waiting() {
        fn decide<'a>(
            turn: &'a OnRedis,
            request: &'a Request<'a>,
        ) -> impl Future<Output = Result<Admission, DecideError>> {
            turn.decide(request)
        }
        fn pass<'a>(
            turn: &'a OnRedis,
            (request, budget): (&'a Request<'a>, &'a ResolvedBudget<'a>),
        ) -> impl Future<Output = Result<Admission, DecideError>> {
            turn.decide_and_hold(request, budget)
        }
        assert!(size_of_future(decide) <= 512, "{} bytes", size_of_future(decide));
        // One for each that waits, on the heap.
        assert!(size_of_future(pass) <= 4_096, "{} bytes", size_of_future(pass));
    }
}
