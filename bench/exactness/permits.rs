//! Requests that wait for a permit while servers are killed: three servers on a Redis, 200 clients, five permits.
//!
//! ```text
//! sluicegate-bench-exactness --server PATH --only permits
//! ```
//!
//! Each client waits for a permit, holds it for some milliseconds, and releases it, three times, by its own server.
//! Meanwhile each server is killed and started again. A client whose connection ends asks again, under another id:
//! the permit that it may have got ends by its `ttl`.
//!
//! The clients judge by their own clock: a permit is certainly held from the reply that grants it until its release is
//! sent. So what is reported as too many is real.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use sluicegate_testkit::{Options, RedisServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::bound::Limit;
use crate::fleet::{Build, Leases, Setup};
use crate::leases::calls;
use crate::wire::{POLICY, Reply, Wire};

const SERVERS: usize = 3;
const CLIENTS: usize = 200;

/// Permits that each client gets.
const TIMES: usize = 3;

/// The limit: permits that are held at once.
const PERMITS: u32 = 5;

/// Time after which a permit ends that was granted by a server that is gone.
const TTL_S: u32 = 3;

/// Times that each server is killed.
const KILLS: usize = 2;

/// Time between two kills; without them all clients would be served in seven seconds.
const KILLED_EVERY: Duration = Duration::from_secs(1);

/// Time for which a client holds a permit, in ms.
const HOLDING_MS: Range<u64> = 30..90;

/// Longest wait of a request. With every kill, all five permits may be lost for their `ttl`: 18 s of the whole time.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Interval between attempts to connect to a server that was killed.
const RECONNECT_EVERY: Duration = Duration::from_millis(10);

/// Requests that are so far apart came to Redis in the order in which they were sent, also by a server that has just
/// started.
const APART_US: u64 = 1_000_000;

/// The most later requests that a request may see before it.
const OVERTAKEN_MAX: usize = 2;

/// A permit that a client got. Times are µs since the run began.
#[derive(Clone, Copy, Debug)]
struct Held {
    sent_us: u64,
    granted_us: u64,
    released_us: u64,
}

/// The permits that a client got, and its requests that were lost.
#[derive(Debug, Default)]
struct Seen {
    held: Vec<Held>,
    /// Requests for a permit that the end of a server left without an answer.
    unanswered: u64,
}

/// Runs the clients and the kills, and prints the result.
///
/// # Errors
/// If more than five permits are held at any time, a request waits for a minute or is refused, later requests go
/// first, or the store is asked more often than promised.
pub(crate) async fn run(build: &Build) -> anyhow::Result<()> {
    let redis = RedisServer::start(Options::default()).await?;
    let limit = Limit::Held { limit: PERMITS, ttl_s: TTL_S };
    let setup =
        Setup { build, limit, nodes: SERVERS, on_store_failure: "deny", leases: Leases::Off };
    let url = format!("{}?deadline_ms=1000", redis.url());
    let mut fleet = setup.start(&[&url, &url, &url]).await?;
    let (before, begin, mut clients) = (calls(&redis).await?, Instant::now(), JoinSet::new());
    for number in 0..CLIENTS {
        let (_, server) = fleet.address(number % SERVERS, Wire::Resp);
        clients.spawn(client(number, server, begin));
    }
    for kill in 0..SERVERS * KILLS {
        sleep(KILLED_EVERY).await;
        setup.restart(&mut fleet, kill % SERVERS, &url).await?;
    }
    let (mut held, mut unanswered) = (Vec::new(), 0);
    while let Some(client) = clients.join_next().await {
        let seen = client??;
        held.extend(seen.held);
        unanswered += seen.unanswered;
    }
    let called = calls(&redis).await? - before;
    judge(&held, unanswered, called, begin.elapsed())
}

fn judge(held: &[Held], unanswered: u64, called: u64, span: Duration) -> anyhow::Result<()> {
    let (most, overtaken) = (most_at_once(held), most_overtaken(held));
    let longest = held.iter().map(|it| it.granted_us - it.sent_us).max().unwrap_or(0);
    let granted = held.len() as u64;
    // Two for each request that waits, one for each release, and one a second for each server.
    let may_call = 2 * (granted + unanswered) + granted + (span.as_secs() + 1) * SERVERS as u64;
    println!(
        "| {granted} permits granted | {unanswered} requests lost with their server | at most {most} held | longest wait \
         {:.1} s | overtaken by {overtaken} | {called} calls of {may_call} |",
        longest as f64 / 1e6
    );
    ensure!(held.len() == CLIENTS * TIMES, "some clients did not get their permits");
    ensure!(most <= PERMITS as usize, "{most} of {PERMITS} permits were held at once");
    ensure!(overtaken <= OVERTAKEN_MAX, "{overtaken} later requests went before one");
    ensure!(called <= may_call, "waiting took {called} calls of Redis, more than {may_call}");
    Ok(())
}

