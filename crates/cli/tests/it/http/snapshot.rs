//! The state of a server after a restart.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;
use sluicegate::{Clock, MonotonicClock};
use tempfile::TempDir;

use super::{PATIENCE, Server, since, stop};

/// A limit that lasts, and a policy of two rules of which the second is the tighter one.
const POLICIES: &str = "policies:
  - name: login
    rules: [ { name: tries, sliding_log: { limit: 5, window: 1h } } ]
  - name: orders
    rules:
      - { name: burst, token_bucket: { rate: 10/h, burst: 10 } }
      - { name: hourly, sliding_window: { limit: 7, window: 1h } }
";

/// The folder of a server, with its state and its standard error.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is a place for temporary files");
        fs::write(directory.path().join("policies.yaml"), POLICIES).expect("it can be written to");
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        let path: PathBuf = self.directory.path().join(name);
        path.into_os_string().into_string().expect("such a path is UTF-8")
    }

    fn start(&self, options: &[&str]) -> Server {
        let told = File::create(self.path("told")).expect("it can be written to");
        let state = self.path("state");
        let options = [&["--snapshot", &state][..], options].concat();
        Server::spawn(&self.path("policies.yaml"), &options, told.into())
    }

    /// Returns the standard error of the server that was started last.
    fn told(&self) -> String {
        fs::read_to_string(self.path("told")).expect("a server was started")
    }

    /// Waits until the snapshot has been replaced.
    fn wait_for_the_next_file(&self) {
        let written = || fs::metadata(self.path("state")).and_then(|file| file.modified()).ok();
        let (before, begin) = (written(), MonotonicClock.now());
        while written() == before {
            assert!(since(begin) < PATIENCE, "nothing is written");
            std::thread::yield_now();
        }
    }

    /// Returns the error of a server that does not start.
    fn refusal(options: &[&str]) -> String {
        let (told, status) = Self::refused(&["serve"], options);
        assert!(status != Some(0));
        told
    }

    /// Returns the error of a command that is refused, and its exit status.
    fn refused(command: &[&str], options: &[&str]) -> (String, Option<i32>) {
        let args = [command, &["--listen", "127.0.0.1:0"]].concat();
        let program = env!("CARGO_BIN_EXE_sluicegate");
        let elsewhere = ["RESP", "RLS", "ADMIN"];
        let elsewhere = elsewhere.map(|wire| (format!("SLUICEGATE__{wire}__LISTEN"), "off"));
        let output = Command::new(program).args(args).args(options).envs(elsewhere).output();
        let output = output.expect("the program is there");
        let told = String::from_utf8(output.stderr).expect("it speaks UTF-8");
        (told, output.status.code())
    }
}

/// Takes permits until none is left. Returns their number, and the rule that refused.
fn exhaust(server: &Server, policy: &str, key: &str) -> (usize, String) {
    for taken in 0..100 {
        let (_, decision) = server.post("/v1/check", &json!({"policy": policy, "key": key}));
        if decision["allowed"] == false {
            return (taken, decision["rule"].as_str().unwrap_or_default().to_owned());
        }
    }
    panic!("{policy} has no end");
}

fn stopped(mut server: Server) {
    stop(&server);
    assert!(server.process.wait().expect("it was started").success());
}

#[test]
fn a_server_that_is_started_again_remembers_every_rule_of_every_policy() {
    let place = Place::new();
    let server = place.start(&[]);
    assert!(place.told().contains(" not found, starting empty"), "{}", place.told());
    assert_eq!(exhaust(&server, "login", "alice"), (5, "tries".to_owned()));
    server.post("/v1/check", &json!({"policy": "login", "key": "bob", "cost": 2}));
    server.post("/v1/check", &json!({"policy": "orders", "key": "alice", "cost": 4}));
    stopped(server);
    for _ in 0..2 {
        let server = place.start(&["--keys-max", "5000"]);
        assert!(place.told().contains(" INFO snapshot: 3 keys restored from "), "{}", place.told());
        assert_eq!(exhaust(&server, "login", "alice").0, 0);
        let (_, bob) = server.post("/v1/peek", &json!({"policy": "login", "key": "bob"}));
        assert_eq!(bob["remaining"], 3);
        let (_, orders) = server.post("/v1/peek", &json!({"policy": "orders", "key": "alice"}));
        assert_eq!((&orders["remaining"], &orders["rule"]), (&json!(3), &json!("hourly")));
        stopped(server);
    }
    let server = place.start(&[]);
    assert_eq!(exhaust(&server, "orders", "alice"), (3, "hourly".to_owned()));
}

