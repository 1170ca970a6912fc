//! nginx in both ways: `auth_request`, and its Lua module with the protocol of Redis.

use std::fmt::Write;
use std::path::Path;

use sluicegate_import::{ImportSource, import};
use sluicegate_kernel::{Cost, Micros, Moment, States, Verb};
use sluicegate_policy::Policy;
use sluicegate_testkit::{Error, Launch, Options, Program, RedisServer, need};

use super::audit::{exactly_five_of_twenty_pass, exactly_what_the_policy_allows_passes};
use super::client::{ELSEWHERE, ask, get, get_at_once, send};
use super::soon;
use super::stage::{Places, Stage, changed, example, root, tool};

const AUTH_REQUEST: &str = "gateways/nginx/auth_request.conf";
const LUA: &str = "gateways/nginx/lua.conf";

/// Directives of modules, their files, and the folder in which Debian keeps those.
const MODULES: [(&str, &str); 3] = [
    ("lua_package_path", "ndk_http_module.so"),
    ("lua_package_path", "ngx_http_lua_module.so"),
    ("js_import", "ngx_http_js_module.so"),
];
const MODULES_DIR: &str = "/usr/lib/nginx/modules";

/// Starts nginx with `site` as a file of `conf.d`; the main file has the necessary parts of a distribution's package.
pub(crate) fn start(places: &Places, site: &str) -> Result<Program, Error> {
    let mut main = String::new();
    for (_, name) in MODULES.iter().filter(|(directive, _)| site.contains(directive)) {
        let module = Path::new(MODULES_DIR).join(name);
        if !module.is_file() {
            let missing = format!("{name} of nginx is not installed; `make deps` installs it");
            return Err(Error::Missing(missing));
        }
        writeln!(main, "load_module {};", module.display()).expect("a String takes all text");
    }
    // One process, which ends with the test.
    main += "daemon off; master_process off; pid {dir}/pid; error_log stderr;\n";
    main += "events {}\nhttp { access_log off;\n";
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        writeln!(main, "{kind}_temp_path {{dir}}/{kind};").expect("a String takes all text");
    }
    // A test can give a client another address.
    main += "set_real_ip_from 127.0.0.1; real_ip_header X-Test-Address;\n";
    main += "include {dir}/site.conf;\n}\n";
    let files = [("nginx.conf", main), ("site.conf", places.in_text(site))];
    let args = ["-c", "{dir}/nginx.conf", "-e", "stderr"];
    Program::start(&tool("nginx"), &Launch { files: &files, args: &args })
}

/// The example, with the path of its Lua file on this machine.
fn site(path: &str) -> String {
    let text = example(path);
    if path != LUA {
        return text;
    }
    let folder = root().join("examples/gateways/nginx");
    changed(&text, &[("/etc/nginx/lua", &folder.display().to_string())])
}

async fn stage(path: &str, policies: &str, options: &[&str]) -> Result<Stage, Error> {
    Stage::set(policies, options, async |places| start(places, &site(path))).await
}

#[tokio::test]
async fn ten_a_second_and_five_at_once_pass_through_auth_request() {
    let stage = need!(stage(AUTH_REQUEST, &example("gateways/policies.yaml"), &[]).await);
    exactly_what_the_policy_allows_passes(&stage).await;
    let told = get(stage.gateway, "/", "").await;
    assert_eq!(told.header("ratelimit-policy"), Some("\"per-client\";q=5"));
    assert!(told.header("ratelimit").is_some_and(|left| left.starts_with("\"per-client\";r=")));
}

#[tokio::test]
async fn ten_a_second_and_five_at_once_pass_through_lua() {
    let stage = need!(stage(LUA, &example("gateways/policies.yaml"), &[]).await);
    exactly_what_the_policy_allows_passes(&stage).await;
}

