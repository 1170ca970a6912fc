//! Policies that servers publish in Redis, followed by an engine that decides there itself
//! (`spec/redis-protocol.md`, Reading).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use sluicegate_kernel::Micros;
use sluicegate_policy::{Policy, PolicySet};
use sluicegate_store::redis::{
    PublishedPolicies, RECORD_FORMAT, RedisConfig, RedisConfigError, RedisError, RedisStore,
    Revisions,
};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

use crate::clock::SteadyClock;
use crate::engine::{Engine, Observer, StoreFailure};

/// Interval at which an engine looks at what is published, give or take a fifth: messages get lost.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Interval at which debts are paid of keys that no request uses.
const PAY_EVERY: Duration = Duration::from_millis(100);

/// Most unreadable policies whose problems are kept: more than an operator reads.
const UNREADABLE_MAX: usize = 1_000;

/// The latest instant that is accepted from Redis: like every number there, exact in a double.
const SINCE_MS_MAX: u64 = (1 << 53) - 1;

/// The state of an engine that follows published policies: their revision, versions and problems.
///
/// Each step is a call, so that tests need not wait; [`Engine::following`] makes both calls when they are
/// due.
#[derive(Clone, Debug, Default)]
pub struct PolicyFollower {
    /// See [`Engine::following`].
    nodes: Option<NonZeroU32>,
    revision: Option<i64>,
    /// The last look found an earlier revision than the one that is held.
    went_back: bool,
    versions: BTreeMap<String, i64>,
    unreadable: BTreeMap<String, String>,
}

/// An engine that follows the policies published in its Redis for as long as it lives.
#[derive(Debug)]
pub struct FollowingEngine {
    engine: Arc<Engine<RedisStore>>,
    follower: Arc<Mutex<PolicyFollower>>,
    task: JoinHandle<()>,
}

impl Engine<RedisStore> {
    /// Returns an engine that decides in the Redis of `config`, by the policies that servers publish there: those
    /// of a catalog, or of files. An edit is in force within a second.
    ///
    /// `nodes` is the number of servers and programs that share the limits: without Redis each enforces that part of
    /// them. `None`: the number that the servers publish, or 1.
    ///
    /// While Redis does not answer, policies that were read stay in force and decide by
    /// `on_store_failure`; before the first read every policy is unknown.
    ///
    /// # Errors
    /// [`RedisConfigError`] if `config` cannot be used. A Redis that does not answer yet is no error.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and IO.
    pub async fn following(
        config: &RedisConfig,
        nodes: Option<NonZeroU32>,
    ) -> Result<FollowingEngine, RedisConfigError> {
        let store = RedisStore::start(config)?;
        // The first look shows whether it answers.
        store.ready().await.ok();
        let engine = Self::new(PolicySet::default(), store, Arc::new(SteadyClock::new()));
        // The first look sets the number that servers publish; until then there is no policy to decide by.
        let failure = StoreFailure::shared_by(nodes.unwrap_or(NonZeroU32::MIN));
        let engine = Arc::new(engine.with_fallback(failure));
        let mut follower = PolicyFollower::new(nodes);
        let revisions = engine.store().revisions();
        follower.look(&engine).await.ok();
        let follower = Arc::new(Mutex::new(follower));
        let task = tokio::spawn(follow(Arc::clone(&engine), Arc::clone(&follower), revisions));
        Ok(FollowingEngine { engine, follower, task })
    }
}

impl FollowingEngine {
    /// The engine, to be shared with tasks.
    pub const fn engine(&self) -> &Arc<Engine<RedisStore>> {
        &self.engine
    }

    /// The revision that is in force; `None` before the first read.
    pub fn revision(&self) -> Option<i64> {
        self.follower().revision()
    }

    /// Published policies that could not be read, each with its problem. If a later version of Sluicegate wrote the
    /// policy, the copy held before is dropped; if it is damaged, that copy stays.
    pub fn unreadable(&self) -> BTreeMap<String, String> {
        self.follower().unreadable.clone()
    }

