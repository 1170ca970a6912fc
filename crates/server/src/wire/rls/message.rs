//! Messages that are not there yet, and what they may take of memory.
//!
//! A gateway sends a message with its head, so that hardly ever one is waited for. Who sends heads
//! without their messages, or messages without their ends, could have the server keep 128 heads of
//! 16 KiB a connection, which take few bytes on the network: fields that were said before are said by
//! one byte. So all that wait have one account. A connection may have a quarter of what is left of it,
//! which is more than it can use if it is alone; and where others have taken everything, as much as a
//! message or two, so that those who wish ill do not keep out honest gateways.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::http::HeaderMap;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tonic::Status;

/// What all messages that are waited for may take, with their heads: as much as half of the
/// connections take that there may be.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// The part of what is left that one connection may have: alone, more than all of its streams take.
const SHARE: usize = 4;

/// What a connection may have in any case. All of them together may have half as much again as the
/// account.
const OWN_BYTES: usize = 24 * 1024;

/// What a request takes whose message is waited for, as measured: its stream, its task, and its head
/// without fields.
const REQUEST_BYTES: usize = 8 * 1024;

/// What a field of a head takes beside its text, with the tables it is found by, as measured.
const FIELD_BYTES: usize = 320;

/// What all messages take that are waited for.
#[derive(Debug, Default)]
pub(super) struct MessageBudget {
    bytes: AtomicUsize,
}

/// The same, of one connection.
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
    /// What its head takes, and what has come in before it was waited for.
    there_bytes: usize,
    /// What it has of the account: nothing, until it is waited for.
    held_bytes: usize,
}

impl ConnectionBudget {
    /// Of a new connection.
    pub(super) const fn new(of: Arc<MessageBudget>) -> Self {
        Self { of, bytes: AtomicUsize::new(0) }
    }

    /// Takes so much, if there is so much.
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
    /// The one that comes in as `body`, behind `head`.
    pub(super) fn new(body: B, head: &HeaderMap, share: Arc<ConnectionBudget>) -> Self {
        let there_bytes = REQUEST_BYTES + head.len() * FIELD_BYTES;
        Self { body, share, there_bytes, held_bytes: 0 }
    }

    /// Takes so much more of the account.
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
