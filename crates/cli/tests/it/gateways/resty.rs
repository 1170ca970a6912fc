//! Listings for lua-resty-limit-traffic on nginx with Lua, with `resty.sluicegate` required instead.

use std::net::SocketAddr;

use futures_util::future::join_all;
use sluicegate_testkit::{Error, Port, Program, need};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Call, get, get_at_once, probe};
use super::connections::SlowApp;
use super::page::block;
use super::stage::{Places, Server, changed, root};
use super::{PATIENCE, nginx, soon};

/// The key of the clients of a test: their address, as `$binary_remote_addr` has it.
const CLIENT: &[u8] = &[127, 0, 0, 1];

/// Five run at once, of which two are delayed.
const CONN: &str = include_str!("resty/conn.conf");

/// Four in a window that begins with the first.
const COUNT: &str = include_str!("resty/count.conf");

/// One a second for a client beside much for the host and as many connections.
const TRAFFIC: &str = include_str!("resty/traffic.conf");

/// The listing with the only change that it needs, in a location of a site.
fn site(listing: &str) -> String {
    let mut listing = listing.to_owned();
    for part in ["req", "conn", "count", "traffic"] {
        let (theirs, ours) = (
            format!("require \"resty.limit.{part}\""),
            format!("require(\"resty.sluicegate\").{part}"),
        );
        listing = listing.replace(&theirs, &ours);
    }
    assert!(!listing.contains("resty.limit"), "{listing}");
    let folder = root().join("examples/gateways/nginx");
    let folder = folder.display().to_string();
    changed(include_str!("resty/site.conf"), &[("FOLDER", &folder), ("LISTING", &listing)])
}

/// A server without the policies that requests need, an application, and nginx.
struct Stage {
    server: Server,
    app: SlowApp,
    gateways: Vec<(SocketAddr, Program, Port)>,
}

impl Stage {
    /// Starts `count` of nginx with `listing`.
    async fn set(listing: &str, count: usize) -> Result<Self, Error> {
        let policies = "policies: [ { name: none, rules: [ { token_bucket: { rate: 1/s } } ] } ]";
        let (server, app) = (Server::start(policies, &[]).await?, SlowApp::start().await?);
        let mut gateways = Vec::new();
        for _ in 0..count {
            let port = Port::free()?;
            let address = port.address();
            let places = Places(vec![(6380, server.resp), (9000, app.address()), (8000, address)]);
            let mut program = nginx::start(&places, &site(listing))?;
            app.answer(1);
            let answers = async || matches!(probe(address, "/").await, Some(200 | 503));
            program.ready(PATIENCE, answers).await?;
            gateways.push((address, program, port));
        }
        Ok(Self { server, app, gateways })
    }

    fn gateway(&self) -> SocketAddr {
        self.gateways[0].0
    }

    /// The reply to these words.
    async fn ask(&self, words: &[&[u8]]) -> Vec<i64> {
        let mut stream = TcpStream::connect(self.server.resp).await.expect("it listens");
        let mut command = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            command.extend(format!("${}\r\n", word.len()).bytes());
            command.extend_from_slice(word);
            command.extend(b"\r\n");
        }
        stream.write_all(&[&command, &b"QUIT\r\n"[..]].concat()).await.expect("it reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.expect("it answers");
        let numbers = reply.split("\r\n").filter_map(|line| line.strip_prefix(':'));
        numbers.map(|number| number.parse().expect("it is a number")).collect()
    }

    /// The remaining permits of `key` under the limits `name` with these rules.
    async fn remaining(&self, name: &str, key: &[u8], rules: &str) -> i64 {
        self.ask(&[b"SG.PEEK", name.as_bytes(), key, b"RULES", rules.as_bytes()]).await[2]
    }
}

fn with_status(calls: &[Call], status: u16) -> usize {
    calls.iter().filter(|call| call.status == status).count()
}

/// The values of a header field in all `calls`, in order.
fn numbers(calls: &[Call], field: &str) -> Vec<f64> {
    let given = calls.iter().filter_map(|call| call.header(field)?.parse().ok());
    let mut given: Vec<f64> = given.collect();
    given.sort_by(f64::total_cmp);
    given
}

#[tokio::test]
async fn six_requests_at_once_are_delayed_as_the_listing_says_over_two_nginx() {
    let listing = block("nginx", "access_by_lua_block {\n    local limit_req");
    let stage =
        need!(Stage::set(&format!("{listing}\ncontent_by_lua_block {{ ngx.say(1) }}"), 2).await);
    let calls = join_all((0..6).map(|n| get(stage.gateways[n % 2].0, "/", ""))).await;
    assert_eq!((with_status(&calls, 200), with_status(&calls, 503)), (4, 2), "{calls:?}");
    let slept = numbers(&calls, "x-slept");
    assert_eq!(slept.len(), 3, "{calls:?}");
    for (slept, expected) in slept.iter().zip([0.5, 1.0, 1.5]) {
        assert!((slept - expected).abs() <= 0.1, "{slept} s instead of {expected} s");
    }
    for call in &calls {
        let slept_s: f64 = call.header("x-slept").map_or(0.0, |slept| slept.parse().unwrap());
        let took_us = call.answered_us - call.sent_us;
        assert!(took_us as f64 >= slept_s * 1e6, "{took_us} us: {call:?}");
    }
}

