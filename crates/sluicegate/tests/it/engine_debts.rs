//! The store charges permits that an engine admitted without it when it is back: outages do not add up.
#![cfg(feature = "engine")]

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::mem::take;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use sluicegate::internals::Uncharged;
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::StoreError;
use sluicegate::{
    Answer, Cost, DecideError, Engine, ManualClock, Micros, Mode, PermitId, Request, StoreFailure,
    Verb,
};
use sluicegate_kernel::{Moment, RuleSet, States};
use sluicegate_store::{Charge, Debt, Executed, Permits, Store, StoreAnswer, StoreRequest};

const POLICIES: &str = "
policies:
  - { name: bucket, rules: [ { token_bucket: { rate: 10/s, burst: 20 } } ] }
  - { name: log, rules: [ { sliding_log: { limit: 20, window: 2s } } ] }
  - { name: window, rules: [ { fixed_window: { limit: 20, window: 2s } } ] }
  - { name: hour, rules: [ { fixed_window: { limit: 20, window: 1h } } ] }
  - { name: day, rules: [ { token_bucket: { rate: 1000/day, burst: 1000 } } ] }
  - { name: open, on_store_failure: allow, rules: [ { token_bucket: { rate: 10/s, burst: 20 } } ] }
  - { name: patient, on_overload: { wait: 1s }, rules: [ { token_bucket: { rate: 10/s, burst: 20 } } ] }
  - { name: jobs, rules: [ { concurrency: { limit: 4, ttl: 30s } } ] }
  - name: both
    rules:
      - { name: fast, token_bucket: { rate: 10/s, burst: 20 } }
      - { name: slow, token_bucket: { rate: 100/min, burst: 60 } }
  - name: quota
    rules:
      - { name: day, fixed_window: { limit: 100, window: 1day } }
      - { name: burst, token_bucket: { rate: 20/s, burst: 6 } }
";

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

/// The fate of a request on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Good,
    /// The request never arrives.
    Cut,
    /// The request is executed, and the answer is lost.
    Deaf,
    /// The store is overloaded.
    Busy,
    /// The store is overloaded, after it has executed the request.
    Late,
    /// The request is executed, and the answer comes at the second poll.
    Slow,
}

/// A store like Redis: it charges debts, each id once, and its answers can be lost.
#[derive(Debug, Default)]
struct Remote {
    states: HashMap<(String, Vec<u8>), (Arc<RuleSet>, States)>,
    paid: HashMap<u128, (usize, Permits)>,
}

/// A node's line to the store.
#[derive(Clone, Debug)]
struct OnLine {
    remote: Arc<Mutex<Remote>>,
    line: Arc<Mutex<Line>>,
}

impl Remote {
    fn decide(
        &mut self,
        debt: Option<&Debt>,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        let name = (request.policy.to_owned(), request.key.to_vec());
        let fresh = || (Arc::clone(request.rules), States::default());
        let (rules, mut states) = self.states.remove(&name).unwrap_or_else(fresh);
        if !Arc::ptr_eq(&rules, request.rules) {
            states = request.rules.take_over(&rules, &states, at);
        }
        let (mut permits, count) = (Permits::default(), request.rules.rules().len());
        if let Some(debt) = debt {
            let paid = self.paid.get(&debt.id).copied();
            permits = paid.map_or(debt.permits, |(_, permits)| permits);
            match (paid, debt.charge) {
                // The store remembers as many numbers as there were rules.
                (Some((rules, _)), _) if rules != count => {
                    let reason = "remembered under other rules".to_owned();
                    return Err(StoreError::Unreadable { reason });
                }
                (Some(_), _) => {}
                (None, Charge::Added) => request.rules.debit(&mut states, &mut permits, at),
                (None, Charge::AtLeast) => request.rules.raise(&mut states, &mut permits, at),
            }
            if permits != Permits::default() {
                self.paid.insert(debt.id, (count, permits));
            }
        }
        let verdict = request.rules.decide(&mut states, request.verb, at);
        let answer = verdict.map(|verdict| StoreAnswer::of(verdict, request.rules, &states, at));
        self.states.insert(name, (Arc::clone(request.rules), states));
        Ok((answer?, permits))
    }
}

