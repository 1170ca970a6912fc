//! Envoy, whose rate limit filter asks over gRPC.

use sluicegate_testkit::{Error, Launch, Options, Program, RedisServer, need};

use super::audit::{exactly_five_of_twenty_pass, exactly_what_the_policy_allows_passes};
use super::client::{ask, get, get_at_once};
use super::soon;
use super::stage::{Stage, changed, example, tool};

async fn changing(
    changes: &[(&str, &str)],
    policies: &str,
    options: &[&str],
) -> Result<Stage, Error> {
    stage(&changed(&example("gateways/envoy/envoy.yaml"), changes), policies, options).await
}

/// Envoy with this configuration.
pub(crate) async fn stage(text: &str, policies: &str, options: &[&str]) -> Result<Stage, Error> {
    Stage::set(policies, options, async |places| {
        let files = [("envoy.yaml", places.in_text(text))];
        let args = ["-c", "{dir}/envoy.yaml", "--concurrency", "1", "--disable-hot-restart"];
        Program::start(&tool("envoy"), &Launch { files: &files, args: &args })
    })
    .await
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
        // The answer says who decided only to those who ask for it.
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
