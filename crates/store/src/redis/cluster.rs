//! A cluster: each key lives on the node that owns its slot, and goes there.
//!
//! redis-rs has a cluster client of its own; it is not used, since it repeats calls after IO errors
//! at its own discretion, and one node that does not answer holds up calls to the others. Here, a
//! node is a few lanes like any other server, and a call reports its outcome:
//!
//! - `MOVED`: the map gets the slot's new owner, and the call goes there.
//! - `ASK`: the slot is being moved and the key has gone ahead; the call follows it, once.
//! - A node that is down fails the calls to its own slots, at once; calls to others are not
//!   affected.
//!
//! Any sign of a change makes the map be read again, by one task for all calls, from whichever of a
//! few nodes answers first.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::address::Address;
use super::batch::REPEATS_MAX;
use super::error::{CallEffect, ConnectError, RedisError, ServerErrorReply};
use super::handle::{ConnectionStatus, settled};
use super::request::{RequestKind, ScriptArgs, ServerRequest};
use super::setup::ConnectionSetup;
use super::slots::{self, SLOTS, SlotRange, slot_of};
use super::standalone::Standalone;
use super::task::OwnedTask;

/// Most nodes that the map knows: as many as a cluster is built for.
const NODES_MAX: usize = 1000;

/// Most nodes asked for the map at once: at least one of them is likely to work.
const ASKED_MAX: usize = 5;

/// The least time between two readings of the map, however many calls want one.
const READ_PAUSE_MIN: Duration = Duration::from_millis(100);

/// The least time between two readings of the map that found no change.
const READ_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The period in which the map is read although no call suggests it.
const READ_EVERY: Duration = Duration::from_secs(30);

/// The pause of a call whose slot has its keys on two nodes.
const TRY_AGAIN_PAUSE: Duration = Duration::from_millis(1);

/// No node is known for the slot.
const NOBODY: u16 = u16::MAX;

/// A cluster, as seen through its slots.
#[derive(Debug)]
pub(super) struct Cluster {
    nodes: Arc<Nodes>,
    status: watch::Receiver<ConnectionStatus>,
    _reader: OwnedTask,
}

/// The nodes, and the owners of slots.
#[derive(Debug)]
pub(super) struct Nodes {
    setup: ConnectionSetup,
    seeds: Vec<Address>,
    connections: usize,
    map: ArcSwap<SlotMap>,
}

/// The owner of each slot.
#[derive(Debug)]
struct SlotMap {
    /// Indices into `nodes`, or [`NOBODY`].
    owners: Box<[AtomicU16]>,
    nodes: Vec<Arc<ClusterNode>>,
}

#[derive(Debug)]
struct ClusterNode {
    address: Address,
    server: Standalone,
}

/// The redirection of a call that a node does not execute itself.
#[derive(Debug, PartialEq, Eq)]
enum Redirect {
    Moved(Address),
    Ask(Address),
    TryAgain,
}

impl Cluster {
    pub(super) fn start(setup: ConnectionSetup, seeds: Vec<Address>, connections: usize) -> Self {
        // Keys of one script call must be in one slot: nothing is joined.
        let setup = ConnectionSetup { joined_max: 1, ..setup };
        let map = ArcSwap::from_pointee(SlotMap::new(Vec::new()));
        let nodes = Arc::new(Nodes { setup, seeds, connections, map });
        let (sender, status) = watch::channel(ConnectionStatus::Connecting);
        let reader = OwnedTask::start(Arc::clone(&nodes).read_for_ever(sender));
        Self { nodes, status, _reader: reader }
    }

    /// Returns the nodes, which come and go.
    pub(super) fn nodes(&self) -> Arc<Nodes> {
        Arc::clone(&self.nodes)
    }

    /// Waits for the first map and the first connection to each node.
    pub(super) async fn ready(&self) -> Result<(), ConnectError> {
        settled(&self.status).await?;
        let map = self.nodes.map.load_full();
        for node in &map.nodes {
            node.server.lanes.ready().await?;
        }
        Ok(())
    }

