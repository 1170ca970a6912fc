//! Policies that change while a server runs, and their status for operators.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use sluicegate_testkit::until;

use super::{PATIENCE, Server, ask};
use crate::program::EXAMPLES;
use crate::program::program;

/// A document with one policy of this name and this limit.
fn document(name: &str, limit: u32) -> String {
    format!(
        "policies: [ {{ name: {name}, rules: [ {{ sliding_log: {{ limit: {limit}, window: 1h }} }} ] }} ]"
    )
}

fn start(folder: &Path) -> Server {
    Server::spawn(folder.to_str().expect("a path of the test"), &[], Stdio::inherit())
}

/// The status of the policies for operators, once `done`.
async fn policies(server: &Server, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    let look = async || {
        let (status, body) = ask(server.admin, "/v1/policies");
        assert_eq!(status, 200);
        let seen: Value = serde_json::from_str(&body).expect("JSON");
        done(&seen).then_some(seen)
    };
    until(what, PATIENCE, look).await.expect("it comes true")
}

fn remaining(server: &Server, policy: &str) -> Value {
    server.post("/v1/check", &json!({"policy": policy, "key": "k"})).1["remaining"].clone()
}

#[tokio::test]
async fn a_change_is_in_force_within_seconds_and_usage_stays() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.yaml"), document("a", 10)).unwrap();
    fs::write(folder.path().join("notes.txt"), "not a document").unwrap();
    let server = start(folder.path());
    assert_eq!(remaining(&server, "a"), 9);
    let first = policies(&server, "the first", |seen| seen["version"] == 1).await;
    assert_eq!(first["policies"], json!(["a"]));

    fs::write(folder.path().join("a.yaml"), document("a", 5)).unwrap();
    fs::write(folder.path().join("b.json"), document("b", 3)).unwrap();
    let has_both = |seen: &Value| seen["policies"] == json!(["a", "b"]);
    let second = policies(&server, "both are in force", has_both).await;
    assert_ne!(first["hash"], second["hash"]);
    policies(&server, "the limit is 5", |_| remaining(&server, "b") != Value::Null).await;
    // One was taken under the limit of ten.
    assert_eq!(remaining(&server, "a"), 3);

    fs::remove_file(folder.path().join("a.yaml")).unwrap();
    policies(&server, "only b is left", |seen| seen["policies"] == json!(["b"])).await;
    assert_eq!(server.post("/v1/check", &json!({"policy": "a", "key": "k"})).0, 404);
}

#[tokio::test]
async fn a_bad_change_is_refused_with_its_path_and_the_last_good_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
    fs::write(&a, document("a", 10)).unwrap();
    let server = start(folder.path());
    for (text, problem) in [
        (document("b", 10).replace("limit", "limt"), "b.yaml:"),
        (document("a", 10), "policies[0].name: `a` is already the name of"),
    ] {
        fs::write(&b, text).unwrap();
        let refused =
            |seen: &Value| seen["error"].as_str().is_some_and(|error| error.contains(problem));
        let seen = policies(&server, problem, refused).await;
        assert_eq!((&seen["version"], &seen["policies"]), (&json!(1), &json!(["a"])));
    }
    assert_eq!(remaining(&server, "a"), 9);
    fs::remove_file(&b).unwrap();
    policies(&server, "all is well", |seen| seen["error"] == Value::Null).await;
}

#[tokio::test]
async fn a_link_that_is_turned_to_another_directory_is_a_change() {
    let folder = tempfile::tempdir().unwrap();
    for (version, limit) in [("v1", 10), ("v2", 20)] {
        fs::create_dir(folder.path().join(version)).unwrap();
        fs::write(folder.path().join(version).join("p.yaml"), document("p", limit)).unwrap();
    }
    // As Kubernetes mounts a ConfigMap: `p.yaml` leads to `..data/p.yaml`, and `..data` is
    // redirected.
    let mount = folder.path().join("mount");
    fs::create_dir(&mount).unwrap();
    symlink("../v1", mount.join("..data")).unwrap();
    symlink("..data/p.yaml", mount.join("p.yaml")).unwrap();
    let server = start(&mount);
    assert_eq!(remaining(&server, "p"), 9);
    symlink("../v2", mount.join("..data_tmp")).unwrap();
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
    policies(&server, "the second is in force", |seen| seen["version"] == 2).await;
    assert_eq!(remaining(&server, "p"), 18);
}

#[tokio::test]
async fn whoever_asks_whether_it_is_ready_hears_first_that_it_will_stop() {
    let policies = EXAMPLES;
    let config = tempfile::NamedTempFile::new().unwrap();
    fs::write(config.path(), "[server]\ndrain_delay = '60s'").unwrap();
    let config = config.path().to_str().unwrap();
    let server = Server::spawn(policies, &["--config", config], Stdio::inherit());
    assert_eq!(ask(server.admin, "/readyz"), (200, "ok\n".to_owned()));
    super::signal(&server);
    let leaving = async || (ask(server.admin, "/readyz").0 == 503).then_some(());
    until("it is not ready any more", PATIENCE, leaving).await.unwrap();
    assert_eq!(ask(server.admin, "/livez").0, 200);
    assert_eq!(remaining(&server, "login"), 4);
}

#[test]
fn the_configuration_that_holds_is_printed_without_secrets() {
    let program = |arguments: &[&str]| {
        program()
            .arg("config")
            .args(arguments)
            .env("SLUICEGATE__RESP__PASSWORD", "hunter2")
            .output()
            .unwrap()
    };
    let printed = program(&["print", "--listen", "127.0.0.1:1", "--store", "rediss://:hunter2@h"]);
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.status.success() && text.contains("listen = [\"127.0.0.1:1\"]"), "{text}");
    assert!(text.contains("password = \"***\"") && !text.contains("hunter2"), "{text}");
    assert!(program(&["check"]).status.success());
    let wrong = program(&["check", "--listen", "nowhere"]);
    assert!(!wrong.status.success());
    let told = String::from_utf8(wrong.stderr).unwrap();
    assert!(told.contains("http.listen: invalid address `nowhere`"), "{told}");
    let schema: Value = serde_json::from_slice(&program(&["schema"]).stdout).unwrap();
    assert_eq!(schema["properties"]["http"]["$ref"], "#/$defs/HttpConfig");
}

#[test]
fn operators_see_which_descriptors_are_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.yaml");
    let hash_of = |limit: u32| {
        let text = format!(
            "domain: d\ndescriptors: [ {{ key: k, rate_limit: {{ unit: hour, requests_per_unit: {limit} }} }} ]"
        );
        fs::write(&path, text).unwrap();
        let server = Server::start_with(&["--envoy-config", path.to_str().unwrap()]);
        let (_, body) = ask(server.admin, "/v1/policies");
        let seen: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(seen["descriptors"]["source"], path.to_str().unwrap());
        seen["descriptors"]["hash"].as_str().unwrap().to_owned()
    };
    let (first, second, again) = (hash_of(1), hash_of(2), hash_of(1));
    assert!(first.len() == 64 && first != second && first == again, "{first} {second}");
    let (_, body) = ask(Server::start().admin, "/v1/policies");
    assert!(body.contains("\"descriptors\":null"), "{body}");
}