/// The most permits that were certainly held at one moment.
fn most_at_once(held: &[Held]) -> usize {
    let at_grant = |one: &Held| {
        let holds = |it: &&Held| it.granted_us <= one.granted_us && one.granted_us < it.released_us;
        held.iter().filter(holds).count()
    };
    held.iter().map(at_grant).max().unwrap_or(0)
}

/// The most requests that were sent later than one, and granted before it.
fn most_overtaken(held: &[Held]) -> usize {
    let before = |one: &Held| {
        let goes_first =
            |it: &&Held| it.sent_us > one.sent_us + APART_US && it.granted_us < one.granted_us;
        held.iter().filter(goes_first).count()
    };
    held.iter().map(before).max().unwrap_or(0)
}

/// Gets [`TIMES`] permits, one after the other.
async fn client(number: usize, server: SocketAddr, begin: Instant) -> anyhow::Result<Seen> {
    let (mut seen, mut attempt) = (Seen::default(), 0);
    let mut connection = connect(server).await?;
    while seen.held.len() < TIMES {
        attempt += 1;
        let id = format!("{number}-{attempt}");
        let sent_us = us_since(begin);
        let waiting = timeout(WAIT_MAX, ask(&mut connection, "SG.ACQUIRE", &id)).await;
        let Ok(passes) = waiting.context("a request waited for a minute")? else {
            seen.unanswered += 1;
            connection = connect(server).await?;
            continue;
        };
        ensure!(passes, "a request was refused, though it may wait");
        let granted_us = us_since(begin);
        sleep(Duration::from_millis(fastrand::u64(HOLDING_MS))).await;
        seen.held.push(Held { sent_us, granted_us, released_us: us_since(begin) });
        if ask(&mut connection, "SG.RELEASE", &id).await.is_err() {
            connection = connect(server).await?;
        }
    }
    Ok(seen)
}

/// Connects as soon as the server is listening.
async fn connect(server: SocketAddr) -> anyhow::Result<TcpStream> {
    let connecting = async {
        loop {
            match TcpStream::connect(server).await {
                Ok(stream) => return stream,
                Err(_) => sleep(RECONNECT_EVERY).await,
            }
        }
    };
    Ok(timeout(WAIT_MAX, connecting).await?)
}

/// Sends a command about the permit `id`, and returns whether it passes.
///
/// # Errors
/// If the connection ends.
async fn ask(stream: &mut TcpStream, command: &str, id: &str) -> anyhow::Result<bool> {
    let wait = if command == "SG.ACQUIRE" {
        format!(" MAXWAIT {}", WAIT_MAX.as_millis())
    } else {
        String::new()
    };
    let line = format!("{command} {POLICY} k {id}{wait}\r\n");
    stream.write_all(line.as_bytes()).await?;
    let mut answer = Vec::new();
    loop {
        ensure!(stream.read_buf(&mut answer).await? > 0, "the server closed the connection");
        match Wire::Resp.reply(&answer)? {
            None => {}
            Some((Reply::Decided { passes, .. }, _)) => return Ok(passes),
            Some((Reply::Failed(reason), _)) => anyhow::bail!("{reason}"),
        }
    }
}

fn us_since(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn held(sent_us: u64, granted_us: u64, released_us: u64) -> Held {
        Held { sent_us, granted_us, released_us }
    }

    #[test]
    fn permits_count_at_once_if_one_is_granted_before_the_other_is_released() {
        assert_eq!(most_at_once(&[held(0, 10, 20), held(0, 20, 30), held(0, 30, 40)]), 1);
        assert_eq!(most_at_once(&[held(0, 10, 21), held(0, 20, 31), held(0, 30, 40)]), 2);
    }

    #[test]
    fn requests_overtake_if_they_are_sent_later_and_granted_earlier() {
        let late = APART_US + 1;
        assert_eq!(most_overtaken(&[held(0, 900_000, 0), held(late, 800_000, 0)]), 1);
        assert_eq!(most_overtaken(&[held(0, 900_000, 0), held(APART_US, 800_000, 0)]), 0);
        assert_eq!(most_overtaken(&[held(0, 700_000, 0), held(late, 800_000, 0)]), 0);
    }
}
