//! `sluicegate import rate-limiter-info`.

use std::process::Command;

use sluicegate_testkit::{SqlKind, SqlServer, need};

use crate::catalog_cli::stage::{Ran, Stage, finish};

fn import(stage: &Stage, csv: &str) -> Ran {
    stage.file("limits.csv", csv);
    stage.run("import rate-limiter-info --csv limits.csv")
}

const TWO: &str = "\
policies:
# created by ada, updated by bob
- name: pay
  apps:
  - shop
  - bank
  rules:
  - token_bucket:
      rate: 5/s
      burst: 20
- name: login
  apps:
  - shop
  rules:
  - token_bucket:
      rate: 1/2s
      burst: 10
";

#[test]
fn rows_become_token_buckets_that_begin_full() {
    let stage = Stage::start();
    let csv = "id,name,apps,max_permits,rate,created_by,updated_by\n\
               1,pay,\"shop, bank\",20,5,ada,bob\n\
               2,login,\"[\"\"shop\"\"]\",10.00,0.50,NULL,\\N\n";
    assert_eq!(import(&stage, csv).ok(), TWO);
    // The columns may come in any order; those of its authors are optional.
    let csv = "\u{feff}Rate,MAX_PERMITS,apps,name\n5,20,\"shop,bank\",pay\n0.5,10,shop,login\n";
    let bare = TWO.replace("# created by ada, updated by bob\n", "");
    assert_eq!(import(&stage, csv).ok(), bare);
    let piped = "sluicegate import rate-limiter-info --csv - < limits.csv | sluicegate policies apply -f - --app shop";
    let applied = stage.shell(piped).ok();
    assert!(applied.ends_with("shop: 2 created, 0 changed, 0 deleted, 0 unchanged\n"), "{applied}");
    let replayed = stage.shell(
        "sluicegate import rate-limiter-info --csv limits.csv > p.yaml; \
         (for n in $(seq 21); do echo '{\"at_us\":0,\"policy\":\"pay\"}'; done) | \
         sluicegate replay --policies p.yaml --json - 2>&1 | grep '\"allowed\"'",
    );
    assert_eq!(replayed.ok().trim(), "\"allowed\": 20,");
}

#[test]
fn a_comment_cannot_become_a_policy() {
    let stage = Stage::start();
    let csv = "name,apps,max_permits,rate,created_by,updated_by\na,shop,1,1,\"x\n- name: evil\",\n";
    let text = import(&stage, csv).ok();
    assert!(text.starts_with("policies:\n# created by x\\n- name: evil\n- name: a\n"), "{text}");
}

#[test]
fn rows_that_make_no_sense_are_told_with_their_columns_and_nothing_is_printed() {
    let stage = Stage::start();
    let csv = "name,apps,max_permits,rate\n\
               ok,shop,1,1\n\
               Pay,shop,2x,5\n\
               a,,0,0\n\
               ok,\"shop,S\",1.5,1e3\n\
               b,[shop],-1,-1\n";
    let ran = import(&stage, csv);
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""));
    let told: Vec<_> = ran
        .err
        .lines()
        .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "limits.csv:3 max_permits",
        "limits.csv:3 name",
        "limits.csv:4 apps",
        "limits.csv:4 rate",
        "limits.csv:4 max_permits",
        "limits.csv:5 max_permits",
        "limits.csv:5 rate",
        "limits.csv:5 apps",
        "limits.csv:5 name",
        "limits.csv:6 apps",
        "limits.csv:6 max_permits",
        "limits.csv:6 rate",
        "error nothing was imported",
    ];
    assert_eq!(told, expected, "{}", ran.err);
    assert!(ran.err.contains("limits.csv:4: apps: is missing\n"), "{}", ran.err);
    assert!(
        ran.err.contains("limits.csv:5: name: `ok` is already the name at line 2\n"),
        "{}",
        ran.err
    );
}

#[test]
fn what_is_no_table_is_told() {
    let stage = Stage::start();
    for (csv, problem) in [
        ("", "column `name` is missing in the first line"),
        ("name,apps,max_permits\n", "column `rate` is missing in the first line"),
        (
            "name,apps,max_permits,rate\na,b\n",
            "limits.csv:2: cells: `2`; expected 4, as many as the first line has columns",
        ),
    ] {
        let ran = import(&stage, csv);
        assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""));
        assert!(ran.err.contains(problem), "{ran:?}");
    }
    let none = import(&stage, "name,apps,max_permits,rate\n");
    let note = "note: limits.csv: no policies, because it has no rows below the first line\n";
    let expected = (Some(0), "policies: []\n", note);
    assert_eq!((none.status, none.out.as_str(), none.err.as_str()), expected);
    let nothing = stage.run("import rate-limiter-info");
    assert_eq!((nothing.status, nothing.err.contains("expected --csv FILE")), (Some(1), true));
    // A variable that is set for other commands does not conflict with a file.
    let mut command = stage.command("import rate-limiter-info --csv limits.csv");
    let ran = finish(command.env("SLUICEGATE_IMPORT_URL", "mysql://me:hunter2@x/"));
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), "policies: []\n"));
}

