//! Policies of an app, and their versions.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::api::ask::{Ask, Reply};
use crate::api::problem::Problem;
use crate::catalog::{Diff, PolicyView, State, Wanted, changes};
use crate::error::Error;

/// A policy to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct NewPolicy {
    /// The policy, as in `policies[]` of a policy document.
    #[schema(value_type = Object)]
    document: Json,
    /// `shadow` (default: counts what it would refuse, refuses nothing) or `active`.
    state: Option<State>,
}

/// The new document of a policy.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct PolicyDocument {
    /// The policy, as in `policies[]` of a policy document.
    #[schema(value_type = Object)]
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
}

pub(in crate::api) async fn list(ask: Ask) -> Result<Reply, Problem> {
    let policies = ask.api.catalog.policies(ask.param("app"), &ask.page()).await?;
    Ok(Reply::documents(&ask, policies, |policy| policy.name.clone()))
}

pub(in crate::api) async fn get(ask: Ask) -> Result<Reply, Problem> {
    let (app, policy) = ask.policy();
    Ok(told(&ask.api.catalog.policy(app, policy).await?))
}

pub(in crate::api) async fn create(ask: Ask) -> Result<Reply, Problem> {
    let NewPolicy { document, state } = ask.json()?;
    let state = state.unwrap_or(State::Shadow);
    if state == State::Deleted {
        return Err(Problem::invalid("/state", "expected `shadow` or `active`"));
    }
    let made = ask.api.catalog.create_policy(&ask.by, ask.param("app"), &document, state).await?;
    Ok(Reply::created(&made).version(made.version))
}

pub(in crate::api) async fn apply(ask: Ask) -> Result<Reply, Problem> {
    let WantedPolicies { policies } = ask.json()?;
    // Who has not looked at what there is wants it replaced, whatever it is.
    let version = ask.is_versioned().then(|| ask.version()).transpose()?;
    let applied = ask.api.catalog.apply(&ask.by, ask.param("app"), &policies, version).await?;
    Ok(Reply::ok(&applied).version(applied.version))
}

pub(in crate::api) async fn validate(ask: Ask) -> Result<Reply, Problem> {
    let NewPolicy { document, state } = ask.json()?;
    let judged = ask.api.catalog.judge_policy(ask.param("app"), &document, state).await;
    let (before, warnings) = judged?;
    let before = before.map_or(Json::Null, |before| before.document);
    Ok(Reply::ok(&Validated { changes: changes(&before, &document), warnings }))
}

pub(in crate::api) async fn change(ask: Ask) -> Result<Reply, Problem> {
    let (PolicyDocument { document }, version) = (ask.json()?, ask.version()?);
    let changed = ask.api.catalog.change_policy(&ask.by, ask.policy(), version, &document).await?;
    Ok(told(&changed))
}

pub(in crate::api) async fn activate(ask: Ask) -> Result<Reply, Problem> {
    set_state(&ask, State::Active).await
}

pub(in crate::api) async fn shadow(ask: Ask) -> Result<Reply, Problem> {
    set_state(&ask, State::Shadow).await
}

pub(in crate::api) async fn delete(ask: Ask) -> Result<Reply, Problem> {
    let version = ask.version()?;
    ask.api.catalog.delete_policy(&ask.by, ask.policy(), version).await?;
    Ok(Reply::done())
}

pub(in crate::api) async fn roll_back(ask: Ask) -> Result<Reply, Problem> {
    let (RollBack { to }, version) = (ask.json()?, ask.version()?);
    let back = ask.api.catalog.roll_back_policy(&ask.by, ask.policy(), version, to).await?;
    Ok(told(&back))
}

pub(in crate::api) async fn versions(ask: Ask) -> Result<Reply, Problem> {
    let (app, policy) = ask.policy();
    let versions = ask.api.catalog.policy_versions(app, policy, &ask.page()).await?;
    Ok(Reply::documents(&ask, versions, |version| version.version.to_string()))
}

pub(in crate::api) async fn version(ask: Ask) -> Result<Reply, Problem> {
    let (app, policy) = ask.policy();
    let version = ask.param("version").parse().map_err(|_| Error::NotFound("version"))?;
    Ok(Reply::ok(&ask.api.catalog.policy_version(app, policy, version).await?))
}

pub(in crate::api) async fn diff(ask: Ask) -> Result<Reply, Problem> {
    let ((app, policy), catalog) = (ask.policy(), &ask.api.catalog);
    let to = match ask.query().to {
        Some(to) => to,
        None => catalog.policy(app, policy).await?.version,
    };
    let from = ask.query().from.unwrap_or(to - 1);
    let before = catalog.policy_version(app, policy, from).await?.document;
    let after = catalog.policy_version(app, policy, to).await?.document;
    Ok(Reply::ok(&Diffs { from, to, changes: changes(&before, &after) }))
}

async fn set_state(ask: &Ask, state: State) -> Result<Reply, Problem> {
    let version = ask.version()?;
    let changed = ask.api.catalog.set_policy_state(&ask.by, ask.policy(), version, state).await?;
    Ok(told(&changed))
}

fn told(view: &PolicyView) -> Reply {
    Reply::ok(view).version(view.version)
}
