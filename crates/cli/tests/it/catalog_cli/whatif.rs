//! `sluicegate policies whatif`.

use serde_json::json;
use sluicegate_control::catalog::{PolicyAt, PolicyState};

use crate::catalog_cli::stage::{Stage, by};

/// Lines of a log: `count` requests for `path` from one address, all in one second.
fn requests(address: &str, count: usize, path: &str) -> String {
    let line = format!(
        "{address} - - [17/May/2015:10:00:00 +0000] \"GET {path} HTTP/1.1\" 200 12 \"-\" \"curl\"\n"
    );
    line.repeat(count)
}

fn policy(name: &str, burst: u32, more: &str) -> String {
    format!(
        "  - {{ name: {name}, key: [remote_ip], rules: [{{ token_bucket: {{ rate: 1/s, burst: {burst} }} }}]{more} }}\n"
    )
}

fn documents(policies: &[String]) -> String {
    format!("policies:\n{}", policies.concat())
}

/// A stage with a log: 8 requests of one address, 3 of another, and a bad line.
fn stage() -> Stage {
    let stage = Stage::start();
    let log =
        [requests("10.0.0.1", 8, "/a"), requests("10.0.0.2", 3, "/b"), "?\n".to_owned()].concat();
    stage.file("access.log", &log);
    stage
}

#[test]
fn who_would_be_refused_that_is_not_today_is_told() {
    let stage = stage();
    stage.file("today.yaml", &documents(&[policy("site", 5, "")]));
    stage.file("new.yaml", &documents(&[policy("site", 2, "")]));
    let ran = stage
        .run("policies whatif -f new.yaml --policies today.yaml --log access.log --bad-max 10%");
    let expected = "\
access.log: 2015-05-17 10:00:00 to 2015-05-17 10:00:00 UTC (0 s)

requests                                  11
refused today                              3   27.3 %
refused by the new policies                7   63.6 %
  newly refused                            4   36.4 %
  no longer refused                        0   0.0 %
bad lines                                  1   not decided; see standard error

policy         today       refused           new       refused  newly refused  no longer refused
site              11             3            11             7              4                  0

keys newly refused the most
             3  site  10.0.0.1
             1  site  10.0.0.2
";
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), expected));
    assert!(ran.err.starts_with("access.log:12: "), "{}", ran.err);
    // The comparison in the opposite direction.
    let told = stage
        .run("policies whatif -f today.yaml --policies new.yaml --log access.log --output json")
        .json();
    assert_eq!((&told["newly_refused"], &told["no_longer_refused"]), (&0.into(), &4.into()));
    let keys = json!([
        { "policy": "site", "key": "10.0.0.1", "requests": 3 },
        { "policy": "site", "key": "10.0.0.2", "requests": 1 },
    ]);
    assert_eq!(told["keys_no_longer_refused"], keys);
    let of = json!([{
        "policy": "site", "today": { "requests": 11, "refused": 7 },
        "new": { "requests": 11, "refused": 3 }, "newly_refused": 0, "no_longer_refused": 4,
    }]);
    assert_eq!(told["policies"], of);
}

#[test]
fn each_set_refuses_as_many_as_a_replay_of_it_alone() {
    let stage = stage();
    stage.file("today.yaml", &documents(&[policy("site", 5, "")]));
    stage.file("new.yaml", &documents(&[policy("site", 2, "")]));
    let told = stage
        .run("policies whatif -f new.yaml --policies today.yaml --log access.log --output json")
        .json();
    for (file, refused) in [("today.yaml", "refused_today"), ("new.yaml", "refused_new")] {
        let replayed = stage.run(&format!("replay --policies {file} --json access.log")).json();
        assert_eq!(replayed["refused"], told[refused], "{file}");
    }
}

#[test]
fn a_line_may_be_guarded_by_another_policy_then_or_by_none() {
    let stage = stage();
    let matching = |path: &str| format!(", match: {{ path: {{ prefix: {path} }} }}");
    stage.file("today/a.yaml", &documents(&[policy("a", 2, &matching("/a"))]));
    stage.file(
        "new.yaml",
        &documents(&[policy("one", 4, &matching("/a")), policy("two", 1, &matching("/b"))]),
    );
    let told = stage
        .run("policies whatif -f new.yaml --policies today --log access.log --output json")
        .json();
    let row = |policy: &str, today: (u32, u32), new: (u32, u32), newly: (u32, u32)| {
        json!({
            "policy": policy, "today": { "requests": today.0, "refused": today.1 },
            "new": { "requests": new.0, "refused": new.1 },
            "newly_refused": newly.0, "no_longer_refused": newly.1,
        })
    };
    let rows = json!([
        row("a", (8, 6), (0, 0), (0, 2)),
        row("one", (0, 0), (8, 4), (0, 0)),
        row("two", (0, 0), (3, 2), (2, 0)),
    ]);
    assert_eq!(told["policies"], rows);
    stage.file("none.yaml", "policies: []");
    let told = stage
        .run("policies whatif -f none.yaml --policies today --log access.log --output json")
        .json();
    assert_eq!((&told["no_longer_refused"], &told["unguarded"]), (&6.into(), &3.into()));
    // One policy by name, which only one side has.
    let told = stage.run("policies whatif -f new.yaml --policies today --log access.log --policy two --output json").json();
    assert_eq!((&told["requests"], &told["newly_refused"]), (&11.into(), &9.into()));
    let unknown =
        stage.run("policies whatif -f new.yaml --policies today --log access.log --policy x");
    assert_eq!(unknown.err, "error: --policy: unknown policy `x`\n");
}

