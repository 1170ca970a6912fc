//! Tests of requests that wait for a permit of a `concurrency` rule.
#![cfg(feature = "engine")]

use std::future::Future;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::{MemoryStore, StoreError};
use sluicegate::{
    Admission, Clock, Cost, DecideError, Disposition, Engine, Micros, Patience, PermitId, Request,
    StoreFailure, Verb,
};
use sluicegate_kernel::{Called, Moment};
use sluicegate_policy::Fallback;
use sluicegate_store::{Executed, Store, StoreAnswer, StoreRequest};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const POLICIES: &str = "
policies:
  - { name: one, overflow: { queue: { max_wait: 10s } }, rules: [ { concurrency: { limit: 1, ttl: 1m, queue: 3 } } ] }
  - { name: five, overflow: { queue: { max_wait: 1h } }, rules: [ { concurrency: { limit: 5, ttl: 1m, queue: 1000 } } ] }
  - { name: tag, overflow: { degrade: { tag: cached } }, rules: [ { concurrency: { limit: 1, ttl: 1m, queue: 3 } } ] }
  - { name: none, rules: [ { concurrency: { limit: 1, ttl: 1m } } ] }
  - { name: strict, on_store_failure: deny, rules: [ { concurrency: { limit: 1, ttl: 1m } } ] }
  - { name: short, overflow: { queue: { max_wait: 10s } }, rules: [ { concurrency: { limit: 1, ttl: 1500ms, queue: 3 } } ] }
  - { name: deny, on_store_failure: deny, overflow: { queue: { max_wait: 10s } }, rules: [
      { concurrency: { limit: 1, ttl: 1m, queue: 3 } } ] }
  - { name: rate, rules: [ { token_bucket: { rate: 1/s } } ] }
  - { name: both, overflow: { queue: { max_wait: 10s } }, rules: [
      { name: jobs, concurrency: { limit: 2, ttl: 1m, queue: 3 } }, { name: pace, token_bucket: { rate: 1/s, burst: 1 } } ] }
  - { name: dear, overflow: { queue: { max_wait: 1h } }, rules: [
      { name: jobs, concurrency: { limit: 100, ttl: 1h, queue: 30 } }, { name: pace, token_bucket: { rate: 1/s, burst: 10 } } ] }
";

/// The time of tokio, which stands still in these tests unless all wait.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Micros {
        self.0.elapsed().into()
    }
}

/// A store that several engines share. A question to it may lose its answer. Announcements reach the others, unless they are lost.
#[derive(Debug)]
struct SharedStore {
    memory: Arc<MemoryStore>,
    calls: Arc<AtomicU64>,
    others: Arc<Mutex<Vec<mpsc::UnboundedSender<Vec<Called>>>>>,
    announced: AsyncMutex<mpsc::UnboundedReceiver<Vec<Called>>>,
    loses_announcements: bool,
    /// Answers that are lost next.
    lost: Arc<AtomicU64>,
    /// Answers to renewals that are lost next.
    lost_renewals: Arc<AtomicU64>,
}

impl Store for SharedStore {
    fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<StoreAnswer, StoreError>> + Send {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let lost = match request.verb {
            Verb::Renew { .. } => [&self.lost, &self.lost_renewals],
            _ => [&self.lost; 2],
        };
        let is_lost = lost.iter().any(|lost| {
            let lose = |left: u64| left.checked_sub(1);
            lost.try_update(Ordering::Relaxed, Ordering::Relaxed, lose).is_ok()
        });
        let reason = "the answer is lost".to_owned();
        let deciding = self.memory.decide(request, at);
        async move {
            let decided = deciding.await;
            match is_lost {
                true => Err(StoreError::Unavailable { reason, executed: Executed::Perhaps }),
                false => decided,
            }
        }
    }

    async fn announce(&self, called: &[Called]) {
        if !self.loses_announcements {
            for other in &*self.others.lock().expect("no test panics here") {
                drop(other.send(called.to_vec()));
            }
        }
    }