impl OnLine {
    fn new(remote: &Arc<Mutex<Remote>>) -> Self {
        Self { remote: Arc::clone(remote), line: Arc::new(Mutex::new(Line::Good)) }
    }

    fn set(&self, line: Line) {
        *self.line.lock().expect("no holder panics") = line;
    }

    fn ask(
        &self,
        debt: Option<&Debt>,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        let reason = || "no answer".to_owned();
        let line = *self.line.lock().expect("no holder panics");
        match line {
            Line::Good | Line::Slow => {
                self.remote.lock().expect("no holder panics").decide(debt, request, at)
            }
            Line::Cut => Err(StoreError::Unavailable { reason: reason(), executed: Executed::No }),
            Line::Busy => Err(StoreError::Overloaded { executed: Executed::No }),
            Line::Late => {
                self.remote.lock().expect("no holder panics").decide(debt, request, at)?;
                Err(StoreError::Overloaded { executed: Executed::Perhaps })
            }
            Line::Deaf => {
                self.remote.lock().expect("no holder panics").decide(debt, request, at)?;
                Err(StoreError::Unavailable { reason: reason(), executed: Executed::Perhaps })
            }
        }
    }
}

impl OnLine {
    async fn on_its_way(&self) {
        let mut is_slow = *self.line.lock().expect("no holder panics") == Line::Slow;
        poll_fn(|_| if take(&mut is_slow) { Poll::Pending } else { Poll::Ready(()) }).await;
    }
}

impl Store for OnLine {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let answer = self.ask(None, request, at).map(|(answer, _)| answer);
        self.on_its_way().await;
        answer
    }

    async fn charge_and_decide(
        &self,
        debt: &Debt,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        let answer = self.ask(Some(debt), request, at);
        self.on_its_way().await;
        answer
    }
}

struct Node {
    line: OnLine,
    engine: Arc<Engine<OnLine>>,
}

impl Node {
    fn of(remote: &Arc<Mutex<Remote>>, nodes: u32) -> Self {
        let line = OnLine::new(remote);
        let policies = PolicySet::new(Document::parse(POLICIES).expect("POLICIES is valid"));
        let nodes = NonZeroU32::new(nodes).expect("there is at least one");
        let engine = Engine::new(policies, line.clone(), Arc::new(ManualClock::default()))
            .with_fallback(StoreFailure::shared_by(nodes));
        Self { line, engine: Arc::new(engine) }
    }

    fn alone() -> Self {
        Self::of(&Arc::default(), 1)
    }

    fn try_ask(&self, policy: &str, verb: Verb, at_ms: u64) -> Result<Answer, DecideError> {
        let request = Request::new(policy, Some(b"key"), verb);
        let turn = self.engine.turn_at(Micros::from_millis(at_ms));
        at_once(turn.decide(&request)).map(|admission| admission.answer)
    }

    fn ask(&self, policy: &str, at_ms: u64) -> Answer {
        self.try_ask(policy, CHECK, at_ms).expect("the request can be decided")
    }

    fn passed(&self, policy: &str, times: u64, at_ms: u64) -> u64 {
        (0..times).map(|_| self.ask(policy, at_ms).decision.granted()).sum()
    }

    /// Returns the number of requests that pass of so many that come together.
    fn passed_together(&self, policy: &str, times: usize, at_ms: u64) -> u64 {
        let requests = vec![Request::new(policy, Some(b"key"), CHECK); times];
        let turn = self.engine.turn_at(Micros::from_millis(at_ms));
        let decided = at_once(turn.decide_each(&requests)).into_iter();
        decided.map(|it| it.expect("it can be decided").answer.decision.granted()).sum()
    }

    fn remaining(&self, policy: &str, at_ms: u64) -> u64 {
        let peeked = self.try_ask(policy, Verb::Peek { cost: Cost::ONE }, at_ms);
        peeked.expect("it can be looked at").decision.remaining
    }
}

fn poll<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    match poll(&mut pin!(future)) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the store in these tests answers at once"),
    }
}

#[test]
fn ten_outages_let_no_more_pass_than_none() {
    let node = Node::alone();
    let mut passed = 0;
    for outage in 0..10 {
        let at = 1_000 + 3_000 * outage;
        node.line.set(Line::Cut);
        passed += node.passed("day", 1_500, at);
        node.line.set(Line::Good);
        node.remaining("day", at + 2_000);
        passed += node.passed("day", 10, at + 2_000);
    }
    // 1000 a day is one in 86.4 s.
    assert_eq!(passed, 1_000, "in half a minute");
}

