//! Messages about users' mistakes: each names the place, the value that was found, and the correction.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Output, Stdio};

use sluicegate_testkit::{SqlKind, SqlServer, need};

use super::*;

/// A file, its text, and what the message about it contains, in parts between ` & `.
type FileMistake = (&'static str, &'static str, &'static str);

/// Policy documents that are wrong.
const DOCUMENTS: &[FileMistake] = &[
    (
        "tab.yaml",
        "policies:\n\t- name: a\n",
        "tab.yaml:2:2: a tab: indent YAML with spaces: `- name: a`",
    ),
    (
        "indent.yaml",
        "policies:\n  - name: a\n    rules:\n      - token_bucket:\n   rate: 1/s\n",
        "indent.yaml:5:4: & : `rate: 1/s`",
    ),
    (
        "rule.yaml",
        "policies: [{ name: a, rule: [] }]",
        "rule.yaml:1:29: policies[0] (a).rule: unknown field, did you mean `rules`?",
    ),
    (
        "joined.yaml",
        "policies: [{ name: a, rules: [{ tokenbucket: { rate: 1/s } }] }]",
        "policies[0] (a).rules[0]: unknown algorithm `tokenbucket`, did you mean `token_bucket`?",
    ),
    (
        "slip.yaml",
        "policies: [{ name: a, rules: [{ token_buckt: { rate: 1/s } }] }]",
        "unknown algorithm `token_buckt`, did you mean `token_bucket`?",
    ),
    (
        "other.yaml",
        "policies: [{ name: a, rules: [{ gcra: { rate: 1/s } }] }]",
        "unknown algorithm `gcra`, expected `token_bucket`, `smooth_bursty`",
    ),
    (
        "value.yaml",
        "policies: [{ name: a, rules: [{ algorithm: token_bucket, rate: 1/s }] }]",
        "`algorithm` is not a field of a rule: write `token_bucket: { … }`",
    ),
    (
        "words.yaml",
        "policies: [{ name: a, rules: [{ token_bucket: { rate: 10 per second } }] }]",
        "rate: invalid rate `10 per second`: expected permits per time, such as `10/s`",
    ),
    (
        "bare.yaml",
        "policies: [{ name: a, rules: [{ token_bucket: { rate: 10 } }] }]",
        "invalid rate `10`: expected permits per time, such as `10/s`",
    ),
    (
        "half.yaml",
        "policies: [{ name: a, rules: [{ token_bucket: { rate: 0.5/s } }] }]",
        "burst: is missing: `0.5/s` is `1/2s`, so write how many permits a full bucket has, such as `burst: 1`",
    ),
    (
        "unit.yaml",
        "policies: [{ name: a, rules: [{ fixed_window: { limit: 3, window: 60 } }] }]",
        "window: invalid duration `60`: expected a unit (us, ms, s, m, h, d), such as `60ms` or `60s`",
    ),
    (
        "negative.yaml",
        "policies: [{ name: a, rules: [{ token_bucket: { rate: -10/s, burst: 0 } }] }]",
        "invalid rate `-10/s`: expected up to 4294967296 permits & burst: `0` is not a whole number from 1 to 4294967296",
    ),
    (
        "same.yaml",
        "policies: [{ name: a, rules: [{ token_bucket: { rate: 1/s } }] }, { name: a, rules: [{ token_bucket: { rate: 1/s } }] }]",
        "policies[1].name: `a` is already the name of policies[0]",
    ),
    (
        "nameless.yaml",
        "policies: [{ name: a, rules: [{ token_bucket: { rate: 1/s } }, { token_bucket: { rate: 9/m } }] }]",
        "rules[0].name: is missing: with several rules, each needs a name",
    ),
    ("twice.yaml", "policies: [{ name: a, name: b, rules: [] }]", "name: is given twice"),
    (
        "capitals.yaml",
        "policies: [{ name: Orders Create, rules: [] }]",
        "invalid name `Orders Create`: expected 1 to 128 bytes of `[a-z0-9._-]`, such as `orders-create`",
    ),
    (
        "map.yaml",
        "policies: [{ name: a, rules: { token_bucket: {} } }]",
        "rules: expected a list of rules, found a map",
    ),
    (
        "none.yaml",
        "policies: [{ name: a }]",
        "policies[0] (a).rules: is missing, expected a list of rules",
    ),
    ("top.yaml", "policy: []", "policy: unknown field, expected `policies`"),
    ("list.yaml", "[{ name: a }]", "expected a map with `policies`, found a list"),
    ("empty.yaml", "", "empty.yaml: expected a map with `policies`, found nothing"),
    (
        "lacks.yaml",
        "policies: [{ name: a, rules: [{ fixed_window: { limit: 3 } }] }]",
        "fixed_window.window: is missing, expected a duration such as `250ms`",
    ),
    (
        "overflow.yaml",
        "policies: [{ name: a, overflow: drop, rules: [{ token_bucket: { rate: 1/s } }] }]",
        "overflow: expected `reject`, `shadow`, or a map with",
    ),
    (
        "several.yaml",
        "policies:\n  - name: A\n    overflow: drop\n    rules: [{ token_bucket: { rate: 10, burst: 0 } }]\n  - name: b\n    rule: []\n",
        "several.yaml:2:11: policies[0].name & several.yaml:3:15: policies[0] (A).overflow & several.yaml:4:37: policies[0] (A).rules[0].token_bucket.rate & burst: `0` & several.yaml:6:11: policies[1] (b).rule & policies[1] (b).rules: is missing",
    ),
    (
        "zone.yaml",
        "policies: [{ name: a, rules: [{ fixed_window: { limit: 3, calendar: month, time_zone: Asia/Bejing } }] }]",
        "time_zone: unknown time zone `Asia/Bejing`: expected an IANA name such as `Europe/Berlin`",
    ),
    ("cut.json", "{\"policies\": [", "cut.json:1:14: unexpected end of the text in a list"),
];

/// Configurations that are wrong.
const CONFIGURATIONS: &[FileMistake] = &[
    (
        "lisen.toml",
        "[http]\nlisen = 'x'",
        "lisen.toml:2: http.lisen: unknown field, did you mean `listen`?",
    ),
    ("syntax.toml", "[http\nx", "syntax.toml: line 1, column 6: unclosed table, expected `]`"),
    (
        "name.toml",
        "[http]\nlisten = 'limits.example.org:80'",
        "name.toml:2: http.listen: invalid address `limits.example.org:80`: names are not looked up, expected `127.0.0.1:8080`",
    ),
    (
        "number.toml",
        "[http]\nlisten = 8080",
        "http.listen: `8080` is not a text: expected quotes, such as \"127.0.0.1:8080\", or a list",
    ),
    (
        "port.toml",
        "[http]\nlisten = '127.0.0.1:99999'",
        "invalid address `127.0.0.1:99999`: port 99999 is above 65535",
    ),
    (
        "both.toml",
        "[server]\ndrain_delay = 5\n[log]\nlevel = 'loud'\n",
        "both.toml:2: server.drain_delay: `5` is not a text: expected quotes, such as \"250ms\" & both.toml:4: log.level: unknown value `loud`",
    ),
    (
        "workers.toml",
        "[server]\nworkers = 10000",
        "workers.toml:2: server.workers: `10000` is outside 0..=256",
    ),
    (
        "millions.toml",
        "[store]\nkeys_max = '1M'",
        "millions.toml:2: store.keys_max: `1M` is not a whole number 1..=4294967295",
    ),
    (
        "taken.toml",
        "[http]\nlisten = '127.0.0.1:7000'\n[resp]\nlisten = '127.0.0.1:7000'",
        "taken.toml:4: resp.listen: `127.0.0.1:7000` cannot be used: `http.listen` has `127.0.0.1:7000`",
    ),
    (
        "redis.toml",
        "[redis]\nurl = 'x'",
        "redis.toml:1: redis: unknown field, did you mean `store.url`?",
    ),
    (
        "cert.toml",
        "[http.tls]\ncert = 'nope.pem'\nkey = 'nope.key'",
        "http.tls.cert: cannot read nope.pem: No such file",
    ),
];

/// Command lines that are wrong, and what the message about each contains.
const COMMANDS: &[(&str, &str)] = &[
    ("policies check nope.yaml", "cannot read nope.yaml: No such file or directory"),
    ("policies check emptydir", "emptydir: no policies: expected *.yaml, *.yml or *.json files"),
    ("serve --polices x", "a similar argument exists: '--policies'"),
    ("config check --config nope.toml", "cannot read nope.toml: No such file or directory"),
    ("config check --listen 50099", "invalid address `50099`: expected `127.0.0.1:8080`"),
    ("config check --listen :50099", "invalid address `:50099`: expected `127.0.0.1:8080`"),
    (
        "config check --store http://x",
        "store.url: expected `memory`, or the URL of a Redis & redis://127.0.0.1:6379",
    ),
    ("config check --store nope", "store.url: expected `memory`, or the URL of a Redis"),
    (
        "config check --store redis://127.0.0.1:1/abc",
        "store.url: database: `abc` is not a whole number 0..=65535",
    ),
    (
        "config check --store redis://127.0.0.1:1/?deadline=5",
        "store.url: unknown option `deadline`, expected `connections`, `deadline_ms`",
    ),
    (
        "config check --snapshot x --store redis://127.0.0.1:1",
        "store.snapshot: requires a memory store",
    ),
    ("config check --policies p.yaml --catalog sqlite:x", "cannot be used with"),
    (
        "config check --catalog foo:x",
        "catalog.url: database: expected `sqlite:PATH`, `mysql://…` or `postgres://…`",
    ),
    (
        "serve --policies p.yaml --snapshot /nonexistent/x --listen 127.0.0.1:0 --resp off --rls off --admin off",
        "/nonexistent/x",
    ),
    (
        "serve --policies p.yaml --snapshot torn --listen 127.0.0.1:0 --resp off --rls off --admin off",
        "torn",
    ),
    (
        "serve --policies p.yaml --listen 192.0.2.1:80 --resp off --rls off --admin off",
        "http.listen: & 192.0.2.1:80",
    ),
    ("check login a --to http://127.0.0.1:1", "cannot connect to 127.0.0.1:1: Connection refused"),
    ("check login a --to http://nope.invalid:1", "nope.invalid"),
    ("check", "required arguments were not provided & <POLICY>"),
    ("check a b --cost 0", "--cost <N>': expected a whole number from 1 to 2147483648"),
    ("check a b --cost abc", "--cost <N>': expected a whole number from 1 to 2147483648"),
    ("check a b --to htp:/x", "expected an address such as `http://127.0.0.1:8080`"),
    ("replay --policies p.yaml --format combined torn", "--policy: is missing"),
    ("replay --policies p.yaml --policy login nope.log", "nope.log: No such file"),
    (
        "replay --policies p.yaml --policy logins --format combined empty.log",
        "unknown policy `logins`",
    ),
    ("policies apply --file p.yaml --app shop", "token"),
    ("audit verify", "no catalog: set --catalog or SLUICEGATE_CATALOG_URL"),
    ("audit verify --catalog sqlite:/nonexistent/x.db", "/nonexistent/x.db"),
    ("audit verify --catalog sqlite:none/x.db", "none/x.db: there is no folder"),
    ("audit verify --catalog sqlite:emptydir", "emptydir: is a directory, expected a file"),
    ("bench rls --policy nope --to http://127.0.0.1:1", "127.0.0.1:1"),
    (
        "check login a --to http://127.0.0.1:1/v1/check",
        "a path is not permitted: expected an address",
    ),
    ("config check nope.toml", "cannot read nope.toml: No such file or directory"),
];

/// The standard error of `command`, run in `folder`. The command fails, without a panic.
fn told(folder: &Path, command: &str, variables: &[(&str, &str)]) -> String {
    let mut program = program();
    program.current_dir(folder).args(command.split_whitespace());
    let Output { status, stderr, .. } =
        program.envs(variables.iter().copied()).output().expect("the program is built");
    let told = String::from_utf8(stderr).expect("it says text");
    assert!(!status.success(), "{command}: {told}");
    assert!(!told.contains("panicked"), "{command}: {told}");
    told
}

fn check_files(command: &str, mistakes: &[FileMistake]) {
    let folder = tempfile::tempdir().expect("there is room for files");
    for (file, text, expected) in mistakes {
        fs::write(folder.path().join(file), text).expect("it can be written");
        let told = told(folder.path(), &format!("{command} {file}"), &[]);
        for expected in expected.split(" & ") {
            assert!(told.contains(expected), "{text}\n{told}\nlacks {expected}");
        }
    }
}

fn check_commands(mistakes: &[(&str, &str)]) {
    let folder = tempfile::tempdir().expect("there is room for files");
    fs::write(folder.path().join("p.yaml"), POLICIES).expect("it can be written");
    fs::write(folder.path().join("torn"), "junk").expect("it can be written");
    fs::write(folder.path().join("empty.log"), "garbage\n").expect("it can be written");
    fs::write(folder.path().join("nginx.log"), "{\"remote_addr\":\"192.0.2.1\"}\n")
        .expect("it can be written");
    fs::write(folder.path().join("object.json"), "{\"resource\":\"a\"}")
        .expect("it can be written");
    for (file, text) in [
        ("iso.log", "192.0.2.1 - - [2026-11-28T00:00:00+00:00] \"GET / HTTP/1.1\" 200 1\n"),
        ("limits.conf", "http { server { location / { limit_req zone=none burst=5; } } }\n"),
        ("grade.json", "[{\"resource\": \"a\", \"grade\": 7, \"count\": 10}]"),
        ("text.json", "[{\"resource\": \"a\", \"count\": \"3\"}]"),
        ("none.json", "[]"),
        (
            "semicolon.conf",
            "limit_req_zone $binary_remote_addr zone=a:10m rate=10r/s\nserver { limit_req zone=a; }\n",
        ),
        ("rate.conf", "limit_req_zone $host zone=a:10m rate=10/s;\nserver { limit_req zone=a; }\n"),
        ("semicolon.csv", "name;apps;max_permits;rate\na;shop;5;1\n"),
        ("short.csv", "name,apps,max_permits,rate\na,shop,5\n"),
    ] {
        fs::write(folder.path().join(file), text).expect("it can be written");
    }
    fs::write(folder.path().join("a.log.zst"), b"\x28\xb5\x2f\xfdmore").expect("it can be written");
    fs::create_dir(folder.path().join("emptydir")).expect("it can be made");
    for (command, expected) in mistakes {
        let told = told(folder.path(), command, &[]);
        for expected in expected.split(" & ") {
            assert!(told.contains(expected), "{command}\n{told}\nlacks {expected}");
        }
        assert!(told.matches("(os error").count() <= 1, "{command} gives its reason twice: {told}");
    }
}

#[test]
fn mistakes_in_a_policy_document() {
    check_files("policies check", DOCUMENTS);
    let folder = tempfile::tempdir().expect("there is room for files");
    fs::write(folder.path().join("b.yaml"), [0x7f, b'E', 0xc3, 0x28]).expect("it can be written");
    let binary = told(folder.path(), "policies check b.yaml", &[]);
    assert!(binary.contains("cannot read b.yaml: line 1 is not UTF-8"), "{binary}");
}

#[test]
fn names_of_others_cannot_write_to_the_terminal() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let name = "p\u{1b}[31m\u{202e}.yaml";
    let document = "policies:\n  - name: \"a\u{202e}\"\n    \"\\e]0;x\": 1\n";
    fs::write(folder.path().join(name), document).expect("it can be written");
    fs::write(folder.path().join("c\u{1b}.toml"), "[\"\\u001b[31m\"]\nx = 1\n")
        .expect("it can be written");
    for command in
        [format!("policies check {name}"), "config check --config c\u{1b}.toml".to_owned()]
    {
        let told = told(folder.path(), &command, &[]);
        let hides = |char: char| (char.is_control() && char != '\n') || char == '\u{202e}';
        assert!(!told.contains(hides), "{told:?}");
        assert!(told.contains("\\u{1b}"), "{told:?}");
    }
}

