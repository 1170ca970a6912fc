//! A turn decides by one set of policies at one time, and the observer sees all of it.
#![cfg(feature = "engine")]

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;

use sluicegate::internals::{BatchOutcome, ObservedRequest, Observer};
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::{
    Admission, Cost, DecideError, Disposition, Engine, ManualClock, Micros, Patience, Request, Verb,
};
use sluicegate_kernel::Moment;
use sluicegate_store::{Debt, Executed, Permits, Store, StoreAnswer, StoreRequest};

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

/// Three policies of so many permits an hour.
fn policies(limit: u64) -> PolicySet {
    let policy = |name| {
        format!(
            "{{ name: {name}, rules: [ {{ token_bucket: {{ rate: {limit}/h, burst: {limit} }} }} ] }}"
        )
    };
    let policies = ["a", "b", "c"].map(policy).join(", ");
    PolicySet::new(Document::parse(&format!("policies: [ {policies} ]")).expect("it is valid"))
}

/// The questions to a store: the limit, and the instant.
type Asked = Vec<(u64, Micros)>;

/// A store that has to be waited for. With the first question to it, the policies change and the clock
/// goes on.
#[derive(Debug, Default)]
struct Meddler {
    memory: MemoryStore,
    asked: Mutex<Asked>,
    engine: OnceLock<Arc<Engine<Shared, Log>>>,
    clock: Arc<ManualClock>,
    /// The number of the first request that it does not answer.
    fails_from: usize,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Meddler>);

impl Store for Shared {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        tokio::task::yield_now().await;
        let limit = request.rules.rules()[0].rule.limit();
        let nth = {
            let mut asked = self.0.asked.lock().expect("no holder panics");
            asked.push((limit, at.now()));
            asked.len()
        };
        if nth == 1 {
            let engine = self.0.engine.get().expect("it is set before it is asked");
            engine.set_policies(policies(50));
            self.0.clock.advance(Micros::SECOND);
        }
        if self.0.fails_from > 0 && nth >= self.0.fails_from {
            let reason = "the test has it fail".to_owned();
            return Err(StoreError::Unavailable { reason, executed: Executed::No });
        }
        Ok(self.0.memory.decide_now(request, at)?.into())
    }

    async fn charge_and_decide(
        &self,
        _: &Debt,
        _: &StoreRequest<'_>,
        _: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        unreachable!("nothing is decided without this store")
    }
}

/// The decisions as text.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Observer for Log {
    type Label = &'static str;
    type Begun = ();

    fn begin(&self) {}

    fn observe(
        &self,
        label: &'static str,
        ObservedRequest { request, .. }: ObservedRequest<'_>,
        decided: Result<&Admission, &DecideError>,
        (): (),
    ) {
        let verb = match request.verb {
            Verb::Peek { .. } => "peek",
            Verb::Refund { .. } => "refund",
            _ => "check",
        };
        let way = match decided {
            Ok(Admission { way: Disposition::Allowed, .. }) => "passed",
            Ok(_) => "refused",
            Err(_) => "failed",
        };
        let line = format!("{label}: {verb} {} {way}", request.limits.name());
        self.0.lock().expect("no holder panics").push(line);
    }
}

struct Stage {
    store: Arc<Meddler>,
    engine: Arc<Engine<Shared, Log>>,
    log: Log,
}

impl Stage {
    fn new(fails_from: usize) -> Self {
        let store = Arc::new(Meddler { fails_from, ..Meddler::default() });
        let log = Log::default();
        let clock = Arc::clone(&store.clock) as _;
        let engine = Engine::new(policies(2), Shared(Arc::clone(&store)), clock);
        let engine = Arc::new(engine.observed_by(log.clone()));
        store.engine.set(Arc::clone(&engine)).expect("it is set once");
        Self { store, engine, log }
    }

    fn asked(&self) -> Asked {
        self.store.asked.lock().expect("no holder panics").clone()
    }

