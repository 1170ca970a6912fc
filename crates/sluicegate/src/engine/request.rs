//! A request to an engine, and the budget and rules that it resolves to.

use std::borrow::Cow;
use std::sync::Arc;

use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_kernel::{Micros, Unsupported, Verb};
use sluicegate_policy::{OnKeyQuota, Policy, PolicySet, Rules, RulesInForce};
use sluicegate_store::{BeyondQuota, Quota, RuleOrigin, StoreError, StoreRequest};

use super::conditions::{Conditions, WithoutStore};
use crate::lease::LeaseTerms;

/// A request to the engine.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The limits that apply.
    #[doc(hidden)]
    pub limits: Limits<'a>,
    /// The key of the budget, 1..=1024 bytes; `None` is the budget that all share.
    pub key: Option<&'a [u8]>,
    /// The application that asks; a policy may be for some only.
    pub app: Option<&'a str>,
    /// The operation.
    pub verb: Verb,
    /// The longest time for which the request may be delayed.
    pub patience: Patience,
    /// No caller knows the id of the permit that it acquires: a permit that comes too late for it is released.
    #[doc(hidden)]
    pub is_permit_unnamed: bool,
}

/// The limits that apply to a request.
#[derive(Clone, Copy, Debug)]
pub enum Limits<'a> {
    /// The limits of the policy of this name.
    Policy(&'a str),
    /// The limits that the caller brings along; a refusal under them has no overflow. While the store does
    /// not answer, an engine enforces its share of them. All keys of such limits count to one quota in a
    /// memory store, [`Quota::CALLERS`].
    Brought {
        /// The name of the limits. Under another name the same key has another budget, and each app has budgets of its
        /// own. A name that no policy can have, for example with capital letters, avoids confusion with policies.
        name: &'a str,
        /// The limits.
        rules: &'a Rules,
    },
}

/// The longest time for which a request may be delayed until it passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// No delay. A policy whose `overflow` is `queue` refuses what is over the limit.
    #[default]
    None,
    /// As long as the policy allows, for a check of a policy whose `overflow` is `queue`.
    Policy,
    /// For a caller that lets requests go on or not, and cannot hold them back: a gateway.
    ///
    /// The engine delays a request until it may go on, also if it is the rules that delay it; only under
    /// `shadow` nothing is delayed. A request that would be delayed for longer than this is refused, and takes
    /// nothing. An `AtMost` that is granted less than its cost is over the limit and has its policy's overflow
    /// like a check, as does a `Peek`; under `queue` it takes all or nothing.
    Gateway(Micros),
    /// For an `acquire`: as long as this for a permit of a rule with a queue, whatever the policy's `overflow`.
    Permit(Micros),
}

/// The reason for which a request was not decided; see [`charged`](Self::charged) for its effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// There is no policy of this name.
    #[error("policy: unknown policy `{0}`")]
    UnknownPolicy(String),
    /// The policy is not for this application.
    #[error("app: policy `{policy}` is not available to {}", app_name(.app))]
    Unconfigured {
        /// The policy.
        policy: String,
        /// The app of the request.
        app: Option<String>,
    },
    /// The key is empty.
    #[error("key: is empty, expected 1..={KEY_BYTES_MAX} bytes; omit it for the shared budget")]
    EmptyKey,
    /// The key is too long. It is never cut: two users must not share a budget.
    #[error("key: `{0}` bytes are outside 1..={KEY_BYTES_MAX}")]
    LongKey(usize),
    /// The policy's rules do not support the verb.
    #[error("op: {0}")]
    Unsupported(#[from] Unsupported),
    /// The store gave no verdict.
    #[error("store: {0}")]
    Store(StoreError),
}

/// A budget, and the rules by which it is decided.
#[derive(Clone, Debug)]
pub(super) struct ResolvedBudget<'a> {
    /// `None`: the caller brought the limits along.
    pub(super) policy: Option<&'a Arc<Policy>>,
    /// The name of the limits in stores.
    pub(super) name: Cow<'a, str>,
    /// The key in stores: empty for the budget that all share.
    pub(super) key: &'a [u8],
    pub(super) rules: &'a Rules,
    pub(super) origin: RuleOrigin,
    pub(super) quota: Quota<'a>,
}

/// Permits that a request took.
pub(super) struct TakenPermits {
    pub(super) request: OwnedRequest,
    pub(super) permits: u64,
}

/// A request that owns its data.
#[derive(Clone, Debug)]
pub(super) struct OwnedRequest {
    name: String,
    rules: Option<Rules>,
    key: Option<Vec<u8>>,
    app: Option<String>,
    verb: Verb,
    patience: Patience,
    is_permit_unnamed: bool,
}

impl<'a> Request<'a> {
    /// Returns a request without an app, under the policy of this name, that is not delayed.
    pub const fn new(policy: &'a str, key: Option<&'a [u8]>, verb: Verb) -> Self {
        let limits = Limits::Policy(policy);
        let (patience, is_permit_unnamed) = (Patience::None, false);
        Self { limits, key, app: None, verb, patience, is_permit_unnamed }
    }

