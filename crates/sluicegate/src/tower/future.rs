//! The response that is on its way.
//!
//! ```text
//! refused ─▶ response
//! allowed ─▶ hold back ─▶ inner ready? ─▶ inner response ─▶ header fields ─▶ response
//! ```

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use pin_project_lite::pin_project;
use sluicegate_kernel::{Micros, Verdict};
use tower_service::Service;

use super::layer::LayerConfig;

pin_project! {
    /// The future response of a [`RateLimit`](super::RateLimit).
    pub struct RateLimitFuture<S: Service<Request<In>>, In> {
        #[pin]
        state: FutureState<S, In, S::Future>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum FutureState<S, In, F> {
        Refused {
            response: Option<Response<String>>,
        },
        Waiting {
            #[pin]
            hold: Option<Sleep>,
            inner: S,
            request: Option<Request<In>>,
            verdict: Verdict,
            limit: Option<Arc<LayerConfig>>,
        },
        Called {
            #[pin]
            response: F,
            verdict: Verdict,
            limit: Arc<LayerConfig>,
        },
    }
}

#[cfg(feature = "tokio")]
type Sleep = tokio::time::Sleep;

/// Without a timer nothing is held back; see [`Hold::Never`](super::Hold::Never).
#[cfg(not(feature = "tokio"))]
type Sleep = std::future::Ready<()>;

impl<S: Service<Request<In>>, In> RateLimitFuture<S, In> {
    pub(super) const fn refused(response: Response<String>) -> Self {
        Self { state: FutureState::Refused { response: Some(response) } }
    }

    pub(super) fn allowed(
        inner: S,
        request: Request<In>,
        verdict: Verdict,
        limit: Arc<LayerConfig>,
    ) -> Self {
        let hold = (verdict.decision.wait() > Micros::ZERO).then(|| sleep(verdict.decision.wait()));
        let (request, limit) = (Some(request), Some(limit));
        Self { state: FutureState::Waiting { hold, inner, request, verdict, limit } }
    }
}

impl<S, In, Out> Future for RateLimitFuture<S, In>
where
    S: Service<Request<In>, Response = Response<Out>>,
    Out: From<String>,
{
    type Output = Result<Response<Out>, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let mut state = self.as_mut().project().state;
            match state.as_mut().project() {
                StateProjection::Refused { response } => {
                    let response = response.take().expect(POLLED_ONCE_DONE);
                    return Poll::Ready(Ok(response.map(Out::from)));
                }
                StateProjection::Waiting { mut hold, inner, request, verdict, limit } => {
                    if let Some(sleep) = hold.as_mut().as_pin_mut() {
                        ready!(sleep.poll(cx));
                        hold.set(None);
                    }
                    ready!(inner.poll_ready(cx))?;
                    let request = request.take().expect("it leaves only with this state");
                    let limit = limit.take().expect("it leaves only with this state");
                    let (response, verdict) = (inner.call(request), *verdict);
                    state.set(FutureState::Called { response, verdict, limit });
                }
                StateProjection::Called { response, verdict, limit } => {
                    let mut response = ready!(response.poll(cx))?;
                    limit.responder.allowed(verdict, response.headers_mut());
                    return Poll::Ready(Ok(response));
                }
            }
        }
    }
}

impl<S: Service<Request<In>>, In> fmt::Debug for RateLimitFuture<S, In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            FutureState::Refused { .. } => "Refused",
            FutureState::Waiting { .. } => "Waiting",
            FutureState::Called { .. } => "Called",
        };
        f.debug_struct("RateLimitFuture").field("state", &state).finish()
    }
}

#[cfg(feature = "tokio")]
fn sleep(span: Micros) -> Sleep {
    tokio::time::sleep(span.into())
}

#[cfg(not(feature = "tokio"))]
fn sleep(_: Micros) -> Sleep {
    std::future::ready(())
}

const POLLED_ONCE_DONE: &str = "a future is not polled again once it is done";
