//! A few lanes to one server. Calls about one key take one lane, so that they are decided in order; others
//! take the lanes in turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use redis::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::address::Address;
use super::error::{ConnectError, RedisError};
use super::handle::ConnectionHandle;
use super::request::ServerRequest;
use super::setup::{ConnectTarget, ConnectionSetup};

/// Several connections to the server of the target.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    lanes: Box<[ConnectionHandle]>,
    next: AtomicUsize,
}

/// One server at a fixed address.
#[derive(Debug)]
pub(super) struct Standalone {
    pub(super) lanes: ConnectionPool,
    target: watch::Sender<ConnectTarget>,
}

impl Standalone {
    pub(super) fn start(setup: &ConnectionSetup, address: Address, connections: usize) -> Self {
        let (sender, target) = watch::channel(Ok(address));
        Self { lanes: ConnectionPool::start(setup, &target, connections), target: sender }
    }

    /// Returns the address of the server.
    pub(super) fn target(&self) -> watch::Receiver<ConnectTarget> {
        self.target.subscribe()
    }
}

impl ConnectionPool {
    pub(super) fn start(
        setup: &ConnectionSetup,
        target: &watch::Receiver<ConnectTarget>,
        connections: usize,
    ) -> Self {
        let lanes =
            (0..connections).map(|_| ConnectionHandle::start(setup.clone(), target.clone()));
        Self { lanes: lanes.collect(), next: AtomicUsize::new(0) }
    }

    /// Waits until a lane serves calls, or until the first attempts of all have failed.
    pub(super) async fn ready(&self) -> Result<(), ConnectError> {
        let mut result = Err(ConnectError::NotYet);
        for lane in &self.lanes {
            result = lane.ready().await;
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// Returns the reply to `request` over the lane of its key, or over the next one if it has none.
    pub(super) async fn call(
        &self,
        request: ServerRequest,
        deadline: Instant,
    ) -> Result<Value, RedisError> {
        let first = request.key().map_or_else(|| self.turn(), |key| lane_of(key));
        self.pick(first).call(request, deadline).await
    }

    /// Passes the reply to each of `requests` to `on_reply`, all over the next lane that serves calls.
    pub(super) async fn call_each(
        &self,
        requests: impl ExactSizeIterator<Item = ServerRequest> + Send,
        deadline: Instant,
        on_reply: &mut (impl FnMut(usize, Result<Value, RedisError>) + Send),
    ) {
        self.pick(self.turn()).call_each(requests, deadline, on_reply).await;
    }

    /// Returns the error with which a call would be refused now, if every lane that serves calls is full.
    pub(super) fn refuses(&self) -> Option<RedisError> {
        let mut serving = self.lanes.iter().filter(|lane| lane.is_ready());
        let first = serving.next()?.refuses()?;
        serving.all(|lane| lane.refuses().is_some()).then_some(first)
    }

    /// Returns the number of the next lane, to be counted around.
    fn turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the lane with the number `first`, counted around, or the one after it that serves calls. If
    /// none does, the first reports why.
    fn pick(&self, first: usize) -> &ConnectionHandle {
        let lane = |offset: usize| &self.lanes[first.wrapping_add(offset) % self.lanes.len()];
        (0..self.lanes.len()).map(lane).find(|lane| lane.is_ready()).unwrap_or_else(|| lane(0))
    }
}

/// Returns the number of the lane for `key`, to be counted around: keys are hashes, so their sums are spread
/// evenly.
fn lane_of(key: &[u8]) -> usize {
    key.iter().map(|&byte| usize::from(byte)).sum()
}
