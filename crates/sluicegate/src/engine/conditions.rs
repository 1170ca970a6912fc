//! The settings of a policy beside its rules, as a request carries them to the guard.

use sluicegate_policy::{OnOverload, OnStoreFailure, Policy};
use sluicegate_store::RequestAt;

use crate::lease::LeaseTerms;

/// The settings of a policy for requests that its store does not decide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WithoutStore {
    pub(super) on_failure: OnStoreFailure,
    pub(super) on_overload: OnOverload,
}

/// A request with the conditions of its policy.
pub(super) struct RequestWithConditions<'a> {
    pub(super) conditions: Conditions<'a>,
    pub(super) asked: RequestAt<'a>,
}

/// The settings of a policy beside its rules.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditions<'a> {
    /// The settings for requests that the store does not decide. `None`: then there is no decision.
    pub(super) without_store: Option<WithoutStore>,
    /// The terms on which its keys are leased; `None`: they are not.
    pub(super) lease: Option<LeaseTerms<'a>>,
}

impl WithoutStore {
    /// Returns the settings of `policy`.
    pub(super) const fn of(policy: &Policy) -> Self {
        let (on_failure, on_overload) = (policy.on_store_failure(), policy.on_overload());
        Self { on_failure, on_overload }
    }
}
