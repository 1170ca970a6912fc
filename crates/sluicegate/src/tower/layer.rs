//! The layer and its options.

use std::fmt;
use std::sync::Arc;

use ::http::Response;
use ::http::request::Parts;
#[cfg(feature = "tokio")]
use sluicegate_kernel::Micros;
use sluicegate_kernel::ruleset::is_name;
use sluicegate_kernel::{Cost, Decision, RuleSetError};
#[cfg(feature = "engine")]
use sluicegate_store::Store;
use tower_layer::Layer;

use super::config::LayerConfig;
use super::key::KeyExtractor;
use super::limiter::{Hold, LayerLimiter};
#[cfg(feature = "engine")]
use super::policies::{PolicyLimiter, PolicyName};
use super::respond::Responder;
use super::service::RateLimit;
#[cfg(feature = "engine")]
use crate::engine::{Engine, Observer};
use crate::http::HeaderFormat;
use crate::keyed::KeyedRateLimiter;

/// A layer that limits the requests of a service, each key with its own budget.
///
/// The limit is that of a [`KeyedRateLimiter`] ([`new`](Self::new)), or that of a policy of an `Engine` with its store
/// in memory or in Redis ([`by_policy`](Self::by_policy)). The limiter may be shared: with other layers, with code that
/// refunds.
///
/// | What happened | Response |
/// |---|---|
/// | within the limit | that of the service, with `RateLimit` and `RateLimit-Policy` |
/// | over the limit | 429 with `Retry-After` and a problem document (RFC 9457), or the result of [`on_denied`](Self::on_denied) |
/// | over the limit of a policy with `overflow: shadow` | that of the service |
/// | over the limit of a policy with `overflow: queue` | that of the service, later |
/// | over the limit of a policy that degrades with a response | that response |
/// | over the limit of a policy that degrades with a tag, or diverts | 429, unless [`marks_overflow`](Self::marks_overflow) is set |
/// | the store does not answer | by the policy's `on_store_failure`; 503 with `Retry-After` for `deny`, and if the engine has no fallback |
/// | no key | 400 with a problem document |
/// | unknown policy, a missing peer address | 500 without details; the log has them |
///
/// The response body must be made `From<String>`, as those of axum, hyper and http-body-util are.
///
/// ```
/// use std::sync::Arc;
/// use http::{Request, Response, StatusCode};
/// use sluicegate::tower::RateLimitLayer;
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
/// let service = RateLimitLayer::new(limiter, ()).layer(hello);
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

impl<K: KeyExtractor> RateLimitLayer<K> {
    /// Returns a layer that limits requests by `limiter`, each under the key that `key` finds.
    pub fn new(limiter: Arc<KeyedRateLimiter<[u8]>>, key: K) -> Self {
        Self::of(limiter, key)
    }

    /// Returns a layer that limits requests by `policy` in `engine`, each under the key that `key` finds. The
    /// policy is looked up at each request, so it may change, or appear later; while it is unknown, each request
    /// returns 500, and the log names it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sluicegate::Engine;
    /// use sluicegate::policy::{Document, PolicySet};
    /// use sluicegate::tower::{PeerAddr, RateLimitLayer};
    ///
    /// let document = Document::parse(
    ///     "policies: [{ name: login, rules: [{ token_bucket: { rate: 5/min, burst: 5 } }] }]",
    /// )?;
    /// let engine = Arc::new(Engine::in_memory(PolicySet::new(document)));
    /// let layer = RateLimitLayer::by_policy(engine, "login", PeerAddr::new());
    /// # let _ = layer;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "engine")]
    pub fn by_policy<S, O>(engine: Arc<Engine<S, O>>, policy: &str, key: K) -> Self
    where
        S: Store + fmt::Debug + 'static,
        O: Observer<Label: Default>,
    {
        let policy: Arc<str> = policy.into();
        Self::of(Arc::new(PolicyLimiter::new(engine, PolicyName::Fixed(policy))), key)
    }

