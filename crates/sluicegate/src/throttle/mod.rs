//! Streams that are limited to a rate of bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use sluicegate_kernel::{Cost, Micros};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::{Clock, MonotonicClock};
use crate::limiter::RateLimiter;
use crate::wait::Alarm;

/// Most bytes of one read or write: the size of a TLS record, so that streams which share
/// a limiter take turns finely, and few enough that zeroing a read's buffer costs little.
const CHUNK_BYTES_MAX: usize = 16 * 1024;

/// A stream whose bytes are permits of a [`RateLimiter`]: in any interval Δ no more than
/// `burst + rate·Δ` of them pass.
///
/// Permits are taken before a read or write, and unused ones are given back in the same poll,
/// so every byte is paid for in advance and none twice. Several streams may share a limiter. They do
/// not stand in line for it, since a stream that is not read for a while would hold up all others;
/// each takes the permits that are left, at most 16 KiB at a time.
///
/// Polling it panics where it has to wait outside a tokio runtime with its timer enabled.
///
/// ```
/// use std::sync::Arc;
/// use sluicegate::{RateLimiter, Throttled};
/// use tokio::io::AsyncReadExt;
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let limit_rate = Arc::new(RateLimiter::per_second(64 * 1024)?);
/// let mut download = Throttled::new(&b"a long file"[..]).limit_reads(limit_rate);
/// let mut text = String::new();
/// download.read_to_string(&mut text).await?;
/// assert_eq!(text, "a long file");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Throttled<T, C: Clock = MonotonicClock> {
    stream: T,
    reads: Option<Throttle<C>>,
    writes: Option<Throttle<C>>,
}

/// The limit of one direction.
#[derive(Debug)]
struct Throttle<C: Clock> {
    limiter: Arc<RateLimiter<C>>,
    alarm: Alarm,
}

impl<T, C: Clock> Throttled<T, C> {
    /// Returns `stream`, without a limit yet.
    pub fn new(stream: T) -> Self {
        Self { stream, reads: None, writes: None }
    }

    /// Takes a permit of `limiter` for every byte that is read.
    #[must_use]
    pub fn limit_reads(self, limiter: Arc<RateLimiter<C>>) -> Self {
        Self { reads: Some(Throttle { limiter, alarm: Alarm::default() }), ..self }
    }

    /// Takes a permit of `limiter` for every byte that is written; it may be the limiter of the reads.
    #[must_use]
    pub fn limit_writes(self, limiter: Arc<RateLimiter<C>>) -> Self {
        Self { writes: Some(Throttle { limiter, alarm: Alarm::default() }), ..self }
    }

    /// The stream.
    pub fn get_ref(&self) -> &T {
        &self.stream
    }

    /// The stream, for uses other than reading or writing.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.stream
    }

    /// Returns the stream without limits.
    pub fn into_inner(self) -> T {
        self.stream
    }
}

impl<C: Clock> Throttle<C> {
    /// Takes permits for up to `bytes` (at least 1); ready as soon as there is one.
    fn poll_take(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let wanted = cost(bytes.min(CHUNK_BYTES_MAX));
        loop {
            let decision = self.limiter.at_most(wanted);
            if let granted @ 1.. = decision.granted() {
                return Poll::Ready(
                    usize::try_from(granted).expect("at most CHUNK_BYTES_MAX were asked for"),
                );
            }
            let retry_after = decision.retry_after().unwrap_or(Micros::MAX);
            let clock = self.limiter.clock();
            let at = clock.now().plus(retry_after);
            ready!(self.alarm.poll(clock, at, cx));
        }
    }

    /// Gives back the permits for bytes that did not pass.
    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.limiter.refund(cost(bytes));
        }
    }
}

impl<T: AsyncRead + Unpin, C: Clock> AsyncRead for Throttled<T, C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, reads, .. } = self.get_mut();
        let (Some(throttle), 1..) = (reads, buf.remaining()) else {
            return Pin::new(stream).poll_read(cx, buf);
        };
        let taken = ready!(throttle.poll_take(buf.remaining(), cx));
        let mut chunk = ReadBuf::new(buf.initialize_unfilled_to(taken));
        let state = Pin::new(stream).poll_read(cx, &mut chunk);
        let read = chunk.filled().len();
        throttle.give_back(taken - read);
        buf.advance(read);
        state
    }
}

impl<T: AsyncWrite + Unpin, C: Clock> AsyncWrite for Throttled<T, C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, writes, .. } = self.get_mut();
        let (Some(throttle), 1..) = (writes, buf.len()) else {
            return Pin::new(stream).poll_write(cx, buf);
        };
        let taken = ready!(throttle.poll_take(buf.len(), cx));
        let state = Pin::new(stream).poll_write(cx, &buf[..taken]);
        let written = if let Poll::Ready(Ok(written)) = state { written } else { 0 };
        throttle.give_back(taken.saturating_sub(written));
        state
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

fn cost(bytes: usize) -> Cost {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    Cost::new(bytes).expect("at least 1 and at most CHUNK_BYTES_MAX bytes are asked for")
}
