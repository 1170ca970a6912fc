//! The connections of a wire: accepted up to a maximum, asked to end, cut off if they do not.
//!
//! Every wire listens through here. The bytes of a connection are the wire's affair; so are the
//! time limits within it, because only the wire knows what it waits for.

mod slots;
mod stream;
mod tracked_body;
mod watched;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::tls::WireTls;
use crate::config::Listen;
use crate::protocol::Peer;
use crate::workers::Workers;
pub(crate) use slots::ConnectionSlot;
use slots::ConnectionSlots;
use stream::{Carrier, PlainStream};
pub(crate) use stream::{ClientStream, PeerClosed};
pub(crate) use tracked_body::TrackedBody;
pub(crate) use watched::WatchedStream;

/// Default maximum number of connections of an address. A further one replaces an idle one. A
/// connection of HTTP takes 26 KB before its first request, one of Envoy's 28 KB: with the 15 MB of
/// Redis clients all are below 100 MB.
pub(crate) const CONNECTIONS_MAX: usize = 1_024;

/// The part of the files a process may open that the connections of one address may use, as a
/// divisor: there are four wires, and other files.
const FILES_SHARE: u64 = 5;

/// Longest time of a TLS handshake: two round trips, and a machine that is busy.
const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest time that requests in flight may take once the server stops: supervisors wait for thirty
/// seconds at most, many for ten.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Maximum number of connections that the system queues until they are accepted: what it permits by
/// default. A connection beyond that is not refused but must come again, seconds later.
const QUEUE_MAX: u32 = 4_096;

/// Maximum number of connections that are ended at once to make room.
const ENDED_AT_ONCE_MAX: usize = 64;

/// Pause in accepting connections after there was no room for another. A connection that is
/// answered more often than that does not make room.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Accepts the connections of a wire.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    tls: Option<Arc<WireTls>>,
    /// The configured maximum number of connections.
    connections_max: Option<NonZeroU32>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    /// The file is removed at the end.
    Unix(UnixListener, SocketFile),
}

/// A socket file, which is removed when its listener ends.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Listener {
    /// Listens on `listen`, with TLS over a network. A socket that an earlier process left behind is
    /// replaced, any other file is not.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) async fn bind(listen: &Listen, tls: Option<Arc<WireTls>>) -> io::Result<Self> {
        let path = match listen {
            Listen::Tcp(address) => {
                let socket = Socket::Tcp(listen_at(*address)?);
                return Ok(Self { socket, tls, connections_max: None });
            }
            Listen::Unix(path) => path,
        };
        let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if is_socket && UnixStream::connect(path).await.is_err() {
            fs::remove_file(path)?;
        }
        let socket = Socket::Unix(UnixListener::bind(path)?, SocketFile(path.clone()));
        Ok(Self { socket, tls: None, connections_max: None })
    }

    /// Sets the maximum number of connections, instead of the wire's.
    pub(crate) fn with_connections_max(self, connections_max: Option<NonZeroU32>) -> Self {
        Self { connections_max, ..self }
    }

    /// The maximum number of connections: what is configured, or else `of_wire`, but no more than the
    /// system permits files for.
    pub(crate) fn connections_max(&self, of_wire: usize) -> usize {
        self.connections_wanted(of_wire).min(files_share())
    }

    /// The number of connections that it should have: what is configured, or else `of_wire`.
    pub(super) fn connections_wanted(&self, of_wire: usize) -> usize {
        let configured = self.connections_max.and_then(|max| usize::try_from(max.get()).ok());
        configured.unwrap_or(of_wire)
    }

    /// The listen address, with the port that the system chose if none was configured.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn address(&self) -> io::Result<Listen> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().map(Listen::Tcp),
            Socket::Unix(_, SocketFile(path)) => Ok(Listen::Unix(path.clone())),
        }
    }

    /// The TLS of the listener, if it has any.
    pub(crate) const fn tls(&self) -> Option<&Arc<WireTls>> {
        self.tls.as_ref()
    }

    async fn accept(&self) -> io::Result<(PlainStream, Peer)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are written whole: there is nothing to collect them for.
                stream.set_nodelay(true).ok();
                Ok((Either::Left(stream), Peer::from(address)))
            }
            Socket::Unix(listener, _) => {
                Ok((Either::Right(listener.accept().await?.0), Peer::Local))
            }
        }
    }
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that is started again takes the address of the one before at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE_MAX)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

/// Lets the process open as many files as it may ask for: by default that is a thousand, which a few
/// gateways use up. A refusal of the system is ignored.
pub(crate) fn raise_files_max() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).ok();
}

/// Hands every connection to `handle` on one of `workers`, until `stop`; then waits for the open
/// ones. There are `connections_max` at a time, or fewer where the system permits fewer files:
/// beyond, the next one replaces an idle one. Returns the number of connections that did not end
/// within [`DRAIN_MAX`] and were cut off.
pub(crate) async fn serve<F>(
    listener: Listener,
    connections_max: usize,
    workers: &Workers,
    stop: &CancellationToken,
    handle: impl Fn(ClientStream, Peer) -> F + Clone + Send + 'static,
) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut room = AddressSlots {
        connections: JoinSet::new(),
        slots: ConnectionSlots::default(),
        connections_max: listener.connections_max(connections_max),
    };
    loop {
        let (stream, peer) = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // A connection that panicked has logged it, and harms no other.
            Some(_) = room.connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(arrival) => arrival,
                Err(error) => {
                    room.refused(&error).await;
                    continue;
                }
            },
        };
        if stop.run_until_cancelled(room.make()).await.is_none() {
            break;
        }
        let tls = listener.tls.as_ref();
        let tls = tls.map(|tls| TlsHandshake { acceptor: tls.acceptor(), stop: stop.clone() });
        room.hand_over(workers, Arrival { stream, peer, tls }, &handle);
    }
    drop(listener);
    room.drain().await
}