#[test]
fn mistakes_in_a_configuration() {
    check_files("config check --config", CONFIGURATIONS);
    let folder = tempfile::tempdir().expect("there is room for files");
    let variable = told(folder.path(), "config check", &[("SLUICEGATE__HTTP__PORT", "1")]);
    let expected =
        "SLUICEGATE__HTTP__PORT: http.port: unknown field `port`, expected one of `listen`";
    assert!(variable.contains(expected), "{variable}");
    let reachable =
        told(folder.path(), "config check", &[("SLUICEGATE__ADMIN__LISTEN", "0.0.0.0:0")]);
    assert!(
        reachable.contains("expected a loopback address, `admin.tls.client_ca`"),
        "{reachable}"
    );
}

#[test]
fn mistakes_on_the_command_line() {
    check_commands(COMMANDS);
}

/// Words of other programs, and arguments in the wrong place.
#[test]
fn mistakes_of_a_first_try() {
    check_commands(&[
        ("serve p.yaml", "tip: policies are an option: `--policies FILE`"),
        (
            "check --policy login alice",
            "tip: the policy is an argument, and the key after it: `POLICY [KEY]`",
        ),
        (
            "tokens create --app shop --name web --scope check --expires 30d",
            "tip: use `--days N`, 1 to 731",
        ),
        (
            "events --result denied",
            "invalid value 'denied' & possible values: allowed, held, shadowed",
        ),
        (
            "config check --store redis+sentinel://h1,h2",
            "store.url: master name: is missing, such as `redis+sentinel://h1,h2/mymaster`",
        ),
        ("config check --nodes 0", "store.nodes: `0` is outside 1..=4294967295"),
        (
            "serve --policies p.yaml --listen unix:p.yaml --resp off --rls off --admin off",
            "http.listen: & is a file, not a socket",
        ),
        (
            "replay --policies p.yaml --policy logni --format combined empty.log",
            "--policy: unknown policy `logni`, did you mean `login`?",
        ),
        (
            "replay --policies p.yaml empty.log",
            "empty.log: neither an access log nor events: the first line is `garbage`",
        ),
        (
            "replay --policies p.yaml nginx.log",
            "nginx.log: JSON without `at_us`, so no events: access logs in JSON are not read",
        ),
        (
            "replay --policies p.yaml iso.log",
            "iso.log: an access log whose lines cannot be read: time: `2026-11-28T00:00:00+00:00` & log `$time_local` (nginx)",
        ),
        (
            "import nginx limits.conf",
            "limits.conf: no policies, because none of its limits could be imported",
        ),
        (
            "import sentinel grade.json",
            "grade: `7` is neither 0 (threads) nor 1 (requests per second)",
        ),
        ("validate p.yaml", "tip: use `sluicegate policies check FILE` for policies"),
        ("policies lint p.yaml", "tip: use `sluicegate policies check FILE`"),
        ("policies list", "tip: use `sluicegate policies export --app APP`"),
        ("serve --port 80", "tip: the address is an option: `--listen 127.0.0.1:8080`"),
        ("serve -c a.toml", "tip: the configuration is an option: `--config FILE`"),
        ("-v", "tip: `-V` prints the version"),
        (
            "tokens create --app shop --name web --scope check --days 30d",
            "--days <DAYS>': expected a whole number from 1 to 731",
        ),
        (
            "tokens create --app shop --name web --scope check --output none/web.token",
            "--output: cannot write to none/web.token: No such file or directory",
        ),
        (
            "import sentinel object.json",
            "expected a JSON array of flow rules, such as `[{\"resource\": \"…\", \"count\": 10}]`",
        ),
    ]);
}

