//! Servers end with the tests, and not before.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use sluicegate_testkit::{Client, Options, RedisServer, need, until};

/// Set for the process that is to be killed.
const VICTIM: &str = "SLUICEGATE_TESTKIT_VICTIM";
/// Killing takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_server_ends_with_a_process_that_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let redis = need!(RedisServer::start(Options::default()).await);
        println!("\nserver at {}", redis.address());
        std::future::pending::<()>().await;
    }
    need!(RedisServer::start(Options::default()).await);
    // It cannot clean up.
    let dir = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "ends::a_server_ends_with_a_process_that_is_killed"])
        .env(VICTIM, "1")
        .env("TMPDIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.starts_with("server at ")).unwrap();
    let address = line.trim_start_matches("server at ").parse().unwrap();
    Client::connect(address).await.unwrap().call(&["PING"]).await.unwrap();

    victim.kill().unwrap();
    victim.wait().unwrap();
    let gone = async || Client::connect(address).await.err();
    until("the server had ended", PATIENCE, gone).await.unwrap();
}

#[test]
fn a_server_outlives_the_thread_that_started_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let start = move || runtime().block_on(RedisServer::start(Options::default()));
    let redis = need!(std::thread::spawn(start).join().unwrap());
    let pong = runtime().block_on(redis.cli(&["PING"])).unwrap();
    assert_eq!(pong.text(), "PONG");
}