    /// Returns the script's reply to `ask` from the node that has its key.
    pub(super) async fn eval(
        &self,
        ask: ScriptArgs,
        deadline: Instant,
    ) -> Result<Value, RedisError> {
        let slot = slot_of(&ask.key);
        self.route(slot, deadline, |asking| ServerRequest {
            what: RequestKind::Script(ask.clone()),
            asking,
        })
        .await
    }

    /// Returns the reply to `what` from the node that has `key`.
    pub(super) async fn command(
        &self,
        key: &[u8],
        what: &RequestKind,
        deadline: Instant,
    ) -> Result<Value, RedisError> {
        self.route(slot_of(key), deadline, |asking| ServerRequest { what: what.clone(), asking })
            .await
    }

    async fn route(
        &self,
        slot: u16,
        deadline: Instant,
        request: impl Fn(bool) -> ServerRequest,
    ) -> Result<Value, RedisError> {
        timeout_at(deadline, settled(&self.status)).await.unwrap_or(Err(ConnectError::NotYet))?;
        let suspicion = &self.nodes.setup.suspicion;
        let mut node = self.nodes.owner(slot).ok_or_else(|| {
            suspicion.notify_one();
            ConnectError::NoOwner { slot }
        })?;
        let mut asking = false;
        let mut repeats = 0;
        loop {
            let reply = node.server.lanes.call(request(asking), deadline).await;
            let refusal = match reply.inspect_err(|_| suspicion.notify_one())? {
                Value::ServerError(error) => ServerErrorReply::from(&error),
                value => return Ok(value),
            };
            let redirect = Redirect::read(&refusal, &node.address);
            let (Some(redirect), true) = (redirect, repeats < REPEATS_MAX) else {
                if &*refusal.code == "CLUSTERDOWN" {
                    suspicion.notify_one();
                }
                return Err(RedisError::Refused(refusal));
            };
            repeats += 1;
            self.nodes.setup.counters.redirects.add_one();
            asking = matches!(redirect, Redirect::Ask(_));
            match redirect {
                Redirect::Moved(address) => {
                    suspicion.notify_one();
                    node = self.nodes.node(&address).ok_or(RedisError::Refused(refusal))?;
                    self.nodes.set_owner(slot, &node);
                }
                Redirect::Ask(address) => {
                    node = self.nodes.node(&address).ok_or(RedisError::Refused(refusal))?;
                }
                Redirect::TryAgain => timeout_at(deadline, sleep(TRY_AGAIN_PAUSE))
                    .await
                    .map_err(|_| RedisError::Timeout { outcome: CallEffect::NotExecuted })?,
            }
        }
    }
}

impl Nodes {
    fn owner(&self, slot: u16) -> Option<Arc<ClusterNode>> {
        let map = self.map.load();
        let owner = map.owners[usize::from(slot)].load(Ordering::Relaxed);
        map.nodes.get(usize::from(owner)).cloned()
    }

    /// Returns the node at `address`, and adds it if it is new; `None` if there are too many.
    fn node(&self, address: &Address) -> Option<Arc<ClusterNode>> {
        if let Some(node) = self.map.load().at(address) {
            return Some(node);
        }
        let new = Arc::new(self.start_node(address));
        self.map.rcu(|map| {
            let mut map = SlotMap::clone(map);
            if map.at(address).is_none() && map.nodes.len() < NODES_MAX {
                map.nodes.push(Arc::clone(&new));
            }
            map
        });
        self.map.load().at(address)
    }

    /// Remembers that `slot` belongs to `node` from now on.
    fn set_owner(&self, slot: u16, node: &Arc<ClusterNode>) {
        let map = self.map.load();
        let owner = map.nodes.iter().position(|known| Arc::ptr_eq(known, node));
        if let Some(owner) = owner.and_then(|owner| u16::try_from(owner).ok()) {
            map.owners[usize::from(slot)].store(owner, Ordering::Relaxed);
        }
    }

