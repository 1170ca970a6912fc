//! Single sign-on, as far as the server decides it: the configuration is in force.

use serde_json::Value;

use crate::catalog::stage::{Node, Who};

#[test]
fn who_signs_in_elsewhere_is_sent_to_the_provider_that_is_configured_which_may_be_away() {
    // Nothing listens at port 1.
    let more = "[catalog.oidc]\nissuer = 'http://127.0.0.1:1'\nclient_id = 'c'\n\
                client_secret = 's'\nredirect_url = 'http://localhost/v1/admin/oidc/callback'\n";
    let node = Node::start("sqlite:DIR/catalog.db", more);
    node.set_up();
    let login = |node: &Node| {
        let (status, said) = node.admin(&Who::default(), "GET", "/oidc/login", &Value::Null);
        (status, said["detail"].as_str().unwrap_or_default().to_owned())
    };
    let (status, detail) = login(&node);
    assert_eq!(status, 503, "{detail}");
    assert!(detail.starts_with("identity provider unavailable"), "{detail}");
    assert!(node.told().contains("oidc sign-in failed: "), "{}", node.told());
    // Passwords work while the provider is unavailable.
    node.sign_in();

    let node = Node::start("sqlite:DIR/catalog.db", "");
    node.set_up();
    let (status, detail) = login(&node);
    assert_eq!(status, 404, "{detail}");
}
