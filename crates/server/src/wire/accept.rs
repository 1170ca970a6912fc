//! The connections of a wire: accepted up to a cap, told to end, cut off if they do not.
//!
//! Every wire listens through here. What a connection says is the wire's affair; so are the time
//! limits within it, for only the wire knows what it waits for.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use crate::config::Listen;
use crate::workers::Workers;

/// Most connections of a wire at a time. The next one waits in the system's queue until another
/// ends: with what a connection buffers at most, that is 330 MB in the worst case.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

/// How long requests in flight may take once the server is to stop: supervisors that ask politely
/// do so for thirty seconds at most, many for ten.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long nothing is accepted after the system had no room for another connection, instead of
/// asking it again and again.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// A connection of a client.
pub(crate) type Stream = Either<TcpStream, UnixStream>;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// An address. One of version 4 in the dress of version 6 is one of version 4.
    Ip(IpAddr),
    /// A program on this machine, through a socket in the file system.
    Local,
}

/// What accepts the connections of a wire.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// The file is removed in the end.
    Unix(UnixListener, SocketFile),
}

/// A file that goes when nobody listens to it any more.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Listener {
    /// Listens there. A socket that a process before left behind is replaced, any other file is not.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) async fn bind(listen: &Listen) -> io::Result<Self> {
        let path = match listen {
            Listen::Tcp(address) => return Ok(Self::Tcp(TcpListener::bind(address).await?)),
            Listen::Unix(path) => path,
        };
        let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
        if is_socket && UnixStream::connect(path).await.is_err() {
            fs::remove_file(path)?;
        }
        Ok(Self::Unix(UnixListener::bind(path)?, SocketFile(path.clone())))
    }

    /// Where it listens; a free port that was asked for is known now.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn address(&self) -> io::Result<Listen> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Listen::Tcp),
            Self::Unix(_, SocketFile(path)) => Ok(Listen::Unix(path.clone())),
        }
    }

    async fn accept(&self) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Answers are written whole: there is nothing to collect them for.
                stream.set_nodelay(true).ok();
                Ok((Either::Left(stream), Peer::from(address)))
            }
            Self::Unix(listener, _) => Ok((Either::Right(listener.accept().await?.0), Peer::Local)),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address.ip().to_canonical())
    }
}

/// Hands every connection to `handle` on one of `workers`, at most `connections_max` at a time, until
/// `stop`; then waits for those there are. Returns how many did not end within [`DRAIN_MAX`] and were
/// cut off.
pub(crate) async fn serve<F>(
    listener: Listener,
    connections_max: usize,
    (workers, stop): (&Workers, &CancellationToken),
    handle: impl Fn(Stream, Peer) -> F + Clone + Send + 'static,
) -> usize
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            // One that panicked has said so, and harms no other.
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < connections_max => match accepted {
                Ok((stream, peer)) => hand_over(&mut connections, workers, (stream, peer), &handle),
                Err(_) => tokio::time::sleep(NO_ROOM_PAUSE).await,
            },
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    tokio::time::timeout(DRAIN_MAX, drained).await.ok();
    let cut_off = connections.len();
    connections.shutdown().await;
    cut_off
}

fn hand_over<F>(
    connections: &mut JoinSet<()>,
    workers: &Workers,
    (stream, peer): (Stream, Peer),
    handle: &(impl Fn(Stream, Peer) -> F + Clone + Send + 'static),
) where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(worker) = workers.next() else {
        connections.spawn(handle(stream, peer));
        return;
    };
    // The worker's own runtime is to watch the socket. The system has no reason to refuse that; a
    // client of whom it does sees its connection closed.
    let Ok(stream) = Unwatched::try_from(stream) else { return };
    let handle = handle.clone();
    let watched = async move {
        if let Ok(stream) = stream.watched() {
            handle(stream, peer).await;
        }
    };
    connections.spawn_on(watched, worker);
}