#[test]
fn todays_policies_may_be_those_of_a_server_and_the_shadow_refuses_nobody() {
    let stage = stage();
    let document = json!({
        "name": "site", "key": ["remote_ip"],
        "rules": [{ "token_bucket": { "rate": "1/s", "burst": 5 } }],
    });
    let catalog = &stage.catalog;
    stage.wait(catalog.create_policy(&by(), "shop", &document, PolicyState::Active)).unwrap();
    stage.file("new.yaml", &documents(&[policy("site", 2, "")]));
    let counts = |command: &str| {
        let told = stage
            .run(&format!("policies whatif -f new.yaml --log access.log --output json {command}"))
            .json();
        ["refused_today", "refused_new", "newly_refused"].map(|name| told[name].as_u64().unwrap())
    };
    assert_eq!(counts("--app shop"), [3, 7, 4]);
    stage
        .wait(catalog.set_policy_state(
            &by(),
            &PolicyAt::new("shop", "site", 1),
            PolicyState::Shadow,
        ))
        .unwrap();
    assert_eq!(counts("--app shop"), [0, 7, 7]);
    stage.file("new.yaml", &documents(&[policy("site", 2, ", overflow: shadow")]));
    assert_eq!(counts("--app shop"), [0, 0, 0]);
}

#[test]
fn what_cannot_be_compared_is_told() {
    let stage = stage();
    stage.file("new.yaml", &documents(&[policy("a", 1, ""), policy("b", 1, "")]));
    stage.file("today.yaml", &documents(&[policy("a", 1, "")]));
    stage.file("events.jsonl", "{\"at_us\":0,\"policy\":\"a\"}\n");
    for (command, problem) in [
        (
            "--policies today.yaml --log access.log",
            "error: the new policies: --policy: is missing: choose one of the 2 policies (`a`, `b`)",
        ),
        (
            "--policies today.yaml --log events.jsonl --policy a",
            "error: --log: events.jsonl is JSON",
        ),
        ("--policies nowhere --log access.log", "error: cannot read nowhere"),
        ("--policies today.yaml --log nowhere --policy a", "error: nowhere"),
        ("--log access.log", "error: the following required arguments"),
    ] {
        let ran = stage.run(&format!("policies whatif -f new.yaml {command}"));
        assert_ne!(ran.status, Some(0));
        assert!(ran.err.starts_with(problem), "{command}: {}", ran.err);
    }
}

#[test]
fn a_log_that_cannot_be_read_is_no_comparison_without_refusals() {
    let stage = stage();
    stage.file("today.yaml", &documents(&[policy("site", 5, "")]));
    stage.file("new.yaml", &documents(&[policy("site", 2, "")]));
    stage.file("garbage.log", "?\n?\n");
    stage.file("empty.log", "");
    let compared = |log: &str| {
        stage.run(&format!("policies whatif -f new.yaml --policies today.yaml --log {log}"))
    };
    let ran = compared("access.log");
    assert_eq!(ran.status, Some(1));
    let error = "error: access.log: 1 of 12 lines could not be read, more than --bad-max 1%";
    assert!(ran.err.lines().any(|line| line == error), "{}", ran.err);
    let other = documents(&[policy("other", 2, ", match: { path: { prefix: /nowhere } }")]);
    stage.file("other.yaml", &other);
    let ran = stage
        .run("policies whatif -f other.yaml --policies other.yaml --log access.log --bad-max 10%");
    let error = "error: access.log: no policy matches any line (11 in all), so nothing was decided; compare the `match` \
                 of the policies with the paths of the log: `/";
    assert!(ran.status == Some(1) && ran.err.contains(error), "{ran:?}");
    for log in ["garbage.log", "empty.log"] {
        let ran = compared(log);
        let error = format!("error: {log}: no line could be read, so nothing was decided");
        assert_eq!((ran.status, ran.err.lines().last()), (Some(1), Some(&*error)));
    }
}
