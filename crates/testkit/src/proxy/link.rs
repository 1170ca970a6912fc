//! One connection through the proxy: two directions, each a reader and a writer with a queue
//! between them, in which bytes wait until they are due.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::requests::RequestCounter;
use super::{Faults, ProxyCounters};

/// Carries bytes between `client` and `server` until both directions have ended. If this future is
/// dropped, or the connection breaks on one side, it is reset on both.
pub(super) async fn serve(
    mut client: TcpStream,
    server: SocketAddr,
    faults: watch::Receiver<Faults>,
    counters: Arc<ProxyCounters>,
) {
    reset_when_dropped(&client, true);
    if faults.borrow().lose_to_server {
        return lose(&mut client).await;
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    reset_when_dropped(&server, true);
    if relay(&mut client, &mut server, &faults, &counters).await.is_ok() {
        reset_when_dropped(&client, false);
        reset_when_dropped(&server, false);
    }
}

/// One direction of a connection.
struct Direction<'a> {
    to_server: bool,
    faults: &'a watch::Receiver<Faults>,
    bytes: &'a AtomicU64,
    requests: &'a AtomicU64,
}

/// Bytes with the moment when they arrive.
type Chunk = (Instant, Vec<u8>);

async fn relay(
    client: &mut TcpStream,
    server: &mut TcpStream,
    faults: &watch::Receiver<Faults>,
    counters: &ProxyCounters,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let ProxyCounters { connections: _, requests, bytes_to_server, bytes_to_client } = counters;
    let up = Direction { to_server: true, faults, bytes: bytes_to_server, requests };
    let down = Direction { to_server: false, faults, bytes: bytes_to_client, requests };
    tokio::try_join!(up.carry(from_client, to_server), down.carry(from_server, to_client))?;
    Ok(())
}

impl Direction<'_> {
    async fn carry(&self, from: ReadHalf<'_>, to: WriteHalf<'_>) -> io::Result<()> {
        let (queue, queued) = mpsc::channel(CHUNKS_MAX);
        tokio::try_join!(self.read(from, queue), self.write(to, queued))?;
        Ok(())
    }

    /// Queues the bytes that arrive until their end, which is queued as an empty chunk.
    async fn read(&self, mut from: ReadHalf<'_>, queue: mpsc::Sender<Chunk>) -> io::Result<()> {
        loop {
            let mut bytes = vec![0; CHUNK_BYTES_MAX];
            let length = match from.read(&mut bytes).await {
                // In a black hole a reset is lost like everything else.
                Err(_) if self.loses() => 0,
                length => length?,
            };
            bytes.truncate(length);
            queue.send((Instant::now() + self.delay(), bytes)).await.ok();
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// Writes queued bytes when they are due. After lost bytes, all that follow are lost as well.
    async fn write(
        &self,
        mut to: WriteHalf<'_>,
        mut queue: mpsc::Receiver<Chunk>,
    ) -> io::Result<()> {
        let (mut scan, mut lost) = (RequestCounter::default(), false);
        while let Some((due, bytes)) = queue.recv().await {
            sleep_until(due).await;
            let mut rest = bytes.as_slice();
            lost |= self.loses();
            while !lost && !rest.is_empty() {
                let (piece, pause) = self.piece(rest.len());
                let (piece, later) = rest.split_at(piece);
                to.write_all(piece).await?;
                self.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
                if self.to_server {
                    self.requests.fetch_add(scan.feed(piece), Ordering::Relaxed);
                }
                rest = later;
                sleep(pause).await;
                lost |= self.loses();
            }
            if !lost && bytes.is_empty() {
                to.shutdown().await?;
            }
        }
        Ok(())
    }

    fn delay(&self) -> Duration {
        let faults = self.faults.borrow();
        if self.to_server { faults.delay_to_server } else { faults.delay_to_client }
    }

    fn loses(&self) -> bool {
        let faults = self.faults.borrow();
        if self.to_server { faults.lose_to_server } else { faults.lose_to_client }
    }

    /// The number of the `length` bytes that may be sent at once, and the pause after them.
    fn piece(&self, length: usize) -> (usize, Duration) {
        match self.faults.borrow().bytes_per_s {
            None => (length, Duration::ZERO),
            Some(rate) => {
                let rate = rate.get();
                let piece = length.min((rate / PIECES_PER_S).max(1) as usize);
                (piece, Duration::from_secs(piece as u64) / rate)
            }
        }
    }
}

/// Reads and discards what `client` sends, also its end, for as long as the proxy exists.
async fn lose(client: &mut TcpStream) {
    let mut bytes = vec![0; CHUNK_BYTES_MAX];
    while client.read(&mut bytes).await.is_ok_and(|length| length > 0) {}
}

/// Sets whether closing `stream` resets the connection. An error is ignored: the connection may be
/// gone already.
fn reset_when_dropped(stream: &TcpStream, reset: bool) {
    SockRef::from(stream).set_linger(reset.then_some(Duration::ZERO)).ok();
}

/// Largest piece that is read at once.
const CHUNK_BYTES_MAX: usize = 16 << 10;
/// Chunks under way in one direction: with a delay of a second this lets 16 MB a second through.
const CHUNKS_MAX: usize = 1_024;
/// The number of pieces a second in which a limited connection sends its bytes.
const PIECES_PER_S: u32 = 100;
