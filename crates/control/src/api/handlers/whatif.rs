//! Comparison of the policies of an app with a draft, on the requests of a log that is sent.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use sluicegate_policy::{Document, KeyAttribute, PolicySet, finding};
use sluicegate_text::fields::Object;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder, RefBuilder};
use utoipa::openapi::{RefOr, Schema};

use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::api::whatif::{Comparison, ToCompare, WhatIfError};
use crate::catalog::{Page, PolicyState, PolicyView, policy_schema};
use crate::error::{Error, PlacedFinding};

/// Maximum time of a comparison: a person waits for it.
const COMPARED_MAX: Duration = Duration::from_secs(20);

/// Maximum number of attributes of a key.
const ATTRIBUTES_MAX: usize = 8;

/// The first line of a body: the draft to compare with the policies of the app. The log stands behind it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WhatIf)]
pub(in crate::api) struct WhatIfQuestion {
    /// All policies that the app would have, as in a policy document, or the draft of one of them.
    #[schema(schema_with = draft_schema)]
    policies: Draft,
    /// Name of the policy that guards all lines; default: all that match it, or the only one.
    policy: Option<String>,
    /// Attributes that form the keys, such as `remote_ip`; default: as the policies say.
    key: Option<Vec<String>>,
    /// A log that was sent before, instead of one in this body.
    log_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of policies, or the `name` and `document` of one")]
enum Draft {
    All(Vec<Json>),
    One(Object<DraftPolicy>),
}

/// The draft of one policy; the other policies of the app stay as they are.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct DraftPolicy {
    /// The policy of the app that it would replace; it is added if there is none of this name.
    name: String,
    /// The draft, which is enforced in the comparison.
    #[schema(schema_with = policy_schema)]
    document: Json,
}

/// A comparison, and the id of its log.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct Compared {
    /// Id to send instead of the log in the next 15 minutes: on this node, by the account or token that sent the log.
    log_id: String,
    #[serde(flatten)]
    comparison: Comparison,
}

pub(in crate::api) async fn compare(mut ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let question: WhatIfQuestion = ask.json()?;
    let key = question.key.as_deref().map(attributes).transpose()?;
    let now = policies_now(&ask).await?;
    let (log, kept) = log(&ask, question.log_id.as_deref())?;

    // Dropped when the client goes away.
    let end = EndOnDrop(Arc::default());
    let over = Arc::clone(&end.0);
    let is_over = Arc::new(move || over.load(Ordering::Relaxed));
    let (what_if, slot, policy) = (Arc::clone(&ask.api.what_if), ask.take_slot(), question.policy);
    let (draft, compared_log) = (question.policies, log.clone());
    let mut comparing = spawn_blocking(move || {
        let (today, draft) = (today(&now)?, draft_set(&now, &draft)?);
        let comparison = ToCompare { today, draft, policy, key, log: compared_log, is_over };
        let compared = what_if.compare(comparison).map_err(ApiProblem::from);
        drop(slot);
        compared
    });
    let compared = match timeout(COMPARED_MAX, &mut comparing).await {
        Ok(compared) => compared,
        Err(_) => {
            end.0.store(true, Ordering::Relaxed);
            comparing.await
        }
    };
    let comparison = compared.map_err(|error| failed(&error))??;
    let log_id = kept.unwrap_or_else(|| ask.api.logs.keep(ask.by.actor.key(), log, ask.by.at));
    Ok(ApiResponse::ok(&Compared { log_id, comparison }))
}

/// Returns the log to compare on, and its id if it is kept already.
fn log(
    ask: &ApiRequest,
    id: Option<&str>,
) -> Result<(axum::body::Bytes, Option<String>), ApiProblem> {
    let sent = ask.log();
    match id {
        None if sent.is_empty() => {
            let problem =
                finding!("log_missing", "the log is missing: send it after the first line");
            Err(ApiProblem::invalid("", problem))
        }
        None => Ok((sent.clone(), None)),
        Some(_) if !sent.is_empty() => {
            let problem = finding!("log_and_id", "cannot be combined with a log");
            Err(ApiProblem::invalid("/log_id", problem))
        }
        Some(id) => {
            let kept = ask.api.logs.get(&ask.by.actor.key(), id, ask.by.at).ok_or_else(|| {
                let problem = finding!("log_gone", "the log is no longer kept; send it again");
                ApiProblem::new(StatusCode::NOT_FOUND, problem)
            })?;
            Ok((kept, Some(id.to_owned())))
        }
    }
}

