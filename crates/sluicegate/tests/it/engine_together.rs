//! Requests that wait only for the store are sent to it together, and decided as if each came by itself.
#![cfg(feature = "engine")]

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::{
    Cost, DecideError, Engine, ManualClock, Micros, Mode, Patience, Request, StoreFailure, Verb,
};
use sluicegate_kernel::Moment;
use sluicegate_store::{Debt, Executed, Permits, RequestAt, Store, StoreAnswer, StoreRequest};

const POLICIES: &str = "
policies:
  - { name: plain, rules: [ { fixed_window: { limit: 3, window: 1h } } ] }
  - { name: patient, on_overload: { wait: 1s }, rules: [ { fixed_window: { limit: 3, window: 1h } } ] }
  - { name: queue, overflow: { queue: { max_wait: 1s } }, rules: [ { fixed_window: { limit: 3, window: 1h } } ] }
  - { name: open, on_store_failure: allow, rules: [ { fixed_window: { limit: 3, window: 1h } } ] }
";

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

/// A store that counts its calls and their requests, and can be switched off.
#[derive(Debug, Default)]
struct Asked {
    memory: MemoryStore,
    /// Requests of each call, in the order of the calls.
    calls: Mutex<Vec<usize>>,
    is_away: Mutex<bool>,
    /// The last of several requests is never answered.
    never_ends: Mutex<bool>,
}

#[derive(Clone, Debug, Default)]
struct Counted(Arc<Asked>);

impl Counted {
    fn calls(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.calls.lock().expect("no holder panics"))
    }

    fn set_away(&self, is_away: bool) {
        *self.0.is_away.lock().expect("no holder panics") = is_away;
    }

    fn answer(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        if *self.0.is_away.lock().expect("no holder panics") {
            let reason = "no answer".to_owned();
            return Err(StoreError::Unavailable { reason, executed: Executed::No });
        }
        Ok(self.0.memory.decide_now(request, at)?.into())
    }

    fn called(&self, requests: usize) {
        self.0.calls.lock().expect("no holder panics").push(requests);
    }
}

impl Store for Counted {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        self.called(1);
        self.answer(request, at)
    }

    async fn decide_each(
        &self,
        requests: &[RequestAt<'_>],
        said: &mut (impl FnMut(usize, Result<StoreAnswer, StoreError>) + Send),
    ) {
        self.called(requests.len());
        let never_ends = *self.0.never_ends.lock().expect("no holder panics");
        for (place, RequestAt { request, at }) in requests.iter().enumerate() {
            if never_ends && place + 1 == requests.len() {
                return std::future::pending().await;
            }
            said(place, self.answer(request, at));
        }
    }

    async fn charge_and_decide(
        &self,
        debt: &Debt,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        self.called(1);
        for _ in 0..debt.permits[0] {
            let check = StoreRequest { verb: &CHECK, ..*request };
            self.answer(&check, at)?;
        }
        Ok((self.answer(request, at)?, debt.permits))
    }
}

fn engine(store: &Counted) -> Engine<Counted> {
    let policies = PolicySet::new(Document::parse(POLICIES).expect("POLICIES is valid"));
    Engine::new(policies, store.clone(), Arc::new(ManualClock::default()))
}

fn check<'a>(policy: &'a str, key: &'a str) -> Request<'a> {
    Request::new(policy, Some(key.as_bytes()), CHECK)
}

/// Returns the modes and permits of decisions, and errors.
fn shown(
    decided: Vec<Result<sluicegate::Admission, DecideError>>,
) -> Vec<Result<(Mode, u64), String>> {
    let one = |it: sluicegate::Admission| (it.answer.mode, it.answer.decision.granted());
    decided.into_iter().map(|it| it.map(one).map_err(|error| error.to_string())).collect()
}

#[tokio::test]
async fn a_hundred_requests_are_one_call() {
    let store = Counted::default();
    for engine in [
        engine(&store),
        engine(&store).with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN)),
    ] {
        let engine = Arc::new(engine);
        let keys: Vec<_> =
            (0..100).map(|key| format!("{:p} {key}", Arc::as_ptr(&engine))).collect();
        let requests: Vec<_> = keys.iter().map(|key| check("plain", key)).collect();
        let decided = shown(engine.turn_at(Micros::SECOND).decide_each(&requests).await);
        assert_eq!(decided, vec![Ok((Mode::Store, 1)); 100]);
        assert_eq!(store.calls(), [100]);
    }
}

