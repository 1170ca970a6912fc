//! The client of a gateway: one request, one connection.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use futures_util::future::join_all;
use sluicegate::{Clock, MonotonicClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use super::PATIENCE;

/// Source of requests that must not use the budgets of a test: all of `127.0.0.0/8` is this machine.
pub(crate) const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The address of a gateway, other than that of its clients.
pub(crate) const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

/// A request that was answered.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Time at which it was sent, and at which it was answered, µs.
    pub(crate) sent_us: i64,
    pub(crate) answered_us: i64,
    pub(crate) status: u16,
    /// The head of the answer, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Requests `path`, with the lines of `headers`.
pub(crate) async fn get(gateway: SocketAddr, path: &str, headers: &str) -> Call {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}\r\n");
    send(gateway, Ipv4Addr::LOCALHOST.into(), &request).await.expect("the gateway answers")
}

/// Requests `path` from the server itself, as a gateway does.
pub(crate) async fn ask(server: SocketAddr, path: &str, headers: &str) -> Call {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
    send(server, Ipv4Addr::LOCALHOST.into(), &request).await.expect("the server answers")
}

/// Requests `path` that many times at once.
pub(crate) async fn get_at_once(gateway: SocketAddr, path: &str, times: usize) -> Vec<Call> {
    join_all((0..times).map(|_| get(gateway, path, ""))).await
}

/// The status of `path` for another client, if there is an answer.
pub(crate) async fn probe(gateway: SocketAddr, path: &str) -> Option<u16> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
    send(gateway, ELSEWHERE, &request).await.map(|call| call.status)
}

/// Sends `request` unchanged from one of the addresses of this machine.
pub(crate) async fn send(to: SocketAddr, from: IpAddr, request: &str) -> Option<Call> {
    let sent_us = now_us();
    let answer = async {
        let socket = TcpSocket::new_v4().ok()?;
        socket.bind((from, 0).into()).ok()?;
        let mut stream = socket.connect(to).await.ok()?;
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok()?;
        String::from_utf8(answer).ok()
    };
    let answer = timeout(PATIENCE, answer).await.expect("an answer comes in time")?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let head = head.to_lowercase();
    Some(Call { sent_us, answered_us: now_us(), status, head, body: body.to_owned() })
}

pub(crate) fn now_us() -> i64 {
    i64::try_from(MonotonicClock.now().get()).expect("a machine does not run for so long")
}
