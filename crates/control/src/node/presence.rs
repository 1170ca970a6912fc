//! A node, as it says of itself to the catalog.

use crate::catalog::{Catalog, Node, NodeReport};
use crate::error::Error;

/// How often a node says that it is there although nothing changed, in milliseconds; and after how long
/// one that does not is forgotten: a day, so that one that is missing is seen.
const SAY_MS: i64 = 10_000;
const FORGET_MS: i64 = 24 * 60 * 60 * 1_000;

/// What a node says of itself.
#[derive(Debug)]
pub struct Presence {
    node: Node,
    /// None: it has not said so yet.
    said_at: Option<i64>,
}

impl Presence {
    /// A node that is called so and runs this version of the program, since `at` (ms since 1970).
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

    /// What the node is called.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// When it was started, in milliseconds since 1970.
    pub fn started_at(&self) -> i64 {
        self.node.started_at
    }

    /// Whether it is time to say something at `at`: the revision is new, or the last time is long ago.
    pub fn is_due(&self, revision: i64, at: i64) -> bool {
        revision != self.node.revision || self.said_at.is_none_or(|said_at| at - said_at >= SAY_MS)
    }

    /// Says to `catalog` that the node is there and holds `revision`, if that is new or was said long
    /// ago.
    ///
    /// # Errors
    /// Those of the database; it is said again the next time.
    pub async fn report(&mut self, catalog: &Catalog, revision: i64, at: i64) -> Result<(), Error> {
        if !self.is_due(revision, at) {
            return Ok(());
        }
        let node = Node { revision, seen_at: at, ..self.node.clone() };
        catalog.record_node(&node, at - FORGET_MS).await?;
        (self.node, self.said_at) = (node, Some(at));
        Ok(())
    }

    /// The same, and says how the node does.
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
