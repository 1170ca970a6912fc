//! Follows the catalog: what changes there is held here within the time between two looks.

use std::path::PathBuf;

use super::{Held, News};
use crate::catalog::{Catalog, Node};
use crate::db::Url;
use crate::error::Error;

/// How often a node says that it is there although nothing changed, in milliseconds; and after how long
/// one that does not is forgotten: a day, so that one that is missing is seen.
const SAY_MS: i64 = 10_000;
const FORGET_MS: i64 = 24 * 60 * 60 * 1_000;

/// A node that follows a catalog.
#[derive(Debug)]
pub struct Follower {
    url: Url,
    catalog: Option<Catalog>,
    held: Held,
    kept: PathBuf,
    node: Node,
    said_at: i64,
}

impl Follower {
    /// Takes over what the file at `kept` has. The catalog is asked by [`look`](Self::look).
    ///
    /// # Errors
    /// [`Error::Damaged`]: there is a file, and it is not what was written.
    pub fn start(
        url: Url,
        kept: PathBuf,
        (name, software): (&str, &str),
        at: i64,
    ) -> Result<(Self, News), Error> {
        let (held, news) = Held::read(&kept)?;
        let node = Node {
            name: name.to_owned(),
            software: software.to_owned(),
            revision: held.revision(),
            started_at: at,
            seen_at: at,
        };
        Ok((Self { url, catalog: None, held, kept, node, said_at: 0 }, news))
    }

    /// Looks at the catalog; what changed since the last time, if anything did.
    ///
    /// # Errors
    /// Those of the database: what is held stays, and the next look tries again.
    pub async fn look(&mut self, at: i64) -> Result<Option<News>, Error> {
        let catalog = match &self.catalog {
            Some(catalog) => catalog.clone(),
            None => self.catalog.insert(Catalog::open(&self.url).await?).clone(),
        };
        let revision = catalog.revision().await?;
        let mut news = None;
        if revision > self.held.revision() {
            let published = catalog.published_since(self.held.revision(), at).await?;
            news = Some(self.held.take(published));
        } else if revision < self.held.revision() {
            // It was taken back to an earlier state, or is another one.
            news = Some(self.held.replace(catalog.published_since(0, at).await?));
        }
        if news.is_some() || at - self.said_at >= SAY_MS {
            self.node.revision = self.held.revision();
            self.node.seen_at = at;
            catalog.note_node(&self.node, at - FORGET_MS).await?;
            self.said_at = at;
        }
        Ok(news)
    }

    /// The catalog, once it was there.
    pub const fn catalog(&self) -> Option<&Catalog> {
        self.catalog.as_ref()
    }

    /// What is held.
    pub const fn held(&self) -> &Held {
        &self.held
    }

    /// Keeps what is held for a start without the catalog.
    ///
    /// # Errors
    /// [`Error::Damaged`] with what the system says.
    pub fn keep(&self) -> Result<(), Error> {
        let problem = |error| Error::Damaged(format!("{}: {error}", self.kept.display()));
        self.held.write(&self.kept).map_err(problem)
    }
}
