//! A master, two replicas, and three sentinels that agree on who is master.

use std::net::SocketAddr;
use std::time::Duration;

use crate::port::Port;
use crate::server::{Credentials, ServerSetup};
use crate::{Error, Options, RedisServer, until};

/// One master with replicas and the three sentinels that watch it. They end when it is dropped.
///
/// As in production, a master that died and is [restarted](RedisServer::restart) after it was replaced acts as the
/// master, and accepts writes, until the sentinels make it a replica some ten seconds later.
#[derive(Debug)]
pub struct Sentinels {
    sentinels: Vec<RedisServer>,
    nodes: Vec<RedisServer>,
}

/// The options of a group.
#[derive(Debug, Clone)]
pub struct SentinelOptions {
    /// The time of silence after which a sentinel considers the master down.
    pub down_after: Duration,
    /// The time after which a failover that does not succeed is given up and tried again.
    pub failover_timeout: Duration,
    /// Replicas that the master needs in order to take a write (`min-replicas-to-write`, with a
    /// `min-replicas-max-lag` of three seconds: they report every second, on a busy machine late).
    pub min_replicas: Option<u8>,
    /// The options of the master and its replicas. The sentinels themselves require no password.
    pub node: Options,
}

impl Default for SentinelOptions {
    fn default() -> Self {
        Self {
            down_after: Duration::from_millis(500),
            failover_timeout: Duration::from_secs(5),
            min_replicas: None,
            node: Options::default(),
        }
    }
}

impl Sentinels {
    /// The name of the master, for clients that ask the sentinels.
    pub const NAME: &str = "sluicegate";

    /// A group that is ready for a failover.
    ///
    /// # Errors
    /// As for [`RedisServer::start`].
    pub async fn start(options: SentinelOptions) -> Result<Self, Error> {
        let mut node = options.node.clone();
        if let Some(replicas) = options.min_replicas {
            node.config.push(format!("min-replicas-to-write {replicas}"));
            node.config.push("min-replicas-max-lag 3".to_owned());
        }
        let mut nodes = vec![RedisServer::start(node.clone()).await?];
        node.replica_of = Some(nodes[0].address());
        for _ in 0..REPLICAS {
            nodes.push(RedisServer::start(node.clone()).await?);
        }
        let ports: Vec<_> = (0..SENTINELS).map(|_| Port::free()).collect::<Result<_, _>>()?;
        let known: Vec<_> = ports.iter().map(Port::number).collect();
        let mut sentinels = Vec::new();
        for port in ports {
            let lines = lines(&options, &nodes, &known, port.number());
            let setup = ServerSetup { port, lines, args: &["--sentinel"] };
            let binary = options.node.binary.clone();
            let plain = Options { binary, ..Options::default() };
            sentinels.push(RedisServer::boot(plain, setup).await?);
        }
        let group = Self { sentinels, nodes };
        group.agreed().await?;
        Ok(group)
    }

    /// The addresses at which the sentinels listen.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sentinels.iter().map(RedisServer::address).collect()
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The sentinels, to be killed and restarted.
    pub fn sentinels_mut(&mut self) -> &mut [RedisServer] {
        &mut self.sentinels
    }

    /// The master and the replicas, in the order in which they were started.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The master and the replicas, to be killed and restarted.
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// Returns the master that the sentinels name: an index of [`nodes`](Self::nodes).
    ///
    /// # Errors
    /// [`Error::Timeout`] if no sentinel answers.
    pub async fn master(&self) -> Result<usize, Error> {
        until("a sentinel named a master", FAILOVER_MAX, async || self.named().await).await
    }

    /// Asks the sentinels for a failover (`SENTINEL FAILOVER`), waits until another node is master, and returns its
    /// index.
    ///
    /// # Errors
    /// [`Error::Reply`] if they refuse, [`Error::Timeout`] if no other node becomes master.
    pub async fn failover(&self) -> Result<usize, Error> {
        let old = self.master().await?;
        self.sentinels[0].cli(&["SENTINEL", "FAILOVER", Self::NAME]).await?;
        self.master_other_than(old).await
    }

