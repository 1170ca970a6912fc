//! Where the state of limits lives, and how races end.
//!
//! A store takes a [`Request`] — the rules of a policy, a key and a verb — and decides it in one
//! step: it reads the key's state, lets the kernel decide, and writes what the kernel says, so that
//! no other request of the same key comes between. What the rules mean, it does not know.
//!
//! [`MemoryStore`] keeps the state in this process. Other stores implement [`Store`] beside it.

mod memory;
#[cfg(feature = "redis")]
pub mod redis;

use std::future::Future;
use std::sync::Arc;

pub use memory::{
    KEYS_MAX, KEYS_MAX_DEFAULT, KeyHash, MemoryStore, Restored, Saved, SnapshotError,
};
pub use sluicegate_kernel::Verdict;
use sluicegate_kernel::{Moment, RuleSet, Unsupported, Verb};

/// One request as a store sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The policy's name: the same key under another policy is another budget.
    pub policy: &'a str,
    /// Whose budget it is; empty is the budget that all share.
    pub key: &'a [u8],
    /// The rules that hold for this key now.
    pub rules: &'a Arc<RuleSet>,
    /// What is wanted.
    pub verb: &'a Verb,
}

/// Why a store gave no verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The rules do not know the verb; no state was changed.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The store did not answer in time, or said that it cannot.
    #[error("{reason}")]
    Unavailable {
        /// What happened, without secrets.
        reason: String,
        /// Whether the request took effect nevertheless.
        executed: Executed,
    },
    /// The store answers, but callers with other rules came in between each time.
    #[error("others change the rules of this key all the time")]
    Contended {
        /// Whether the request took effect nevertheless.
        executed: Executed,
    },
}

impl StoreError {
    /// Whether the request took effect nevertheless.
    pub const fn executed(&self) -> Executed {
        match self {
            Self::Unsupported(_) => Executed::No,
            Self::Unavailable { executed, .. } | Self::Contended { executed } => *executed,
        }
    }
}

/// Whether a request that was not answered took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// It was not executed; asking again is safe.
    No,
    /// Nobody knows; asking again might charge twice.
    Perhaps,
}

/// A place for state.
pub trait Store: Send + Sync {
    /// Decides `request` at the moment `at`, atomically.
    ///
    /// # Errors
    /// [`StoreError`] if there is no verdict. A refusal is a verdict.
    fn decide(
        &self,
        request: &Request<'_>,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<Verdict, StoreError>> + Send;

    /// The same from a store that has nobody to wait for; `None` from others, and nothing was done.
    fn decide_at_once(
        &self,
        request: &Request<'_>,
        at: &Moment<'_>,
    ) -> Option<Result<Verdict, StoreError>> {
        let _ = (request, at);
        None
    }

    /// Says that these keys, (policy, key) each, will be decided next. Changes nothing.
    fn expect<'k>(&self, keys: impl Iterator<Item = (&'k str, &'k [u8])>) {
        drop(keys);
    }
}

impl Store for MemoryStore {
    fn decide(
        &self,
        request: &Request<'_>,
        at: &Moment<'_>,
    ) -> impl Future<Output = Result<Verdict, StoreError>> + Send {
        std::future::ready(self.decide_now(request, at).map_err(StoreError::from))
    }

    #[inline]
    fn decide_at_once(
        &self,
        request: &Request<'_>,
        at: &Moment<'_>,
    ) -> Option<Result<Verdict, StoreError>> {
        Some(self.decide_now(request, at).map_err(StoreError::from))
    }

    fn expect<'k>(&self, keys: impl Iterator<Item = (&'k str, &'k [u8])>) {
        self.expect(keys);
    }
}
