//! The permits of a key that are held: listed, and released for a holder that is stuck. A release is audited before it is
//! made, as every change of a live budget (`keys.rs`).

use axum::http::StatusCode;
use serde::Deserialize;
use sluicegate_kernel::PermitId;
use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_kernel::written::excerpt;
use sluicegate_policy::finding;
use utoipa::ToSchema;

use super::keys::{KeyChange, KeyParam, found, unavailable};
use crate::access::Action;
use crate::api::budgets::{HeldError, HeldPermit, HeldPermits};
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};

/// Most permits in one answer: more than an operator reads, and 10 KB at most. A permit that is not listed can be released by
/// its id or its name. Those that lapse first are listed, since a holder that has died renews no more.
const LISTED_MAX: usize = 100;

/// The permit to release.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Release {
    /// The key, at most 1,024 bytes; null: the budget that all share.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schema(required, max_length = 1024)]
    key: Option<String>,
    /// The id of the permit, as `keys/permits` lists it: 32 hexadecimal digits. Either this or `id`.
    #[serde(default)]
    #[schema(pattern = "^[0-9A-Fa-f]{32}$")]
    permit: Option<String>,
    /// The name that the client gave the permit, 1 to 1,024 bytes.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 1024)]
    id: Option<String>,
}

/// Lists the permits of a key that are held.
pub(in crate::api) async fn list(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let KeyParam { key } = ask.json()?;
    let key = key.unwrap_or_default();
    let policy = found(&ask, &key).await?;
    Ok(reply(ask.api.budgets.held(&policy, key.as_bytes()).await.map_err(no_list)?))
}

/// Releases a permit; replies with those that are still held.
pub(in crate::api) async fn release(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let Release { key, permit, id } = ask.json()?;
    let key = key.unwrap_or_default();
    let permit = permit_of(permit.as_deref(), id.as_deref())?;
    let policy = found(&ask, &key).await?;
    let noted = KeyChange::new(Action::ReleasePermit, &key).of_permit(permit);
    let held = match ask.api.budgets.held(&policy, key.as_bytes()).await {
        Ok(held) => held,
        Err(error) => {
            if matches!(error, HeldError::Unavailable(_)) && !ask.by.dry_run {
                noted.audit_failed(&ask).await?;
            }
            return Err(no_list(error));
        }
    };
    let Some(place) = held.items.iter().position(|held| held.permit == permit) else {
        let was_made = !ask.by.dry_run && ask.api.catalog.was_made(&ask.by).await?;
        return if was_made { Ok(reply(held)) } else { Err(not_held(permit)) };
    };
    let noted = noted.of(held.items[place].cost);
    if ask.by.dry_run || !noted.audit(&ask).await? {
        return Ok(reply(held));
    }
    match ask.api.budgets.release(&policy, key.as_bytes(), permit).await {
        Ok(true) => {
            // The permit was released, even if the others cannot be listed now.
            let after = ask.api.budgets.held(&policy, key.as_bytes()).await;
            Ok(reply(after.unwrap_or_else(|_| without(held, place))))
        }
        // Its holder released it meanwhile, or it lapsed.
        Ok(false) => {
            ask.api.catalog.forget_request(&ask.by).await?;
            noted.audit_failed(&ask).await?;
            Err(not_held(permit))
        }
        Err(error) => {
            if !error.is_perhaps_done {
                ask.api.catalog.forget_request(&ask.by).await?;
            }
            noted.audit_failed(&ask).await?;
            Err(unavailable(&error.reason))
        }
    }
}

/// The permit that a request means, by its id or by its name.
fn permit_of(permit: Option<&str>, id: Option<&str>) -> Result<PermitId, ApiProblem> {
    match (permit, id) {
        (Some(digits), None) => PermitId::from_hex(digits).ok_or_else(|| {
            let given = excerpt(digits);
            let problem =
                finding!("bad_permit", "`{given}` is not 32 hexadecimal digits", given = given);
            ApiProblem::invalid("/permit", problem)
        }),
        (None, Some(name)) if (1..=KEY_BYTES_MAX).contains(&name.len()) => {
            Ok(PermitId::named(name))
        }
        (None, Some(name)) => {
            let (value, max) = (name.len(), KEY_BYTES_MAX);
            let problem = finding!(
                "permit_name_length",
                "`{value}` bytes are outside 1..={max}",
                value = value,
                max = max
            );
            Err(ApiProblem::invalid("/id", problem))
        }
        _ => {
            let problem = finding!("permit_or_name", "expected either `permit` or `id`");
            Err(ApiProblem::invalid("/permit", problem))
        }
    }
}

fn without(mut held: HeldPermits, place: usize) -> HeldPermits {
    let HeldPermit { cost, .. } = held.items.remove(place);
    HeldPermits { total: held.total - 1, held: held.held - cost, ..held }
}

fn reply(mut held: HeldPermits) -> ApiResponse {
    held.items.truncate(LISTED_MAX);
    ApiResponse::ok(&held)
}

fn no_list(error: HeldError) -> ApiProblem {
    match error {
        HeldError::NoPermits => {
            let problem = finding!(
                "no_permits",
                "the policy has no `concurrency` rule, so no permits are held"
            );
            ApiProblem::new(StatusCode::CONFLICT, problem)
        }
        HeldError::Unavailable(problem) => unavailable(&problem),
    }
}

fn not_held(permit: PermitId) -> ApiProblem {
    let problem = finding!(
        "permit_not_held",
        "the permit `{permit}` of this key is not held: it was released, or it has lapsed",
        permit = permit.to_string()
    );
    ApiProblem::new(StatusCode::NOT_FOUND, problem)
}
