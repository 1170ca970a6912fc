//! Live budgets of keys: read, reset, granted, tried. A change is audited before it is made: a change without an
//! entry would be worse than an entry about a change that was not made.

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use sluicegate_kernel::PermitId;
use sluicegate_text::fields::{Object, whole_number};
use utoipa::ToSchema;

use crate::access::Action;
use crate::api::budgets::{
    Budget, BudgetError, ExplainError, ExplainRequest, ExplainedKey, ToExplain,
};
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::audit::AuditTarget;
use sluicegate_policy::finding;

/// Longest key in bytes, as everywhere.
const KEY_BYTES_MAX: usize = 1_024;

/// Most permits that are granted at a time, as a request may cost.
const PERMITS_MAX: u64 = 1 << 31;

/// Selects a budget.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Key)]
pub(in crate::api) struct KeyParam {
    /// The key, at most 1,024 bytes; null: the budget that all share.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required, max_length = 1024)]
    pub(super) key: Option<String>,
}

/// Permits to give back to a key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Grant {
    /// The key, at most 1,024 bytes; null: the budget that all share.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required, max_length = 1024)]
    key: Option<String>,
    /// Number of permits to give back, 1 to 2^31; the budget never exceeds its limit.
    #[serde(deserialize_with = "whole_number")]
    #[schema(minimum = 1, maximum = 2_147_483_648_u64)]
    permits: u64,
}

pub(in crate::api) async fn peek(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let KeyParam { key } = ask.json()?;
    let key = key.unwrap_or_default();
    let policy = found(&ask, &key).await?;
    reply(ask.api.budgets.peek(&policy, key.as_bytes()).await)
}

/// The request to explain.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Explain {
    /// The key, at most 1,024 bytes; null or absent: the budget that all share.
    #[serde(default)]
    #[schema(max_length = 1024)]
    key: Option<String>,
    /// An HTTP request, whose key is formed as the policy defines; only instead of `key`.
    #[serde(default)]
    #[schema(value_type = Option<ExplainRequest>)]
    request: Option<Object<ExplainRequest>>,
    /// Cost of the request, 1 to 2^31; default 1.
    #[serde(default = "one", deserialize_with = "whole_number")]
    #[schema(minimum = 1, maximum = 2_147_483_648_u64)]
    cost: u64,
}

const fn one() -> u64 {
    1
}

/// Explains a request under one policy.
pub(in crate::api) async fn explain(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (app, policy) = ask.policy();
    let policy = ask.api.catalog.policy(app, policy).await?.name;
    explained(&ask, Some(policy)).await
}

/// Explains an HTTP request under the policy of the app that guards it.
pub(in crate::api) async fn explain_request(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    ask.api.catalog.app(ask.param("app")).await?;
    explained(&ask, None).await
}

async fn explained(ask: &ApiRequest, policy: Option<String>) -> Result<ApiResponse, ApiProblem> {
    let question = to_explain(ask, policy)?;
    explanation(ask.api.budgets.explain(question).await)
}

/// Decides and charges a request, to show its outcome.
pub(in crate::api) async fn try_one(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (app, policy) = ask.policy();
    let policy = ask.api.catalog.policy(app, policy).await?.name;
    let question = to_explain(&ask, Some(policy))?;
    let key = question.key.clone().unwrap_or_default();
    let noted = KeyChange::new(Action::TryKey, &key).of(question.cost);
    if let Err(error) = ask.api.budgets.check_try(&question) {
        if matches!(error, ExplainError::Unavailable(_)) && !ask.by.dry_run {
            noted.audit_failed(&ask).await?;
        }
        return explanation(Err(error));
    }
    if ask.by.dry_run || !noted.audit(&ask).await? {
        return explanation(ask.api.budgets.explain(question).await);
    }
    let tried = ask.api.budgets.try_one(question).await;
    if tried.is_err() {
        ask.api.catalog.forget_request(&ask.by).await?;
        noted.audit_failed(&ask).await?;
    }
    explanation(tried)
}

fn to_explain(ask: &ApiRequest, policy: Option<String>) -> Result<ToExplain, ApiProblem> {
    let Explain { key, request, cost } = ask.json()?;
    if !(1..=PERMITS_MAX).contains(&cost) {
        let problem =
            finding!("outside", "`{value}` is outside 1..={max}", value = cost, max = PERMITS_MAX);
        return Err(ApiProblem::invalid("/cost", problem));
    }
    if key.is_some() && request.is_some() {
        let problem = finding!("key_and_request", "cannot be combined with `key`");
        return Err(ApiProblem::invalid("/request", problem));
    }
    if policy.is_none() && request.is_none() {
        let problem = finding!("request_missing", "is missing");
        return Err(ApiProblem::invalid("/request", problem));
    }
    check_key(key.as_deref().unwrap_or_default())?;
    let app = ask.param("app").to_owned();
    let request = request.map(|Object(request)| request);
    Ok(ToExplain { app, policy, key, request, cost })
}

fn explanation(explained: Result<ExplainedKey, ExplainError>) -> Result<ApiResponse, ApiProblem> {
    match explained {
        Ok(explained) => Ok(ApiResponse::ok(&explained)),
        Err(ExplainError::NoPolicy) => {
            let problem = finding!("no_policy_guards", "no policy of the app guards this request");
            Err(ApiProblem::new(StatusCode::NOT_FOUND, problem))
        }
        Err(ExplainError::Invalid(pointer, problem)) => Err(ApiProblem::invalid(pointer, problem)),
        Err(ExplainError::NoChecks) => {
            let problem = finding!(
                "try_of_concurrency",
                "the policy has a `concurrency` rule: only a client takes its permits, with `acquire`; \
                 use `keys/explain` to see what it would be answered"
            );
            Err(ApiProblem::new(StatusCode::CONFLICT, problem))
        }
        Err(ExplainError::Unavailable(problem)) => Err(unavailable(&problem)),
    }
}

