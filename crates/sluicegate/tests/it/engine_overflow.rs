//! Tests of the treatment of requests over the limit, by their policies.
#![cfg(feature = "engine")]

use std::sync::Arc;
use std::time::Duration;

use sluicegate::internals::{BatchOutcome, Limits};
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::{
    Admission, Clock, Cost, Disposition, Engine, ManualClock, Micros, Patience, PermitId, Request,
    Verb,
};
use sluicegate_kernel::Moment;
use sluicegate_policy::Fallback;
use sluicegate_store::{Store, StoreAnswer, StoreRequest};
use tokio::time::Instant;

const POLICIES: &str = "
policies:
  - { name: reject, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: queue, overflow: { queue: { max_wait: 2s } }, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: log, overflow: { queue: { max_wait: 2s } }, rules: [ { sliding_log: { limit: 1, window: 1s } } ] }
  - { name: tag, overflow: { degrade: { tag: cached } }, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: divert, overflow: { divert: { target: slow } }, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: shadow, overflow: shadow, rules: [ { token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: leaky, rules: [ { leaky_bucket: { rate: 1/s, burst: 10 } } ] }
  - { name: quiet, overflow: shadow, rules: [ { leaky_bucket: { rate: 1/s, burst: 10 } } ] }
  - { name: hits, overflow: { degrade: { tag: cached } }, rules: [ { fixed_window: { limit: 5, window: 1h } } ] }
  - { name: steady, overflow: { queue: { max_wait: 2s } }, rules: [ { token_bucket: { rate: 50/s, burst: 1 } } ] }
  - { name: drips, rules: [ { leaky_bucket: { rate: 50/s, burst: 100 } } ] }
  - { name: jobs-reject, rules: [ { concurrency: { limit: 1, ttl: 1m } } ] }
  - { name: jobs-tag, overflow: { degrade: { tag: cached } }, rules: [ { concurrency: { limit: 1, ttl: 1m } } ] }
  - { name: jobs-divert, overflow: { divert: { target: slow } }, rules: [ { concurrency: { limit: 1, ttl: 1m } } ] }
  - { name: jobs-shadow, overflow: shadow, rules: [ { concurrency: { limit: 1, ttl: 1m } } ] }
  - { name: holds, overflow: { queue: { max_wait: 1h } }, rules: [ { token_bucket: { rate: 1/s, burst: 5 } } ] }
";

/// The time of tokio, which stands still in these tests unless all wait.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Micros {
        self.0.elapsed().into()
    }
}

fn engine() -> Arc<Engine> {
    let document = Document::parse(POLICIES).expect("the policies of the test");
    let clock = Arc::new(TokioClock(Instant::now()));
    Arc::new(Engine::new(PolicySet::new(document), MemoryStore::default(), clock))
}

async fn pass(engine: &Arc<Engine>, policy: &str) -> Admission {
    let request = Request::new(policy, Some(b"alice"), Verb::Check { cost: Cost::ONE });
    let request = request.with_patience(Patience::Policy);
    engine.turn().decide(&request).await.expect("the store is in memory")
}

#[tokio::test]
async fn over_the_limit_each_policy_has_its_way() {
    let engine = engine();
    assert!(!engine.has_fallback());
    for policy in ["reject", "tag", "divert", "shadow"] {
        let admission = pass(&engine, policy).await;
        assert_eq!(
            (admission.way, admission.held),
            (Disposition::Allowed, Micros::ZERO),
            "{policy}"
        );
    }
    assert_eq!(pass(&engine, "reject").await.way, Disposition::Refused);
    assert_eq!(pass(&engine, "tag").await.way.fallback(), Some(&Fallback::Tag("cached".into())));
    assert_eq!(pass(&engine, "divert").await.way.target(), Some("slow"));
    let shadowed = pass(&engine, "shadow").await;
    assert!(shadowed.way.passes() && !shadowed.answer.decision.allowed());
}

