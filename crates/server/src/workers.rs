//! The threads that serve, one runtime each.
//!
//! A connection stays with the thread that it was given to, so that its data stays on one core: a
//! runtime that moves tasks between threads would add a third to the cost of a decision. The first
//! worker is the caller's own runtime, which also accepts connections.

use std::io;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Threads with a runtime each. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Workers {
    handles: Box<[Handle]>,
    next: AtomicUsize,
    _stop: DropGuard,
}

impl Workers {
    /// Starts `count` workers, of which the first is the present runtime.
    ///
    /// # Errors
    /// If the system cannot start another thread.
    pub(crate) fn start(count: NonZeroU16) -> io::Result<Self> {
        let stop = CancellationToken::new();
        let mut handles = vec![Handle::current()];
        for number in 1..count.get() {
            handles.push(start_one(number, stop.clone())?);
        }
        let (handles, next) = (handles.into(), AtomicUsize::new(0));
        Ok(Self { handles, next, _stop: stop.drop_guard() })
    }

    /// The number of cores that the process may use.
    pub(crate) fn of_cores() -> NonZeroU16 {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        u16::try_from(cores).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MIN)
    }

    /// The runtime of the next connection. `None`: the present runtime.
    pub(crate) fn next(&self) -> Option<&Handle> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.handles.len();
        (place > 0).then(|| &self.handles[place])
    }
}

fn start_one(number: u16, stop: CancellationToken) -> io::Result<Handle> {
    let (sender, started) = mpsc::sync_channel(1);
    thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return sender.send(Err(error)).unwrap_or_default(),
        };
        if sender.send(Ok(runtime.handle().clone())).is_ok() {
            runtime.block_on(stop.cancelled());
        }
    })?;
    started.recv().unwrap_or_else(|_| Err(io::Error::other("a worker thread did not start")))
}
