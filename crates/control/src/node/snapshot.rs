//! Policies and tokens on a node, in memory and in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluicegate_net::file::{self, directory_of};
use sluicegate_policy::Policy;
use tokio::task::spawn_blocking;

use super::tokens::{CachedToken, Tokens};
use crate::catalog::{PolicyState, PublishedCatalog, PublishedPolicy, PublishedToken};
use crate::db::{CatalogAddress, Url};
use crate::error::Error;

/// The format of the file. Another one is not read: the catalog has everything.
const FORMAT: u32 = 1;

/// Largest file that is read: ten thousand policies of the largest size.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Content of the catalog on a node.
#[derive(Clone, Debug, Default)]
pub struct CatalogSnapshot {
    /// The id of the catalog; empty: there is none yet.
    catalog: String,
    revision: i64,
    /// Policies that this program cannot read, by name.
    unreadable: BTreeSet<String>,
    /// Shared, so that a copy for another writer costs little.
    policies: BTreeMap<String, Arc<PublishedPolicy>>,
    tokens: BTreeMap<String, Arc<CachedToken>>,
}

/// Changes for the engine.
#[derive(Debug, Default)]
pub struct CatalogDelta {
    /// Policies that are new or changed.
    pub changed: Vec<Policy>,
    /// Names of policies that no longer exist.
    pub gone: Vec<String>,
    /// Policies that this program cannot read, with the reason: their earlier content stays.
    pub refused: Vec<(String, String)>,
    /// All tokens, if any of them changed.
    pub tokens: Option<Arc<Tokens>>,
}

/// The beginning of every format of the file.
#[derive(Deserialize)]
struct CacheFormat {
    format: u32,
}

/// The catalog that a file names as its original.
#[derive(Deserialize)]
struct CatalogLabel {
    #[serde(default)]
    of: Option<CatalogAddress>,
}

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct CatalogCacheFile {
    format: u32,
    /// The catalog that this is a copy of; absent in files of earlier versions.
    #[serde(default)]
    of: Option<CatalogAddress>,
    published: PublishedCatalog,
}

/// The file for a copy of a catalog, which is read while the catalog is unavailable.
#[derive(Clone, Debug)]
pub struct CatalogCopy {
    /// The file.
    pub path: PathBuf,
    /// The catalog that it is a copy of.
    pub of: CatalogAddress,
    /// An address that the same catalog had before. A copy of that address, or one that names none, is read as
    /// well.
    pub of_before: Option<CatalogAddress>,
}

impl CatalogCopy {
    /// Creates a copy of the catalog at `url` in the file at `path`.
    pub fn new(path: PathBuf, url: &Url) -> Self {
        Self { path, of: CatalogAddress::of(url), of_before: None }
    }

    /// Checks that a file that names `found` as its original may be read.
    ///
    /// # Errors
    /// [`Error::OtherCatalog`].
    fn is_of(&self, found: Option<CatalogAddress>) -> Result<(), Error> {
        let is_before = match (&found, &self.of_before) {
            (None, before) => before.is_some(),
            (found, before) => found == before,
        };
        if is_before || found.as_ref() == Some(&self.of) {
            return Ok(());
        }
        let (found, wanted) = (found.map(|of| of.to_string()), self.of.to_string());
        Err(Error::OtherCatalog { path: self.path.clone(), found, wanted })
    }
}

impl CatalogSnapshot {
    /// Returns the revision of the catalog; 0: no content.
    pub const fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns the id of the catalog; empty: there is none yet.
    pub fn catalog(&self) -> &str {
        &self.catalog
    }