    async fn announced(&self) -> Vec<Called> {
        self.announced.lock().await.recv().await.expect("the store has a sender")
    }
}

fn policies() -> PolicySet {
    PolicySet::new(Document::parse(POLICIES).expect("the policies of the test"))
}

fn engine() -> Arc<Engine> {
    let clock = Arc::new(TokioClock(Instant::now()));
    Arc::new(Engine::new(policies(), MemoryStore::default(), clock))
}

/// Engines on one store, and the number of its calls.
fn engines(
    count: usize,
    loses_announcements: bool,
) -> (Vec<Arc<Engine<SharedStore>>>, Arc<AtomicU64>) {
    let (memory, calls) = (Arc::new(MemoryStore::default()), Arc::new(AtomicU64::new(0)));
    let clock: Arc<dyn Clock> = Arc::new(TokioClock(Instant::now()));
    let others = Arc::new(Mutex::new(Vec::new()));
    let engines = (0..count).map(|_| {
        let (sender, receiver) = mpsc::unbounded_channel();
        others.lock().expect("no test panics here").push(sender);
        let store = SharedStore {
            memory: Arc::clone(&memory),
            calls: Arc::clone(&calls),
            others: Arc::clone(&others),
            announced: AsyncMutex::new(receiver),
            loses_announcements,
            lost: Arc::default(),
            lost_renewals: Arc::default(),
        };
        let engine = Engine::new(policies(), store, Arc::clone(&clock));
        let nodes = StoreFailure { nodes: NonZeroU32::MIN, keys_max: 100 };
        let engine = Arc::new(engine.with_fallback(nodes));
        let passing = Arc::clone(&engine);
        tokio::spawn(async move { passing.pass_calls().await });
        engine
    });
    (engines.collect(), calls)
}

async fn decide<S: Store + 'static>(
    engine: &Arc<Engine<S>>,
    policy: &str,
    verb: Verb,
    patience: Patience,
) -> Result<Admission, DecideError> {
    let request = Request::new(policy, Some(b"alice"), verb).with_patience(patience);
    engine.turn().decide(&request).await
}

fn acquire(id: u128) -> Verb {
    Verb::Acquire { cost: Cost::ONE, permit: PermitId(id) }
}

async fn acquired<S: Store + 'static>(
    engine: &Arc<Engine<S>>,
    policy: &str,
    id: u128,
) -> Admission {
    decide(engine, policy, acquire(id), Patience::Policy).await.expect("the store is in memory")
}

/// Acquires in a task of its own, which has asked the store when this returns.
async fn begin<S: Store + 'static>(
    engine: &Arc<Engine<S>>,
    policy: &'static str,
    id: u128,
) -> JoinHandle<Admission> {
    let engine = Arc::clone(engine);
    let task = tokio::spawn(async move { acquired(&engine, policy, id).await });
    // Time stands still, but other tasks run.
    sleep(Duration::ZERO).await;
    sleep(Duration::from_millis(1)).await;
    task
}

async fn release<S: Store + 'static>(engine: &Arc<Engine<S>>, policy: &str, id: u128) -> bool {
    let release = Verb::Release { permit: PermitId(id) };
    let released = decide(engine, policy, release, Patience::Policy).await;
    released.expect("the store is in memory").way.passes()
}