#[test]
fn a_debt_is_charged_before_the_first_answer_and_only_once() {
    let node = Node::alone();
    assert_eq!(node.passed("bucket", 5, 1_000), 5);
    node.line.set(Line::Cut);
    assert_eq!(node.passed("bucket", 10, 1_000), 10);
    assert_eq!(node.engine.debts(), 1);
    node.line.set(Line::Good);
    let answer = node.ask("bucket", 1_400);
    assert_eq!((answer.mode, answer.decision.remaining), (Mode::Store, 8), "15 + 1 - 4 in use");
    assert_eq!(node.engine.debts(), 0);
    assert_eq!(node.remaining("bucket", 1_400), 8);
}

#[test]
fn a_lost_answer_neither_doubles_nor_drops_a_debt() {
    let node = Node::alone();
    node.line.set(Line::Cut);
    assert_eq!(node.passed("bucket", 3, 1_000), 3);
    node.line.set(Line::Deaf);
    // The store charges three and one, and that one is charged here too: its caller got no answer.
    assert_eq!(node.passed("bucket", 1, 1_000), 1);
    node.line.set(Line::Good);
    assert_eq!(node.remaining("bucket", 1_200), 20 - (3 + 2 - 2));
    assert_eq!(node.engine.debts(), 0);
}

#[test]
fn a_debt_that_was_charged_in_part_and_unheard_is_charged_whole_before_more_is_granted() {
    let remote = Arc::default();
    let (node, other) = (Node::of(&remote, 1), Node::of(&remote, 1));
    assert_eq!(other.passed("log", 10, 2_500), 10, "until 4,500 ms");
    node.line.set(Line::Cut);
    assert_eq!(node.passed("log", 20, 3_500), 20);
    node.line.set(Line::Deaf);
    assert_eq!(node.passed("log", 1, 4_000), 0, "10 of the 20 are charged, as many as are there");
    node.line.set(Line::Good);
    assert_eq!(node.passed("log", 1, 4_900), 0, "20 have passed here in this window");
}

#[test]
fn an_answer_that_is_heard_after_a_later_one_takes_nothing_back() {
    for policy in ["bucket", "log", "window", "day"] {
        let node = Node::alone();
        let limit = node.ask(policy, 1_000).decision.limit;
        node.line.set(Line::Slow);
        let request = Request::new(policy, Some(b"key"), CHECK);
        let turn = node.engine.turn_at(Micros::SECOND);
        let (mut first, mut second) = (pin!(turn.decide(&request)), pin!(turn.decide(&request)));
        assert!(poll(&mut first).is_pending());
        assert!(poll(&mut second).is_pending());
        for deciding in [&mut second, &mut first] {
            assert!(poll(deciding).is_ready());
        }
        node.line.set(Line::Cut);
        assert_eq!(node.passed(policy, limit, 1_000), limit - 3, "of {policy}");
    }
}

#[test]
fn a_refund_that_is_heard_after_a_later_check_does_not_give_that_back() {
    for policy in ["bucket", "log", "window", "day"] {
        let node = Node::alone();
        assert_eq!(node.passed(policy, 5, 1_000), 5);
        node.line.set(Line::Slow);
        let of = |verb| Request::new(policy, Some(b"key"), verb);
        let (refund, check) = (of(Verb::Refund { cost: Cost::new(2).unwrap() }), of(CHECK));
        let turn = node.engine.turn_at(Micros::SECOND);
        let (mut refund, mut check) = (pin!(turn.decide(&refund)), pin!(turn.decide(&check)));
        assert!(poll(&mut refund).is_pending());
        assert!(poll(&mut check).is_pending());
        assert!(poll(&mut check).is_ready());
        assert!(poll(&mut refund).is_ready());
        node.line.set(Line::Cut);
        let left = node.remaining(policy, 1_000);
        let limit = node.ask(policy, 1_000).decision.limit;
        assert!(left + 4 <= limit, "5 - 2 + 1 of {policy} are in use, and {left} are left");
    }
}

