//! Traffic over the limit: `examples/overflow/`, on nginx.

use sluicegate_testkit::{Error, Port, need};

use super::client::{Call, get, get_at_once};
use super::nginx;
use super::stage::{App, Places, Stage, example};

/// The application and the spare one.
async fn stage() -> Result<(Stage, App, Port), Error> {
    let (spare, cache) = (App::start("spare").await?, Port::free()?);
    let policies = example("overflow/policies.yaml");
    let stage = Stage::set(&policies, &[], async |Places(places)| {
        let more = [(9001, spare.address), (8001, cache.address())];
        let places = Places([&places[..], &more].concat());
        nginx::start(&places, &example("overflow/nginx.conf"))
    });
    Ok((stage.await?, spare, cache))
}

/// The third request, for which there are only two permits.
async fn third(stage: &Stage, path: &str) -> Call {
    for _ in 0..2 {
        let call = get(stage.gateway, path, "").await;
        assert!(call.status == 200 && call.body.starts_with("app\n"), "{path}: {}", call.body);
        assert!(call.body.contains("x-sluicegate-verdict: pass"), "{path}: {}", call.body);
    }
    get(stage.gateway, path, "").await
}

#[tokio::test]
async fn over_the_limit_a_request_is_refused_diverted_degraded_or_passes_in_the_shadow() {
    let (stage, spare, _cache) = need!(stage().await);
    let refused = third(&stage, "/reject").await;
    assert_eq!((refused.status, &*refused.body), (429, "too many requests\n"));
    let retry_after = refused.header("retry-after").and_then(|text| text.parse::<u32>().ok());
    assert!(retry_after.is_some_and(|s| (1_790..=1_800).contains(&s)), "{}", refused.head);

    let degraded = third(&stage, "/degrade").await;
    assert_eq!((degraded.status, &*degraded.body), (200, "from the cache\n"));

    let diverted = third(&stage, "/divert").await;
    assert!(diverted.status == 200 && diverted.body.starts_with("spare\n"), "{}", diverted.body);
    assert_eq!(spare.requests(), 1);

    let shadow = third(&stage, "/shadow").await;
    assert!(shadow.status == 200 && shadow.body.starts_with("app\n"), "{}", shadow.body);
    assert!(shadow.body.contains("x-sluicegate-verdict: shadow"), "{}", shadow.body);
}

#[tokio::test]
async fn over_the_limit_a_request_waits_for_its_turn() {
    let (stage, _spare, _cache) = need!(stage().await);
    let calls = get_at_once(stage.gateway, "/queue", 6).await;
    assert!(calls.iter().all(|call| call.status == 200));
    let begin = calls.iter().map(|call| call.sent_us).min().unwrap();
    let mut answered: Vec<_> = calls.iter().map(|call| call.answered_us - begin).collect();
    answered.sort_unstable();
    for (place, answered_us) in (0..).zip(answered) {
        // One each 50 ms.
        assert!(answered_us >= place * 50_000 - 2_000, "{place}: {answered_us} us");
    }
    // A request that would wait for more than a second is refused at once.
    let calls = get_at_once(stage.gateway, "/queue", 60).await;
    let refused = calls.iter().filter(|call| call.status == 429).count();
    let passed = calls.iter().filter(|call| call.status == 200).count();
    assert!(refused > 0 && passed >= 20 && passed + refused == 60, "{passed} and {refused}");
}
