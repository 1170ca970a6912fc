//! A request of a gateway's client: the policies that guard it, and their joint decision.
//!
//! ```text
//! attributes ─▶ Guarding::of ─▶ the budget of each policy ─▶ decide ─▶ a decision of each, or of the one that refuses
//! ```
//!
//! Every policy whose `match` fits guards the request, and all of them must let it pass; if one does not, none is
//! charged. Forward-auth and recorded traffic (`sluicegate replay`, `policies whatif`) use this one module, so a replay
//! shows what a gateway does.

use std::net::IpAddr;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_kernel::{Cost, Micros, PermitId, Verb};
use sluicegate_policy::{Attributes, Overflow, Policy, PolicySet, attribute};
use sluicegate_store::Store;

pub use sluicegate_policy::path::{PathError, normal_path};

use crate::engine::{
    Admission, BatchError, BatchOutcome, DecideError, Disposition, Observer, Patience, Request,
    Turn,
};
use crate::http::{AddressKey, V6Prefix};

/// Most policies that are decided for one request: each costs a call of its own, and more would be hard to
/// understand.
pub const GUARDING_MAX: usize = 16;

/// Longest time for which a policy delays a request, in a queue or because its rules delay it: as long as
/// gateways wait for an answer unless you configure more. A request that would take longer is refused.
pub const HOLD_MAX: Micros = Micros::from_secs(60);

/// The budgets that a request takes from.
#[derive(Clone, Debug, Default)]
pub struct Guarding {
    /// One for each policy that guards the request, at most [`GUARDING_MAX`], in the order of the document.
    pub budgets: Vec<GuardingBudget>,
    /// Number of policies that guard the request beyond that, and are not decided. Policies in shadow are left out
    /// first, then the last by name, so that all servers leave out the same.
    pub left_out: usize,
    /// Number of policies that match the request but are for other apps.
    pub of_others: usize,
}

/// A budget from which a request takes a permit.
#[derive(Clone, Debug)]
pub struct GuardingBudget {
    /// The policy that guards the request.
    pub policy: Arc<Policy>,
    /// The key; `None` is the budget that all share.
    pub key: Option<Vec<u8>>,
}

/// The decision of one policy on a request.
#[derive(Clone, Debug)]
pub struct PolicyDecision {
    /// The policy.
    pub policy: Arc<Policy>,
    /// The key; `None` is the budget that all share.
    pub key: Option<Vec<u8>>,
    /// Its decision, and its consequences.
    pub admission: Admission,
}

impl Guarding {
    /// Returns the budgets of all policies whose `match` fits a request with these attributes of `app`.
    pub fn of(policies: &PolicySet, attributes: &Attributes<'_>, app: Option<&str>) -> Self {
        let matching: Vec<_> = policies.matching(attributes).collect();
        let of_others = matching.iter().filter(|policy| !policy.guards(app)).count();
        let mut guarding = matching;
        guarding.retain(|policy| policy.guards(app));
        let left_out = guarding.len().saturating_sub(GUARDING_MAX);
        if left_out > 0 {
            guarding.sort_by_key(|policy| (*policy.overflow() == Overflow::Shadow, policy.name()));
            guarding.truncate(GUARDING_MAX);
        }
        let budgets = guarding.into_iter().map(|policy| GuardingBudget::of(policy, attributes));
        Self { budgets: budgets.collect(), left_out, of_others }
    }
}

impl GuardingBudget {
    /// Returns the budget of `policy` from which a request with these attributes takes.
    pub fn of(policy: &Arc<Policy>, attributes: &Attributes<'_>) -> Self {
        Self::with_key(policy, attribute::key_of(policy.key(), attributes))
    }

    /// Returns the budget of `policy` for `key`; an empty one is the budget that all share.
    pub fn with_key(policy: &Arc<Policy>, key: String) -> Self {
        let key = (!key.is_empty()).then(|| bounded(key));
        Self { policy: Arc::clone(policy), key }
    }

    /// Returns a check of one permit, for `app`, that is delayed as gateways need it.
    pub fn check<'a>(&'a self, app: Option<&'a str>) -> Request<'a> {
        let verb = Verb::Check { cost: Cost::ONE };
        let request = Request::new(self.policy.name(), self.key.as_deref(), verb);
        Request { app, patience: Patience::Gateway(HOLD_MAX), ..request }
    }

    /// Returns an acquisition of one permit, for `app`, that waits for it as long as gateways do. Without an answer to the
    /// gateway, the permit is released.
    pub fn acquire<'a>(&'a self, app: Option<&'a str>, permit: PermitId) -> Request<'a> {
        let verb = Verb::Acquire { cost: Cost::ONE, permit };
        Request { verb, is_permit_unnamed: true, ..self.check(app) }
    }
}

impl PolicyDecision {
    /// Returns the decision that answers the request: the first that is not a plain pass, else the first.
    pub fn deciding(decided: &[Self]) -> Option<&Self> {
        let over = decided.iter().find(|decided| decided.admission.way != Disposition::Allowed);
        over.or(decided.first())
    }
}

/// Takes a permit for `app` from each of `budgets`. Returns the decisions of all if all let the request pass, else
/// the one that does not; then none is charged. The request may be delayed here.
///
/// # Errors
/// [`DecideError`]; a refusal is an answer, not an error.
pub async fn decide<S: Store + 'static, O: Observer>(
    turn: &Turn<'_, S, O>,
    budgets: &[GuardingBudget],
    app: Option<&str>,
) -> Result<Vec<PolicyDecision>, DecideError> {
    let checks: Vec<_> = budgets.iter().map(|budget| budget.check(app)).collect();
    let decided = |budget: &GuardingBudget, admission| PolicyDecision {
        policy: Arc::clone(&budget.policy),
        key: budget.key.clone(),
        admission,
    };
    match turn.decide_all(&checks).await {
        Ok(BatchOutcome::Passed(admissions)) => {
            let all = budgets.iter().zip(admissions);
            Ok(all.map(|(budget, admission)| decided(budget, admission)).collect())
        }
        Ok(BatchOutcome::Refused { place, admission, .. }) => {
            Ok(vec![decided(&budgets[place], admission)])
        }
        Err(BatchError { error, .. }) => Err(error),
    }
}

/// Returns the `remote_ip` of a client at `address`: an IPv4 address, or the /64 of an IPv6 address.
pub fn address_text(address: IpAddr) -> String {
    AddressKey::text_of(address, V6Prefix::default())
}

/// Returns the `host` of a request for `asked` in its one spelling: in small letters, without port and final dot.
pub fn host_text(asked: &[u8]) -> String {
    let host = String::from_utf8_lossy(asked).to_ascii_lowercase();
    let end = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name.len(),
        _ => host.len(),
    };
    host[..end].trim_end_matches('.').to_owned()
}

/// Returns `key` for stores: a long one is replaced by its hash, as text, which all wires carry. Gateways do not
/// choose how long the paths and headers of their clients are.
fn bounded(key: String) -> Vec<u8> {
    let is_long = key.len() > KEY_BYTES_MAX;
    if is_long { format!("sha256:{:x}", Sha256::digest(&key)) } else { key }.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_is_the_text_of_its_hash() {
        let longest = "a".repeat(KEY_BYTES_MAX);
        assert_eq!(bounded(longest.clone()), longest.as_bytes());
        let hash = "4a82297889eb505cf6b5cbdf69977afab4632d6557539782f657bd7dc78091a5";
        assert_eq!(bounded(longest + "a"), format!("sha256:{hash}").into_bytes());
    }
}
