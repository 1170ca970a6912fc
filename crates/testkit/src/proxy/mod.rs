//! A TCP proxy with the faults of networks.

mod link;
mod requests;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::Error;
use crate::port::Port;

/// A proxy between clients and one server. It has its own thread, so it keeps its times also while
/// a test blocks.
#[derive(Debug)]
pub struct FaultProxy {
    port: Arc<Port>,
    orders: Option<mpsc::Sender<Order>>,
    counters: Arc<ProxyCounters>,
    thread: Option<JoinHandle<()>>,
}

/// The faults of the network. The default has none.
///
/// A direction of a connection that has once lost a byte stays silent for good, also when the
/// network is well again: TCP never goes on after a hole.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// The delay of a client's bytes on the way to the server.
    pub delay_to_server: Duration,
    /// The delay of a server's bytes on the way to the client.
    pub delay_to_client: Duration,
    /// A client's bytes are taken and lost. New connections are accepted, and not opened to the
    /// server.
    pub lose_to_server: bool,
    /// A server's bytes are taken and lost.
    pub lose_to_client: bool,
    /// Most bytes a second, in each direction of each connection.
    pub bytes_per_s: Option<NonZeroU32>,
    /// New connections are refused, as if no server listened; those that exist go on.
    pub refuse: bool,
}

/// The traffic through a proxy since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProxyTraffic {
    /// Connections that were accepted.
    pub connections: u64,
    /// Commands of Redis that reached the server whole.
    pub requests: u64,
    /// Bytes that reached the server.
    pub bytes_to_server: u64,
    /// Bytes that reached clients.
    pub bytes_to_client: u64,
}

/// [`ProxyTraffic`] while they are counted.
#[derive(Debug, Default)]
struct ProxyCounters {
    connections: AtomicU64,
    requests: AtomicU64,
    bytes_to_server: AtomicU64,
    bytes_to_client: AtomicU64,
}

/// A command of a test to the proxy, with the sender for its result.
#[derive(Debug)]
enum Order {
    Set(Faults, oneshot::Sender<io::Result<()>>),
    Reset(oneshot::Sender<io::Result<()>>),
}

impl Faults {
    /// Every byte comes this late.
    pub fn delay(to_server: Duration, to_client: Duration) -> Self {
        Self { delay_to_server: to_server, delay_to_client: to_client, ..Self::default() }
    }

    /// Bytes are accepted and lost in both directions, and no connection is ever closed.
    pub fn black_hole() -> Self {
        Self { lose_to_server: true, lose_to_client: true, ..Self::default() }
    }

    /// Requests reach the server and are carried out; its answers are lost.
    pub fn cut_replies() -> Self {
        Self { lose_to_client: true, ..Self::default() }
    }

    /// At most so many bytes a second, in each direction of each connection.
    pub fn limit(bytes_per_s: NonZeroU32) -> Self {
        Self { bytes_per_s: Some(bytes_per_s), ..Self::default() }
    }

    /// New connections are refused.
    pub fn refuse() -> Self {
        Self { refuse: true, ..Self::default() }
    }
}

impl FaultProxy {
    /// Starts a proxy in front of `server`, without faults.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot listen.
    pub async fn start(server: SocketAddr) -> Result<Self, Error> {
        let port = Arc::new(Port::free()?);
        let counters = Arc::<ProxyCounters>::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (orders, received) = mpsc::channel(ORDERS_MAX);
        let (faults, _) = watch::channel(Faults::default());
        let service = ProxyService {
            server,
            address: port.address(),
            faults,
            counters: counters.clone(),
            links: JoinSet::new(),
        };
        let thread = std::thread::spawn(move || runtime.block_on(service.serve(received)));
        let proxy = Self { port, orders: Some(orders), counters, thread: Some(thread) };
        // The answer comes once it listens.
        proxy.set(Faults::default()).await?;
        Ok(proxy)
    }

    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Sets the faults, for the connections that exist and for new ones. Bytes that are on their
    /// way keep the delay with which they were sent.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot listen again.
    pub async fn set(&self, faults: Faults) -> Result<(), Error> {
        self.order(|done| Order::Set(faults, done)).await
    }

    /// Removes all faults.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot listen again.
    pub async fn heal(&self) -> Result<(), Error> {
        self.set(Faults::default()).await
    }

    /// Breaks every connection (`RST`), on both sides.
    ///
    /// # Errors
    /// None that a test could meet.
    pub async fn reset_connections(&self) -> Result<(), Error> {
        self.order(Order::Reset).await
    }

    /// The traffic so far.
    pub fn counts(&self) -> ProxyTraffic {
        let ProxyCounters { connections, requests, bytes_to_server, bytes_to_client } =
            &*self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProxyTraffic {
            connections: read(connections),
            requests: read(requests),
            bytes_to_server: read(bytes_to_server),
            bytes_to_client: read(bytes_to_client),
        }
    }

    async fn order(
        &self,
        order: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Order,
    ) -> Result<(), Error> {
        let orders = self.orders.as_ref().expect("only dropping the proxy takes its orders away");
        let (done, answer) = oneshot::channel();
        orders.send(order(done)).await.expect("the proxy serves until it is dropped");
        Ok(answer.await.expect("the proxy answers every order")?)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// The proxy's own thread.
struct ProxyService {
    server: SocketAddr,
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    counters: Arc<ProxyCounters>,
    links: JoinSet<()>,
}

impl ProxyService {
    /// Serves until the last sender of commands is dropped.
    async fn serve(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut listener = None;
        loop {
            tokio::select! {
                // Commands first: after one, its sender relies on it for the next connection.
                biased;
                order = orders.recv() => match order {
                    Some(Order::Set(faults, done)) => {
                        let listens = self.listen(&mut listener, faults).await;
                        self.faults.send_replace(faults);
                        done.send(listens).ok();
                    }
                    Some(Order::Reset(done)) => {
                        self.links.shutdown().await;
                        done.send(Ok(())).ok();
                    }
                    None => return,
                },
                client = accept(listener.as_ref()), if listener.is_some() => self.link(client),
                Some(_ended) = self.links.join_next() => {}
            }
        }
    }

    async fn listen(&self, listener: &mut Option<TcpListener>, faults: Faults) -> io::Result<()> {
        if faults.refuse {
            *listener = None;
        } else if listener.is_none() {
            *listener = Some(TcpListener::bind(self.address).await?);
        }
        Ok(())
    }

    /// Serves a connection, or drops it if there are too many.
    fn link(&mut self, client: io::Result<TcpStream>) {
        if let Ok(client) = client
            && self.links.len() < CONNECTIONS_MAX
        {
            self.counters.connections.fetch_add(1, Ordering::Relaxed);
            let (faults, counters) = (self.faults.subscribe(), self.counters.clone());
            self.links.spawn(link::serve(client, self.server, faults, counters));
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(client, _)| client),
        None => std::future::pending().await,
    }
}

/// Commands that wait: a test sends one after the other.
const ORDERS_MAX: usize = 16;
/// Connections at once: each costs two sockets, and processes usually have 1,024 or more.
const CONNECTIONS_MAX: usize = 400;
