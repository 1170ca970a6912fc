//! The wait for a permit of a `concurrency` rule: [`waiters`](super::waiters) has the picture.

use std::future::pending;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use sluicegate_kernel::{Called, Decision, Micros, Outcome, PermitId, Retry, Verb};
use sluicegate_store::Store;
use tokio::runtime::Handle;

use super::booking::{OwnedTurn, ask};
use super::hold::or_refused;
use super::request::{OwnedRequest, ResolvedBudget};
use super::vacancies::Claim;
use super::waiters::Waiter;
use super::{Admission, Answer, DecideError, Engine, Mode, Observer, Request, Ruling, Turn};

/// The longest time after which the first waiting request of a budget asks again: a third of the time for which tickets
/// count.
const LOOK_EVERY: Micros = Micros::from_secs(1);

/// The shortest such time.
const LOOK_MIN: Micros = Micros::from_millis(1);

/// The time after which it asks again while the store is away: there are no tickets, and nothing calls it.
const LOOK_WITHOUT_STORE: Micros = Micros::from_millis(20);

/// The ticket of a request that waits. It is given back when it is dropped, after the question that is under way. A permit
/// that is granted then is released if no caller knows its id; a caller that does may have released it, and acquired it
/// again.
struct Ticket<S: Store + 'static, O: Observer> {
    engine: Arc<Engine<S, O>>,
    label: O::Label,
    request: Arc<OwnedRequest>,
    permit: PermitId,
    /// The question to the store that is under way.
    asking: Option<BoxFuture<'static, Result<Admission, DecideError>>>,
    line: Claim,
    /// A question may have got the permit, and its answer was lost.
    is_unsure: bool,
    /// The store has granted the permit, or it has refused the request, which has no ticket then.
    is_over: bool,
}

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// Acquires `permit` for `request`, whose cost is in its verb, and waits for it up to `max_wait`. If the future is
    /// dropped, the request no longer waits, and holds nothing.
    pub(super) async fn acquire(
        &self,
        request: &Request<'_>,
        permit: PermitId,
        budget: &ResolvedBudget<'_>,
        max_wait: Micros,
    ) -> Result<Admission, DecideError> {
        let (engine, process) = (self.engine, self.engine.waiters.process());
        let line = Claim::on(&budget.name, budget.key);
        let mut ticket = Ticket::new(self, request, permit, line.clone());
        let (Some(_held), Some(waiter)) = (engine.held.enter(), engine.waiters.enter(line, permit))
        else {
            return ticket.ask(&request.verb).await.inspect(|admission| ticket.end(admission));
        };
        let verb = match request.verb {
            Verb::Acquire { cost, permit } => Verb::Wait { cost, permit, process },
            _ => unreachable!("only an `acquire` waits for a permit"),
        };
        let begun = engine.clock.now();
        let mut refused: Option<Admission> = None;
        loop {
            let asked_at = engine.clock.now();
            let was_unsure = ticket.is_unsure;
            let mut asked = ticket.ask(&verb).await;
            let is_own = was_unsure && asked.as_ref().is_ok_and(|it| is_held(&it.answer));
            if is_own {
                // An earlier question without an answer got the permit.
                asked = ticket.ask(&Verb::Renew { permit }).await;
            }
            // If that has no answer either, the request goes on waiting, and asks again.
            let is_unheard = is_own && matches!(asked, Err(DecideError::Store(_)));
            if let (true, Some(last)) = (is_unheard, &refused) {
                asked = Ok(last.clone());
            }
            // The time of the first question is no wait.
            let held = match &refused {
                Some(_) => engine.clock.now().since(begun),
                None => Micros::ZERO,
            };
            // After a grant the next one may pass, too.
            let is_granted = asked.as_ref().is_ok_and(|it| it.answer.decision.granted() > 0);
            let is_first = !is_granted && waiter.note_asked(asked_at);
            let waited = refused.is_some();
            let admission = or_refused(asked, refused.take())?;
            let pause = match is_unheard {
                true => Some(LOOK_WITHOUT_STORE),
                false => pause(&admission.answer, waited),
            };
            let Some(pause) = pause else {
                ticket.end(&admission);
                return Ok(Admission { held, ..admission });
            };
            for permit in waiter.take_unwanted() {
                engine.leave(self.label, request, &Verb::Leave { permit, process }).await;
            }
            let last = refusal(admission, request, budget);
            let due = if is_first { asked_at.plus(pause) } else { Micros::MAX };
            tokio::select! {
                // First, or a request whose questions take as long as it waits between them would never end.
                biased;
                () = engine.pass_time(max_wait.since(held)) => {
                    return Ok(Admission { held: max_wait, ..last });
                }
                () = engine.turn_of(&waiter, due) => {}
            }
            refused = Some(last);
        }
    }
}