/// The number of files that the process may open.
fn files_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The number of connections of one address that there are files for.
fn files_share() -> usize {
    usize::try_from(files_max() / FILES_SHARE).unwrap_or(usize::MAX).max(1)
}

/// The reason why an address has fewer connections than `wanted`, if there are too few files.
pub(super) fn few_files(wanted: usize) -> Option<String> {
    let (share, files) = (files_share(), files_max());
    (share < wanted).then(|| {
        format!(
            "server.connections_max: an address takes {share} connections, not {wanted}: this process may open {files} \
             files (`ulimit -n`, `LimitNOFILE=`), and 1/{FILES_SHARE} of them are for one address"
        )
    })
}

/// A connection that was accepted.
struct Arrival {
    stream: PlainStream,
    peer: Peer,
    /// `None`: there is no TLS.
    tls: Option<TlsHandshake>,
}

/// A handshake to be made, which ends early when the server stops.
struct TlsHandshake {
    acceptor: TlsAcceptor,
    stop: CancellationToken,
}

/// The connections of one address.
struct AddressSlots {
    connections: JoinSet<()>,
    slots: ConnectionSlots,
    connections_max: usize,
}

impl AddressSlots {
    /// Returns once there is room for another connection. Several are ended at once: each has to be
    /// waited for, and fast clients would fill the system's queue meanwhile.
    async fn make(&mut self) {
        let at_once = (self.connections_max / 16).clamp(1, ENDED_AT_ONCE_MAX);
        while self.connections.len() >= self.connections_max {
            let ended = (0..at_once).take_while(|_| self.slots.evict_one()).count();
            for _ in 0..ended {
                self.connections.join_next().await;
            }
            if ended == 0 {
                timeout(NO_ROOM_PAUSE, self.connections.join_next()).await.ok();
            }
        }
    }

    /// Waits after the system did not accept a connection. Ends one, if there are no more files.
    async fn refused(&mut self, error: &io::Error) {
        let full = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        if error.raw_os_error().is_some_and(|error| full.contains(&error)) {
            self.slots.evict_one();
        }
        tokio::time::sleep(NO_ROOM_PAUSE).await;
    }

    fn hand_over<F>(
        &mut self,
        workers: &Workers,
        arrival: Arrival,
        handle: &(impl Fn(ClientStream, Peer) -> F + Clone + Send + 'static),
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let Arrival { stream, peer, tls } = arrival;
        let slot = Arc::<ConnectionSlot>::default();
        let (handle, of_stream) = (handle.clone(), Arc::clone(&slot));
        let attend = async move |stream: PlainStream| {
            if let Some(carrier) = carry(stream, tls).await {
                // Boxed: otherwise it takes its space twice, here and in the task that waits for it below.
                Box::pin(handle(ClientStream::new(carrier, of_stream), peer)).await;
            }
        };
        let connection = match workers.next() {
            None => self.connections.spawn(attend(stream)),
            Some(worker) => {
                // The worker's own runtime must watch the socket. The system has no reason to refuse
                // that; if it does, the connection is closed.
                let Ok(stream) = Unwatched::try_from(stream) else { return };
                let watched = async move {
                    if let Ok(stream) = stream.watched() {
                        attend(stream).await;
                    }
                };
                self.connections.spawn_on(watched, worker)
            }
        };
        self.slots.take(slot, connection);
    }

    /// Waits for all connections, and returns how many had to be cut off.
    async fn drain(mut self) -> usize {
        let drained = async { while self.connections.join_next().await.is_some() {} };
        timeout(DRAIN_MAX, drained).await.ok();
        let cut_off = self.connections.len();
        self.connections.shutdown().await;
        cut_off
    }
}

/// Returns the carrier of a connection, after the handshake if there is TLS. A client that fails the handshake
/// gets an alert of TLS and is disconnected; so is one whose handshake is not done when the server stops.
async fn carry(stream: PlainStream, tls: Option<TlsHandshake>) -> Option<Carrier> {
    let Some(TlsHandshake { acceptor, stop }) = tls else { return Some(Either::Left(stream)) };
    // Boxed: it is large, and gone before the first request.
    let greeting = Box::pin(timeout(HANDSHAKE_WAIT_MAX, acceptor.accept(stream)));
    let greeted = stop.run_until_cancelled(greeting).await?;
    greeted.ok()?.ok().map(|stream| Either::Right(Box::new(stream)))
}

/// A connection that no runtime watches.
enum Unwatched {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl TryFrom<PlainStream> for Unwatched {
    type Error = io::Error;

    fn try_from(stream: PlainStream) -> io::Result<Self> {
        match stream {
            Either::Left(tcp) => tcp.into_std().map(Self::Tcp),
            Either::Right(unix) => unix.into_std().map(Self::Unix),
        }
    }
}

impl Unwatched {
    /// The connection, watched by the present runtime.
    fn watched(self) -> io::Result<PlainStream> {
        match self {
            Self::Tcp(tcp) => TcpStream::from_std(tcp).map(Either::Left),
            Self::Unix(unix) => UnixStream::from_std(unix).map(Either::Right),
        }
    }
}

#[cfg(test)]
mod tests;
