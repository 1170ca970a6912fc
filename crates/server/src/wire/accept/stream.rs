//! A connection, with TLS or without.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::seats::Seat;

/// A connection as the system has it.
pub(super) type Plain = Either<TcpStream, UnixStream>;

/// What carries a connection.
pub(super) type Carrier = Either<Plain, Box<TlsStream<Plain>>>;

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct Stream {
    carrier: Carrier,
    seat: Arc<Seat>,
}

impl Stream {
    pub(super) const fn new(carrier: Carrier, seat: Arc<Seat>) -> Self {
        Self { carrier, seat }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.carrier).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.seat.answered();
        Pin::new(&mut self.carrier).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.seat.answered();
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
