//! The layer and its options.

use std::fmt;
use std::sync::Arc;

use ::http::Response;
use ::http::request::Parts;
use sluicegate_kernel::ruleset::is_name;
use sluicegate_kernel::{Cost, Micros, RuleSetError, Verb, Verdict};
use tower_layer::Layer;

use super::key::{Key, KeyExtractor};
use super::respond::{Denied, Responder};
use super::service::RateLimit;
use crate::http::HeaderFormat;
use crate::keyed::KeyedRateLimiter;

/// Holds every request of a service to a limit, each key to its own budget.
///
/// Over the limit the answer is 429 with `Retry-After` and a problem document (RFC 9457), unless
/// [`on_denied`](Self::on_denied) makes another; `RateLimit` and `RateLimit-Policy` are on every
/// response. The limiter may be shared: with other layers, with code that refunds.
///
/// The response body must be made `From<String>`, as those of axum, hyper and http-body-util are.
///
/// ```
/// use std::sync::Arc;
/// use http::{Request, Response, StatusCode};
/// use sluicegate::tower::{RateLimitLayer, Shared};
/// use sluicegate::{KeyedRateLimiter, Rate, TokenBucket};
/// use tower::{Layer, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rule = TokenBucket::new(Rate::per_second(1)?, 1)?;
/// let limiter = Arc::new(KeyedRateLimiter::new(rule, 1_000)?);
/// let hello = tower::service_fn(async |_: Request<()>| {
///     Ok::<_, std::convert::Infallible>(Response::new("hello".to_owned()))
/// });
/// let service = RateLimitLayer::new(limiter, Shared).layer(hello);
///
/// let first = service.clone().oneshot(Request::new(())).await?;
/// assert_eq!(first.headers()["ratelimit"], "\"token_bucket\";r=0;t=1");
/// let second = service.oneshot(Request::new(())).await?;
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(second.headers()["retry-after"], "1");
/// # Ok(())
/// # }
/// ```
pub struct RateLimitLayer<K> {
    key: Arc<K>,
    limit: LayerConfig,
}

/// What is done with a request that may pass, but only later: one that a leaky bucket holds back, or
/// that another rule would let pass in a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// It is refused, and `Retry-After` says when to come again. The only choice without the feature
    /// `tokio`, since holding back takes a timer.
    Never,
    /// It is held back if its rule says so (`leaky_bucket`), as long as that says. This is the
    /// default with the feature `tokio`.
    #[cfg(feature = "tokio")]
    AsTold,
    /// It is held back up to this long, and has its place: `token_bucket`, `leaky_bucket` and the
    /// `smooth_*` rules book the future. Other rules refuse it.
    #[cfg(feature = "tokio")]
    UpTo(Micros),
}

/// Says how many permits a request takes.
type CostOf = Arc<dyn Fn(&Parts) -> Cost + Send + Sync>;

/// What a layer shares with its services.
#[derive(Clone)]
pub(super) struct LayerConfig {
    limiter: Arc<KeyedRateLimiter<[u8]>>,
    cost: Option<CostOf>,
    hold: Hold,
    pub(super) responder: Responder,
}

impl<K: KeyExtractor> RateLimitLayer<K> {
    /// Holds requests to `limiter`, each to the budget of the key that `key` finds.
    pub fn new(limiter: Arc<KeyedRateLimiter<[u8]>>, key: K) -> Self {
        let responder = Responder::new(limiter.rules());
        let limit = LayerConfig { limiter, cost: None, hold: Hold::default(), responder };
        Self { key: Arc::new(key), limit }
    }

    /// Names the limit in header fields and problem documents: `name` if there is one rule, else
    /// `name.rule`. By default each rule has its own name.
    ///
    /// # Errors
    /// [`RuleSetError::Name`] unless it is 1..=128 bytes of `[a-z0-9._-]`.
    pub fn named(mut self, name: &str) -> Result<Self, RuleSetError> {
        if !is_name(name) {
            return Err(RuleSetError::Name(name.to_owned()));
        }
        self.limit.responder.rename(name, self.limit.limiter.rules());
        Ok(self)
    }

    /// Lets `cost` say how many permits a request takes; by default 1.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> Cost + Send + Sync + 'static) -> Self {
        self.limit.cost = Some(Arc::new(cost));
        self
    }

    /// What is done with requests that may pass only later.
    ///
    /// A request that is held back has been charged; it stays charged if the client goes away. How
    /// many are held back at once is bounded by the burst or the longest wait of each key; to bound
    /// them over all keys, put a limit on concurrency in front. Holding back panics outside a tokio
    /// runtime with its timer enabled.
    #[must_use]
    pub fn hold(mut self, hold: Hold) -> Self {
        self.limit.hold = hold;
        self
    }

    /// Lets `response` make the response to a refused request; by default it is 429 with a problem
    /// document. `Retry-After` and the other header fields are added to it.
    #[must_use]
    pub fn on_denied(
        mut self,
        response: impl Fn(&Denied<'_>) -> Response<String> + Send + Sync + 'static,
    ) -> Self {
        self.limit.responder.on_denied = Some(Arc::new(response));
        self
    }

    /// The header fields that tell about the budget; none at all if `formats` is empty, but for
    /// `Retry-After`. By default [`HeaderFormat::Draft10`].
    #[must_use]
    pub fn formats(mut self, formats: impl IntoIterator<Item = HeaderFormat>) -> Self {
        self.limit.responder.formats = formats.into_iter().collect();
        self
    }

    /// Whether responses to allowed requests tell about the budget too; by default they do.
    #[must_use]
    pub fn headers_on_allowed(mut self, on_allowed: bool) -> Self {
        self.limit.responder.on_allowed = on_allowed;
        self
    }
}

impl LayerConfig {
    /// Takes what `request` costs of the budget of `key`.
    pub(super) fn decide(&self, key: &Key, request: &Parts) -> Verdict {
        let (key, cost) = (key.as_bytes(), self.cost.as_ref().map_or(Cost::ONE, |f| f(request)));
        let verb = match self.hold {
            // A reservation that may not wait refuses what a check would hold back.
            Hold::Never => Verb::Reserve { cost, max_wait: Micros::ZERO },
            #[cfg(feature = "tokio")]
            Hold::AsTold => Verb::Check { cost },
            #[cfg(feature = "tokio")]
            Hold::UpTo(max_wait) => Verb::Reserve { cost, max_wait },
        };
        self.limiter.verdict(key, &verb)
    }
}

impl Default for Hold {
    #[cfg(feature = "tokio")]
    fn default() -> Self {
        Self::AsTold
    }

    #[cfg(not(feature = "tokio"))]
    fn default() -> Self {
        Self::Never
    }
}

impl<S, K> Layer<S> for RateLimitLayer<K> {
    type Service = RateLimit<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.key), Arc::new(self.limit.clone()))
    }
}

impl<K> Clone for RateLimitLayer<K> {
    fn clone(&self) -> Self {
        Self { key: Arc::clone(&self.key), limit: self.limit.clone() }
    }
}

impl<K: fmt::Debug> fmt::Debug for RateLimitLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, limit } = self;
        f.debug_struct("RateLimitLayer").field("key", key).field("limit", limit).finish()
    }
}

impl fmt::Debug for LayerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limiter, cost: _, hold, responder } = self;
        f.debug_struct("LayerConfig")
            .field("limiter", limiter)
            .field("hold", hold)
            .field("responder", responder)
            .finish_non_exhaustive()
    }
}
