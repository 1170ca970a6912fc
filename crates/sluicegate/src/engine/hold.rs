//! The treatment of a request over the limit: carries out the policy's `overflow`.
//!
//! ```text
//! check ─▶ allowed ────────────────────────────────▶ Disposition::Allowed
//!   └▶ over the limit ─▶ reject ───────────────────▶ Disposition::Refused
//!                      ├▶ queue ─▶ held until its turn ─▶ Disposition::Allowed, or Disposition::Refused
//!                      ├▶ degrade ─────────────────▶ Disposition::Degraded
//!                      ├▶ divert ──────────────────▶ Disposition::Diverted
//!                      └▶ shadow ──────────────────▶ Disposition::Shadowed
//! ```
//!
//! A `reserve` brings its own wait along, so `queue` does not apply to it; the other overflows treat it like a
//! check. An `acquire` waits for a permit in the queue of its rules (`acquire.rs`).
//!
//! **Queue.** Rules that book the future (`token_bucket`, `leaky_bucket`, Guava's two) return at once
//! how long the request must be delayed, and it is delayed here. Other rules are asked again after
//! `retry_after`. Each try uses the policies then in force. A caller that goes away while it is delayed frees its
//! place, and its turn goes to the next request that wants one (`vacancies.rs`).
//!
//! **Gateways.** Other callers wait by themselves where a decision has a wait, by a `leaky_bucket` that
//! delays for instance. A gateway cannot do that: it lets a request go on or not. For it the engine delays requests
//! itself, whatever the overflow ([`Patience::Gateway`]).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use sluicegate_kernel::{Cost, Decision, Micros, Outcome, Retry, Verb};
use sluicegate_policy::Overflow;
use sluicegate_store::Store;
use tokio::time::Instant;

use super::booking::{Booking, vacate};
use super::request::{ResolvedBudget, TakenPermits};
use super::vacancies::{Claim, Vacancy};
use super::{
    Admission, Answer, DecideError, Disposition, Engine, Observer, Patience, Request, Turn,
};
use crate::wait::wait;

/// Most requests that one engine delays at a time, over all policies; the next is refused. In the server each
/// keeps 15 KB busy over Envoy's protocol (measured), whose connections carry many, so that is 150 MB, and
/// 200 MB at most; over HTTP and RESP it is a connection, of which there are fewer.
pub const HELD_MAX: usize = 10_000;

/// Most tries of a delayed request: rules that do not book the future let the luckiest through, and a
/// request that was unlucky so often has waited long.
const TRIES_MAX: usize = 64;

/// Number of requests that are delayed now.
#[derive(Debug, Default)]
pub(super) struct HeldCount(AtomicUsize);

/// The place of one delayed request in the count.
pub(super) struct HeldGuard<'a>(&'a HeldCount);

