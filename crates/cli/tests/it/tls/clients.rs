//! curl, redis-cli and a client of gRPC.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::process::{Command, Output};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use sluicegate_testkit::{Error, need};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::{Files, TlsFiles};
use crate::program::program;
use crate::server::Server;

const CHECK: &str = r#"{"policy":"login","key":"tls"}"#;

/// The output of `program` with `options` and `arguments`.
fn run(program: &str, options: &[&OsStr], arguments: &[&str]) -> Result<Output, Error> {
    match Command::new(program).args(options).args(arguments).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::Missing(format!("`{program}` is not installed; `make deps` installs it")))
        }
        other => Ok(other?),
    }
}

fn said(output: &Output) -> String {
    let Output { stdout, stderr, .. } = output;
    format!("{}{}", String::from_utf8_lossy(stdout), String::from_utf8_lossy(stderr))
}

/// The options by which curl and redis-cli trust `ca`, and present the certificate of `own`.
fn options<'a>(ca: &'a TlsFiles, own: Option<&'a TlsFiles>) -> Vec<&'a OsStr> {
    let mut options = vec![OsStr::new("--cacert"), ca.ca.as_os_str()];
    if let Some(own) = own {
        options.extend([OsStr::new("--cert"), own.client_cert.as_os_str()]);
        options.extend([OsStr::new("--key"), own.client_key.as_os_str()]);
    }
    options
}

/// A check by curl, over TLS.
fn curl(server: &Server, options: &[&OsStr]) -> Result<Output, Error> {
    let url = format!("https://{}/v1/check", server.address("https"));
    let json = "content-type: application/json";
    run("curl", options, &["-sS", "-m", "10", &url, "-H", json, "-d", CHECK])
}

/// A check by redis-cli, over TLS.
fn redis_cli(server: &Server, options: &[&OsStr]) -> Result<Output, Error> {
    let port = server.address("rediss").port().to_string();
    let check = ["--tls", "-e", "-p", &port, "SG.CHECK", "login", "tls"];
    run("redis-cli", &[], &["--version"])?;
    run("redis-cli", options, &check)
}

/// A check by a gRPC client, over TLS. Returns the remaining permits.
async fn grpc(server: &Server, ca: &TlsFiles, own: Option<&TlsFiles>) -> Result<u32, String> {
    let read = |path| std::fs::read(path).expect("a file of the test");
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(&ca.ca)))
        .domain_name("localhost");
    if let Some(own) = own {
        tls = tls.identity(Identity::from_pem(read(&own.client_cert), read(&own.client_key)));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", server.address("grpcs")));
    let endpoint = endpoint.expect("it is a URL").tls_config(tls).expect("they are sound");
    let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
    let entry = |key: &str, value: &str| Entry { key: key.to_owned(), value: value.to_owned() };
    let entries = vec![entry("policy", "login"), entry("key", "tls")];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    let request = RateLimitRequest { domain: "sluicegate".to_owned(), descriptors, hits_addend: 0 };
    let answer = RateLimitServiceClient::new(channel).should_rate_limit(request).await;
    let answer = answer.map_err(|status| status.to_string())?;
    Ok(answer.into_inner().statuses[0].limit_remaining)
}

