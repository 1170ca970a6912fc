//! The settings that a layer shares with its services.

use std::fmt;
use std::sync::Arc;

use ::http::request::Parts;
use sluicegate_kernel::Cost;

use super::key::Key;
use super::limiter::{Deciding, Hold, LayerLimiter, LayerRequest};
use super::respond::Responder;

/// A function that returns the number of permits that a request takes.
type CostOf = Arc<dyn Fn(&Parts) -> Cost + Send + Sync>;

/// The settings that a layer shares with its services.
#[derive(Clone)]
pub(super) struct LayerConfig {
    pub(super) limiter: Arc<dyn LayerLimiter>,
    pub(super) cost: Option<CostOf>,
    pub(super) hold: Hold,
    /// Permits are held for the time of the request.
    #[cfg(feature = "engine")]
    pub(super) keeps: bool,
    pub(super) app: Option<Arc<str>>,
    pub(super) marks_overflow: bool,
    pub(super) responder: Responder,
}

impl LayerConfig {
    /// Takes the cost of `request` from the budget of `key`.
    pub(super) fn decide(&self, key: Key, parts: &Parts) -> Deciding {
        let cost = self.cost.as_ref().map_or(Cost::ONE, |cost_of| cost_of(parts));
        let (app, hold) = (self.app.as_ref(), self.hold);
        self.limiter.decide(&LayerRequest {
            parts,
            key,
            app,
            cost,
            hold,
            #[cfg(feature = "engine")]
            keeps: self.keeps,
        })
    }
}

impl fmt::Debug for LayerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limiter, hold, app, marks_overflow, responder, .. } = self;
        f.debug_struct("LayerConfig")
            .field("limiter", limiter)
            .field("hold", hold)
            .field("app", app)
            .field("marks_overflow", marks_overflow)
            .field("responder", responder)
            .finish_non_exhaustive()
    }
}
