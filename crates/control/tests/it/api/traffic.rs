//! Results of requests, over HTTP: two nodes on one catalog.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use sluicegate::Micros;
use sluicegate_control::catalog::{Node, NodeReport};
use sluicegate_control::traffic::{
    Bucket, Counts, EventFuture, LiveEvent, LiveStream, LiveTraffic, PolicyCounts, RefusedKey,
    SHED, Step, StreamFilter, WITHOUT_STORE,
};

use crate::api::client::{Client, NOW_S, Served, document};

/// Now is a multiple of both steps.
const NOW: i64 = NOW_S as i64 * 1_000;

/// The node that is asked, with one bucket that it has not written yet.
#[derive(Debug)]
struct Own;

fn bucket(at: i64, policy: &str, [allowed, refused]: [u64; 2]) -> Bucket {
    let counts = Counts([allowed, 0, 0, 0, 0, refused, 0, 0, 0]);
    let key = |refused| RefusedKey {
        key: Some("ann".to_owned()),
        key_is_cut: false,
        refused_at_least: refused,
        refused_at_most: refused,
    };
    let top = if refused > 0 { vec![key(refused)] } else { Vec::new() };
    Bucket { at, policies: vec![PolicyCounts { policy: policy.to_owned(), counts, top }] }
}

impl LiveTraffic for Own {
    fn node(&self) -> &'static str {
        "a"
    }

    fn revision(&self) -> i64 {
        4
    }

    fn through(&self, step: Step) -> Option<i64> {
        (step == Step::Fine).then_some(NOW)
    }

    fn buckets(&self, step: Step, since: i64, known: &BTreeSet<i64>) -> Vec<Bucket> {
        let all = [bucket(NOW - 20_000, "orders", [1, 1]), bucket(NOW - 10_000, "orders", [3, 4])];
        let all =
            all.into_iter().filter(|bucket| bucket.at >= since && !known.contains(&bucket.at));
        if step == Step::Fine { all.collect() } else { Vec::new() }
    }

    fn top(&self, policy: &str, _: usize) -> Option<Vec<RefusedKey>> {
        (policy == "orders").then(|| bucket(0, policy, [0, 5]).policies.remove(0).top)
    }

    fn watch(&self, filter: StreamFilter) -> Option<Box<dyn LiveStream>> {
        // One with a tail ends, others go on for ever.
        let left = filter.tail.map(|_| 30);
        let counts = filter.policies.iter().map(|_| Counts([2, 0, 0, 0, 0, 1, 0, 0, 0])).collect();
        Some(Box::new(OwnStream { counts, left }))
    }
}

/// One second, and 30 decisions.
struct OwnStream {
    counts: Vec<Counts>,
    left: Option<usize>,
}

