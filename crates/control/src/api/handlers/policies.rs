//! Policies of an app, and their versions.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use super::apps::signed_in;
use crate::api::boost::{Boost, place_in_boost};
use crate::api::problem::{ApiProblem, FindingBody};
use crate::api::query::QueryParams;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::catalog::{
    Diff, PolicyFilter, PolicyState, PolicyVersion, PolicyView, Wanted, changes, policy_schema,
};
use crate::error::{Error, PlacedFinding};
use sluicegate_policy::document::InOrder;
use sluicegate_policy::{Places, Policy, WrittenError, WrittenPolicy, finding};
use sluicegate_text::fields::{Object, whole_number};

/// Number of latest changes that are returned by default, and at most: what a person looks at.
const CHANGES: u32 = 10;
const CHANGES_MAX: u32 = 100;

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
    policies: Vec<Object<Wanted>>,
}

/// The version to restore.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct RollBack {
    /// Version number.
    #[serde(deserialize_with = "whole_number")]
    #[schema(minimum = 1)]
    to: i64,
}

/// The version and the state to restore a deleted policy with.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Restore {
    /// Version number.
    #[serde(deserialize_with = "whole_number")]
    #[schema(minimum = 1)]
    to: i64,
    /// `shadow` (default: counts what it would refuse, refuses nothing) or `active`.
    state: Option<PolicyState>,
}

/// A valid policy, and what it would change.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Validated {
    /// The policy as JSON.
    #[schema(schema_with = policy_schema)]
    document: Json,
    /// Differences from the current policy of this name.
    changes: Vec<Diff>,
    /// Warnings: effects that could lock out clients.
    warnings: Vec<FindingBody>,
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

pub(in crate::api) async fn summaries(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let QueryParams { q, state, sort, .. } = ask.query();
    let filter = PolicyFilter { name: q.clone(), state: *state, sort: *sort };
    let found = ask.api.catalog.policy_summaries(ask.param("app"), &filter, &ask.page()).await?;
    Ok(ApiResponse::counted(found.items, found.next, found.total))
}

pub(in crate::api) async fn get(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (app, policy) = ask.policy();
    let policy = ask.api.catalog.policy(app, policy).await?;
    if !ask.wants_yaml() {
        return Ok(policy_response(&policy));
    }
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let text = serde_saphyr::to_string_with_options(&InOrder(&policy.document), options)
        .map_err(|error| Error::Damaged(error.to_string()))?;
    Ok(ApiResponse::yaml(text).version(policy.version))
}

pub(in crate::api) async fn create(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let sent = SentPolicy::read(&ask)?;
    let (app, state) = (ask.param("app"), initial_state(sent.state)?);
    let made = ask.api.catalog.create_policy(&ask.by, app, &sent.document, state).await;
    let made = sent.placed(made)?;
    Ok(ApiResponse::created(&made).version(made.version))
}

pub(in crate::api) async fn apply(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let WantedPolicies { policies } = ask.json()?;
    // Without `If-Match`, the policies are replaced whatever their version.
    let version = ask.is_versioned().then(|| ask.version()).transpose()?;
    let policies: Vec<_> = policies.into_iter().map(|Object(wanted)| wanted).collect();
    let applied = ask.api.catalog.apply(&ask.by, ask.param("app"), &policies, version).await?;
    Ok(ApiResponse::ok(&applied).version(applied.version))
}

/// The latest changes of all policies that the account may see.
pub(in crate::api) async fn latest(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let count = ask.query().limit(CHANGES, CHANGES_MAX);
    let changes = ask.api.catalog.latest_changes(signed_in(&ask)?, count).await?;
    Ok(ApiResponse::all(changes))
}

pub(in crate::api) async fn validate(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let sent = SentPolicy::read(&ask)?;
    let judged = ask.api.catalog.judge_policy(ask.param("app"), &sent.document, sent.state).await;
    let (before, warnings) = sent.placed(judged)?;
    let before = before.map_or(Json::Null, |before| before.document);
    let changes = changes(&before, &sent.document);
    let warnings = warnings.into_iter().map(|warning| FindingBody::from(&sent.place(warning)));
    let warnings = warnings.collect();
    Ok(ApiResponse::ok(&Validated { document: sent.document, changes, warnings }))
}

