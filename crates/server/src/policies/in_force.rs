//! The policies and the tree of descriptors that are in force, changed together.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use sluicegate_policy::{DescriptorTree, PolicySet};

use crate::engine::ServerEngine;

/// The engine, and the tree of descriptors that leads to its policies.
#[derive(Debug)]
pub(crate) struct InForce {
    engine: Arc<ServerEngine>,
    tree: ArcSwap<DescriptorTree>,
    /// Held while policies and tree change, so that a change can be waited for.
    changing: Mutex<()>,
}

impl InForce {
    /// The policies of `engine`, and the `tree` that leads to them.
    pub(crate) fn new(engine: Arc<ServerEngine>, tree: DescriptorTree) -> Self {
        Self { engine, tree: ArcSwap::from_pointee(tree), changing: Mutex::default() }
    }

    /// The engine.
    pub(crate) const fn engine(&self) -> &Arc<ServerEngine> {
        &self.engine
    }

    /// The tree that is in force.
    pub(crate) fn tree(&self) -> Guard<Arc<DescriptorTree>> {
        self.tree.load()
    }

    /// The tree that is in force, after a change that may be under way.
    pub(crate) fn tree_after_change(&self) -> Arc<DescriptorTree> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.tree.load_full()
    }

    /// Puts `policies` and the `tree` that leads to them in force together; a part that is `None` stays.
    pub(crate) fn set(&self, policies: Option<PolicySet>, tree: Option<DescriptorTree>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(policies) = policies {
            self.engine.set_policies(policies);
        }
        if let Some(tree) = tree {
            self.tree.store(Arc::new(tree));
        }
    }
}