/// Files of other programs, and files for the wrong command.
#[test]
fn mistakes_in_files_of_others_and_in_arguments() {
    check_commands(&[
        (
            "import nginx semicolon.conf",
            "semicolon.conf:1: `limit_req_zone $binary_remote_addr zone=a:10m rate=10r/s` has no `;`: it is missing before `server`",
        ),
        (
            "import nginx rate.conf",
            "zone `a`: rate: `10/s` is not a rate of nginx; expected requests a second or a minute, such as `10r/s`",
        ),
        (
            "import sentinel text.json",
            "count: `\"3\"` is a text; expected a number, without quotes",
        ),
        (
            "import rate-limiter-info --csv semicolon.csv",
            "semicolon.csv:1: the columns are separated by `;`; expected `,`",
        ),
        (
            "import rate-limiter-info --csv short.csv",
            "short.csv:2: cells: `3`; expected 4, as many as the first line has columns",
        ),
        ("check login alice 3", "tip: the cost is an option: `--cost 3`"),
        ("policies apply p.yaml --app shop", "tip: the file is an option: `--file p.yaml`"),
        (
            "replay --policies p.yaml --trusted-proxies nginx empty.log",
            "expected an address or a network, such as 10.0.0.0/8",
        ),
        (
            "replay --policies p.yaml a.log.zst",
            "compressed with zstd, which is not read; expected text or gzip",
        ),
    ]);
}