#[test]
fn what_another_gave_back_is_known_here_after_a_while() {
    let remote = Arc::default();
    let fleet: Vec<_> = (0..2).map(|_| Node::of(&remote, 1)).collect();
    assert_eq!(fleet[0].passed("hour", 20, 10_000), 20);
    fleet[1].try_ask("hour", Verb::Reset, 10_100).expect("it can be reset");
    // Less than two seconds after an answer that reported more, this may be an older one.
    for (at, left) in [(11_900, 0), (14_000, 20)] {
        assert_eq!(fleet[0].remaining("hour", at), 20, "says the store");
        fleet[0].line.set(Line::Cut);
        assert_eq!(fleet[0].remaining("hour", at), left, "is known here");
        fleet[0].line.set(Line::Good);
    }
}

#[test]
fn keys_that_are_not_asked_for_again_are_paid_for_too() {
    let node = Node::alone();
    node.line.set(Line::Cut);
    node.passed("bucket", 7, 1_000);
    node.passed("log", 7, 1_000);
    assert_eq!(node.engine.debts(), 2);
    assert_eq!(at_once(node.engine.pay_debts()), 2, "nobody answers");
    node.line.set(Line::Good);
    // The breaker lets a probe pass, whose answer closes it.
    node.ask("window", 2_000);
    assert_eq!(at_once(node.engine.pay_debts()), 0);
}

#[test]
fn two_limits_are_charged_what_is_still_in_use_of_each() {
    let node = Node::alone();
    node.line.set(Line::Cut);
    let passed: u64 = (0..30).map(|step| node.passed("both", 20, 1_000 + 100 * step)).sum();
    assert_eq!(passed, 20 + 29);
    node.line.set(Line::Good);
    node.remaining("both", 5_900);
    assert_eq!(node.passed("both", 100, 5_900), 19, "the slow one: 60 - 49 + 8.2");
}

#[test]
fn of_two_limits_an_outage_gives_neither_again() {
    for nodes in [1, 2] {
        let remote = Arc::default();
        let all: Vec<_> = (0..nodes).map(|_| Node::of(&remote, nodes)).collect();
        // The bucket decides, since it has the least left.
        let mut passed: u64 = 0;
        for tick in 0..15 {
            passed += all.iter().map(|node| node.passed("quota", 3, tick * 300)).sum::<u64>();
        }
        let before = passed;
        assert!((45..=90).contains(&before), "{before}");
        for node in &all {
            // Each learns how much the other took last.
            node.remaining("quota", 4_500);
        }
        all.iter().for_each(|node| node.line.set(Line::Cut));
        for tick in 15..150 {
            passed += all.iter().map(|node| node.passed("quota", 3, tick * 300)).sum::<u64>();
        }
        assert_eq!(passed, 100, "of {nodes} nodes, {before} of them before the outage");
    }
}

#[test]
fn an_overloaded_store_is_never_replaced_by_a_share() {
    let node = Node::alone();
    node.line.set(Line::Busy);
    for _ in 0..50 {
        let shed = node.ask("bucket", 1_000);
        assert_eq!((shed.mode, shed.decision.allowed()), (Mode::Shed, false));
        assert_eq!(shed.decision.retry_after(), Some(Micros::from_millis(100)));
        let shed = node.ask("open", 1_000);
        assert_eq!((shed.mode, shed.decision.allowed()), (Mode::Shed, false));
    }
    assert!(!node.engine.is_without_store(), "it answers");
    let error = node.try_ask("bucket", Verb::Reset, 1_000).expect_err("nothing was reset");
    assert!(error.to_string().starts_with("store: overloaded: it answers"), "{error}");
    node.line.set(Line::Good);
    assert_eq!(node.passed("bucket", 30, 1_000), 20);
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_have_the_patience_for_a_store_that_has_too_much_to_do() {
    let node = Node::alone();
    let request = Request::new("patient", Some(b"key"), CHECK);
    node.line.set(Line::Busy);
    let begun = tokio::time::Instant::now();
    let turn = node.engine.turn_at(Micros::SECOND);
    let answer = turn.decide(&request).await.expect("a decision").answer;
    assert_eq!((answer.mode, answer.decision.allowed()), (Mode::Shed, false));
    let waited = begun.elapsed().as_millis();
    assert!((950..=1_000).contains(&waited), "{waited} ms");
    let idle = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        node.line.set(Line::Good);
    };
    let (answer, ()) = tokio::join!(turn.decide(&request), idle);
    let answer = answer.expect("a decision").answer;
    assert_eq!((answer.mode, answer.decision.remaining), (Mode::Store, 19));
}

