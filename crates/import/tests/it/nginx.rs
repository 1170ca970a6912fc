//! nginx.

use serde_json::{Value, json};
use sluicegate_import::ImportSource::Nginx;
use sluicegate_import::import;
use sluicegate_kernel::{Cost, Micros, Moment, States, Verb};
use sluicegate_policy::Policy;

use crate::imported;

/// Lines and codes.
type Notes = Vec<(Option<u64>, &'static str)>;

/// The policies by name with their `match`, and the codes of notes.
fn matches(text: &str) -> (Vec<(String, Value)>, Notes) {
    let (policies, notes) = imported(Nginx, &format!("{ZONES}{text}"));
    let named =
        |policy: &Value| (policy["name"].as_str().unwrap().to_owned(), policy["match"].clone());
    (policies.iter().map(named).collect(), notes)
}

/// One line of zones.
const ZONES: &str = "limit_req_zone $host zone=a:1m rate=1r/s; limit_req_zone $host zone=b:1m rate=1r/s; \
                     limit_req_status 429; limit_req_zone $server_name zone=s:1m rate=1r/s;\n";

fn check(text: &str, expected: &Value) {
    let (found, notes) = matches(text);
    assert_eq!(json!(found), *expected, "{text}: {notes:?}");
    assert!(notes.is_empty(), "{text}: {notes:?}");
}

#[test]
fn limits_become_leaky_buckets_in_their_places() {
    let (policies, notes) = imported(
        Nginx,
        "http {
    limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;
    limit_req_zone $http_x_user$uri zone=slow:1m rate=30r/m;
    limit_req_status 429;
    server {
        limit_req zone=one burst=20 nodelay;
        location /search/ { proxy_pass http://up; }
        location = /login {
            limit_req zone=slow;
        }
        location ~ \\.php$ { limit_req zone=one; }
    }
}
",
    );
    let one = json!({ "rate": "10/s", "burst": 20, "delay": "none" });
    let expected = json!([
        { "name": "one", "key": ["remote_ip"], "rules": [{ "name": "one", "leaky_bucket": one }],
          "match": { "path": { "prefix": "/" }, "except": [{ "path": { "exact": "/login" } }] } },
        { "name": "slow-login", "key": ["header:x-user", "path"], "match": { "path": { "exact": "/login" } },
          "rules": [{ "name": "slow", "leaky_bucket": { "rate": "30/m" } }] },
    ]);
    assert_eq!(json!(policies), expected);
    assert_eq!(notes, [(Some(3), "nginx_joined"), (Some(11), "nginx_location")]);
}

#[test]
fn what_differs_is_noted_with_its_line() {
    let text = "limit_req_zone $arg_q zone=q:1m rate=1r/s;
limit_req_zone $host zone=h:1m rate=1r/s;
limit_req_zone $host zone=bad:1m rate=1/s;
limit_conn_zone $binary_remote_addr zone=c:1m;
include other.conf; include mime.types;
server {
  location /a { limit_req zone=h; limit_conn c 4; }
  location /b { limit_req zone=q; limit_req_dry_run on; limit_req zone=none; }
  location /c { limit_req zone=h burst=x; if ($x) { limit_req zone=h; } }
  location /d/ { limit_req zone=h burst=1 delay=9; limit_req_dry_run on; limit_conn c many; }
  location /e/ { limit_rate 50k; limit_rate_after 1m; limit_conn_log_level warn; limit_conn_dry_run on; limit_conn c 9; }
}
";
    let (policies, notes) = imported(Nginx, text);
    let names: Vec<_> = policies.iter().map(|policy| policy["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["h-a", "h-d", "c", "c-2"]);
    assert_eq!(policies[1]["overflow"], "shadow");
    assert_eq!(policies[1]["rules"][0]["leaky_bucket"]["delay"], "none");
    assert_eq!(policies[2]["rules"][0]["concurrency"], json!({ "limit": 4, "ttl": "60s" }));
    assert_eq!((&policies[2]["match"], &policies[3]["overflow"]), (&Value::Null, &json!("shadow")));
    let expected = [
        (Some(1), "nginx_key"),
        (Some(3), "nginx_rate"),
        (Some(5), "nginx_include"),
        (Some(7), "nginx_status"),
        (Some(7), "nginx_connections"),
        (Some(8), "nginx_zone"),
        (Some(9), "nginx_block"),
        (Some(9), "nginx_wrong"),
        (Some(10), "nginx_wrong"),
        (Some(10), "nginx_shared"),
        (Some(11), "nginx_bytes"),
        (Some(11), "nginx_ignored"),
        (Some(11), "nginx_ignored"),
        (Some(11), "nginx_connections"),
    ];
    let sorted = |notes: &[(Option<u64>, &'static str)]| {
        let mut notes = notes.to_vec();
        notes.sort_unstable();
        notes
    };
    assert_eq!(sorted(&notes), sorted(&expected));
    let wider = import(Nginx, text).unwrap().unless_wider(false).unwrap_err();
    let codes: Vec<_> = wider.iter().map(|note| note.finding.code()).collect();
    for other in ["nginx_status", "nginx_ignored", "nginx_connections"] {
        assert!(!codes.contains(&other), "{other}: {codes:?}");
    }
    assert_eq!(codes.len(), expected.len() - 5, "{codes:?}");
}

#[test]
fn the_most_specific_location_alone_limits_a_request() {
    let path = |form: &str, path: &str| json!({ "path": { form: path } });
    check(
        "server { location / { limit_req zone=a; } location /api/ { limit_req zone=b; } location /api/free/ { } }",
        &json!([
            ["a", { "path": { "prefix": "/" }, "except": [path("prefix", "/api/")] }],
            ["b-api", { "path": { "prefix": "/api/" }, "except": [path("prefix", "/api/free/")] }],
        ]),
    );
    check(
        "server { limit_req zone=a; location /x { limit_req zone=b; location /x/y { } location = /x/z { limit_req zone=a; } } }",
        &json!([
            ["a", [
                { "path": { "prefix": "/" }, "except": [path("starts_with", "/x")] },
                path("exact", "/x/z"),
            ]],
            ["b-x", { "path": { "starts_with": "/x" }, "except": [path("exact", "/x/z")] }],
        ]),
    );
    check(
        "server { limit_req zone=a; location /x/ { limit_req zone=b; } location /x/y/ { } }",
        &json!([
            ["a", [{ "path": { "prefix": "/" }, "except": [path("prefix", "/x/")] }, path("prefix", "/x/y/")]],
            ["b-x", { "path": { "prefix": "/x/" }, "except": [path("prefix", "/x/y/")] }],
        ]),
    );
}

#[test]
fn a_location_in_another_counts_only_where_nginx_looks_into_that() {
    check(
        "server { location /a/b { limit_req zone=a; } location /a/ { location /a/bc { limit_req zone=b; } location /a/c { limit_req zone=b; } } }",
        &json!([
            ["a-a-b", { "path": { "starts_with": "/a/b" } }],
            ["b-a-c", { "path": { "starts_with": "/a/c" } }],
        ]),
    );
}

#[test]
fn limits_of_http_and_server_hold_for_all_that_is_inside() {
    let all = json!({ "path": { "prefix": "/" } });
    for text in [
        "limit_req zone=a;",
        "server { limit_req zone=a; }",
        "server { limit_req zone=a; location /x { limit_conn_status 429; } }",
        "limit_req zone=a; server { server_name x; } server { server_name y; location /y { } }",
        "server { server_name x; limit_req zone=a; } server { server_name y; limit_req zone=a; }",
        "server { location / { limit_req zone=a; } }",
    ] {
        check(text, &json!([["a", all]]));
    }
}

#[test]
fn a_limit_of_connections_does_not_replace_one_of_requests() {
    let (found, notes) = matches(
        "limit_conn_zone $host zone=c:1m; limit_conn_status 429; server { limit_req zone=a; location /x { limit_conn c 5; } }",
    );
    assert_eq!(json!(found), json!([["a", { "path": { "prefix": "/" } }], ["c", null]]));
    assert_eq!(notes, [(Some(2), "nginx_connections")]);
}

#[test]
fn a_policy_of_one_site_does_not_meet_requests_of_another() {
    let path = json!({ "prefix": "/" });
    let host = |hosts: &[&str]| json!({ "host": hosts });
    check(
        "server { server_name a.x; location / { limit_req zone=a; } } server { server_name b.x .c.x; location / { limit_req zone=b; } }",
        &json!([
            ["a", { "path": path, "except": [host(&["*.c.x", "b.x", "c.x"])] }],
            ["b", { "host": ["b.x", "c.x", "*.c.x"], "path": path }],
        ]),
    );
    // Of the names of the default server, those that another server's would take away.
    check(
        "server { server_name a.x; limit_req zone=a; } server { server_name *.x; }",
        &json!([["a", [
            { "host": ["a.x"], "path": path },
            { "path": path, "except": [host(&["*.x"])] },
        ]]]),
    );
    check(
        "server { } server { server_name *.x; limit_req zone=a; } server { server_name b.x; }",
        &json!([["a", { "host": ["*.x"], "path": path, "except": [host(&["b.x"])] }]]),
    );
    // The default server of another address has its limits for all names but those of its address.
    check(
        "server { listen 80; server_name a; return 301; } server { listen 443; server_name a; limit_req zone=a; }",
        &json!([["a", { "path": path }]]),
    );
    check(
        "server { listen 80; } server { listen 0.0.0.0:80 default_server; server_name a; limit_req zone=a; } server { server_name b; listen *:80; }",
        &json!([["a", { "path": path, "except": [host(&["b"])] }]]),
    );
}

#[test]
fn the_name_of_the_server_in_a_key_makes_a_policy_for_each() {
    let path = json!({ "prefix": "/" });
    check(
        "limit_req zone=s; server { server_name a; } server { server_name b; } server { }",
        &json!([
            ["s", { "path": path, "except": [{ "host": ["b"] }] }],
            ["s-2", { "host": ["b"], "path": path }],
        ]),
    );
}

/// Checks that an import of this text stops with a note of this code and no other.
fn stops(text: &str, expected: &str) {
    let found = import(Nginx, &format!("{ZONES}{text}")).unwrap();
    let stops = found.unless_wider(false).unwrap_err();
    let codes: Vec<_> = stops.iter().map(|note| note.finding.code()).collect();
    assert_eq!(codes, [expected], "{text}");
}

#[test]
fn what_nginx_limits_by_another_path_or_value_stops_an_import() {
    for (text, expected) in [
        ("error_page 404 /fall; server { location = /fall { limit_req zone=a; } }", "nginx_jump"),
        (
            "server { location / { auth_request /ask; } location = /ask { limit_req zone=a; } }",
            "nginx_jump",
        ),
        (
            "server { location / { } location /file/ { internal; limit_req zone=a; } }",
            "nginx_internal",
        ),
        ("server { merge_slashes off; limit_req zone=a; }", "nginx_slashes"),
        (
            "server { server_name s x; limit_req zone=s; } server { server_name s y; limit_req zone=s; }",
            "nginx_same_server",
        ),
        (
            "limit_req_zone $uri zone=u:1m rate=1r/s; server { rewrite ^ /i break; limit_req zone=u; }",
            "nginx_rewritten",
        ),
        (
            "map $x $http_plan { default all; } limit_req_zone $http_plan zone=u:1m rate=1r/s; server { limit_req zone=u; }",
            "nginx_key",
        ),
        (
            "limit_req_zone $http_x_forwarded_for zone=u:1m rate=1r/s; server { limit_req zone=u; }",
            "nginx_forwarded_for",
        ),
    ] {
        stops(text, expected);
    }
}

#[test]
fn what_no_match_says_stops_an_import() {
    for (text, expected) in [
        (
            "server { server_name a; } server { server_name ~^b; limit_req zone=a; }",
            "nginx_server_name",
        ),
        ("server { location / { } location ~ x { limit_req zone=a; } }", "nginx_location"),
        (
            "server { location / { limit_req zone=a; } location ~* x { limit_req zone=b; } }",
            "nginx_location",
        ),
        ("server { location / { } location @x { limit_req zone=a; } }", "nginx_location"),
        (
            "server { rewrite ^/old/(.*) /new/$1 last; location /new/ { limit_req zone=a; } }",
            "nginx_jump",
        ),
        (
            "server { location / { try_files $uri /x; } location /x { limit_req zone=a; } }",
            "nginx_jump",
        ),
        (
            "server { location = /index.html { limit_req zone=a; } location / { root /srv; } }",
            "nginx_index",
        ),
        (
            "server { index index.htm start.html; location /wiki/ { } location /wiki/start { limit_req zone=a; } }",
            "nginx_index",
        ),
        ("server { location = / { } location / { limit_req zone=a; } }", "nginx_index"),
        ("server { index a /b.html; location /b { limit_req zone=a; } }", "nginx_index"),
        (
            "server { location /a { limit_req zone=a; } location /b { limit_req zone=a burst=5; } }",
            "nginx_shared",
        ),
        ("stream { server { limit_conn x 5; } }", "nginx_block"),
    ] {
        stops(text, expected);
    }
    // The same requests have the same limits.
    for text in [
        "server { limit_req zone=a; location ~ x { } location @y { } error_page 404 /404.html; rewrite ^/x /y; }",
        "server { location / { limit_req zone=a; try_files $uri @app; } location @app { } }",
        "server { location /x/ { limit_req zone=a; } rewrite ^ https://$host$request_uri; error_page 500 /50x.html; }",
        "server { server_name a; } server { server_name ~^b; } limit_req zone=a;",
        "server { location = /index.html { limit_req zone=a; } location / { proxy_pass http://app; } }",
        "server { location = / { return 204; } location / { limit_req zone=a; } }",
        "server { location / { limit_req zone=a; } location = /index.html { limit_req zone=b; } }",
        "server { location ^~ /static/ { } location / { limit_req zone=a; } location ~ x { limit_req zone=a; } }",
    ] {
        let found = import(Nginx, &format!("{ZONES}{text}")).unwrap();
        assert_eq!(found.notes, [], "{text}");
    }
    let (_, notes) = matches("server { location /x/ { limit_req zone=a; } location ~ x { } }");
    assert_eq!(notes, [(Some(2), "nginx_regex")]);
    let (_, notes) = matches(
        "server { limit_req zone=a; location /x/ { limit_req zone=b; limit_req zone=a; } location ~ x { } }",
    );
    assert_eq!(notes, [(Some(2), "nginx_regex")]);
}

#[test]
fn a_key_that_counts_otherwise_has_a_note() {
    let text = "limit_req_zone $http_x_api_key zone=k:1m rate=1r/m;\nlimit_req_zone $request_uri zone=u:1m rate=1r/m;\n\
                limit_req_status 429;\nserver { location /key/ { limit_req zone=k; } location /uri/ { limit_req zone=u; } }";
    let (policies, notes) = imported(Nginx, text);
    assert_eq!(policies.len(), 2);
    assert_eq!(notes, [(Some(1), "nginx_empty_key"), (Some(2), "nginx_request_uri")]);
    assert!(import(Nginx, text).unwrap().unless_wider(false).is_ok());
}

#[test]
fn blocks_in_lua_are_skipped_as_lua_is() {
    let lua = r#"access_by_lua_block {
                -- closes the template with a }
                -- an unbalanced { in a comment
                local open = "{"
                ngx.header["X-T"] = 'a\'}b'
                ngx.say([[ {{ name } ]])
            }"#;
    check(
        &format!(
            "server {{ set_by_lua_block $pass{{ return \"}}\" }}\n location /a/ {{ {lua} limit_req zone=a; }} }}"
        ),
        &json!([["a-a", { "path": { "prefix": "/a/" } }]]),
    );
}

#[test]
fn as_many_pass_at_once_as_in_nginx() {
    for (burst, passing) in
        [("", 1), ("burst=5", 6), ("burst=5 nodelay", 6), ("burst=5 delay=2", 6)]
    {
        let text = format!(
            "limit_req_zone $host zone=z:1m rate=1r/s; server {{ limit_req zone=z {burst}; }}"
        );
        let (policies, _) = imported(Nginx, &text);
        let document = Policy::parse_one(&policies[0].to_string()).unwrap();
        let rules = document.rules();
        let (mut states, now) = (States::default(), Moment::new(Micros::from_secs(1_000)));
        let mut check = || rules.set().decide(&mut states, &Verb::Check { cost: Cost::ONE }, &now);
        let passed = (0..20).filter(|_| check().unwrap().decision.allowed()).count();
        assert_eq!(passed, passing, "{burst}");
    }
}

/// The first rule of a server whose zone and limit have these parameters.
fn rule(zone: &str, limit: &str) -> Value {
    let text = format!(
        "limit_req_status 429; limit_req_zone $host {zone}; server {{ limit_req {limit}; }}"
    );
    imported(Nginx, &text).0[0]["rules"][0]["leaky_bucket"].clone()
}

#[test]
fn a_rate_is_thousandths_of_a_request_a_second_as_nginx_counts() {
    for (rate, expected) in [
        ("7r/s", "7/s"),
        ("30r/m", "30/m"),
        ("3r/m", "3/m"),
        ("1r/m", "16/1000s"),
        ("10r/m", "166/1000s"),
    ] {
        let rule = rule(&format!("zone=a:1m rate={rate}"), "zone=a");
        assert_eq!(rule["rate"], expected, "{rate}");
    }
}

#[test]
fn of_a_repeated_parameter_the_last_one_counts() {
    let found = rule("zone=a:1m rate=9r/s rate=2r/s", "zone=a burst=3 burst=1");
    assert_eq!(found, json!({ "rate": "2/s", "burst": 1 }));
    let found = rule("zone=a:1m rate=2r/s", "zone=a burst=9 nodelay delay=4");
    assert_eq!(found, json!({ "rate": "2/s", "burst": 9, "delay": 4 }));
    let found = rule("zone=a:1m rate=2r/s", "zone=a burst=9 delay=4 nodelay");
    assert_eq!(found, json!({ "rate": "2/s", "burst": 9, "delay": "none" }));
}

#[test]
fn a_location_is_the_decoded_path_with_the_escapes_of_nginx() {
    for (location, path) in [
        ("/a%20b", "/a%2520b"),
        ("\"/a b\"", "/a b"),
        (r"/a\;b", r"/a\;b"),
        (r#""/t\tt""#, "/t%09t"),
        ("/wiki?", "/wiki%3F"),
    ] {
        let text = format!(
            "server {{ location = {location} {{ limit_req zone=a; }} location / {{ return 204; }} }}"
        );
        let (policies, notes) = matches(&text);
        assert_eq!(policies[0].1, json!({ "path": { "exact": path } }), "{location}: {notes:?}");
    }
}
