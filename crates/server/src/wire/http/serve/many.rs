//! What takes several decisions: batches and settlements.
//!
//! Both run in a task of their own, so that a client that goes away between two decisions does not
//! leave the work half done.

use axum::body::Body as AnyBody;
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;
use sluicegate::policy::Overflow;
use sluicegate::{DecideError, Micros, Passage, Request as Question, Verb};
use tokio::task::JoinHandle;

use super::{Answer, Desk, JSON, answered, denies, read, require_json, respond};
use crate::callers::Caller;
use crate::gate::Gate;
use crate::wire::Wire;
use crate::wire::http::codec::{
    Ask, Batch, Operation, Problem, Settle, encode_all, encode_each, encode_none, encode_settled,
    refund,
};

/// Answers a batch.
pub(super) async fn batch(desk: &Desk, request: Request<AnyBody>) -> Answer {
    answered(try_batch(desk, request).await)
}

/// Answers a settlement.
pub(super) async fn settle(desk: &Desk, request: Request<AnyBody>) -> Answer {
    answered(try_settle(desk, request).await)
}

async fn try_batch(desk: &Desk, request: Request<AnyBody>) -> Result<Answer, Problem> {
    let caller = desk.caller(Operation::Batch, request.headers())?;
    require_json(request.headers())?;
    denies(Operation::Batch, request.uri().query())?;
    let bytes = read(request.into_body()).await?;
    if let Batch::Each(asks) = Batch::decode(&bytes)? {
        return Ok(respond(StatusCode::OK, JSON, each(desk, &caller, asks).await));
    }
    let desk = desk.clone();
    let body = done(tokio::spawn(async move {
        match Batch::decode(&bytes)? {
            Batch::Each(asks) => Ok(each(&desk, &caller, asks).await),
            Batch::Atomic(asks) => {
                let questions = asks.iter().enumerate().map(|(place, ask)| {
                    question(&desk, &caller, ask).map_err(|problem| problem.at(place))
                });
                all(&desk.gate, &questions.collect::<Result<Vec<_>, _>>()?).await
            }
        }
    }));
    Ok(respond(StatusCode::OK, JSON, body.await?))
}

async fn try_settle(desk: &Desk, request: Request<AnyBody>) -> Result<Answer, Problem> {
    let caller = desk.caller(Operation::Settle, request.headers())?;
    require_json(request.headers())?;
    denies(Operation::Settle, request.uri().query())?;
    let bytes = read(request.into_body()).await?;
    let desk = desk.clone();
    let body = done(tokio::spawn(async move {
        let settle = Settle::decode(&bytes)?;
        let mut settlement = settle.settlement();
        let app = caller.app(settlement.app);
        settlement.app = app.map_err(|refused| desk.refuse(refused))?;
        Ok(encode_settled(desk.gate.settle(Wire::Http, &settlement).await?))
    }));
    Ok(respond(StatusCode::OK, JSON, body.await?))
}

/// What the task answers. One that panicked has said so where panics are said.
async fn done(task: JoinHandle<Result<Vec<u8>, Problem>>) -> Result<Vec<u8>, Problem> {
    task.await.unwrap_or_else(|_| {
        Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "this failed for no reason of yours"))
    })
}

/// What `caller` asks, if it may.
fn question<'a>(
    desk: &Desk,
    caller: &'a Caller,
    ask: &'a Ask<'_>,
) -> Result<Question<'a>, Problem> {
    let mut question = ask.request();
    caller.ask(&mut question).map_err(|refused| desk.refuse(refused))?;
    Ok(question)
}

/// Decides each on its own, those of one store together: one that is held back holds up no other.
async fn each(desk: &Desk, caller: &Caller, asks: Vec<Result<Ask<'_>, Problem>>) -> Vec<u8> {
    let answers = asks.into_iter().enumerate().map(|(place, ask)| async move {
        let ask = ask?;
        let question = question(desk, caller, &ask).map_err(|problem| problem.at(place))?;
        Ok(desk.gate.pass(Wire::Http, None, &question).await?)
    });
    encode_each(&join_all(answers).await)
}

/// Charges all or none.
async fn all(gate: &Gate, asks: &[Question<'_>]) -> Result<Vec<u8>, Problem> {
    // What a look sees refused need not be charged first and given back then.
    let looks = join_all(asks.iter().map(|ask| look(gate, ask))).await;
    for (place, seen) in looks.into_iter().enumerate() {
        match seen {
            Some(Ok(seen)) if !seen.way.passes() => {
                gate.refused_by_look(Wire::Http, &asks[place], &seen);
                return Ok(encode_none(place, &seen));
            }
            Some(Err(error)) => return Err(none(error.into(), place)),
            _ => {}
        }
    }
    let mut passages = Vec::with_capacity(asks.len());
    for (place, ask) in asks.iter().enumerate() {
        match gate.pass(Wire::Http, None, &at_once(gate, ask)).await {
            Ok(passage) if passage.way.passes() => passages.push(passage),
            Ok(refused) => {
                give_back(gate, asks, &passages).await?;
                return Ok(encode_none(place, &refused));
            }
            Err(error) => {
                give_back(gate, asks, &passages).await?;
                return Err(none(error.into(), place));
            }
        }
    }
    Ok(encode_all(&passages))
}

fn none(problem: Problem, place: usize) -> Problem {
    problem.at(place).and("nothing is charged")
}

/// What a check would be answered, where that is all there is to know: over the limit some policies
/// say more than no.
async fn look(gate: &Gate, question: &Question<'_>) -> Option<Result<Passage, DecideError>> {
    let policies = gate.engine().policies();
    match (policies.resolve(question.policy)?.overflow(), &question.verb) {
        (Overflow::Reject | Overflow::Queue { .. }, Verb::Check { cost }) => {
            let look = Question { verb: Verb::Peek { cost: *cost }, ..question.clone() };
            Some(gate.pass(Wire::Http, None, &look).await)
        }
        _ => None,
    }
}

/// The question, of which none is held back: others are charged already.
fn at_once<'a>(gate: &Gate, question: &Question<'a>) -> Question<'a> {
    let policies = gate.engine().policies();
    let overflow = policies.resolve(question.policy).map(|policy| policy.overflow());
    match (overflow, &question.verb) {
        (Some(Overflow::Queue { .. }), Verb::Check { cost }) => {
            let verb = Verb::Reserve { cost: *cost, max_wait: Micros::ZERO };
            Question { verb, ..question.clone() }
        }
        _ => question.clone(),
    }
}

/// Gives back what was charged, the last first.
async fn give_back(
    gate: &Gate,
    asks: &[Question<'_>],
    passages: &[Passage],
) -> Result<(), Problem> {
    let mut kept = Vec::new();
    for (place, (ask, passage)) in asks.iter().zip(passages).enumerate().rev() {
        let Some(refund) = refund(ask, passage) else { continue };
        let policies = gate.engine().policies();
        let policy = policies.resolve(refund.policy);
        // What this batch took goes back, also where the app that asks may give nothing else back.
        let owner = policy.filter(|policy| !policy.entrusts(refund.app)).and_then(|it| it.owner());
        let refund = Question { app: owner.or(refund.app), ..refund };
        if gate.pass(Wire::Http, None, &refund).await.is_err() {
            kept.push(place.to_string());
        }
    }
    if kept.is_empty() {
        return Ok(());
    }
    kept.reverse();
    let detail = format!(
        "store: does not answer; of the batch, which does not pass, checks {} stay charged",
        kept.join(", ")
    );
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail))
}
