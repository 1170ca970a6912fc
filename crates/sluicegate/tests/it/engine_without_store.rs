//! Tests of an engine whose store does not answer, and of the calls that it saves while the store answers.
#![cfg(feature = "engine")]

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::{
    Answer, Cost, DecideError, Engine, ManualClock, Micros, Mode, Patience, Rate, Request,
    StoreFailure, TokenBucket, Verb,
};
use sluicegate_kernel::Moment;
use sluicegate_store::{Debt, Executed, Permits, Store, StoreAnswer, StoreRequest};

const POLICIES: &str = "
policies:
  - { name: orders, rules: [ { token_bucket: { rate: 10/s, burst: 20 } } ] }
  - { name: open, on_store_failure: allow, rules: [ { token_bucket: { rate: 1/s } } ] }
  - { name: closed, on_store_failure: deny, rules: [ { token_bucket: { rate: 1/s } } ] }
  - { name: tiny, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: quota, rules: [ { fixed_window: { limit: 20, window: 1day } } ] }
  - { name: jobs, rules: [ { concurrency: { limit: 1, ttl: 30s } } ] }
  - { name: held, overflow: { queue: { max_wait: 2s } }, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
";

/// A key whose state the store cannot read.
const POISONED: &[u8] = b"poisoned";

/// A key whose decision costs the store more than is permitted: it is not asked.
const DEAR: &[u8] = b"dear";

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

/// A store that can be switched off, and counts the questions to it.
#[derive(Debug, Default)]
struct Switchable {
    memory: MemoryStore,
    is_off: AtomicBool,
    is_contended: AtomicBool,
    asked: AtomicU64,
}

#[derive(Clone, Debug)]
struct Shared(Arc<Switchable>);

impl Store for Shared {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        if request.key == POISONED {
            return Err(StoreError::Unreadable { reason: "not a state".to_owned() });
        }
        if request.key == DEAR {
            let second = Rate::per_second(1).expect("one is a rate");
            return Err(StoreError::TooDear(TokenBucket::new(second, 0).expect_err("no burst")));
        }
        if self.0.is_off.load(Ordering::Relaxed) {
            let reason = "switched off".to_owned();
            return Err(StoreError::Unavailable { reason, executed: Executed::No });
        }
        if self.0.is_contended.load(Ordering::Relaxed) {
            return Err(StoreError::Contended { executed: Executed::No });
        }
        Ok(self.0.memory.decide_now(request, at)?.into())
    }

    /// Answers that it charged, and forgets it: debts have tests of their own.
    async fn charge_and_decide(
        &self,
        debt: &Debt,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        Ok((self.decide(request, at).await?, debt.permits))
    }
}

impl Shared {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn switch(&self, on: bool) {
        self.0.is_off.store(!on, Ordering::Relaxed);
    }

    fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Returns one of `nodes` engines on this store.
    fn engine(&self, nodes: u32) -> Arc<Engine<Self>> {
        let policies = PolicySet::new(Document::parse(POLICIES).expect("POLICIES is valid"));
        let nodes = NonZeroU32::new(nodes).expect("there is at least one");
        let engine = Engine::new(policies, self.clone(), Arc::new(ManualClock::default()));
        Arc::new(engine.with_fallback(StoreFailure::shared_by(nodes)))
    }
}

fn try_ask(
    engine: &Arc<Engine<Shared>>,
    policy: &str,
    verb: Verb,
    at_ms: u64,
) -> Result<Answer, DecideError> {
    try_ask_of(engine, (policy, b"key"), verb, at_ms)
}

fn try_ask_of(
    engine: &Arc<Engine<Shared>>,
    (policy, key): (&str, &[u8]),
    verb: Verb,
    at_ms: u64,
) -> Result<Answer, DecideError> {
    let request = Request::new(policy, Some(key), verb);
    let turn = engine.turn_at(Micros::from_millis(at_ms));
    let mut deciding = pin!(turn.decide(&request));
    match deciding.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decided) => decided.map(|admission| admission.answer),
        Poll::Pending => unreachable!("the store in these tests answers at once"),
    }
}

