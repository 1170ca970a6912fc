//! A booking of a turn in a store whose answer has to be waited for.
//!
//! A caller may go away between the question and the answer. The store books the turn all the same, but no
//! request uses it: the permits of that instant would be lost, and a flood of callers that hang up would put
//! all others behind unused turns. So the booking waits for the answer without the caller, and a turn that it
//! brings is vacant (`vacancies.rs`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::Guard as Loaded;
use futures_util::future::BoxFuture;
use sluicegate_kernel::{Micros, Verb};
use sluicegate_policy::PolicySet;
use sluicegate_store::Store;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::request::{OwnedRequest, ResolvedBudget};
use super::vacancies::{Claim, Vacancy};
use super::{Admission, DecideError, Engine, Observer, Request, Turn};

/// A question to the store that outlives its caller. The store bounds the number of questions at a time.
pub(super) struct Booking<S: Store + 'static, O: Observer> {
    engine: Arc<Engine<S, O>>,
    request: Arc<OwnedRequest>,
    /// `None` once it is answered.
    asking: Option<BoxFuture<'static, Result<Admission, DecideError>>>,
}

/// A turn of an engine that outlives its caller.
pub(super) struct OwnedTurn<S: Store + 'static, O: Observer> {
    pub(super) engine: Arc<Engine<S, O>>,
    pub(super) policies: Arc<PolicySet>,
    pub(super) now: Micros,
    pub(super) label: O::Label,
}

impl<S: Store + 'static, O: Observer> Booking<S, O> {
    pub(super) fn new(turn: &Turn<'_, S, O>, request: &Request<'_>, verb: &Verb) -> Self {
        let (engine, policies) = (Arc::clone(turn.engine), Arc::clone(&turn.policies));
        let request = Arc::new(request.to_owned());
        let engine_of_turn = Arc::clone(&engine);
        let turn = OwnedTurn { engine: engine_of_turn, policies, now: turn.now, label: turn.label };
        let asking = ask(turn, Arc::clone(&request), verb.clone());
        Self { engine, request, asking: Some(Box::pin(asking)) }
    }
}

/// Decides `request` by `verb`, and never delays it.
pub(super) async fn ask<S: Store + 'static, O: Observer>(
    turn: OwnedTurn<S, O>,
    request: Arc<OwnedRequest>,
    verb: Verb,
) -> Result<Admission, DecideError> {
    let OwnedTurn { engine, policies, now, label } = turn;
    let request = request.borrow();
    let budget = ResolvedBudget::of(&policies, &request, now)?;
    let policies = Loaded::from_inner(Arc::clone(&policies));
    let turn = Turn { engine: &engine, policies, now, label };
    turn.decide_unheld(&request, &budget, &verb).await
}

impl<S: Store + 'static, O: Observer> Future for Booking<S, O> {
    type Output = Result<Admission, DecideError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(asking) = &mut this.asking else { return Poll::Pending };
        let polled = asking.as_mut().poll(context);
        if polled.is_ready() {
            this.asking = None;
        }
        polled
    }
}

impl<S: Store + 'static, O: Observer> Drop for Booking<S, O> {
    fn drop(&mut self) {
        let Some(asking) = self.asking.take() else { return };
        // Without a runtime the question cannot go on.
        let Ok(runtime) = Handle::try_current() else { return };
        let (engine, request) = (Arc::clone(&self.engine), Arc::clone(&self.request));
        runtime.spawn(async move {
            if let Ok(admission) = asking.await {
                let due = Instant::now() + admission.answer.decision.wait().into();
                vacate(&engine, &request.borrow(), Vacancy { due, answer: admission.answer });
            }
        });
    }
}

/// Leaves the turn that was booked for `request` to another request.
pub(super) fn vacate<S, O: Observer>(engine: &Engine<S, O>, request: &Request<'_>, turn: Vacancy) {
    // Permits of a share, or of nothing, cannot be passed on.
    let charged = turn.answer.charged();
    if charged > 0 && turn.answer.decision.wait() > Micros::ZERO {
        engine.vacancies.vacate(Claim::of(request, charged), turn);
    }
}