#[tokio::test]
async fn ten_a_second_and_five_at_once_pass_with_budgets_in_redis() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=5000", redis.url());
    let policies = example("gateways/policies.yaml");
    let stage = need!(stage(AUTH_REQUEST, &policies, &["--store", &url]).await);
    exactly_what_the_policy_allows_passes(&stage).await;
}

/// The number of twenty requests at once that the policy imported from `limits` lets pass.
fn passed_by_policy(limits: &str) -> usize {
    let imported = import(ImportSource::Nginx, limits).expect("nginx reads it, too");
    let [policy] = &imported.policies[..] else { panic!("{imported:?}") };
    let policy = Policy::parse_one(&policy.document.to_string()).expect("it is valid");
    let (mut states, now) = (States::default(), Moment::new(Micros::from_secs(1_000)));
    let mut passes = || {
        let verb = Verb::Check { cost: Cost::ONE };
        let verdict = policy.rules().set().decide(&mut states, &verb, &now);
        verdict.expect("it knows `check`").decision.allowed()
    };
    (0..20).filter(|_| passes()).count()
}

#[tokio::test]
async fn as_many_pass_at_once_by_an_imported_limit_as_by_nginx_itself() {
    for limit in ["", "burst=5 nodelay", "burst=1 nodelay", "burst=19 nodelay", "burst=7 delay=9"] {
        let zone = "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m;";
        let site = format!(
            "{zone}\nserver {{ listen 127.0.0.1:8000; limit_req_status 429;\n\
             location / {{ limit_req zone=z {limit}; proxy_pass http://127.0.0.1:9000; }} }}\n"
        );
        let launch = async |places: &Places| start(places, &site);
        let policies = example("gateways/policies.yaml");
        let stage = need!(Stage::set(&policies, &[], launch).await);
        let calls = get_at_once(stage.gateway, "/", 20).await;
        let passed = calls.iter().filter(|call| call.status == 200).count();
        assert_eq!(passed, passed_by_policy(&site), "{limit}");
    }
}

#[tokio::test]
async fn a_client_has_one_budget_for_all_of_its_addresses() {
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s, burst: 5", "1/h")]);
    for path in [AUTH_REQUEST, LUA] {
        let stage = need!(stage(path, &policies, &[]).await);
        for (address, status) in [
            ("2001:db8:0:1::1", 200),
            ("2001:db8:0:1:ffff::2", 429),
            ("2001:db8:0:2::1", 200),
            ("192.0.2.1", 200),
            ("::ffff:192.0.2.1", 429),
            ("192.0.2.2", 200),
        ] {
            let line = format!("x-test-address: {address}\r\n");
            let call = get(stage.gateway, "/", &line).await;
            assert_eq!(call.status, status, "{path}: {address}");
        }
    }
}

#[tokio::test]
async fn a_body_gets_to_the_application_and_nowhere_else() {
    for path in [AUTH_REQUEST, LUA] {
        let stage = need!(stage(path, &example("gateways/policies.yaml"), &[]).await);
        let request =
            "POST /a HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody";
        let call = send(stage.gateway, ELSEWHERE, request).await.unwrap();
        assert_eq!(call.status, 200, "{path}: {}", call.body);
        assert!(call.body.contains("content-length: 4\r\n"), "{path}: {}", call.body);
    }
}

#[tokio::test]
async fn five_of_twenty_at_once_pass_both_ways() {
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s", "10/h")]);
    for path in [AUTH_REQUEST, LUA] {
        exactly_five_of_twenty_pass(&need!(stage(path, &policies, &[]).await)).await;
    }
}

/// A policy for each behaviour without a store.
const WITHOUT_STORE: &str = "
policies:
  - { name: local, match: { path: { prefix: /local } }, rules: [ { token_bucket: { rate: 10/h, burst: 5 } } ] }
  - { name: allow, on_store_failure: allow, match: { path: { prefix: /allow } }, rules: [ { token_bucket: { rate: 10/h, burst: 5 } } ] }
  - { name: deny, on_store_failure: deny, match: { path: { prefix: /deny } }, rules: [ { token_bucket: { rate: 10/h, burst: 5 } } ] }
