//! A server with the replies of a test: those that a real one gives only in rare faults.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sluicegate_store::redis::{CallEffect, RedisError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::redis_client::{COUNT_SHA1, connect, count, start, until};

/// A server that records its commands, until it is dropped.
struct Fake {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Fake {
    /// Starts a server that answers each command, its words joined by spaces, with `reply`.
    async fn start(reply: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (asked, reply) = (Arc::new(Mutex::default()), Arc::new(reply));
        let log = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (log, reply) = (Arc::clone(&log), Arc::clone(&reply));
                // A connection that breaks is left to the client.
                connections.spawn(async move { serve(stream, &log, &*reply).await.ok() });
            }
        });
        Self { address, asked, task }
    }

    /// Returns the number of commands that began with `word`.
    fn count(&self, word: &str) -> usize {
        let asked = self.asked.lock().expect("no test panics with the lock");
        asked.iter().filter(|command| command.starts_with(word)).count()
    }

    /// Returns the number of calls of the script.
    fn count_evals(&self) -> usize {
        self.count(&format!("EVALSHA {}", *COUNT_SHA1))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    stream: TcpStream,
    log: &Mutex<Vec<String>>,
    reply: &(impl Fn(&str) -> String + Sync),
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut words = Vec::new();
        for _ in 0..length(&mut stream).await? {
            let mut word = vec![0; length(&mut stream).await? + 2];
            stream.read_exact(&mut word).await?;
            word.truncate(word.len() - 2);
            words.push(String::from_utf8_lossy(&word).into_owned());
        }
        let command = words.join(" ");
        let answer = reply(&command);
        log.lock().expect("no test panics with the lock").push(command);
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
}

/// Reads the number in `*3` or `$3`.
async fn length(stream: &mut BufReader<TcpStream>) -> std::io::Result<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let number = line.get(1..).and_then(|text| text.trim_end().parse().ok());
    number.ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// Returns the answer of a server that loads scripts; to any other command, `other`.
fn or_load(command: &str, other: &str) -> String {
    match command.starts_with("SCRIPT LOAD") {
        true => bulk(&COUNT_SHA1),
        false => other.to_owned(),
    }
}

#[tokio::test]
async fn a_script_that_is_never_there_is_given_up_after_3_repeats() {
    let fake = Fake::start(|command| or_load(command, "-NOSCRIPT No matching script.\r\n")).await;
    let client = connect(&format!("redis://{}?connections=1&deadline_ms=2000", fake.address)).await;
    let error = count(&client, "a").await.expect_err("the script never runs");
    assert!(matches!(&error, RedisError::Refused(refusal) if &*refusal.code == "NOSCRIPT"));
    assert_eq!(error.outcome(), CallEffect::NotExecuted);
    assert_eq!(fake.count_evals(), 4);
    assert!(fake.count("SCRIPT LOAD") >= 4, "once at first, and once before each repeat");
}

