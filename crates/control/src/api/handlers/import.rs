//! Configurations of other rate limiters, as policies. Nothing is changed.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;
use sluicegate_import::{ImportSource, Imported, ImportedPolicy, Note, Severity, import};
use sluicegate_policy::TextPlace;
use utoipa::ToSchema;

use crate::api::problem::{ApiProblem, FindingBody};
use crate::api::request::{ApiRequest, ApiResponse};
use crate::catalog::policy_schema;
use crate::error::{Error, PlacedFinding};

/// A configuration of another rate limiter.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct ImportText {
    /// `envoy` (YAML of envoyproxy/ratelimit), `rate_limiter_info` (CSV), `nginx` or `sentinel` (JSON).
    #[serde(deserialize_with = "source")]
    #[schema(value_type = String)]
    from: ImportSource,
    /// The configuration, at most 2 MiB.
    text: String,
    /// Imports also if more passes than before. If false, such lines are errors.
    #[serde(default)]
    lossy: bool,
}

/// The policies that a configuration becomes.
#[derive(Serialize, ToSchema)]
pub(in crate::api) struct ImportPreview {
    /// The policies, each of which is valid by itself.
    policies: Vec<PreviewedPolicy>,
    /// Differences from the limits that the policies come from, by which as much passes as before, or less.
    notes: Vec<FindingBody>,
    /// Differences by which more passes than before, such as limits that were not imported: only if `lossy`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    wider: Vec<FindingBody>,
    /// The descriptor tree that leads to the policies, as YAML; only for Envoy.
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptors: Option<String>,
}

/// A policy that was imported.
#[derive(Serialize, ToSchema)]
struct PreviewedPolicy {
    /// The policy, as in `policies[]` of a policy document.
    #[schema(schema_with = policy_schema)]
    document: Json,
    /// Comment from the source, such as who is responsible for the limit; null: none.
    comment: Option<String>,
}

pub(in crate::api) async fn preview(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let ImportText { from, text, lossy } = ask.json()?;
    let imported = import(from, &text).and_then(|found| found.unless_wider(lossy));
    let Imported { policies, notes, descriptors } =
        imported.map_err(|notes| Error::Invalid(notes.iter().map(placed).collect()))?;
    let policy =
        |ImportedPolicy { document, comment, line: _ }| PreviewedPolicy { document, comment };
    let (wider, notes): (Vec<_>, Vec<_>) =
        notes.iter().partition(|note| note.severity == Severity::Widens);
    let bodies = |notes: Vec<&Note>| -> Vec<_> {
        notes.into_iter().map(|note| FindingBody::from(&placed(note))).collect()
    };
    Ok(ApiResponse::ok(&ImportPreview {
        policies: policies.into_iter().map(policy).collect(),
        notes: bodies(notes),
        wider: bodies(wider),
        descriptors,
    }))
}

/// Returns a note as a finding at its line of the text.
fn placed(Note { line, severity: _, finding }: &Note) -> PlacedFinding {
    let place = line.map(|line| TextPlace { line, column: 1 });
    PlacedFinding { place, ..PlacedFinding::new("/text", finding.clone()) }
}

fn source<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ImportSource, D::Error> {
    let name = String::deserialize(deserializer)?;
    let all = ImportSource::ALL.map(ImportSource::name).join("`, `");
    let unknown = || serde::de::Error::custom(format!("expected one of `{all}`"));
    ImportSource::parse(&name).ok_or_else(unknown)
}