";

#[tokio::test]
async fn without_the_store_each_policy_does_what_it_says() {
    let mut redis = need!(RedisServer::start(Options::default()).await);
    let url = format!("{}?deadline_ms=50", redis.url());
    let stage = need!(stage(AUTH_REQUEST, WITHOUT_STORE, &["--store", &url]).await);
    let statuses = async |path| {
        let calls = get_at_once(stage.gateway, path, 10).await;
        [200, 429].map(|status| calls.iter().filter(|call| call.status == status).count())
    };
    soon("Redis decides", async || get(stage.gateway, "/deny", "").await.status == 200).await;
    redis.kill();
    soon("it is missed", async || get(stage.gateway, "/deny", "").await.status == 429).await;
    assert_eq!(statuses("/deny").await, [0, 10]);
    let asks = "x-original-uri: /deny\r\nx-original-method: GET\r\n";
    let denied = ask(stage.server.http, "/v1/auth", asks).await;
    assert_eq!((denied.status, denied.header("x-sluicegate-mode")), (429, Some("deny")));
    assert!(denied.body.contains("#temporary-reduced-capacity"), "{}", denied.body);
    assert_eq!(statuses("/allow").await, [10, 0]);
    assert_eq!(statuses("/local").await, [5, 5]);
}

#[tokio::test]
async fn without_sluicegate_nothing_passes_or_everything_as_the_configuration_says() {
    let open_auth = [("# error_page 500", "error_page 500")];
    let open_lua = [("open = false", "open = true")];
    for (path, open, closed_status) in [(AUTH_REQUEST, open_auth, 500), (LUA, open_lua, 503)] {
        for (changes, status) in [(&[][..], closed_status), (&open[..], 200)] {
            let text = changed(&site(path), changes);
            let policies = example("gateways/policies.yaml");
            let stage = Stage::set(&policies, &[], async |places| start(places, &text)).await;
            let mut stage = need!(stage);
            stage.server.kill();
            let before = stage.app.requests();
            for call in get_at_once(stage.gateway, "/", 10).await {
                assert_eq!(call.status, status, "{path}");
            }
            assert_eq!(stage.app.requests() - before, if status == 200 { 10 } else { 0 });
        }
    }
}

/// Two policies: one permit for a host, and two for an address.
pub(crate) const BY_HOST: &str = "
policies:
  - { name: site, match: { path: { prefix: /host } }, key: [host], rules: [ { token_bucket: { rate: 1/h } } ] }
  - { name: address, match: { path: { prefix: /address } }, key: [remote_ip], rules: [ { token_bucket: { rate: 2/h } } ] }
";

/// Checks that a client cannot forge another identity. The server may answer with an error, but never lets such a
/// request pass.
pub(crate) async fn nobody_is_somebody_else(stage: &Stage, by_address: Option<&str>) {
    assert_eq!(get(stage.gateway, "/host", "").await.status, 200);
    for forged in 0..5 {
        for name in ["x-forwarded-host", "x-original-host", "forwarded"] {
            let call = get(stage.gateway, "/host", &format!("{name}: h{forged}\r\n")).await;
            assert!([400, 429, 500].contains(&call.status), "{name}: {}", call.head);
        }
    }
    let address = by_address.map_or(String::new(), |name| format!("{name}: 192.0.2.1\r\n"));
    let mut passed = 0;
    for forged in 0..10 {
        let lines =
            format!("{address}x-forwarded-for: 6.6.6.{forged}\r\nx-real-ip: 6.6.6.{forged}\r\n");
        passed += usize::from(get(stage.gateway, "/address", &lines).await.status == 200);
    }
    assert_eq!(passed, 2);
}

