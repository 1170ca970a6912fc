//! The configurations in `docs/gateways.md` work.

use std::fs;

use sluicegate_testkit::need;

use super::audit::exactly_five_of_twenty_pass;
use super::stage::{Stage, changed, example, root};
use super::{envoy, nginx};

/// The block of `language` in the page that begins with `word`.
pub(super) fn block(language: &str, word: &str) -> String {
    let page = fs::read_to_string(root().join("docs/gateways.md")).expect("the page exists");
    let open = format!("\n```{language}\n");
    let mut blocks = page.split(&open).skip(1).filter_map(|rest| rest.split("\n```").next());
    let found = blocks.find(|block| block.starts_with(word));
    found.unwrap_or_else(|| panic!("no {language} block begins with {word}")).to_owned()
}

#[tokio::test]
async fn the_nginx_of_the_page_lets_five_of_twenty_pass() {
    let site = block("nginx", "server {");
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s", "10/h")]);
    let stage = Stage::set(&policies, &[], async |places| nginx::start(places, &site));
    exactly_five_of_twenty_pass(&need!(stage.await)).await;
}

#[tokio::test]
async fn the_envoy_of_the_page_lets_five_of_twenty_pass() {
    let policies = changed(&block("yaml", "policies:"), &[("10/s", "10/h")]);
    let envoy = block("yaml", "static_resources:");
    let stage = envoy::stage(&envoy, &policies, &[]);
    exactly_five_of_twenty_pass(&need!(stage.await)).await;
}

#[tokio::test]
async fn behind_the_nginx_of_the_page_a_client_does_not_choose_its_host() {
    let site = block("nginx", "server {");
    let policies =
        "policies: [ { name: site, key: [host], rules: [ { token_bucket: { rate: 1/h } } ] } ]";
    // A request probes whether the gateway answers, so there is one more permit.
    let stage = Stage::set(policies, &[], async |places| nginx::start(places, &site));
    let stage = need!(stage.await);
    for forged in ["x-forwarded-host: a\r\n", "x-original-host: b\r\n"] {
        assert_eq!(super::client::get(stage.gateway, "/", forged).await.status, 429, "{forged}");
    }
}