fn attributes(names: &[String]) -> Result<Vec<KeyAttribute>, ApiProblem> {
    if names.len() > ATTRIBUTES_MAX {
        let problem = finding!(
            "too_many_attributes",
            "expected at most {max} attributes",
            max = ATTRIBUTES_MAX
        );
        return Err(ApiProblem::invalid("/key", problem));
    }
    let parsed = names.iter().enumerate().map(|(place, name)| {
        KeyAttribute::parse(name)
            .map_err(|error| ApiProblem::invalid(format!("/key/{place}"), error.into_finding()))
    });
    parsed.collect()
}

/// Returns all policies of the app.
async fn policies_now(ask: &ApiRequest) -> Result<Vec<PolicyView>, ApiProblem> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = Page { after, limit: None };
        let more = ask.api.catalog.policies(ask.param("app"), None, &page).await?;
        let Some(last) = more.last() else { return Ok(all) };
        after = Some(last.name.clone());
        all.extend(more);
    }
}

/// Returns the policies of the app as they are in force.
fn today(views: &[PolicyView]) -> Result<PolicySet, ApiProblem> {
    let documents = views.iter().map(in_force).collect::<Result<Vec<_>, _>>()?;
    joined(documents)
}

/// Returns the policies of the app with the draft.
fn draft_set(views: &[PolicyView], draft: &Draft) -> Result<PolicySet, ApiProblem> {
    match draft {
        Draft::All(policies) => joined(vec![read(policies, "/policies")?]),
        Draft::One(Object(DraftPolicy { name, document })) => {
            let draft = read(slice::from_ref(document), "/policies/document")?;
            let others = views.iter().filter(|view| view.name != *name);
            let mut documents = others.map(in_force).collect::<Result<Vec<_>, _>>()?;
            documents.push(draft);
            joined(documents)
        }
    }
}

/// Returns a policy as it is in force: in shadow mode, it refuses nothing.
fn in_force(view: &PolicyView) -> Result<Document, ApiProblem> {
    let mut document = view.document.clone();
    if view.state == PolicyState::Shadow {
        document["overflow"] = json!("shadow");
    }
    let text = json!({ "policies": [document] }).to_string();
    Document::parse(&text)
        .map_err(|error| Error::Damaged(format!("policy {}: {error}", view.name)).into())
}

/// Parses policies that were sent at `pointer`: a list, or one policy.
fn read(policies: &[Json], pointer: &str) -> Result<Document, ApiProblem> {
    let text = json!({ "policies": policies }).to_string();
    Document::parse(&text).map_err(|errors| {
        let placed = errors.errors().iter().map(|error| {
            let at = error.pointer();
            let at = match pointer {
                "/policies" => at.to_owned(),
                one => format!("{one}{}", at.strip_prefix("/policies/0").unwrap_or_default()),
            };
            PlacedFinding::new(at, error.finding().clone())
        });
        Error::Invalid(placed.collect()).into()
    })
}

/// Joins documents into a set that is open to every app, since a log does not name apps.
fn joined(documents: Vec<Document>) -> Result<PolicySet, ApiProblem> {
    let joined = Document::joined(documents);
    let joined =
        joined.map_err(|error| ApiProblem::invalid("/policies", error.error.finding().clone()))?;
    Ok(PolicySet::new(joined.for_every_app()))
}

/// Ends a comparison when its request is dropped.
struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn failed(error: &JoinError) -> ApiProblem {
    tracing::error!("what-if: {error}");
    WhatIfError::Unavailable.into()
}

impl From<WhatIfError> for ApiProblem {
    fn from(error: WhatIfError) -> Self {
        match error {
            WhatIfError::Events => Self::invalid(
                "",
                finding!(
                    "log_of_events",
                    "the log is JSON, expected an access log in the format `combined`"
                ),
            ),
            WhatIfError::Unreadable(problem) => Self::invalid(
                "",
                finding!("log_unreadable", "the log cannot be read: {problem}", problem),
            ),
            WhatIfError::UnknownPolicy(name) => Self::invalid(
                "/policy",
                finding!("unknown_policy_name", "unknown policy `{name}`", name),
            ),
            WhatIfError::PolicyMissing(count) => Self::invalid(
                "/policy",
                finding!(
                    "policy_missing",
                    "is missing: choose one of the {count} policies, or give them a `match`",
                    count
                ),
            ),
            WhatIfError::NotLogged(attribute) => Self::invalid(
                "/key",
                finding!(
                    "not_logged",
                    "logs have no attribute `{attribute}`; choose another",
                    attribute
                ),
            ),
            WhatIfError::Unavailable => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                finding!("whatif_unavailable", "no what-if on this server"),
            ),
        }
    }
}

/// The schema of [`Draft`].
fn draft_schema() -> RefOr<Schema> {
    let one = RefBuilder::new().ref_location_from_schema_name("DraftPolicy");
    let all = ArrayBuilder::new().items(policy_schema());
    Schema::OneOf(OneOfBuilder::new().item(all).item(one.build()).build()).into()
}
