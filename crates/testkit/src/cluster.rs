//! Masters that share the slots, and slots that move from one to another.

use std::net::SocketAddr;
use std::time::Duration;

use crate::port::Port;
use crate::server::{Credentials, ServerSetup};
use crate::version::field;
use crate::{Error, Options, RedisServer, Reply, until};

/// A cluster of three masters. Its servers end when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    ids: Vec<String>,
}

/// The options of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Replicas of each master.
    pub replicas: usize,
    /// The time of silence after which the others consider a node down.
    pub node_timeout: Duration,
    /// The options of each node.
    pub node: Options,
}

/// The migration of a slot from one master to another, as an operator does it: step by step, so
/// that a test can stop between the steps.
///
/// [`Cluster::begin_migration`] opens it. From then on the old master answers for the keys that it
/// still has and sends clients to the new one for the others (`ASK`).
/// [`move_keys`](Self::move_keys) moves the keys, [`finish`](Self::finish) makes the new master the
/// slot's owner, to which all nodes then send clients for good (`MOVED`).
#[derive(Debug)]
pub struct SlotMigration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: usize,
    to: usize,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { replicas: 0, node_timeout: Duration::from_secs(1), node: Options::default() }
    }
}

impl Cluster {
    /// Masters of a cluster: the first of [`nodes`](Self::nodes).
    pub const MASTERS: usize = 3;
    /// Slots of a cluster.
    pub const SLOTS: u16 = 16_384;

    /// A cluster in which every node knows that every slot is served.
    ///
    /// # Errors
    /// As for [`RedisServer::start`].
    pub async fn start(options: ClusterOptions) -> Result<Self, Error> {
        let ClusterOptions { replicas, node_timeout, node } = options;
        let (mut nodes, mut ids) = (Vec::new(), Vec::new());
        for _ in 0..Self::MASTERS * (1 + replicas) {
            let mut lines = node.lines();
            lines.push("cluster-enabled yes".to_owned());
            lines.push(format!("cluster-node-timeout {}", node_timeout.as_millis()));
            let setup = ServerSetup { port: Port::free_with_bus()?, lines, args: &[] };
            let server = RedisServer::boot(node.clone(), setup).await?;
            ids.push(server.cli(&["CLUSTER", "MYID"]).await?.text());
            nodes.push(server);
        }
        let cluster = Self { nodes, ids };
        cluster.meet().await?;
        for replica in Self::MASTERS..cluster.nodes.len() {
            cluster.replicate(replica, replica % Self::MASTERS).await?;
        }
        cluster.settled().await?;
        Ok(cluster)
    }

