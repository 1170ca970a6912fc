//! Revisions of the policies as they are told on the channel: `spec/redis-protocol.md`.
//!
//! Whoever hears one looks at the catalog now rather than at the next second. Nothing else depends
//! on it: a message that is lost, while there is no connection or for any other reason, costs that
//! second. So only the latest is kept, and what was said before there was a connection is not asked
//! for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use redis::Value;
use redis::aio::PubSub;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::backoff::Backoff;
use super::cluster::Nodes;
use super::config::Address;
use super::connection::Dialer;
use super::handle::ConnectTarget;
use super::publish::POLICIES_CHANNEL;
use super::task::Task;

/// How often the server is asked for a sign of life: messages are few, and a connection into a black
/// hole says nothing either.
const PING_EVERY: Duration = Duration::from_secs(5);

/// How long that sign may take.
const PONG_MAX: Duration = Duration::from_secs(1);

/// The revisions that are told from now on. Its connection comes back by itself, for ever, and ends
/// with it.
#[derive(Debug)]
pub struct Revisions {
    latest: watch::Receiver<i64>,
    subscribed: Arc<Notify>,
    _listener: Task,
}

/// Where to listen.
#[derive(Debug)]
pub(super) enum ListenTarget {
    /// At the server that this names.
    At(watch::Receiver<ConnectTarget>),
    /// At any node: they pass messages on to each other.
    Cluster(Arc<Nodes>),
}

impl Revisions {
    pub(super) fn start(dialer: Dialer, whereabouts: ListenTarget) -> Self {
        let (sender, latest) = watch::channel(0);
        let subscribed = Arc::new(Notify::new());
        let listener = listen(dialer, whereabouts, sender, Arc::clone(&subscribed));
        Self { latest, subscribed, _listener: Task::start(listener) }
    }

    /// Notifies of each new connection. Messages before it were not heard.
    pub fn subscribed(&self) -> Arc<Notify> {
        Arc::clone(&self.subscribed)
    }

    /// The next revision that is told, or the latest of those that were told since the last call. It
    /// never ends where nobody publishes, and may be dropped at any time.
    pub async fn next(&mut self) -> i64 {
        // The listener goes on for ever, unless its runtime ends: then nothing is told any more.
        if self.latest.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        *self.latest.borrow_and_update()
    }
}

impl ListenTarget {
    /// A server to listen at; waits until one is known.
    async fn address(&mut self) -> Option<Address> {
        match self {
            Self::At(target) => {
                let known = target.wait_for(Result::is_ok).await.ok()?;
                known.as_ref().ok().cloned()
            }
            Self::Cluster(nodes) => nodes.any_address(),
        }
    }

    /// Waits until it is another server.
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

async fn listen(
    dialer: Dialer,
    mut whereabouts: ListenTarget,
    latest: watch::Sender<i64>,
    subscribed: Arc<Notify>,
) {
    let mut backoff = Backoff::default();
    loop {
        if let Some(address) = whereabouts.address().await
            && let Ok(messages) = dialer.listen(&address, POLICIES_CHANNEL).await
        {
            backoff.reset();
            subscribed.notify_one();
            tokio::select! {
                () = receive(messages, &latest) => {}
                () = whereabouts.moved() => {}
            }
        }
        sleep(backoff.pause()).await;
    }
}

/// Passes on what is said, until the connection is of no use any more.
async fn receive(messages: PubSub, latest: &watch::Sender<i64>) {
    let (mut asking, mut messages) = messages.split();
    let hearing = async {
        while let Some(message) = messages.next().await {
            let text = std::str::from_utf8(message.get_payload_bytes()).unwrap_or_default();
            // Others may say on the channel what they like.
            if let Ok(revision) = text.parse() {
                latest.send_replace(revision);
            }
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
