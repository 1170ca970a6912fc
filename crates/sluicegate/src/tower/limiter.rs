//! The limiters of a layer: its own here, an engine in `policies`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use ::http::request::Parts;
use ::http::{Extensions, Response};
use sluicegate_kernel::{Cost, Decision, Micros, RuleSet, Verb, Verdict};

use super::key::Key;
#[cfg(feature = "engine")]
use crate::engine::HeldPermit;
use crate::keyed::KeyedRateLimiter;

/// Decides the requests of a layer.
pub(super) trait LayerLimiter: fmt::Debug + Send + Sync {
    /// Decides at once, or returns a future of the decision.
    fn decide(&self, request: &LayerRequest<'_>) -> Deciding;
}

/// A request to a limiter of a layer.
#[derive(Debug)]
pub(super) struct LayerRequest<'a> {
    pub(super) parts: &'a Parts,
    pub(super) key: Key,
    pub(super) app: Option<&'a Arc<str>>,
    pub(super) cost: Cost,
    pub(super) hold: Hold,
    /// The permits are held for the time of the request.
    #[cfg(feature = "engine")]
    pub(super) keeps: bool,
}

/// The treatment of a request that may pass, but only later: because a leaky bucket delays it, or
/// another rule would let it pass in a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// The request is refused, and `Retry-After` contains the wait. The only choice without the feature
    /// `tokio`, since a delay needs a timer.
    Never,
    /// The request is delayed if its rule requires that (`leaky_bucket`), as long as it requires, or its policy
    /// (`overflow: queue`), up to a minute. This is the default with the feature `tokio`.
    #[cfg(feature = "tokio")]
    AsTold,
    /// The request is delayed up to this long, and has its place: `token_bucket`, `leaky_bucket` and the
    /// `smooth_*` rules book the future. Other rules refuse it. Under a policy it is delayed as
    /// by `AsTold`, up to this long.
    #[cfg(feature = "tokio")]
    UpTo(Micros),
}

/// A decision that was made, or is being made.
#[expect(
    clippy::large_enum_variant,
    reason = "most are made at once, and a box for each would cost more"
)]
pub(super) enum Deciding {
    Made(Decided),
    Awaited(Pin<Box<dyn Future<Output = Decided> + Send>>),
}

pub(super) type Decided = Result<Ruling, Undecided>;

/// A decision, and the treatment of the request.
#[derive(Debug)]
pub(super) struct Ruling {
    pub(super) decision: Decision,
    /// The rules that were decided together, and the index of the deciding one.
    pub(super) rules: Arc<RuleSet>,
    pub(super) rule: usize,
    /// Time for which the layer has to delay the request.
    pub(super) wait: Micros,
    pub(super) way: Way,
    /// The mode of a decision made without the store; `None` if the store decided.
    pub(super) mode: Option<&'static str>,
    /// The permit that is held for the request.
    #[cfg(feature = "engine")]
    pub(super) held: Option<HeldPermit>,
}

/// The treatment of a request.
#[derive(Debug)]
pub(super) enum Way {
    Pass,
    /// The request is over the limit, and its policy degrades or diverts it by these extensions.
    Mark(Extensions),
    /// The policy's response to a request over the limit.
    Serve(Response<String>),
    /// The request is over the limit.
    Refuse,
    /// The store could not decide, and the policy then refuses.
    Unavailable,
}

/// The reason for which a request was not decided. The texts are for the log, not for clients.
#[derive(Debug)]
pub(super) enum Undecided {
    /// The layer or its policies are configured wrongly.
    SetUp(String),
    /// The store does not answer, and there is no decision without it.
    Unavailable(String),
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

impl LayerLimiter for KeyedRateLimiter<[u8]> {
    fn decide(&self, request: &LayerRequest<'_>) -> Deciding {
        let cost = request.cost;
        let verb = match request.hold {
            // A reservation that may not wait refuses a request that a check would delay.
            Hold::Never => Verb::Reserve { cost, max_wait: Micros::ZERO },
            #[cfg(feature = "tokio")]
            Hold::AsTold => Verb::Check { cost },
            #[cfg(feature = "tokio")]
            Hold::UpTo(max_wait) => Verb::Reserve { cost, max_wait },
        };
        let Verdict { decision, rule } = self.verdict(request.key.as_bytes(), &verb);
        let way = if decision.allowed() { Way::Pass } else { Way::Refuse };
        let (rules, wait) = (Arc::clone(self.shared_rules()), decision.wait());
        Deciding::Made(Ok(Ruling {
            decision,
            rules,
            rule,
            wait,
            way,
            mode: None,
            #[cfg(feature = "engine")]
            held: None,
        }))
    }
}
