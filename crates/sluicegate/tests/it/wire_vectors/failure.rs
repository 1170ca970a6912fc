//! Lives of a few keys in one process, with and without Redis: the questions to it, and the answers.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use serde_json::{Value, json};
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::StoreError;
use sluicegate::{
    Admission, Cost, DecideError, Disposition, Engine, ManualClock, Micros, PermitId, Request,
    StoreFailure, Verb,
};
use sluicegate_kernel::{Moment, RuleSet, States};
use sluicegate_store::{Charge, Debt, Executed, Permits, Store, StoreAnswer, StoreRequest};

use super::answers::decision;
use super::is_fresh;
use super::records::published;

/// Policies of these lives.
const POLICIES: [&str; 13] = [
    r#"{"name":"p","rules":[{"token_bucket":{"rate":"10/s","burst":20}}]}"#,
    r#"{"name":"p","rules":[{"leaky_bucket":{"rate":"5/s","burst":11,"delay":3}}]}"#,
    r#"{"name":"p","rules":[{"fixed_window":{"limit":24,"window":"10s"}}]}"#,
    r#"{"name":"p","rules":[{"sliding_log":{"limit":16,"window":"5s"}}]}"#,
    r#"{"name":"p","rules":[{"sliding_counter":{"limit":30,"window":"6s"}}]}"#,
    r#"{"name":"p","rules":[{"name":"burst","token_bucket":{"rate":"8/s","burst":16}},{"name":"window","sliding_window":{"limit":40,"window":"8s","buckets":4}}]}"#,
    r#"{"name":"p","rules":[{"token_bucket":{"rate":"4/s","burst":8}}],"on_store_failure":"allow","overflow":"shadow"}"#,
    r#"{"name":"p","rules":[{"token_bucket":{"rate":"4/s","burst":8}}],"on_store_failure":"deny","overflow":{"divert":{"target":"slow"}}}"#,
    r#"{"name":"p","rules":[{"concurrency":{"limit":6,"ttl":"3s"}}]}"#,
    r#"{"name":"p","rules":[{"name":"burst","token_bucket":{"rate":"8/s","burst":6}},{"name":"day","fixed_window":{"limit":60,"window":"1m"}}]}"#,
    r#"{"name":"p","rules":[{"name":"log","sliding_log":{"limit":24,"window":"8s"}},{"name":"leak","leaky_bucket":{"rate":"6/s","burst":5}},{"name":"counter","sliding_counter":{"limit":30,"window":"20s"}}]}"#,
    r#"{"name":"p","rules":[{"concurrency":{"limit":3,"ttl":"20s"}}],"overflow":"shadow"}"#,
    r#"{"name":"p","rules":[{"concurrency":{"limit":3,"ttl":"20s"}}],"overflow":{"degrade":{"tag":"later"}},"on_store_failure":"deny"}"#,
];

/// Steps of a life.
const STEPS: usize = 70;

/// Redis: states, and debts that were paid. It answers, or cannot be reached.
#[derive(Debug, Default)]
struct Redis {
    states: HashMap<Vec<u8>, (Arc<RuleSet>, States)>,
    paid: HashMap<u128, Permits>,
    is_away: bool,
    asked: u64,
}

#[derive(Clone, Debug, Default)]
struct Line(Arc<Mutex<Redis>>);

impl Redis {
    fn decide(
        &mut self,
        debt: Option<&Debt>,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        self.asked += 1;
        if self.is_away {
            let reason = "away".to_owned();
            return Err(StoreError::Unavailable { reason, executed: Executed::No });
        }
        let fresh = || (Arc::clone(request.rules), States::default());
        let (_, states) = self.states.entry(request.key.to_vec()).or_insert_with(fresh);
        let mut permits = Permits::default();
        if let Some(debt) = debt {
            permits = *self.paid.entry(debt.id).or_insert_with(|| {
                let mut permits = debt.permits;
                match debt.charge {
                    Charge::Added => request.rules.debit(states, &mut permits, at),
                    Charge::AtLeast => request.rules.raise(states, &mut permits, at),
                }
                permits
            });
        }
        let verdict = request.rules.decide(states, request.verb, at)?;
        Ok((StoreAnswer::of(verdict, request.rules, states, at), permits))
    }
}

impl Store for Line {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let mut redis = self.0.lock().expect("no holder panics");
        redis.decide(None, request, at).map(|(answer, _)| answer)
    }

    async fn charge_and_decide(
        &self,
        debt: &Debt,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        self.0.lock().expect("no holder panics").decide(Some(debt), request, at)
    }
}

/// The instant at which a life begins, and at which its policy was taken over, µs.
const BEGIN_US: u64 = 1_774_745_000_000_000;

#[test]
fn without_redis_every_program_answers_alike() {
    let mut rng = Rng::with_seed(17);
    let mut entries = Vec::new();
    for policy in POLICIES {
        for nodes in [1, 2, 5] {
            entries.push(life(&mut rng, policy, nodes));
        }
    }
    is_fresh(
        "failure",
        "Lives of the keys `a` and `b` under one policy in one process, of which there are `nodes`, by the \
         clock of the process (`#clock` is `client`). `redis` is `answers` or `away`: then a call fails, and \
         is certain not to be executed. `asked` says how many calls it was asked, also those that failed. \
         `allowed` is what the rules decided; where `way` is `shadowed` the caller passes all the same. \
         Between steps the process makes room for accounts that owe nothing, and pays nothing. \
         What is answered has `mode` (failure.md) and, unless the policy's overflow has nothing to say, \
         `way`. While the breaker is open, steps come less than 100 ms or more than 300 ms after it opened \
         or was probed.",
        &entries,
    );
}