/// The turn of a delayed request. If the request is dropped, another may have it.
struct BookedTurn<'a, S: Store + 'static, O: Observer> {
    engine: &'a Engine<S, O>,
    request: &'a Request<'a>,
    turn: Option<Vacancy>,
}

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// Decides `request`, which is about `budget`, and delays it up to its patience.
    pub(super) async fn decide_and_hold(
        &self,
        request: &Request<'_>,
        budget: &ResolvedBudget<'_>,
    ) -> Result<Admission, DecideError> {
        let queues = max_wait(budget).is_some();
        match (request.patience, &request.verb) {
            (Patience::Policy, &Verb::Check { cost }) if queues => {
                Box::pin(self.queue(request, cost, budget, Micros::MAX)).await
            }
            (Patience::Gateway(max), &(Verb::Check { cost } | Verb::AtMost { cost })) if queues => {
                Box::pin(self.queue(request, cost, budget, max)).await
            }
            (Patience::Gateway(max), &(Verb::Check { cost } | Verb::AtMost { cost }))
                if holds_for_gateways(budget) =>
            {
                let admission = match self.vacancy(request, cost, max) {
                    Some(vacancy) => vacancy.answer.into(),
                    None => self.decide_unheld(request, budget, &request.verb).await?,
                };
                match admission.answer.decision.wait() {
                    Micros::ZERO => Ok(admission),
                    _ => Ok(Box::pin(self.hold(request, admission, max)).await),
                }
            }
            (_, &Verb::Acquire { permit, .. }) => {
                if let Patience::Permit(_) = request.patience {
                    budget.rules.set().supports_waiting()?;
                }
                match permit_wait(request.patience, budget) {
                    Some(max_wait) => {
                        Box::pin(self.acquire(request, permit, budget, max_wait)).await
                    }
                    None => {
                        let admission = self.decide_unheld(request, budget, &request.verb).await?;
                        self.release_late(request, permit, &admission);
                        Ok(admission)
                    }
                }
            }
            _ => self.decide_unheld(request, budget, &request.verb).await,
        }
    }

    /// Decides `request` with this verb, and never delays it.
    pub(super) async fn decide_unheld(
        &self,
        request: &Request<'_>,
        budget: &ResolvedBudget<'_>,
        verb: &Verb,
    ) -> Result<Admission, DecideError> {
        let asking = self.engine.ask(budget, verb, budget.conditions(), self.now);
        let answer = Answer::new(&asking.await?, budget.rules);
        Ok(Admission::new(answer, verb, request.patience, budget.policy))
    }

    /// Delays `request`, which passes, by the wait of its decision. If that is too long, or too many are
    /// delayed, it is refused; its permits are given back, or its turn becomes vacant.
    async fn hold(
        &self,
        request: &Request<'_>,
        admission: Admission,
        hold_max: Micros,
    ) -> Admission {
        let decision = admission.answer.decision;
        let wait = decision.wait();
        if wait == Micros::ZERO || admission.way != Disposition::Allowed {
            return admission;
        }
        if wait <= hold_max {
            let booked = BookedTurn::new(self.engine, request, &admission.answer);
            if let Some(_place) = self.engine.held.enter() {
                booked.held().await;
                return Admission { held: wait, ..admission };
            }
        } else {
            // Without a store the booking lapses by itself.
            self.give_back(vec![TakenPermits {
                request: request.to_owned(),
                permits: admission.answer.charged(),
            }]);
        }
        let retry = Retry::After(wait.since(hold_max).max(Micros::new(1)));
        let decision = Decision { outcome: Outcome::Deny { retry }, ..decision };
        Admission::from(Answer { decision, ..admission.answer })
    }

    /// Delays `request` until it passes, for at most the time that its policy and `hold_max` allow.
    async fn queue(
        &self,
        request: &Request<'_>,
        cost: Cost,
        budget: &ResolvedBudget<'_>,
        hold_max: Micros,
    ) -> Result<Admission, DecideError> {
        let Some(_place) = self.engine.held.enter() else {
            let verb = Verb::Reserve { cost, max_wait: Micros::ZERO };
            return self.decide_unheld(request, budget, &verb).await;
        };
        let (mut held, mut refused) = (Micros::ZERO, None);
        // The first try is of this turn; each later one is of its own.
        let mut later: Option<Self> = None;
        for tries_left in (0..TRIES_MAX).rev() {
            let fresh =
                later.as_ref().map(|turn| ResolvedBudget::of(&turn.policies, request, turn.now));
            let (turn, budget) = match (&later, &fresh) {
                (Some(turn), Some(Ok(budget))) => (turn, budget),
                (_, Some(Err(error))) => {
                    let refused = or_refused(Err(error.clone()), refused);
                    return refused.map(|admission| Admission { held, ..admission });
                }
                _ => (self, budget),
            };
            let Some(max_wait) = max_wait(budget) else {
                let passed = turn.decide_unheld(request, budget, &request.verb).await;
                return or_refused(passed, refused)
                    .map(|admission| Admission { held, ..admission });
            };
            let left = max_wait.min(hold_max).since(held);
            let passed = match turn.vacancy(request, cost, left) {
                Some(vacancy) => Ok(vacancy.answer.into()),
                None => turn.book(request, budget, &Verb::Reserve { cost, max_wait: left }).await,
            };
            let admission = Admission { held, ..or_refused(passed, refused)? };
            let decision = admission.answer.decision;
            if decision.allowed() {
                let wait = decision.wait();
                if wait == Micros::ZERO {
                    return Ok(admission);
                }
                BookedTurn::new(self.engine, request, &admission.answer).held().await;
                return Ok(Admission { held: held.plus(wait), ..admission });
            }
            match decision.retry_after() {
                Some(retry) if retry <= left && tries_left > 0 => {
                    self.engine.pass_time(retry).await;
                    held = held.plus(retry);
                    later = Some(self.engine.turn_for(self.label));
                    refused = Some(admission);
                }
                _ => return Ok(admission),
            }
        }
        unreachable!("the last try returns")
    }

    /// Decides `request` by a verb that may book its turn.
    async fn book(
        &self,
        request: &Request<'_>,
        budget: &ResolvedBudget<'_>,
        verb: &Verb,
    ) -> Result<Admission, DecideError> {
        match self.engine.ask_at_once(budget, verb, self.now) {
            Some(ruling) => {
                let answer = Answer::new(&ruling?, budget.rules);
                Ok(Admission::new(answer, verb, request.patience, budget.policy))
            }
            None => Booking::new(self, request, verb).await,
        }
    }

    /// A turn that was booked for a request like this one, whose caller went away; `None` if there is none.
    fn vacancy(&self, request: &Request<'_>, cost: Cost, hold_max: Micros) -> Option<Vacancy> {
        if self.engine.vacancies.is_empty() {
            return None;
        }
        let last = Instant::now().checked_add(hold_max.into())?;
        self.engine.vacancies.take(&Claim::of(request, cost.get()), last)
    }
}

