//! Traefik, whose forwardAuth middleware asks.

use sluicegate_testkit::{Error, Launch, Program, need};

use super::audit::{exactly_five_of_twenty_pass, exactly_what_the_policy_allows_passes};
use super::client::get;
use super::stage::{Stage, changed, example, tool};

async fn stage(policies: &str) -> Result<Stage, Error> {
    Stage::set(policies, &[], async |places| {
        let file = changed(
            &example("gateways/traefik/traefik.yaml"),
            &[("dynamic.yaml", "{dir}/dynamic.yaml")],
        );
        let files = [
            ("traefik.yaml", places.in_text(&file)),
            ("dynamic.yaml", places.in_text(&example("gateways/traefik/dynamic.yaml"))),
        ];
        let args = ["--configFile={dir}/traefik.yaml"];
        Program::start(&tool("traefik"), &Launch { files: &files, args: &args })
    })
    .await
}

#[tokio::test]
async fn ten_a_second_and_five_at_once_pass() {
    let stage = need!(stage(&example("gateways/policies.yaml")).await);
    exactly_what_the_policy_allows_passes(&stage).await;
}

#[tokio::test]
async fn five_of_twenty_at_once_pass_and_without_sluicegate_none() {
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s", "10/h")]);
    let mut stage = need!(stage(&policies).await);
    exactly_five_of_twenty_pass(&stage).await;
    stage.server.kill();
    assert_eq!(get(stage.gateway, "/", "").await.status, 500);
}

#[tokio::test]
async fn what_a_client_says_of_its_own_request_does_not_reach_the_application_as_a_verdict() {
    let policies = changed(&example("gateways/policies.yaml"), &[("prefix: /", "prefix: /orders")]);
    let stage = need!(stage(&policies).await);
    // No policy guards this one, so there is no verdict.
    let call = get(stage.gateway, "/", "x-sluicegate-divert: spare\r\n").await;
    assert!(call.status == 200 && !call.body.contains("x-sluicegate"), "{}", call.body);
    let call = get(stage.gateway, "/orders", "x-sluicegate-verdict: refuse\r\n").await;
    assert!(call.body.contains("x-sluicegate-verdict: pass"), "{}", call.body);
    let forged = get(stage.gateway, "/orders", "x-original-uri: /free\r\n").await;
    assert_eq!(forged.status, 400, "{}", forged.body);
}
