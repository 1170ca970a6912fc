//! Policies and tokens as a node holds them, in memory and in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluicegate_policy::Policy;

use super::tokens::{HeldToken, Tokens};
use crate::catalog::{Published, PublishedPolicy, PublishedToken, State};
use crate::error::Error;

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
    tokens: BTreeMap<String, Arc<HeldToken>>,
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
            self.take_token(token);
        }
        news.tokens = has_tokens.then(|| self.tokens());
        self.revision = published.revision;
        news
    }

    fn take_token(&mut self, token: PublishedToken) {
        let before = self.tokens.remove(&token.id);
        let Some(token) = HeldToken::new(token).filter(|token| !token.published().is_revoked)
        else {
            return;
        };
        let token = match before {
            // Who holds it already goes on marking it.
            Some(before) if before.published() == token.published() => before,
            Some(before) => Arc::new(token.in_place_of(&before)),
            None => Arc::new(token),
        };
        self.tokens.insert(token.id().to_owned(), token);
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
        let there: BTreeSet<_> = published.tokens.iter().map(|token| token.id.as_str()).collect();
        let is_there = |(id, _): &(&String, _)| there.contains(id.as_str());
        let stay = before.tokens.iter().filter(is_there);
        self.tokens = stay.map(|(id, token)| (id.clone(), Arc::clone(token))).collect();
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
        Arc::new(Tokens::new(self.tokens.values().cloned()))
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
            tokens: self.tokens.values().map(|token| token.published().clone()).collect(),
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

fn compiled(policy: &PublishedPolicy) -> Result<Policy, String> {
    let compiled = Policy::parse_one(&policy.document).map_err(|errors| errors.to_string())?;
    if compiled.name() != policy.name {
        return Err(format!("its document is that of `{}`", compiled.name()));
    }
    Ok(if policy.state == State::Shadow { compiled.shadowed() } else { compiled })
}
