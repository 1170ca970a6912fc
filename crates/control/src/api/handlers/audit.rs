//! What was changed, and by whom.

use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};
use crate::audit::AuditFilter;
use crate::error::Error;

pub(in crate::api) async fn list(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    entries(&ask, None).await
}

pub(in crate::api) async fn of_app(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    entries(&ask, Some(ask.param("app").to_owned())).await
}

pub(in crate::api) async fn verify(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let _only = ask.api.verifying.try_acquire().map_err(|_| Error::Busy)?;
    Ok(ApiResponse::ok(&ask.api.catalog.verify_audit().await?))
}

async fn entries(ask: &ApiRequest, app: Option<String>) -> Result<ApiResponse, ApiProblem> {
    let filter = AuditFilter { app, entry: ask.entry_filter() };
    let entries = ask.api.catalog.audit(&filter, &ask.page()).await?;
    Ok(ApiResponse::documents(ask, entries, |entry| entry.seq.to_string()))
}