#[test]
fn what_was_settled_stays_settled_when_a_server_is_started_again() {
    let place = Place::new();
    let settle = json!({"policy": "orders", "key": "alice", "id": "job", "charged": 4, "cost": 1});
    let server = place.start(&[]);
    server.post("/v1/check", &json!({"policy": "orders", "key": "alice", "cost": 4}));
    assert_eq!(server.post("/v1/settle", &settle).1["refunded"], 3);
    stopped(server);
    let server = place.start(&[]);
    assert!(place.told().contains(" INFO snapshot: 2 keys restored from "), "{}", place.told());
    assert_eq!(server.post("/v1/settle", &settle).0, 409);
}

#[test]
fn a_server_that_is_killed_loses_at_most_what_came_after_the_last_snapshot() {
    let place = Place::new();
    let mut server = place.start(&["--snapshot-every", "100ms"]);
    assert_eq!(exhaust(&server, "login", "alice").0, 5);
    // The next snapshot may have been begun before; the second was not.
    for _ in 0..2 {
        place.wait_for_the_next_file();
    }
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let server = place.start(&[]);
    assert_eq!(exhaust(&server, "login", "alice").0, 0);
}

#[test]
fn a_torn_or_foreign_file_refuses_the_start_and_stays_where_it_is() {
    let place = Place::new();
    let (state, policies) = (place.path("state"), place.path("policies.yaml"));
    let server = place.start(&[]);
    exhaust(&server, "login", "alice");
    stopped(server);
    let whole = fs::read(&state).unwrap();
    let torn = &whole[..whole.len() - 1];
    for (bytes, reason) in [
        (torn, "file is truncated or corrupt: unexpected end of file"),
        (b"hello".as_slice(), "not a snapshot of a memory store"),
    ] {
        fs::write(&state, bytes).unwrap();
        for command in [&["serve"][..], &["config", "check"]] {
            let options = ["--policies", &policies, "--snapshot", &state];
            let (told, status) = Place::refused(command, &options);
            assert!(told.contains(reason) && told.contains("move the file away"), "{told}");
            assert!(told.contains(&state), "{told}");
            assert_eq!(status, Some(78), "{command:?}: {told}");
            assert_eq!(fs::read(&state).unwrap(), bytes);
        }
    }
}

#[test]
fn a_policy_that_has_changed_begins_anew_and_it_is_told() {
    let place = Place::new();
    let server = place.start(&[]);
    exhaust(&server, "login", "alice");
    exhaust(&server, "orders", "alice");
    stopped(server);
    let policies = POLICIES.replace("limit: 5,", "limit: 6,");
    fs::write(place.path("policies.yaml"), policies).unwrap();
    let server = place.start(&[]);
    let told = place.told();
    assert!(
        told.contains(" INFO snapshot: 1 key restored") && told.contains("1 skipped"),
        "{told}"
    );
    assert_eq!(exhaust(&server, "orders", "alice").0, 0);
    assert_eq!(exhaust(&server, "login", "alice").0, 6);
}

#[test]
fn flags_of_the_memory_store_are_refused_where_they_make_no_sense() {
    let place = Place::new();
    let (state, nowhere) = (place.path("state"), place.path("no/such/place"));
    let redis = "redis://127.0.0.1:1";
    for (options, problem) in [
        (&["--store", redis, "--snapshot", &state][..], "store.snapshot: requires a memory store"),
        (&["--store", redis, "--keys-max", "5"], "store.keys_max: requires a memory store"),
        (&["--keys-max", "0"], "store.keys_max: `0` is outside 1..=4294967295"),
        (&["--snapshot-every", "1s"], "--snapshot <FILE>"),
        (
            &["--snapshot", &state, "--snapshot-every", "1ms"],
            "store.snapshot_every: `1ms` is below 100ms",
        ),
        (&["--snapshot", &nowhere], "cannot write"),
    ] {
        let told = Place::refusal(options);
        assert!(told.contains(problem), "{options:?}: {told}");
    }
}

#[test]
fn a_check_warns_of_a_snapshot_folder_that_a_service_manager_may_create() {
    let place = Place::new();
    let (policies, nowhere) = (place.path("policies.yaml"), place.path("later/state"));
    let options = ["--policies", &policies, "--snapshot", &nowhere];
    let (told, status) = Place::refused(&["config", "check"], &options);
    let folder = format!("the folder {} does not exist", place.path("later"));
    assert!(told.contains(&folder) && status == Some(0), "{told}");
}

#[test]
fn a_snapshot_that_cannot_be_read_is_not_called_damaged() {
    let place = Place::new();
    let (policies, state) = (place.path("policies.yaml"), place.path("policies.yaml/state"));
    for command in [&["serve"][..], &["config", "check"]] {
        let options = ["--policies", &policies, "--snapshot", &state];
        let (told, status) = Place::refused(command, &options);
        assert!(told.contains("store.snapshot: cannot read ") && status == Some(78), "{told}");
        assert!(!told.contains("move the file away"), "{told}");
    }
}