pub(in crate::api) async fn reset(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let KeyParam { key } = ask.json()?;
    let key = key.unwrap_or_default();
    let policy = found(&ask, &key).await?;
    if ask.by.dry_run {
        return reply(ask.api.budgets.peek(&policy, key.as_bytes()).await);
    }
    let noted = KeyChange::new(Action::ResetKey, &key);
    noted.check_store(&ask, &policy).await?;
    if !noted.audit(&ask).await? {
        return reply(ask.api.budgets.peek(&policy, key.as_bytes()).await);
    }
    noted.done(&ask, ask.api.budgets.reset(&policy, key.as_bytes()).await).await
}

pub(in crate::api) async fn grant(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let Grant { key, permits } = ask.json()?;
    let key = key.unwrap_or_default();
    if !(1..=PERMITS_MAX).contains(&permits) {
        return Err(ApiProblem::invalid(
            "/permits",
            finding!(
                "outside",
                "`{value}` is outside 1..={max}",
                value = permits,
                max = PERMITS_MAX
            ),
        ));
    }
    let policy = found(&ask, &key).await?;
    if ask.by.dry_run {
        return reply(ask.api.budgets.peek(&policy, key.as_bytes()).await);
    }
    let noted = KeyChange::new(Action::GrantKey, &key).of(permits);
    noted.check_store(&ask, &policy).await?;
    if !noted.audit(&ask).await? {
        return reply(ask.api.budgets.peek(&policy, key.as_bytes()).await);
    }
    noted.done(&ask, ask.api.budgets.grant(&policy, key.as_bytes(), permits).await).await
}

/// Returns the name of the policy, if it is one of the app.
pub(super) async fn found(ask: &ApiRequest, key: &str) -> Result<String, ApiProblem> {
    check_key(key)?;
    let (app, policy) = ask.policy();
    Ok(ask.api.catalog.policy(app, policy).await?.name)
}

fn check_key(key: &str) -> Result<(), ApiProblem> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let problem = finding!("key_too_long", "expected at most {max} bytes", max = KEY_BYTES_MAX);
    Err(ApiProblem::invalid("/key", problem))
}

pub(super) fn unavailable(problem: &str) -> ApiProblem {
    let problem = finding!("store_unavailable", "{problem}", problem);
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, problem)
}

/// Content of an audit entry about the live budget of a key.
pub(super) struct KeyChange<'k> {
    action: Action,
    key: &'k str,
    permits: Option<u64>,
    /// The permit that is released.
    permit: Option<PermitId>,
}

impl<'k> KeyChange<'k> {
    pub(super) const fn new(action: Action, key: &'k str) -> Self {
        Self { action, key, permits: None, permit: None }
    }

    /// Adds the number of permits.
    pub(super) fn of(self, permits: u64) -> Self {
        Self { permits: Some(permits), ..self }
    }

    /// Adds the permit that is released.
    pub(super) fn of_permit(self, permit: PermitId) -> Self {
        Self { permit: Some(permit), ..self }
    }

    /// Checks that the store answers, before the change is audited.
    async fn check_store(&self, ask: &ApiRequest, policy: &str) -> Result<(), ApiProblem> {
        let Err(problem) = ask.api.budgets.check_store(policy, self.key.as_bytes()).await else {
            return Ok(());
        };
        self.audit_failed(ask).await?;
        Err(unavailable(&problem))
    }

    /// Audits the change; returns `false` if the same request made it before.
    pub(super) async fn audit(&self, ask: &ApiRequest) -> Result<bool, ApiProblem> {
        let (target, after) = self.noted(ask);
        Ok(ask.api.catalog.audit_key_change(&ask.by, self.action, target, &after).await?)
    }

    /// Replies with the budget. If the change failed, audits that, and lets the request be sent again; but not if the store
    /// may have made it, since a grant that is sent again could be granted twice.
    async fn done(
        &self,
        ask: &ApiRequest,
        changed: Result<Budget, BudgetError>,
    ) -> Result<ApiResponse, ApiProblem> {
        if let Err(error) = &changed {
            if !error.is_perhaps_done {
                ask.api.catalog.forget_request(&ask.by).await?;
            }
            self.audit_failed(ask).await?;
        }
        reply(changed)
    }

    /// Audits that the change was not made.
    pub(super) async fn audit_failed(&self, ask: &ApiRequest) -> Result<(), ApiProblem> {
        let (target, after) = self.noted(ask);
        ask.api.catalog.audit_key_failed(&ask.by, self.action, target, &after).await?;
        Ok(())
    }

    fn noted<'a>(&self, ask: &'a ApiRequest) -> (AuditTarget<'a>, serde_json::Value) {
        let Self { action: _, key, permits, permit } = self;
        let (app, policy) = ask.policy();
        let mut after = json!({ "key": key, "permits": permits });
        if let Some(permit) = permit {
            after["permit"] = permit.to_string().into();
        }
        (AuditTarget::of(app, policy), after)
    }
}

fn reply(budget: Result<Budget, BudgetError>) -> Result<ApiResponse, ApiProblem> {
    let budget = budget.map_err(|error| unavailable(&error.reason))?;
    Ok(ApiResponse::ok(&budget))
}