fn ask(engine: &Arc<Engine<Shared>>, policy: &str, verb: Verb, at_ms: u64) -> Answer {
    try_ask(engine, policy, verb, at_ms).expect("the request can be decided")
}

fn passed(engine: &Arc<Engine<Shared>>, policy: &str, times: u64, at_ms: u64) -> u64 {
    (0..times).map(|_| ask(engine, policy, CHECK, at_ms).decision.granted()).sum()
}

#[test]
fn a_request_that_is_not_sent_does_not_bring_a_silent_store_back() {
    let store = Shared::new();
    let engine = store.engine(1);
    store.switch(false);
    passed(&engine, "orders", 10, 1_000);
    assert!(engine.is_without_store());
    for at_ms in (1_000..4_000).step_by(50) {
        let dear = try_ask_of(&engine, ("orders", DEAR), CHECK, at_ms);
        let is_dear = matches!(&dear, Err(DecideError::Store(StoreError::TooDear(_))));
        assert!(is_dear || dear.is_ok_and(|answer| answer.mode == Mode::Local));
        assert!(engine.is_without_store(), "at {at_ms} ms");
    }
}

#[test]
fn a_key_that_cannot_be_read_is_refused_and_others_are_decided_by_the_store() {
    let engine = Shared::new().engine(1);
    let mut decided = Vec::new();
    for policy in ["orders", "open", "closed"] {
        for _ in 0..30 {
            let answer = try_ask_of(&engine, (policy, POISONED), CHECK, 1_000);
            let answer = answer.expect("the policy says what holds");
            let retry = answer.decision.retry_after();
            decided.push((policy, answer.mode, answer.decision.allowed(), retry));
        }
    }
    decided.dedup();
    let second = Some(Micros::SECOND);
    let expected = [
        ("orders", Mode::Deny, false, second),
        ("open", Mode::Allow, true, Some(Micros::ZERO)),
        ("closed", Mode::Deny, false, second),
    ];
    assert_eq!(decided, expected, "a share of the limit is given out in no case");
    for key in 0..100_u32 {
        let answer = try_ask_of(&engine, ("orders", &key.to_le_bytes()), CHECK, 1_000);
        assert_eq!(answer.expect("the store answers").mode, Mode::Store);
    }
    let reset = try_ask_of(&engine, ("orders", POISONED), Verb::Reset, 1_000);
    assert!(matches!(reset, Err(DecideError::Store(StoreError::Unreadable { .. }))));
}

#[test]
fn a_refused_key_is_not_asked_about_again_until_it_may_pass() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    assert_eq!(passed(&engine, "orders", 25, now), 20);
    assert_eq!(store.asked(), 21, "20 that pass, and the first that is refused");
    let refused = ask(&engine, "orders", CHECK, now + 40);
    assert_eq!((refused.mode, refused.decision.allowed()), (Mode::Remembered, false));
    assert_eq!(refused.decision.retry_after(), Some(Micros::from_millis(60)));
    assert_eq!(refused.decision.reset_after, Micros::from_millis(1_960));
    let passes = ask(&engine, "orders", CHECK, now + 100);
    assert_eq!((passes.mode, passes.decision.allowed()), (Mode::Store, true));
}

#[test]
fn a_refusal_is_remembered_for_its_own_cost_and_policy_version_only() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    let dear = Verb::Check { cost: Cost::new(15).expect("a cost") };
    assert!(ask(&engine, "orders", dear.clone(), now).decision.allowed());
    assert!(!ask(&engine, "orders", dear.clone(), now).decision.allowed());
    assert!(ask(&engine, "orders", CHECK, now).decision.allowed(), "5 are left");
    assert_eq!(ask(&engine, "orders", dear.clone(), now).mode, Mode::Remembered);
    let wider = POLICIES.replace("burst: 20", "burst: 40");
    engine.set_policies(PolicySet::new(Document::parse(&wider).expect("still valid")));
    let allowed = ask(&engine, "orders", dear, now);
    assert_eq!((allowed.mode, allowed.decision.allowed()), (Mode::Store, true));
}