    fn follower(&self) -> std::sync::MutexGuard<'_, PolicyFollower> {
        // It is changed in one step.
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for FollowingEngine {
    type Target = Arc<Engine<RedisStore>>;

    fn deref(&self) -> &Self::Target {
        &self.engine
    }
}

impl Drop for FollowingEngine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PolicyFollower {
    /// Returns a follower that holds no policies yet.
    pub fn new(nodes: Option<NonZeroU32>) -> Self {
        Self { nodes, ..Self::default() }
    }

    /// The revision that is held; `None` before the first read.
    pub const fn revision(&self) -> Option<i64> {
        self.revision
    }

    /// The policies that are held, with their versions.
    pub const fn versions(&self) -> &BTreeMap<String, i64> {
        &self.versions
    }

    /// Published policies that could not be read at the last look, each with its problem.
    pub const fn unreadable(&self) -> &BTreeMap<String, String> {
        &self.unreadable
    }

    /// Looks at what is published, as an engine does about every ten seconds, and puts a new revision in
    /// force.
    ///
    /// # Errors
    /// [`RedisError`] if Redis does not answer; what is held stays.
    pub async fn look<O: Observer>(
        &mut self,
        engine: &Engine<RedisStore, O>,
    ) -> Result<(), RedisError> {
        let Some(head) = engine.store().published_head().await? else { return Ok(()) };
        self.set_up(&head, engine);
        if Some(head.revision) < self.revision && !self.went_back {
            // A failover loses the last writes, and servers write them again within seconds.
            self.went_back = true;
            return Ok(());
        }
        if Some(head.revision) == self.revision {
            self.went_back = false;
            return Ok(());
        }
        let Some(published) = engine.store().published().await? else { return Ok(()) };
        self.take_over(&published, engine).await;
        Ok(())
    }

    /// Handles a message of the channel: puts what is published in force if it is later than what is held.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub async fn hear<O: Observer>(
        &mut self,
        revision: i64,
        engine: &Engine<RedisStore, O>,
    ) -> Result<(), RedisError> {
        if Some(revision) == self.revision {
            return Ok(());
        }
        let Some(published) = engine.store().published().await? else { return Ok(()) };
        self.set_up(&published, engine);
        if Some(published.revision) > self.revision {
            self.take_over(&published, engine).await;
        }
        Ok(())
    }

    /// Takes over the clock and the number of nodes that servers use.
    fn set_up<O: Observer>(&self, head: &PublishedPolicies, engine: &Engine<RedisStore, O>) {
        engine.store().set_clock(head.clock);
        let nodes = self.nodes.or_else(|| head.nodes.and_then(NonZeroU32::new));
        engine.set_nodes(nodes.unwrap_or(NonZeroU32::MIN));
    }

    async fn take_over<O: Observer>(
        &mut self,
        published: &PublishedPolicies,
        engine: &Engine<RedisStore, O>,
    ) {
        let now = engine.policies();
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        let (mut since, mut is_any_later) = (BTreeMap::new(), false);
        self.unreadable.clear();
        for (name, text) in &published.policies {
            match PublishedPolicy::read(name, text) {
                Ok(PublishedPolicy { version, .. })
                    if self.versions.get(name) == Some(&version) => {}
                Ok(PublishedPolicy { version, since_ms, policy }) => {
                    self.versions.insert(name.clone(), version);
                    since.extend(since_ms.map(|ms| (name.as_str(), Micros::from_millis(ms))));
                    changed.push(policy);
                }
                Err(Unreadable { is_later, problem }) => {
                    if is_later && self.versions.remove(name).is_some() {
                        gone.push(name.clone());
                        is_any_later = true;
                    }
                    if self.unreadable.len() < UNREADABLE_MAX {
                        self.unreadable.insert(name.clone(), problem);
                    }
                }
            }
        }
        self.versions.retain(|name, _| {
            let is_there = published.policies.contains_key(name);
            if !is_there {
                gone.push(name.clone());
            }
            is_there
        });
        if is_any_later {
            pay_all(engine).await;
        }
        match now.changed(changed, &gone) {
            Ok(policies) => engine.set_policies_as_of(policies, |name| since.get(name).copied()),
            Err(problem) => _ = self.unreadable.insert("*".to_owned(), problem.to_string()),
        }
        (self.revision, self.went_back) = (Some(published.revision), false);
    }
}

