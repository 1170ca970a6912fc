//! Permits whose id the server generates.
//!
//! Only the answer has the id. If the client goes away before it is answered, the permit could not be
//! released, so it is released here. A permit with an id of the caller stays held: the caller may
//! have released it and acquired it again by then. A request that waits for a permit takes care of itself: its ticket.

use std::sync::Arc;

use sluicegate::{Admission, DecideError, Request, Verb};
use tokio::sync::oneshot;

use crate::engine::ServerEngine;
use crate::protocol::Wire;
use crate::trace::Parent;

/// Acquires the permit of `request`. Goes on if this future is dropped, and then gives back what it got.
pub(super) async fn acquire(
    engine: &Arc<ServerEngine>,
    request: &Request<'_>,
    parent: Parent,
) -> Result<Admission, DecideError> {
    let turn = engine.turn(Wire::Http);
    if turn.may_wait_for_permit(request) {
        return parent.over(turn.decide(request)).await;
    }
    let (engine, verb) = (Arc::clone(engine), request.verb.clone());
    let (policy, key) = (request.limits.name().to_owned(), request.key.map(<[u8]>::to_vec));
    let (app, patience) = (request.app.map(ToOwned::to_owned), request.patience);
    let (answer, answered) = oneshot::channel();
    tokio::spawn(async move {
        let (key, app) = (key.as_deref(), app.as_deref());
        let request = Request::new(&policy, key, verb);
        let request = Request { app, patience, is_permit_unnamed: true, ..request };
        let passed = parent.over(engine.turn(Wire::Http).decide(&request)).await;
        if let Err(Ok(admission)) = answer.send(passed)
            && admission.answer.decision.allowed()
            && let Verb::Acquire { permit, .. } = request.verb
        {
            let release = Request { verb: Verb::Release { permit }, ..request };
            if engine.turn(Wire::Http).decide(&release).await.is_err() {
                engine.core().release_until_answered(&release).await;
            }
        }
    });
    answered.await.expect("the task answers, unless it has panicked")
}

/// A random id for a permit: a client that guesses it could release the permit.
pub(super) fn new_id() -> String {
    let (high, low) = (random(), random());
    format!("{high:016x}{low:016x}")
}

fn random() -> u64 {
    getrandom::u64().expect("the system has randomness once it has started")
}