#[tokio::test]
async fn each_is_decided_as_if_it_came_by_itself() {
    let store = Counted::default();
    let engine =
        Arc::new(engine(&store).with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN)));
    let turn = engine.turn_at(Micros::SECOND);
    let requests = [
        check("plain", "a"),
        check("nope", "a"),
        check("patient", "a"),
        check("plain", "a"),
        check("queue", "a").with_patience(Patience::Policy),
        check("plain", ""),
        check("plain", "b"),
    ];
    let decided = shown(turn.decide_each(&requests).await);
    let granted = || Ok((Mode::Store, 1));
    assert_eq!([&decided[0], &decided[2], &decided[3], &decided[4], &decided[6]], [&granted(); 5]);
    assert_eq!(decided[1], Err("policy: unknown policy `nope`".to_owned()));
    assert!(decided[5].as_ref().is_err_and(|error| error.starts_with("key: ")), "{decided:?}");
    let mut calls = store.calls();
    calls.sort_unstable();
    assert_eq!(calls, [1, 1, 3], "the patient and the one that may be held go by themselves");
    // Refusals are known afterwards, and no store is asked.
    let more = vec![check("plain", "a"); 4];
    let decided = shown(turn.decide_each(&more).await);
    assert_eq!(decided.iter().filter(|it| it.as_ref().is_ok_and(|it| it.1 == 1)).count(), 1);
    assert_eq!(store.calls(), [4]);
    let decided = shown(turn.decide_each(&more).await);
    assert_eq!(decided, vec![Ok((Mode::Remembered, 0)); 4]);
    assert_eq!(store.calls(), [0; 0]);
}

#[tokio::test]
async fn without_the_store_each_goes_by_its_policy_and_its_debt_is_charged_first() {
    let store = Counted::default();
    let engine =
        Arc::new(engine(&store).with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN)));
    let turn = engine.turn_at(Micros::SECOND);
    store.set_away(true);
    let requests = [check("plain", "a"), check("open", "a"), check("plain", "b")];
    let decided = shown(turn.decide_each(&requests).await);
    assert_eq!(decided, [Ok((Mode::Local, 1)), Ok((Mode::Allow, 1)), Ok((Mode::Local, 1))]);
    assert_eq!((store.calls(), engine.debts()), (vec![3], 3));
    store.set_away(false);
    // Two keys owe, and go by themselves; the other two go together.
    let later = engine.turn_at(Micros::from_secs(10));
    let requests =
        [check("plain", "a"), check("plain", "c"), check("plain", "b"), check("plain", "d")];
    let decided = shown(later.decide_each(&requests).await);
    assert_eq!(decided, vec![Ok((Mode::Store, 1)); 4]);
    let mut calls = store.calls();
    calls.sort_unstable();
    assert_eq!((calls, engine.debts()), (vec![1, 1, 2], 1));
    let left = later.decide(&check("plain", "a").with_verb(Verb::Peek { cost: Cost::ONE })).await;
    assert_eq!(left.expect("it answers").answer.decision.remaining, 1, "one here, one there");
}

#[tokio::test]
async fn what_was_granted_is_known_before_the_last_of_a_message_is_answered() {
    let store = Counted::default();
    let engine =
        Arc::new(engine(&store).with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN)));
    *store.0.never_ends.lock().expect("no holder panics") = true;
    let turn = engine.turn_at(Micros::SECOND);
    let requests = vec![check("plain", "a"); 4];
    let mut deciding = Box::pin(turn.decide_each(&requests));
    let is_pending =
        poll_fn(|context| Poll::Ready(deciding.as_mut().poll(context).is_pending())).await;
    assert!(is_pending, "three of four are answered");
    store.set_away(true);
    let alone = turn.decide(&check("plain", "a")).await.expect("it can be decided").answer;
    assert_eq!((alone.mode, alone.decision.granted()), (Mode::Local, 0), "three of three are used");
}
