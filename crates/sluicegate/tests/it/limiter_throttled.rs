//! Streams limited to a rate of bytes: never more than `burst + rate·Δ`, to the byte.

#![cfg(feature = "tokio")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use sluicegate::{Cost, ManualClock, Micros, Rate, RateLimiter, Throttled, TokenBucket};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

type Limiter = Arc<RateLimiter<Arc<ManualClock>>>;

/// Returns a limiter of `bytes` a second, burst `burst`.
fn limit(bytes: u64, burst: u64) -> (Limiter, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let rule = TokenBucket::new(Rate::per_second(bytes).unwrap(), burst).unwrap();
    (Arc::new(RateLimiter::with_clock(rule, Arc::clone(&clock)).unwrap()), clock)
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Returns the number of bytes that one poll reads into a buffer of `bytes`; `None`: it has to wait.
fn read(stream: &mut (impl AsyncRead + Unpin), bytes: usize) -> Option<usize> {
    let mut buffer = vec![0; bytes];
    let mut buf = ReadBuf::new(&mut buffer);
    match Pin::new(stream).poll_read(&mut context(), &mut buf) {
        Poll::Ready(done) => done.map(|()| Some(buf.filled().len())).unwrap(),
        Poll::Pending => None,
    }
}

fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: usize) -> Option<usize> {
    match Pin::new(stream).poll_write(&mut context(), &vec![b'x'; bytes]) {
        Poll::Ready(done) => Some(done.unwrap()),
        Poll::Pending => None,
    }
}

fn remaining(limiter: &Limiter) -> u64 {
    limiter.peek(Cost::ONE).remaining
}

/// A stream that is not ready, fails or takes little, as its field sets.
struct Slow(Poll<Result<usize, io::ErrorKind>>);

impl AsyncRead for Slow {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.map(|result| {
            result.map(|bytes| buf.put_slice(&vec![0; bytes])).map_err(io::Error::from)
        })
    }
}

impl AsyncWrite for Slow {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        self.0.map(|result| result.map_err(io::Error::from))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn reads_get_the_burst_and_then_the_rate_to_the_byte() {
    let (limiter, clock) = limit(1_000, 100);
    let mut stream = Throttled::new(tokio::io::repeat(0)).limit_reads(limiter);
    assert_eq!(read(&mut stream, 4_096), Some(100));
    assert_eq!(read(&mut stream, 4_096), None);
    clock.advance(Micros::new(999));
    assert_eq!(read(&mut stream, 4_096), None);
    clock.advance(Micros::new(1));
    assert_eq!(read(&mut stream, 4_096), Some(1));
    clock.advance(Micros::from_millis(50));
    assert_eq!(read(&mut stream, 20), Some(20));
    assert_eq!(read(&mut stream, 4_096), Some(30));
}

#[test]
fn writes_are_cut_to_what_there_is() {
    let (limiter, clock) = limit(1_000, 100);
    let mut stream = Throttled::new(Vec::new()).limit_writes(limiter);
    assert_eq!(write(&mut stream, 60), Some(60));
    assert_eq!(write(&mut stream, 60), Some(40));
    assert_eq!(write(&mut stream, 60), None);
    clock.advance(Micros::from_millis(7));
    assert_eq!(write(&mut stream, 60), Some(7));
    assert_eq!(stream.into_inner().len(), 107);
}

#[test]
fn no_single_read_takes_more_than_its_turn() {
    let (limiter, _) = limit(1 << 20, 1 << 20);
    let mut stream = Throttled::new(tokio::io::repeat(0)).limit_reads(limiter);
    assert_eq!(read(&mut stream, 1 << 20), Some(16 * 1024));
}

#[test]
fn what_a_stream_does_not_use_is_given_back_at_once() {
    let (limiter, _) = limit(1_000, 100);
    let streams = [
        (Poll::Pending, None),
        (Poll::Ready(Err(io::ErrorKind::BrokenPipe)), None),
        (Poll::Ready(Ok(0)), Some(0)),
    ];
    for (state, expected) in streams {
        let stream = Throttled::new(Slow(state)).limit_reads(Arc::clone(&limiter));
        let mut stream = stream.limit_writes(Arc::clone(&limiter));
        if state.is_ready() && expected.is_none() {
            let mut storage = [0; 10];
            let mut buf = ReadBuf::new(&mut storage);
            let read = Pin::new(&mut stream).poll_read(&mut context(), &mut buf);
            assert!(matches!(read, Poll::Ready(Err(_))));
        } else {
            assert_eq!(read(&mut stream, 50), expected);
            assert_eq!(write(&mut stream, 50), expected);
        }
        assert_eq!(remaining(&limiter), 100, "{state:?}");
    }
    let mut some = Throttled::new(Slow(Poll::Ready(Ok(5)))).limit_reads(Arc::clone(&limiter));
    assert_eq!(read(&mut some, 50), Some(5));
    assert_eq!(remaining(&limiter), 95);
}

#[test]
fn empty_reads_and_writes_and_unlimited_directions_cost_nothing() {
    let (limiter, _) = limit(1_000, 10);
    let mut stream = Throttled::new(tokio::io::repeat(0)).limit_reads(Arc::clone(&limiter));
    assert_eq!(read(&mut stream, 0), Some(0));
    assert_eq!(remaining(&limiter), 10);
    let mut stream = Throttled::new(Vec::new()).limit_reads(Arc::clone(&limiter));
    assert_eq!(write(&mut stream, 500), Some(500));
    assert_eq!(remaining(&limiter), 10);
}

#[test]
fn streams_share_a_limiter_and_one_that_nobody_reads_holds_up_no_other() {
    let (limiter, clock) = limit(1_000, 100);
    let stream = || Throttled::new(tokio::io::repeat(0)).limit_reads(Arc::clone(&limiter));
    let (mut left, mut right) = (stream(), stream());
    assert_eq!(read(&mut left, 70), Some(70));
    assert_eq!(read(&mut right, 70), Some(30));
    assert_eq!(read(&mut left, 70), None);
    // The left one is never polled again.
    clock.advance(Micros::from_millis(10));
    assert_eq!(read(&mut right, 70), Some(10));
}

/// A megabyte through two tasks that share 64 KiB/s takes as long as it has to, with the clock moved
/// on whenever both wait.
#[tokio::test]
async fn a_transfer_takes_exactly_as_long_as_the_rate_says() {
    const BYTES: usize = 1 << 20;
    let (limiter, clock) = limit(1 << 16, 1 << 16);
    let read_all = |limiter: Limiter| async move {
        let source = tokio::io::repeat(0).take(BYTES as u64 / 2);
        let mut source = Throttled::new(source).limit_reads(limiter);
        let mut sink = tokio::io::sink();
        tokio::io::copy(&mut source, &mut sink).await.unwrap();
        sink.shutdown().await.unwrap();
    };
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let (transfer, done) = (read_all(Arc::clone(&limiter)), Arc::clone(&done));
        tokio::spawn(async move {
            transfer.await;
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    let mut elapsed = Micros::ZERO;
    let step = Micros::from_millis(10);
    while done.load(Ordering::SeqCst) < 2 {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        clock.advance(step);
        elapsed = elapsed.plus(step);
        assert!(elapsed < Micros::from_secs(60));
    }
    // 1 MiB less the burst of 64 KiB, at 64 KiB/s: 15 s.
    assert!(elapsed >= Micros::from_secs(15), "{elapsed}");
    assert!(elapsed <= Micros::from_millis(15_050), "{elapsed}");
}
