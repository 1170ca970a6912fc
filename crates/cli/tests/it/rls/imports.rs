//! `sluicegate import envoy`, and `serve` with its output or with the configuration itself.

use std::fs;
use std::path::Path;
use std::process::Output;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;

use super::{Server, ask, configuration, path, request};
use crate::program::program;

const SHOP: &str = "
domain: shop
descriptors:
  - key: user
    detailed_metric: true
    rate_limit: { unit: year, requests_per_unit: 3 }
";

const EDGE: &str = "
domain: edge
descriptors:
  - key: path
    value: /files/*
    share_threshold: true
    rate_limit: { unit: year, requests_per_unit: 2 }
";

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("the program is built")
}

fn import(from: &Path, options: &[&str]) -> String {
    let output = run(&[&["import", "envoy", path(from)], options].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Number of five requests that pass.
async fn passed(server: &Server, domain: &str, entries: &[(&str, &str)]) -> usize {
    let mut client = server.client().await;
    let mut passed = 0;
    for _ in 0..5 {
        let response = ask(&mut client, request(domain, entries)).await;
        passed += usize::from(response.overall_code() == Code::Ok);
    }
    passed
}

async fn check(server: &Server) {
    assert_eq!(passed(server, "shop", &[("user", "ann")]).await, 3);
    assert_eq!(passed(server, "shop", &[("user", "bob")]).await, 3);
    assert_eq!(passed(server, "edge", &[("path", "/files/a")]).await, 2);
    assert_eq!(passed(server, "edge", &[("path", "/files/b")]).await, 0);
    assert_eq!(passed(server, "edge", &[("path", "/")]).await, 5);
}

#[tokio::test]
async fn a_configuration_is_served_as_it_is_and_what_it_becomes_is_served_the_same() {
    let from = configuration(&[("shop.yaml", SHOP), ("edge.yml", EDGE), ("notes.txt", "x")]);
    check(&Server::start(&["--envoy-config", path(from.path())])).await;
    let (policies, tree) = (import(from.path(), &[]), import(from.path(), &["--descriptors"]));
    let made = configuration(&[("policies.yaml", &policies), ("tree.yaml", &tree)]);
    let (policies, tree) = (made.path().join("policies.yaml"), made.path().join("tree.yaml"));
    check(&Server::start(&["--policies", path(&policies), "--descriptors", path(&tree)])).await;
}

#[tokio::test]
async fn a_policy_of_the_same_name_takes_the_place_of_a_limit() {
    let from = configuration(&[("shop.yaml", SHOP)]);
    let policies = "
policies:
  - { name: shop.user, rules: [{ token_bucket: { rate: 1/d, burst: 4 } }] }
  - { name: other, rules: [{ fixed_window: { limit: 1, window: 365d } }] }
";
    let beside = configuration(&[("policies.yaml", &policies.replace("1/d", "1/day"))]);
    let policies = beside.path().join("policies.yaml");
    let server =
        Server::start(&["--envoy-config", path(from.path()), "--policies", path(&policies)]);
    assert_eq!(passed(&server, "shop", &[("user", "ann")]).await, 4);
    assert_eq!(passed(&server, "sluicegate", &[("policy", "other")]).await, 1);
}

#[test]
fn what_is_printed_says_where_it_comes_from() {
    let from = configuration(&[("shop.yaml", SHOP), ("edge.yaml", EDGE)]);
    let policies = import(from.path(), &[]);
    assert!(
        policies.contains("# shop.yaml: descriptors[0]\n  - name: \"shop.user\"\n"),
        "{policies}"
    );
    let tree = import(&from.path().join("edge.yaml"), &["--descriptors"]);
    assert!(tree.contains("- { key: \"path\", value: \"/files/*\", shared: true }\n"), "{tree}");
    let output = run(&["import", "envoy", path(from.path())]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "note: shop.yaml: descriptors[0].detailed_metric: no effect, values are not exported as labels\n"
    );
}

#[test]
fn what_cannot_be_imported_is_told_with_its_file_and_path() {
    let bad = SHOP.replace("year", "decade");
    let quota = EDGE.replace("share_threshold: true", "quota_mode: maybe");
    let from = configuration(&[("a.yaml", &bad), ("b.yaml", &quota)]);
    for command in [
        vec!["import", "envoy", path(from.path())],
        vec![
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--rls",
            "127.0.0.1:0",
            "--envoy-config",
            path(from.path()),
        ],
    ] {
        let output = run(&command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        assert!(
            said.contains("\na.yaml: descriptors[0].rate_limit.unit: expected `second`,"),
            "{said}"
        );
        assert!(
            said.contains("\nb.yaml: descriptors[0].quota_mode: expected `true` or `false`"),
            "{said}"
        );
    }
    fs::remove_file(from.path().join("a.yaml")).expect("it is there");
    fs::remove_file(from.path().join("b.yaml")).expect("it is there");
    let output = run(&["import", "envoy", path(from.path())]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no *.yaml or *.yml files found"), "{said}");
}

#[tokio::test]
async fn files_of_one_domain_are_joined_only_where_that_is_said() {
    let more = SHOP.replace("key: user", "key: '*-id'");
    let from = configuration(&[("a.yaml", SHOP), ("b.yaml", &more)]);
    let path = path(from.path());
    let refused = run(&["import", "envoy", path]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success()
            && said.contains("b.yaml: domain: `shop` is the domain of a.yaml already"),
        "{said}"
    );
    let tree = import(from.path(), &["--merge-domains", "--descriptors"]);
    assert!(tree.contains("{ key: \"*-id\" }"), "{tree}");
    let server = Server::start(&["--envoy-config", path, "--envoy-merge-domains"]);
    assert_eq!(passed(&server, "shop", &[("user", "ann")]).await, 3);
    assert_eq!(passed(&server, "shop", &[("order-id", "1")]).await, 3);
    assert_eq!(passed(&server, "shop", &[("parcel-id", "1")]).await, 3);
}

#[test]
fn a_tree_that_leads_to_a_policy_with_permits_is_not_served() {
    let tree = "descriptors: [{ domain: d, entries: [{ key: k }], policy: jobs }]";
    let jobs = "policies: [{ name: jobs, rules: [{ concurrency: { limit: 1, ttl: 1m } }] }]";
    let made = configuration(&[("tree.yaml", tree), ("jobs.yaml", jobs)]);
    let (tree, jobs) = (made.path().join("tree.yaml"), made.path().join("jobs.yaml"));
    let off = ["--listen", "127.0.0.1:0", "--rls", "127.0.0.1:0"];
    let files = ["--policies", path(&jobs), "--descriptors", path(&tree)];
    let output = run(&[&["serve"], &off[..], &files[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "descriptors refer to policy `jobs`, which has a `concurrency` rule";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn a_tree_that_leads_nowhere_is_not_served() {
    let tree = "descriptors: [{ domain: d, entries: [{ key: k }], policy: nowhere }]";
    let made = configuration(&[("tree.yaml", tree)]);
    let tree = made.path().join("tree.yaml");
    let output = run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--rls",
        "127.0.0.1:0",
        "--descriptors",
        path(&tree),
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("descriptors refer to unknown policy `nowhere`"), "{said}");
}
