//! Envoy, whose rate limit filter uses gRPC.

use sluicegate_testkit::{Error, Launch, Options, Program, RedisServer, need};

use super::audit::{exactly_five_of_twenty_pass, exactly_what_the_policy_allows_passes};
use super::client::{ask, get, get_at_once};
use super::soon;
use super::stage::{Places, Server, Stage, changed, example, tool};

async fn changing(
    changes: &[(&str, &str)],
    policies: &str,
    options: &[&str],
) -> Result<Stage, Error> {
    stage(&changed(&example("gateways/envoy/envoy.yaml"), changes), policies, options).await
}

/// Envoy with this configuration.
pub(crate) async fn stage(text: &str, policies: &str, options: &[&str]) -> Result<Stage, Error> {
    Stage::set(policies, options, async |places| launch(text, places)).await
}

pub(crate) fn launch(text: &str, places: &Places) -> Result<Program, Error> {
    let files = [("envoy.yaml", places.in_text(text))];
    let args = ["-c", "{dir}/envoy.yaml", "--concurrency", "1", "--disable-hot-restart"];
    Program::start(&tool("envoy"), &Launch { files: &files, args: &args })
}

#[tokio::test]
async fn ten_a_second_and_five_at_once_pass() {
    let stage = need!(changing(&[], &example("gateways/policies.yaml"), &[]).await);
    exactly_what_the_policy_allows_passes(&stage).await;
    let told = get(stage.gateway, "/", "").await;
    assert!(told.header("x-ratelimit-limit").is_some_and(|limit| limit.starts_with('5')));
    assert!(told.header("x-ratelimit-remaining").is_some(), "{}", told.head);
}

#[tokio::test]
async fn five_of_twenty_at_once_pass() {
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s", "10/h")]);
    exactly_five_of_twenty_pass(&need!(changing(&[], &policies, &[]).await)).await;
}

#[tokio::test]
async fn a_client_does_not_choose_its_address() {
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s, burst: 5", "2/h")]);
    let stage = need!(changing(&[], &policies, &[]).await);
    let mut passed = 0;
    for forged in 0..10 {
        let line = format!("x-forwarded-for: 6.6.6.{forged}\r\n");
        passed += usize::from(get(stage.gateway, "/", &line).await.status == 200);
    }
    assert_eq!(passed, 2);
}

#[tokio::test]
async fn without_the_store_the_policy_does_what_it_says() {
    for (mode, passing) in [("local", 5), ("allow", 10), ("deny", 0)] {
        let change = format!("on_store_failure: {mode}\n    rules:");
        let changes = [("10/s", "10/h"), ("rules:", &*change)];
        let policies = changed(&example("gateways/policies.yaml"), &changes);
        let mut redis = need!(RedisServer::start(Options::default()).await);
        let url = format!("{}?deadline_ms=50", redis.url());
        let stage = need!(changing(&[], &policies, &["--store", &url]).await);
        redis.kill();
        // The answer names the mode only for callers that ask for it.
        let missed = async || {
            let headers =
                "x-original-uri: /\r\nx-original-method: GET\r\nx-forwarded-for: 192.0.2.1\r\n";
            let call = ask(stage.server.http, "/v1/auth", headers).await;
            call.header("x-sluicegate-mode") == Some(mode)
        };
        soon("it is missed", missed).await;
        let calls = get_at_once(stage.gateway, "/", 10).await;
        let count = |status| calls.iter().filter(|call| call.status == status).count();
        assert_eq!((count(200), count(429)), (passing, 10 - passing), "{mode}");
        assert!(calls.iter().all(|call| call.header("x-sluicegate-mode") == Some(mode)), "{mode}");
    }
}

#[tokio::test]
async fn without_sluicegate_nothing_passes_or_everything_as_the_configuration_says() {
    let open = [("failure_mode_deny: true", "failure_mode_deny: false")];
    for (changes, status) in [(&[][..], 500), (&open[..], 200)] {
        let mut stage = need!(changing(changes, &example("gateways/policies.yaml"), &[]).await);
        stage.server.kill();
        let before = stage.app.requests();
        for call in get_at_once(stage.gateway, "/", 10).await {
            assert_eq!(call.status, status, "{}", call.head);
        }
        assert_eq!(stage.app.requests() - before, if status == 200 { 10 } else { 0 });
    }
}

/// Envoy peeks before each request and charges after its answer, as for costs that are known only then. Hits and the
/// time of the charge come only from the configuration of the filter.
const LOOKS: [(&str, &str); 1] = [(
    "                      rate_limits:
                        - actions:
                            - masked_remote_address: { v4_prefix_mask_len: 32, v6_prefix_mask_len: 64 }
",
    "                      typed_per_filter_config:
                        envoy.filters.http.ratelimit:
                          \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                          rate_limits:
                            - actions: [{ masked_remote_address: { v4_prefix_mask_len: 32 } }]
                              hits_addend: { number: 0 }
                            - actions: [{ masked_remote_address: { v4_prefix_mask_len: 32 } }]
                              apply_on_stream_done: true
",
)];

#[tokio::test]
async fn with_looks_that_pass_the_request_whose_charge_is_refused_is_the_last() {
    let policies =
        "policies: [ { name: site, rules: [ { fixed_window: { limit: 2, window: 1d } } ] } ]";
    let config = |looks_pass: bool| {
        let listen = "[admin]\nlisten = []\n[http]\nlisten = '127.0.0.1:0'\n";
        format!("{listen}[rls]\nlooks_pass = {looks_pass}\n")
    };
    let text = changed(&example("gateways/envoy/envoy.yaml"), &LOOKS);
    for (looks_pass, expected) in
        [(true, [200, 200, 200, 429, 429, 429]), (false, [200, 200, 429, 429, 429, 429])]
    {
        let server = need!(Server::start_with(policies, &[], &config(looks_pass)).await);
        let stage = need!(Stage::before(server, async |places| launch(&text, places)).await);
        let mut statuses = Vec::new();
        for _ in 0..6 {
            // A charge goes out before the next request comes in, on the same connection: Envoy has one thread here.
            statuses.push(get(stage.gateway, "/", "").await.status);
        }
        assert_eq!(statuses, expected, "looks_pass = {looks_pass}");
    }
}