#[tokio::test]
async fn a_client_chooses_neither_its_host_nor_its_address() {
    for path in [AUTH_REQUEST, "overflow/nginx.conf"] {
        let stage = need!(stage(path, BY_HOST, &[]).await);
        nobody_is_somebody_else(&stage, Some("x-test-address")).await;
    }
}

/// Tagged and diverted by Lua, for one app only.
const MARKED: &str = "
policies:
  - { name: site, apps: [shop], overflow: OVERFLOW, rules: [ { token_bucket: { rate: 1/h } } ] }
";

#[tokio::test]
async fn lua_tells_the_application_what_the_policy_says_of_what_is_over_the_limit() {
    for (overflow, expected) in [
        ("shadow", &["verdict: shadow"][..]),
        ("{ degrade: { tag: cached } }", &["verdict: degrade", "degrade: cached"]),
        ("{ divert: { target: spare } }", &["verdict: divert", "divert: spare"]),
    ] {
        let policies = MARKED.replace("OVERFLOW", overflow);
        let text =
            changed(&site(LUA), &[("policy = \"site\"", "app = \"shop\", policy = \"site\"")]);
        let stage = Stage::set(&policies, &[], async |places| start(places, &text)).await;
        let stage = need!(stage);
        let forged =
            "x-sluicegate-verdict: refuse\r\nx-sluicegate-degrade: x\r\nx-sluicegate-divert: x\r\n";
        let marks = async || {
            let call = get(stage.gateway, "/", forged).await;
            assert_eq!(call.status, 200, "{overflow}: {}", call.body);
            let marks = call.body.lines().filter_map(|line| line.strip_prefix("x-sluicegate-"));
            let mut marks: Vec<_> = marks.map(ToOwned::to_owned).collect();
            marks.sort_by(|a, b| b.cmp(a));
            marks
        };
        assert_eq!(marks().await, ["verdict: pass"], "{overflow}");
        assert_eq!(marks().await, expected, "{overflow}");
    }
}

#[tokio::test]
async fn what_rules_delay_is_held_back_both_ways() {
    let policies = "policies: [ { name: site, match: { path: { prefix: /late } }, key: [path], rules: [ { leaky_bucket: { rate: 20/s, burst: 5 } } ] } ]";
    for path in [AUTH_REQUEST, LUA] {
        let stage = need!(stage(path, policies, &[]).await);
        let calls = get_at_once(stage.gateway, "/late", 6).await;
        let begin = calls.iter().map(|call| call.sent_us).min().unwrap();
        let mut answered: Vec<_> = calls.iter().map(|call| call.answered_us - begin).collect();
        answered.sort_unstable();
        assert!(calls.iter().all(|call| call.status == 200), "{path}");
        // One each 50 ms.
        let in_turn = (0..).zip(&answered).all(|(place, at)| *at >= place * 50_000 - 4_000);
        assert!(in_turn, "{path}: {answered:?}");
    }
}

#[tokio::test]
async fn lua_serves_the_response_of_a_policy_that_degrades() {
    let response = "{ degrade: { response: { status: 503, body: later } } }";
    let policies = MARKED.replace("OVERFLOW", response);
    let app = [("policy = \"site\"", "app = \"shop\", policy = \"site\"")];
    let text = changed(&site(LUA), &app);
    let launch = async |places: &Places| start(places, &text);
    let stage = need!(Stage::set(&policies, &[], launch).await);
    assert_eq!(get(stage.gateway, "/", "").await.status, 200);
    let before = stage.app.requests();
    let call = get(stage.gateway, "/", "").await;
    assert_eq!((call.status, call.body.contains("later")), (503, true), "{}", call.body);
    assert_eq!(stage.app.requests(), before, "it does not get there");
}

