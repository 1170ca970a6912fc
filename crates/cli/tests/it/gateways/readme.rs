//! What pages show of gateways works.

use std::fs;

use sluicegate_testkit::need;

use super::audit::exactly_five_of_twenty_pass;
use super::stage::{Stage, changed, example, root};
use super::{envoy, nginx};

/// The blocks of `language` in a page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join(page)).expect("it is there");
    let open = format!("\n```{language}\n");
    let blocks = page.split(&open).skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn the_nginx_of_the_readme_lets_five_of_twenty_pass() {
    let [site] = <[_; 1]>::try_from(blocks("README.md", "nginx")).unwrap();
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s", "10/h")]);
    let stage = Stage::set(&policies, &[], async |places| nginx::start(places, &site));
    exactly_five_of_twenty_pass(&need!(stage.await)).await;
}

#[tokio::test]
async fn the_envoy_of_the_readme_lets_five_of_twenty_pass() {
    let block = |page: &str, word: &str| {
        let found = blocks(page, "yaml").into_iter().find(|block| block.starts_with(word));
        found.unwrap_or_else(|| panic!("no block of {page} begins with {word}"))
    };
    let policies = block("docs/gateways.md", "policies:");
    let policies = changed(&policies, &[("10/s", "10/h")]);
    let envoy = block("README.md", "static_resources:");
    let stage = envoy::stage(&envoy, &policies, &[]);
    exactly_five_of_twenty_pass(&need!(stage.await)).await;
}

#[tokio::test]
async fn behind_the_nginx_of_the_readme_a_client_does_not_choose_its_host() {
    let [site] = <[_; 1]>::try_from(blocks("README.md", "nginx")).unwrap();
    let policies =
        "policies: [ { name: site, key: [host], rules: [ { token_bucket: { rate: 1/h } } ] } ]";
    // That something answers is probed by a request, for which there is a permit more.
    let stage = Stage::set(policies, &[], async |places| nginx::start(places, &site));
    let stage = need!(stage.await);
    for forged in ["x-forwarded-host: a\r\n", "x-original-host: b\r\n"] {
        assert_eq!(super::client::get(stage.gateway, "/", forged).await.status, 429, "{forged}");
    }
}