/// Returns whether the permit is held already.
fn is_held(answer: &Answer) -> bool {
    answer.mode == Mode::Store && answer.decision.retry_after().is_none()
}

/// Returns the time after which a request with this answer may pass if it is the first; `None` if it does not wait. One
/// that has `waited` before goes on while the store is away or busy.
fn pause(answer: &Answer, waited: bool) -> Option<Micros> {
    match (answer.mode, answer.decision.outcome) {
        (Mode::Local, Outcome::Deny { retry: Retry::After(_) }) => Some(LOOK_WITHOUT_STORE),
        (Mode::Shed | Mode::Deny, Outcome::Deny { retry: Retry::After(_) }) if waited => {
            Some(LOOK_EVERY)
        }
        (_, Outcome::Allow { granted: 0, wait }) => Some(wait.clamp(LOOK_MIN, LOOK_EVERY)),
        _ => None,
    }
}

/// Returns the refusal of `request` in case that it waits no longer.
fn refusal(admission: Admission, request: &Request<'_>, budget: &ResolvedBudget<'_>) -> Admission {
    let answer = admission.answer;
    let retry = match answer.decision.outcome {
        Outcome::Allow { wait, .. } => Retry::After(wait.max(LOOK_MIN)),
        Outcome::Deny { retry } => retry,
    };
    let decision = Decision { outcome: Outcome::Deny { retry }, ..answer.decision };
    let answer = Answer { decision, ..answer };
    Admission::new(answer, &request.verb, request.patience, budget.policy)
}

/// Returns whether a request with this answer of the store has a ticket there.
fn waits_in_store(answer: &Answer) -> bool {
    matches!(answer.decision.outcome, Outcome::Allow { granted: 0, .. })
}

impl<S: Store + 'static, O: Observer> Ticket<S, O> {
    fn new(turn: &Turn<'_, S, O>, request: &Request<'_>, permit: PermitId, line: Claim) -> Self {
        Self {
            engine: Arc::clone(turn.engine),
            label: turn.label,
            request: Arc::new(request.to_owned()),
            permit,
            asking: None,
            line,
            is_unsure: false,
            is_over: true,
        }
    }

    /// Ends the wait with this answer. The caller has what it grants, also if that was not granted by the store.
    fn end(&mut self, admission: &Admission) {
        self.is_unsure &= admission.answer.decision.granted() == 0;
    }

    /// Asks by the policies that are in force now.
    async fn ask(&mut self, verb: &Verb) -> Result<Admission, DecideError> {
        let engine = Arc::clone(&self.engine);
        let turn = OwnedTurn {
            policies: engine.policies.load_full(),
            now: engine.clock.now(),
            engine,
            label: self.label,
        };
        let asking = ask(turn, Arc::clone(&self.request), verb.clone());
        self.is_over = false;
        let asked = self.asking.insert(Box::pin(asking)).await;
        self.asking = None;
        let by_store = asked.as_ref().ok().filter(|it| it.answer.mode == Mode::Store);
        self.is_unsure |= by_store.is_none();
        self.is_over = by_store.is_some_and(|it| !waits_in_store(&it.answer));
        asked
    }
}

