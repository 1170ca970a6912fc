//! A node, as it says of itself to the catalog.

use crate::catalog::{Catalog, Node};
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

    /// Says to `catalog` that the node is there and holds `revision`, if that is new or was said long
    /// ago.
    ///
    /// # Errors
    /// Those of the database; it is said again the next time.
    pub async fn report(&mut self, catalog: &Catalog, revision: i64, at: i64) -> Result<(), Error> {
        let is_late = self.said_at.is_none_or(|said_at| at - said_at >= SAY_MS);
        if revision == self.node.revision && !is_late {
            return Ok(());
        }
        let node = Node { revision, seen_at: at, ..self.node.clone() };
        catalog.record_node(&node, at - FORGET_MS).await?;
        (self.node, self.said_at) = (node, Some(at));
        Ok(())
    }
}