/// A connection that no runtime watches.
enum Unwatched {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl TryFrom<Stream> for Unwatched {
    type Error = io::Error;

    fn try_from(stream: Stream) -> io::Result<Self> {
        match stream {
            Either::Left(tcp) => tcp.into_std().map(Self::Tcp),
            Either::Right(unix) => unix.into_std().map(Self::Unix),
        }
    }
}

impl Unwatched {
    /// The same, watched by the present runtime.
    fn watched(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(tcp) => TcpStream::from_std(tcp).map(Either::Left),
            Self::Unix(unix) => UnixStream::from_std(unix).map(Either::Right),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use std::num::NonZeroU16;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// A wire that greets, and ends when its client does.
    async fn greet(mut stream: Stream, _: Peer) {
        stream.write_all(b"!").await.ok();
        stream.read_u8().await.ok();
    }

    async fn start(connections_max: usize) -> (SocketAddr, CancellationToken, JoinHandle<usize>) {
        start_with(NonZeroU16::MIN, connections_max).await
    }

    async fn start_with(
        workers: NonZeroU16,
        connections_max: usize,
    ) -> (SocketAddr, CancellationToken, JoinHandle<usize>) {
        let listen = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(&listen).await.expect("loopback has a free port");
        let Ok(Listen::Tcp(address)) = listener.address() else { panic!("it is bound") };
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let serving = tokio::spawn(async move {
            let workers = Workers::start(workers).expect("there is room for a thread");
            serve(listener, connections_max, (&workers, &stopping), greet).await
        });
        (address, stop, serving)
    }

    #[tokio::test]
    async fn a_connection_over_the_cap_waits_until_another_ends() {
        let (address, _, _serving) = start(2).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        let mut third = TcpStream::connect(address).await.unwrap();
        assert_eq!((first.read_u8().await.unwrap(), second.read_u8().await.unwrap()), (b'!', b'!'));
        let greeting = timeout(Duration::from_millis(20), third.read_u8()).await;
        assert!(greeting.is_err(), "the third is greeted beside two others");
        drop(first);
        assert_eq!(third.read_u8().await.unwrap(), b'!');
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_does_not_end_is_cut_off_when_the_drain_is_over() {
        let (address, stop, serving) = start(10).await;
        let mut stays = TcpStream::connect(address).await.unwrap();
        let mut ends = TcpStream::connect(address).await.unwrap();
        assert_eq!((stays.read_u8().await.unwrap(), ends.read_u8().await.unwrap()), (b'!', b'!'));
        let begin = Instant::now();
        stop.cancel();
        drop(ends);
        assert_eq!(serving.await.unwrap(), 1);
        assert_eq!(begin.elapsed().as_secs(), DRAIN_MAX.as_secs());
        assert!(stays.read_u8().await.is_err(), "its connection is closed");
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens");
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_have_ended_the_drain_is_over() {
        let (address, stop, serving) = start(10).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'!');
        stop.cancel();
        drop(client);
        assert_eq!(serving.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn connections_are_served_by_all_workers() {
        let (address, stop, serving) = start_with(NonZeroU16::new(3).unwrap(), 10).await;
        for _ in 0..6 {
            let mut client = TcpStream::connect(address).await.unwrap();
            assert_eq!(client.read_u8().await.unwrap(), b'!');
        }
        stop.cancel();
        assert_eq!(serving.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_socket_left_behind_is_replaced_and_no_other_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listen = Listen::Unix(path.clone());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "the system leaves it there");
        let listener = Listener::bind(&listen).await.unwrap();
        assert!(Listener::bind(&listen).await.is_err(), "somebody listens");
        let (accepted, connected) = tokio::join!(listener.accept(), UnixStream::connect(&path));
        assert_eq!((accepted.unwrap().1, connected.is_ok()), (Peer::Local, true));
        drop(listener);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert!(Listener::bind(&listen).await.is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
