//! A charge is corrected to the cost once, whatever the store does meanwhile; and rules are explained
//! one by one.
#![cfg(feature = "engine")]

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use sluicegate::internals::{SettleError, Settled, Settlement};
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::{
    Cost, DecideError, Engine, ManualClock, Micros, Mode, Request, StoreFailure, Verb,
};
use sluicegate_kernel::Moment;
use sluicegate_store::{Executed, Store, StoreAnswer, StoreRequest};

const POLICIES: &str = "
policies:
  - { name: tokens, rules: [ { token_bucket: { rate: 100/d, burst: 100 } } ] }
  - { name: other, apps: [web, job], rules: [ { token_bucket: { rate: 100/d, burst: 100 } } ] }
  - { name: open, on_store_failure: allow, rules: [ { token_bucket: { rate: 100/d, burst: 100 } } ] }
  - { name: jobs, rules: [ { concurrency: { limit: 1, ttl: 30s } } ] }
  - name: two
    rules:
      - { name: burst, token_bucket: { rate: 5/d, burst: 5 } }
      - { name: daily, sliding_log: { limit: 9, window: 1d } }
";

/// A store that answers so many times, and then does not.
#[derive(Debug)]
struct Failing {
    memory: MemoryStore,
    answers: AtomicU64,
    error: Mutex<StoreError>,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Failing>);

impl Store for Shared {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let less = |left: u64| left.checked_sub(1);
        if self.0.answers.try_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() {
            // The one after it is answered again.
            self.answers(u64::MAX);
            return Err(self.0.error.lock().expect("nobody panics with it").clone());
        }
        Ok(self.0.memory.decide_now(request, at)?.into())
    }
}

impl Shared {
    fn new() -> Self {
        Self(Arc::new(Failing {
            memory: MemoryStore::default(),
            answers: AtomicU64::new(u64::MAX),
            error: Mutex::new(gone(Executed::No)),
        }))
    }

    fn answers(&self, times: u64) {
        self.0.answers.store(times, Ordering::Relaxed);
    }

    fn fails_after(&self, times: u64, executed: Executed) {
        self.fails_by(times, gone(executed));
    }

    fn fails_by(&self, times: u64, error: StoreError) {
        *self.0.error.lock().expect("nobody panics with it") = error;
        self.answers(times);
    }
}

fn gone(executed: Executed) -> StoreError {
    StoreError::Unavailable { reason: "gone".to_owned(), executed }
}

fn engine(store: &Shared, clock: &Arc<ManualClock>) -> Arc<Engine<Shared>> {
    let policies = PolicySet::new(Document::parse(POLICIES).expect("POLICIES is valid"));
    let engine = Engine::new(policies, store.clone(), Arc::clone(clock) as _);
    Arc::new(engine.with_fallback(StoreFailure::shared_by(std::num::NonZeroU32::MIN)))
}

fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the store in these tests answers at once"),
    }
}

fn settlement<'a>(policy: &'a str, id: &'a str, charged: u64, cost: u64) -> Settlement<'a> {
    let charged = Cost::new(charged).expect("it is in its range");
    Settlement { policy, key: Some(b"k"), app: None, id: id.as_bytes(), charged, cost }
}

fn check(engine: &Arc<Engine<Shared>>, policy: &str, cost: u64) -> u64 {
    let verb = Verb::Check { cost: Cost::new(cost).expect("it is in its range") };
    let request = Request::new(policy, Some(b"k"), verb);
    now(engine.turn().decide(&request)).expect("it is decided").answer.decision.granted()
}

fn left(engine: &Arc<Engine<Shared>>, policy: &str) -> u64 {
    let request = Request::new(policy, Some(b"k"), Verb::Peek { cost: Cost::ONE });
    now(engine.turn().decide(&request)).expect("it is decided").answer.decision.remaining
}

/// Returns the permits refunded, taken and missing.
fn parts(settled: &Settled) -> [u64; 3] {
    [settled.refunded, settled.taken, settled.missing]
}

#[test]
fn what_was_charged_is_corrected_once_an_hour_for_each_id() {
    let (store, clock) = (Shared::new(), Arc::new(ManualClock::default()));
    let engine = engine(&store, &clock);
    check(&engine, "tokens", 60);
    let less = settlement("tokens", "a", 60, 20);
    assert_eq!(parts(&now(engine.turn().settle(&less)).unwrap()), [40, 0, 0]);
    assert_eq!(now(engine.turn().settle(&less)).unwrap_err(), SettleError::Settled);
    assert_eq!(left(&engine, "tokens"), 80);
    let more = settlement("tokens", "b", 20, 130);
    assert_eq!(parts(&now(engine.turn().settle(&more)).unwrap()), [0, 80, 30]);
    let same = settlement("tokens", "c", 20, 20);
    assert_eq!(parts(&now(engine.turn().settle(&same)).unwrap()), [0, 0, 0]);
    assert_eq!(now(engine.turn().settle(&same)).unwrap_err(), SettleError::Settled);
    clock.advance(Micros::from_secs(3_600));
    assert!(now(engine.turn().settle(&less)).is_ok(), "an hour later the name is free");
}

#[test]
fn policy_key_and_id_together_are_one_settlement_whichever_app_asks() {
    let (store, clock) = (Shared::new(), Arc::new(ManualClock::default()));
    let engine = engine(&store, &clock);
    let web = Settlement { app: Some("web"), ..settlement("other", "i", 2, 1) };
    let job = Settlement { app: Some("job"), ..web.clone() };
    let nobody = Settlement { key: None, ..web.clone() };
    for one in [&settlement("tokens", "i", 2, 1), &web, &nobody] {
        assert!(now(engine.turn().settle(one)).is_ok(), "{one:?}");
        assert_eq!(now(engine.turn().settle(one)).unwrap_err(), SettleError::Settled);
    }
    assert_eq!(now(engine.turn().settle(&job)).unwrap_err(), SettleError::Settled);
}

