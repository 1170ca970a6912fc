//! One request, end to end: which rules hold, what the store says, what the answer is.
//!
//! ```text
//! Request ─▶ PolicySet::resolve ─▶ rules for the key ─▶ Store::decide ─▶ Answer
//! ```
//!
//! The clock is read once per request, here; everything below is told the time.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_kernel::{Decision, Micros, Moment, RuleSet, Unsupported, Verb};
use sluicegate_policy::{Policy, PolicySet, Rules};
use sluicegate_store::{MemoryStore, Request as StoreRequest, Store, StoreError};

use crate::clock::{Clock, WallClock};

/// Decides requests by the policies that are in force, on a store.
///
/// ```
/// use sluicegate::{Cost, Engine, Micros, Request, Verb};
/// use sluicegate::policy::{Document, PolicySet};
///
/// let document = Document::parse(
///     "policies: [{ name: login, rules: [{ token_bucket: { rate: 1/s, burst: 2 } }] }]",
/// )?;
/// let engine = Engine::in_memory(PolicySet::new(document));
/// let request = Request::new("login", Some(b"alice"), Verb::Check { cost: Cost::ONE });
/// let answer = engine.decide_at(&request, Micros::ZERO)?;
/// assert!(answer.decision.allowed());
/// assert_eq!((answer.decision.remaining, answer.rule()), (1, "token_bucket"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S = MemoryStore> {
    policies: ArcSwap<PolicySet>,
    store: S,
    clock: Arc<dyn Clock>,
}

/// What a caller asks of the engine.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// Whose budget it is, 1..=1024 bytes; `None` is the budget that all share.
    pub key: Option<&'a [u8]>,
    /// The application that asks; a policy may be for some only.
    pub app: Option<&'a str>,
    /// What is wanted.
    pub verb: Verb,
}

/// The engine's answer: a decision and the rule that made it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    rules: Arc<RuleSet>,
    rule: usize,
}

/// Why there is no decision. No state was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecideError {
    /// There is no policy of this name.
    #[error("policy: there is no policy `{0}`")]
    UnknownPolicy(String),
    /// The policy is not for this application.
    #[error("app: policy `{policy}` is not configured for {}", app_name(.app))]
    Unconfigured {
        /// The policy.
        policy: String,
        /// Who asked.
        app: Option<String>,
    },
    /// The key is empty.
    #[error(
        "key: is empty, expected 1..={KEY_BYTES_MAX} bytes; leave it out for the shared budget"
    )]
    EmptyKey,
    /// The key is too long. It is never cut: two users must not share a budget.
    #[error("key: `{0}` bytes are outside 1..={KEY_BYTES_MAX}")]
    LongKey(usize),
    /// The policy's rules do not know the verb.
    #[error("op: {0}")]
    Unsupported(#[from] Unsupported),
    /// The store gave no verdict.
    #[error("store: {0}")]
    Store(StoreError),
}

impl Engine<MemoryStore> {
    /// An engine on a memory store of the default size and the wall clock.
    pub fn in_memory(policies: PolicySet) -> Self {
        Self::new(policies, MemoryStore::default(), Arc::new(WallClock))
    }

    /// Decides `request` as if it were `now`, µs since the Unix epoch.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub fn decide_at(&self, request: &Request<'_>, now: Micros) -> Result<Answer, DecideError> {
        let policies = self.policies.load();
        let (key, rules) = admit(&policies, request)?;
        let windows = rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let verdict = self.store.decide_now(&store_request(request, key, rules), &moment)?;
        Ok(Answer {
            decision: verdict.decision,
            rules: Arc::clone(rules.set()),
            rule: verdict.rule,
        })
    }

    /// Decides `request` now.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub fn decide_now(&self, request: &Request<'_>) -> Result<Answer, DecideError> {
        self.decide_at(request, self.clock.now())
    }
}

impl<S: Store> Engine<S> {
    /// Decides `request` now.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub async fn decide(&self, request: &Request<'_>) -> Result<Answer, DecideError> {
        let now = self.clock.now();
        let policies = self.policies.load_full();
        let (key, rules) = admit(&policies, request)?;
        let windows = rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let verdict = self.store.decide(&store_request(request, key, rules), &moment).await;
        let verdict = verdict.map_err(|error| match error {
            StoreError::Unsupported(unsupported) => unsupported.into(),
            other => DecideError::Store(other),
        })?;
        Ok(Answer {
            decision: verdict.decision,
            rules: Arc::clone(rules.set()),
            rule: verdict.rule,
        })
    }
}

impl<S> Engine<S> {
    /// An engine that decides by `policies` on `store`, told the time by `clock`.
    pub fn new(policies: PolicySet, store: S, clock: Arc<dyn Clock>) -> Self {
        Self { policies: ArcSwap::from_pointee(policies), store, clock }
    }

    /// The policies in force.
    pub fn policies(&self) -> Arc<PolicySet> {
        self.policies.load_full()
    }

    /// Puts `policies` in force from the next request on. Usage is carried over.
    pub fn set_policies(&self, policies: PolicySet) {
        self.policies.store(Arc::new(policies));
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }
}

impl<'a> Request<'a> {
    /// A request of nobody in particular.
    pub const fn new(policy: &'a str, key: Option<&'a [u8]>, verb: Verb) -> Self {
        Self { policy, key, app: None, verb }
    }
}

impl Answer {
    /// The name of the rule that decided.
    pub fn rule(&self) -> &str {
        &self.rules.rules()[self.rule].name
    }

    /// All rules that were decided together.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }
}

impl<S: fmt::Debug> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policies: _, store, clock } = self;
        f.debug_struct("Engine").field("store", store).field("clock", clock).finish_non_exhaustive()
    }
}

/// The key and the rules that hold for it, if the request may be asked at all.
fn admit<'p, 'r>(
    policies: &'p PolicySet,
    request: &Request<'r>,
) -> Result<(&'r [u8], &'p Rules), DecideError> {
    let key = match request.key {
        None => &[],
        Some([]) => return Err(DecideError::EmptyKey),
        Some(key) if key.len() > KEY_BYTES_MAX => return Err(DecideError::LongKey(key.len())),
        Some(key) => key,
    };
    let Some(policy) = policies.resolve(request.policy) else {
        return Err(DecideError::UnknownPolicy(request.policy.to_owned()));
    };
    if !policy.admits(request.app) {
        return Err(unconfigured(policy, request.app));
    }
    Ok((key, policy.rules_for(key)))
}

fn store_request<'a>(
    request: &'a Request<'_>,
    key: &'a [u8],
    rules: &'a Rules,
) -> StoreRequest<'a> {
    StoreRequest { policy: request.policy, key, rules: rules.set(), verb: &request.verb }
}

#[cold]
fn unconfigured(policy: &Policy, app: Option<&str>) -> DecideError {
    DecideError::Unconfigured { policy: policy.name().to_owned(), app: app.map(ToOwned::to_owned) }
}

fn app_name(app: &Option<String>) -> String {
    app.as_ref().map_or_else(|| "a caller without an app".to_owned(), |app| format!("app `{app}`"))
}
