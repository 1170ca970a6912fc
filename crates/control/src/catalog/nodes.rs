//! Nodes: the revision that each of them uses, and its state.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Catalog, Page};
use crate::error::Error;
use crate::traffic::Step;

/// Maximum number of nodes that are shown.
const NODES_MAX: i64 = 1_000;

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

/// State of a node, as it reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NodeReport {
    /// `true` if the node can be sent traffic.
    pub ready: bool,
    /// Source of decisions: `store`, or `fallback` while the store is unavailable.
    pub mode: String,
    /// The store.
    pub store: StoreReport,
    /// Keys with usage that this node holds in memory; null: the store is elsewhere.
    pub keys: Option<u64>,
    /// Ends of the last buckets of 10 s and of 5 min that the node has written, in milliseconds since 1970.
    #[schema(ignore)]
    pub through: [i64; 2],
}

/// State of the store of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct StoreReport {
    /// `memory` or `redis`.
    pub kind: String,
    /// `true` if the node has given up the store for now.
    pub breaker_open: bool,
    /// Half of the recent decisions took at most this time, in µs; null: there were none.
    pub p50_us: Option<u64>,
    /// 99 of 100 recent decisions took at most this time, in µs; null: there were none.
    pub p99_us: Option<u64>,
}

/// All nodes, and the revision that they should use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Revision of the catalog.
    pub revision: i64,
    /// The nodes by name.
    pub nodes: Vec<FleetNode>,
}

/// A node and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNode {
    /// Node name.
    pub name: String,
    /// Catalog revision that the node uses.
    pub revision: i64,
    /// Time of the last report, in milliseconds since 1970.
    pub seen_at: i64,
    /// State of the node at that time; none: it has not reported it.
    pub report: Option<NodeReport>,
}

impl FleetNode {
    /// Returns the end of the last bucket that the node has written; none: it has not reported it.
    pub fn through(&self, step: Step) -> Option<i64> {
        let through = self.report.as_ref()?.through[step as usize];
        (through > 0).then_some(through)
    }
}

impl Catalog {
    /// Returns all nodes with their state, and the revision that they should use.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn fleet(&self) -> Result<Fleet, Error> {
        let revision = self.revision().await?;
        let sql = "SELECT n.name, n.revision, n.seen_at, r.body FROM nodes n \
                   LEFT JOIN node_reports r ON r.name = n.name ORDER BY n.name LIMIT ?";
        let rows = self.db.rows(sql, &[NODES_MAX.into()]).await?;
        let node = |row: &crate::db::Row| {
            let report: Option<String> = row.get(3)?;
            Ok(FleetNode {
                name: row.get(0)?,
                revision: row.get(1)?,
                seen_at: row.get(2)?,
                report: report.and_then(|report| serde_json::from_str(&report).ok()),
            })
        };
        let nodes = rows.iter().map(node).collect::<Result<_, Error>>()?;
        Ok(Fleet { revision, nodes })
    }

    /// Records the state of the node `name`.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn record_report(&self, name: &str, report: &NodeReport) -> Result<(), Error> {
        let body = serde_json::to_string(report).expect("texts and numbers are always JSON");
        let values = [(&body).into(), name.into()];
        let sql = "UPDATE node_reports SET body = ? WHERE name = ?";
        if self.db.run(sql, &values).await? > 0 {
            return Ok(());
        }
        let sql = "INSERT INTO node_reports (body, name) VALUES (?, ?)";
        match self.db.run(sql, &values).await {
            Ok(_) | Err(Error::Taken) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns a page of the nodes, by name.
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

    /// Deletes the node of this name that started at this time: it has ended.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn forget_node(&self, name: &str, started_at: i64) -> Result<(), Error> {
        let sql = "DELETE FROM nodes WHERE name = ? AND started_at = ?";
        self.db.run(sql, &[name.into(), started_at.into()]).await?;
        Ok(())
    }

    /// Records that a node runs, and its revision. If the node is new, deletes those that have not reported since
    /// `forget_before`.
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
            // Another process of this name was faster, and its row is there.
            Ok(_) | Err(Error::Taken) => {}
            Err(error) => return Err(error),
        }
        let old = "DELETE FROM nodes WHERE seen_at < ?";
        self.db.run(old, &[forget_before.into()]).await?;
        let old = "DELETE FROM node_reports WHERE name NOT IN (SELECT name FROM nodes)";
        self.db.run(old, &[]).await?;
        Ok(())
    }
}