#[tokio::test(start_paused = true)]
async fn a_policy_with_patience_asks_once_if_the_call_was_perhaps_executed() {
    let node = Node::alone();
    let request = Request::new("patient", Some(b"key"), CHECK);
    node.line.set(Line::Late);
    let answer = node.engine.turn_at(Micros::SECOND).decide(&request).await;
    assert_eq!(answer.expect("a decision").answer.mode, Mode::Shed);
    node.line.set(Line::Good);
    assert_eq!(node.remaining("patient", 1_000), 19);
}

#[test]
fn a_request_that_is_let_through_uses_up_what_is_left_of_less_than_its_cost() {
    let node = Node::alone();
    assert_eq!(node.passed("open", 17, 1_000), 17);
    node.line.set(Line::Cut);
    let five = Verb::Check { cost: Cost::new(5).expect("it is a cost") };
    let answer = node.try_ask("open", five, 1_000).expect("the request can be decided");
    assert_eq!((answer.mode, answer.decision.granted()), (Mode::Allow, 5));
    node.line.set(Line::Good);
    assert_eq!(node.remaining("open", 1_000), 0);
}

#[test]
fn what_is_let_through_without_a_limit_uses_the_budget_up_and_no_more() {
    let node = Node::alone();
    node.line.set(Line::Cut);
    assert_eq!(node.passed("open", 500, 1_000), 500);
    node.line.set(Line::Good);
    assert_eq!(node.remaining("open", 1_500), 5);
}

#[test]
fn permits_that_were_handed_out_alone_stay_held_until_they_are_released() {
    let node = Node::alone();
    let acquire = |id| Verb::Acquire { cost: Cost::ONE, permit: PermitId(id) };
    let release = |id| Verb::Release { permit: PermitId(id) };
    let mut at = 1_000;
    let mut held = 0;
    for outage in 0..5 {
        node.line.set(Line::Cut);
        for id in 0..8 {
            let answer = node.try_ask("jobs", acquire(100 * outage + id), at).unwrap();
            held += answer.decision.granted();
        }
        node.line.set(Line::Good);
        at += 1_000;
        node.ask("window", at);
    }
    assert_eq!(held, 4, "however many outages there are");
    assert_eq!(node.engine.uncharged(), Uncharged { held: 4, lost: 0 });
    let released = node.try_ask("jobs", release(0), at).unwrap();
    assert_eq!((released.mode, released.decision.allowed()), (Mode::Local, true));
    assert_eq!(node.engine.uncharged(), Uncharged { held: 3, lost: 0 });
}

#[test]
fn a_store_that_has_forgotten_is_reminded_of_each_key_once_by_all_that_know() {
    let remote = Arc::default();
    let fleet: Vec<_> = (0..3).map(|_| Node::of(&remote, 3)).collect();
    for node in &fleet {
        assert_eq!(node.passed("bucket", 5, 1_000), 5);
    }
    remote.lock().expect("no holder panics").states.clear();
    // Before the loss is noticed, the store grants its limit once more.
    assert_eq!(fleet[0].passed("bucket", 4, 1_000), 4);
    fleet.iter().for_each(|node| node.engine.remind_store());
    assert_eq!(fleet[2].passed("bucket", 10, 1_000), 5, "15 of 20 were in use");
    assert_eq!(fleet[1].passed("bucket", 10, 1_000), 0);
    assert_eq!(fleet[0].passed("bucket", 10, 2_000), 10, "and it flows out as ever");
}

#[test]
fn a_removed_policy_is_owed_nothing() {
    let node = Node::alone();
    node.line.set(Line::Cut);
    node.passed("bucket", 7, 1_000);
    node.line.set(Line::Good);
    node.engine.set_policies(PolicySet::new(Document::parse("policies: []").unwrap()));
    at_once(node.engine.pay_debts());
    assert_eq!(node.engine.debts(), 0);
}

