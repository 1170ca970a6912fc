//! Live budgets, which are not in the catalog: the server that serves the API looks them up.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use serde::{Deserialize, Serialize, Serializer};
use sluicegate_kernel::PermitId;
use sluicegate_policy::Finding;
use utoipa::ToSchema;

/// The budget of a key under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Budget {
    /// `true` if the rules allow a request of cost 1 now. A request that they refuse may still be delayed, or pass, by
    /// the policy's `overflow`.
    pub allowed: bool,
    /// The limit of the rule that decides; of `smooth_bursty` and `smooth_warmup` the most permits that are stored.
    pub limit: u64,
    /// Permits left.
    pub remaining: u64,
    /// Time until the rules allow the next request, in µs: 0 if now; null: never.
    pub retry_after_us: Option<u64>,
    /// Time until the budget is full again, in µs.
    pub reset_after_us: u64,
    /// The rule that decides.
    pub rule: String,
    /// Source of the answer: `store`, `remembered` (this node knows it from the store) or `local` (the share of this
    /// node, while the store is unavailable).
    pub mode: &'static str,
}

/// The outcome of a request under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ExplainedKey {
    /// The policy.
    pub policy: String,
    /// The key; null: the budget that all share.
    pub key: Option<String>,
    /// `true` if the key has its own rules (`overrides`).
    pub is_override: bool,
    /// The outcome of the request.
    pub outcome: KeyOutlook,
    /// Mode of the decision: `store`, `leased` (permits that this node holds), `remembered` (this node knows it from
    /// the store), `local`, `allow`, `deny` or `shed` (without the store, see `on_store_failure`).
    pub mode: &'static str,
    /// The rules in their order; null while the store does not answer.
    pub rules: Option<Vec<RuleOutlook>>,
    /// Permits of the key that nodes hold; null if none does.
    pub leased: Option<LeasedPermits>,
}

/// Permits of a key that nodes have leased. They count as used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LeasedPermits {
    /// Permits that all nodes hold: unspent, or spent and not yet reported.
    pub out: u32,
    /// Number of nodes that hold them.
    pub holders: u32,
    /// Permits that this node has left of them.
    pub here: u32,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyOutlook {
    /// The request passes.
    Passes,
    /// The request would be refused, but passes, since the policy is in shadow mode.
    Shadowed,
    /// The request waits until the rules allow it, if the queue has room.
    Held,
    /// The request gets the fallback of the policy.
    Degraded,
    /// The request is sent to the target of the policy.
    Diverted,
    /// The request is refused.
    Refused,
}

/// The answer of one rule alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RuleOutlook {
    /// Name of the rule.
    pub rule: String,
    /// The algorithm.
    pub algorithm: &'static str,
    /// `true` if the rule decides: its answer is the answer to the request.
    pub decides: bool,
    /// `true` if the rule alone would let the request pass now.
    pub allowed: bool,
    /// The limit.
    pub limit: u64,
    /// Permits left.
    pub remaining: u64,
    /// Time until the request can pass, in µs; null: it can now, or never.
    pub retry_after_us: Option<u64>,
    /// Time until the budget is full again, in µs.
    pub reset_after_us: u64,
}

/// The request to explain.
#[derive(Clone, Debug, Default)]
pub struct ToExplain {
    /// The app.
    pub app: String,
    /// The policy; none: that of the app which guards the request.
    pub policy: Option<String>,
    /// The key of the budget; none: the budget that all share.
    pub key: Option<String>,
    /// An HTTP request that the key is made of, instead of the key.
    pub request: Option<ExplainRequest>,
    /// Cost in permits.
    pub cost: u64,
}

/// An HTTP request, with the fields that policies can match.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExplainRequest {
    /// The method in capitals.
    pub method: Option<String>,
    /// The path.
    pub path: Option<String>,
    /// The address of the client, without a port.
    pub remote_ip: Option<String>,
    /// The host.
    pub host: Option<String>,
    /// Header fields by name.
    pub headers: BTreeMap<String, String>,
}

/// Reason why a request cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainError {
    /// No policy of the app guards the request.
    NoPolicy,
    /// The request is invalid, at this pointer.
    Invalid(&'static str, Finding),
    /// The policy has a `concurrency` rule, which is not charged by checks.
    NoChecks,
    /// No answer is available now.
    Unavailable(String),
}

/// An explanation, or the reason why there is none.
pub type ExplainFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ExplainedKey, ExplainError>> + Send + 'a>>;

/// The reason why there is no answer about a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetError {
    /// The reason, in English.
    pub reason: String,
    /// The store may have changed the budget nevertheless: its answer was lost, or came too late.
    pub is_perhaps_done: bool,
}

impl From<&str> for BudgetError {
    /// An error of a budget that was not changed.
    fn from(reason: &str) -> Self {
        Self { reason: reason.to_owned(), is_perhaps_done: false }
    }
}

/// An answer about a budget, or the reason why there is none.
pub type BudgetFuture<'a> = Pin<Box<dyn Future<Output = Result<Budget, BudgetError>> + Send + 'a>>;

