//! Requests that are made together get the verdicts that they would get one after the other.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, Micros, Moment, PermitId, RuleSet, SlidingLog, Verb,
};
use sluicegate_store::redis::RedisStore;
use sluicegate_store::{
    Quota, RequestAt, RuleOrigin, Store, StoreAnswer, StoreError, StoreRequest,
};
use sluicegate_testkit::{FaultProxy, Faults, Options, RedisServer, need};

use super::{bucket, connect, version};

/// A request of these tests: its key, its rules, and its verb.
type Line = (&'static [u8], Arc<RuleSet>, Verb);

const AT: Micros = Micros::from_secs(1_800_000_000);

fn requests(lines: &[Line], origin: RuleOrigin) -> Vec<RequestAt<'_>> {
    let quota = Quota::default();
    lines
        .iter()
        .map(|(key, rules, verb)| {
            let request = StoreRequest { policy: "p", key, rules, verb, origin, quota };
            RequestAt { request, at: Moment::new(AT) }
        })
        .collect()
}

/// Returns the verdicts of requests that are made one after the other.
async fn in_turn(
    store: &RedisStore,
    lines: &[Line],
    origin: RuleOrigin,
) -> Vec<Result<String, String>> {
    let mut said = Vec::new();
    for RequestAt { request, at } in requests(lines, origin) {
        said.push(shown(store.decide(&request, &at).await));
    }
    said
}

/// Returns the verdicts of requests that are made together.
async fn together(
    store: &RedisStore,
    lines: &[Line],
    origin: RuleOrigin,
) -> Vec<Result<String, String>> {
    verdicts(store, &requests(lines, origin)).await.into_iter().map(shown).collect()
}

async fn verdicts(
    store: &RedisStore,
    requests: &[RequestAt<'_>],
) -> Vec<Result<StoreAnswer, StoreError>> {
    let mut verdicts: Vec<_> = requests.iter().map(|_| None).collect();
    let mut hear = |place: usize, said| {
        assert!(verdicts[place].replace(said).is_none(), "an answer comes once");
    };
    store.decide_each(requests, &mut hear).await;
    verdicts.into_iter().map(|said| said.expect("of each")).collect()
}

fn shown(said: Result<StoreAnswer, StoreError>) -> Result<String, String> {
    said.map(|answer| format!("{answer:?}")).map_err(|error| error.to_string())
}

fn lines(burst: u64) -> Vec<Line> {
    let (bucket, log) = (bucket(1, burst), SlidingLog::new(3, Micros::SECOND).expect("a log"));
    let log = Arc::new(RuleSet::single("log", log));
    let window = FixedWindow::first(5, Micros::SECOND).expect("a window");
    let window = Arc::new(RuleSet::single("window", window));
    let jobs = Concurrency::new(2, Micros::from_secs(60), 0).expect("a limit");
    let jobs = Arc::new(RuleSet::single("jobs", jobs));
    let dear = SlidingLog::new(9_000, Micros::SECOND).expect("a log");
    let dear = Arc::new(RuleSet::single("dear", dear));
    let cost = |permits| Cost::new(permits).expect("a cost");
    let mut lines = Vec::new();
    // More than travel in one call.
    for round in 0..12 {
        lines.extend([
            (&b"bucket"[..], Arc::clone(&bucket), Verb::Check { cost: cost(1 + round % 3) }),
            (b"log", Arc::clone(&log), Verb::AtMost { cost: cost(2) }),
            (b"window", Arc::clone(&window), Verb::Check { cost: Cost::ONE }),
            (b"window", Arc::clone(&window), Verb::Peek { cost: Cost::ONE }),
            (
                b"jobs",
                Arc::clone(&jobs),
                Verb::Acquire { cost: Cost::ONE, permit: PermitId(round.into()) },
            ),
            // It hands out no permits.
            (b"log", Arc::clone(&log), Verb::Release { permit: PermitId(1) }),
            // It would take too much of Redis' time.
            (b"dear", Arc::clone(&dear), Verb::Check { cost: Cost::ONE }),
            (b"bucket", Arc::clone(&bucket), Verb::Refund { cost: Cost::ONE }),
        ]);
    }
    lines
}

#[tokio::test]
async fn what_is_asked_together_is_decided_as_one_after_the_other() {
    let server = need!(RedisServer::start(Options::default()).await);
    let one = connect(&server.url()).await.in_namespace("one");
    let all = connect(&server.url()).await.in_namespace("all");
    let origin = version(1);
    assert_eq!(together(&all, &lines(20), origin).await, in_turn(&one, &lines(20), origin).await);
    // The keys have states of other rules now. Each is asked for once: of several requests for one such
    // key any may be the first.
    let (mut others, mut keys) = (lines(7), HashSet::new());
    others.retain(|(key, ..)| keys.insert(*key));
    let origin = version(2);
    assert_eq!(together(&all, &others, origin).await, in_turn(&one, &others, origin).await);
}

#[tokio::test]
async fn requests_for_one_key_that_are_asked_at_once_are_decided_in_their_order() {
    let server = need!(RedisServer::start(Options::default()).await);
    let store = connect(&server.url()).await;
    let bucket = bucket(1, 50);
    for key in [&b"a"[..], b"b", b"c", b"d"] {
        let verb = Verb::Check { cost: Cost::ONE };
        let lines: Vec<Line> = vec![(key, Arc::clone(&bucket), verb); 100];
        // The rules are known and the state is there.
        in_turn(&store, &lines[..1], version(1))
            .await
            .into_iter()
            .for_each(|said| drop(said.expect("a verdict")));
        let requests = requests(&lines[1..], version(1));
        let said =
            join_all(requests.iter().map(|asked| store.decide(&asked.request, &asked.at))).await;
        let passed =
            said.iter().map(|said| said.as_ref().expect("an answer").verdict.decision.allowed());
        let passed: Vec<bool> = passed.collect();
        assert_eq!(passed, [vec![true; 49], vec![false; 50]].concat());
    }
}

#[tokio::test]
async fn nothing_is_nothing() {
    let server = need!(RedisServer::start(Options::default()).await);
    let store = connect(&server.url()).await;
    assert!(verdicts(&store, &[]).await.is_empty());
}

#[tokio::test]
async fn of_what_is_not_answered_it_is_unknown_whether_it_was_done() {
    let server = need!(RedisServer::start(Options::default()).await);
    let proxy = FaultProxy::start(server.address()).await.expect("a proxy");
    let url = format!("redis://{}?deadline_ms=100", proxy.address());
    let store = RedisStore::start(&url.parse().expect("a URL")).expect("a configuration");
    store.ready().await.expect("it is there");
    let lines = lines(20);
    let origin = RuleOrigin::default();
    verdicts(&store, &requests(&lines[..2], origin)).await;
    proxy.set(Faults::black_hole()).await.expect("the proxy listens");
    let begun = tokio::time::Instant::now();
    for said in verdicts(&store, &requests(&lines[..2], origin)).await {
        let error = said.expect_err("nobody answers");
        assert_eq!(error.executed(), sluicegate_store::Executed::Perhaps, "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "they are waited for together");
}