fn seconds(admission: &Admission) -> f64 {
    Duration::from(admission.held).as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn requests_get_permits_in_the_order_in_which_they_came() {
    let engine = engine();
    assert!(acquired(&engine, "one", 1).await.way.passes());
    let (second, third) = (begin(&engine, "one", 2).await, begin(&engine, "one", 3).await);
    assert_eq!(engine.held(), 2);
    sleep(Duration::from_secs(2)).await;
    assert!(release(&engine, "one", 1).await);
    let second = second.await.unwrap();
    assert_eq!((second.way.passes(), second.answer.decision.granted()), (true, 1));
    assert!((2.0..2.1).contains(&seconds(&second)), "{second:?}");
    assert!(!third.is_finished());
    assert!(release(&engine, "one", 2).await);
    assert!(third.await.unwrap().way.passes());
    assert_eq!(engine.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_request_does_not_pass_those_that_wait() {
    let engine = engine();
    acquired(&engine, "one", 1).await;
    let second = begin(&engine, "one", 2).await;
    // Between the release and the second's question, another request asks.
    let (released, other) = tokio::join!(
        release(&engine, "one", 1),
        decide(&engine, "one", acquire(9), Patience::None)
    );
    assert!(released);
    assert_eq!(other.unwrap().way, Disposition::Refused);
    assert!(second.await.unwrap().way.passes());
}

#[tokio::test(start_paused = true)]
async fn a_request_is_refused_when_its_wait_is_over_and_its_ticket_is_given_back() {
    let engine = engine();
    acquired(&engine, "one", 1).await;
    let refused = acquired(&engine, "one", 2).await;
    assert_eq!((&refused.way, refused.held), (&Disposition::Refused, Micros::from_secs(10)));
    assert!(refused.answer.decision.retry_after().is_some_and(|retry| retry > Micros::ZERO));
    assert_eq!(refused.answer.decision.granted(), 0);
    sleep(Duration::from_millis(1)).await;
    assert!(release(&engine, "one", 1).await);
    let next = decide(&engine, "one", acquire(3), Patience::None).await.unwrap();
    assert!(next.way.passes(), "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_refused_at_once_if_the_queue_is_full() {
    let engine = engine();
    acquired(&engine, "one", 1).await;
    let mut waiting = Vec::new();
    for id in 2..5 {
        waiting.push(begin(&engine, "one", id).await);
    }
    let refused = acquired(&engine, "one", 5).await;
    assert_eq!((refused.way, refused.held), (Disposition::Refused, Micros::ZERO));
    assert!(waiting.iter().all(|task| !task.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_caller_goes_away_passes_its_turn() {
    let engine = engine();
    acquired(&engine, "one", 1).await;
    let (second, third) = (begin(&engine, "one", 2).await, begin(&engine, "one", 3).await);
    second.abort();
    sleep(Duration::from_millis(1)).await;
    assert!(release(&engine, "one", 1).await);
    assert!(seconds(&third.await.unwrap()) < 0.1);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_lapses_is_taken_within_a_second() {
    let engine = engine();
    acquired(&engine, "five", 1).await;
    for id in 2..6 {
        acquired(&engine, "five", id).await;
    }
    let waited = seconds(&acquired(&engine, "five", 9).await);
    assert!((59.0..61.0).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_a_request_is_its_own_and_the_overflow_that_of_the_policy() {
    let engine = engine();
    acquired(&engine, "tag", 1).await;
    let at_once = acquired(&engine, "tag", 2).await;
    assert_eq!(
        (at_once.way.fallback(), at_once.held),
        (Some(&Fallback::Tag("cached".into())), Micros::ZERO)
    );
    let patience = Patience::Permit(Micros::from_secs(2));
    let later = decide(&engine, "tag", acquire(2), patience).await.unwrap();
    assert_eq!(later.way.fallback(), Some(&Fallback::Tag("cached".into())));
    assert_eq!(later.held, Micros::from_secs(2));
    // Without a queue nothing can be waited for, and the error says so.
    for policy in ["none", "rate"] {
        let error = decide(&engine, policy, acquire(1), patience).await.unwrap_err().to_string();
        assert!(error.contains("`concurrency` rule"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_beside_the_permits_makes_a_request_wait_too() {
    let engine = engine();
    assert!(acquired(&engine, "both", 1).await.way.passes());
    let second = acquired(&engine, "both", 2).await;
    assert!(second.way.passes() && (0.9..1.2).contains(&seconds(&second)), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_hears_of_a_permit_that_another_process_releases() {
    let (engines, _) = engines(2, false);
    acquired(&engines[0], "one", 1).await;
    let second = begin(&engines[1], "one", 2).await;
    sleep(Duration::from_millis(1_300)).await;
    assert!(release(&engines[0], "one", 1).await);
    let waited = seconds(&second.await.unwrap());
    assert!((1.3..1.4).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_request_asks_within_a_second_if_the_call_is_lost() {
    let (engines, _) = engines(2, true);
    acquired(&engines[0], "one", 1).await;
    let second = begin(&engines[1], "one", 2).await;
    sleep(Duration::from_millis(1_300)).await;
    assert!(release(&engines[0], "one", 1).await);
    let waited = seconds(&second.await.unwrap());
    assert!((1.3..2.4).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_process_that_dies_pass_their_turn_within_three_seconds() {
    let (engines, _) = engines(2, false);
    acquired(&engines[0], "one", 1).await;
    // Its ticket stays, and nothing asks for it any more.
    let (permit, process) = (PermitId(7), sluicegate_kernel::ProcessId(7));
    let dead = Verb::Wait { cost: Cost::ONE, permit, process };
    let dead = decide(&engines[0], "one", dead, Patience::None).await.unwrap();
    assert_eq!(dead.answer.decision.granted(), 0);
    let second = begin(&engines[1], "one", 2).await;
    assert!(release(&engines[0], "one", 1).await);
    let waited = seconds(&second.await.unwrap());
    assert!((2.0..4.1).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn many_that_wait_keep_their_order_and_cost_few_calls() {
    const WAITERS: u128 = 200;
    let (engines, calls) = engines(3, false);
    let begun = Instant::now();
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for id in 0..WAITERS {
        let engine = Arc::clone(&engines[usize::try_from(id % 3).unwrap()]);
        let (order, held) = (Arc::clone(&order), Arc::clone(&held));
        tasks.push(tokio::spawn(async move {
            let admission = acquired(&engine, "five", id).await;
            assert!(admission.way.passes(), "{admission:?}");
            assert!(held.fetch_add(1, Ordering::Relaxed) < 5, "more than five hold a permit");
            order.lock().unwrap().push(id);
            sleep(Duration::from_millis(100)).await;
            held.fetch_sub(1, Ordering::Relaxed);
            assert!(release(&engine, "five", id).await);
        }));
        sleep(Duration::from_micros(10)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    let late = (0_u128..).zip(&*order).map(|(place, id)| place.abs_diff(*id)).max().unwrap();
    assert!(late <= 2, "{late} places: {order:?}");
    // A release each, two questions of each that waits, and one a second of each process.
    let (calls, seconds) = (calls.load(Ordering::Relaxed), begun.elapsed().as_secs() + 1);
    let most = 3 * u64::try_from(WAITERS).unwrap() + 3 * seconds;
    assert!(calls <= most, "{calls} calls in {seconds} s, at most {most}");
    let took = begun.elapsed().as_secs_f64();
    assert!((4.0..4.5).contains(&took), "{took} s for 40 rounds of 100 ms");
}

#[tokio::test(start_paused = true)]
async fn requests_that_another_rule_refuses_do_not_wake_each_other_for_ever() {
    let (engines, calls) = engines(2, false);
    let dear = |id| Verb::Acquire { cost: Cost::new(8).expect("eight"), permit: PermitId(id) };
    let first = decide(&engines[0], "dear", dear(1), Patience::Policy).await.unwrap();
    assert!(first.way.passes());
    let begun = Instant::now();
    let mut waiting = Vec::new();
    for id in 2..6 {
        let engine = Arc::clone(&engines[usize::try_from(id % 2).unwrap()]);
        waiting.push(tokio::spawn(async move {
            decide(&engine, "dear", dear(id), Patience::Policy).await.unwrap()
        }));
        sleep(Duration::from_millis(1)).await;
    }
    for task in waiting {
        assert!(task.await.unwrap().way.passes());
    }
    let (calls, seconds) = (calls.load(Ordering::Relaxed), begun.elapsed().as_secs());
    assert!(seconds < 45 && calls <= 3 * 6 + 4 * seconds, "{calls} calls in {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_permit_whose_answer_was_lost_is_found_by_the_next_question() {
    let (engines, _) = engines(1, false);
    let engine = &engines[0];
    acquired(engine, "one", 1).await;
    let second = begin(engine, "one", 2).await;
    engine.store().lost.store(2, Ordering::Relaxed);
    // The answers to the release, and to the question of the request that it calls: by the second of them it holds a permit.
    let verb = Verb::Release { permit: PermitId(1) };
    assert!(decide(engine, "one", verb, Patience::Policy).await.is_err());
    let passed = second.await.unwrap();
    assert!(passed.way.passes(), "{passed:?}");
    assert_eq!(passed.answer.decision.granted(), 1);
}

#[tokio::test(start_paused = true)]
async fn keys_may_wait_for_permits_of_the_same_name() {
    let engine = engine();
    let about = async |key: &'static [u8], verb| {
        let request = Request::new("one", Some(key), verb).with_patience(Patience::Policy);
        engine.turn().decide(&request).await.expect("the store is in memory")
    };
    for key in [b"a", b"b"] {
        assert!(about(key, acquire(1)).await.way.passes());
    }
    let waits = |key: &'static [u8]| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move {
            let request = Request::new("one", Some(key), acquire(2));
            engine.turn().decide(&request.with_patience(Patience::Policy)).await.unwrap()
        })
    };
    let (of_a, of_b) = (waits(b"a"), waits(b"b"));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(engine.held(), 2);
    for key in [b"a", b"b"] {
        about(key, Verb::Release { permit: PermitId(1) }).await;
    }
    for task in [of_a, of_b] {
        assert!(seconds(&task.await.unwrap()) < 0.1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_ticket_that_no_request_wants_is_given_back_when_it_is_called() {
    let (engines, _) = engines(1, false);
    let engine = &engines[0];
    acquired(engine, "five", 1).await;
    for id in 2..6 {
        acquired(engine, "five", id).await;
    }
    let first = begin(engine, "five", 7).await;
    // Its caller goes away, and the call that gives its ticket back is lost.
    let second = begin(engine, "five", 8).await;
    engine.store().lost.store(1, Ordering::Relaxed);
    first.abort();
    sleep(Duration::from_millis(1)).await;
    assert!(release(engine, "five", 1).await);
    let waited = seconds(&second.await.unwrap());
    assert!(waited < 2.5, "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn requests_that_come_and_go_do_not_put_off_the_look_of_the_first() {
    let engine = engine();
    let patience = |ms| Patience::Permit(Micros::from_millis(ms));
    let acquire_in_task = |id, patience| {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { decide(&engine, "short", acquire(id), patience).await.unwrap() })
    };
    assert!(acquired(&engine, "short", 1).await.way.passes());
    let second = acquire_in_task(2, patience(400));
    sleep(Duration::from_millis(1)).await;
    let third = acquire_in_task(3, patience(9_000));
    // The permit lapses after 1.5 s, and nobody releases it.
    for id in 4..20 {
        sleep(Duration::from_millis(200)).await;
        drop(acquire_in_task(id, patience(100)));
    }
    assert!(!second.await.unwrap().way.passes());
    let waited = seconds(&third.await.unwrap());
    assert!((1.4..2.6).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_renewal_has_no_answer_goes_on_waiting() {
    let (engines, _) = engines(1, false);
    let engine = &engines[0];
    acquired(engine, "deny", 1).await;
    let second = begin(engine, "deny", 2).await;
    // The answer to the release is lost, and that to the question by which the second holds a permit.
    engine.store().lost.store(2, Ordering::Relaxed);
    engine.store().lost_renewals.store(1, Ordering::Relaxed);
    let verb = Verb::Release { permit: PermitId(1) };
    assert!(decide(engine, "deny", verb, Patience::Policy).await.is_err());
    let passed = second.await.unwrap();
    assert!(passed.way.passes(), "{passed:?}");
    assert_eq!(engine.store().lost_renewals.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_ticket_is_given_back_outside_of_a_runtime_if_calls_are_passed_on() {
    let (engines, _) = engines(1, false);
    let engine = Arc::clone(&engines[0]);
    acquired(&engine, "one", 1).await;
    let mut waiting = Box::pin({
        let engine = Arc::clone(&engine);
        async move { acquired(&engine, "one", 2).await }
    });
    let polled = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending()));
    assert!(polled.await, "it waits");
    // The task that passes calls on begins.
    sleep(Duration::from_millis(1)).await;
    std::thread::spawn(|| drop(waiting)).join().unwrap();
    sleep(Duration::from_millis(1)).await;
    assert!(release(&engine, "one", 1).await);
    let next = decide(&engine, "one", acquire(3), Patience::None).await.unwrap();
    assert!(next.way.passes(), "{next:?}");
}

/// Acquires at the first of two engines while the store executes the request and its answer is lost. Returns the engines and
/// the answer.
async fn granted_too_late(
    policy: &str,
    is_unnamed: bool,
) -> (Vec<Arc<Engine<SharedStore>>>, Arc<AtomicU64>, Admission) {
    let (engines, calls) = engines(2, false);
    engines[0].store().lost.store(1, Ordering::Relaxed);
    let request = Request::new(policy, Some(b"alice"), acquire(1));
    let request = Request { is_permit_unnamed: is_unnamed, ..request };
    let answered = engines[0].turn().decide(&request).await.expect("a policy without a store");
    (engines, calls, answered)
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_granted_after_the_refusal_of_its_request_is_free_within_a_second() {
    for policy in ["strict", "none"] {
        let (engines, calls, answered) = granted_too_late(policy, true).await;
        let is_local = policy == "none";
        assert_eq!(answered.way.passes(), is_local, "{policy} decides without the store");
        assert!(!acquired(&engines[1], policy, 2).await.way.passes(), "the store has granted it");
        sleep(Duration::from_secs(1)).await;
        assert!(acquired(&engines[1], policy, 3).await.way.passes(), "{policy}");
        sleep(Duration::from_secs(30)).await;
        assert_eq!(calls.load(Ordering::Relaxed), 4, "one release was enough");
        if is_local {
            // What the engine granted by its share is its caller's.
            assert!(release(&engines[0], policy, 1).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_whose_id_its_caller_knows_is_left_to_it() {
    let (engines, calls, answered) = granted_too_late("strict", false).await;
    assert!(!answered.way.passes());
    sleep(Duration::from_secs(30)).await;
    assert!(!acquired(&engines[1], "strict", 2).await.way.passes());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert!(release(&engines[0], "strict", 1).await);
}

#[tokio::test(start_paused = true)]
async fn a_late_grant_is_released_again_until_the_store_has_answered() {
    let (engines, calls, _) = granted_too_late("strict", true).await;
    engines[0].store().lost.store(5, Ordering::Relaxed);
    sleep(Duration::from_secs(30)).await;
    // The acquire, five releases without an answer, and two answers that it is not held.
    assert_eq!(calls.load(Ordering::Relaxed), 8);
    engines[0].store().lost.store(u64::MAX, Ordering::Relaxed);
    let request = Request::new("strict", Some(b"alice"), acquire(2));
    let request = Request { is_permit_unnamed: true, ..request };
    assert!(!engines[0].turn().decide(&request).await.expect("it is refused").way.passes());
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 8 + 1 + 20, "not for ever");
}

#[tokio::test(start_paused = true)]
async fn late_grants_of_requests_that_were_sent_together_are_released() {
    let (engines, calls) = engines(1, false);
    engines[0].store().lost.store(2, Ordering::Relaxed);
    let requests = [1, 2].map(|id| {
        let key: &[u8] = if id == 1 { b"alice" } else { b"bob" };
        let request = Request::new("strict", Some(key), acquire(id));
        Request { is_permit_unnamed: true, ..request }
    });
    for answered in engines[0].turn().decide_each(&requests).await {
        assert!(!answered.expect("each is refused").way.passes());
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    for answered in engines[0].turn().decide_each(&requests).await {
        assert!(answered.expect("each is decided").way.passes());
    }
}
