//! Revisions of the policies as announced on the channel: `spec/redis-protocol.md`.
//!
//! Servers of a catalog look for changes every 250 ms, and libraries that follow published policies
//! every 10 s. A program that receives a revision later than its own looks now instead. Nothing else
//! depends on messages: one that is lost, while there is no connection or for any other reason, costs
//! at most that interval. So only the latest is kept, and earlier messages are not requested after a
//! reconnect.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::Value;
use redis::aio::PubSub;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::address::Address;
use super::backoff::Backoff;
use super::cluster::Nodes;
use super::dialer::Dialer;
use super::publish::POLICIES_CHANNEL;
use super::setup::ConnectTarget;
use super::task::OwnedTask;

/// The period of pings to the server: messages are few, and a connection into a black hole gives no
/// error.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The longest time until the answer to a ping.
const PONG_MAX: Duration = Duration::from_secs(1);

/// The revisions that are announced from now on. Its connection is restored for ever, and ends with
/// it.
#[derive(Debug)]
pub struct Revisions {
    latest: watch::Receiver<i64>,
    subscribed: Arc<Notify>,
    _listener: OwnedTask,
}

/// The server to listen at.
#[derive(Debug)]
pub(super) enum ListenTarget {
    /// The server that this names.
    At(watch::Receiver<ConnectTarget>),
    /// Any node: they pass messages on to each other.
    Cluster(Arc<Nodes>),
}

impl Revisions {
    pub(super) fn start(dialer: Dialer, whereabouts: ListenTarget) -> Self {
        let (sender, latest) = watch::channel(0);
        let subscribed = Arc::new(Notify::new());
        let hear = move |message: &[u8]| {
            let text = std::str::from_utf8(message).unwrap_or_default();
            // Other clients may publish other texts on the channel.
            if let Ok(revision) = text.parse() {
                sender.send_replace(revision);
            }
        };
        let listener = listen(dialer, whereabouts, POLICIES_CHANNEL, Arc::clone(&subscribed), hear);
        Self { latest, subscribed, _listener: OwnedTask::start(listener) }
    }

    /// Returns a notification for each new connection. Messages before it are lost.
    pub fn subscribed(&self) -> Arc<Notify> {
        Arc::clone(&self.subscribed)
    }

    /// Returns the next revision that is announced, or the latest of those since the last call. It
    /// never ends while none is published, and may be dropped at any time.
    pub async fn next(&mut self) -> i64 {
        // The listener goes on for ever, unless its runtime ends: then no revision comes any more.
        if self.latest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.latest.borrow_and_update()
    }
}

impl ListenTarget {
    /// Returns a server to listen at; waits until one is known.
    async fn address(&mut self) -> Option<Address> {
        match self {
            Self::At(target) => {
                let known = target.wait_for(Result::is_ok).await.ok()?;
                known.as_ref().ok().cloned()
            }
            Self::Cluster(nodes) => nodes.any_address(),
        }
    }

    /// Waits until the server to listen at changes.
    async fn moved(&mut self) {
        let is_told = match self {
            Self::At(target) => target.changed().await.is_ok(),
            Self::Cluster(_) => false,
        };
        if !is_told {
            std::future::pending::<()>().await;
        }
    }
}

/// Passes each message on `channel` to `hear`, and notifies `subscribed` of each new connection.
pub(super) async fn listen(
    dialer: Dialer,
    mut whereabouts: ListenTarget,
    channel: &'static str,
    subscribed: Arc<Notify>,
    hear: impl Fn(&[u8]) + Send,
) {
    let mut backoff = Backoff::default();
    loop {
        if let Some(address) = whereabouts.address().await
            && let Ok(messages) = dialer.listen(&address, channel).await
        {
            backoff.reset();
            subscribed.notify_one();
            tokio::select! {
                () = receive(messages, &hear) => {}
                () = whereabouts.moved() => {}
            }
        }
        sleep(backoff.pause()).await;
    }
}

/// Passes messages on, until the connection cannot be used any more.
async fn receive(messages: PubSub, hear: impl Fn(&[u8])) {
    let (mut asking, mut messages) = messages.split();
    let hearing = async {
        while let Some(message) = messages.next().await {
            hear(message.get_payload_bytes());
        }
    };
    let asking = async {
        loop {
            sleep(PING_EVERY).await;
            if !matches!(timeout(PONG_MAX, asking.ping::<Value>()).await, Ok(Ok(_))) {
                return;
            }
        }
    };
    tokio::select! {
        () = hearing => {}
        () = asking => {}
    }
}