/// Charges debts while the rules that incurred them are still held, for as long as Redis accepts them.
async fn pay_all<O: Observer>(engine: &Engine<RedisStore, O>) {
    let mut owing = engine.debts();
    while owing > 0 {
        let left = engine.pay_debts().await;
        if left >= owing {
            return;
        }
        owing = left;
    }
}

/// A policy as it is published.
struct PublishedPolicy {
    version: i64,
    /// The instant at which servers took this version over, ms since the epoch; `None` if it is not published.
    since_ms: Option<u64>,
    policy: Policy,
}

/// The reason for which a published policy cannot be read.
struct Unreadable {
    /// A later version of Sluicegate wrote it: the policy is dropped, also the version held before. A damaged
    /// record changes nothing.
    is_later: bool,
    problem: String,
}

impl PublishedPolicy {
    /// Reads the policy `name` from the published `text`.
    fn read(name: &str, text: &str) -> Result<Self, Unreadable> {
        let damaged = |problem: &str| Unreadable { is_later: false, problem: problem.to_owned() };
        let later = |problem: String| Unreadable { is_later: true, problem };
        let field: Value =
            serde_json::from_str(text).map_err(|error| damaged(&error.to_string()))?;
        if let Some(format) = field["record"].as_i64()
            && format != i64::from(RECORD_FORMAT)
        {
            return Err(later(format!(
                "record: `{format}` is of a later version, expected {RECORD_FORMAT}"
            )));
        }
        let version =
            field["version"].as_i64().ok_or_else(|| damaged("version: expected an integer"))?;
        let since_ms = field["since_ms"].as_u64().filter(|ms| *ms <= SINCE_MS_MAX);
        let is_shadow = match field["state"].as_str() {
            Some("active") => false,
            Some("shadow") => true,
            _ => return Err(damaged("state: expected `active` or `shadow`")),
        };
        if !field["document"].is_object() {
            return Err(damaged("document: expected an object"));
        }
        // Servers publish what they have read: what cannot be read here is of a later version.
        let document = field["document"].to_string();
        let policy = Policy::parse_kept(&document).map_err(|errors| later(errors.to_string()))?;
        if policy.name() != name {
            let problem = format!("document.name: `{}` is another policy", policy.name());
            return Err(damaged(&problem));
        }
        // Policies of files have no owner.
        let policy = match field["app"].as_str() {
            None | Some("") => policy,
            Some(app) => policy.of_app(app),
        };
        Ok(Self { version, since_ms, policy: if is_shadow { policy.shadowed() } else { policy } })
    }
}

/// Looks every ten seconds, follows messages, and pays debts.
async fn follow(
    engine: Arc<Engine<RedisStore>>,
    follower: Arc<Mutex<PolicyFollower>>,
    mut revisions: Revisions,
) {
    let mut paying = interval(PAY_EVERY);
    let pause = || sleep(LOOK_EVERY.mul_f64(0.8 + 0.4 * fastrand::f64()));
    let mut next_look = Box::pin(pause());
    let subscribed = revisions.subscribed();
    loop {
        // A copy is changed, so that a caller of `revision` does not wait for Redis.
        let held = || {
            let follower = follower.lock().unwrap_or_else(PoisonError::into_inner);
            follower.clone()
        };
        let changed = tokio::select! {
            () = &mut next_look => {
                next_look.set(pause());
                let mut held = held();
                held.look(&engine).await.map(|()| held)
            }
            // Messages sent before the subscription were not received.
            () = subscribed.notified() => {
                let mut held = held();
                held.look(&engine).await.map(|()| held)
            }
            revision = revisions.next() => {
                let mut held = held();
                held.hear(revision, &engine).await.map(|()| held)
            }
            _ = paying.tick() => {
                engine.pay_debts().await;
                continue;
            }
        };
        // Without an answer the state stays; the next look is soon.
        if let Ok(changed) = changed {
            *follower.lock().unwrap_or_else(PoisonError::into_inner) = changed;
        }
    }
}
