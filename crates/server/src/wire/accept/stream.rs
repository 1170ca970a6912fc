//! A connection, with TLS or without.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::slots::ConnectionSlot;

/// A connection without TLS.
pub(crate) type PlainStream = Either<TcpStream, UnixStream>;

/// A connection with TLS or without.
pub(crate) type Carrier = Either<PlainStream, Box<TlsStream<PlainStream>>>;

/// Interval between checks whether a connection has ended behind bytes that are not read yet: the
/// system wakes a task for bytes or the end, not for the end alone.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The state of a connection beside its bytes.
pub(crate) trait PeerClosed {
    /// Returns when the other side has ended, or the connection is broken. Bytes that it sent before can still be read.
    fn ended(&self) -> impl Future<Output = ()> + Send;

    /// Returns whether the other side has ended, as far as the system knows.
    fn has_ended(&self) -> bool;

    /// Reports that a request has come in whole, and is answered later.
    fn asked(&self);
}

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct ClientStream {
    carrier: Carrier,
    slot: Arc<ConnectionSlot>,
}

impl ClientStream {
    pub(super) const fn new(carrier: Carrier, slot: Arc<ConnectionSlot>) -> Self {
        Self { carrier, slot }
    }

    /// Splits the connection, for a wire where a write is not an answer: HTTP/2 greets every client. The
    /// wire marks the slot itself.
    pub(crate) fn into_parts(self) -> (Carrier, Arc<ConnectionSlot>) {
        (self.carrier, self.slot)
    }

    /// The slot of the connection.
    pub(crate) const fn slot(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }

    /// Waits until there is something to read, or the end. Returns whether it is the end.
    async fn readable(&self) -> bool {
        let socket = match &self.carrier {
            Either::Left(plain) => plain,
            // TLS sends an alert, and then the socket is closed as any other.
            Either::Right(tls) => tls.get_ref().0,
        };
        let ready = match socket {
            Either::Left(tcp) => tcp.ready(Interest::READABLE).await,
            Either::Right(unix) => unix.ready(Interest::READABLE).await,
        };
        ready.map_or(true, tokio::io::Ready::is_read_closed)
    }
}

impl PeerClosed for ClientStream {
    async fn ended(&self) {
        while !self.readable().await {
            sleep(LOOK_EVERY).await;
        }
    }

    fn has_ended(&self) -> bool {
        self.readable().now_or_never().unwrap_or(false)
    }

    fn asked(&self) {
        self.slot.touched();
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.carrier).poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.slot.touched();
        Pin::new(&mut self.carrier).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.slot.touched();
        Pin::new(&mut self.carrier).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.carrier.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.carrier).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.carrier).poll_shutdown(cx)
    }
}
