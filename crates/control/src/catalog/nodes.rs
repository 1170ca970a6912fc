//! The nodes that serve, and which revision each of them holds.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Catalog, Page};
use crate::error::Error;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Node {
    /// Node name; the same after a restart.
    pub name: String,
    /// Version of the program.
    pub software: String,
    /// Catalog revision that the node uses.
    pub revision: i64,
    /// Start time, in milliseconds since 1970.
    pub started_at: i64,
    /// Time of the last report.
    pub seen_at: i64,
}

impl Catalog {
    /// The nodes by name.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn nodes(&self, page: &Page) -> Result<Vec<Node>, Error> {
        let sql = "SELECT name, software, revision, started_at, seen_at FROM nodes \
                   WHERE name > ? ORDER BY name LIMIT ?";
        let rows = self.db.rows(sql, &[page.after().into(), page.limit().into()]).await?;
        let node = |row: &crate::db::Row| {
            Ok(Node {
                name: row.get(0)?,
                software: row.get(1)?,
                revision: row.get(2)?,
                started_at: row.get(3)?,
                seen_at: row.get(4)?,
            })
        };
        rows.iter().map(node).collect()
    }

    /// Says of a node that it is there, and which revision it holds. Nodes that were not heard of since
    /// `forget_before` are forgotten.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn record_node(&self, node: &Node, forget_before: i64) -> Result<(), Error> {
        let Node { name, software, revision, started_at, seen_at } = node;
        let sql = "UPDATE nodes SET software = ?, revision = ?, started_at = ?, seen_at = ? \
                   WHERE name = ?";
        let values = [
            software.into(),
            (*revision).into(),
            (*started_at).into(),
            (*seen_at).into(),
            name.into(),
        ];
        if self.db.run(sql, &values).await? > 0 {
            return Ok(());
        }
        let sql = "INSERT INTO nodes (software, revision, started_at, seen_at, name) \
                   VALUES (?, ?, ?, ?, ?)";
        match self.db.run(sql, &values).await {
            // Another of this name was quicker, and will find itself here.
            Ok(_) | Err(Error::Taken) => {}
            Err(error) => return Err(error),
        }
        let old = "DELETE FROM nodes WHERE seen_at < ?";
        self.db.run(old, &[forget_before.into()]).await?;
        Ok(())
    }
}
