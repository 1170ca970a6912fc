//! Several nodes of one catalog.

use serde_json::{Value, json};
use sluicegate_testkit::{
    Client, FaultProxy, Faults, Options, RedisServer, Reply, SqlKind, SqlServer, need,
};

use crate::catalog::stage::{Node, Who, policy, until};
use crate::program::PATIENCE;

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_holds_on_every_node_of_a_fleet_that_shares_its_budgets() {
    let database = need!(SqlServer::shared(SqlKind::Postgres).await).database().unwrap();
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = format!("[store]\nurl = 'redis://{}'\nnodes = 3\n", redis.address());
    let nodes = [(); 3].map(|()| Node::start(&database, &store));
    let ada = nodes[0].set_up();
    nodes[0].admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 5), "state": "active" });
    assert_eq!(nodes[0].admin(&ada, "POST", "/apps/shop/policies", &new).0, 201);
    until(|| nodes.iter().all(|node| node.limit("orders") == Some(5)));
    let codes = (0..6).map(|at| nodes[at % 3].check(&Who::default(), "orders", "k").1);
    let codes: Vec<_> = codes.map(|answer| answer["code"].as_i64().unwrap()).collect();
    assert_eq!(codes, [1, 1, 1, 1, 1, -1]);

    // A session of one node is valid at the others, and a change at one is in force at all.
    let change = json!({ "document": policy("orders", 7) });
    let path = "/apps/shop/policies/orders";
    assert_eq!(nodes[2].admin(&ada.of_version(1), "PUT", path, &change).0, 200);
    until(|| nodes.iter().all(|node| node.limit("orders") == Some(7)));
    assert_eq!(nodes[1].check(&Who::default(), "orders", "k").1["remaining"], json!(1));
    until(|| {
        let (_, seen) = nodes[1].admin(&ada, "GET", "/nodes", &Value::Null);
        let revisions: Vec<_> = seen["items"].as_array().unwrap().iter().collect();
        revisions.len() == 3 && revisions.iter().all(|node| node["revision"] == json!(2))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_go_to_redis_find_the_policies_there_also_after_it_lost_its_data() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = format!("[store]\nurl = 'redis://{}'\n", redis.address());
    let node = Node::start("sqlite:DIR/catalog.db", &store);
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 5) });
    node.admin(&ada, "POST", "/apps/shop/policies", &new);
    let mut client = Client::connect(redis.address()).await.unwrap();
    let is_published = async |client: &mut Client, text: &str| {
        let asking = sluicegate_testkit::until("the policy in Redis", PATIENCE, async || {
            let found = client.call(&["HGET", "sg:{policies}", "orders"]).await.unwrap();
            let Reply::Bytes(found) = found else { return None };
            String::from_utf8(found).unwrap().contains(text).then_some(())
        });
        asking.await.unwrap();
    };
    is_published(&mut client, r#""state":"shadow""#).await;
    let path = "/apps/shop/policies/orders";
    node.admin(&ada.of_version(1), "POST", &format!("{path}/activate"), &Value::Null);
    is_published(&mut client, r#""state":"active""#).await;
    client.call(&["FLUSHALL"]).await.unwrap();
    is_published(&mut client, r#""state":"active""#).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nodes_hold_on_lease_is_said_of_a_key() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = format!("[store]\nurl = 'redis://{}'\n", redis.address());
    let node = Node::start("sqlite:DIR/catalog.db", &store);
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 100_000), "state": "active" });
    node.admin(&ada, "POST", "/apps/shop/policies", &new);
    until(|| node.limit("orders") == Some(100_000));
    let path = "/apps/shop/policies/orders/keys/explain";
    let leased = |key: &str| {
        let explain = json!({ "key": key });
        node.admin(&ada, "POST", path, &explain).1["leased"].clone()
    };
    until(|| {
        (0..20).for_each(|_| drop(node.check(&Who::default(), "orders", "hot")));
        leased("hot").is_object()
    });
    let held = leased("hot");
    assert_eq!(held["holders"], 1, "{held}");
    assert!(held["out"].as_u64() >= held["here"].as_u64(), "{held}");
    assert_eq!(leased("cold"), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_is_not_invented_while_the_store_hangs() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let store = format!("[store]\nurl = 'redis://{}'\n", redis.address());
    let node = Node::start("sqlite:DIR/catalog.db", &store);
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 1_000), "state": "active" });
    node.admin(&ada, "POST", "/apps/shop/policies", &new);
    until(|| node.limit("orders") == Some(1_000));
    let peek = || {
        let key = json!({ "key": "ann" });
        node.admin(&ada, "POST", "/apps/shop/policies/orders/keys/peek", &key)
    };
    let (status, known) = peek();
    assert_eq!((status, &known["mode"]), (200, &json!("store")), "{known}");
    redis.stop_process().unwrap();
    for _ in 0..20 {
        let (status, told) = peek();
        let is_honest =
            status == 503 || (status == 200 && told["mode"] == "local" && told["remaining"] != 0);
        assert!(is_honest, "{status} {told}");
    }
    redis.continue_process().unwrap();
    until(|| peek().1["mode"] == "store");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_nodes_decide_and_start_by_what_it_said_last() {
    away(Faults::refuse()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_says_nothing_nodes_decide_and_start_by_what_it_said_last() {
    away(Faults::black_hole()).await;
}

/// Makes a database unreachable for a while: the network to it has these faults.
async fn away(faults: Faults) {
    let server = need!(SqlServer::shared(SqlKind::Postgres).await);
    let network = FaultProxy::start(server.address()).await.unwrap();
    let (direct, through) = (server.address().to_string(), network.address().to_string());
    let database = server.database().unwrap().replace(&direct, &through);
    assert!(database.contains(&through), "{database}");
    let mut node = Node::start(&database, "");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let new = json!({ "document": policy("orders", 5), "state": "active" });
    node.admin(&ada, "POST", "/apps/shop/policies", &new);
    until(|| node.limit("orders") == Some(5));
    until(|| node.folder.path().join("kept.json").exists());

    network.set(faults).await.unwrap();
    if faults.refuse {
        network.reset_connections().await.unwrap();
    }
    let change = json!({ "document": policy("orders", 9) });
    let path = "/apps/shop/policies/orders";
    let (status, problem) = node.admin(&ada.of_version(1), "PUT", path, &change);
    assert_eq!(status, 503, "{problem}");
    assert_eq!(node.check(&Who::default(), "orders", "k").0, 200);
    node.restart();
    assert_eq!(node.limit("orders"), Some(5));
    assert!(node.told().contains("kept.json of 2"), "{}", node.told());
    assert_eq!(node.admin(&ada, "GET", "/apps", &Value::Null).0, 503);

    network.heal().await.unwrap();
    until(|| node.admin(&ada, "GET", "/apps", &Value::Null).0 == 200);
    assert_eq!(node.limit("orders"), Some(5), "what was answered with 503 was not done");
    assert_eq!(node.admin(&ada.of_version(1), "PUT", path, &change).0, 200);
    until(|| node.limit("orders") == Some(9));
}
