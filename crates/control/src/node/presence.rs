//! The presence of a node, as it reports it to the catalog.

use crate::catalog::{Catalog, Node, NodeReport};
use crate::error::Error;

/// Interval of reports without a change, in milliseconds; and time after which a node without reports is
/// forgotten: a day, so that a missing one is seen.
const SAY_MS: i64 = 10_000;
const FORGET_MS: i64 = 24 * 60 * 60 * 1_000;

/// Reports of a node to the catalog.
#[derive(Debug)]
pub struct Presence {
    node: Node,
    /// Time of the last report; none: not reported yet.
    said_at: Option<i64>,
}

impl Presence {
    /// Creates the presence of a node with this name and version of the program, since `at` (ms since 1970).
    pub fn new(name: &str, software: &str, at: i64) -> Self {
        let node = Node {
            name: name.to_owned(),
            software: software.to_owned(),
            revision: 0,
            started_at: at,
            seen_at: at,
        };
        Self { node, said_at: None }
    }

    /// Returns the name of the node.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// Returns the start time, in milliseconds since 1970.
    pub fn started_at(&self) -> i64 {
        self.node.started_at
    }

    /// Returns whether a report is due at `at`: the revision is new, or the last report is long ago.
    pub fn is_due(&self, revision: i64, at: i64) -> bool {
        revision != self.node.revision || self.said_at.is_none_or(|said_at| at - said_at >= SAY_MS)
    }

    /// Reports to `catalog` that the node runs and uses `revision`, if a report is due.
    ///
    /// # Errors
    /// Those of the database; the report is tried again the next time.
    pub async fn report(&mut self, catalog: &Catalog, revision: i64, at: i64) -> Result<(), Error> {
        if !self.is_due(revision, at) {
            return Ok(());
        }
        let node = Node { revision, seen_at: at, ..self.node.clone() };
        catalog.record_node(&node, at - FORGET_MS).await?;
        (self.node, self.said_at) = (node, Some(at));
        Ok(())
    }

    /// Reports as [`report`](Self::report) does, and adds the state of the node.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn report_with(
        &mut self,
        catalog: &Catalog,
        revision: i64,
        report: &NodeReport,
        at: i64,
    ) -> Result<(), Error> {
        self.report(catalog, revision, at).await?;
        catalog.record_report(&self.node.name, report).await
    }
}
