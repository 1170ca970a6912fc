//! The store on Redis: keys to hashes, rules to blobs, replies to verdicts.
//!
//! ```text
//! Request ─▶ state_key, RulesBlob (made once a rule set), Question ─▶ RedisClient ─▶ script
//! Verdict ◀─ Reply ◀────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! One call a decision. A key whose state was written under other rules takes a second one: the
//! script says of which generation they are, and the call is repeated with them. They are known from
//! this store's own past or from Redis, where every store puts its rules before it first uses them.
//! If nobody knows them the key's budgets count as used up, which is never more than the limit.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use sluicegate_kernel::{Moment, RuleSet, Verdict};
use tokio::time::Instant;

use super::codec::{Before, Clock, Generation, Question, Reply, RulesBlob, state_key};
use super::{
    Ask, ConfigError, ConnectError, LuaScript, Outcome, Publication, PublishError, Published,
    RedisClient, RedisConfig, RedisError, Revisions, Stats, script,
};
use crate::{Executed, Request, Store, StoreError};

/// How long rules are kept in Redis after they were last put there: longer than the longest period
/// (366 days), so that they outlive every state that was written under them.
const RULES_TTL: Duration = Duration::from_secs(400 * 86_400);

/// How often rules in use are put there again: a Redis that lost its data has them back soon.
const RULES_AGAIN: Duration = Duration::from_secs(600);

/// Rule sets that are remembered at most: some ten thousand policies and what they were before.
/// Those beyond are encoded and put into Redis again, which costs time and nothing else.
const RULES_MAX: usize = 65_536;

/// Calls of one decision at most, if there is time for them before the deadline: the first, and those
/// in which others come in between with rules of their own. Where two versions of a policy meet, two
/// are enough; a key with more than a handful of rule sets at a time is no one's in particular.
const CALLS_MAX: usize = 8;

/// State in Redis or Valkey, shared by every process that uses the same.
#[derive(Debug)]
pub struct RedisStore {
    client: RedisClient,
    clock: Clock,
    namespace: String,
    rules: RwLock<KnownRules>,
}

/// The rule sets that were used. A set that a `Weak` points to keeps its address to itself.
#[derive(Debug, Default)]
struct KnownRules {
    sets: HashMap<usize, KnownSet>,
    blobs: HashMap<Generation, Bytes>,
}

#[derive(Clone, Debug)]
struct KnownSet {
    set: Weak<RuleSet>,
    blob: Bytes,
    generation: Generation,
    /// Until when Redis surely has it.
    kept_until: Option<Instant>,
}

impl RedisStore {
    /// A store that begins to connect, in tasks of the present tokio runtime. That a server cannot
    /// be reached yet is no error.
    ///
    /// # Errors
    /// [`ConfigError`] if the certificates to trust cannot be read.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and IO.
    pub fn start(config: &RedisConfig) -> Result<Self, ConfigError> {
        let script = LuaScript { text: script::TEXT, sha1: script::SHA1 };
        Ok(Self {
            client: RedisClient::start(config, script)?,
            clock: Clock::default(),
            namespace: String::new(),
            rules: RwLock::default(),
        })
    }