fn life(rng: &mut Rng, policy: &str, nodes: u32) -> Value {
    let document = Document::parse(&format!("{{\"policies\":[{policy}]}}")).expect("it is valid");
    let holds = policy.contains("concurrency");
    let line = Line::default();
    let clock = Arc::new(ManualClock::default());
    let engine = Engine::new(PolicySet::new(document), line.clone(), clock);
    let nodes = NonZeroU32::new(nodes).expect("there is one");
    let engine = Arc::new(engine.with_fallback(StoreFailure::shared_by(nodes)));
    let mut now_us = BEGIN_US;
    let (mut is_away, mut steps) = (false, Vec::new());
    for place in 0..STEPS {
        // Long enough at a time that the breaker opens, and closes again.
        if place % 12 == 0 {
            is_away = place % 24 == 12;
        }
        now_us += match rng.u8(0..4) {
            0 if is_away => 301_000 + rng.u64(0..400_000),
            0 => rng.u64(0..900_000),
            1 if !is_away && place % 12 > 4 => rng.u64(0..20_000),
            _ => 0,
        };
        if place % 12 == 0 {
            // The breaker forgets failures of a second ago, and its probe is due.
            now_us += 1_100_000;
        }
        let key = if rng.u8(0..4) == 0 { "b" } else { "a" };
        let (verb, mut step) = verb(rng, holds);
        line.0.lock().expect("no holder panics").is_away = is_away;
        let asked = line.0.lock().expect("no holder panics").asked;
        let request = Request::new("p", Some(key.as_bytes()), verb);
        let turn = engine.turn_at(Micros::new(now_us));
        let decided = match pin!(turn.decide(&request)).poll_once() {
            Poll::Ready(decided) => decided,
            Poll::Pending => unreachable!("Redis answers at once"),
        };
        step["at_us"] = json!(now_us);
        step["key"] = json!(key);
        step["redis"] = json!(if is_away { "away" } else { "answers" });
        step["asked"] = json!(line.0.lock().expect("no holder panics").asked - asked);
        step["expect"] = expect(decided);
        steps.push(step);
    }
    let record = published(policy, Micros::new(BEGIN_US));
    let policy: Value = serde_json::from_str(policy).expect("it is JSON");
    json!({ "policy": policy, "record": record, "nodes": nodes.get(), "steps": steps })
}

fn verb(rng: &mut Rng, holds: bool) -> (Verb, Value) {
    let permits = [1, 1, 1, 2, 3, 30][rng.usize(..6)];
    let cost = Cost::new(permits).expect("a cost");
    let id = format!("id-{}", rng.u8(0..4));
    let permit = PermitId::named(&id);
    match rng.u8(0..20) {
        0..3 if holds => (Verb::Release { permit }, json!({ "op": "release", "id": id })),
        3 if holds => (Verb::Renew { permit }, json!({ "op": "renew", "id": id })),
        4 => (Verb::Peek { cost }, json!({ "op": "peek", "cost": permits })),
        _ if holds => {
            (Verb::Acquire { cost, permit }, json!({ "op": "acquire", "cost": permits, "id": id }))
        }
        0 => (Verb::Refund { cost }, json!({ "op": "refund", "cost": permits })),
        1 => (Verb::Reset, json!({ "op": "reset" })),
        2 | 3 => (Verb::AtMost { cost }, json!({ "op": "at_most", "cost": permits })),
        5 | 6 => {
            let max_wait = Micros::from_millis(400);
            let reserve = json!({ "op": "reserve", "cost": permits, "max_wait_us": 400_000 });
            (Verb::Reserve { cost, max_wait }, reserve)
        }
        _ => (Verb::Check { cost }, json!({ "op": "check", "cost": permits })),
    }
}

fn expect(decided: Result<Admission, DecideError>) -> Value {
    let Admission { answer, way, held: _ } = match decided {
        Ok(admission) => admission,
        Err(DecideError::Unsupported(_)) => return json!({ "error": "unsupported_verb" }),
        Err(_) => return json!({ "error": "not_charged" }),
    };
    let mut said = decision(&answer.decision, answer.rule());
    said["mode"] = json!(answer.mode.name());
    match way {
        Disposition::Allowed | Disposition::Refused => {}
        Disposition::Degraded(_) => said["way"] = json!("degraded"),
        Disposition::Diverted(_) => said["way"] = json!("diverted"),
        Disposition::Shadowed => said["way"] = json!("shadowed"),
    }
    said
}

/// A future that is polled only once.
trait Once: Future {
    fn poll_once(self) -> Poll<Self::Output>;
}

impl<F: Future> Once for std::pin::Pin<&mut F> {
    fn poll_once(mut self) -> Poll<Self::Output> {
        self.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }
}