    /// Returns whether this is all of the catalog: no policy of a later version of this program is missing.
    pub fn is_readable(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Returns every policy, for a copy elsewhere.
    pub fn policies(&self) -> impl Iterator<Item = &PublishedPolicy> {
        self.policies.values().map(Arc::as_ref)
    }

    /// Returns the names of policies that are not the same here and in `other`.
    pub fn differing<'h>(&'h self, other: &'h Self) -> impl Iterator<Item = &'h str> {
        let changed = self.policies.iter().filter(|(name, policy)| {
            !other.policies.get(*name).is_some_and(|old| Arc::ptr_eq(old, policy) || old == *policy)
        });
        let gone = other.policies.keys().filter(|name| !self.policies.contains_key(*name));
        changed.map(|(name, _)| name.as_str()).chain(gone.map(String::as_str))
    }

    /// Takes over the changes of the catalog, and returns those for the engine.
    pub fn apply(&mut self, published: PublishedCatalog) -> CatalogDelta {
        let mut news = CatalogDelta::default();
        for policy in published.policies {
            self.unreadable.remove(&policy.name);
            if policy.state == PolicyState::Deleted {
                if self.policies.remove(&policy.name).is_some() {
                    news.gone.push(policy.name);
                }
                continue;
            }
            match compiled(&policy) {
                Ok(compiled) => {
                    news.changed.push(compiled);
                    self.policies.insert(policy.name.clone(), Arc::new(policy));
                }
                Err(problem) => {
                    self.unreadable.insert(policy.name.clone());
                    news.refused.push((policy.name, problem));
                }
            }
        }
        let has_tokens = !published.tokens.is_empty();
        for token in published.tokens {
            self.take_token(token);
        }
        news.tokens = has_tokens.then(|| self.tokens());
        (self.catalog, self.revision) = (published.catalog, published.revision);
        news
    }

    fn take_token(&mut self, token: PublishedToken) {
        let before = self.tokens.remove(&token.id);
        let Some(token) = CachedToken::new(token).filter(|token| !token.published().is_revoked)
        else {
            return;
        };
        let token = match before {
            // Its users go on marking the same token.
            Some(before) if before.published() == token.published() => before,
            Some(before) => Arc::new(token.in_place_of(&before)),
            None => Arc::new(token),
        };
        self.tokens.insert(token.id().to_owned(), token);
    }

    /// Takes over a catalog that does not follow this one.
    pub fn replace(&mut self, mut published: PublishedCatalog) -> CatalogDelta {
        let mut before = std::mem::take(self);
        // Unchanged policies are not returned again.
        let is_same = |policy: &mut PublishedPolicy| {
            before.policies.get(&policy.name).is_some_and(|held| **held == *policy)
        };
        let same: Vec<_> = published.policies.extract_if(.., is_same).collect();
        let same = same.iter().filter_map(|policy| before.policies.remove_entry(&policy.name));
        self.policies = same.collect();
        let there: BTreeSet<_> = published.tokens.iter().map(|token| token.id.as_str()).collect();
        let is_there = |(id, _): &(&String, _)| there.contains(id.as_str());
        let stay = before.tokens.iter().filter(is_there);
        self.tokens = stay.map(|(id, token)| (id.clone(), Arc::clone(token))).collect();
        let mut news = self.apply(published);
        for (name, _) in &news.refused {
            self.policies.extend(before.policies.remove_entry(name));
        }
        let gone = before.policies.into_keys().filter(|name| !self.policies.contains_key(name));
        news.gone.extend(gone);
        news.tokens = (before.tokens != self.tokens).then(|| self.tokens());
        news
    }

    /// Returns the tokens.
    pub fn tokens(&self) -> Arc<Tokens> {
        Arc::new(Tokens::new(self.tokens.values().cloned()))
    }

    /// Reads the file of `copy`, and returns its content with the changes for the engine; none, if there is no file.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not what was written; [`Error::OtherFormat`]; [`Error::OtherCatalog`].
    pub fn read(copy: &CatalogCopy) -> Result<Option<(Self, CatalogDelta)>, Error> {
        let path = copy.path.as_path();
        tidy(path);
        let damaged = |problem: &dyn std::fmt::Display| {
            Error::Damaged(format!("{}: {problem}", path.display()))
        };
        let bytes = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => {
                return Err(damaged(&"file too large"));
            }
            _ => fs::read(path).map_err(|error| damaged(&error))?,
        };
        // The format first: another one may have other fields.
        let CacheFormat { format } =
            serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        if format != FORMAT {
            return Err(Error::OtherFormat { path: path.to_owned(), format, expected: FORMAT });
        }
        let kept: CatalogCacheFile =
            serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        copy.is_of(kept.of)?;
        let mut held = Self::default();
        let news = held.apply(kept.published);
        Ok(Some((held, news)))
    }