#[test]
fn mistakes_in_asking_a_server() {
    let server = Server::start();
    let (http, admin, resp) = (&server.http, &server.admin, &server.resp);
    let tls = http.replace("http://", "https://");
    let resp = resp.replace("resp://", "http://");
    let rls = server.rls.replace("rls://", "http://");
    for (command, expected) in [
        (format!("check logins a --to {http}"), "unknown policy `logins`; did you mean `login`?"),
        (format!("check shp a --to {http}"), "unknown policy `shp`"),
        (format!("check login a --to {admin}"), "has no /v1/check: `--to` is the HTTP address"),
        (
            format!("check login a --to {resp}"),
            "does not speak HTTP, but the Redis protocol (port 6380 by default): the HTTP address is port 8080 by default",
        ),
        (format!("check login a --to {rls}"), "does not speak HTTP, but gRPC, for Envoy"),
        (
            format!("status --to {http}"),
            "has no /v1/policies: `--to` is the admin address, such as http://127.0.0.1:8082",
        ),
        (format!("top login --to {http}"), "has no /v1/top: `--to` is the admin address"),
        (format!("events --to {http}"), "has no /v1/policies: `--to` is the admin address"),
        (format!("top logins --to {admin}"), "unknown policy `logins`; did you mean `login`?"),
        (
            format!("settle logins a --id 1 --charged 2 --cost 1 --to {http}"),
            "did you mean `login`?",
        ),
        (
            format!("bench --policy login --requests 1 --to {resp}"),
            "speaks the Redis protocol (port 6380 by default): use `sluicegate bench resp`, or another address (port 8080 by default)",
        ),
        (
            format!("bench resp --policy login --requests 1 --to {http}"),
            "speaks HTTP: use `sluicegate bench http`, or another address (port 6380 by default)",
        ),
        (format!("bench --policy login --requests 1 --to {rls}"), "use `sluicegate bench rls`"),
        (
            format!("bench --policy login --requests 1 --to {admin}"),
            "no /v1/check here: `--to` is the HTTP address",
        ),
        (format!("check login a --to {tls}"), "does not speak TLS; use http://"),
        (format!("bench http --policy nope --requests 1 --to {http}"), "nope"),
    ] {
        let ran = run(&command);
        assert!(ran.status != Some(0) && ran.err.contains(expected), "{command}: {ran:?}");
    }
    let taken = http.strip_prefix("http://").expect("it is HTTP");
    let ran = run(&format!("serve --listen {taken} --resp off --rls off --admin off"));
    let expected = format!(
        "http.listen: cannot listen on {taken}, choose another with `--listen`, or `--listen off`"
    );
    assert!(ran.status != Some(0) && ran.err.contains(&expected), "{ran:?}");
    // A policy of another app is not named.
    assert!(!run(&format!("check shp a --to {http}")).err.contains("did you mean"));
}