#[tokio::test(start_paused = true)]
async fn a_queue_holds_requests_at_the_rate_and_refuses_who_would_wait_too_long() {
    for policy in ["queue", "log"] {
        let engine = engine();
        let begin = Instant::now();
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let engine = Arc::clone(&engine);
            callers.spawn(async move { (pass(&engine, policy).await, Instant::now()) });
        }
        let mut passed_at = Vec::new();
        for (admission, at) in callers.join_all().await {
            if admission.way == Disposition::Allowed {
                passed_at.push((at - begin).as_secs());
            }
        }
        passed_at.sort_unstable();
        assert_eq!(passed_at, [0, 1, 2], "{policy}");
        assert_eq!(engine.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_while_held_frees_the_place_and_the_permits() {
    let engine = engine();
    assert_eq!(pass(&engine, "queue").await.way, Disposition::Allowed);
    for _ in 0..10 {
        let gone = tokio::time::timeout(Duration::from_millis(1), pass(&engine, "queue"));
        assert!(gone.await.is_err(), "it is held for a second");
        tokio::task::yield_now().await;
        assert_eq!(engine.held(), 0);
    }
    // Had the ten kept the turns that were booked for them, no request would pass for ten seconds.
    assert_eq!(pass(&engine, "queue").await.way, Disposition::Allowed);
}

/// The clock of a replay: delayed requests wait by it, while hardly any real time passes.
#[derive(Debug)]
struct ReplayClock(ManualClock);

impl Clock for ReplayClock {
    fn now(&self) -> Micros {
        self.0.now()
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn wake_at(&self, at: Micros, waker: &std::task::Waker) -> bool {
        self.0.wake_at(at, waker)
    }
}

#[tokio::test]
async fn a_turn_that_was_waited_for_is_not_another_s() {
    let clock = Arc::new(ReplayClock(ManualClock::at(Micros::from_secs(1_000))));
    let policies = PolicySet::new(Document::parse(POLICIES).expect("the policies of the test"));
    let store = MemoryStore::default();
    let engine = Arc::new(Engine::new(policies, store, Arc::clone(&clock) as _));
    let (mut callers, mut passed) = (tokio::task::JoinSet::new(), 0);
    for step in 0..100 {
        if step % 5 == 0 {
            let engine = Arc::clone(&engine);
            callers.spawn(async move { pass(&engine, "queue").await.way });
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        while let Some(way) = callers.try_join_next() {
            passed += u32::from(way.expect("no caller panics") == Disposition::Allowed);
        }
        clock.0.advance(Micros::from_millis(100));
    }
    assert_eq!(passed, 10, "one a second, of two that ask");
}

/// A store that decides when it is asked, and whose answer comes 10 ms later.
struct Distant(MemoryStore);

const ANSWERS_AFTER: Duration = Duration::from_millis(10);

impl Store for Distant {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        let verdict = self.0.decide_now(request, at)?;
        tokio::time::sleep(ANSWERS_AFTER).await;
        Ok(verdict.into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_the_store_booked_for_a_caller_that_had_gone_is_another_s() {
    let document = Document::parse(POLICIES).expect("the policies of the test");
    let clock = Arc::new(TokioClock(Instant::now()));
    let store = Distant(MemoryStore::default());
    let engine = Arc::new(Engine::new(PolicySet::new(document), store, clock));
    let request = Request::new("queue", Some(b"alice"), Verb::Check { cost: Cost::ONE })
        .with_patience(Patience::Policy);
    let turn = engine.turn();
    assert_eq!(turn.decide(&request).await.map(|first| first.way), Ok(Disposition::Allowed));
    for _ in 0..2 {
        let gone = tokio::time::timeout(ANSWERS_AFTER / 2, turn.decide(&request));
        assert!(gone.await.is_err(), "the store has not answered yet");
    }
    tokio::time::sleep(ANSWERS_AFTER).await;
    // Both turns of the next two seconds are booked, for callers that went away.
    let begin = Instant::now();
    for seconds in 1..=2 {
        let admission = engine.turn().decide(&request).await.expect("the store answers");
        assert_eq!(admission.way, Disposition::Allowed);
        assert_eq!(begin.elapsed().as_secs_f64().round(), f64::from(seconds));
    }
}

/// Returns the most requests by which any interval exceeds the rate, of requests that come 3 ms apart: so many of
/// each ten lose patience within half a second.
async fn over_the_rate(policy: &'static str, impatient: u64) -> f64 {
    const EVERY: Duration = Duration::from_millis(3);
    let engine = engine();
    let begin = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..1_000_u64 {
        let engine = Arc::clone(&engine);
        let patience = match caller * 7 % 10 < impatient {
            true => Duration::from_millis(caller * 37 % 500),
            false => Duration::from_secs(60),
        };
        callers.spawn(async move {
            let passing = in_turn(&engine, policy, CHECK, 9);
            let passed = tokio::time::timeout(patience, passing).await;
            let at_s = (Instant::now() - begin).as_secs_f64();
            passed.is_ok_and(|admission| admission.way == Disposition::Allowed).then_some(at_s)
        });
        tokio::time::sleep(EVERY).await;
    }
    let mut passed_at: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    passed_at.sort_by(f64::total_cmp);
    let mut most = f64::NEG_INFINITY;
    for (place, from) in passed_at.iter().enumerate() {
        for (more, to) in passed_at[place..].iter().enumerate() {
            // Timers go off up to a millisecond late.
            most = most.max((more + 1) as f64 - 1.0 - 50.0 * (to - from + 0.002));
        }
    }
    assert!(passed_at.len() > 100, "{policy}: {} passed", passed_at.len());
    most
}

#[tokio::test(start_paused = true)]
async fn no_more_pass_at_once_because_others_went_away() {
    for policy in ["steady", "drips"] {
        for impatient in [0, 5, 9] {
            let over = over_the_rate(policy, impatient).await;
            assert!(over <= 0.0, "{policy}, {impatient} of 10 go away: {over} too many");
        }
    }
}

/// Returns the outcome of `verb` on the permit `id`.
async fn about_permit(
    engine: &Arc<Engine>,
    policy: &str,
    id: u128,
    verb: fn(PermitId) -> Verb,
) -> Admission {
    let request = Request::new(policy, Some(b"alice"), verb(PermitId(id)));
    let request = request.with_patience(Patience::Policy);
    engine.turn().decide(&request).await.expect("the store is in memory")
}

const fn acquire(permit: PermitId) -> Verb {
    Verb::Acquire { cost: Cost::ONE, permit }
}

const fn renew(permit: PermitId) -> Verb {
    Verb::Renew { permit }
}

const fn release(permit: PermitId) -> Verb {
    Verb::Release { permit }
}

#[tokio::test]
async fn overflow_means_for_acquire_what_it_means_for_check() {
    let engine = engine();
    for policy in ["jobs-reject", "jobs-tag", "jobs-divert", "jobs-shadow"] {
        let first = about_permit(&engine, policy, 1, acquire).await;
        assert_eq!(first.way, Disposition::Allowed, "{policy}");
    }
    let over = async |policy| about_permit(&engine, policy, 2, acquire).await;
    assert_eq!(over("jobs-reject").await.way, Disposition::Refused);
    assert_eq!(over("jobs-tag").await.way.fallback(), Some(&Fallback::Tag("cached".into())));
    assert_eq!(over("jobs-divert").await.way.target(), Some("slow"));
    let shadowed = over("jobs-shadow").await;
    assert_eq!((&shadowed.way, shadowed.answer.decision.granted()), (&Disposition::Shadowed, 0));
}

#[tokio::test]
async fn under_shadow_a_permit_that_holds_nothing_is_renewed_and_released_like_any_other() {
    let engine = engine();
    for id in [1, 2] {
        assert!(about_permit(&engine, "jobs-shadow", id, acquire).await.way.passes(), "{id}");
    }
    for (id, way) in [(1, Disposition::Allowed), (2, Disposition::Shadowed)] {
        for verb in [renew, release] {
            assert_eq!(about_permit(&engine, "jobs-shadow", id, verb).await.way, way, "{id}");
        }
    }
    // The place of the one that held something is free.
    let next = about_permit(&engine, "jobs-shadow", 3, acquire).await;
    assert_eq!(next.way, Disposition::Allowed);
    // Without the shadow a permit that is not held cannot be renewed or released.
    for policy in ["jobs-reject", "jobs-tag", "jobs-divert"] {
        for verb in [renew, release] {
            let refused = about_permit(&engine, policy, 2, verb).await;
            assert_eq!(refused.way, Disposition::Refused, "{policy}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_verbs_have_no_overflow() {
    let engine = engine();
    pass(&engine, "queue").await;
    let peek = Request::new("queue", Some(b"alice"), Verb::Peek { cost: Cost::ONE });
    let peek = peek.with_patience(Patience::Policy);
    let admission = engine.turn().decide(&peek).await.expect("the store is in memory");
    assert_eq!((admission.way, admission.held), (Disposition::Refused, Micros::ZERO));
}

#[tokio::test]
async fn what_nobody_has_to_be_waited_for_is_decided_at_once() {
    let engine = engine();
    for policy in ["reject", "tag", "divert", "shadow"] {
        let request = Request::new(policy, Some(b"alice"), CHECK).with_patience(Patience::Policy);
        for expected in [Some(Disposition::Allowed), None] {
            let admission = engine.turn().try_decide(&request).expect(policy).unwrap();
            let other = Request { key: Some(b"bob"), ..request.clone() };
            let awaited = engine.turn().decide(&other).await;
            assert_eq!(admission.way, awaited.unwrap().way, "{policy}: both ways say the same");
            assert_eq!(admission.way == Disposition::Allowed, expected.is_some(), "{policy}");
        }
    }
    let queued = Request::new("queue", Some(b"alice"), CHECK).with_patience(Patience::Policy);
    assert!(engine.turn().try_decide(&queued).is_none(), "its turn may have to be waited for");
    assert_eq!(pass(&engine, "queue").await.held, Micros::ZERO, "and nothing was taken");
    let unknown = Request { limits: Limits::Policy("nope"), ..queued };
    assert!(engine.turn().try_decide(&unknown).expect("at once").is_err());
}

async fn in_turn(engine: &Arc<Engine>, policy: &str, verb: Verb, hold_max_s: u64) -> Admission {
    let request = Request::new(policy, Some(b"alice"), verb);
    let request = request.with_patience(Patience::Gateway(Micros::from_secs(hold_max_s)));
    engine.turn().decide(&request).await.expect("the store is in memory")
}

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

#[tokio::test(start_paused = true)]
async fn what_rules_delay_is_held_for_who_cannot_and_refused_if_that_is_too_long() {
    let engine = engine();
    let begin = Instant::now();
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let engine = Arc::clone(&engine);
        callers.spawn(async move {
            let admission = in_turn(&engine, "leaky", CHECK, 4).await;
            (admission, (Instant::now() - begin).as_secs())
        });
    }
    let (mut passed_at, mut refused_at) = (Vec::new(), Vec::new());
    for (admission, at) in callers.join_all().await {
        match admission.way {
            Disposition::Allowed => passed_at.push(at),
            Disposition::Refused => {
                assert!(admission.answer.decision.retry_after() > Some(Micros::ZERO));
                refused_at.push(at);
            }
            other => panic!("{other:?}"),
        }
    }
    passed_at.sort_unstable();
    assert_eq!((passed_at, refused_at), (vec![0, 1, 2, 3, 4], vec![0; 7]));
    // Those that were refused have taken nothing.
    assert_eq!(in_turn(&engine, "leaky", CHECK, 4).await.held, Micros::from_secs(1));
    for _ in 0..3 {
        let admission = in_turn(&engine, "quiet", CHECK, 4).await;
        assert_eq!(
            (admission.way, admission.held),
            (Disposition::Allowed, Micros::ZERO),
            "nothing is held"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_while_rules_delay_them_frees_the_place_and_the_permits() {
    let engine = engine();
    in_turn(&engine, "leaky", CHECK, 9).await;
    for _ in 0..10 {
        let gone = in_turn(&engine, "leaky", CHECK, 9);
        let gone = tokio::time::timeout(Duration::from_millis(1), gone);
        assert!(gone.await.is_err(), "it is held for a second");
        tokio::task::yield_now().await;
        assert_eq!(engine.held(), 0);
    }
    assert!(in_turn(&engine, "leaky", CHECK, 9).await.held <= Micros::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn who_gets_less_than_all_is_over_the_limit_for_a_gateway() {
    let engine = engine();
    let cost = Cost::new(3).expect("within the range");
    let hits = async |policy| in_turn(&engine, policy, Verb::AtMost { cost }, 9).await;
    assert_eq!(hits("hits").await.way, Disposition::Allowed);
    let short = hits("hits").await;
    assert_eq!(short.way.fallback(), Some(&Fallback::Tag("cached".into())));
    assert_eq!(short.answer.decision.granted(), 2, "what was left is used up");
    let peeked = in_turn(&engine, "hits", Verb::Peek { cost: Cost::ONE }, 9).await;
    assert!(peeked.way.fallback().is_some());
    // A queue delays a request until all permits are there: one is missing.
    assert_eq!(hits("holds").await.held, Micros::ZERO);
    assert_eq!(hits("holds").await.held, Micros::from_secs(1));
    // A request that would be delayed for longer than the gateway waits is refused, whatever the policy permits.
    let many = Verb::AtMost { cost: Cost::new(5).expect("within the range") };
    assert_eq!(in_turn(&engine, "holds", many, 4).await.way, Disposition::Refused);
}

#[tokio::test]
async fn what_a_policy_does_over_its_limit_it_does_with_callers_that_would_wait() {
    let engine = engine();
    let reserve = Verb::Reserve { cost: Cost::ONE, max_wait: Micros::from_millis(1) };
    let mut ways = Vec::new();
    for policy in ["reject", "queue", "tag", "divert", "shadow"] {
        assert_eq!(pass(&engine, policy).await.way, Disposition::Allowed);
        let request = Request::new(policy, Some(b"alice"), reserve.clone());
        let request = request.with_patience(Patience::Policy);
        let admission = engine.turn().decide(&request).await.expect("the store is in memory");
        assert_eq!(admission.held, Micros::ZERO, "{policy}: it brought its own wait");
        ways.push(admission.way);
        let at_once = engine.turn().try_decide(&request).expect("it is in memory");
        assert_eq!(at_once.as_ref().map(|admission| &admission.way), Ok(&ways[ways.len() - 1]));
    }
    assert!(matches!(
        ways[..],
        [
            Disposition::Refused,
            Disposition::Refused,
            Disposition::Degraded(_),
            Disposition::Diverted(_),
            Disposition::Shadowed
        ]
    ));
}

#[tokio::test(start_paused = true)]
async fn a_held_request_is_decided_by_the_policies_that_are_in_force_by_then() {
    let slow = POLICIES
        .replace("sliding_log: { limit: 1, window: 1s }", "sliding_log: { limit: 1, window: 1h }");
    let fast = POLICIES
        .replace("sliding_log: { limit: 1, window: 1s }", "sliding_log: { limit: 9, window: 1s }");
    let shadow = slow
        .replace("name: log, overflow: { queue: { max_wait: 2s } }", "name: log, overflow: shadow");
    let none = POLICIES.replace("name: log", "name: another");
    let held = Micros::SECOND;
    for (policies, way) in [
        (&slow, Disposition::Refused),
        (&fast, Disposition::Allowed),
        (&shadow, Disposition::Shadowed),
        (&none, Disposition::Refused),
    ] {
        let engine = engine();
        pass(&engine, "log").await;
        let holding = tokio::spawn({
            let engine = Arc::clone(&engine);
            async move { pass(&engine, "log").await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        engine.set_policies(PolicySet::new(Document::parse(policies).expect("still valid")));
        // Usage from before counts under these rules from now on.
        let check = Request::new("log", Some(b"alice"), Verb::Check { cost: Cost::ONE });
        engine.turn().decide(&check).await.ok();
        let admission = holding.await.expect("it does not panic");
        assert_eq!((admission.way, admission.held), (way, held), "{policies}");
        assert_eq!(engine.held(), 0);
    }
}

/// A request of a gateway, which can hold it back.
fn at_gateway(policy: &str) -> Request<'_> {
    let request = Request::new(policy, Some(b"alice"), CHECK);
    request.with_patience(Patience::Gateway(Micros::from_secs(10)))
}

#[tokio::test(start_paused = true)]
async fn of_several_at_a_gateway_the_longest_wait_is_reported() {
    let engine = engine();
    pass(&engine, "reject").await;
    // Its next turn is after its longest wait.
    let ahead = Verb::Reserve { cost: Cost::ONE, max_wait: Micros::from_secs(10) };
    for _ in 0..4 {
        let request = Request::new("queue", Some(b"alice"), ahead.clone());
        engine.turn().decide(&request).await.expect("the store is in memory");
    }
    let requests = ["reject", "queue"].map(at_gateway);
    let decided = engine.turn().decide_all(&requests).await.expect("the store is in memory");
    let BatchOutcome::Refused { place, .. } = decided else { panic!("both are used up") };
    assert_eq!(place, 1);
}

#[tokio::test(start_paused = true)]
async fn of_several_at_a_gateway_those_that_pass_at_once_are_charged_before_one_is_held() {
    let engine = engine();
    pass(&engine, "leaky").await;
    let turn = engine.turn();
    let requests = ["leaky", "reject"].map(at_gateway);
    let held = turn.decide_all(&requests);
    let look = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let look = Request::new("reject", Some(b"alice"), Verb::Peek { cost: Cost::ONE });
        engine.turn().decide(&look).await.expect("the store is in memory")
    };
    let (decided, looked) = tokio::join!(held, look);
    assert!(matches!(decided, Ok(BatchOutcome::Passed(_))), "{decided:?}");
    assert!(!looked.answer.decision.allowed());
}