impl LiveStream for OwnStream {
    fn next(&mut self) -> EventFuture<'_> {
        Box::pin(async {
            let counts = std::mem::take(&mut self.counts);
            if !counts.is_empty() {
                return Some(LiveEvent::Tick { at: NOW, counts });
            }
            let Some(left) = &mut self.left else { return std::future::pending().await };
            *left = left.checked_sub(1)?;
            Some(LiveEvent::Decision(r#"{"policy":"orders"}"#.to_owned()))
        })
    }
}

/// An app `shop` with the policies `orders` and `mails`, one `other` with `files`, and rows of two nodes.
async fn stage() -> (Served, Client) {
    let (served, ada) = Served::with_admin_of(|api| api.with_traffic(Arc::new(Own))).await;
    for (app, policy) in [("shop", "orders"), ("shop", "mails"), ("other", "files")] {
        served.ask(&ada, "POST /apps", Some(json!({ "name": app }))).await;
        let new = json!({ "document": document(policy, "100/s"), "state": "active" });
        let path = format!("POST /apps/{app}/policies?reason=new");
        assert_eq!(served.ask(&ada, &path, Some(new)).await.status, 201);
    }
    let catalog = &served.catalog;
    for (name, through) in [("a", NOW - 10_000), ("b", NOW - 20_000), ("old", 0)] {
        let seen_at = if name == "old" { NOW - 7_200_000 } else { NOW };
        let (software, started_at) = ("1".to_owned(), NOW);
        let node = Node { name: name.to_owned(), software, revision: 3, started_at, seen_at };
        catalog.record_node(&node, 0).await.expect("it is kept");
        let report = NodeReport { ready: true, through: [through, 0], ..NodeReport::default() };
        catalog.record_report(name, &report).await.expect("it is kept");
    }
    for (node, at, policy, counts) in [
        ("a", NOW - 20_000, "orders", [10, 2]),
        ("b", NOW - 20_000, "files", [7, 0]),
        ("b", NOW - 30_000, "orders", [5, 6]),
        ("b", NOW + 3_600_000, "orders", [1_000, 0]),
    ] {
        catalog
            .record_traffic(node, Step::Fine, &bucket(at, policy, counts))
            .await
            .expect("it is kept");
    }
    (served, ada)
}

#[tokio::test]
async fn series_add_up_over_nodes_and_say_who_has_not_reported() {
    let (served, ada) = stage().await;
    let since = NOW - 40_000;
    let path = format!("GET /apps/shop/traffic?policy=orders&since={since}&step=10s");
    let answer = served.ask(&ada, &path, None).await;
    let Json::Object(body) = &answer.body else { panic!("{answer:?}") };
    assert_eq!((&body["step_ms"], &body["from"]), (&json!(10_000), &json!(since)));
    let nodes = json!([
        { "name": "a", "seen_at": NOW, "through": NOW },
        { "name": "b", "seen_at": NOW, "through": NOW - 10_000 },
    ]);
    assert_eq!(body["nodes"], nodes, "the one that is gone is not waited for");
    let series = &body["series"][0];
    assert_eq!(series["policy"], "orders");
    assert_eq!(series["allowed"], json!([0, 5, 10, 3]), "a bucket that is written counts once");
    assert_eq!(series["refused"], json!([0, 6, 2, 4]));
    assert_eq!(body["series"].as_array().unwrap().len(), 1);
    let mark = &body["marks"][0];
    assert_eq!((&mark["policy"], &mark["version"]), (&json!("orders"), &json!(1)));
    assert_eq!((&mark["state"], &mark["reason"]), (&json!("active"), &json!("new")));
    let limits =
        json!([{ "policy": "orders", "rule": "token_bucket", "per_second": 100.0, "burst": 100 }]);
    assert_eq!(body["limits"], limits);

    let tag = answer.headers["etag"].to_str().unwrap();
    let again = served.ask(&ada.with("if-none-match", tag), &path, None).await;
    assert_eq!((again.status.as_u16(), &again.body), (304, &Json::Null));
}

#[tokio::test]
async fn a_summary_has_all_policies_of_the_app_and_the_overview_the_apps_of_who_asks() {
    let (served, ada) = stage().await;
    let answer = served.ask(&ada, "GET /apps/shop/traffic?summary=1", None).await;
    let of = &answer.body["summary"][0];
    let found = (&of["name"], &of["decided"], &of["refused"]);
    assert_eq!(found, (&json!("orders"), &json!(30), &json!(12)), "{answer:?}");
    let points = of["decided_at"].as_array().unwrap();
    assert_eq!(points.len(), 30);
    assert_eq!(points[27..], [json!(11), json!(12), json!(7)]);
    assert_eq!(answer.body["summary"].as_array().unwrap().len(), 1, "of others there is nothing");

    let vera = served.member(&ada, "vera", "other", "viewer").await;
    for (client, apps) in [(&ada, vec!["shop", "other"]), (&vera, vec!["other"])] {
        let answer = served.ask(client, "GET /traffic", None).await;
        let lines = answer.body["apps"].as_array().unwrap();
        let names: Vec<_> = lines.iter().map(|line| line["name"].as_str().unwrap()).collect();
        assert_eq!(names, apps);
    }
}

#[tokio::test]
async fn what_is_asked_for_is_the_apps_and_has_bounds() {
    let (served, ada) = stage().await;
    for (query, status) in [
        ("policy=files", 404),
        ("policy=none", 404),
        ("step=1s", 400),
        ("since=x", 400),
        ("summary=2", 400),
        ("policy=orders,mails&step=5m", 200),
        ("since=0", 200),
        ("since=9999999999999", 200),
    ] {
        let answer = served.ask(&ada, &format!("GET /apps/shop/traffic?{query}"), None).await;
        assert_eq!(answer.status.as_u16(), status, "{query}: {answer:?}");
        if status == 200 {
            let points = answer.body["series"][0]["allowed"].as_array().unwrap().len();
            assert!(points <= 420, "{query}: {points}");
        }
    }
    for number in 0..50 {
        let new = json!({ "document": document(&format!("p{number}"), "1/s") });
        served.ask(&ada, "POST /apps/shop/policies", Some(new)).await;
    }
    let all = served.ask(&ada, "GET /apps/shop/traffic", None).await;
    assert_eq!(all.status, 400, "there are more than 50");
    assert_eq!(served.ask(&ada, "GET /apps/none/traffic", None).await.status, 404);
}

#[tokio::test]
async fn who_is_signed_in_sees_the_fleet() {
    let (served, ada) = stage().await;
    let vera = served.member(&ada, "vera", "other", "viewer").await;
    let fleet = served.ask(&vera, "GET /fleet", None).await;
    let names = fleet.body["nodes"].as_array().unwrap().iter().map(|node| &node["name"]);
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "old"]);
    let node = &fleet.body["nodes"][0];
    assert_eq!((&node["revision"], &node["report"]["ready"]), (&json!(3), &json!(true)));
    assert!(fleet.body["revision"].as_i64().unwrap() >= 3);
}

