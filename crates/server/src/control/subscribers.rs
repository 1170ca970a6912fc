//! The parts of a server that follow the catalog.

use std::sync::Arc;

use sluicegate_control::node::CatalogDelta;
use tokio_util::sync::CancellationToken;

use super::admin_api::AdminApi;
use crate::authenticator::Authenticator;
use crate::engine::ServerEngine;
use crate::policies::PolicyManager;

/// Receivers of catalog updates.
#[derive(Clone, Copy)]
pub(crate) struct Subscribers<'a> {
    pub(crate) engine: &'a Arc<ServerEngine>,
    pub(crate) live: &'a Arc<PolicyManager>,
    pub(crate) authenticator: &'a Authenticator,
    pub(crate) admin_api: &'a AdminApi,
    /// Cancelled when the server must get no more traffic.
    pub(crate) leaving: &'a CancellationToken,
    pub(crate) stop: &'a CancellationToken,
}

impl Subscribers<'_> {
    /// Puts a change of the catalog into force.
    pub(super) fn apply(&self, news: CatalogDelta, revision: i64) {
        if let Some(tokens) = &news.tokens {
            self.authenticator.set(Arc::clone(tokens));
        }
        if let Some(policies) =
            self.live.apply_delta(&self.engine.core().policies(), news, revision)
        {
            self.engine.set_policies(policies);
        }
    }
}
