//! The settings of a policy beside its rules, as a request carries them to the guard.

use sluicegate_policy::{OnOverload, OnStoreFailure, Policy};

use crate::lease::LeaseTerms;

/// The settings of a policy for the time when its store does not decide.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailurePolicy {
    pub(super) on_failure: OnStoreFailure,
    pub(super) on_overload: OnOverload,
}

/// The settings of a policy beside its rules.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditions<'a> {
    /// The settings while the store does not decide. `None`: then there is no decision.
    pub(super) otherwise: Option<FailurePolicy>,
    /// The terms on which its keys are leased; `None`: they are not.
    pub(super) lease: Option<LeaseTerms<'a>>,
}

impl FailurePolicy {
    /// Returns the settings of `policy`.
    pub(super) const fn of(policy: &Policy) -> Self {
        let (on_failure, on_overload) = (policy.on_store_failure(), policy.on_overload());
        Self { on_failure, on_overload }
    }
}