#[tokio::test]
async fn a_stream_has_seconds_revisions_and_so_many_decisions() {
    let (served, ada) = stage().await;
    let path = "GET /apps/shop/stream?policy=orders,mails&tail=orders&result=refused";
    let answer = served.ask(&ada, path, None).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let text = answer.body.as_str().unwrap();
    let events: Vec<_> = text.split_terminator("\n\n").collect();
    assert_eq!(events[0], "event: revision\ndata: {\"revision\":4}");
    let tick = events[1].strip_prefix("event: tick\ndata: ").unwrap();
    let tick: Json = serde_json::from_str(tick).unwrap();
    assert_eq!((&tick["at"], &tick["node"]), (&json!(NOW), &json!("a")));
    assert_eq!(tick["counts"]["orders"]["allowed"], json!(2));
    assert_eq!(tick["counts"]["mails"]["refused"], json!(1));
    let decisions = events.iter().filter(|event| event.starts_with("event: decision\n"));
    assert_eq!(decisions.count(), 20, "in one second");
    assert!(events[events.len() - 1].starts_with("event: end\n"), "{text}");

    for query in ["policy=files", "tail=files", "tail=none"] {
        let answer = served.ask(&ada, &format!("GET /apps/shop/stream?{query}"), None).await;
        assert_eq!(answer.status, 404, "{query}");
    }
    let answer = served.ask(&ada, "GET /apps/shop/stream?tail=orders&result=x", None).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test]
async fn streams_have_a_bound_and_end_soon_after_the_role_is_lost() {
    let (served, ada) = stage().await;
    let vera = served.member(&ada, "vera", "shop", "viewer").await;
    let watch = || served.ask(&vera, "GET /apps/shop/stream?policy=orders", None);
    let losing = async {
        // The others are open by now: they are asked in the order of the list.
        assert_eq!(watch().await.status, 429);
        let answer = served.ask(&ada, "DELETE /apps/shop/members/vera", None).await;
        assert_eq!(answer.status, 204);
        tokio::time::Instant::now()
    };
    let opened = async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        losing.await
    };
    let (first, second, lost_at) = tokio::join!(watch(), watch(), opened);
    assert!(lost_at.elapsed().as_secs() < 11, "{:?}", lost_at.elapsed());
    for answer in [first, second] {
        assert!(answer.body.as_str().unwrap().contains("event: end\n"), "{answer:?}");
    }
    assert_eq!(watch().await.status, 403);
}

#[tokio::test]
async fn refused_keys_add_up_over_nodes() {
    let (served, ada) = stage().await;
    let top = served.ask(&ada, "GET /apps/shop/policies/orders/top", None).await;
    let key = |refused| json!({ "key": "ann", "key_is_cut": false, "refused_at_least": refused, "refused_at_most": refused });
    // This node counts five itself, and the other wrote six.
    assert_eq!(top.body, json!({ "counted": true, "keys": [key(11)] }));
    let top = served.ask(&ada, "GET /apps/shop/policies/mails/top", None).await;
    assert_eq!(top.body, json!({ "counted": false, "keys": [] }));
    let top = served.ask(&ada, "GET /apps/shop/policies/files/top", None).await;
    assert_eq!(top.status, 404);
}

#[tokio::test]
async fn a_rollout_counts_since_the_policy_is_in_shadow_mode() {
    let (served, ada) = stage().await;
    let rollout = "GET /apps/shop/policies/orders/rollout";
    let active = served.ask(&ada, rollout, None).await;
    assert_eq!(
        (&active.body["in_shadow_since"], &active.body["decided"]),
        (&Json::Null, &json!(0))
    );
    let path = "POST /apps/shop/policies/orders/shadow";
    assert_eq!(served.ask(&ada.at_version(1), path, None).await.status, 200);
    for (at, shadowed) in [(NOW - 40_000, 100), (NOW, 3), (NOW + 10_000, 4)] {
        let mut bucket = bucket(at, "orders", [10, 0]);
        bucket.policies[0].counts.0[2] = shadowed;
        bucket.policies[0].counts.0[WITHOUT_STORE] = 1;
        bucket.policies[0].counts.0[SHED] = 2;
        served.catalog.record_traffic("c", Step::Fine, &bucket).await.unwrap();
    }
    served.clock.advance(Micros::from_secs(40));
    let shadow = served.ask(&ada, rollout, None).await;
    let expected = json!({
        "in_shadow_since": NOW, "from": NOW, "decided": 31, "shadowed": 7, "shed": 4,
        "without_store": 2, "keys_at_least": 1,
    });
    assert_eq!(shadow.body, expected);
}
