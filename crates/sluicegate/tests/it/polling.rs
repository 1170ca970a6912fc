//! Futures polled by hand, so that a test decides when they look.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// A waker that counts.
#[derive(Default)]
pub(crate) struct Calls(AtomicUsize);

impl Calls {
    /// Number of wake-ups.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls once, and ignores wake-ups.
pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls once; `calls` counts the wake-ups that follow.
pub(crate) fn poll_with<F: Future>(future: Pin<&mut F>, calls: &Arc<Calls>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Arc::clone(calls).into()))
}