impl<S: Store + 'static, O: Observer> Drop for Ticket<S, O> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let (engine, label, permit) = (Arc::clone(&self.engine), self.label, self.permit);
        let (request, asking) = (Arc::clone(&self.request), self.asking.take());
        let (line, is_unsure) = (self.line.clone(), self.is_unsure);
        let leaving = async move {
            let may_hold = match asking {
                Some(asking) => match asking.await {
                    Ok(asked) => is_unsure || asked.answer.decision.granted() > 0,
                    Err(_) => true,
                },
                None => is_unsure,
            };
            let request = request.borrow();
            if may_hold && request.is_permit_unnamed {
                let release = Verb::Release { permit };
                if !engine.leave(label, &request, &release).await {
                    engine.release_until_answered(&request.with_verb(release)).await;
                }
            }
            // A caller that named its permit may wait for it again.
            if !engine.waiters.waits(&line, permit) {
                let process = engine.waiters.process();
                engine.leave(label, &request, &Verb::Leave { permit, process }).await;
            }
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(leaving)),
            Err(_) => self.engine.waiters.leave_later(Box::pin(leaving)),
        }
    }
}

impl<S: Store + 'static, O: Observer> Engine<S, O> {
    /// Passes calls of requests that wait for a permit on, from other processes and to them. Spawn it where several processes
    /// share the store: while it does not run, such requests ask every second. It also gives back the tickets of requests that
    /// are dropped outside of a runtime. Ends never.
    pub async fn pass_calls(&self) {
        let mut left = self.waiters.left();
        self.waiters.used().await;
        let hear = async {
            loop {
                let called = self.store.announced().await;
                self.waiters.call(called);
            }
        };
        let announce = async {
            loop {
                let called = self.waiters.outgoing().await;
                self.store.announce(&called).await;
            }
        };
        let leave = async {
            let mut leaving = FuturesUnordered::new();
            loop {
                tokio::select! {
                    biased;
                    Some(next) = left.recv() => leaving.push(next),
                    Some(()) = leaving.next(), if !leaving.is_empty() => {}
                    else => pending::<()>().await,
                }
            }
        };
        tokio::join!(hear, announce, leave);
    }

    /// Waits until the request of `waiter` is to ask again: it is called; or it is the first of its budget in this process,
    /// and a second ago the first of them last asked, or `due` is over.
    async fn turn_of(&self, waiter: &Waiter<'_>, due: Micros) {
        while !waiter.take_call() {
            let Some(looked) = waiter.looked() else {
                waiter.changed().await;
                continue;
            };
            let (due, now) = (looked.plus(LOOK_EVERY).min(due), self.clock.now());
            tokio::select! {
                biased;
                () = waiter.changed() => {}
                () = self.pass_time(due.since(now).min(LOOK_EVERY)) => return waiter.look(),
            }
        }
    }

    /// Gives the ticket or the permit of `request` back by `verb`. Returns whether the store has answered.
    async fn leave(self: &Arc<Self>, label: O::Label, request: &Request<'_>, verb: &Verb) -> bool {
        let turn = self.turn_for(label);
        match ResolvedBudget::of(&turn.policies, request, turn.now) {
            Ok(budget) => {
                let left = turn.decide_unheld(request, &budget, verb).await;
                left.is_ok_and(|it| it.answer.mode == Mode::Store)
            }
            // Nothing is left of a policy that is gone.
            Err(_) => true,
        }
    }
}

impl<S: Store, O: Observer> Engine<S, O> {
    /// Calls the waiting requests that `ruling` on `verb` names.
    #[inline]
    pub(super) fn call_waiters(
        &self,
        budget: &ResolvedBudget<'_>,
        verb: &Verb,
        ruling: &mut Ruling,
    ) {
        if !ruling.called.is_empty() {
            self.call_named(budget, verb, ruling);
        }
    }

    fn call_named(&self, budget: &ResolvedBudget<'_>, verb: &Verb, ruling: &mut Ruling) {
        let called = std::mem::take(&mut ruling.called);
        if let Verb::Wait { permit, .. } = *verb {
            let line = Claim::on(&budget.name, budget.key);
            self.waiters.note_unwanted(&line, &called);
            self.waiters.end_look(&line, permit, &called);
        }
        // An answer that frees nothing says what others said: requests would wake each other for ever.
        let frees = match verb {
            Verb::Release { .. } | Verb::Leave { .. } => true,
            Verb::Wait { .. } => ruling.verdict.decision.granted() > 0,
            _ => false,
        };
        if frees {
            let others: Vec<Called> = self.waiters.call(called);
            if !others.is_empty() {
                self.waiters.send(others);
            }
        }
    }
}