    fn start_node(&self, address: &Address) -> ClusterNode {
        let server = Standalone::start(&self.setup, address.clone(), self.connections);
        ClusterNode { address: address.clone(), server }
    }

    async fn read_for_ever(self: Arc<Self>, status: watch::Sender<ConnectionStatus>) {
        let mut pause = READ_PAUSE_MIN;
        loop {
            let read = self.read().await;
            let changed = match read {
                Ok(ranges) => {
                    let changed = self.install(&ranges);
                    status.send_replace(ConnectionStatus::Ready);
                    changed
                }
                // Without an answer, the known nodes serve on.
                Err(cause) => {
                    status.send_if_modified(|status| {
                        let is_known = matches!(status, ConnectionStatus::Ready);
                        if !is_known {
                            *status = ConnectionStatus::Down(cause);
                        }
                        !is_known
                    });
                    false
                }
            };
            pause = if changed { READ_PAUSE_MIN } else { (pause * 2).min(READ_PAUSE_MAX) };
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            if matches!(*status.borrow(), ConnectionStatus::Ready) {
                // A suspicion and the end of the time have the same effect.
                let _ = timeout(READ_EVERY, self.setup.suspicion.notified()).await;
            }
        }
    }

    /// Returns every known or configured node, in random order.
    fn addresses(&self) -> Vec<Address> {
        let known = self.map.load_full();
        let mut addresses: Vec<_> = known.nodes.iter().map(|node| node.address.clone()).collect();
        addresses.extend(self.seeds.iter().filter(|seed| known.at(seed).is_none()).cloned());
        fastrand::shuffle(&mut addresses);
        addresses
    }

    /// Returns one node, another one each time.
    pub(super) fn any_address(&self) -> Option<Address> {
        self.addresses().pop()
    }

    /// Returns the map of the first node that has one, of a few that are asked.
    ///
    /// # Errors
    /// The error of nodes that are not ready nodes of a cluster, or the reason why none answers.
    async fn read(&self) -> Result<Vec<SlotRange>, ConnectError> {
        let candidates = self.addresses();
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let mut answers: FuturesUnordered<_> = candidates
            .iter()
            .take(ASKED_MAX)
            .map(async |address| {
                let reply = self.setup.dialer.query(address, &question).await?;
                let not_ready = || ConnectError::ClusterNotReady { address: address.clone() };
                slots::read_slots(&reply, address).ok_or_else(not_ready)
            })
            .collect();
        let mut cause = ConnectError::NotYet;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(ranges) => return Ok(ranges),
                Err(error) if !error.is_an_answer() && cause.is_an_answer() => {}
                Err(error) => cause = error,
            }
        }
        Err(if cause.is_an_answer() {
            cause
        } else {
            ConnectError::NoNode { cause: cause.to_string().into() }
        })
    }

    /// Replaces the map by `ranges`; returns whether it changed.
    fn install(&self, ranges: &[SlotRange]) -> bool {
        let old = self.map.load_full();
        let mut new = SlotMap::new(Vec::new());
        let mut places: HashMap<&Address, u16> = HashMap::new();
        let mut changed = false;
        for SlotRange { first, last, address } in ranges {
            let place = *places.entry(address).or_insert_with(|| {
                let place = new.nodes.len();
                new.nodes.push(old.at(address).unwrap_or_else(|| {
                    changed = true;
                    Arc::new(self.start_node(address))
                }));
                u16::try_from(place).unwrap_or(NOBODY)
            });
            for slot in *first..=*last {
                new.owners[usize::from(slot)].store(place, Ordering::Relaxed);
                changed |= old.address_of(slot) != Some(address);
            }
        }
        changed |= old.nodes.len() != new.nodes.len();
        self.map.store(Arc::new(new));
        changed
    }
}

impl SlotMap {
    fn new(nodes: Vec<Arc<ClusterNode>>) -> Self {
        Self { owners: (0..SLOTS).map(|_| AtomicU16::new(NOBODY)).collect(), nodes }
    }

