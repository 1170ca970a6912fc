//! A connection of HTTP/1.1 whose end is noticed while a request is under way.
//!
//! hyper notices it by reading. Behind a further request that came along (a pipeline), or a body that is not read, it
//! does not read, and a client that hung up would be delayed and decided all the same.

use std::io::{self, ErrorKind, IoSlice};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::stream::{LOOK_EVERY, PeerClosed};

/// A stream that fails when it is flushed once its client has ended and nothing is read. hyper flushes whenever
/// it is woken; while a request is under way and nothing is read, this wakes it.
#[derive(Debug)]
pub(crate) struct WatchedStream<T> {
    stream: T,
    /// The stream was read since the last flush.
    was_read: bool,
    /// `next_look` is set.
    is_watched: bool,
    /// The time of the next look; kept, so that a connection creates one timer at most.
    next_look: Option<Pin<Box<Sleep>>>,
}

impl<T> WatchedStream<T> {
    pub(crate) const fn new(stream: T) -> Self {
        Self { stream, was_read: false, is_watched: false, next_look: None }
    }
}

impl<T: PeerClosed> WatchedStream<T> {
    /// Checks whether the client has ended, every [`LOOK_EVERY`] while nothing is read.
    fn watch(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if mem::take(&mut self.was_read) {
            self.is_watched = false;
            return Ok(());
        }
        let next_look = self.next_look.get_or_insert_with(|| Box::pin(sleep(LOOK_EVERY)));
        if !mem::replace(&mut self.is_watched, true) {
            next_look.as_mut().reset(Instant::now() + LOOK_EVERY);
        }
        while next_look.as_mut().poll(context).is_ready() {
            if self.stream.has_ended() {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            next_look.as_mut().reset(Instant::now() + LOOK_EVERY);
        }
        Ok(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.was_read = true;
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<T: AsyncWrite + PeerClosed + Unpin> AsyncWrite for WatchedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