    /// The addresses at which the nodes listen, as for a client.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(RedisServer::address).collect()
    }

    /// The masters, then the replicas: node `n` began as a replica of node `n % 3`.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The nodes, to be killed and restarted.
    pub fn nodes_mut(&mut self) -> &mut [RedisServer] {
        &mut self.nodes
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// [`Error::Timeout`] if no node answers.
    pub async fn slot_of(&self, key: &str) -> Result<u16, Error> {
        let slot = until("a node answered", SETTLE_MAX, async || {
            self.any(&["CLUSTER", "KEYSLOT", key]).await
        });
        Ok(u16::try_from(slot.await?.int()).expect("a slot is below 16,384"))
    }

    /// The master that serves `slot`, as the first node that answers sees it: an index of
    /// [`nodes`](Self::nodes).
    ///
    /// # Errors
    /// [`Error::Timeout`] if no node serves it.
    pub async fn node_of(&self, slot: u16) -> Result<usize, Error> {
        until("a node served the slot", SETTLE_MAX, async || {
            let slots = self.any(&["CLUSTER", "SLOTS"]).await?;
            self.owner(&slots, slot)
        })
        .await
    }

    /// Kills the master that serves `slot`, and returns its index.
    ///
    /// # Errors
    /// As for [`node_of`](Self::node_of).
    pub async fn kill_node_of(&mut self, slot: u16) -> Result<usize, Error> {
        let node = self.node_of(slot).await?;
        self.nodes[node].kill();
        Ok(node)
    }

    /// Moves `slot` with its keys to the master `to`.
    ///
    /// # Errors
    /// [`Error::Reply`] if a step is refused.
    pub async fn migrate_slot(&self, slot: u16, to: usize) -> Result<(), Error> {
        let migration = self.begin_migration(slot, to).await?;
        migration.move_keys().await?;
        migration.finish().await
    }

    /// Begins the migration of `slot` to the master `to`: `IMPORTING` there, `MIGRATING` at the
    /// present master.
    ///
    /// # Errors
    /// [`Error::Reply`] if a node refuses.
    pub async fn begin_migration(&self, slot: u16, to: usize) -> Result<SlotMigration<'_>, Error> {
        let from = self.node_of(slot).await?;
        let migration = SlotMigration { cluster: self, slot, from, to };
        migration.set(to, "IMPORTING", from).await?;
        migration.set(from, "MIGRATING", to).await?;
        Ok(migration)
    }

    /// Waits until every running node reports that the cluster is well.
    ///
    /// # Errors
    /// [`Error::Timeout`] if that does not happen.
    pub async fn settled(&self) -> Result<(), Error> {
        until("every node found the cluster well", SETTLE_MAX, async || {
            for node in &self.nodes {
                let Some(info) = node.answer(&["CLUSTER", "INFO"]).await else { continue };
                let info = info.text();
                let known = field(&info, "cluster_known_nodes")?.parse() == Ok(self.nodes.len());
                if field(&info, "cluster_state")? != "ok" || !known {
                    return None;
                }
            }
            Some(())
        })
        .await
    }

    /// Introduces the nodes to each other and assigns their slots to the masters. Every pair meets
    /// directly, since waiting for gossip takes a second.
    async fn meet(&self) -> Result<(), Error> {
        for (index, node) in self.nodes.iter().enumerate() {
            let epoch = (index + 1).to_string();
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await?;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[index + 1..] {
                let port = other.address().port().to_string();
                node.cli(&["CLUSTER", "MEET", "127.0.0.1", &port]).await?;
            }
            if index < Self::MASTERS {
                // One by one in one command: old versions do not know ranges.
                let first = |master| usize::from(Self::SLOTS) * master / Self::MASTERS;
                let mut command = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
                command.extend((first(index)..first(index + 1)).map(|slot| slot.to_string()));
                node.cli(&command).await?;
            }
        }
        Ok(())
    }

    /// Makes `replica` a replica of `master` once it knows that master.
    async fn replicate(&self, replica: usize, master: usize) -> Result<(), Error> {
        let id = &self.ids[master];
        until("a replica had heard of its master", SETTLE_MAX, async || {
            self.nodes[replica].cli(&["CLUSTER", "REPLICATE", id]).await.ok()
        })
        .await?;
        self.nodes[replica].synchronised().await
    }

    /// The answer of the first node that has one.
    async fn any(&self, command: &[&str]) -> Option<Reply> {
        for node in &self.nodes {
            let answer = node.answer(command).await;
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    fn owner(&self, slots: &Reply, slot: u16) -> Option<usize> {
        let range = slots
            .list()
            .iter()
            .map(Reply::list)
            .find(|range| (range[0].int()..=range[1].int()).contains(&i64::from(slot)))?;
        let id = range[2].list()[2].text();
        self.ids.iter().position(|known| *known == id)
    }
}

impl SlotMigration<'_> {
    /// The master that had the slot.
    pub fn from(&self) -> usize {
        self.from
    }

    /// Moves every key of the slot, as `MIGRATE` does it: a key is on one of the two at every
    /// moment. Returns the number of keys.
    ///
    /// # Errors
    /// [`Error::Reply`] if a node refuses.
    pub async fn move_keys(&self) -> Result<usize, Error> {
        let (slot, mut moved) = (self.slot.to_string(), 0);
        let port = self.cluster.nodes[self.to].address().port().to_string();
        let login = self.cluster.nodes[self.to].credentials();
        loop {
            let keys = ["CLUSTER", "GETKEYSINSLOT", &slot, BATCH];
            let keys = self.cluster.nodes[self.from].cli(&keys).await?;
            if keys.list().is_empty() {
                return Ok(moved);
            }
            let mut command: Vec<Vec<u8>> =
                ["MIGRATE", "127.0.0.1", &port, "", "0", MIGRATE_MS].map(Vec::from).to_vec();
            if let Some(Credentials { user, password }) = login {
                command.extend(["AUTH2", user, password].map(Vec::from));
            }
            command.push(b"KEYS".to_vec());
            for key in keys.list() {
                let Reply::Bytes(key) = key else { continue };
                command.push(key.clone());
                moved += 1;
            }
            self.cluster.nodes[self.from].cli(&command).await?;
        }
    }

    /// Makes the new master the owner: the command goes to it first, then to the old one, then to
    /// the others. These also learn it from the two, so their errors do not matter.
    ///
    /// # Errors
    /// [`Error::Reply`] if a node refuses, as the old master does while it has keys of the slot.
    pub async fn finish(self) -> Result<(), Error> {
        self.set(self.to, "NODE", self.to).await?;
        self.set(self.from, "NODE", self.to).await?;
        for other in (0..Cluster::MASTERS).filter(|&other| other != self.from && other != self.to) {
            self.set(other, "NODE", self.to).await.ok();
        }
        Ok(())
    }

    /// `CLUSTER SETSLOT` on `node`.
    async fn set(&self, node: usize, state: &str, other: usize) -> Result<(), Error> {
        let (slot, id) = (self.slot.to_string(), &self.cluster.ids[other]);
        self.cluster.nodes[node].cli(&["CLUSTER", "SETSLOT", &slot, state, id]).await.map(drop)
    }
}

/// Longest wait for the nodes to agree: a new cluster takes two seconds, a failover a few more.
const SETTLE_MAX: Duration = Duration::from_secs(40);
/// Keys that travel in one `MIGRATE`.
const BATCH: &str = "100";
/// Longest time, in milliseconds, that one `MIGRATE` may take.
const MIGRATE_MS: &str = "5000";
