//! Configurations of nginx beside the policies that are imported from them: both get the same requests.

use std::fmt::Write;
use std::net::Ipv4Addr;

use fastrand::Rng;
use serde_json::json;
use sluicegate_import::{ImportSource, import};
use sluicegate_testkit::{Error, Port, Program, need};
use tokio::net::TcpStream;

use super::PATIENCE;
use super::client::{ask, send};
use super::nginx::start;
use super::stage::{Places, Server};

/// Number of random configurations whose policies must decide as nginx does.
const CONFIGURATIONS: usize = 30;

/// Requests to each configuration.
const REQUESTS: usize = 40;

const KEYS: [&str; 7] = [
    "$binary_remote_addr",
    "$host",
    "$uri",
    "all",
    "$binary_remote_addr$http_x_key",
    "$server_name",
    "$http_x_key",
];

const HOSTS: [&str; 5] = ["a.test", "b.test", "x.b.test", "c.test", "other.test"];

const PATHS: [&str; 11] =
    ["/", "/a", "/ab", "/a/", "/a/x", "/a/b", "/a/bc", "/a/b/x", "/c/", "/c/x?q=1", "/d"];

/// nginx with `site`.
struct Nginx {
    _program: Program,
    port: Port,
}

impl Nginx {
    async fn start(site: &str) -> Result<Self, Error> {
        let port = Port::free()?;
        let address = port.address();
        let mut program = start(&Places(vec![(8000, address)]), site)?;
        program.ready(PATIENCE, async || TcpStream::connect(address).await.is_ok()).await?;
        Ok(Self { _program: program, port })
    }
}

/// A request that both get.
struct Asked {
    host: &'static str,
    path: &'static str,
    address: &'static str,
    key: Option<&'static str>,
}

impl Asked {
    fn random(rng: &mut Rng) -> Self {
        Self {
            host: HOSTS[rng.usize(..HOSTS.len())],
            path: PATHS[rng.usize(..PATHS.len())],
            address: ["192.0.2.1", "192.0.2.2"][rng.usize(..2)],
            key: [None, Some("k1"), Some("k2")][rng.usize(..3)],
        }
    }

    /// The answers of nginx and of the policies: `true` lets the request pass.
    async fn ask(&self, nginx: &Nginx, server: &Server) -> [bool; 2] {
        let Self { host, path, address, key } = self;
        let key = key.map_or_else(String::new, |key| format!("x-key: {key}\r\n"));
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {host}\r\nx-test-address: {address}\r\n{key}connection: close\r\n\r\n"
        );
        let by_nginx = send(nginx.port.address(), Ipv4Addr::LOCALHOST.into(), &request).await;
        let lines = format!(
            "x-original-uri: {path}\r\nx-original-method: GET\r\nx-forwarded-host: {host}\r\nx-forwarded-for: {address}\r\n{key}"
        );
        let by_policies = ask(server.http, "/v1/auth", &lines).await;
        let status = by_nginx.map(|call| call.status);
        assert!(matches!(status, Some(404 | 429)), "{path}: {status:?}");
        assert!(matches!(by_policies.status, 200 | 429), "{path}: {by_policies:?}");
        [status != Some(429), by_policies.status != 429]
    }
}

/// A server block for each of some names; locations within others and beside others.
fn site(rng: &mut Rng) -> String {
    let mut text = "root /nonexistent; limit_req_status 429;\n".to_owned();
    let zones: Vec<_> = (0..3).map(|_| (KEYS[rng.usize(..KEYS.len())], rng.u8(..3))).collect();
    for (place, (key, _)) in zones.iter().enumerate() {
        writeln!(text, "limit_req_zone {key} zone=z{place}:1m rate=1r/m;")
            .expect("a String takes all text");
    }
    let limit = |rng: &mut Rng, percent: u8| -> String {
        let mut limits = String::new();
        for (place, (_, burst)) in zones.iter().enumerate() {
            if rng.u8(..100) < percent {
                let burst = match burst {
                    0 => String::new(),
                    burst => format!(" burst={burst} nodelay"),
                };
                write!(limits, "limit_req zone=z{place}{burst}; ")
                    .expect("a String takes all text");
            }
        }
        limits
    };
    text += &limit(rng, 15);
    let mut names = vec!["", "a.test", "b.test", "*.b.test", ".c.test c.test"];
    for _ in 0..rng.usize(1..4) {
        let name = names.swap_remove(rng.usize(..names.len()));
        let (default, dry) = (rng.u8(..8) == 0 && !text.contains("default"), rng.u8(..20) == 0);
        let default = if default { " default_server" } else { "" };
        write!(text, "server {{ listen 127.0.0.1:8000{default}; ")
            .expect("a String takes all text");
        if !name.is_empty() {
            write!(text, "server_name {}; ", name.split(' ').next().unwrap_or_default())
                .expect("a String takes all text");
        }
        if dry {
            text += "limit_req_dry_run on; ";
        }
        text += &limit(rng, 20);
        let mut paths = vec!["/", "= /", "/a", "= /a", "/a/", "^~ /a/b", "/c/", "= /a/b/x"];
        for _ in 0..rng.usize(..5) {
            let path = paths.swap_remove(rng.usize(..paths.len()));
            write!(text, "location {path} {{ {}", limit(rng, 40)).expect("a String takes all text");
            if path == "/a/" && rng.bool() {
                write!(text, "location /a/bc {{ {} }} ", limit(rng, 30))
                    .expect("a String takes all text");
            }
            text += "} ";
        }
        text += "}\n";
    }
    text
}

#[tokio::test]
async fn imported_policies_decide_as_nginx_does() {
    let (mut same, mut noted) = (0, 0);
    for seed in 0.. {
        if same == CONFIGURATIONS {
            break;
        }
        let mut rng = Rng::with_seed(seed);
        let site = site(&mut rng);
        let found = import(ImportSource::Nginx, &site).expect("nginx reads it, too");
        let Ok(found) = found.unless_wider(false) else { continue };
        // Without a note, a policy is exactly as strict as nginx.
        let is_same = found.notes.is_empty();
        let documents: Vec<_> = found.policies.into_iter().map(|policy| policy.document).collect();
        if documents.is_empty() {
            continue;
        }
        let policies = json!({ "policies": documents }).to_string();
        let nginx = need!(Nginx::start(&site).await);
        let server = need!(Server::start(&policies, &[]).await);
        let mut passed = [0, 0];
        for _ in 0..REQUESTS {
            let asked = Asked::random(&mut rng);
            let [by_nginx, by_policies] = asked.ask(&nginx, &server).await;
            let Asked { host, path, address, key } = asked;
            let what = format!(
                "seed {seed}: {host}{path} of {address} with {key:?} of\n{site}\n{policies}"
            );
            assert!(
                !is_same || by_nginx == by_policies,
                "nginx {by_nginx}, policies {by_policies}: {what}"
            );
            passed[0] += usize::from(by_nginx);
            passed[1] += usize::from(by_policies);
        }
        assert!(passed[1] <= passed[0], "seed {seed}: {passed:?} of\n{site}\n{policies}");
        same += usize::from(is_same);
        noted += usize::from(!is_same);
    }
    assert!(noted > 0, "some have a key that nginx counts otherwise");
}