    /// Returns this request under limits that the caller brings along, with the same name.
    #[must_use]
    #[doc(hidden)]
    pub fn by<'b>(&self, rules: &'b Rules) -> Request<'b>
    where
        'a: 'b,
    {
        Request { limits: Limits::Brought { name: self.limits.name(), rules }, ..self.clone() }
    }

    /// Returns this request with another verb.
    #[must_use]
    pub fn with_verb(&self, verb: Verb) -> Self {
        Self { verb, ..self.clone() }
    }

    /// Returns this request with this patience.
    #[must_use]
    pub fn with_patience(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    pub(super) fn to_owned(&self) -> OwnedRequest {
        OwnedRequest {
            name: self.limits.name().to_owned(),
            rules: match self.limits {
                Limits::Policy(_) => None,
                Limits::Brought { rules, .. } => Some(rules.clone()),
            },
            key: self.key.map(<[u8]>::to_vec),
            app: self.app.map(ToOwned::to_owned),
            verb: self.verb.clone(),
            patience: self.patience,
            is_permit_unnamed: self.is_permit_unnamed,
        }
    }

    /// Returns the key in stores: empty for the budget that all share.
    fn store_key(&self) -> Result<&'a [u8], DecideError> {
        match self.key {
            None => Ok(&[]),
            Some([]) => Err(DecideError::EmptyKey),
            Some(key) if key.len() > KEY_BYTES_MAX => Err(DecideError::LongKey(key.len())),
            Some(key) => Ok(key),
        }
    }
}

impl<'a> Limits<'a> {
    /// The name of the policy, or of the limits that the caller brings along.
    pub const fn name(&self) -> &'a str {
        match *self {
            Self::Policy(name) | Self::Brought { name, .. } => name,
        }
    }

    /// Returns whether the limits are those of a policy.
    pub const fn are_of_policy(&self) -> bool {
        matches!(self, Self::Policy(_))
    }
}

impl OwnedRequest {
    pub(super) fn borrow(&self) -> Request<'_> {
        let Self { name, rules, key, app, verb, patience, is_permit_unnamed } = self;
        let limits = match rules {
            None => Limits::Policy(name),
            Some(rules) => Limits::Brought { name, rules },
        };
        let (key, app) = (key.as_deref(), app.as_deref());
        let (verb, patience) = (verb.clone(), *patience);
        Request { limits, key, app, verb, patience, is_permit_unnamed: *is_permit_unnamed }
    }
}

impl<'a> ResolvedBudget<'a> {
    /// Returns the budget of `request`, if its policy, key and app are valid.
    #[inline]
    pub(super) fn of(
        policies: &'a PolicySet,
        request: &Request<'a>,
        now: Micros,
    ) -> Result<Self, DecideError> {
        let key = request.store_key()?;
        match request.limits {
            Limits::Policy(name) => {
                let policy = admitting(policies, name, request)?;
                Ok(Self::of_policy(policy, key, policy.rules_at(key, now)))
            }
            Limits::Brought { name, rules } => {
                let (name, quota) = (own_name(name, request.app), Quota::CALLERS);
                Ok(Self { policy: None, name, key, rules, origin: RuleOrigin::Caller, quota })
            }
        }
    }

    /// Returns the budget of `key` under these rules of `policy`.
    #[inline]
    pub(super) fn of_policy(
        policy: &'a Arc<Policy>,
        key: &'a [u8],
        RulesInForce { rules, since, .. }: RulesInForce<'a>,
    ) -> Self {
        let origin = RuleOrigin::Policy { since };
        let beyond = match policy.on_key_quota() {
            OnKeyQuota::Share => BeyondQuota::Share,
            OnKeyQuota::Deny => BeyondQuota::Deny,
        };
        // Keys count to the policy's quota with its overrides.
        let quota = Quota { name: policy.name(), beyond };
        let name = Cow::Borrowed(policy.name());
        Self { policy: Some(policy), name, key, rules, origin, quota }
    }

    /// Returns the request to a store for `verb` on this budget.
    #[inline]
    pub(super) fn ask<'s>(&'s self, verb: &'s Verb) -> StoreRequest<'s> {
        let Self { policy: _, name, key, rules, origin, quota } = self;
        StoreRequest { policy: name, key, rules: rules.set(), verb, origin: *origin, quota: *quota }
    }

    /// The settings of its policy beside the rules.
    #[inline]
    pub(super) fn conditions(&self) -> Conditions<'_> {
        let without_store =
            self.policy.map_or_else(WithoutStore::default, |policy| WithoutStore::of(policy));
        Conditions { without_store: Some(without_store), lease: self.lease() }
    }

    /// The terms on which the policy lets the key be leased; `None`: it does not.
    #[inline]
    pub(super) fn lease(&self) -> Option<LeaseTerms<'_>> {
        let bounds = self.policy?.lease_bounds()?;
        Some(LeaseTerms { rules: self.rules, bounds })
    }
}

/// Returns the policy of this name, if the app of `request` may use that verb on it.
#[inline]
fn admitting<'p>(
    policies: &'p PolicySet,
    name: &str,
    request: &Request<'_>,
) -> Result<&'p Arc<Policy>, DecideError> {
    let Some(policy) = policies.resolve(name) else {
        return Err(DecideError::UnknownPolicy(name.to_owned()));
    };
    let is_for = match request.verb {
        Verb::Refund { .. } | Verb::Reset => policy.entrusts(request.app),
        _ => policy.admits(request.app),
    };
    if is_for { Ok(policy) } else { Err(unconfigured(policy, request.app)) }
}

#[cold]
pub(super) fn unconfigured(policy: &Policy, app: Option<&str>) -> DecideError {
    DecideError::Unconfigured { policy: policy.name().to_owned(), app: app.map(ToOwned::to_owned) }
}

fn app_name(app: &Option<String>) -> String {
    app.as_ref().map_or_else(|| "a caller without an app".to_owned(), |app| format!("app `{app}`"))
}

/// Returns the name under which stores keep a budget of limits that an app brings along, with the app's name if
/// it is known: other apps may use the same name. No policy or app has this name: theirs have no `/`.
fn own_name<'a>(name: &'a str, app: Option<&str>) -> Cow<'a, str> {
    app.map_or(Cow::Borrowed(name), |app| format!("{app}/{name}").into())
}

impl From<StoreError> for DecideError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unsupported(unsupported) => unsupported.into(),
            other => Self::Store(other),
        }
    }
}
