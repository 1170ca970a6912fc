//! A server that answers with errors: the store fails, so that `on_store_failure` decides, and nothing is charged.

use std::fs;
use std::time::Duration;

use sluicegate_kernel::{Cost, Micros, Verb};
use sluicegate_store::{Executed, StoreError};
use sluicegate_testkit::{Client, Options, RedisServer, need, until};

use crate::redis_store::{ask, bucket, connect};

const NOW: Micros = Micros::from_secs(1_800_000_000);

const PATIENCE: Duration = Duration::from_secs(10);

/// A state in which the server refuses what would charge a key, with an error that begins with `code`.
struct State {
    code: &'static str,
    begin: &'static [&'static [&'static str]],
    end: &'static [&'static [&'static str]],
}

const STATES: [State; 5] = [
    State {
        code: "OOM",
        begin: &[
            &["CONFIG", "SET", "maxmemory-policy", "noeviction"],
            &["CONFIG", "SET", "maxmemory", "1"],
        ],
        end: &[&["CONFIG", "SET", "maxmemory", "0"]],
    },
    State {
        code: "NOREPLICAS",
        begin: &[&["CONFIG", "SET", "min-replicas-to-write", "1"]],
        end: &[&["CONFIG", "SET", "min-replicas-to-write", "0"]],
    },
    State {
        code: "READONLY",
        begin: &[&["REPLICAOF", "127.0.0.1", "1"]],
        end: &[&["REPLICAOF", "NO", "ONE"]],
    },
    State {
        code: "MASTERDOWN",
        begin: &[
            &["CONFIG", "SET", "replica-serve-stale-data", "no"],
            &["REPLICAOF", "127.0.0.1", "1"],
        ],
        end: &[&["REPLICAOF", "NO", "ONE"]],
    },
    State {
        code: "NOPERM",
        begin: &[&["ACL", "SETUSER", "default", "-evalsha"]],
        end: &[&["ACL", "SETUSER", "default", "+@all"]],
    },
];

/// Checks that a check is refused with an error that begins with `code`, and is not charged; once `end` has
/// happened, the key is found unchanged.
async fn check(
    redis: &RedisServer,
    code: &str,
    begin: impl AsyncFnOnce(),
    end: impl AsyncFnOnce(),
) {
    let (store, rules) = (connect(&redis.url()).await, bucket(1, 5));
    let check = Verb::Check { cost: Cost::ONE };
    ask(&store, b"k", &rules, &check, NOW).await.expect("the server answers yet");
    begin().await;
    match ask(&store, b"k", &rules, &check, NOW).await {
        Err(StoreError::Unavailable { reason, executed: Executed::No }) => {
            assert!(reason.starts_with(&format!("redis refused the call: {code} ")), "{reason}");
        }
        other => panic!("{code}: {other:?}"),
    }
    end().await;
    let peek = Verb::Peek { cost: Cost::ONE };
    let again = async || ask(&store, b"k", &rules, &peek, NOW).await.ok();
    let verdict = until("the store is back", PATIENCE, again).await.expect("it is");
    assert_eq!(verdict.decision.remaining, 4, "{code}: only the first was charged");
}

async fn all(redis: &RedisServer, commands: &[&[&str]]) {
    for command in commands {
        redis.cli(command).await.expect("it answers");
    }
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_a_store_that_fails_and_charges_nothing() {
    for State { code, begin, end } in STATES {
        let redis = need!(RedisServer::start(Options::default()).await);
        check(&redis, code, async || all(&redis, begin).await, async || all(&redis, end).await)
            .await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_write_its_file_is_a_store_that_fails_and_charges_nothing() {
    let options = Options { config: vec!["save 900 1".to_owned()], ..Options::default() };
    let redis = need!(RedisServer::start(options).await);
    let begin = async || {
        let dir = redis.cli(&["CONFIG", "GET", "dir"]).await.expect("it answers").list()[1].text();
        fs::remove_dir_all(dir).expect("it is of the test");
        redis.cli(&["BGSAVE"]).await.expect("it answers");
        let failed = async || {
            let status = redis.info("rdb_last_bgsave_status").await.expect("it answers");
            (status == "err").then_some(())
        };
        until("the file is not written", PATIENCE, failed).await.expect("there is no folder");
    };
    let end = [["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"].as_slice()];
    check(&redis, "MISCONF", begin, async || all(&redis, &end).await).await;
}

#[tokio::test]
async fn a_server_that_runs_the_script_of_another_is_a_store_that_fails_and_charges_nothing() {
    let redis = need!(RedisServer::start(Options::default()).await);
    // The name of the setting that versions before 7 have, too.
    all(&redis, &[&["CONFIG", "SET", "lua-time-limit", "1"]]).await;
    let mut other = Client::connect(redis.address()).await.expect("it listens");
    let begin = async || {
        other.send(&["EVAL", "while true do end", "0"]).await.expect("it reads");
        let busy = async || redis.cli(&["PING"]).await.is_err().then_some(());
        until("the server is busy", PATIENCE, busy).await.expect("the script has no end");
    };
    check(&redis, "BUSY", begin, async || all(&redis, &[&["SCRIPT", "KILL"]]).await).await;
}
