//! Live budgets, which are not in the catalog: whoever serves the API looks them up.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use serde::{Deserialize, Serialize};
use sluicegate_policy::Finding;
use utoipa::ToSchema;

/// The budget of a key under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Budget {
    /// Whether the rules allow a request of cost 1 now. One that they refuse may be delayed, or pass, by the
    /// policy's `overflow`.
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
    /// Who knows: `store`, `remembered` (this node knows it from the store) or `local` (the share of this node, while
    /// the store is unavailable).
    pub mode: &'static str,
}

/// What a request meets under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ExplainedKey {
    /// The policy.
    pub policy: String,
    /// The key; null: the budget that all share.
    pub key: Option<String>,
    /// Whether the key has its own rules (`overrides`).
    pub is_override: bool,
    /// What happens to the request.
    pub outcome: KeyOutlook,
    /// Who decides: `store`, `leased` (permits that this node holds), `remembered` (this node knows it from the
    /// store), `local`, `allow`, `deny` or `shed` (without the store, see `on_store_failure`).
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
    /// How many nodes hold them.
    pub holders: u32,
    /// Permits that this node has left of them.
    pub here: u32,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyOutlook {
    /// It passes.
    Passes,
    /// It would be refused, but the policy is in shadow mode: it passes.
    Shadowed,
    /// It waits until the rules allow it, if the queue has room.
    Held,
    /// It gets the fallback of the policy.
    Degraded,
    /// It is sent to the target of the policy.
    Diverted,
    /// It is refused.
    Refused,
}

/// What one rule alone says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RuleOutlook {
    /// Name of the rule.
    pub rule: String,
    /// The algorithm.
    pub algorithm: &'static str,
    /// Whether it decides: its answer is the answer to the request.
    pub decides: bool,
    /// Whether it alone would let the request pass now.
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

/// The request that is to be explained.
#[derive(Clone, Debug, Default)]
pub struct ToExplain {
    /// The app.
    pub app: String,
    /// The policy; none: that of the app which guards the request.
    pub policy: Option<String>,
    /// Whose budget; none: the one that all share.
    pub key: Option<String>,
    /// A request of HTTP that the key is made of, instead of the key.
    pub request: Option<ExplainRequest>,
    /// What it costs.
    pub cost: u64,
}

/// A request of HTTP, as far as policies look at it.
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

/// Why nothing can be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExplainError {
    /// No policy of the app guards the request.
    NoPolicy,
    /// It makes no sense, at this pointer.
    Invalid(&'static str, Finding),
    /// The policy has a `concurrency` rule, which is not charged by checks.
    NoChecks,
    /// There is no answer now.
    Unavailable(String),
}

/// An explanation, or why there is none.
pub type ExplainFuture<'a> =
    Pin<Box<dyn Future<Output = Result<ExplainedKey, ExplainError>> + Send + 'a>>;

/// An answer about a budget, or why there is none.
pub type BudgetFuture<'a> = Pin<Box<dyn Future<Output = Result<Budget, String>> + Send + 'a>>;

/// Nothing, or why a budget cannot be changed now.
pub type StoreFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Where live budgets are looked up.
pub trait Budgets: Send + Sync + fmt::Debug {
    /// What `key` has left of `policy`.
    fn peek<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a>;
    /// Asks the store whether it answers for `key` of `policy`: no share of this node answers in its place.
    fn check_store<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> StoreFuture<'a>;
    /// What a request would meet now, rule by rule; nothing is charged.
    fn explain(&self, asked: ToExplain) -> ExplainFuture<'_>;
    /// Checks that a request can be decided: that there is a policy for it, and that its rules know checks.
    ///
    /// # Errors
    /// [`ExplainError`]; no store is asked.
    fn check_try(&self, asked: &ToExplain) -> Result<(), ExplainError>;
    /// Decides a request and charges it, as any other; the rules are as they are after it.
    fn try_one(&self, asked: ToExplain) -> ExplainFuture<'_>;
    /// Forgets what `key` has used of `policy`.
    fn reset<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a>;
    /// Gives `key` permits of `policy` back, never above full.
    fn grant<'a>(&'a self, policy: &'a str, key: &'a [u8], permits: u64) -> BudgetFuture<'a>;
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
}

fn none<'a>() -> BudgetFuture<'a> {
    Box::pin(ready(Err(NONE.to_owned())))
}
