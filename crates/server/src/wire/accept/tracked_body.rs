//! A body that marks the slot of its connection when it has come in.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};

use super::slots::ConnectionSlot;

/// The body of a request. At its end the request is whole, and its connection is active.
#[derive(Debug)]
pub(crate) struct TrackedBody<B> {
    body: B,
    slot: Arc<ConnectionSlot>,
}

impl<B: Body> TrackedBody<B> {
    /// Wraps the `body` of a request on the connection with this slot.
    pub(crate) fn new(body: B, slot: Arc<ConnectionSlot>) -> Self {
        let asking = Self { body, slot };
        asking.touch_at_end();
        asking
    }

    fn touch_at_end(&self) {
        if self.body.is_end_stream() {
            self.slot.touched();
        }
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(None) => self.slot.touched(),
            Poll::Ready(Some(Ok(_))) => self.touch_at_end(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Empty, Full};
    use hyper::body::Bytes;

    use super::*;

    #[tokio::test]
    async fn a_connection_has_asked_once_the_body_is_there_and_not_before() {
        let slot = Arc::<ConnectionSlot>::default();
        let mut body = TrackedBody::new(Full::new(Bytes::from_static(b"?")), Arc::clone(&slot));
        assert!(!slot.has_touched());
        body.frame().await.expect("there is one").expect("it is there");
        assert!(slot.has_touched());
        let slot = Arc::<ConnectionSlot>::default();
        drop(TrackedBody::new(Empty::<Bytes>::new(), Arc::clone(&slot)));
        assert!(slot.has_touched());
    }
}
