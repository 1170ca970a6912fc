//! The example with axum, Redis and policies in a file, as two processes that share the limits.
#![cfg(all(feature = "axum", feature = "redis"))]
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

#[path = "../../examples/axum_redis.rs"]
mod example;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use sluicegate_testkit::{Options, RedisServer, need};

/// The variable that makes this very test one of the servers.
const ROLE: &str = "SLUICEGATE_TEST_EXAMPLE";

/// A server that runs the example; it ends with the test.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(redis: &str) -> Self {
        let program = std::env::current_exe().expect("a test knows where it is");
        let mut process = Command::new(program)
            .args(["--exact", "example_axum_redis::two_servers_share_the_limits_of_a_file"])
            .arg("--nocapture")
            .env(ROLE, "server")
            .env("REDIS_URL", redis)
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("a test can be started twice");
        let lines = BufReader::new(process.stdout.take().expect("it was piped")).lines();
        let find = |line: String| {
            let (_, address) = line.split_once("http://")?;
            Some(address.trim_end_matches('/').to_owned())
        };
        let address = lines.map_while(Result::ok).find_map(find).expect("it listens");
        Self { process, address }
    }

    /// Returns the status of `path` for the client `key`, and the mode of a decision made without Redis.
    fn get(&self, path: &str, key: &str) -> (u16, Option<String>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: test\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let mode = response.lines().find_map(|line| line.strip_prefix("x-sluicegate-mode: "));
        (response[9..12].parse().unwrap(), mode.map(ToOwned::to_owned))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

#[test]
fn two_servers_share_the_limits_of_a_file() {
    if std::env::var_os(ROLE).is_some() {
        example::main().unwrap();
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut redis = need!(runtime.block_on(RedisServer::start(Options::default())));
    // Decisions of a busy machine are not given up early.
    let url = format!("{}?deadline_ms=5000", redis.url());
    let servers = [Server::start(&url), Server::start(&url)];

    for (path, limit) in [("/", 10), ("/login", 3)] {
        for request in 0..limit + 4 {
            let status = if request < limit { 200 } else { 429 };
            let server = &servers[request % 2];
            assert_eq!(server.get(path, "alice"), (status, None), "{path}, request {request}");
        }
    }

    redis.kill();
    // A key without requests so far: each server has half of the limit of `site`, and no one can sign in.
    for server in &servers {
        let local = Some("local".to_owned());
        for request in 0..7 {
            let status = if request < 5 { 200 } else { 429 };
            assert_eq!(server.get("/", "bob"), (status, local.clone()), "request {request}");
        }
        assert_eq!(server.get("/login", "bob"), (503, Some("deny".to_owned())));
    }
}