#[test]
fn a_debt_outlives_an_edit_of_its_policy() {
    let node = Node::alone();
    node.line.set(Line::Cut);
    assert_eq!(node.passed("bucket", 15, 1_000), 15);
    let wider = POLICIES.replacen("burst: 20", "burst: 40", 1);
    node.engine.set_policies(PolicySet::new(Document::parse(&wider).expect("still valid")));
    node.line.set(Line::Good);
    node.ask("window", 2_000);
    assert_eq!(node.remaining("bucket", 2_000), 35);
}

#[test]
fn a_debt_that_was_perhaps_charged_is_charged_anew_under_more_or_fewer_rules() {
    let node = Node::alone();
    node.line.set(Line::Cut);
    assert_eq!(node.passed("bucket", 3, 1_000), 3);
    node.line.set(Line::Deaf);
    assert_eq!(node.passed("bucket", 1, 1_000), 1);
    let two = "rules: [ { name: token_bucket, token_bucket: { rate: 10/s, burst: 20 } }, \
               { name: hour, fixed_window: { limit: 100, window: 1h } } ] }";
    let two = POLICIES.replacen("rules: [ { token_bucket: { rate: 10/s, burst: 20 } } ] }", two, 1);
    node.engine.set_policies(PolicySet::new(Document::parse(&two).expect("still valid")));
    node.line.set(Line::Good);
    let answer = node.try_ask("bucket", CHECK, 1_000).expect("the store can be asked");
    // The store has charged 3 + 1, charges the 4 that were admitted here once more, and one that passes now.
    assert_eq!((answer.mode, answer.decision.remaining), (Mode::Store, 20 - (4 + 4 + 1)));
    assert_eq!(node.engine.debts(), 0);
}

/// The permits that the limit of 20 in 2 s has let pass, kept by an observer who sees all of them.
#[derive(Default)]
struct Observer {
    /// The level of a bucket: 10/s are 1 unit a ms, a permit weighs 100, and 20 are 2,000.
    level: u64,
    seen_at: u64,
    passed_at: Vec<u64>,
}

impl Observer {
    fn pass(&mut self, permits: u64, at: u64) {
        self.level = self.level.saturating_sub(at - self.seen_at) + 100 * permits;
        self.seen_at = at;
        self.passed_at.extend((0..permits).map(|_| at));
    }

    /// The usage of the limit of `policy`, in its units.
    fn in_use(&self, policy: &str, at: u64) -> u64 {
        let since =
            |from: u64| self.passed_at.iter().filter(|it| **it >= from).count() as u64 * 100;
        match policy {
            "bucket" => self.level,
            "log" => since((at + 1).saturating_sub(2_000)),
            _ => since(at - at % 2_000),
        }
    }
}

fn lines() -> impl Strategy<Value = Line> {
    prop_oneof![
        6 => Just(Line::Good), 4 => Just(Line::Cut), 1 => Just(Line::Deaf), 1 => Just(Line::Busy)
    ]
}

