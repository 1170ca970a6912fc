//! What was changed, and by whom.

use crate::api::ask::{Ask, Reply};
use crate::api::problem::Problem;
use crate::audit::Filter;
use crate::error::Error;

pub(in crate::api) async fn list(ask: Ask) -> Result<Reply, Problem> {
    entries(&ask, Filter::default()).await
}

pub(in crate::api) async fn of_app(ask: Ask) -> Result<Reply, Problem> {
    entries(&ask, Filter { app: Some(ask.param("app").to_owned()) }).await
}

pub(in crate::api) async fn verify(ask: Ask) -> Result<Reply, Problem> {
    let _only = ask.api.verifying.try_acquire().map_err(|_| Error::Busy)?;
    Ok(Reply::ok(&ask.api.catalog.verify_audit().await?))
}

async fn entries(ask: &Ask, filter: Filter) -> Result<Reply, Problem> {
    let entries = ask.api.catalog.audit(&filter, &ask.page()).await?;
    Ok(Reply::documents(ask, entries, |entry| entry.seq.to_string()))
}