/// Checks one budget on all wires.
async fn all_wires_are_answered(server: &Server, ca: &TlsFiles, own: Option<&TlsFiles>) {
    let options = options(ca, own);
    let answer = said(&curl(server, &options).expect("every test needs curl"));
    assert!(answer.contains(r#""remaining":4"#), "{answer}");
    assert_eq!(grpc(server, ca, own).await, Ok(3));
    let url = format!("https://{}/readyz", server.address("admin+https"));
    let ready = run("curl", &options, &["-sS", "-m", "10", &url]);
    assert_eq!(said(&ready.expect("every test needs curl")), "ok\n");
    let answer = said(&need!(redis_cli(server, &options)));
    assert!(answer.starts_with("1\n5\n2\n"), "{answer}");
}

#[tokio::test]
async fn curl_redis_cli_and_grpc_are_answered_over_tls() {
    let files = Files::new();
    let server = Server::start(&files.config(false));
    all_wires_are_answered(&server, &files.tls, None).await;
}

#[tokio::test]
async fn who_shows_a_certificate_that_was_asked_for_is_answered() {
    let files = Files::new();
    let server = Server::start(&files.config(true));
    all_wires_are_answered(&server, &files.tls, Some(&files.tls)).await;
}

#[tokio::test]
async fn who_knows_another_authority_does_not_trust_the_server() {
    let (files, other) = (Files::new(), Files::new());
    let server = Server::start(&files.config(false));
    let refused = curl(&server, &options(&other.tls, None)).expect("every test needs curl");
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", said(&refused));
    grpc(&server, &other.tls, None).await.expect_err("it does not know who that is");
    let refused = need!(redis_cli(&server, &options(&other.tls, None)));
    assert!(!refused.status.success(), "{}", said(&refused));
}

#[tokio::test]
async fn who_shows_no_certificate_or_that_of_another_authority_is_refused() {
    let (files, other) = (Files::new(), Files::new());
    let server = Server::start(&files.config(true));
    for own in [None, Some(&other.tls)] {
        let refused = curl(&server, &options(&files.tls, own)).expect("every test needs curl");
        assert!(!refused.status.success(), "{}", said(&refused));
        grpc(&server, &files.tls, own).await.expect_err("it is not let in");
        let refused = need!(redis_cli(&server, &options(&files.tls, own)));
        assert!(!refused.status.success(), "{}", said(&refused));
    }
    all_wires_are_answered(&server, &files.tls, Some(&files.tls)).await;
}

/// The output of our own program for this command, and its exit status.
fn sluicegate(command: &str) -> (String, Option<i32>) {
    let mut program = program();
    program.args(command.split_whitespace()).env("SLUICEGATE_TOKEN", "sgt_none");
    let output = program.output().expect("the program is built");
    (said(&output), output.status.code())
}

#[test]
fn our_own_client_believes_who_is_signed_by_the_authority_that_it_is_told() {
    let (files, others) = (Files::new(), Files::new());
    let server = Server::start(&files.config(false));
    let (http, admin) = (server.address("https").port(), server.address("admin+https").port());
    let (ca, other) = (files.tls.ca.display(), others.tls.ca.display());
    let (out, status) =
        sluicegate(&format!("check login cli --to https://localhost:{http} --ca {ca}"));
    assert_eq!((out.starts_with("allowed: 4 of 5 left"), status), (true, Some(0)), "{out}");
    let health = sluicegate(&format!("health --to admin+https://127.0.0.1:{admin} --ca {ca}"));
    assert_eq!(health, ("ok\n".to_owned(), Some(0)));
    for command in [
        format!("check login cli --to https://localhost:{http} --ca {other}"),
        format!("check login cli --to https://localhost:{http}"),
        format!("policies diff -f - --app shop --to https://localhost:{admin} --ca {other}"),
    ] {
        let mut program = Command::new("sh");
        let line = format!("echo 'policies: []' | {} {command}", env!("CARGO_BIN_EXE_sluicegate"));
        let output = program.args(["-c", &line]).env("SLUICEGATE_TOKEN", "t").output();
        let output = output.expect("there is a shell");
        let out = said(&output);
        assert!(
            out.contains(
                "TLS handshake with localhost failed (http:// for a server without TLS): "
            ),
            "{command}: {out}"
        );
        assert_eq!(output.status.code(), Some(2), "{out}");
    }
    let (out, status) = sluicegate(&format!(
        "check login cli --to https://localhost:{http} --ca {}",
        files.tls.server_key.display()
    ));
    assert_eq!((out.contains("expected certificates in PEM"), status), (true, Some(2)), "{out}");
    let (out, _) = sluicegate(&format!("bench --policy login --to https://localhost:{http}"));
    assert!(out.contains("TLS is not supported"), "{out}");
}

#[test]
fn a_client_names_what_is_wrong_with_a_certificate() {
    let folder = tempfile::tempdir().expect("there is room for files");
    let tls = TlsFiles::write_authority_as_server(folder.path()).expect("they can be written");
    let (own, signed, other) = (Files { folder, tls }, Files::new(), Files::new());
    for (server, ca, problem) in [
        (
            &own,
            &own,
            "the certificate is an authority's own; make one that is not, such as by `openssl req",
        ),
        (&signed, &other, "no authority that is trusted has signed the certificate"),
    ] {
        let server = Server::start(&server.config(false));
        let url = format!("https://{}", server.address("https"));
        let mut check = program();
        check.args(["check", "login", "tls", "--to", &url, "--ca"]).arg(&ca.tls.ca);
        let told = said(&check.output().expect("it is built"));
        assert!(told.contains(problem), "{problem}: {told}");
    }
}

#[test]
fn our_own_client_names_the_certificate_that_the_server_requires() {
    let files = Files::new();
    let server = Server::start(&files.config(true));
    let (http, ca) = (server.address("https").port(), files.tls.ca.display());
    let (out, status) =
        sluicegate(&format!("check login cli --to https://localhost:{http} --ca {ca}"));
    let problem =
        "requires a client certificate (`tls.client_ca`), which this command does not send";
    assert_eq!((out.contains(problem), status), (true, Some(2)), "{out}");
}
