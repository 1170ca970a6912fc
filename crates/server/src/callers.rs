//! Whose requests are answered: the apps that tokens stand for.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use sluicegate_control::node::Tokens;

use crate::config::TokensRequired;

/// The tokens of the catalog, and who has to show one.
#[derive(Debug)]
pub(crate) struct Callers {
    required: TokensRequired,
    /// None: there is no catalog, so there are no tokens, and requests say their app.
    tokens: ArcSwapOption<Tokens>,
}

impl Callers {
    /// Without a catalog: everybody who reaches the server is believed.
    pub(crate) fn believed() -> Self {
        Self { required: TokensRequired::Never, tokens: ArcSwapOption::empty() }
    }

    /// By the tokens of a catalog; none is good until they are [set](Self::set).
    pub(crate) fn by_token(required: TokensRequired) -> Self {
        Self { required, tokens: ArcSwapOption::new(Some(Arc::default())) }
    }

    /// Has these tokens be good, and no others.
    pub(crate) fn set(&self, tokens: Arc<Tokens>) {
        self.tokens.store(Some(tokens));
    }
}
