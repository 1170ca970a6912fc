//! Names in a path that were not found, with the one that was most likely meant.

use axum::extract::RawPathParams;

use super::Api;
use super::problem::ApiProblem;
use super::route::Route;
use crate::access::{Actor, allow};
use crate::catalog::KnownNames;

/// Returns `problem`. If it is that an app, an account or a policy of the path was not found, adds its name and the
/// nearest one that `actor` may see.
pub(super) async fn named(
    api: &Api,
    actor: &Actor,
    route: &Route,
    params: &RawPathParams,
    problem: ApiProblem,
) -> ApiProblem {
    let param = |name: &str| params.iter().find(|(param, _)| *param == name);
    let (what, of) = match problem.missing() {
        Some("app") => ("app", KnownNames::Apps),
        Some("account") => ("account", KnownNames::Accounts),
        Some("policy") => ("policy", KnownNames::Policies(param("app").map_or("", |(_, app)| app))),
        _ => return problem,
    };
    let Some((_, name)) = param(what) else { return problem };
    // Without known names, the problem still has the name that was not found.
    let names = api.catalog.known_names(of).await.unwrap_or_default();
    let is_seen =
        |known: &&String| what != "app" || allow(actor, route.action, Some(known)).is_ok();
    ApiProblem::not_found(what, name, names.iter().filter(is_seen).map(String::as_str))
}