fn cuts() -> impl Strategy<Value = Line> {
    prop_oneof![2 => Just(Line::Good), 1 => Just(Line::Cut), 1 => Just(Line::Deaf)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// However often the store goes and comes, and whatever is lost on the way.
    #[test]
    fn one_node_never_passes_more_than_the_limit_through_any_outages(
        policy in prop_oneof![Just("bucket"), Just("log"), Just("window")],
        steps in prop::collection::vec((0_u64..400, lines(), 1_u64..6, any::<bool>()), 1..120),
    ) {
        let node = Node::alone();
        let (mut now, mut observer, mut line) = (1_000, Observer::default(), Line::Good);
        for (pause, next, times, stays) in steps {
            now += pause;
            if !stays {
                line = next;
            }
            node.line.set(line);
            let passed = match pause % 2 {
                0 => node.passed(policy, times, now),
                _ => node.passed_together(policy, usize::try_from(times).expect("a few"), now),
            };
            observer.pass(passed, now);
            let in_use = observer.in_use(policy, now);
            prop_assert!(in_use <= 2_000, "{in_use} at {now}");
        }
    }

    /// All lose the store and find it again together, and know the usage before.
    #[test]
    fn a_fleet_never_passes_more_than_the_limit_through_outages_that_all_see(
        nodes in 1_usize..5,
        outages in prop::collection::vec(
            (prop::collection::vec((0_usize..5, 0_u64..300), 0..30),
             prop::collection::vec((0_usize..5, 0_u64..300), 0..60)),
            1..5,
        ),
    ) {
        let remote = Arc::default();
        let count = u32::try_from(nodes).unwrap();
        let fleet: Vec<_> = (0..nodes).map(|_| Node::of(&remote, count)).collect();
        let (mut now, mut observer) = (1_000, Observer::default());
        for (before, during) in outages {
            for (line, steps) in [(Line::Good, before), (Line::Cut, during)] {
                for node in &fleet {
                    node.remaining("bucket", now);
                    node.line.set(line);
                }
                if line == Line::Good {
                    // The breakers let a probe pass, and the debts are paid.
                    now += 400;
                    for node in &fleet {
                        node.remaining("window", now);
                        at_once(node.engine.pay_debts());
                    }
                    for node in &fleet {
                        node.remaining("bucket", now);
                    }
                }
                for (node, pause) in steps {
                    now += pause;
                    observer.pass(fleet[node % nodes].passed("bucket", 1, now), now);
                    let in_use = observer.in_use("bucket", now);
                    prop_assert!(in_use <= 2_000, "{in_use} at {now}");
                }
            }
        }
    }

    /// All lose the store again and again, for longer than a bucket takes to fill. Who finds it first takes the
    /// room that the debts of the others wait for. One share of each other node is too much once; in addition, a node
    /// cannot know what the others took since its last answer.
    #[test]
    fn outages_of_a_fleet_do_not_add_up(
        nodes in 1_usize..5,
        cycles in prop::collection::vec(
            (100_u64..400, prop::collection::vec((0_usize..5, 1_u64..60), 10..40)), 1..12),
    ) {
        let remote = Arc::default();
        let fleet: Vec<_> = (0..nodes).map(|_| Node::of(&remote, u32::try_from(nodes).unwrap())).collect();
        let share = 2_000 / nodes as u64;
        let (mut now, mut observer, mut unknown) = (1_000, Observer::default(), 0);
        let mut answered = vec![now; nodes];
        for (pause, healthy) in cycles {
            fleet.iter().for_each(|node| node.line.set(Line::Cut));
            for step in 0..30 {
                now += pause;
                observer.pass(fleet[step % nodes].passed("bucket", 8, now), now);
            }
            fleet.iter().for_each(|node| node.line.set(Line::Good));
            for (node, pause) in healthy {
                now += pause;
                for _ in 0..6 {
                    let answer = fleet[node % nodes].ask("bucket", now);
                    observer.pass(answer.decision.granted(), now);
                    if answer.mode == Mode::Store {
                        answered[node % nodes] = now;
                    }
                }
            }
            let since = |answered: &u64| (now - answered).min(2_000) / nodes as u64;
            unknown += answered.iter().map(since).sum::<u64>();
            let allowed = 2_000 + share * (nodes as u64 - 1) + unknown;
            let in_use = observer.in_use("bucket", now);
            prop_assert!(in_use <= allowed, "{in_use} of {allowed} at {now}");
        }
    }

    /// A node alone is cut off, or gets no answers, while the others go on: its share of the burst once,
    /// however often it is cut off, and its share of the rate while it is.
    #[test]
    fn partitions_cost_the_share_of_each_node_that_is_cut_off_and_do_not_add_up(
        steps in prop::collection::vec((0_usize..4, 0_u64..100, cuts()), 1..200),
    ) {
        let remote = Arc::default();
        let fleet: Vec<_> = (0..4).map(|_| Node::of(&remote, 4)).collect();
        let (mut now, mut observer) = (1_000, Observer::default());
        let (mut lines, mut cut_ms) = ([Line::Good; 4], 0);
        for (node, pause, line) in steps {
            now += pause;
            cut_ms += pause * lines.iter().filter(|line| **line != Line::Good).count() as u64;
            lines[node] = line;
            fleet[node].line.set(line);
            observer.pass(fleet[node].passed("bucket", 3, now), now);
            let in_use = observer.in_use("bucket", now);
            prop_assert!(in_use <= 2_000 + 4 * 500 + cut_ms.div_ceil(4), "{in_use} at {now}");
        }
    }
}
