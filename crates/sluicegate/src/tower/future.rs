//! The future of a response.
//!
//! ```text
//! store asked ─▶ refused ─▶ response
//!            └─▶ allowed ─▶ delay ─▶ inner ready? ─▶ inner response ─▶ header fields ─▶ response
//! ```

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use pin_project_lite::pin_project;
use sluicegate_kernel::Micros;
use tower_service::Service;

use super::config::LayerConfig;
use super::limiter::{Decided, Deciding, Ruling, Way};

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
        Deciding {
            deciding: Pin<Box<dyn Future<Output = Decided> + Send>>,
            call: Option<Call<S, In>>,
        },
        Waiting {
            #[pin]
            hold: Option<Sleep>,
            ruling: Option<Ruling>,
            call: Option<Call<S, In>>,
        },
        Called {
            #[pin]
            response: F,
            ruling: Ruling,
            limit: Arc<LayerConfig>,
        },
    }
}

/// The parts that are needed to call the inner service.
struct Call<S, In> {
    inner: S,
    request: Request<In>,
    limit: Arc<LayerConfig>,
}

#[cfg(feature = "tokio")]
type Sleep = tokio::time::Sleep;

/// Without a timer nothing is delayed; see [`Hold::Never`](super::limiter::Hold::Never).
#[cfg(not(feature = "tokio"))]
type Sleep = std::future::Ready<()>;

impl<S: Service<Request<In>>, In> RateLimitFuture<S, In> {
    pub(super) const fn refused(response: Response<String>) -> Self {
        Self { state: FutureState::Refused { response: Some(response) } }
    }

    pub(super) fn new(
        deciding: Deciding,
        inner: S,
        request: Request<In>,
        limit: Arc<LayerConfig>,
    ) -> Self {
        let call = Call { inner, request, limit };
        let state = match deciding {
            Deciding::Made(decided) => FutureState::of(decided, call),
            Deciding::Awaited(deciding) => FutureState::Deciding { deciding, call: Some(call) },
        };
        Self { state }
    }
}

impl<S, In, F> FutureState<S, In, F> {
    /// Returns the state that follows from the decision.
    fn of(decided: Decided, call: Call<S, In>) -> Self {
        let Call { inner, request, limit } = call;
        let mut ruling = match decided {
            Ok(ruling) => ruling,
            Err(reason) => return Self::refused(limit.responder.undecided(&reason)),
        };
        let (mut parts, body) = request.into_parts();
        let responder = &limit.responder;
        match std::mem::replace(&mut ruling.way, Way::Pass) {
            Way::Pass => {}
            Way::Mark(extensions) if limit.marks_overflow => parts.extensions.extend(extensions),
            Way::Mark(_) | Way::Refuse => return Self::refused(responder.denied(&ruling, &parts)),
            Way::Unavailable => return Self::refused(responder.unavailable(&ruling)),
            Way::Serve(response) => return Self::refused(responder.served(&ruling, response)),
        }
        let hold = (ruling.wait > Micros::ZERO).then(|| sleep(ruling.wait));
        let call = Call { inner, request: Request::from_parts(parts, body), limit };
        Self::Waiting { hold, ruling: Some(ruling), call: Some(call) }
    }

    const fn refused(response: Response<String>) -> Self {
        Self::Refused { response: Some(response) }
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
                StateProjection::Deciding { deciding, call } => {
                    let decided = ready!(deciding.as_mut().poll(cx));
                    let call = call.take().expect(LEAVES_WITH_STATE);
                    state.set(FutureState::of(decided, call));
                }
                StateProjection::Waiting { mut hold, ruling, call } => {
                    if let Some(sleep) = hold.as_mut().as_pin_mut() {
                        ready!(sleep.poll(cx));
                        hold.set(None);
                    }
                    ready!(call.as_mut().expect(LEAVES_WITH_STATE).inner.poll_ready(cx))?;
                    let ruling = ruling.take().expect(LEAVES_WITH_STATE);
                    let Call { mut inner, request, limit } = call.take().expect(LEAVES_WITH_STATE);
                    let response = inner.call(request);
                    state.set(FutureState::Called { response, ruling, limit });
                }
                StateProjection::Called { response, ruling, limit } => {
                    let mut response = ready!(response.poll(cx))?;
                    limit.responder.allowed(ruling, response.headers_mut());
                    #[cfg(feature = "engine")]
                    if let Some(held) = ruling.held.take() {
                        // A `ConcurrencyLayer` puts it into the body.
                        response.extensions_mut().insert(Arc::new(held));
                    }
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
            FutureState::Deciding { .. } => "Deciding",
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
const LEAVES_WITH_STATE: &str = "it leaves only with this state";
