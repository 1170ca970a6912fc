//! The connections of a wire: accepted up to a cap, told to end, cut off if they do not.
//!
//! Every wire listens through here. What a connection says is the wire's affair; so are the time
//! limits within it, for only the wire knows what it waits for.

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Most connections of a wire at a time. The next one waits in the system's queue until another
/// ends: with what a connection buffers at most, that is 330 MB in the worst case.
pub(crate) const CONNECTIONS_MAX: usize = 4_096;

/// How long requests in flight may take once the server is to stop: supervisors that ask politely
/// do so for thirty seconds at most, many for ten.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(10);

/// How long nothing is accepted after the system had no room for another connection, instead of
/// asking it again and again.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Hands every connection to `handle`, at most `connections_max` at a time, until `stop`; then waits
/// for those there are. Returns how many did not end within [`DRAIN_MAX`] and were cut off.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    connections_max: usize,
    stop: &CancellationToken,
    handle: impl Fn(TcpStream) -> F,
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
                Ok((stream, _)) => {
                    // Answers are written whole: there is nothing to collect them for.
                    stream.set_nodelay(true).ok();
                    connections.spawn(handle(stream));
                }
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, timeout};

    use super::*;

    /// A wire that greets, and ends when its client does.
    async fn greet(mut stream: TcpStream) {
        stream.write_all(b"!").await.ok();
        stream.read_u8().await.ok();
    }

    async fn start(connections_max: usize) -> (SocketAddr, CancellationToken, JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        let serving =
            tokio::spawn(async move { serve(listener, connections_max, &stopping, greet).await });
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
}