#[test]
fn a_command_line_that_makes_no_sense_ends_with_status_2() {
    for command in [
        "bench --policy a --pipeline 2",
        "bench --policy a --threads 2 --connections 1",
        "bench --policy a --to 192.0.2.1:1",
        "redis-acl nowhere",
    ] {
        assert_eq!(run(command).status, Some(2), "{command}");
    }
    let version = run("version");
    assert_eq!((version.status, version.out), (Some(0), run("--version").out));
}

#[test]
fn what_could_not_be_read_was_not_replayed() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let (log, policies) = (folder.path().join("empty"), folder.path().join("p.yaml"));
    fs::write(&log, "").expect("it can be written");
    fs::write(&policies, POLICIES).expect("it can be written");
    let ran = run(&format!("replay --policies {} {}", path(&policies), path(&log)));
    assert!(ran.status == Some(1) && !ran.err.contains("replayed"), "{ran:?}");
}

#[test]
fn events_of_a_policy_that_is_not_there_are_warned_of_at_once() {
    let server = Server::start();
    let mut watching = program();
    watching.args(["events", "--policy", "logn", "--to", &server.admin]).stderr(Stdio::piped());
    let mut watching = watching.spawn().expect("the program is built");
    let mut lines = BufReader::new(watching.stderr.take().expect("it is piped")).lines();
    let line = lines.next().expect("a line").expect("text");
    watching.kill().expect("it runs");
    watching.wait().expect("it was not waited for");
    assert_eq!(line, "warning: no policy `logn`; did you mean `login`?");
}

