//! The query of a request: the parameters of all routes, of which each has its own.

use axum::extract::Query;
use axum::http::{StatusCode, Uri};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use sluicegate_policy::finding;

use super::parameters::query_names;
use super::problem::ApiProblem;
use super::route::Route;
use crate::audit::{AuditOutcome, EntryFilter};
use crate::catalog::{PolicySort, PolicyState};
use crate::traffic::Step;

/// Parameters in a query: of all routes, each of which has [its own](query_names).
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QueryParams {
    pub(super) reason: String,
    pub(super) dry_run: bool,
    pub(super) force: bool,
    pub(super) after: Option<String>,
    pub(super) limit: Option<u32>,
    /// State of the policies to list, or of a policy that is sent as YAML.
    pub(super) state: Option<PolicyState>,
    /// Text that the names in a list contain.
    pub(super) q: String,
    /// Order of the summaries of policies.
    pub(super) sort: PolicySort,
    /// Filter of a list of audit entries: see [`EntryFilter`].
    actor: String,
    action: String,
    target: String,
    outcome: Option<AuditOutcome>,
    pub(super) since: Option<i64>,
    until: Option<i64>,
    /// Selection of traffic: these policies (also of a stream), in buckets of this length, or all as a summary.
    pub(super) policy: String,
    pub(super) step: Option<Step>,
    #[serde(deserialize_with = "flag")]
    pub(super) summary: bool,
    /// Filter of a stream: decisions of this policy, with this result.
    pub(super) tail: Option<String>,
    pub(super) result: Option<String>,
    /// Versions of a policy, to compare.
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
    /// Filter of all tokens: those that end within so many days.
    pub(super) ends_within_days: Option<i64>,
    /// The audit entry behind which verification begins, and its hash.
    pub(super) from_seq: Option<i64>,
    pub(super) from_hash: Option<String>,
}

impl QueryParams {
    /// Parses the query of a request to `route`. That of a route whose query the provider decides has none of these.
    pub(super) fn of(route: &Route, uri: &Uri) -> Result<Self, ApiProblem> {
        if route.is_called_back {
            return Ok(Self::default());
        }
        check_names(route, uri)?;
        parse(uri)
    }

    /// Returns the filter for a list of audit entries.
    pub(super) fn entry_filter(&self) -> EntryFilter {
        let Self { actor, action, target, outcome, since, until, .. } = self;
        let [actor, action, target] = [actor, action, target].map(Clone::clone);
        EntryFilter { actor, action, target, outcome: *outcome, since: *since, until: *until }
    }

    /// Returns the size of a list that has no pages: the requested one, from 1 to `most`.
    pub(super) fn limit(&self, default: u32, most: u32) -> i64 {
        self.limit.unwrap_or(default).clamp(1, most).into()
    }
}

/// Checks that the query has no parameter that the route does not have.
fn check_names(route: &Route, uri: &Uri) -> Result<(), ApiProblem> {
    let parameters: Vec<(String, String)> = parse(uri)?;
    let names = query_names(route);
    let unknown = parameters.iter().find(|(name, _)| !names.contains(&&**name));
    let Some((name, _)) = unknown else { return Ok(()) };
    let problem = if names.is_empty() {
        finding!("query_unwanted", "query: unknown field `{name}`, expected none", name)
    } else {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        finding!(
            "query_unknown",
            "query: unknown field `{name}`, expected one of {names}",
            name,
            names
        )
    };
    Err(ApiProblem::new(StatusCode::BAD_REQUEST, problem))
}

/// Parses a query.
pub(super) fn parse<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiProblem> {
    let query = Query::try_from_uri(uri);
    let Query(query) = query.map_err(|error| {
        let problem = finding!("bad_query", "{problem}", problem = error.body_text());
        ApiProblem::new(StatusCode::BAD_REQUEST, problem)
    })?;
    Ok(query)
}

/// Parses a flag: `1` or `0`, or as other flags are given.
fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match String::deserialize(from)?.as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(D::Error::custom(format!("`{other}` is neither `1` nor `0`"))),
    }
}
