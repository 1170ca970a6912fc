//! Messages that have not come in yet, and the memory that they may take.
//!
//! A gateway sends a message with its head, so that the server hardly ever waits for one. A client
//! that sends heads without their messages, or messages without their ends, could make the server keep
//! 128 heads of 16 KiB a connection, which take few bytes on the network: a field is repeated by one
//! byte. So all messages that are waited for share one budget. A connection may have a quarter of what
//! is left of it, which is more than it can use if it is alone; and where others have taken
//! everything, as much as a message or two, so that attackers do not keep out honest gateways.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::http::HeaderMap;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tonic::Status;

/// Maximum memory of all messages that are waited for, with their heads, bytes: as much as half of
/// the maximum number of connections take.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// The part of what is left that one connection may have, as a divisor: alone, more than all of its streams take.
const SHARE: usize = 4;

/// Memory that a connection may have in any case, bytes. All connections together may have half as
/// much again as the budget.
const OWN_BYTES: usize = 24 * 1024;

/// Memory of a request whose message is waited for, as measured, bytes: its stream, its task, and
/// its head without fields.
const REQUEST_BYTES: usize = 8 * 1024;

/// Memory of a field of a head beside its text, with the tables it is found by, as measured, bytes.
const FIELD_BYTES: usize = 320;

/// The memory of all messages that are waited for.
#[derive(Debug, Default)]
pub(super) struct MessageBudget {
    bytes: AtomicUsize,
}

/// The memory of one connection's messages that are waited for.
#[derive(Debug)]
pub(super) struct ConnectionBudget {
    of: Arc<MessageBudget>,
    bytes: AtomicUsize,
}

/// A message, as it comes in.
#[derive(Debug)]
pub(super) struct Message<B> {
    body: B,
    share: Arc<ConnectionBudget>,
    /// Memory of its head, and of what has come in before it was waited for, bytes.
    there_bytes: usize,
    /// The part of the budget that it has, bytes: 0, until it is waited for.
    held_bytes: usize,
}

impl ConnectionBudget {
    /// Creates the budget of a new connection.
    pub(super) const fn new(of: Arc<MessageBudget>) -> Self {
        Self { of, bytes: AtomicUsize::new(0) }
    }

    /// Takes so many bytes. Returns whether there were so many.
    fn take(&self, bytes: usize) -> bool {
        let all = self.of.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let own = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if own <= OWN_BYTES || own <= WAITING_BYTES_MAX.saturating_sub(all) / SHARE {
            return true;
        }
        self.give_back(bytes);
        false
    }

    fn give_back(&self, bytes: usize) {
        self.of.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl<B> Message<B> {
    /// Wraps the message that comes in as `body`, behind `head`.
    pub(super) fn new(body: B, head: &HeaderMap, share: Arc<ConnectionBudget>) -> Self {
        let there_bytes = REQUEST_BYTES + head.len() * FIELD_BYTES;
        Self { body, share, there_bytes, held_bytes: 0 }
    }

    /// Takes so many more bytes of the budget.
    fn take(&mut self, bytes: usize) -> Result<(), Status> {
        if !self.share.take(bytes) {
            return Err(Status::resource_exhausted("too many incomplete messages"));
        }
        self.held_bytes += bytes;
        Ok(())
    }
}

impl<B> Body for Message<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let polled = polled.map_err(|error| Status::from_error(error.into()));
        let more = match &polled {
            Poll::Ready(Some(Ok(frame))) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        if polled.is_ready() && self.held_bytes == 0 {
            self.there_bytes += more;
            return polled;
        }
        let bytes = if self.held_bytes == 0 { self.there_bytes } else { more };
        match self.take(bytes) {
            Ok(()) => polled,
            Err(status) => Poll::Ready(Some(Err(status))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Message<B> {
    fn drop(&mut self) {
        self.share.give_back(self.held_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_a_connection_has_room_for_all_its_streams() {
        let share = ConnectionBudget::new(Arc::default());
        for _ in 0..super::super::serve::STREAMS_MAX {
            assert!(share.take(REQUEST_BYTES + 32 * FIELD_BYTES));
        }
    }

    #[test]
    fn those_who_fill_the_account_leave_something_to_others() {
        let account = Arc::<MessageBudget>::default();
        let greedy: Vec<_> =
            (0..1_000).map(|_| ConnectionBudget::new(Arc::clone(&account))).collect();
        for share in &greedy {
            while share.take(1_000) {}
        }
        let most = WAITING_BYTES_MAX + greedy.len() * OWN_BYTES;
        assert!((WAITING_BYTES_MAX..=most).contains(&account.bytes.load(Ordering::Relaxed)));
        let honest = ConnectionBudget::new(account);
        assert!(honest.take(REQUEST_BYTES + 20 * FIELD_BYTES));
    }

    #[tokio::test]
    async fn what_was_waited_for_is_given_back() {
        let share = Arc::new(ConnectionBudget::new(Arc::default()));
        let body = never();
        let mut message = Message::new(body, &HeaderMap::new(), Arc::clone(&share));
        let held = || share.of.bytes.load(Ordering::Relaxed);
        assert_eq!(held(), 0);
        let frame = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut message).poll_frame(cx)));
        assert!(frame.await.is_pending());
        assert_eq!(held(), REQUEST_BYTES);
        drop(message);
        assert_eq!(held(), 0);
    }

    /// A body that does not come.
    fn never() -> axum::body::Body {
        let pieces = futures_util::stream::pending::<Result<Bytes, std::convert::Infallible>>();
        axum::body::Body::from_stream(pieces)
    }
}