    /// Writes as [`write`](Self::write) does, on a blocking thread.
    ///
    /// # Errors
    /// The error of the system, with the path.
    pub async fn write_in_background(self: &Arc<Self>, copy: &CatalogCopy) -> Result<(), String> {
        let (held, copy) = (Arc::clone(self), copy.clone());
        let written = spawn_blocking(move || {
            let failed = |error| format!("cannot write {}: {error}", copy.path.display());
            held.write(&copy).map_err(failed)
        });
        written.await.map_err(|error| error.to_string())?
    }

    /// Writes everything to the file of `copy`, which is replaced whole, and is for its owner only.
    ///
    /// # Errors
    /// Those of the system, and if the file is a copy of another catalog: it may be all that is left of it.
    pub fn write(&self, copy: &CatalogCopy) -> io::Result<()> {
        let path = copy.path.as_path();
        let label = fs::File::open(path).ok().map(io::BufReader::new);
        let label = label.and_then(|file| serde_json::from_reader::<_, CatalogLabel>(file).ok());
        if let Some(of) = label.and_then(|label| label.of) {
            copy.is_of(Some(of)).map_err(io::Error::other)?;
        }
        let published = PublishedCatalog {
            catalog: self.catalog.clone(),
            revision: self.revision,
            policies: self.policies().cloned().collect(),
            tokens: self.tokens.values().map(|token| token.published().clone()).collect(),
        };
        let of = Some(copy.of.clone());
        let bytes = serde_json::to_vec(&CatalogCacheFile { format: FORMAT, of, published })?;
        // Others may share the folder, and then must not guess the name of the file.
        let name = format!("{}{}{NEW}", beginning(path), uuid::Uuid::new_v4().simple());
        let beside = path.with_file_name(name);
        file::replace(path, &beside, |file| file.write_all(&bytes))
    }
}

/// End of the names of files that are being written.
const NEW: &str = ".new";

/// Returns the beginning of the names of such files of `path`.
fn beginning(path: &Path) -> String {
    format!("{}.", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Removes the files that killed processes left while they wrote the file at `path`.
fn tidy(path: &Path) {
    let beginning = beginning(path);
    for entry in fs::read_dir(directory_of(path)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let middle =
            name.to_str().and_then(|name| name.strip_prefix(&beginning)?.strip_suffix(NEW));
        if middle.is_some_and(|middle| uuid::Uuid::try_parse(middle).is_ok()) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

impl CatalogDelta {
    /// Returns whether nothing changes.
    pub fn is_empty(&self) -> bool {
        let Self { changed, gone, refused, tokens } = self;
        changed.is_empty() && gone.is_empty() && refused.is_empty() && tokens.is_none()
    }
}

/// Compiles a policy, also from a document that was valid when it was put into the catalog and would be refused today.
fn compiled(policy: &PublishedPolicy) -> Result<Policy, String> {
    let compiled = Policy::parse_one(&policy.document).or_else(|errors| {
        let kept = Policy::parse_kept(&policy.document).map_err(|errors| errors.to_string())?;
        let problem = errors.to_string().replace('\n', "; ");
        tracing::warn!(
            "policy `{}`: {problem}; the field is ignored until you change the policy",
            policy.name
        );
        Ok::<_, String>(kept)
    })?;
    if compiled.name() != policy.name {
        return Err(format!("the document is named `{}`", compiled.name()));
    }
    let compiled = compiled.of_app(&policy.app);
    Ok(if policy.state == PolicyState::Shadow { compiled.shadowed() } else { compiled })
}
