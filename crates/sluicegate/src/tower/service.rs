//! The service that decides before it calls.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Request, Response};
use tower_service::Service;

use super::config::LayerConfig;
use super::future::RateLimitFuture;
use super::key::KeyExtractor;

/// A service behind a limit. Made by a [`RateLimitLayer`](super::RateLimitLayer).
pub struct RateLimit<S, K> {
    inner: S,
    key: Arc<K>,
    limit: Arc<LayerConfig>,
}

impl<S, K> RateLimit<S, K> {
    pub(super) const fn new(inner: S, key: Arc<K>, limit: Arc<LayerConfig>) -> Self {
        Self { inner, key, limit }
    }
}

impl<S, K, In, Out> Service<Request<In>> for RateLimit<S, K>
where
    S: Service<Request<In>, Response = Response<Out>> + Clone,
    K: KeyExtractor,
    Out: From<String>,
{
    type Response = Response<Out>;
    type Error = S::Error;
    type Future = RateLimitFuture<S, In>;

    /// Always ready: a decision at once is quick, others are made by the future, and a refusal must not wait for the
    /// inner service.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<In>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let deciding = match self.key.extract(&parts) {
            Ok(key) => self.limit.decide(key, &parts),
            Err(error) => return RateLimitFuture::refused(self.limit.responder.no_key(&error)),
        };
        // The inner service was never asked whether it is ready, so its clone is as good as it.
        let (inner, request) = (self.inner.clone(), Request::from_parts(parts, body));
        RateLimitFuture::new(deciding, inner, request, Arc::clone(&self.limit))
    }
}

impl<S: Clone, K> Clone for RateLimit<S, K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            key: Arc::clone(&self.key),
            limit: Arc::clone(&self.limit),
        }
    }
}

impl<S: fmt::Debug, K: fmt::Debug> fmt::Debug for RateLimit<S, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, key, limit } = self;
        f.debug_struct("RateLimit")
            .field("inner", inner)
            .field("key", key)
            .field("limit", limit)
            .finish()
    }
}
