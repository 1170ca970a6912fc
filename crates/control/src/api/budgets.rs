//! Live budgets, which are not in the catalog: whoever serves the API looks them up.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;

use serde::Serialize;
use utoipa::ToSchema;

/// The budget of a key under a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Budget {
    /// Whether a request of cost 1 would be allowed now.
    pub allowed: bool,
    /// The limit of the rule that decides.
    pub limit: u64,
    /// Permits left.
    pub remaining: u64,
    /// Time until the next request can pass, in µs; absent: never.
    pub retry_after_us: Option<u64>,
    /// Time until the budget is full again, in µs.
    pub reset_after_us: u64,
    /// The rule that decides.
    pub rule: String,
}

/// An answer about a budget, or why there is none.
pub type BudgetFuture<'a> = Pin<Box<dyn Future<Output = Result<Budget, String>> + Send + 'a>>;

/// Where live budgets are looked up.
pub trait Budgets: Send + Sync + fmt::Debug {
    /// What `key` has left of `policy`.
    fn peek<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a>;
    /// Forgets what `key` has used of `policy`.
    fn reset<'a>(&'a self, policy: &'a str, key: &'a [u8]) -> BudgetFuture<'a>;
    /// Gives `key` permits of `policy` back, never above full.
    fn grant<'a>(&'a self, policy: &'a str, key: &'a [u8], permits: u64) -> BudgetFuture<'a>;
}

/// No budgets: the catalog alone.
#[derive(Clone, Copy, Debug)]
pub struct NoBudgets;

impl Budgets for NoBudgets {
    fn peek<'a>(&'a self, _: &'a str, _: &'a [u8]) -> BudgetFuture<'a> {
        none()
    }

    fn reset<'a>(&'a self, _: &'a str, _: &'a [u8]) -> BudgetFuture<'a> {
        none()
    }

    fn grant<'a>(&'a self, _: &'a str, _: &'a [u8], _: u64) -> BudgetFuture<'a> {
        none()
    }
}

fn none<'a>() -> BudgetFuture<'a> {
    Box::pin(ready(Err("no budgets on this server".to_owned())))
}
