//! Traefik and Caddy, with their directives for forward authentication.

use sluicegate_testkit::{Error, Launch, Program, need};

use super::audit::{exactly_five_of_twenty_pass, exactly_what_the_policy_allows_passes};
use super::client::get;
use super::nginx::{BY_HOST, nobody_is_somebody_else};
use super::stage::{Places, Stage, changed, example, tool};

struct Gateway {
    start: fn(&Places) -> Result<Program, Error>,
    /// The status for its clients while the server is down.
    unanswered: u16,
}

const GATEWAYS: [Gateway; 2] =
    [Gateway { start: traefik, unanswered: 500 }, Gateway { start: caddy, unanswered: 502 }];

fn traefik(places: &Places) -> Result<Program, Error> {
    let main = changed(
        &example("gateways/traefik/traefik.yaml"),
        &[("dynamic.yaml", "{dir}/dynamic.yaml")],
    );
    let files = [
        ("traefik.yaml", places.in_text(&main)),
        ("dynamic.yaml", places.in_text(&example("gateways/traefik/dynamic.yaml"))),
    ];
    let args = ["--configFile={dir}/traefik.yaml"];
    Program::start(&tool("traefik"), &Launch { files: &files, args: &args })
}

fn caddy(places: &Places) -> Result<Program, Error> {
    let files = [("Caddyfile", places.in_text(&example("gateways/caddy/Caddyfile")))];
    let args = ["run", "--config", "{dir}/Caddyfile", "--adapter", "caddyfile"];
    Program::start(&tool("caddy"), &Launch { files: &files, args: &args })
}

impl Gateway {
    async fn stage(&self, policies: &str) -> Result<Stage, Error> {
        Stage::set(policies, &[], async |places| (self.start)(places)).await
    }
}

#[tokio::test]
async fn ten_a_second_and_five_at_once_pass() {
    for gateway in GATEWAYS {
        let stage = need!(gateway.stage(&example("gateways/policies.yaml")).await);
        exactly_what_the_policy_allows_passes(&stage).await;
    }
}

#[tokio::test]
async fn five_of_twenty_at_once_pass_and_without_sluicegate_none() {
    let policies = changed(&example("gateways/policies.yaml"), &[("10/s", "10/h")]);
    for gateway in GATEWAYS {
        let mut stage = need!(gateway.stage(&policies).await);
        exactly_five_of_twenty_pass(&stage).await;
        stage.server.kill();
        assert_eq!(get(stage.gateway, "/", "").await.status, gateway.unanswered);
    }
}

#[tokio::test]
async fn what_a_client_says_of_its_own_request_does_not_reach_the_application_as_a_verdict() {
    let policies = changed(&example("gateways/policies.yaml"), &[("prefix: /", "prefix: /orders")]);
    for gateway in GATEWAYS {
        let stage = need!(gateway.stage(&policies).await);
        // No policy matches this request, so there is no verdict.
        let call = get(stage.gateway, "/", "x-sluicegate-divert: spare\r\n").await;
        assert!(call.status == 200 && !call.body.contains("x-sluicegate"), "{}", call.body);
        let call = get(stage.gateway, "/orders", "x-sluicegate-verdict: refuse\r\n").await;
        assert!(call.body.contains("x-sluicegate-verdict: pass"), "{}", call.body);
        // The client's query is not a query to the server.
        let call = get(stage.gateway, "/orders?deny=200&app=x", "").await;
        assert_eq!(call.status, 200, "{}", call.body);
        let forged = get(stage.gateway, "/orders", "x-original-uri: /free\r\n").await;
        assert_eq!(forged.status, 400, "{}", forged.body);
    }
}

#[tokio::test]
async fn a_client_chooses_neither_its_host_nor_its_address() {
    for gateway in GATEWAYS {
        nobody_is_somebody_else(&need!(gateway.stage(BY_HOST).await), None).await;
    }
}

#[tokio::test]
async fn the_response_of_a_policy_that_degrades_is_what_the_client_gets() {
    let policies = "
policies:
  - name: site
    match: { path: { prefix: /orders } }
    rules: [ { token_bucket: { rate: 1/h } } ]
    overflow: { degrade: { response: { status: 503, body: come later, headers: { X-Shop: closed, Content-Type: text/plain } } } }
";
    for gateway in GATEWAYS {
        let stage = need!(gateway.stage(policies).await);
        assert_eq!(get(stage.gateway, "/orders", "").await.status, 200);
        let before = stage.app.requests();
        let degraded = get(stage.gateway, "/orders", "").await;
        assert_eq!((degraded.status, &*degraded.body), (503, "come later"));
        assert_eq!(degraded.header("x-shop"), Some("closed"), "{}", degraded.head);
        assert_eq!(degraded.header("content-type"), Some("text/plain"), "{}", degraded.head);
        assert_eq!(stage.app.requests(), before, "it does not get there");
    }
}
