//! Policies and tokens as a node holds them, in memory and in a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluicegate_policy::Policy;

use crate::access::Scope;
use crate::catalog::{Published, PublishedPolicy, PublishedToken, State};
use crate::error::Error;
use crate::identity::Secret;

/// The format of the file. Another one is not read: the catalog has everything.
const FORMAT: u32 = 1;

/// Largest file that is read: ten thousand policies of the largest size.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// What a node holds.
#[derive(Clone, Debug, Default)]
pub struct Held {
    revision: i64,
    /// Policies that this program cannot read, by name.
    unreadable: BTreeSet<String>,
    policies: BTreeMap<String, PublishedPolicy>,
    tokens: BTreeMap<String, PublishedToken>,
}

/// What is to be otherwise in the engine.
#[derive(Debug, Default)]
pub struct News {
    /// Policies that are new or changed.
    pub changed: Vec<Policy>,
    /// Names of policies that are no more.
    pub gone: Vec<String>,
    /// Policies that this program cannot read, with why: what was held of them stays.
    pub refused: Vec<(String, String)>,
    /// All tokens, if any of them changed.
    pub tokens: Option<Arc<Tokens>>,
}

/// The tokens that are good, by the hashes of their secrets.
#[derive(Debug, Default)]
pub struct Tokens {
    by_hash: HashMap<String, PublishedToken>,
}

/// A token that is good for what was asked.
#[derive(Clone, Copy, Debug)]
pub struct Good<'t> {
    /// Whose it is.
    pub app: &'t str,
    /// Which it is.
    pub id: &'t str,
}

/// What the file holds.
#[derive(Serialize, Deserialize)]
struct Kept {
    format: u32,
    published: Published,
}

impl Held {
    /// Which revision of the catalog this is; 0 is nothing.
    pub const fn revision(&self) -> i64 {
        self.revision
    }

    /// Whether what is held is all that the catalog has: no policy of a later version of this program
    /// is missing.
    pub fn is_readable(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Every policy that is held, for a copy elsewhere.
    pub fn policies(&self) -> impl Iterator<Item = &PublishedPolicy> {
        self.policies.values()
    }

    /// Takes over what the catalog says, and says what to make of it.
    pub fn take(&mut self, published: Published) -> News {
        let mut news = News::default();
        for policy in published.policies {
            self.unreadable.remove(&policy.name);
            if policy.state == State::Deleted {
                if self.policies.remove(&policy.name).is_some() {
                    news.gone.push(policy.name);
                }
                continue;
            }
            match compiled(&policy) {
                Ok(compiled) => {
                    news.changed.push(compiled);
                    self.policies.insert(policy.name.clone(), policy);
                }
                Err(problem) => {
                    self.unreadable.insert(policy.name.clone());
                    news.refused.push((policy.name, problem));
                }
            }
        }
        let has_tokens = !published.tokens.is_empty();
        for token in published.tokens {
            if token.is_revoked {
                self.tokens.remove(&token.id);
            } else {
                self.tokens.insert(token.id.clone(), token);
            }
        }
        news.tokens = has_tokens.then(|| self.tokens());
        self.revision = published.revision;
        news
    }

    /// Takes over a catalog that does not follow the one that is held.
    pub fn replace(&mut self, mut published: Published) -> News {
        let mut before = std::mem::take(self);
        // What is the same is not told again.
        let is_new =
            |policy: &mut PublishedPolicy| before.policies.get(&policy.name) != Some(policy);
        let new: Vec<_> = published.policies.extract_if(.., is_new).collect();
        let same = std::mem::replace(&mut published.policies, new);
        self.policies = same.into_iter().map(|policy| (policy.name.clone(), policy)).collect();
        let mut news = self.take(published);
        for (name, _) in &news.refused {
            self.policies.extend(before.policies.remove_entry(name));
        }
        let gone = before.policies.into_keys().filter(|name| !self.policies.contains_key(name));
        news.gone.extend(gone);
        news.tokens = (before.tokens != self.tokens).then(|| self.tokens());
        news
    }

    /// The tokens that are held.
    pub fn tokens(&self) -> Arc<Tokens> {
        let by_hash = self.tokens.values().map(|token| (token.hash.clone(), token.clone()));
        Arc::new(Tokens { by_hash: by_hash.collect() })
    }

    /// What the file at `path` has, and what to make of it: nothing, if there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is not what was written.
    pub fn read(path: &Path) -> Result<(Self, News), Error> {
        let damaged = |problem: &dyn std::fmt::Display| {
            Error::Damaged(format!("{}: {problem}", path.display()))
        };
        let bytes = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Ok(metadata) if metadata.len() > FILE_BYTES_MAX => return Err(damaged(&"too long")),
            _ => fs::read(path).map_err(|error| damaged(&error))?,
        };
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
        if kept.format != FORMAT {
            return Err(damaged(&format_args!("format {}, expected {FORMAT}", kept.format)));
        }
        let mut held = Self::default();
        let news = held.take(kept.published);
        Ok((held, news))
    }

    /// Writes all of it to the file at `path`, which is replaced whole, and is for its owner only.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let published = Published {
            revision: self.revision,
            policies: self.policies.values().cloned().collect(),
            tokens: self.tokens.values().cloned().collect(),
        };
        let bytes = serde_json::to_vec(&Kept { format: FORMAT, published })?;
        // Nodes may share the folder.
        let beside = path.with_extension(format!("{}.new", std::process::id()));
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    }
}

impl News {
    /// Whether nothing is otherwise.
    pub fn is_empty(&self) -> bool {
        let Self { changed, gone, refused, tokens } = self;
        changed.is_empty() && gone.is_empty() && refused.is_empty() && tokens.is_none()
    }
}

impl Tokens {
    /// The token that `shown` is, if it is good for this at the time `at` (ms since 1970).
    pub fn good(&self, shown: &str, scope: Scope, at: i64) -> Option<Good<'_>> {
        // Hashes are looked up: how long that takes tells nothing of a token.
        let token = self.by_hash.get(&Secret::hash_of(shown))?;
        let is_good = token.expires_at > at && token.scopes.contains(&scope);
        is_good.then_some(Good { app: &token.app, id: &token.id })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_hash.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }
}

fn compiled(policy: &PublishedPolicy) -> Result<Policy, String> {
    let compiled = Policy::parse_one(&policy.document).map_err(|errors| errors.to_string())?;
    if compiled.name() != policy.name {
        return Err(format!("its document is that of `{}`", compiled.name()));
    }
    Ok(if policy.state == State::Shadow { compiled.shadowed() } else { compiled })
}