#[test]
fn what_makes_no_sense_leaves_the_id_as_it_was() {
    let (store, clock) = (Shared::new(), Arc::new(ManualClock::default()));
    let engine = engine(&store, &clock);
    let refused = |settlement: &Settlement<'_>| now(engine.turn().settle(settlement)).unwrap_err();
    assert_eq!(refused(&settlement("tokens", "", 1, 0)), SettleError::Id(0));
    assert_eq!(refused(&settlement("tokens", "i", 1, 1 << 32)), SettleError::Cost(1 << 32));
    let unknown = refused(&settlement("none", "i", 1, 0));
    assert!(matches!(unknown, SettleError::Decide(DecideError::UnknownPolicy(_))));
    let unconfigured = refused(&settlement("other", "i", 1, 0));
    assert!(matches!(unconfigured, SettleError::Decide(DecideError::Unconfigured { .. })));
    for (charged, cost) in [(1, 2), (1, 2), (2, 1), (1, 1)] {
        let unsupported = refused(&settlement("jobs", "i", charged, cost));
        assert!(matches!(unsupported, SettleError::Decide(DecideError::Unsupported(_))));
    }
}

#[test]
fn a_correction_that_was_surely_not_made_can_be_made_later() {
    for (cost, corrected) in [(20, [40, 0, 0]), (70, [0, 10, 0])] {
        let (store, clock) = (Shared::new(), Arc::new(ManualClock::default()));
        let engine = engine(&store, &clock);
        check(&engine, "open", 60);
        let settlement = settlement("open", "a", 60, cost);
        store.fails_after(1, Executed::No);
        let undone = now(engine.turn().settle(&settlement)).unwrap_err();
        assert!(matches!(undone, SettleError::Undone(_)), "{undone}");
        assert_eq!(left(&engine, "open"), 40);
        assert_eq!(parts(&now(engine.turn().settle(&settlement)).unwrap()), corrected);
    }
}

#[test]
fn a_correction_that_was_perhaps_made_is_not_made_again() {
    let executed = Executed::Perhaps;
    let errors =
        [gone(executed), StoreError::Overloaded { executed }, StoreError::Contended { executed }];
    for error in errors {
        let (store, clock) = (Shared::new(), Arc::new(ManualClock::default()));
        let engine = engine(&store, &clock);
        check(&engine, "open", 60);
        let settlement = settlement("open", "a", 60, 20);
        store.fails_by(1, error.clone());
        let unknown = now(engine.turn().settle(&settlement)).unwrap_err();
        assert!(matches!(unknown, SettleError::Unknown(_)), "{error:?}: {unknown}");
        assert_eq!(now(engine.turn().settle(&settlement)).unwrap_err(), SettleError::Settled);
    }
}

#[test]
fn without_a_store_nothing_is_settled_whatever_the_policy_says() {
    let (store, clock) = (Shared::new(), Arc::new(ManualClock::default()));
    let engine = engine(&store, &clock);
    check(&engine, "open", 60);
    let settlement = settlement("open", "a", 60, 20);
    store.fails_after(0, Executed::No);
    let gone = now(engine.turn().settle(&settlement)).unwrap_err();
    assert!(matches!(gone, SettleError::Undone(_)), "{gone}");
    assert_eq!(parts(&now(engine.turn().settle(&settlement)).unwrap()), [40, 0, 0]);
}

#[test]
fn an_id_that_was_perhaps_taken_is_said_to_be_without_a_correction() {
    let (store, clock) = (Shared::new(), Arc::new(ManualClock::default()));
    let engine = engine(&store, &clock);
    check(&engine, "open", 60);
    store.fails_after(0, Executed::Perhaps);
    let gone = now(engine.turn().settle(&settlement("open", "a", 60, 20))).unwrap_err();
    assert!(matches!(gone, SettleError::Unclaimed(_)), "{gone}");
    let said = gone.to_string();
    assert!(said.ends_with("nothing was corrected; the id may count as settled for an hour"));
    assert_eq!(left(&engine, "open"), 40);
}

#[test]
fn an_explanation_says_what_each_rule_would_and_changes_nothing() {
    let (store, clock) = (Shared::new(), Arc::new(ManualClock::default()));
    let engine = engine(&store, &clock);
    check(&engine, "two", 3);
    let verb = Verb::Check { cost: Cost::new(3).unwrap() };
    let request = Request::new("two", Some(b"k"), verb);
    for _ in 0..2 {
        let why = now(engine.turn().explain(&request, None)).unwrap();
        assert_eq!(
            (why.policy.name(), why.is_override, why.answer.rule()),
            ("two", false, "burst")
        );
        let rules = why.rules.unwrap();
        let told = rules.iter().map(|rule| (rule.allowed(), rule.limit, rule.remaining));
        assert_eq!(told.collect::<Vec<_>>(), [(false, 5, 2), (true, 9, 6)]);
    }
    store.fails_after(0, Executed::No);
    let blind = now(engine.turn().explain(&request, None)).unwrap();
    assert_eq!((blind.answer.mode, blind.rules), (Mode::Local, None));
    for answers in [1, 2] {
        store.fails_after(answers, Executed::No);
        let blind = now(engine.turn().explain(&request, None)).unwrap();
        assert_eq!((blind.answer.mode, blind.rules), (Mode::Store, None), "gone in between");
    }
}
