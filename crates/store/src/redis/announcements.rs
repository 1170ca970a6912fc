//! Waiting requests that processes call of each other: `spec/redis-protocol.md`.
//!
//! A process that releases a permit learns which requests can pass now, and announces those of other processes on a channel.
//! A message that is lost costs a second: then the process that waits asks anyway.

use std::sync::Arc;

use sluicegate_kernel::Called;
use tokio::sync::{Mutex, Notify, mpsc};

use super::codec::read_called;
use super::dialer::Dialer;
use super::revisions::{ListenTarget, listen};
use super::task::OwnedTask;

/// The channel of the messages.
pub const CALLS_CHANNEL: &str = "sg:calls";

/// Most messages that wait to be read; later ones are lost.
const MESSAGES_MAX: usize = 1_024;

/// The messages that arrive from now on. Its connection is restored for ever, and ends with it.
#[derive(Debug)]
pub(super) struct Announcements {
    messages: Mutex<mpsc::Receiver<Vec<Called>>>,
    _listener: OwnedTask,
}

impl Announcements {
    pub(super) fn start(dialer: Dialer, whereabouts: ListenTarget) -> Self {
        let (sender, messages) = mpsc::channel(MESSAGES_MAX);
        let hear = move |message: &[u8]| {
            // Other clients may publish other bytes on the channel.
            if let Some(called) = read_called(message) {
                drop(sender.try_send(called));
            }
        };
        let listener = listen(dialer, whereabouts, CALLS_CHANNEL, Arc::new(Notify::new()), hear);
        Self { messages: Mutex::new(messages), _listener: OwnedTask::start(listener) }
    }

    /// Returns the next message. It may be dropped at any time.
    pub(super) async fn next(&self) -> Vec<Called> {
        match self.messages.lock().await.recv().await {
            Some(called) => called,
            // The listener goes on for ever, unless its runtime ends.
            None => std::future::pending().await,
        }
    }
}