#[test]
fn the_rows_of_a_database_become_the_same() {
    let stage = Stage::start();
    stage.wait(async {
        let server = need!(SqlServer::shared(SqlKind::MariaDb).await);
        let url = server.database().unwrap();
        let place = url.strip_prefix("mysql://root@127.0.0.1:").unwrap();
        let (port, database) = place.split_once('/').unwrap();
        let rows = "CREATE TABLE rate_limiter_info (name VARCHAR(64) PRIMARY KEY, apps TEXT, \
                    max_permits INT, rate DECIMAL(10, 2), created_by TEXT, updated_by TEXT); \
                    INSERT INTO rate_limiter_info VALUES ('pay', 'shop,bank', 20, 5, 'ada', 'bob'), \
                    ('login', '[\"shop\"]', 10, 0.5, NULL, '')";
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h", "127.0.0.1", "-u", "root", "-P", port, database, "-e", rows]);
        assert_eq!(finish(&mut client).status, Some(0));
        let text = stage.run(&format!("import rate-limiter-info --from {url}")).ok();
        let (head, pay) = TWO.split_once("# created").unwrap();
        let (pay, login) = pay.split_once("- name: login").unwrap();
        assert_eq!(text, format!("{head}- name: login{login}# created{pay}"));
        let mut command = stage.command("import rate-limiter-info");
        assert_eq!(finish(command.env("SLUICEGATE_IMPORT_URL", &url)).ok(), text);
        let broken = "INSERT INTO rate_limiter_info VALUES ('q', 'shop', 0, 1, '', '')";
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h", "127.0.0.1", "-u", "root", "-P", port, database, "-e", broken]);
        assert_eq!(finish(&mut client).status, Some(0));
        let ran = stage.run(&format!("import rate-limiter-info --from {url}"));
        assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""));
        assert!(ran.err.starts_with("row 3 (`q`): max_permits: "), "{ran:?}");
    });
}

#[test]
fn nginx_and_sentinel_become_policies_with_notes_beside() {
    let stage = Stage::start();
    stage.file(
        "nginx.conf",
        "limit_req_zone $uri zone=z:1m rate=30r/m;\nserver { limit_req zone=z; }\n",
    );
    let ran = stage.run("import nginx nginx.conf");
    let expected = "\
policies:
- name: z
  match:
    path:
      prefix: /
  key:
  - path
  rules:
  - name: z
    leaky_bucket:
      rate: 30/m
";
    assert_eq!((ran.status, ran.out.as_str()), (Some(0), expected));
    assert_eq!(
        ran.err,
        "note: nginx.conf:2: nginx refuses with status 503; a policy refuses with 429\n"
    );
    let piped = "echo '[{\"resource\": \"/a\", \"count\": 2, \"clusterMode\": true, \"clusterConfig\": {\"thresholdType\": 1}}]' | sluicegate import sentinel - | sluicegate policies check -";
    assert!(stage.shell(piped).ok().ends_with("1 policy, no errors\n"));
    stage.file("bad.conf", "a {\n");
    let ran = stage.run("import nginx bad.conf");
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""));
    assert_eq!(
        ran.err,
        "bad.conf:1: the block that begins here has no `}`\nerror: nothing was imported\n"
    );
    assert_eq!(stage.run("import nginx nowhere.conf").status, Some(1));
}

#[test]
fn an_import_by_which_more_would_pass_ends_with_status_1_and_lists_all_such_lines() {
    let stage = Stage::start();
    stage.file(
        "wide.conf",
        "limit_req_zone $arg_q zone=q:1m rate=1r/s; limit_req_zone $host zone=h:1m rate=1r/s;\n\
         limit_req_status 429; limit_req_log_level info;\n\
         server { limit_req zone=h; limit_rate 5k; }\n",
    );
    let ran = stage.run("import nginx wide.conf");
    assert_eq!((ran.status, ran.out.as_str()), (Some(1), ""));
    let lines: Vec<_> = ran.err.lines().collect();
    let [key, bytes, end] = lines[..] else { panic!("{ran:?}") };
    assert!(
        key.starts_with("wide.conf:1: zone `q`: policies cannot make keys of `$arg_q`"),
        "{key}"
    );
    assert!(bytes.starts_with("wide.conf:3: `limit_rate` limits the bytes"), "{bytes}");
    assert!(end.starts_with("error: nothing was imported: "), "{end}");
    let lossy = stage.run("import nginx --lossy wide.conf");
    let kinds: Vec<_> = lossy.err.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(kinds, ["warning", "note", "warning"], "{lossy:?}");
    assert!(lossy.out.starts_with("policies:\n- name: h\n"), "{lossy:?}");

    stage.file(
        "rules.json",
        "[\n{ \"resource\": \"/a\", \"count\": 5 },\n{ \"resource\": \"/b\" }\n]\n",
    );
    let ran = stage.run("import sentinel rules.json");
    let missing = "rules.json:3: [1] `/b`: not imported: count: is missing\n";
    assert!(ran.status == Some(1) && ran.err.starts_with(missing), "{ran:?}");
    assert!(stage.run("import sentinel --lossy rules.json").out.contains("exact: /a"));
}