#[test]
fn a_refund_or_a_reset_ends_what_is_remembered() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    for gives_back in [Verb::Refund { cost: Cost::ONE }, Verb::Reset] {
        passed(&engine, "orders", 30, now);
        assert_eq!(ask(&engine, "orders", CHECK, now).mode, Mode::Remembered);
        ask(&engine, "orders", gives_back, now);
        assert!(ask(&engine, "orders", CHECK, now).decision.allowed());
    }
}

#[test]
fn a_refusal_that_was_lifted_elsewhere_ends_with_the_first_request_that_passes() {
    let (store, now) = (Shared::new(), 1_000);
    let (engine, elsewhere) = (store.engine(2), store.engine(2));
    passed(&engine, "quota", 30, now);
    ask(&elsewhere, "quota", Verb::Refund { cost: Cost::new(10).expect("a cost") }, now);
    assert_eq!(passed(&engine, "quota", 5, now + 999), 0, "it is remembered for a second");
    assert_eq!(passed(&engine, "quota", 15, now + 1_000), 10);
}

#[test]
fn a_share_gives_whole_permits_and_keeps_the_parts() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(4);
    store.switch(false);
    // A burst of 20 is 5 permits of each of four.
    assert_eq!(passed(&engine, "orders", 9, now), 5);
    let at_most = Verb::AtMost { cost: Cost::new(9).expect("a cost") };
    for at in 1..=39 {
        // 10 a second are 2.5 of each: a whole one is there after 400 ms.
        let answer = ask(&engine, "orders", at_most.clone(), now + 10 * at);
        assert!(!answer.decision.allowed(), "{at}: {answer:?}");
    }
    let answer = ask(&engine, "orders", at_most, now + 400);
    assert_eq!((answer.decision.allowed(), answer.decision.granted()), (true, 1));
}

#[test]
fn of_all_that_ask_for_a_refused_key_one_in_a_while_asks_the_store() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    // In a daily quota no permits come back for a long time.
    passed(&engine, "quota", 30, now);
    let modes = |at| [0; 3].map(|_| ask(&engine, "quota", CHECK, at).mode);
    assert_eq!(modes(now + 999), [Mode::Remembered; 3]);
    // Asked again after a second, it is remembered for another one.
    let again = [Mode::Store, Mode::Remembered, Mode::Remembered];
    assert_eq!(modes(now + 1_000), again);
    assert_eq!(modes(now + 1_999), [Mode::Remembered; 3]);
    // Without an answer others ask again soon.
    store.switch(false);
    let refused = [Mode::Local, Mode::Remembered, Mode::Remembered];
    assert_eq!(modes(now + 2_000), refused);
    assert_eq!(modes(now + 2_050), refused);
    // A window that begins anew is a new budget, at once.
    store.switch(true);
    assert!(ask(&engine, "quota", CHECK, 86_400_000).decision.allowed());
}

#[test]
fn permits_that_may_be_released_at_any_time_are_always_asked_for() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    let acquire = |id| Verb::Acquire { cost: Cost::ONE, permit: sluicegate::PermitId(id) };
    assert!(ask(&engine, "jobs", acquire(1), now).decision.allowed());
    for _ in 0..3 {
        let refused = ask(&engine, "jobs", acquire(2), now);
        assert_eq!((refused.mode, refused.decision.allowed()), (Mode::Store, false));
    }
}

#[test]
fn each_policy_says_what_holds_without_the_store_and_the_answer_says_so() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    store.switch(false);
    let mode_and_pass = |policy| {
        let Answer { mode, decision, .. } = ask(&engine, policy, CHECK, now);
        (mode, decision.allowed())
    };
    assert_eq!(mode_and_pass("orders"), (Mode::Local, true));
    assert_eq!(mode_and_pass("open"), (Mode::Allow, true));
    assert_eq!(mode_and_pass("closed"), (Mode::Deny, false));
    let retry = ask(&engine, "closed", CHECK, now).decision.retry_after();
    assert_eq!(retry, Some(Micros::SECOND), "the store may be back by then");
}

