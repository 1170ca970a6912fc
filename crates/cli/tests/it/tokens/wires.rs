//! Every wire and every kind of token, as a table.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use serde_json::{Value, json};

use super::{Server, Stage};

/// A request with its credential.
#[derive(Clone, Copy, Debug)]
struct Ask<'a> {
    /// The token that is sent.
    secret: Option<&'a str>,
    /// The app that the request names.
    app: Option<&'a str>,
    /// The request gives permits back instead of taking them.
    refund: bool,
}

/// The outcome of a request, in the terms of each wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The request is decided.
    Passes,
    /// The policy is not for the app: code 0.
    NotConfigured,
    /// A token is required.
    Missing,
    /// Invalid token.
    Bad,
    /// The token lacks the scope, or belongs to another app.
    Forbidden,
}

/// The outcome of each kind of token, if one is required and if none is.
fn table(stage: &Stage) -> [(Ask<'_>, Fate, Fate); 11] {
    let Stage { good, checks, foreign, ended, revoked, .. } = stage;
    let plain = Ask { secret: None, app: None, refund: false };
    let of = |secret| Ask { secret: Some(secret), ..plain };
    let named = |ask, app| Ask { app: Some(app), ..ask };
    let refund = |ask| Ask { refund: true, ..ask };
    use Fate::{Bad, Forbidden, Missing, NotConfigured, Passes};
    [
        (plain, Missing, NotConfigured),
        (named(plain, "shop"), Missing, Passes),
        (of(good), Passes, Passes),
        (named(of(good), "shop"), Passes, Passes),
        (named(of(good), "other"), Forbidden, Forbidden),
        (refund(of(good)), Passes, Passes),
        (of(ended), Bad, Bad),
        (named(of(revoked), "shop"), Bad, Bad),
        (named(of("sgt_none"), "shop"), Bad, Bad),
        (refund(of(checks)), Forbidden, Forbidden),
        (of(foreign), NotConfigured, NotConfigured),
    ]
}

/// The outcome on the HTTP wire.
fn http(server: &Server, ask: Ask<'_>) -> Fate {
    let verb = if ask.refund { "refund" } else { "check" };
    let (status, head, body) = server.http(
        &format!("POST /v1/{verb}"),
        &field("authorization: Bearer ", ask.secret),
        &json!({ "policy": "p", "key": "k", "app": ask.app }).to_string(),
    );
    let body: Value = serde_json::from_str(&body).expect("it is JSON");
    let challenge = head.lines().find_map(|line| line.strip_prefix("www-authenticate: "));
    match (status, body["code"].as_i64(), challenge) {
        (200, Some(1), None) => Fate::Passes,
        (403, Some(0), None) => Fate::NotConfigured,
        (401, None, Some("bearer")) => Fate::Missing,
        (401, None, Some(r#"bearer error="invalid_token""#)) => Fate::Bad,
        (403, None, None | Some(r#"bearer error="insufficient_scope""#)) => Fate::Forbidden,
        other => panic!("{ask:?}: {other:?} {body}"),
    }
}

/// The outcome in a batch, whose answers contain the errors of single checks.
fn batch(server: &Server, ask: Ask<'_>) -> Fate {
    let check = json!({ "policy": "p", "key": "k", "app": ask.app });
    let body = json!({ "checks": [check] }).to_string();
    let fields = field("authorization: Bearer ", ask.secret);
    let (status, _, body) = server.http("POST /v1/check:batch", &fields, &body);
    let body: Value = serde_json::from_str(&body).expect("it is JSON");
    let answer = if status == 200 { &body["answers"][0] } else { &body };
    let status = answer["status"].as_u64().unwrap_or(200);
    match (status, answer["code"].as_i64(), answer["type"].as_str()) {
        (200, Some(1), None) => Fate::Passes,
        (403, Some(0), _) => Fate::NotConfigured,
        (401, _, Some("urn:sluicegate:problem:no-token")) => Fate::Missing,
        (401, _, Some("urn:sluicegate:problem:bad-token")) => Fate::Bad,
        (403, _, Some("urn:sluicegate:problem:other-app")) => Fate::Forbidden,
        other => panic!("{ask:?}: {other:?} {body}"),
    }
}

fn resp(server: &Server, ask: Ask<'_>) -> Fate {
    let login = ask.secret.map(|secret| format!("AUTH {secret}\r\n")).unwrap_or_default();
    let verb = if ask.refund { "REFUND" } else { "CHECK" };
    let app = ask.app.map(|app| format!(" APP {app}")).unwrap_or_default();
    let said = server.raw("resp", &format!("{login}SG.{verb} p k{app}\r\nQUIT\r\n"));
    let wrong = said.starts_with("-WRONGPASS ");
    match said.strip_prefix("+OK\r\n").unwrap_or(&said) {
        said if said.starts_with("*8\r\n:1\r\n") => Fate::Passes,
        said if said.starts_with("*8\r\n:0\r\n") => Fate::NotConfigured,
        said if said.starts_with("-NOPERM ") => Fate::Forbidden,
        said if wrong && said.contains("\r\n-NOAUTH ") => Fate::Bad,
        said if said.starts_with("-NOAUTH ") => Fate::Missing,
        said => panic!("{ask:?}: {said}"),
    }
}

async fn rls(server: &Server, ask: Ask<'_>) -> Fate {
    let url = format!("http://{}", server.address("rls"));
    let mut client = RateLimitServiceClient::connect(url).await.expect("it listens");
    let app = ask.app.map(|app| ("app", app));
    let entries = [("policy", "p"), ("key", "k")].into_iter().chain(app);
    let entries = entries.map(|(key, value)| Entry { key: key.into(), value: value.into() });
    let descriptor = RateLimitDescriptor {
        entries: entries.collect(),
        is_negative_hits: ask.refund,
        ..RateLimitDescriptor::default()
    };
    let (domain, descriptors) = ("sluicegate".to_owned(), vec![descriptor]);
    let mut request = tonic::Request::new(RateLimitRequest { domain, descriptors, hits_addend: 0 });
    if let Some(secret) = ask.secret {
        let shown = format!("Bearer {secret}").parse().expect("it is ASCII");
        request.metadata_mut().insert("authorization", shown);
    }
    let Err(status) = client.should_rate_limit(request).await else { return Fate::Passes };
    let is_of_token = status.message().starts_with("authorization: ");
    match status.code() {
        tonic::Code::PermissionDenied if !is_of_token => Fate::NotConfigured,
        tonic::Code::PermissionDenied => Fate::Forbidden,
        tonic::Code::Unauthenticated if status.message().contains("missing token") => Fate::Missing,
        tonic::Code::Unauthenticated => Fate::Bad,
        _ => panic!("{ask:?}: {status}"),
    }
}

/// The outcome on `/json`, with the messages of Envoy as JSON.
fn rls_json(server: &Server, ask: Ask<'_>) -> Fate {
    let entry = |(key, value)| json!({ "key": key, "value": value });
    let app = ask.app.map(|app| entry(("app", app)));
    let entries: Vec<_> =
        [("policy", "p"), ("key", "k")].map(entry).into_iter().chain(app).collect();
    let descriptor = json!({ "entries": entries, "isNegativeHits": ask.refund });
    let body = json!({ "domain": "sluicegate", "descriptors": [descriptor] }).to_string();
    let fields = field("authorization: Bearer ", ask.secret);
    let (status, head, body) = server.http("POST /json", &fields, &body);
    let is_of_token = body.starts_with("authorization: ");
    assert_eq!(status == 401, head.contains("\r\nwww-authenticate: bearer"), "{head}");
    match status {
        200 => Fate::Passes,
        403 if !is_of_token => Fate::NotConfigured,
        403 => Fate::Forbidden,
        401 if body.contains("missing token") => Fate::Missing,
        401 => Fate::Bad,
        _ => panic!("{ask:?}: {head} {body}"),
    }
}

/// The answer to a gateway, and whether its client passes: a problem with the gateway's token is a
/// server error, not an answer to its client.
fn auth(server: &Server, ask: Ask<'_>) -> (u16, bool) {
    let app = ask.app.map(|app| format!("?app={app}")).unwrap_or_default();
    let fields = field("x-sluicegate-token: ", ask.secret)
        + "authorization: Bearer of-its-client\r\nx-original-uri: /\r\nx-original-method: GET\r\n";
    let (status, head, _) = server.http(&format!("GET /v1/auth{app}"), &fields, "");
    assert!(!head.contains("www-authenticate"), "{head}");
    (status, head.contains("x-sluicegate-verdict: pass"))
}

fn field(name: &str, secret: Option<&str>) -> String {
    secret.map(|secret| format!("{name}{secret}\r\n")).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wire_answers_to_every_token_as_it_should() {
    let stage = Stage::set().await;
    for (required, server) in [(true, stage.server("always")), (false, stage.server("remote"))] {
        for (ask, if_required, otherwise) in table(&stage) {
            let expected = if required { if_required } else { otherwise };
            assert_eq!(http(&server, ask), expected, "http {required} {ask:?}");
            assert_eq!(resp(&server, ask), expected, "resp {required} {ask:?}");
            assert_eq!(rls(&server, ask).await, expected, "rls {required} {ask:?}");
            assert_eq!(rls_json(&server, ask), expected, "rls as JSON {required} {ask:?}");
            if ask.refund {
                continue;
            }
            assert_eq!(batch(&server, ask), expected, "batch {required} {ask:?}");
            let of_gateway = match expected {
                // Neither a token nor an app says whose policies apply.
                _ if ask.secret.is_none() && ask.app.is_none() => (500, false),
                Fate::Passes => (200, true),
                // No policy guards the request for this app.
                Fate::NotConfigured => (200, false),
                Fate::Missing | Fate::Bad | Fate::Forbidden => (500, false),
            };
            assert_eq!(auth(&server, ask), of_gateway, "auth {required} {ask:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gives_back_wants_its_scope_and_what_is_no_question_wants_nothing() {
    let stage = Stage::set().await;
    let server = stage.server("always");
    let status = |secret: &str, path: &str, body: &str| {
        let method = if body.is_empty() { "GET" } else { "POST" };
        server
            .http(&format!("{method} {path}"), &field("authorization: Bearer ", Some(secret)), body)
            .0
    };
    let settle = r#"{"policy":"p","id":"i","charged":2,"cost":1}"#;
    for (path, body, of_checks) in [
        ("/v1/check", r#"{"policy":"p","cost":9}"#, 200),
        ("/v1/at_most", r#"{"policy":"p"}"#, 200),
        ("/v1/peek", r#"{"policy":"p"}"#, 200),
        ("/v1/explain", r#"{"policy":"p"}"#, 200),
        ("/v1/refund", r#"{"policy":"p"}"#, 403),
        ("/v1/settle", settle, 403),
        ("/v1/reset", r#"{"policy":"p"}"#, 403),
    ] {
        assert_eq!(status(&stage.checks, path, body), of_checks, "{path}");
        assert_eq!(status(&stage.good, path, body), 200, "{path}");
        assert_eq!(status("none", path, body), 401, "{path}");
        // The body of an unauthorised request is not read.
        assert_eq!(status("none", path, "{"), 401, "{path}");
    }
    for path in ["/livez", "/v1/openapi.json"] {
        assert_eq!(status("none", path, ""), 200, "{path}");
    }
    assert_eq!(status("none", "/v1/nothing", ""), 404);
    let bare = format!("authorization: {}\r\n", stage.good);
    let (unread, _, said) = server.http("POST /v1/check", &bare, r#"{"policy":"p"}"#);
    assert_eq!(unread, 401);
    assert!(
        said.contains("authorization: no token: write `Authorization: Bearer TOKEN`"),
        "{said}"
    );
    let atomic = r#"{"atomic":true,"checks":[{"policy":"p"},{"policy":"p","app":"other"}]}"#;
    let fields = field("authorization: Bearer ", Some(&stage.good));
    let (status, _, said) = server.http("POST /v1/check:batch", &fields, atomic);
    assert_eq!(status, 403);
    assert!(said.contains("checks[1]: app: the token belongs to another app"), "{said}");
}

/// The status of a check of the policy `login` by Envoy's protocol; `None`: it was decided.
pub(super) async fn ask_login(server: &Server, secret: Option<&str>) -> Option<tonic::Code> {
    let url = format!("http://{}", server.address("rls"));
    let mut client = RateLimitServiceClient::connect(url).await.expect("it listens");
    let entries = [("policy", "login"), ("key", "k")];
    let entries = entries.map(|(key, value)| Entry { key: key.into(), value: value.into() });
    let descriptor =
        RateLimitDescriptor { entries: entries.into(), ..RateLimitDescriptor::default() };
    let (domain, descriptors) = ("sluicegate".to_owned(), vec![descriptor]);
    let mut request = tonic::Request::new(RateLimitRequest { domain, descriptors, hits_addend: 0 });
    if let Some(secret) = secret {
        let shown = format!("Bearer {secret}").parse().expect("it is ASCII");
        request.metadata_mut().insert("authorization", shown);
    }
    client.should_rate_limit(request).await.err().map(|status| status.code())
}
