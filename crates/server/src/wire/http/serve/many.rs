//! Requests that take several decisions: batches and settlements.
//!
//! Both run in a task of their own, so that a client that goes away between two decisions does not
//! leave the work half done.

use axum::body::Body as AnyBody;
use axum::http::{Request, StatusCode};
use sluicegate::internals::{BatchError, BatchOutcome, SettleError};
use sluicegate::{Charged, Patience, Request as Question};
use tokio::task::JoinHandle;

use super::{HttpHandler, JSON, answered, denies, read, require_json};
use crate::authenticator::Caller;
use crate::protocol::Wire;
use crate::wire::http::codec::{
    Batch, Operation, OperationRequest, Problem, Settle, encode_all, encode_each, encode_none,
    encode_settled,
};
use crate::wire::http::response::{FullResponse, respond};

/// Answers a batch.
pub(super) async fn batch(handler: &HttpHandler, request: Request<AnyBody>) -> FullResponse {
    answered(try_batch(handler, request).await)
}

/// Answers a settlement.
pub(super) async fn settle(handler: &HttpHandler, request: Request<AnyBody>) -> FullResponse {
    answered(try_settle(handler, request).await)
}

async fn try_batch(
    handler: &HttpHandler,
    request: Request<AnyBody>,
) -> Result<FullResponse, Problem> {
    let caller = handler.caller(Operation::Batch, request.headers())?;
    require_json(request.headers())?;
    denies(Operation::Batch, request.uri().query())?;
    let bytes = read(request.into_body()).await?;
    if let Batch::Each(asks) = Batch::decode(&bytes)? {
        return Ok(respond(StatusCode::OK, JSON, each(handler, &caller, asks).await));
    }
    let handler = handler.clone();
    let body = done(tokio::spawn(async move {
        match Batch::decode(&bytes)? {
            Batch::Each(asks) => Ok(each(&handler, &caller, asks).await),
            Batch::Atomic(asks) => {
                let questions = asks.iter().enumerate().map(|(place, ask)| {
                    question(&handler, &caller, ask).map_err(|problem| problem.at(place))
                });
                all(&handler, questions.collect::<Result<_, _>>()?).await
            }
        }
    }));
    Ok(respond(StatusCode::OK, JSON, body.await?))
}

async fn try_settle(
    handler: &HttpHandler,
    request: Request<AnyBody>,
) -> Result<FullResponse, Problem> {
    let caller = handler.caller(Operation::Settle, request.headers())?;
    require_json(request.headers())?;
    denies(Operation::Settle, request.uri().query())?;
    let bytes = read(request.into_body()).await?;
    let handler = handler.clone();
    let body = done(tokio::spawn(async move {
        let settle = Settle::decode(&bytes)?;
        let mut settlement = settle.settlement();
        let app = caller.app(settlement.app);
        settlement.app = app.map_err(|refused| handler.refuse(refused))?;
        let settled = handler.engine.turn(Wire::Http).settle(&settlement).await;
        let settled = settled.map_err(|error| match error {
            SettleError::Decide(error) => handler.undecided(error, settlement.app),
            error => error.into(),
        });
        Ok(encode_settled(settled?))
    }));
    Ok(respond(StatusCode::OK, JSON, body.await?))
}

/// Waits for the result of the task. A panic was reported, and is an internal error here.
async fn done(task: JoinHandle<Result<Vec<u8>, Problem>>) -> Result<Vec<u8>, Problem> {
    task.await.unwrap_or_else(|_| Err(Problem::internal()))
}

/// The request of `caller`, if it is permitted.
fn question<'a>(
    handler: &HttpHandler,
    caller: &'a Caller,
    ask: &'a OperationRequest<'_>,
) -> Result<Question<'a>, Problem> {
    let mut question = ask.request();
    caller.ask(&mut question).map_err(|refused| handler.refuse(refused))?;
    Ok(question)
}

/// Decides each on its own: one that is delayed does not delay others.
async fn each(
    handler: &HttpHandler,
    caller: &Caller,
    asks: Vec<Result<OperationRequest<'_>, Problem>>,
) -> Vec<u8> {
    let questions = asks.iter().enumerate().map(|(place, ask)| {
        let ask = ask.as_ref().map_err(Clone::clone)?;
        question(handler, caller, ask).map_err(|problem| problem.at(place))
    });
    let questions: Vec<_> = questions.collect();
    let requests: Vec<_> = questions.iter().flatten().cloned().collect();
    let mut decided = handler.engine.turn(Wire::Http).decide_each(&requests).await.into_iter();
    let answers = questions.into_iter().map(|question| {
        let app = question?.app;
        let decided = decided.next().expect("there is one for each question");
        decided.map_err(|error| handler.undecided(error, app))
    });
    encode_each(&answers.collect::<Vec<_>>())
}

/// Charges all or none.
async fn all(handler: &HttpHandler, asks: Vec<Question<'_>>) -> Result<Vec<u8>, Problem> {
    // None is delayed: others are charged already.
    let asks: Vec<_> = asks.into_iter().map(|ask| ask.with_patience(Patience::None)).collect();
    match handler.engine.turn(Wire::Http).decide_all(&asks).await {
        Ok(BatchOutcome::Passed(admissions)) => Ok(encode_all(&admissions)),
        Ok(BatchOutcome::Refused { place, admission, stay_charged }) => {
            taken_back(&stay_charged)?;
            Ok(encode_none(place, &admission))
        }
        Err(BatchError { place, error, stay_charged }) => {
            taken_back(&stay_charged)?;
            let charged = error.charged();
            let problem = handler.undecided(error, asks[place].app).at(place);
            Err(if charged == Charged::No { problem.and("nothing was charged") } else { problem })
        }
    }
}

/// Returns an error if a part of a batch that does not pass stays charged.
fn taken_back(stay_charged: &[usize]) -> Result<(), Problem> {
    if stay_charged.is_empty() {
        return Ok(());
    }
    let places: Vec<_> = stay_charged.iter().map(ToString::to_string).collect();
    let detail = format!(
        "store: unavailable; the batch was refused, but checks {} remain charged",
        places.join(", ")
    );
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).charged(Charged::Yes))
}