    /// Kills the master, and returns its index. To wait for the reaction of the sentinels, call
    /// [`master_other_than`](Self::master_other_than).
    ///
    /// # Errors
    /// As for [`master`](Self::master).
    pub async fn kill_master(&mut self) -> Result<usize, Error> {
        let master = self.master().await?;
        self.nodes[master].kill();
        Ok(master)
    }

    /// Waits until the sentinels name another master than `old`, and that node reports that it is one; returns its
    /// index.
    ///
    /// # Errors
    /// [`Error::Timeout`] if that does not happen.
    pub async fn master_other_than(&self, old: usize) -> Result<usize, Error> {
        until("another node was master", FAILOVER_MAX, async || {
            let named = self.named().await.filter(|&named| named != old)?;
            let role = self.nodes[named].answer(&["ROLE"]).await?;
            (role.list()[0].text() == "master").then_some(named)
        })
        .await
    }

    /// The node that the first sentinel which answers names as master.
    async fn named(&self) -> Option<usize> {
        let command = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME];
        for sentinel in &self.sentinels {
            let Some(answer) = sentinel.answer(&command).await else { continue };
            let port = answer.list().get(1)?.text();
            return self.nodes.iter().position(|node| node.address().port().to_string() == port);
        }
        None
    }

    /// Waits until every sentinel has had messages from the others and from the replicas.
    async fn agreed(&self) -> Result<(), Error> {
        until("the sentinels knew each other", FAILOVER_MAX, async || {
            for sentinel in &self.sentinels {
                let usable = sentinel.cli(&["SENTINEL", "CKQUORUM", Self::NAME]).await.is_ok();
                let replicas = sentinel.cli(&["SENTINEL", "REPLICAS", Self::NAME]).await.ok()?;
                let linked = |item: &&crate::Reply| {
                    let fields: Vec<_> = item.list().iter().map(crate::Reply::text).collect();
                    fields.windows(2).any(|pair| pair == ["master-link-status", "ok"])
                };
                let linked = replicas.list().iter().filter(linked).count();
                if !usable || linked < REPLICAS {
                    return None;
                }
            }
            Some(())
        })
        .await
    }
}

/// The configuration of the sentinel at `port`. It already names the other sentinels and the replicas, as it would
/// after a restart: without that they take seconds to meet.
fn lines(
    options: &SentinelOptions,
    nodes: &[RedisServer],
    ports: &[u16],
    port: u16,
) -> Vec<String> {
    let name = Sentinels::NAME;
    let SentinelOptions { down_after, failover_timeout, min_replicas: _, node } = options;
    let mut lines = vec![
        "bind 127.0.0.1".to_owned(),
        format!("sentinel myid {}", sentinel_id(port)),
        format!("sentinel monitor {name} 127.0.0.1 {} {QUORUM}", nodes[0].address().port()),
        format!("sentinel down-after-milliseconds {name} {}", down_after.as_millis()),
        format!("sentinel failover-timeout {name} {}", failover_timeout.as_millis()),
    ];
    if let Some(Credentials { user, password }) = node.credentials() {
        lines.push(format!("sentinel auth-user {name} {user}"));
        lines.push(format!("sentinel auth-pass {name} {password}"));
    }
    for replica in &nodes[1..] {
        lines.push(format!("sentinel known-replica {name} 127.0.0.1 {}", replica.address().port()));
    }
    for &other in ports.iter().filter(|&&other| other != port) {
        let id = sentinel_id(other);
        lines.push(format!("sentinel known-sentinel {name} 127.0.0.1 {other} {id}"));
    }
    lines
}

/// The name of a sentinel among its peers.
fn sentinel_id(port: u16) -> String {
    format!("{port:040x}")
}

const SENTINELS: usize = 3;
const REPLICAS: usize = 2;
/// The number of sentinels that must consider the master down.
const QUORUM: usize = 2;
/// Longest wait for a failover: two seconds are usual, and a first vote without a winner is followed
/// by another only after twice the failover timeout.
const FAILOVER_MAX: Duration = Duration::from_secs(40);