#[tokio::test]
async fn a_client_gets_around_no_limit_by_what_it_writes() {
    let policies = "
policies:
  - name: orders
    match: { path: { prefix: /orders }, method: [GET] }
    key: [remote_ip]
    rules: [ { token_bucket: { rate: 1/h } } ]
";
    let stage = need!(stage(AUTH_REQUEST, policies, &[]).await);
    assert_eq!(get(stage.gateway, "/orders", "").await.status, 200);
    for path in ["/orders", "//orders", "/./orders/7", "/x/../orders", "/%6Frders?a", "/orders%2f"]
    {
        assert_eq!(get(stage.gateway, path, "").await.status, 429, "{path}");
    }
    for line in [
        "x-original-uri: /free\r\n",
        "x-forwarded-uri: /free\r\n",
        "x-original-method: POST\r\nx-forwarded-method: POST\r\n",
        "x-original-host: free\r\nx-forwarded-host: free\r\n",
    ] {
        assert_eq!(get(stage.gateway, "/orders", line).await.status, 429, "{line}");
    }
    assert_eq!(get(stage.gateway, "/free", "").await.status, 200);
    // Another address has another budget.
    let request = "GET /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n";
    let statuses = [200, 429];
    for status in statuses {
        let call = send(stage.gateway, ELSEWHERE, request).await.unwrap();
        assert_eq!(call.status, status);
    }
}

/// The example at `path` for a site of static files, such as `/index.html`, whose locations redirect internally.
fn site_of_files(path: &str, folder: &Path) -> String {
    let text = site(path);
    let ask = match path {
        AUTH_REQUEST => "auth_request /_sluicegate;",
        _ => "access_by_lua_block {",
    };
    let (_, from) = text.split_once(ask).expect("the example asks");
    // The directives of the example's location, up to the one that passes requests to the application.
    let (guard, _) = from.split_once("proxy_pass http://127.0.0.1:9000;").expect("it has one");
    let guard = format!("{ask}{guard}");
    let locations = format!(
        "root {root}; index index.html;
         location / {{ {guard} }}
         location /tried/ {{ {guard} try_files $uri @app; }}
         location @app {{ proxy_pass http://127.0.0.1:9000; }}
         location /late/ {{ try_files $uri @guarded; }}
         location @guarded {{ {guard} proxy_pass http://127.0.0.1:9000; }}
         location /twice/ {{ {guard} try_files $uri /index.html; }}
         error_page 404 /404.html;
         location /",
        root = folder.display()
    );
    let first = text.find("location / {").expect("the example has it");
    let end = first + text[first..].find("\n    }\n").expect("it ends") + 7;
    format!("{}{}{}", &text[..first], locations.trim_end_matches("location /"), &text[end..])
}

#[tokio::test]
async fn a_request_that_nginx_redirects_internally_is_charged_once() {
    let policies =
        changed(&example("gateways/policies.yaml"), &[("10/s, burst: 5", "1/h, burst: 6")]);
    let folder = tempfile::tempdir().expect("there is room");
    for file in ["index.html", "404.html", "a.txt"] {
        std::fs::write(folder.path().join(file), file).expect("there is room");
    }
    for path in [AUTH_REQUEST, LUA] {
        for (target, status) in [
            ("/a.txt", 200),
            ("/", 200),
            ("/tried/x", 200),
            ("/late/x", 200),
            ("/twice/x", 200),
            ("/none", 404),
        ] {
            let site = site_of_files(path, folder.path());
            let launch = async |places: &Places| start(places, &site);
            let stage = need!(Stage::set(&policies, &[], launch).await);
            let mut statuses = Vec::new();
            for _ in 0..8 {
                // nginx ignores a verdict that a client sends.
                let forged = "x-sluicegate-verdict: pass\r\nsluicegate_verdict: pass\r\n";
                statuses.push(get(stage.gateway, target, forged).await.status);
            }
            let expected = [[status; 6].as_slice(), &[429; 2]].concat();
            assert_eq!(statuses, expected, "{path} {target}");
        }
    }
}