#[tokio::test]
async fn calls_that_were_in_flight_when_the_script_was_lost_are_repeated_in_their_order() {
    let loads = AtomicUsize::new(0);
    let fake = Fake::start(move |command| {
        if command.starts_with("SCRIPT LOAD") {
            loads.fetch_add(1, Ordering::Relaxed);
        }
        match loads.load(Ordering::Relaxed) {
            0 | 1 => or_load(command, "-NOSCRIPT No matching script.\r\n"),
            _ => or_load(command, &bulk("1")),
        }
    })
    .await;
    let options = "connections=1&joined_max=1&deadline_ms=2000";
    let client = connect(&format!("redis://{}?{options}", fake.address)).await;
    let keys = ["a", "b", "c", "d"];
    let counts = futures_util::future::join_all(keys.map(|key| count(&client, key))).await;
    assert_eq!(counts, vec![Ok(1); keys.len()]);
    let asked = fake.asked.lock().expect("no test panics with the lock").clone();
    let evals =
        asked.iter().filter(|command| command.starts_with(&format!("EVALSHA {}", *COUNT_SHA1)));
    let order: Vec<_> = evals.filter_map(|command| command.split(' ').nth(3)).collect();
    let once = ["sg:a", "sg:b", "sg:c", "sg:d"];
    assert_eq!(order, [once, once].concat());
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_left_and_no_call_is_repeated() {
    let fake = Fake::start(|command| or_load(command, "-LOADING Redis is loading\r\n")).await;
    let client = connect(&format!("redis://{}?connections=1&deadline_ms=2000", fake.address)).await;
    let error = count(&client, "a").await.expect_err("it is loading");
    assert!(matches!(&error, RedisError::Refused(refusal) if &*refusal.code == "LOADING"));
    assert_eq!(error.outcome(), CallEffect::NotExecuted);
    assert_eq!(fake.count_evals(), 1);
    until("a new connection was made", async || fake.count("SCRIPT LOAD") > 1).await;
}

#[tokio::test]
async fn a_reply_of_another_shape_counts_as_executed() {
    let fake = Fake::start(|command| or_load(command, ":7\r\n")).await;
    let client = connect(&format!("redis://{}", fake.address)).await;
    let error = count(&client, "a").await.expect_err("the script replies with strings");
    assert_eq!(error, RedisError::Malformed);
    assert_eq!(error.outcome(), CallEffect::Unknown);
}

#[tokio::test]
async fn what_is_no_redis_is_not_taken_for_one() {
    let fake = Fake::start(|_| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()).await;
    let client = start(&format!("redis://{}", fake.address));
    let error = client.ready().await.expect_err("it is no redis");
    let shown = error.to_string();
    assert!(shown.contains(&fake.address.to_string()), "{shown}");
}

/// Starts a cluster of one node that answers each call of its script with `reply`, given its port.
async fn cluster(reply: impl Fn(u16) -> String + Send + Sync + 'static) -> Fake {
    let own = Arc::new(AtomicU16::new(0));
    let port = Arc::clone(&own);
    let fake = Fake::start(move |command| {
        let port = port.load(Ordering::Relaxed);
        match command {
            "CLUSTER SLOTS" => {
                format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
            }
            _ => or_load(command, &reply(port)),
        }
    })
    .await;
    own.store(fake.address.port(), Ordering::Relaxed);
    fake
}

#[tokio::test]
async fn calls_that_wait_for_a_node_of_a_cluster_go_each_on_its_own() {
    let fake = cluster(|_| bulk("1")).await;
    let options = "connections=1&deadline_ms=2000&joined_max=16";
    let client = connect(&format!("redis+cluster://{}?{options}", fake.address)).await;
    let keys = ["a", "b", "c", "d"];
    let counts = futures_util::future::join_all(keys.map(|key| count(&client, key))).await;
    assert_eq!(counts, vec![Ok(1); keys.len()]);
    assert_eq!(fake.count_evals(), keys.len());
}

#[tokio::test]
async fn nodes_that_send_each_other_every_call_are_left_after_3_redirections() {
    let fake = cluster(|port| format!("-MOVED 1 127.0.0.1:{port}\r\n")).await;
    let client = connect(&format!("redis+cluster://{}?deadline_ms=2000", fake.address)).await;
    let error = count(&client, "a").await.expect_err("it goes in circles");
    assert!(matches!(&error, RedisError::Refused(refusal) if &*refusal.code == "MOVED"));
    assert_eq!(fake.count_evals(), 4);
    assert_eq!(client.stats().redirects, 3);
}

/// Returns the reply of a Sentinel about a master at `port` in configuration `epoch`.
fn sentinel(command: &str, port: u16, epoch: u64) -> String {
    if command.starts_with("SUBSCRIBE") {
        return "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n".to_owned();
    }
    let fields = ["ip", "127.0.0.1", "port", &port.to_string(), "config-epoch", &epoch.to_string()];
    let fields: String = fields.iter().map(|field| bulk(field)).collect();
    format!("*6\r\n{fields}")
}

async fn master(reply: &'static str) -> Fake {
    Fake::start(move |command| match command {
        "ROLE" => format!("*3\r\n{}:0\r\n*0\r\n", bulk("master")),
        _ => or_load(command, &bulk(reply)),
    })
    .await
}

#[tokio::test]
async fn an_older_configuration_is_never_gone_back_to() {
    // Both servers report that they are masters; the Sentinels disagree, and one has newer news.
    let (new, old) = (master("5").await, master("4").await);
    let (new_port, old_port) = (new.address.port(), old.address.port());
    let informed = Fake::start(move |command| sentinel(command, new_port, 5)).await;
    let cut_off = Fake::start(move |command| sentinel(command, old_port, 4)).await;
    let hosts = format!("{},{}", cut_off.address, informed.address);
    let client = connect(&format!("redis+sentinel://{hosts}/m?connections=1")).await;
    assert_eq!(count(&client, "a").await, Ok(5), "the higher epoch counts");

    // Only the one with the old news is left, and it is asked again and again.
    drop(informed);
    let before = cut_off.count("SENTINEL MASTER");
    drop(new);
    until("the Sentinel was asked", async || cut_off.count("SENTINEL MASTER") > before + 2).await;
    let error = count(&client, "a").await.expect_err("the master is gone");
    assert_eq!(error.outcome(), CallEffect::NotExecuted);
    assert_eq!(old.count("EVALSHA") + old.count("ROLE"), 0, "nobody came to the old master");
}

#[tokio::test]
async fn a_sentinel_that_does_not_answer_holds_nobody_up() {
    let new = master("5").await;
    let port = new.address.port();
    let well = Fake::start(move |command| sentinel(command, port, 5)).await;
    let silent = Fake::start(|_| String::new()).await;
    let begun = Instant::now();
    let url = format!("redis+sentinel://{},{}/m?connections=1", silent.address, well.address);
    let client = connect(&url).await;
    assert_eq!(count(&client, "a").await, Ok(5));
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}
