//! Follows the catalog: a change there is used here within the time between two polls.

use std::cmp::Ordering;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{CatalogCopy, CatalogDelta, CatalogSnapshot};
use crate::catalog::Catalog;
use crate::db::Url;
use crate::error::Error;

/// A node that follows a catalog.
#[derive(Debug)]
pub struct Follower {
    url: Url,
    catalog: Option<Catalog>,
    /// The catalog that is being opened: its tables are migrated to the end, even if `poll` is dropped.
    opening: Option<JoinHandle<Result<Catalog, Error>>>,
    held: Arc<CatalogSnapshot>,
    copy: CatalogCopy,
    /// The last poll was answered.
    was_there: bool,
}

impl Follower {
    /// Creates a follower of the catalog at `url`. The file of a SQLite catalog must exist. The snapshot is empty at
    /// first: [`restore`](Self::restore) reads the file of `copy`, [`poll`](Self::poll) the catalog.
    pub fn new(url: Url, copy: CatalogCopy) -> Self {
        Self { url, catalog: None, opening: None, held: Arc::default(), copy, was_there: false }
    }

    /// Takes over the content of the file; nothing, if there is none.
    ///
    /// # Errors
    /// [`Error::OtherFormat`]: another version wrote the file. [`Error::OtherCatalog`]: it is a copy of another
    /// catalog. [`Error::Damaged`]: it is not what was written, or of another catalog than the one that answered.
    /// The snapshot stays.
    pub fn restore(&mut self) -> Result<CatalogDelta, Error> {
        let Some((held, news)) = CatalogSnapshot::read(&self.copy)? else {
            return Ok(CatalogDelta::default());
        };
        let catalog = self.held.catalog();
        if !catalog.is_empty() && held.catalog() != catalog {
            let problem = format!("{}: it belongs to another catalog", self.copy.path.display());
            return Err(Error::Damaged(problem));
        }
        self.held = Arc::new(held);
        Ok(news)
    }

    /// Polls the catalog; returns what changed since the last time, if anything did. Can be dropped.
    ///
    /// # Errors
    /// Those of the database: the snapshot stays, and the next poll tries again.
    pub async fn poll(&mut self, at: i64) -> Result<Option<CatalogDelta>, Error> {
        // After a failure, the catalog may be in another state than the known one, such as yesterday's; so may
        // one that has an earlier revision, or is another catalog. In all these cases everything is read.
        let was_there = std::mem::replace(&mut self.was_there, false);
        let catalog = match &self.catalog {
            Some(catalog) => catalog.clone(),
            None => self.open().await?,
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
                // It may have become another catalog meanwhile.
                let is_more = since > 0 && published.catalog == id && published.revision >= now;
                if since > 0 && !is_more {
                    return Ok(None);
                }
                // Readers of the snapshot keep it as it is.
                let held = Arc::make_mut(&mut self.held);
                Some(if is_more { held.apply(published) } else { held.replace(published) })
            }
        };
        // Nothing is awaited behind this, so that the snapshot and the returned changes agree.
        self.was_there = true;
        Ok(news.filter(|news| !news.is_empty()))
    }

    async fn open(&mut self) -> Result<Catalog, Error> {
        let url = self.url.clone();
        let opening = self
            .opening
            .get_or_insert_with(|| tokio::spawn(async move { Catalog::open_existing(&url).await }));
        let opened = opening.await;
        self.opening = None;
        let catalog = opened.map_err(|error| Error::Database(format!("tables: {error}")))??;
        Ok(self.catalog.insert(catalog).clone())
    }

    /// Returns the catalog, once it was available.
    pub const fn catalog(&self) -> Option<&Catalog> {
        self.catalog.as_ref()
    }

    /// Returns the snapshot.
    pub const fn held(&self) -> &Arc<CatalogSnapshot> {
        &self.held
    }
}