#[test]
fn mistakes_in_a_request() {
    let server = Server::start();
    let (check, nowhere) = (format!("{}/v1/check", server.http), format!("{}/check", server.http));
    let (batch, auth) =
        (format!("{}/v1/check:batch", server.http), format!("{}/v1/auth/logn", server.http));
    let json = "content-type: application/json";
    let body = |text| vec!["-H", json, "-d", text];
    let allowed = "method not allowed; the `allow` header names those that are";
    for (url, options, expected) in [
        (&check, vec![], allowed),
        (&nowhere, body("{}"), "path not found; the paths are in /v1/openapi.json"),
        (&check, vec!["-d", "{}"], "content-type: expected `application/json`"),
        (&check, body("{"), "not JSON: EOF while parsing an object at column 1"),
        (&check, body(r#"{"polcy":"a"}"#), "unknown field `polcy`, expected one of `policy`"),
        (&check, body(r#"{"policy":"logn"}"#), "unknown policy `logn`; did you mean `login`?"),
        (&batch, body(r#"{"checks":[{"policy":"logn"}]}"#), "did you mean `login`?"),
        (
            &batch,
            body(r#"{"atomic":true,"checks":[{"policy":"logn"}]}"#),
            "checks[0]: policy: unknown policy `logn`; did you mean `login`?; nothing was charged",
        ),
        // A policy of another app is not named.
        (&check, body(r#"{"policy":"shp"}"#), "unknown policy `shp`\""),
        (
            &auth,
            vec!["-H", "x-original-uri: /", "-H", "x-original-method: GET"],
            "unknown policy `logn`; did you mean `login`?",
        ),
    ] {
        let mut curl = Command::new("curl");
        let answer = curl.arg("-sS").args(&options).arg(url).output().expect("curl is installed");
        let answer = String::from_utf8(answer.stdout).expect("it is text");
        assert!(answer.contains(expected), "{url} {options:?}: {answer}\nlacks {expected}");
    }
}

#[test]
fn a_server_without_policies_warns_and_names_the_ways_to_get_some() {
    let quiet = "serve --listen 127.0.0.1:0 --resp off --rls off --admin off";
    let mut program = program();
    program.args(quiet.split(' ')).stderr(Stdio::piped());
    let mut server = Process::start(&mut program, 1);
    server.signal("TERM");
    let mut log = String::new();
    server.stderr.take().expect("it is piped").read_to_string(&mut log).expect("it is text");
    let expected = "WARN no policies: checks that are authorized are answered with 404 (code 0); start with \
                    --policies FILE (`sluicegate init` writes one), or --catalog sqlite:FILE";
    assert!(log.contains(expected), "{log}");
}

/// The log of a server without an admin address, up to a line with `last`; `program` starts it.
fn logged_without_admin(program: &mut std::process::Command, last: &str) -> String {
    program.args("serve --listen 127.0.0.1:0 --resp off --rls off --admin off".split(' '));
    let mut server = Process::start(program.stderr(Stdio::piped()), 1);
    let lines = BufReader::new(server.stderr.take().expect("it is piped")).lines();
    let mut log = String::new();
    for line in lines {
        log += &line.expect("it is text");
        if log.contains(last) {
            break;
        }
    }
    log
}

#[test]
fn a_server_without_an_admin_api_prints_no_setup_token() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let catalog = format!("sqlite:{}", path(&folder.path().join("catalog.db")));
    let mut program = program();
    program.env("SLUICEGATE__CATALOG__URL", &catalog).env("XDG_STATE_HOME", folder.path());
    let log = logged_without_admin(&mut program, "the catalog has no accounts");
    assert!(log.contains("; create one at a server with an admin API"), "{log}");
    assert!(!log.contains("sgsetup_"), "{log}");
}

#[test]
fn a_server_that_may_open_few_files_logs_how_many_connections_it_takes() {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sluicegate")]);
    let log = logged_without_admin(&mut shell, "INFO started");
    let expected = "server.connections_max: an address takes 51 connections, not 1024: this process may \
                    open 256 files (`ulimit -n`, `LimitNOFILE=`), and 1/5 of them are for one address";
    assert!(log.contains(expected), "{log}");
}

#[test]
fn a_directory_without_policies_is_named() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let mut program = program();
    program.args("serve --listen 127.0.0.1:0 --resp off --rls off --admin off".split(' '));
    program.arg("--policies").arg(folder.path()).stderr(Stdio::piped());
    let mut server = Process::start(&mut program, 1);
    server.signal("TERM");
    let mut log = String::new();
    server.stderr.take().expect("it is piped").read_to_string(&mut log).expect("it is text");
    let expected = format!("{} has none: put *.yaml, *.yml or *.json files", path(folder.path()));
    assert!(log.contains(&expected), "{log}");
}

#[test]
fn a_path_of_a_socket_that_is_too_long_is_told_with_the_bound() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let long = folder.path().join("a".repeat(108));
    let ran = run(&format!("serve --listen unix:{} --resp off --rls off --admin off", path(&long)));
    assert!(ran.err.contains("the path is too long, expected at most 107 bytes"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_the_url_of_a_database() {
    let url = need!(SqlServer::shared(SqlKind::MariaDb).await).database().expect("it is made");
    let (scheme, rest) = url.split_once("://").expect("it is a URL");
    let (_, at) = rest.rsplit_once('@').expect("it names a user");
    let (_, name) = at.split_once('/').expect("it names a database");
    for (url, expected) in [
        (format!("{scheme}://nobody:wrong@{at}"), "Access denied for user 'nobody'@"),
        (format!("{scheme}://u:p@127.0.0.1:1/{name}"), "Connection refused"),
    ] {
        let quiet = "serve --listen 127.0.0.1:0 --resp off --rls off --admin off --catalog";
        let told = told(Path::new("."), &format!("{quiet} {url}"), &[]);
        assert!(told.contains("catalog.url: ") && told.contains(expected), "{told}");
        assert!(!told.contains("wrong") && !told.contains("u:p"), "{told}");
    }
}
