//! Follows the catalog: what changes there is held here within the time between two looks.

use std::cmp::Ordering;
use std::path::PathBuf;

use tokio::task::spawn_blocking;

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
    /// Whether the last look was answered.
    was_there: bool,
}

impl Follower {
    /// A node that is called so and runs this version of the program, since `at`. It holds nothing yet:
    /// what the file at `kept` has is [restored](Self::restore), the catalog is asked by
    /// [`look`](Self::look).
    pub fn new(url: Url, kept: PathBuf, (name, software): (&str, &str), at: i64) -> Self {
        let node = Node {
            name: name.to_owned(),
            software: software.to_owned(),
            revision: 0,
            started_at: at,
            seen_at: at,
        };
        Self { url, catalog: None, held: Held::default(), kept, node, said_at: 0, was_there: false }
    }

    /// Takes over what the file has; nothing, if there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`]: there is a file, and it is not what was written, or of another catalog than
    /// the one that answered. What is held stays.
    pub fn restore(&mut self) -> Result<News, Error> {
        let Some((held, news)) = Held::read(&self.kept)? else { return Ok(News::default()) };
        let seen = self.held.catalog();
        if !seen.is_empty() && held.catalog() != seen {
            let problem = format!("{}: it is of another catalog", self.kept.display());
            return Err(Error::Damaged(problem));
        }
        self.held = held;
        Ok(news)
    }

    /// Looks at the catalog; what changed since the last time, if anything did. Can be dropped.
    ///
    /// # Errors
    /// Those of the database: what is held stays, and the next look tries again.
    pub async fn look(&mut self, at: i64) -> Result<Option<News>, Error> {
        // Whoever was away may find another state of the catalog than the one that it knew, such as
        // yesterday's; so does whoever is told of an earlier revision, or of another catalog. All of
        // them look at everything.
        let was_there = std::mem::replace(&mut self.was_there, false);
        let catalog = match &self.catalog {
            Some(catalog) => catalog.clone(),
            None => self.catalog.insert(Catalog::open(&self.url).await?).clone(),
        };
        let held = self.held.revision();
        let (id, now) = catalog.id_and_revision().await?;
        let is_same = was_there && id == self.held.catalog();
        let since = match is_same.then_some(now.cmp(&held)) {
            Some(Ordering::Equal) => None,
            Some(Ordering::Greater) => Some(held),
            Some(Ordering::Less) | None => Some(0),
        };
        let news = match since {
            None => None,
            Some(since) => {
                let published = catalog.published_since(since, at).await?;
                // It may have become another one meanwhile.
                let is_more = since > 0 && published.catalog == id && published.revision >= now;
                if since > 0 && !is_more {
                    return Ok(None);
                }
                Some(if is_more { self.held.take(published) } else { self.held.replace(published) })
            }
        };
        // Nothing is waited for behind this, so that what is held and what is told of it are one.
        self.was_there = true;
        if news.is_some() {
            self.said_at = 0;
        }
        Ok(news.filter(|news| !news.is_empty()))
    }

    /// Says what is held and that the node is there, where that is to be said.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn say(&mut self, at: i64) -> Result<(), Error> {
        let Some(catalog) = &self.catalog else { return Ok(()) };
        if at - self.said_at < SAY_MS {
            return Ok(());
        }
        self.node.revision = self.held.revision();
        self.node.seen_at = at;
        catalog.note_node(&self.node, at - FORGET_MS).await?;
        self.said_at = at;
        Ok(())
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
    pub async fn keep(&self) -> Result<(), Error> {
        let (held, kept) = (self.held.clone(), self.kept.clone());
        let written = spawn_blocking(move || {
            held.write(&kept).map_err(|error| format!("{}: {error}", kept.display()))
        });
        written.await.map_err(|error| Error::Damaged(error.to_string()))?.map_err(Error::Damaged)
    }
}