    fn log(&self) -> Vec<String> {
        self.log.0.lock().expect("no holder panics").clone()
    }
}

fn three<'a>(key: Option<&'a [u8]>) -> Vec<Request<'a>> {
    ["a", "b", "c"].map(|policy| Request::new(policy, key, CHECK)).into()
}

#[tokio::test]
async fn a_turn_is_of_one_time_and_of_one_set_of_policies() {
    let stage = Stage::new(0);
    let decided = stage.engine.turn_for("each").decide_each(&three(None)).await;
    assert!(
        decided
            .iter()
            .all(|decided| decided.as_ref().is_ok_and(|it| it.way == Disposition::Allowed))
    );
    assert_eq!(stage.asked(), [(2, Micros::ZERO); 3]);

    let stage = Stage::new(0);
    let turn = stage.engine.turn_for("all");
    let BatchOutcome::Passed(passed) = turn.decide_all(&three(None)).await.expect("all are known")
    else {
        panic!("there are two permits of each");
    };
    assert_eq!(passed.len(), 3);
    assert_eq!(stage.asked(), [(2, Micros::ZERO); 6], "each is looked at, and then charged");
    assert!(stage.engine.turn_for("later").now() > turn.now());
}

#[tokio::test]
async fn of_several_together_each_look_and_charge_is_seen() {
    let stage = Stage::new(0);
    let turn = stage.engine.turn_for("w");
    let two =
        Request { verb: Verb::Check { cost: Cost::new(2).unwrap() }, ..three(None)[1].clone() };
    turn.decide(&two).await.expect("there is such a policy");
    let refused = turn.decide_all(&three(None)).await.expect("all are known");
    let BatchOutcome::Refused { place, stay_charged, .. } = refused else { panic!("b is used up") };
    assert_eq!((place, stay_charged.len()), (1, 0));
    let expected = [
        "w: check b passed",
        "w: peek a passed",
        "w: peek b refused",
        "w: peek c passed",
        "w: check b refused",
    ];
    assert_eq!(stage.log(), expected, "what would refuse is asked first, and nothing else then");
}

#[tokio::test]
async fn what_was_charged_before_a_failure_is_given_back_and_what_stays_is_told() {
    // Three peeks, a and b are charged, c fails, and then nothing is taken back.
    let stage = Stage::new(6);
    let failed = stage.engine.turn_for("w").decide_all(&three(None)).await;
    let error = failed.expect_err("the store does not answer");
    assert_eq!((error.place, error.stay_charged), (2, vec![0, 1]));
    let log = stage.log();
    let expected = [
        "w: check a passed",
        "w: check b passed",
        "w: check c failed",
        "w: refund b failed",
        "w: refund a failed",
    ];
    assert_eq!(log[3..], expected, "{log:?}");
}

#[tokio::test]
async fn what_was_charged_is_given_back_if_nobody_waits_any_more() {
    let stage = Stage::new(0);
    let (key, none) = (Some(&b"k"[..]), Patience::None);
    let asks: Vec<_> = three(key).into_iter().map(|ask| ask.with_patience(none)).collect();
    {
        let turn = stage.engine.turn_for("w");
        let mut deciding = Box::pin(turn.decide_all(&asks));
        // The peeks, and then the first charge.
        while !stage.log().iter().any(|line| line == "w: check a passed") {
            let pending =
                poll_fn(|context| Poll::Ready(deciding.as_mut().poll(context).is_pending()));
            assert!(pending.await);
            tokio::task::yield_now().await;
        }
    }
    while !stage.log().iter().any(|line| line == "w: refund a passed") {
        tokio::task::yield_now().await;
    }
    let peek = Request::new("a", key, Verb::Peek { cost: Cost::ONE });
    let left = stage.engine.turn_for("w").decide(&peek).await.expect("there is such a policy");
    assert_eq!(left.answer.decision.remaining, left.answer.decision.limit);
}
