//! Previews of other rate limiters' configurations by the admin API.

use serde_json::{Value, json};

use crate::catalog::stage::Node;

#[test]
fn a_preview_has_policies_and_notes_with_lines_and_changes_nothing() {
    let node = Node::start("sqlite:DIR/catalog.db", "");
    let ada = node.set_up();
    node.admin(&ada, "POST", "/apps", &json!({ "name": "shop" }));
    let vic = node.join(&ada, "vic", &[("shop", "viewer")]);
    let text = "limit_req_zone $host zone=z:1m rate=5r/s;\nserver { limit_req zone=z burst=3; }\n";
    let ask = json!({ "from": "nginx", "text": text });
    let (status, preview) = node.admin(&vic, "POST", "/apps/shop/import", &ask);
    assert_eq!(status, 200, "{preview}");
    let document = json!({
        "name": "z", "key": ["host"], "match": { "path": { "prefix": "/" } },
        "rules": [{ "name": "z", "leaky_bucket": { "rate": "5/s", "burst": 3 } }],
    });
    assert_eq!(preview["policies"], json!([{ "document": document, "comment": null }]));
    let note = &preview["notes"][0];
    assert_eq!((&note["line"], &note["code"]), (&json!(2), &json!("nginx_status")), "{preview}");
    let new = json!({ "document": preview["policies"][0]["document"] });
    let (status, made) = node.admin(&ada, "POST", "/apps/shop/policies", &new);
    assert_eq!((status, &made["state"]), (201, &json!("shadow")), "{made}");
    let (_, policies) = node.admin(&ada, "GET", "/apps/shop/policies", &Value::Null);
    assert_eq!(policies["items"].as_array().map(Vec::len), Some(1));

    for (ask, pointer, line) in [
        (json!({ "from": "nginx", "text": "a {\nb;" }), "/text", json!(1)),
        (json!({ "from": "sentinel", "text": "[\n1" }), "/text", json!(2)),
        (json!({ "from": "apache", "text": "" }), "/from", Value::Null),
        (json!({ "from": "nginx" }), "", Value::Null),
    ] {
        let (status, wrong) = node.admin(&ada, "POST", "/apps/shop/import", &ask);
        let first = &wrong["errors"][0];
        assert_eq!(status, 422, "{wrong}");
        assert!(first["pointer"].as_str().unwrap().starts_with(pointer), "{wrong}");
        assert_eq!(first["line"], line, "{wrong}");
    }
}