    /// Returns a layer like [`by_policy`](Self::by_policy), where `policy_of` names the policy of each request.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use sluicegate::Engine;
    /// # use sluicegate::tower::{PeerAddr, RateLimitLayer};
    /// # let engine = Arc::new(Engine::in_memory(Default::default()));
    /// let layer = RateLimitLayer::by_policy_of(
    ///     engine,
    ///     |request| if request.uri.path() == "/login" { "login" } else { "site" },
    ///     PeerAddr::new(),
    /// );
    /// # let _ = layer;
    /// ```
    #[cfg(feature = "engine")]
    pub fn by_policy_of<S, O>(
        engine: Arc<Engine<S, O>>,
        policy_of: impl for<'r> Fn(&'r Parts) -> &'r str + Send + Sync + 'static,
        key: K,
    ) -> Self
    where
        S: Store + fmt::Debug + 'static,
        O: Observer<Label: Default>,
    {
        Self::of(Arc::new(PolicyLimiter::new(engine, PolicyName::Of(Box::new(policy_of)))), key)
    }

    /// Holds the permits for the time of the request.
    #[cfg(feature = "engine")]
    pub(super) fn keeping(mut self) -> Self {
        self.limit.keeps = true;
        self
    }

    fn of(limiter: Arc<dyn LayerLimiter>, key: K) -> Self {
        let (hold, responder) = (Hold::default(), Responder::default());
        let limit = LayerConfig {
            limiter,
            cost: None,
            hold,
            #[cfg(feature = "engine")]
            keeps: false,
            app: None,
            marks_overflow: false,
            responder,
        };
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
        self.limit.responder.name = Some(name.into());
        Ok(self)
    }

    /// Sets the app of the requests to policies: a policy that is for some apps is not available to others. By default
    /// the layer has none.
    #[must_use]
    pub fn app(mut self, app: &str) -> Self {
        self.limit.app = Some(app.into());
        self
    }

    /// Lets requests go on that a policy degrades with a tag, or diverts: the service finds the `Disposition` in the
    /// request's extensions and returns less, or from elsewhere. By default they are refused with 429, so that a
    /// service that does not look at it is protected.
    #[must_use]
    pub fn marks_overflow(mut self, marks_overflow: bool) -> Self {
        self.limit.marks_overflow = marks_overflow;
        self
    }

    /// Sets the function that returns the number of permits that a request takes; by default 1.
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> Cost + Send + Sync + 'static) -> Self {
        self.limit.cost = Some(Arc::new(cost));
        self
    }

    /// Delays no request: one that may pass only later is refused, and `Retry-After` contains the wait.
    ///
    /// By default a request is delayed if its rule requires that (`leaky_bucket`), as long as it requires, or its policy
    /// (`overflow: queue`), up to a minute. Without the feature `tokio` none is delayed, since a delay needs a timer.
    ///
    /// A request that is delayed has been charged; it stays charged if the client goes away. The number
    /// of requests that are delayed at once is bounded by the burst or the longest wait of each key; to
    /// bound it over all keys, put a limit on concurrency in front. A delay panics outside a tokio
    /// runtime with its timer enabled.
    #[must_use]
    pub fn hold_never(mut self) -> Self {
        self.limit.hold = Hold::Never;
        self
    }

    /// Delays each request that may pass only later, up to this long, and books its place: `token_bucket`,
    /// `leaky_bucket` and the `smooth_*` rules book the future. Other rules refuse it. Under a policy it is delayed as
    /// [by default](Self::hold_never), up to this long.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn hold_up_to(mut self, max_wait: impl Into<Micros>) -> Self {
        self.limit.hold = Hold::UpTo(max_wait.into());
        self
    }

    /// Lets `response` make the response to a refused request, of the request without its body, the refusal, and the
    /// name of the rule that refused, as in the header fields. By default it is 429 with a problem document.
    /// `Retry-After` and the other header fields are added to it.
    #[must_use]
    pub fn on_denied(
        mut self,
        response: impl Fn(&Parts, &Decision, &str) -> Response<String> + Send + Sync + 'static,
    ) -> Self {
        self.limit.responder.on_denied = Some(Arc::new(response));
        self
    }

    /// Sets the header fields that report the budget; if `formats` is empty, there are none, except
    /// `Retry-After`. By default [`HeaderFormat::Draft10`].
    #[must_use]
    pub fn formats(mut self, formats: impl IntoIterator<Item = HeaderFormat>) -> Self {
        self.limit.responder.formats = formats.into_iter().collect();
        self
    }

    /// Sets whether responses to allowed requests report the budget too; by default they do.
    #[must_use]
    pub fn headers_on_allowed(mut self, on_allowed: bool) -> Self {
        self.limit.responder.on_allowed = on_allowed;
        self
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