#[test]
fn a_node_alone_goes_on_from_what_the_store_said_last() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    assert_eq!(passed(&engine, "orders", 15, now), 15);
    store.switch(false);
    assert_eq!(passed(&engine, "orders", 10, now), 5);
    assert_eq!(passed(&engine, "orders", 10, now + 500), 5, "and refills at the rate");
}

#[test]
fn each_of_several_nodes_enforces_its_share() {
    let (store, now) = (Shared::new(), 1_000);
    store.switch(false);
    let engine = store.engine(4);
    assert_eq!(passed(&engine, "orders", 20, now), 5, "a quarter of the burst");
    assert_eq!(passed(&engine, "orders", 20, now + 2_000), 5, "a quarter of the rate");
    let Answer { decision, .. } = ask(&engine, "orders", CHECK, now + 2_000);
    assert_eq!(decision.limit, 5);
    assert_eq!(decision.retry_after(), Some(Micros::from_millis(400)));
}

#[test]
fn a_limit_below_one_permit_a_node_refuses_but_not_for_ever() {
    let store = Shared::new();
    store.switch(false);
    let engine = store.engine(2);
    let refused = ask(&engine, "tiny", CHECK, 1_000);
    assert_eq!(refused.decision.retry_after(), Some(Micros::SECOND));
    let never = Verb::Check { cost: Cost::new(2).expect("a cost") };
    assert_eq!(ask(&engine, "tiny", never, 1_000).decision.retry_after(), None);
}

#[test]
fn what_gives_back_is_an_error_without_the_store() {
    let store = Shared::new();
    let engine = store.engine(1);
    store.switch(false);
    for verb in [Verb::Refund { cost: Cost::ONE }, Verb::Reset] {
        let error = try_ask(&engine, "open", verb, 1_000).expect_err("nobody took it");
        assert_eq!(error.to_string(), "store: switched off");
    }
    let release = Verb::Release { permit: sluicegate::PermitId(1) };
    assert!(matches!(try_ask(&engine, "jobs", release, 1_000), Err(DecideError::Store(_))));
}

#[tokio::test]
async fn what_is_used_up_counts_as_refused_while_the_store_does_not_say_what_was_noted() {
    let store = Shared::new();
    let (engine, all) = (store.engine(1), Verb::Check { cost: Cost::new(20).expect("a cost") });
    let request = Request::new("quota", Some(b"key"), all);
    let turn = engine.turn_at(Micros::SECOND);
    let answer = turn.decide(&request).await.expect("a decision").answer;
    assert_eq!((answer.mode, answer.decision.remaining), (Mode::Store, 0));
    assert!(!turn.has_refused(&request, &answer).await, "nothing was refused yet");
    store.switch(false);
    assert!(turn.has_refused(&request, &answer).await);
}

#[test]
fn a_verb_that_rules_do_not_know_is_an_error_without_the_store_too() {
    let permit = sluicegate::PermitId(1);
    let acquire = Verb::Acquire { cost: Cost::ONE, permit };
    let at_most = Verb::AtMost { cost: Cost::ONE };
    for is_contended in [false, true] {
        let store = Shared::new();
        let engine = store.engine(1);
        if is_contended {
            store.0.is_contended.store(true, Ordering::Relaxed);
        } else {
            store.switch(false);
        }
        for (policy, verb) in [
            ("jobs", &at_most),
            ("jobs", &CHECK),
            ("orders", &acquire),
            ("open", &acquire),
            ("closed", &acquire),
        ] {
            let error = try_ask(&engine, policy, verb.clone(), 1_000).expect_err("no rule has it");
            assert!(matches!(error, DecideError::Unsupported(_)), "{policy}: {error}");
        }
    }
}

#[test]
fn a_store_that_does_not_answer_is_left_alone_but_for_probes() {
    let store = Shared::new();
    let engine = store.engine(1);
    store.switch(false);
    for ms in 0..10_000 {
        ask(&engine, "open", CHECK, 1_000 + ms);
    }
    let asked = store.asked();
    assert!((5 + 33..=5 + 100).contains(&asked), "asked {asked} times in 10 s");
    assert!(engine.is_without_store());
    store.switch(true);
    let back = (0..).find(|ms| ask(&engine, "open", CHECK, 11_000 + ms).mode == Mode::Store);
    assert!(back.is_some_and(|ms| ms <= 301), "{back:?} ms after the store");
    assert!(!engine.is_without_store());
}

