//! What the README shows of gateways works.

use std::fs;

use sluicegate_testkit::need;

use super::audit::exactly_five_of_twenty_pass;
use super::nginx;
use super::stage::{Stage, changed, example, root};

/// The blocks of `language` in the README.
fn blocks(language: &str) -> Vec<String> {
    let readme = fs::read_to_string(root().join("README.md")).expect("it is there");
    let open = format!("\n```{language}\n");
    let blocks = readme.split(&open).skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

/// Whether each line of `block` is one of `example`, in this order, wherever it is indented to.
fn is_of(block: &str, example: &str) -> bool {
    let mut lines = example.lines().map(str::trim);
    block.lines().map(str::trim).all(|line| lines.any(|other| other == line))
}

#[tokio::test]
async fn the_nginx_of_the_readme_lets_five_of_twenty_pass() {
    let [site] = <[_; 1]>::try_from(blocks("nginx")).unwrap();
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s", "10/h")]);
    let stage = Stage::set(&policies, &[], async |places| nginx::start(places, &site));
    exactly_five_of_twenty_pass(&need!(stage.await)).await;
}

#[test]
fn the_envoy_of_the_readme_is_that_of_the_example() {
    let (blocks, example) = (blocks("yaml"), example("gateways/envoy/envoy.yaml"));
    assert_eq!(blocks.iter().filter(|block| is_of(block, &example)).count(), 1);
    assert!(!is_of("a\nb", "b\na") && is_of("a\n  c", "a\nb\nc"));
}

#[tokio::test]
async fn behind_the_nginx_of_the_readme_a_client_does_not_choose_its_host() {
    let [site] = <[_; 1]>::try_from(blocks("nginx")).unwrap();
    let policies =
        "policies: [ { name: site, key: [host], rules: [ { token_bucket: { rate: 1/h } } ] } ]";
    // That something answers is probed by a request, for which there is a permit more.
    let stage = Stage::set(policies, &[], async |places| nginx::start(places, &site));
    let stage = need!(stage.await);
    for forged in ["x-forwarded-host: a\r\n", "x-original-host: b\r\n"] {
        assert_eq!(super::client::get(stage.gateway, "/", forged).await.status, 429, "{forged}");
    }
}
