//! Policies as people write them: YAML in, YAML out, and errors with their places.

use serde_json::json;

use crate::api::client::{Client, Served, document};

const ORDERS: &str = "\
name: orders # of the shop
rules:
- token_bucket: { rate: 10/s }
";

async fn shop() -> (Served, Client) {
    let (served, ada) = Served::with_admin().await;
    let app = json!({ "name": "shop" });
    assert_eq!(served.ask(&ada, "POST /apps", Some(app)).await.status, 201);
    (served, ada)
}

#[tokio::test]
async fn a_policy_is_created_changed_and_read_as_yaml() {
    let (served, ada) = shop().await;
    let policies = "POST /apps/shop/policies?state=active";
    let made = served.ask_yaml(&ada, policies, ORDERS).await;
    assert_eq!((made.status.as_u16(), &made.body["state"]), (201, &json!("active")));
    assert_eq!(made.body["document"]["rules"][0]["token_bucket"]["rate"], "10/s");
    let less = ORDERS.replace("10/s", "8/s");
    let put = "PUT /apps/shop/policies/orders";
    let changed = served.ask_yaml(&ada.at_version(1), put, &less).await;
    assert_eq!((changed.status.as_u16(), &changed.body["version"]), (200, &json!(2)));

    let get = "GET /apps/shop/policies/orders";
    let seen = served.ask(&ada.with("accept", "application/yaml"), get, None).await;
    assert_eq!(seen.headers["content-type"], "application/yaml");
    let written = "name: orders\nrules:\n- token_bucket:\n    rate: 8/s\n";
    assert_eq!((&seen.headers["etag"], &seen.body), (&"\"2\"".parse().unwrap(), &json!(written)));
    let seen = served.ask(&ada.with("accept", "*/*, application/yaml"), get, None).await;
    assert_eq!(seen.body["version"], 2, "the first that is known is given");
}

#[tokio::test]
async fn what_is_wrong_in_yaml_has_its_line_and_column() {
    let (served, ada) = shop().await;
    for (text, expected) in [
        (
            "name: orders\nrules:\n- token_bucket: { rate: fast }\n",
            json!(["/rules/0/token_bucket/rate", "bad_rate", 3, 25]),
        ),
        ("name: orders\nrules: [\n", json!(["", "syntax", 2, 8])),
        // Rules of the catalog itself, and names that it knows.
        (
            "name: .\nrules: [{ token_bucket: { rate: 1/s } }]\n",
            json!(["/name", "bad_catalog_name", 1, 7]),
        ),
        (
            "name: a\nrules: [{ token_bucket: { rate: 1/s } }]\napps: [shop, bank]\n",
            json!(["/apps/1", "app_not_found", 3, 14]),
        ),
    ] {
        let refused = served.ask_yaml(&ada, "POST /apps/shop/validate", text).await;
        let error = &refused.body["errors"][0];
        let found = ["pointer", "code", "line", "column"].map(|name| error[name].clone());
        assert_eq!((refused.status.as_u16(), json!(found)), (422, expected), "{text}");
    }
    let refused = served.ask_yaml(&ada, "POST /apps", "name: more").await;
    assert_eq!((refused.status.as_u16(), &refused.body["code"]), (415, &json!("content_type")));
    assert_eq!(served.ask(&ada, "GET /apps/shop/policies", None).await.body["items"], json!([]));
}

#[tokio::test]
async fn validating_yaml_answers_the_document_and_where_the_warnings_are() {
    let (served, ada) = shop().await;
    let body = json!({ "document": document("orders", "1000/s"), "state": "active" });
    assert_eq!(served.ask(&ada, "POST /apps/shop/policies", Some(body)).await.status, 201);
    let judged = served.ask_yaml(&ada, "POST /apps/shop/validate", ORDERS).await;
    let expected = json!({ "name": "orders", "rules": [{ "token_bucket": { "rate": "10/s" } }] });
    assert_eq!((judged.status.as_u16(), &judged.body["document"]), (200, &expected));
    let warning = &judged.body["warnings"][0];
    assert_eq!(
        ["pointer", "code", "line", "column"].map(|name| warning[name].clone()),
        [json!("/rules"), json!("limit_drops"), json!(3), json!(3)]
    );
}

#[tokio::test]
async fn an_import_by_which_more_would_pass_is_refused_unless_it_may_be_lossy() {
    let (served, ada) = shop().await;
    let text = "limit_req_zone $host zone=z:1m rate=1r/s;\nlimit_req zone=z;\nlimit_rate 5k;\n";
    let import = |lossy: bool| json!({ "from": "nginx", "text": text, "lossy": lossy });
    let refused = served.ask(&ada, "POST /apps/shop/import", Some(import(false))).await;
    let errors = refused.body["errors"].as_array().unwrap();
    let found: Vec<_> = errors.iter().map(|error| json!([error["code"], error["line"]])).collect();
    assert_eq!((refused.status.as_u16(), json!(found)), (422, json!([["nginx_bytes", 3]])));
    let lossy = served.ask(&ada, "POST /apps/shop/import", Some(import(true))).await;
    let codes = ["wider", "notes"].map(|notes| lossy.body[notes][0]["code"].clone());
    assert_eq!(
        (lossy.status.as_u16(), json!(codes)),
        (200, json!(["nginx_bytes", "nginx_status"]))
    );
    assert_eq!(lossy.body["policies"][0]["document"]["name"], "z");
}