/// Success, or the reason why a budget cannot be changed now.
pub type StoreFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// A permit of a `concurrency` rule that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct HeldPermit {
    /// Its id: 32 hexadecimal digits, a hash of the name that the client gave.
    #[serde(serialize_with = "in_digits")]
    #[schema(value_type = String, pattern = "^[0-9a-f]{32}$")]
    pub permit: PermitId,
    /// The permits of the rule that it takes.
    pub cost: u64,
    /// Time until it lapses unless it is renewed, in µs.
    pub lapses_after_us: u64,
}

/// The permits of a key that are held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct HeldPermits {
    /// At most 100 of them: those that lapse first, in this order. They were neither acquired nor renewed for the longest
    /// time.
    pub items: Vec<HeldPermit>,
    /// Number of all that are held.
    pub total: u64,
    /// Sum of the costs of all that are held.
    pub held: u64,
    /// Number of requests that wait for a permit.
    pub waiting: u64,
}

impl HeldPermits {
    /// Returns the list of `items`, in the order in which they lapse, with all of them.
    pub fn of(items: Vec<HeldPermit>, waiting: u64) -> Self {
        let held = items.iter().map(|item| item.cost).sum();
        Self { total: items.len() as u64, held, items, waiting }
    }
}

fn in_digits<S: Serializer>(permit: &PermitId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(permit)
}

/// The reason why there is no list of held permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldError {
    /// The policy has no `concurrency` rule.
    NoPermits,
    /// The store does not answer, for this reason.
    Unavailable(String),
}

/// The permits that are held, all of them, or the reason why there is no list.
pub type HeldFuture<'a> = Pin<Box<dyn Future<Output = Result<HeldPermits, HeldError>> + Send + 'a>>;

/// A release: `true` if the permit was held, or the reason why it was not released.
pub type ReleaseFuture<'a> = Pin<Box<dyn Future<Output = Result<bool, BudgetError>> + Send + 'a>>;

/// Access to live budgets.
pub trait Budgets: Send + Sync + fmt::Debug {
    /// Returns the budget of `key` under `policy`.
    fn peek<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a>;
    /// Checks that the store answers for `key` of `policy`; the share of this node does not count as an answer.
    fn check_store<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> StoreFuture<'a>;
    /// Returns the outcome of a request now, rule by rule; charges nothing.
    fn explain(&self, question: ToExplain) -> ExplainFuture<'_>;
    /// Checks that a request can be decided: that a policy applies, and that its rules support checks.
    ///
    /// # Errors
    /// [`ExplainError`]; the store is not called.
    fn check_try(&self, question: &ToExplain) -> Result<(), ExplainError>;
    /// Decides a request and charges it, as any other; returns the rules as they are after it.
    fn try_one(&self, question: ToExplain) -> ExplainFuture<'_>;
    /// Forgets what `key` has used of `policy`.
    fn reset<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a>;
    /// Gives `key` permits of `policy` back, never above full.
    fn grant<'a>(&'a self, policy: &'a str, key: &'a [u8], permits: u64) -> BudgetFuture<'a>;
    /// Returns the permits of `key` under `policy` that are held, as the store has them.
    fn held<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> HeldFuture<'a>;
    /// Releases `permit` of `key`, as its holder can.
    fn release<'a>(&'a self, policy: &'a str, key: &'a [u8], permit: PermitId)
    -> ReleaseFuture<'a>;
}

const NONE: &str = "no budgets on this server";

/// No budgets: the catalog alone.
#[derive(Clone, Copy, Debug)]
pub struct NoBudgets;

impl Budgets for NoBudgets {
    fn peek<'a>(&'a self, _: &'a str, _: &'a [u8]) -> BudgetFuture<'a> {
        none()
    }

    fn check_store<'a>(&'a self, _: &'a str, _: &'a [u8]) -> StoreFuture<'a> {
        Box::pin(ready(Err(NONE.to_owned())))
    }

    fn explain(&self, _: ToExplain) -> ExplainFuture<'_> {
        Box::pin(ready(Err(ExplainError::Unavailable(NONE.to_owned()))))
    }

    fn check_try(&self, _: &ToExplain) -> Result<(), ExplainError> {
        Err(ExplainError::Unavailable(NONE.to_owned()))
    }

    fn try_one(&self, _: ToExplain) -> ExplainFuture<'_> {
        Box::pin(ready(Err(ExplainError::Unavailable(NONE.to_owned()))))
    }

    fn reset<'a>(&'a self, _: &'a str, _: &'a [u8]) -> BudgetFuture<'a> {
        none()
    }

    fn grant<'a>(&'a self, _: &'a str, _: &'a [u8], _: u64) -> BudgetFuture<'a> {
        none()
    }

    fn held<'a>(&'a self, _: &'a str, _: &'a [u8]) -> HeldFuture<'a> {
        Box::pin(ready(Err(HeldError::Unavailable(NONE.to_owned()))))
    }

    fn release<'a>(&'a self, _: &'a str, _: &'a [u8], _: PermitId) -> ReleaseFuture<'a> {
        Box::pin(ready(Err(NONE.into())))
    }
}

fn none<'a>() -> BudgetFuture<'a> {
    Box::pin(ready(Err(NONE.into())))
}