    fn at(&self, address: &Address) -> Option<Arc<ClusterNode>> {
        self.nodes.iter().find(|node| node.address == *address).cloned()
    }

    fn address_of(&self, slot: u16) -> Option<&Address> {
        let owner = self.owners[usize::from(slot)].load(Ordering::Relaxed);
        self.nodes.get(usize::from(owner)).map(|node| &node.address)
    }
}

impl Clone for SlotMap {
    fn clone(&self) -> Self {
        let Self { owners, nodes } = self;
        let owner = |owner: &AtomicU16| AtomicU16::new(owner.load(Ordering::Relaxed));
        Self { owners: owners.iter().map(owner).collect(), nodes: nodes.clone() }
    }
}

impl Redirect {
    /// Returns the redirection in `refusal`, which came from `from`; `None` if there is none.
    fn read(refusal: &ServerErrorReply, from: &Address) -> Option<Self> {
        let target = || {
            let (_slot, target) = refusal.message.split_once(' ')?;
            slots::read_target(target, from)
        };
        match &*refusal.code {
            "MOVED" => target().map(Self::Moved),
            "ASK" => target().map(Self::Ask),
            "TRYAGAIN" => Some(Self::TryAgain),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;

    use super::super::dialer::Dialer;
    use super::super::stats::Counters;
    use super::super::{LuaScript, RedisConfig};
    use super::*;

    /// Returns a map of so many nodes, to which nobody connects.
    fn nodes(count: usize) -> Nodes {
        let config: RedisConfig = "redis+cluster://h".parse().expect("a good URL");
        let setup = ConnectionSetup {
            dialer: Dialer::for_data(&config).expect("no file is read"),
            script: LuaScript { text: "return 1", sha1: "abc" },
            joined_max: 1,
            master_only: false,
            suspicion: Arc::new(Notify::new()),
            reconnected: Arc::new(Notify::new()),
            deadline: config.deadline,
            silence_max: ConnectionSetup::silence_max(config.deadline),
            counters: Arc::new(Counters::default()),
        };
        let map = ArcSwap::from_pointee(SlotMap::new(Vec::new()));
        let nodes = Nodes { setup, seeds: Vec::new(), connections: 0, map };
        let known = (0..count).map(|place| Arc::new(nodes.start_node(&at(place))));
        nodes.map.store(Arc::new(SlotMap::new(known.collect())));
        nodes
    }

    fn at(place: usize) -> Address {
        Address::Tcp(format!("node-{place}").into(), 7000)
    }

    #[test]
    fn a_map_has_as_many_nodes_as_a_cluster_is_built_for_and_no_more() {
        let nodes = nodes(NODES_MAX - 1);
        assert!(nodes.node(&at(NODES_MAX - 1)).is_some());
        assert!(nodes.node(&at(NODES_MAX)).is_none());
        assert!(nodes.node(&at(0)).is_some());
        assert_eq!(nodes.map.load().nodes.len(), NODES_MAX);
    }

    fn read(code: &str, message: &str) -> Option<Redirect> {
        Redirect::read(&ServerErrorReply::new(code, message), &Address::Tcp("here".into(), 1))
    }

    #[test]
    fn a_redirection_says_where_to_go() {
        let at = |host: &str, port| Address::Tcp(host.into(), port);
        assert_eq!(read("MOVED", "12 10.0.0.1:7000"), Some(Redirect::Moved(at("10.0.0.1", 7000))));
        assert_eq!(read("MOVED", "12 ::1:7000"), Some(Redirect::Moved(at("::1", 7000))));
        assert_eq!(read("ASK", "12 a.b.c:7000"), Some(Redirect::Ask(at("a.b.c", 7000))));
        assert_eq!(read("ASK", "12 :7000"), Some(Redirect::Ask(at("here", 7000))));
        assert_eq!(read("TRYAGAIN", "whatever"), Some(Redirect::TryAgain));
        assert_eq!(read("MOVED", "12"), None);
        assert_eq!(read("ERR", "12 a:1"), None);
    }
}