#[tokio::test]
async fn five_of_thirty_connections_run_and_all_are_free_after() {
    let stage = need!(Stage::set(CONN, 1).await);
    let rules = r#"[{"concurrency":{"limit":5,"ttl":"60s"}}]"#;
    for round in 0..2 {
        let calls = get_at_once(stage.gateway(), "/", 30);
        let judge = async {
            soon("five run", async || stage.app.running() == 5).await;
            assert_eq!(stage.remaining("conn.conn_store", CLIENT, rules).await, 0);
            stage.app.answer(5);
        };
        let (calls, ()) = tokio::join!(calls, judge);
        assert_eq!((with_status(&calls, 200), with_status(&calls, 503)), (5, 25), "{calls:?}");
        assert_eq!(numbers(&calls, "x-running"), [1.0, 2.0, 3.0, 4.0, 5.0], "round {round}");
        // The fourth and the fifth wait as long as one request takes.
        assert_eq!(numbers(&calls, "x-slept"), [0.1, 0.1], "round {round}");
        let are_free = async || stage.remaining("conn.conn_store", CLIENT, rules).await == 5;
        soon("all are free", are_free).await;
    }
}

#[tokio::test]
async fn requests_with_a_wrong_key_do_not_delay_the_releases_of_others() {
    let listing =
        CONN.replace("ngx.var.binary_remote_addr", "ngx.var.arg_key or ngx.var.binary_remote_addr");
    let stage = need!(Stage::set(&listing, 1).await);
    let wrong = format!("/?key={}", "k".repeat(1_025));
    // If each were released twenty times, half a second apart, a hundred at a time, the last would be after a minute.
    for _ in 0..10 {
        let calls = get_at_once(stage.gateway(), &wrong, 60).await;
        assert_eq!(with_status(&calls, 500), 60, "{calls:?}");
    }
    stage.app.answer(1);
    assert_eq!(get(stage.gateway(), "/", "").await.status, 200);
    let rules = r#"[{"concurrency":{"limit":5,"ttl":"60s"}}]"#;
    let are_free = async || stage.remaining("conn.conn_store", CLIENT, rules).await == 5;
    soon("it is free", are_free).await;
}

#[tokio::test]
async fn four_of_a_window_pass_and_say_what_is_left() {
    let stage = need!(Stage::set(COUNT, 1).await);
    let mut left = Vec::new();
    for status in [200, 200, 200, 200, 503, 503] {
        let call = get(stage.gateway(), "/", "authorization: me\r\n").await;
        assert_eq!(call.status, status, "{call:?}");
        left.push(call.header("x-ratelimit-remaining").map(ToOwned::to_owned));
    }
    let left: Vec<_> = left.iter().map(|left| left.as_deref().unwrap_or("-")).collect();
    assert_eq!(left, ["3", "2", "1", "0", "0", "0"]);
    let other = get(stage.gateway(), "/", "authorization: you\r\n").await;
    assert_eq!(other.header("x-ratelimit-remaining"), Some("3"));
}

#[tokio::test]
async fn what_one_of_combined_limiters_refuses_charges_none() {
    let stage = need!(Stage::set(TRAFFIC, 1).await);
    let of_host = r#"[{"leaky_bucket":{"rate":"1/100s","burst":200}}]"#;
    let before = stage.remaining("req.req_store", b"shop", of_host).await;
    let calls = get_at_once(stage.gateway(), "/", 8).await;
    assert_eq!((with_status(&calls, 200), with_status(&calls, 503)), (2, 6), "{calls:?}");
    assert!(calls.iter().all(|call| call.status == 503 || call.header("x-states") == Some("3")));
    // The host's bucket is the slowest: its delay counts.
    let delays = numbers(&calls, "x-delay");
    assert!(delays.iter().all(|delay| *delay >= 50.0), "{delays:?}");
    let after = stage.remaining("req.req_store", b"shop", of_host).await;
    assert_eq!(before - after, 2);
    let conns = r#"[{"concurrency":{"limit":20,"ttl":"60s"}}]"#;
    let are_free = async || stage.remaining("conn.conn_store", CLIENT, conns).await == 20;
    soon("all connections are free", are_free).await;
}

/// Calls the methods of a limiter one after the other, and says what each returned.
const METHODS: &str = include_str!("resty/methods.conf");

#[tokio::test]
async fn methods_return_what_those_of_the_originals_do() {
    let stage = need!(Stage::set(METHODS, 1).await);
    let call = get(stage.gateway(), "/", "").await;
    let lines: Vec<_> = call.body.lines().collect();
    let expected = [
        "req 0 0",
        "req 0 0",
        "req true",
        "req nil rejected",
        "req true",
        "req true",
        "req true",
        "count 0 1",
        "count 0 1",
        "count 2",
        "count 0 1",
        "count 0 0",
        "count nil rejected",
        "conn 0 false",
        "conn 0 1",
        "conn true 0 1",
        "conn 0",
        "conn nil not found",
        "conn 0 1",
        "wrong nil name: expected 1 to 120 of `A-Za-z0-9._-`",
        "wrong nil burst: `1.5` is not a whole number 0..4294967296",
        "wrong nil burst: `1001` is not a whole number 0..1000",
        "wrong nil count: `0.5` is not a whole number 1..4294967296",
        "wrong nil empty key",
        "wrong nil nil key",
        "wrong nil rate: `1e-09` is outside 1e-07..4294967296",
        "wrong nil window: `1000000000000` is outside 1e-06..31622400",
        "wrong 0 0",
        "wrong nil sluicegate: NOTCHARGED key: `1025` bytes are outside 1..=1024",
        "wrong nil sluicegate: NOTCHARGED key: `1025` bytes are outside 1..=1024",
        "wrong false server: unknown option `hots`",
        "down nil sluicegate: connection refused",
        "down nil sluicegate: connection refused",
        "down 0 0",
        "down nil empty key",
        "down 0 false",
    ];
    assert_eq!(lines, expected);
}
