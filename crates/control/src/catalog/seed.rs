//! Content of a new catalog.

use serde_json::Value as Json;

use super::apps::add_app;
use super::change::{Change, begin};
use super::policies::add_policy;
use super::{Catalog, ChangeContext};
use crate::error::Error;

impl Catalog {
    /// Creates `app` with these policies, active and without a member, if the catalog has neither apps nor
    /// accounts. Returns whether it had none; otherwise nothing changes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the first policy that is wrong; then nothing has changed.
    pub async fn seed(
        &self,
        by: &ChangeContext,
        app: &str,
        description: &str,
        policies: &[Json],
    ) -> Result<bool, Error> {
        let by = ChangeContext { force: true, ..by.clone() };
        let mut change = begin!(self, &by);
        if !is_empty(&mut change).await? {
            return Ok(false);
        }
        add_app(&mut change, &by, app, description, &[]).await?;
        for document in policies {
            add_policy(&mut change, app, document).await?;
        }
        change.commit(true).await
    }
}

impl Catalog {
    /// Returns the number of policies in all apps, without deleted ones.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn policy_count(&self) -> Result<i64, Error> {
        let sql = "SELECT COUNT(*) FROM policies WHERE state <> 'deleted'";
        self.db.row(sql, &[]).await?.map_or(Ok(0), |row| row.get(0))
    }
}

async fn is_empty(change: &mut Change<'_>) -> Result<bool, Error> {
    let sql = "SELECT (SELECT COUNT(*) FROM apps) + (SELECT COUNT(*) FROM accounts)";
    let count = change.rows.row(sql, &[]).await?;
    Ok(count.map_or(Ok(0), |row| row.get::<i64>(0))? == 0)
}
