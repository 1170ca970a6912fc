//! Real servers for tests, started as users start them, on free loopback ports, and surely ended.
//!
//! | what | for |
//! |---|---|
//! | [`RedisServer`] | one Redis or Valkey: plain, TLS, ACL, a clock that the test moves, kill, freeze, restart |
//! | [`Sentinels`] | a master, two replicas and three sentinels that fail over |
//! | [`Cluster`] | three masters, slots that move step by step |
//! | [`FaultProxy`] | between a client and a server: late, slow, silent, refused, reset |
//! | [`SqlServer`] | PostgreSQL or MariaDB, with a new database for each test |
//! | [`Program`] | any other program, such as a gateway, with files of its own |
//! | [`Client`] | the barest client, for looking into a server from a test |
//!
//! A server ends when its handle is dropped, and also when the test's process is killed: it is
//! started with a parent-death signal. Ports come from below the range of outgoing connections and
//! stay reserved while a server is down, so that it can come back on the port that it had.
//!
//! Without `redis-server` nothing can be tested with it; [`need!`] makes that a skip that is reported on a laptop, and
//! a failure where `CI=true`:
//!
//! ```
//! use sluicegate_testkit::{Options, RedisServer, need};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let redis = need!(RedisServer::start(Options::default()).await);
//! let pong = redis.cli(&["PING"]).await.expect("a server that was started answers");
//! assert_eq!(pong.text(), "PONG");
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! `SLUICEGATE_REDIS_SERVER` names another binary, so that the same tests run on other versions.

mod client;
mod clock;
mod cluster;
mod error;
mod port;
mod process;
mod program;
mod proxy;
mod sentinels;
mod server;
mod spec;
mod sql;
mod tls;
mod version;

pub use client::{Client, Reply};
pub use cluster::{Cluster, ClusterOptions, SlotMigration};
pub use error::{Error, needed};
pub use port::Port;
pub use program::{Launch, Program};
pub use proxy::{FaultProxy, Faults, ProxyTraffic};
pub use sentinels::{SentinelOptions, Sentinels};
pub use server::{Options, RedisServer, SERVER_VARIABLE};
pub use spec::wire_vectors;
pub use sql::{SqlKind, SqlServer};
pub use tls::TlsFiles;
pub use version::Version;

use std::time::Duration;

/// Calls `ask` every few milliseconds until it returns an answer, for at most `patience`.
///
/// # Errors
/// [`Error::Timeout`] with `what`.
pub async fn until<T>(
    what: &str,
    patience: Duration,
    mut ask: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Error> {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    };
    let timeout = || Error::Timeout { what: what.to_owned(), patience };
    tokio::time::timeout(patience, asking).await.map_err(|_elapsed| timeout())
}

/// The time between two questions about a state of servers that a test waits for: short enough not to be noticed, long
/// enough to leave the servers their time.
const ASK_EVERY: Duration = Duration::from_millis(5);