pub(in crate::api) async fn change(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let (sent, at) = (SentPolicy::read_document(&ask)?, ask.policy_at(ask.version()?));
    let changed = ask.api.catalog.change_policy(&ask.by, &at, &sent.document).await;
    Ok(policy_response(&sent.placed(changed)?))
}

/// Adds an override that ends to the latest version of the policy.
pub(in crate::api) async fn boost(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let boost: Boost = ask.json()?;
    let (app, policy) = ask.policy();
    let before = ask.api.catalog.policy(app, policy).await?;
    let document = boost.applied_to(&before.document, ask.api.now())?;
    let at = ask.policy_at(before.version);
    let changed = ask.api.catalog.boost_key(&ask.by, &at, &boost.key, &document).await;
    let changed = changed.map_err(|error| match error {
        Error::Invalid(found) => Error::Invalid(found.into_iter().map(place_in_boost).collect()),
        other => other,
    });
    Ok(policy_response(&changed?))
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
    let restored = ask.api.catalog.restore_policy(&ask.by, &ask.policy_at(to), state).await?;
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

/// A policy that was sent, as JSON or as YAML.
struct SentPolicy {
    document: Json,
    state: Option<PolicyState>,
    /// Positions of its values, if it is YAML: the body is then the policy alone, and the state is in the query.
    places: Option<Places>,
}

impl SentPolicy {
    /// Reads a policy with the state that it should have.
    fn read(ask: &ApiRequest) -> Result<Self, ApiProblem> {
        if ask.is_yaml() {
            return Self::of_yaml(ask.body(), ask.query().state);
        }
        let NewPolicy { document, state } = ask.json()?;
        Ok(Self { document, state, places: None })
    }

    /// Reads a policy without a state.
    fn read_document(ask: &ApiRequest) -> Result<Self, ApiProblem> {
        if ask.is_yaml() {
            return Self::of_yaml(ask.body(), None);
        }
        let PolicyDocument { document } = ask.json()?;
        Ok(Self { document, state: None, places: None })
    }

    fn of_yaml(body: &[u8], state: Option<PolicyState>) -> Result<Self, ApiProblem> {
        let text = std::str::from_utf8(body).map_err(|error| {
            let problem = finding!("not_utf8", "byte {at} is not UTF-8", at = error.valid_up_to());
            ApiProblem::invalid("", problem)
        })?;
        let read = Policy::written(text).map_err(|errors| {
            let placed = |WrittenError { error, place }| PlacedFinding {
                pointer: error.pointer().to_owned(),
                finding: error.finding().clone(),
                place,
            };
            Error::Invalid(errors.into_iter().map(placed).collect())
        });
        let WrittenPolicy { document, places } = read?;
        Ok(Self { document, state, places: Some(places) })
    }

    /// Returns `found`, with findings at their places in the body as it was sent.
    fn placed<T>(&self, found: Result<T, Error>) -> Result<T, Error> {
        let placed = |all: Vec<_>| all.into_iter().map(|found| self.place(found)).collect();
        found.map_err(|error| match error {
            Error::Invalid(errors) => Error::Invalid(placed(errors)),
            Error::Warned(warnings) => Error::Warned(placed(warnings)),
            other => other,
        })
    }

    fn place(&self, found: PlacedFinding) -> PlacedFinding {
        let Some(places) = &self.places else { return found };
        let pointer = found.pointer.strip_prefix("/document").unwrap_or(&found.pointer).to_owned();
        let place = places.of(&pointer);
        PlacedFinding { pointer, finding: found.finding, place }
    }
}

/// Returns the state of a policy that is created or restored; `shadow` by default.
fn initial_state(state: Option<PolicyState>) -> Result<PolicyState, ApiProblem> {
    match state.unwrap_or(PolicyState::Shadow) {
        PolicyState::Deleted => Err(ApiProblem::invalid(
            "/state",
            finding!("bad_state", "expected `shadow` or `active`"),
        )),
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
