//! Policies of an app, and their versions.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::catalog::{
    Diff, PolicyState, PolicyVersion, PolicyView, Wanted, changes, policy_schema,
};
use crate::error::Error;

/// A policy to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct NewPolicy {
    /// The policy, as in `policies[]` of a policy document.
    #[schema(schema_with = policy_schema)]
    document: Json,
    /// `shadow` (default: counts what it would refuse, refuses nothing) or `active`.
    state: Option<PolicyState>,
}

/// The new document of a policy.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct PolicyDocument {
    /// The policy, as in `policies[]` of a policy document.
    #[schema(schema_with = policy_schema)]
    document: Json,
}

/// The policies that an app should have; its other policies are deleted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct WantedPolicies {
    /// The policies of the app after the change.
    #[schema(value_type = Vec<NewPolicy>)]
    policies: Vec<Wanted>,
}

/// The version to restore.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct RollBack {
    /// Version number.
    to: i64,
}

/// How to restore a deleted policy.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Restore {
    /// Version number.
    to: i64,
    /// `shadow` (default: counts what it would refuse, refuses nothing) or `active`.
    state: Option<PolicyState>,
}

/// A valid policy: what it would change.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Validated {
    /// Differences from the current policy of this name.
    changes: Vec<Diff>,
    /// Warnings: effects that could lock out clients.
    warnings: Vec<String>,
}

/// Differences between two versions.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Diffs {
    from: i64,
    to: i64,
    changes: Vec<Diff>,
    before: VersionHead,
    after: VersionHead,
}

/// A version without its document.
#[derive(Serialize, ToSchema)]
struct VersionHead {
    /// The state from this version on.
    state: PolicyState,
    /// Author of the version.
    author: String,
    /// The reason given.
    reason: String,
    /// Time, in milliseconds since 1970.
    at: i64,
}

pub(in crate::api) async fn list(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let state = ask.query().state;
    let policies = ask.api.catalog.policies(ask.param("app"), state, &ask.page()).await?;
    Ok(ApiResponse::documents(&ask, policies, |policy| policy.name.clone()))
}

pub(in crate::api) async fn get(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (app, policy) = ask.policy();
    Ok(policy_response(&ask.api.catalog.policy(app, policy).await?))
}

pub(in crate::api) async fn create(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let NewPolicy { document, state } = ask.json()?;
    let state = initial_state(state)?;
    let made = ask.api.catalog.create_policy(&ask.by, ask.param("app"), &document, state).await?;
    Ok(ApiResponse::created(&made).version(made.version))
}

pub(in crate::api) async fn apply(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let WantedPolicies { policies } = ask.json()?;
    // Who has not looked at what there is wants it replaced, whatever it is.
    let version = ask.is_versioned().then(|| ask.version()).transpose()?;
    let applied = ask.api.catalog.apply(&ask.by, ask.param("app"), &policies, version).await?;
    Ok(ApiResponse::ok(&applied).version(applied.version))
}

pub(in crate::api) async fn validate(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let NewPolicy { document, state } = ask.json()?;
    let judged = ask.api.catalog.judge_policy(ask.param("app"), &document, state).await;
    let (before, warnings) = judged?;
    let before = before.map_or(Json::Null, |before| before.document);
    Ok(ApiResponse::ok(&Validated { changes: changes(&before, &document), warnings }))
}

pub(in crate::api) async fn change(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (PolicyDocument { document }, version) = (ask.json()?, ask.version()?);
    let changed =
        ask.api.catalog.change_policy(&ask.by, &ask.policy_at(version), &document).await?;
    Ok(policy_response(&changed))
}

pub(in crate::api) async fn activate(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    set_state(&ask, PolicyState::Active).await
}

pub(in crate::api) async fn shadow(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    set_state(&ask, PolicyState::Shadow).await
}

pub(in crate::api) async fn delete(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let version = ask.version()?;
    ask.api.catalog.delete_policy(&ask.by, &ask.policy_at(version)).await?;
    Ok(ApiResponse::done())
}

pub(in crate::api) async fn roll_back(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (RollBack { to }, version) = (ask.json()?, ask.version()?);
    let back = ask.api.catalog.roll_back_policy(&ask.by, &ask.policy_at(version), to).await?;
    Ok(policy_response(&back))
}

pub(in crate::api) async fn restore(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let Restore { to, state } = ask.json()?;
    let state = initial_state(state)?;
    let restored = ask.api.catalog.restore_policy(&ask.by, ask.policy(), to, state).await?;
    Ok(policy_response(&restored))
}

pub(in crate::api) async fn versions(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (app, policy) = ask.policy();
    let versions = ask.api.catalog.policy_versions(app, policy, &ask.page()).await?;
    Ok(ApiResponse::documents(&ask, versions, |version| version.version.to_string()))
}

pub(in crate::api) async fn version(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (app, policy) = ask.policy();
    let version = ask.param("version").parse().map_err(|_| Error::NotFound("version"))?;
    Ok(ApiResponse::ok(&ask.api.catalog.policy_version(app, policy, version).await?))
}

pub(in crate::api) async fn diff(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let ((app, policy), catalog) = (ask.policy(), &ask.api.catalog);
    let to = match ask.query().to {
        Some(to) => to,
        None => catalog.policy(app, policy).await?.version,
    };
    let from = ask.query().from.unwrap_or(to - 1);
    let before = catalog.policy_version(app, policy, from).await?;
    let after = catalog.policy_version(app, policy, to).await?;
    let changes = changes(&before.document, &after.document);
    let (before, after) = (VersionHead::of(before), VersionHead::of(after));
    Ok(ApiResponse::ok(&Diffs { from, to, changes, before, after }))
}

/// The state of a policy that is created or restored.
fn initial_state(state: Option<PolicyState>) -> Result<PolicyState, ApiProblem> {
    match state.unwrap_or(PolicyState::Shadow) {
        PolicyState::Deleted => Err(ApiProblem::invalid("/state", "expected `shadow` or `active`")),
        state => Ok(state),
    }
}

impl VersionHead {
    fn of(version: PolicyVersion) -> Self {
        let PolicyVersion { version: _, state, document: _, author, reason, at } = version;
        Self { state, author, reason, at }
    }
}

async fn set_state(ask: &ApiRequest, state: PolicyState) -> Result<ApiResponse, ApiProblem> {
    let version = ask.version()?;
    let changed = ask.api.catalog.set_policy_state(&ask.by, &ask.policy_at(version), state).await?;
    Ok(policy_response(&changed))
}

fn policy_response(view: &PolicyView) -> ApiResponse {
    ApiResponse::ok(view).version(view.version)
}