    /// The same store, told the time by `clock`.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// The same store with budgets of its own: those of another namespace are not seen.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: format!("{namespace}:"), ..self }
    }

    /// Waits for the end of the first attempt to connect.
    ///
    /// # Errors
    /// [`ConnectError`] if it failed; others go on in the background.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        self.client.ready().await
    }

    /// What was done since the start.
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// Publishes policies: see [`RedisClient::publish`]. They have no namespace: a Redis holds those of
    /// one catalog.
    ///
    /// # Errors
    /// [`PublishError`] if they cannot be published or Redis does not answer.
    pub async fn publish(&self, publication: &Publication<'_>) -> Result<Published, PublishError> {
        self.client.publish(publication).await
    }

    /// The revisions that are published from now on: see [`RedisClient::revisions`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and IO.
    pub fn revisions(&self) -> Revisions {
        self.client.revisions()
    }

    async fn verdict(&self, request: &Request<'_>, at: &Moment<'_>) -> Result<Verdict, StoreError> {
        let Request { policy, key, rules, verb } = *request;
        let deadline = self.client.deadline();
        let blob = self.blob(rules, deadline).await?;
        let key = match &*self.namespace {
            "" => state_key(policy, key),
            namespace => state_key(&format!("{namespace}{policy}"), key),
        };
        let key = Bytes::from(key);
        let mut before = Wrote::Unsaid;
        for calls in 0..CALLS_MAX {
            let question = Question { verb, at, clock: self.clock, before: before.told() };
            let args = [blob.clone(), question.encode(rules).into()];
            let reply = match self.client.eval(Ask { key: key.clone(), args }, deadline).await {
                Ok(reply) => reply,
                Err(error) => return Err(failed(error, calls)),
            };
            match Reply::decode(&reply, rules, verb) {
                Ok(Reply::Verdict(verdict)) => return Ok(verdict),
                Ok(Reply::Unsupported(unsupported)) => return Err(unsupported.into()),
                Ok(Reply::Unknown(generation)) => {
                    let found = self.find(generation, deadline).await;
                    before = found.map_err(|error| failed(error, calls + 1))?;
                }
                Ok(Reply::Malformed(what)) => {
                    return Err(unreadable(&format!("the script cannot read its {what}")));
                }
                Err(foreign) => return Err(unreadable(&foreign.to_string())),
            }
        }
        Err(StoreError::Contended { executed: Executed::No })
    }

    /// The blob of `rules`, which Redis has when this returns.
    async fn blob(&self, rules: &Arc<RuleSet>, deadline: Instant) -> Result<Bytes, RedisError> {
        let address = Arc::as_ptr(rules).addr();
        let known = self.read(|known| known.sets.get(&address).cloned());
        let known = known.unwrap_or_else(|| KnownSet::new(rules));
        if known.kept_until.is_some_and(|until| deadline < until) {
            return Ok(known.blob);
        }
        let rules_key = known.generation.rules_key();
        self.client.set(rules_key.as_bytes(), &known.blob, RULES_TTL, deadline).await?;
        let blob = known.blob.clone();
        self.write(|all| all.keep(address, known, deadline + RULES_AGAIN));
        Ok(blob)
    }

    /// The rules of `generation`, if anybody still has them.
    async fn find(&self, generation: Generation, deadline: Instant) -> Result<Wrote, RedisError> {
        if let Some(blob) = self.read(|known| known.blobs.get(&generation).cloned()) {
            return Ok(Wrote::Rules(blob));
        }
        let found = self.client.get(generation.rules_key().as_bytes(), deadline).await?;
        Ok(found.map_or(Wrote::Lost, Wrote::Rules))
    }

    /// What is known, also after a panic elsewhere: entries are written whole.
    fn read<T>(&self, look: impl FnOnce(&KnownRules) -> T) -> T {
        look(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut KnownRules)) {
        change(&mut self.rules.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl KnownRules {
    fn keep(&mut self, address: usize, set: KnownSet, until: Instant) {
        if self.sets.len() >= RULES_MAX {
            self.sets.retain(|_, known| known.set.strong_count() > 0);
        }
        if self.blobs.len() < RULES_MAX {
            self.blobs.insert(set.generation, set.blob.clone());
        }
        if self.sets.len() < RULES_MAX {
            self.sets.insert(address, KnownSet { kept_until: Some(until), ..set });
        }
    }
}

impl KnownSet {
    fn new(rules: &Arc<RuleSet>) -> Self {
        let blob = RulesBlob::new(rules);
        Self {
            set: Arc::downgrade(rules),
            generation: blob.generation(),
            blob: Bytes::copy_from_slice(blob.as_bytes()),
            kept_until: None,
        }
    }
}

/// The rules that wrote a state; see [`Before`].
enum Wrote {
    Unsaid,
    Rules(Bytes),
    Lost,
}

impl Wrote {
    fn told(&self) -> Before<'_> {
        match self {
            Self::Unsaid => Before::Unsaid,
            Self::Rules(blob) => Before::Rules(blob),
            Self::Lost => Before::Lost,
        }
    }
}

impl Store for RedisStore {
    async fn decide(&self, request: &Request<'_>, at: &Moment<'_>) -> Result<Verdict, StoreError> {
        self.verdict(request, at).await
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        Self::Unavailable { reason: error.to_string(), executed: error.outcome().into() }
    }
}

impl From<Outcome> for Executed {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::NotExecuted => Self::No,
            Outcome::Unknown => Self::Perhaps,
        }
    }
}

/// What `error` means after so many calls that were answered. Whoever had answers, and no more time for
/// another, lost it to others.
fn failed(error: RedisError, answered: usize) -> StoreError {
    match (error, answered) {
        (RedisError::Timeout { outcome }, 1..) => {
            StoreError::Contended { executed: outcome.into() }
        }
        (error, _) => error.into(),
    }
}

fn unreadable(reason: &str) -> StoreError {
    StoreError::Unavailable { reason: reason.to_owned(), executed: Executed::No }
}
