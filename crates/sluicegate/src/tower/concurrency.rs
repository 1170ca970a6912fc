//! A layer that holds a permit of a `concurrency` rule for the time of each request.
//!
//! ```text
//! request ─▶ RateLimit, which acquires ─▶ inner service ─▶ response ─▶ HeldBody ─▶ last frame, or dropped ─▶ released
//! ```

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use sluicegate_store::Store;
use tower_layer::Layer;
use tower_service::Service;

use super::future::RateLimitFuture;
use super::key::KeyExtractor;
use super::layer::RateLimitLayer;
use super::service::RateLimit;
use crate::engine::{Engine, HeldPermit, Observer};

/// A layer that limits how many requests of a service run at once, by a policy with a `concurrency` rule.
///
/// Each request acquires a permit, and gives it back when its response has been sent, when its client has gone away, or when
/// the service has panicked. It is renewed while the request runs, however long that is; if the process dies, it comes back
/// after the rule's `ttl`. Engines with one Redis share the limit.
///
/// A request over the limit is answered as by a [`RateLimitLayer`]. With a `queue` in the rule it waits, for the `max_wait`
/// of the policy's `overflow: queue` up to a minute, or as long as [`hold_up_to`](RateLimitLayer::hold_up_to) permits.
///
/// ```
/// use std::sync::Arc;
/// use http::{Request, Response, StatusCode};
/// use sluicegate::Engine;
/// use sluicegate::policy::{Document, PolicySet};
/// use sluicegate::tower::ConcurrencyLayer;
/// use tower::{Layer, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let document = Document::parse(
///     "policies: [{ name: reports, rules: [{ concurrency: { limit: 1, ttl: 1m } }] }]",
/// )?;
/// let engine = Arc::new(Engine::in_memory(PolicySet::new(document)));
/// let hello = tower::service_fn(async |_: Request<()>| {
///     Ok::<_, std::convert::Infallible>(Response::new("hello".to_owned()))
/// });
/// let service = ConcurrencyLayer::by_policy(engine, "reports", ()).layer(hello);
///
/// let first = service.clone().oneshot(Request::new(())).await?;
/// // The body of the first is not sent yet.
/// let second = service.clone().oneshot(Request::new(())).await?;
/// assert_eq!((first.status(), second.status()), (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConcurrencyLayer<K> {
    limit: RateLimitLayer<K>,
}

impl<K: KeyExtractor> ConcurrencyLayer<K> {
    /// Returns a layer that limits requests by `policy` in `engine`, each under the key that `key` finds. The policy is
    /// looked up at each request; while it is unknown, or has no `concurrency` rule, each request returns 500, and
    /// the log names it.
    pub fn by_policy<S, O>(engine: Arc<Engine<S, O>>, policy: &str, key: K) -> Self
    where
        S: Store + fmt::Debug + 'static,
        O: Observer<Label: Default>,
    {
        Self { limit: RateLimitLayer::by_policy(engine, policy, key).keeping() }
    }

    /// Sets options, which are those of a [`RateLimitLayer`]: `layer.with(|limit| limit.app("shop"))`.
    #[must_use]
    pub fn with(self, options: impl FnOnce(RateLimitLayer<K>) -> RateLimitLayer<K>) -> Self {
        Self { limit: options(self.limit).keeping() }
    }
}

impl<S, K> Layer<S> for ConcurrencyLayer<K> {
    type Service = Concurrency<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        Concurrency { limited: self.limit.layer(inner) }
    }
}

/// A service behind a limit. Made by a [`ConcurrencyLayer`].
#[derive(Clone, Debug)]
pub struct Concurrency<S, K> {
    limited: RateLimit<S, K>,
}

impl<S, K, In, Out> Service<Request<In>> for Concurrency<S, K>
where
    S: Service<Request<In>, Response = Response<Out>> + Clone,
    K: KeyExtractor,
    Out: From<String>,
{
    type Response = Response<HeldBody<Out>>;
    type Error = S::Error;
    type Future = ConcurrencyFuture<S, In>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.limited.poll_ready(cx)
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        ConcurrencyFuture { response: self.limited.call(request) }
    }
}

pin_project! {
    /// The future response of a [`Concurrency`].
    #[derive(Debug)]
    pub struct ConcurrencyFuture<S: Service<Request<In>>, In> {
        #[pin]
        response: RateLimitFuture<S, In>,
    }
}

impl<S, In, Out> Future for ConcurrencyFuture<S, In>
where
    S: Service<Request<In>, Response = Response<Out>>,
    Out: From<String>,
{
    type Output = Result<Response<HeldBody<Out>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.project().response.poll(cx))?;
        let permit = response.extensions_mut().remove();
        Poll::Ready(Ok(response.map(|body| HeldBody { body, permit })))
    }
}

pin_project! {
    /// The body of a response. At its end, or when it is dropped, the permit of its request is released.
    #[derive(Debug)]
    pub struct HeldBody<B> {
        #[pin]
        body: B,
        permit: Option<Arc<HeldPermit>>,
    }
}

impl<B: Body> Body for HeldBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let held = self.project();
        let frame = ready!(held.body.poll_frame(cx));
        if matches!(frame, None | Some(Err(_))) {
            *held.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