impl<S, O: Observer> Engine<S, O> {
    /// Lets `span` pass, by the engine's clock if that is virtual.
    pub(super) async fn pass_time(&self, span: Micros) {
        if !self.clock.is_virtual() {
            return tokio::time::sleep(span.into()).await;
        }
        let until = self.clock.now().plus(span);
        let reached = |_: &Waker, look_again: &mut Option<Micros>| {
            if self.clock.now() >= until {
                return Poll::Ready(());
            }
            *look_again = Some(until);
            Poll::Pending
        };
        wait(&*self.clock, reached).await;
    }

    /// Number of requests that are delayed now.
    pub fn held(&self) -> usize {
        self.held.0.load(Ordering::Relaxed)
    }
}

/// The longest wait for a permit; `None` if the request does not wait for one.
pub(super) fn permit_wait(patience: Patience, budget: &ResolvedBudget<'_>) -> Option<Micros> {
    if !budget.rules.set().queues() {
        return None;
    }
    // Under `shadow` nothing is delayed.
    if budget.policy.is_some_and(|policy| *policy.overflow() == Overflow::Shadow) {
        return None;
    }
    let wait = match patience {
        Patience::None => None,
        Patience::Policy => max_wait(budget),
        Patience::Gateway(max) => max_wait(budget).map(|wait| wait.min(max)),
        Patience::Permit(max) => Some(max),
    };
    wait.filter(|wait| *wait > Micros::ZERO)
}

/// The longest delay by the policy; `None` if its overflow is not `queue`.
pub(super) fn max_wait(budget: &ResolvedBudget<'_>) -> Option<Micros> {
    match budget.policy?.overflow() {
        Overflow::Queue { max_wait } => Some(*max_wait),
        _ => None,
    }
}

/// Returns whether the engine itself delays requests of gateways as the rules require.
pub(super) fn holds_for_gateways(budget: &ResolvedBudget<'_>) -> bool {
    budget.policy.is_some_and(|policy| *policy.overflow() != Overflow::Shadow)
}

/// Returns `passed`; but if a delayed request can no longer be decided because its policy changed or is gone,
/// the last refusal.
pub(super) fn or_refused(
    passed: Result<Admission, DecideError>,
    refused: Option<Admission>,
) -> Result<Admission, DecideError> {
    match (passed, refused) {
        (Err(error), Some(refused)) if !matches!(error, DecideError::Store(_)) => Ok(refused),
        (passed, _) => passed,
    }
}

impl HeldCount {
    pub(super) fn enter(&self) -> Option<HeldGuard<'_>> {
        let enter = |held| (held < HELD_MAX).then_some(held + 1);
        let entered = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, enter);
        entered.is_ok().then_some(HeldGuard(self))
    }
}

impl Drop for HeldGuard<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a, S: Store + 'static, O: Observer> BookedTurn<'a, S, O> {
    fn new(engine: &'a Engine<S, O>, request: &'a Request<'a>, answer: &Answer) -> Self {
        let due = Instant::now() + answer.decision.wait().into();
        Self { engine, request, turn: Some(Vacancy { due, answer: answer.clone() }) }
    }

    /// Waits for the turn; if the future is dropped before, the turn is vacant.
    async fn held(mut self) {
        if let Some(Vacancy { answer, .. }) = &self.turn {
            self.engine.pass_time(answer.decision.wait()).await;
        }
        self.turn = None;
    }
}

impl<S: Store + 'static, O: Observer> Drop for BookedTurn<'_, S, O> {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            vacate(self.engine, self.request, turn);
        }
    }
}