/// Requests under many rules at once keep a store from a decision on that key, and from no other.
#[test]
fn a_key_that_others_fight_for_does_not_give_the_store_up() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    store.0.is_contended.store(true, Ordering::Relaxed);
    for _ in 0..50 {
        let shed = ask(&engine, "orders", CHECK, now);
        assert_eq!((shed.mode, shed.decision.allowed()), (Mode::Shed, false), "it is decided");
    }
    let error = try_ask(&engine, "orders", Verb::Reset, now).expect_err("nobody else can do that");
    assert_eq!(error.to_string(), "store: too many concurrent rule changes on this key");
    assert!(!engine.is_without_store());
    store.0.is_contended.store(false, Ordering::Relaxed);
    assert_eq!(ask(&engine, "closed", CHECK, now).mode, Mode::Store);
}

#[test]
fn a_probe_that_is_answered_with_no_decision_finds_the_store_back() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    store.switch(false);
    passed(&engine, "open", 10, now);
    assert!(engine.is_without_store());
    store.switch(true);
    let unsupported =
        try_ask(&engine, "jobs", CHECK, now + 1_000).expect_err("jobs hands out permits");
    assert!(matches!(unsupported, DecideError::Unsupported(_)), "{unsupported}");
    assert!(!engine.is_without_store());
}

#[test]
fn what_was_granted_without_the_store_is_nothing_to_give_back_to_it() {
    let (store, now) = (Shared::new(), 1_000);
    let engine = store.engine(1);
    assert_eq!(ask(&engine, "orders", CHECK, now).charged(), 1);
    store.switch(false);
    for policy in ["orders", "open"] {
        let answer = ask(&engine, policy, CHECK, now);
        assert_eq!((answer.decision.granted(), answer.charged()), (1, 0), "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_was_booked_in_the_store_goes_to_the_next_and_any_other_does_not() {
    let request = Request::new("held", Some(b"key"), CHECK).with_patience(Patience::Policy);
    for is_off in [false, true] {
        let store = Shared::new();
        let engine = store.engine(1);
        store.switch(!is_off);
        // The first may pass at once; the second is delayed, and goes away.
        let pass = || {
            let passing = async { engine.turn().decide(&request).await };
            tokio::time::timeout(std::time::Duration::from_millis(1), passing)
        };
        while pass().await.is_ok() {}
        store.switch(true);
        let asked = store.asked();
        pass().await.ok();
        assert_eq!(store.asked() > asked, is_off, "without the store: {is_off}");
    }
}

proptest! {
    /// However the traffic moves between the nodes, if each got an answer of the store before it went.
    #[test]
    fn nodes_without_a_store_never_pass_more_than_the_limit_together(
        nodes in 1_usize..6,
        before in prop::collection::vec((0_usize..6, 0_u64..200), 0..40),
        after in prop::collection::vec((0_usize..6, 0_u64..200), 1..200),
    ) {
        let store = Shared::new();
        let nodes_of_fleet = u32::try_from(nodes).expect("a handful");
        let engines: Vec<_> = (0..nodes).map(|_| store.engine(nodes_of_fleet)).collect();
        // 10/s are 1 unit a ms, and a permit weighs 100 of them: 20 permits are 2,000.
        let (mut now, mut level) = (1_000, 0_u64);
        let mut pass = |(node, pause): (usize, u64)| {
            now += pause;
            let granted = ask(&engines[node % nodes], "orders", CHECK, now).decision.granted();
            level = level.saturating_sub(pause) + 100 * granted;
            (level, now)
        };
        let cut = before.into_iter().map(&mut pass).last().map_or(1_000, |(_, now)| now);
        for engine in &engines {
            ask(engine, "orders", Verb::Peek { cost: Cost::ONE }, cut);
        }
        store.switch(false);
        for step in after {
            let (level, _) = pass(step);
            prop_assert!(level <= 2_000, "{level}");
        }
    }
}
