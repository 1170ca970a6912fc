//! The store on Redis: keys to hashes, rules to blobs, replies to verdicts.
//!
//! ```text
//! StoreRequest ─▶ state_key, RulesBlob (made once a rule set), ScriptRequest ─▶ RedisClient ─▶ script
//! Verdict ◀─ ScriptReply ◀────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! A decision takes one call. A key whose state was written under other rules takes a second one. Of two
//! versions of a policy the one that was taken over later decides: if that is the caller's, the call is
//! repeated with the older rules, and the script takes usage over; if it is the one that wrote the state,
//! the call is repeated under it, and the state stays as it is. So no two versions convert a key back and
//! forth. Rules are known from earlier requests to this store or from Redis, where every store puts those of
//! policies before it first uses them. If they are lost the key's budgets count as used up, which is never
//! more than the limit.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_kernel::lease::Message;
use sluicegate_kernel::{
    Called, HeldPermits, LeaseReply, Micros, Moment, RuleSet, Verdict, Window,
};
use tokio::time::Instant;

use super::blob::BlobRule;
use super::codec::{
    ForeignReply, PreviousRules, RulesBlob, ScriptClock, ScriptReply, ScriptRequest, Stamp,
    debt_key, rules_key, split_charged, state_key, windows_at,
};
use super::{
    CallEffect, ConnectError, Fleet, FleetPresence, LuaScript, Publication, PublishError,
    PublishOutcome, PublishedPolicies, RedisClient, RedisConfig, RedisConfigError, RedisError,
    Revisions, ScriptArgs, ScriptServer, Stats, affordable, script,
};
use crate::{
    Debt, Executed, Permits, RequestAt, RuleOrigin, Store, StoreAnswer, StoreError, StoreRequest,
};

/// The period in which rules in use are put into Redis again: one that lost its data has them back soon.
/// They are kept for twice as long after the last state that was written under them is full again.
const RULES_AGAIN: Duration = Duration::from_secs(600);

/// The longest time that a state is remembered after its budget is full, if decisions do not use the
/// server's clock: a day.
const CLOCKS_APART: Duration = Duration::from_secs(86_400);

/// Most rule sets that are remembered: some ten thousand policies and their earlier versions. Those beyond
/// are encoded and put into Redis again, which only costs time.
const RULES_MAX: usize = 65_536;

/// Most calls of one decision, if there is time for them before the deadline: the first, and those in which
/// others come in between with rules of their own. Where two versions of a policy meet, two are enough; a
/// key with more than a handful of rule sets at a time cannot be decided.
pub(super) const CALLS_MAX: usize = 8;

/// State in Redis or Valkey, shared by every process that uses the same. `C` is the way to the server.
#[derive(Debug)]
pub struct RedisStore<C = RedisClient> {
    pub(super) client: C,
    /// A [`ScriptClock`].
    clock: AtomicU8,
    namespace: String,
    rules: RwLock<KnownRules>,
}

/// The rule sets that were used. A set that a `Weak` points to keeps its address.
#[derive(Debug, Default)]
struct KnownRules {
    sets: HashMap<usize, KnownSet>,
    /// The stored rules by their keys in Redis.
    kept: HashMap<String, Bytes>,
}

/// A rule set as it was last used.
#[derive(Clone, Debug)]
struct KnownSet {
    set: Weak<RuleSet>,
    policy: Box<str>,
    origin: RuleOrigin,
    blob: RulesBlob,
    /// The instant until which Redis surely has it.
    kept_until: Option<Instant>,
}

impl RedisStore {
    /// Starts a store that begins to connect, in tasks of the present tokio runtime. An unreachable server
    /// is not an error.
    ///
    /// # Errors
    /// [`RedisConfigError`] if the certificates to trust cannot be read.
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and IO.
    pub fn start(config: &RedisConfig) -> Result<Self, RedisConfigError> {
        let script = LuaScript { text: script::TEXT, sha1: script::SHA1 };
        RedisClient::start(config, script).map(Self::on)
    }

    /// Waits for the end of the first attempt to connect.
    ///
    /// # Errors
    /// [`ConnectError`] if it failed; others go on in the background.
    pub async fn ready(&self) -> Result<(), ConnectError> {
        self.client.ready().await
    }

    /// Notes that a node lives, and returns the number of live nodes and whether Redis has forgotten
    /// something.
    ///
    /// # Errors
    /// [`RedisError`] if Redis does not answer within the deadline of a decision.
    pub async fn record_presence(
        &self,
        presence: &mut FleetPresence,
        now: Micros,
    ) -> Result<Fleet, RedisError> {
        let now_ms = (self.clock() != ScriptClock::Server).then_some(now.get() / 1_000);
        let fleet = presence.record_presence(&self.client, now_ms, self.client.deadline()).await?;
        if fleet.has_forgotten {
            // Without their rules, the states that are written from now on would count as used up after an edit.
            self.write(KnownRules::store_again);
        }
        Ok(fleet)
    }

    /// Notes that a node stops: others no longer count it.
    ///
    /// # Errors
    /// [`RedisError`] if Redis does not answer within the deadline of a decision. The node counts for
    /// another 15 s then.
    pub async fn record_leave(
        &self,
        presence: &FleetPresence,
        now: Micros,
    ) -> Result<(), RedisError> {
        let now_ms = (self.clock() != ScriptClock::Server).then_some(now.get() / 1_000);
        presence.record_leave(&self.client, now_ms, self.client.deadline()).await
    }

    /// Returns when a connection that was lost has been replaced. Of several waiters one returns each time.
    pub async fn reconnected(&self) {
        self.client.reconnected().await;
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> Stats {
        self.client.stats()
    }

    /// Publishes policies: see [`RedisClient::publish`]; their clock is that of this store. They have no
    /// namespace: a Redis holds those of one catalog.
    ///
    /// # Errors
    /// [`PublishError`] if they cannot be published or Redis does not answer.
    pub async fn publish(
        &self,
        publication: &Publication<'_>,
    ) -> Result<PublishOutcome, PublishError> {
        self.client.publish(&Publication { clock: self.clock(), ..*publication }).await
    }

    /// Returns the policies that servers publish in this Redis: see [`RedisClient::published`].
    ///
    /// # Errors
    /// [`RedisError`] if Redis does not answer.
    pub async fn published(&self) -> Result<Option<PublishedPolicies>, RedisError> {
        self.client.published().await
    }

    /// Returns the published policies without their texts: see [`RedisClient::published_head`].
    ///
    /// # Errors
    /// [`RedisError`] if Redis does not answer.
    pub async fn published_head(&self) -> Result<Option<PublishedPolicies>, RedisError> {
        self.client.published_head().await
    }

    /// Returns the revisions that are published from now on: see [`RedisClient::revisions`].
    ///
    /// # Panics
    /// Outside of a tokio runtime with time and IO.
    pub fn revisions(&self) -> Revisions {
        self.client.revisions()
    }
}

impl<C: ScriptServer> RedisStore<C> {
    /// Returns a store on the server of `client`.
    pub fn on(client: C) -> Self {
        Self {
            client,
            clock: AtomicU8::default(),
            namespace: String::new(),
            rules: RwLock::default(),
        }
    }

    /// Returns the client of the server.
    pub const fn client(&self) -> &C {
        &self.client
    }

    /// Sets the clock of decisions.
    #[must_use]
    pub fn with_clock(self, clock: ScriptClock) -> Self {
        self.set_clock(clock);
        self
    }

    /// Uses `clock` from the next decision on.
    pub fn set_clock(&self, clock: ScriptClock) {
        self.clock.store(clock as u8, Ordering::Relaxed);
    }

    /// Returns the clock of decisions.
    pub(super) fn clock(&self) -> ScriptClock {
        match self.clock.load(Ordering::Relaxed) {
            0 => ScriptClock::Server,
            1 => ScriptClock::Given,
            _ => ScriptClock::Client,
        }
    }

    /// Gives the store budgets of its own: it does not see those of another namespace.
    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        Self { namespace: format!("{namespace}:"), ..self }
    }

    /// Decides `request`, after `debt` is charged if there is one, and returns the permits that were
    /// charged.
    async fn verdict(
        &self,
        debt: Option<&Debt>,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        // Redis bounds its keys by its own memory: the quota is ignored here.
        let StoreRequest { policy, key, rules, verb, .. } = *request;
        let deadline = self.client.deadline();
        let own = self.blob(request, deadline).await?;
        let state_key = state_key(&self.in_own_namespace(policy), key);
        let debt_key = debt.map(|debt| debt_key(&state_key, debt.id));
        let key = Bytes::from(state_key);
        // Rules of a later version than the caller's, and those that wrote the state.
        let (mut later, mut before): (Option<RulesBlob>, _) = (None, WriterRules::Unsaid);
        for calls in 0..CALLS_MAX {
            let question =
                ScriptRequest { verb, at, clock: self.clock(), before: before.as_previous() };
            let windows = match &later {
                None => windows_at(rules, at),
                Some(later) => windows_of(later, &own, at)?,
            };
            let ask = match debt {
                None => question.encode_with(windows.into_iter()),
                Some(debt) => {
                    let permits = permits_under(debt, rules, later.as_ref());
                    question.encode_in_debt(debt.charge, &permits, windows.into_iter())
                }
            };
            let deciding = later.as_ref().unwrap_or(&own);
            let ask = ScriptArgs { key: key.clone(), args: [deciding.to_bytes(), ask.into()] };
            let answered = match &debt_key {
                None => self.client.eval(ask, deadline).await,
                Some(debt_key) => {
                    Box::pin(self.client.eval_once(ask, debt_key.as_bytes(), deadline)).await
                }
            };
            let mut reply = match answered {
                Ok(reply) => reply,
                Err(error) => return Err(failed(error, calls)),
            };
            let mut charged = Permits::default();
            if let Some(debt) = debt {
                (reply, charged) = charged_of(reply, debt, rules, later.as_ref());
            }
            let reply = match &later {
                None => ScriptReply::decode(&reply, rules, verb),
                Some(later) => decode_later(&reply, later, &own),
            };
            match reply {
                Ok(ScriptReply::Decided(answer)) => return Ok((answer, charged)),
                Ok(ScriptReply::Unsupported(unsupported)) => return Err(unsupported.into()),
                Ok(ScriptReply::Unknown(state)) => {
                    let wrote = Box::pin(self.writer_rules(request, &state, deadline)).await;
                    let wrote = wrote.map_err(|error| failed(error, calls + 1))?;
                    match wrote {
                        WriterRules::Rules(wrote) if wrote.stamp() > deciding.stamp() => {
                            (later, before) = (Some(wrote), WriterRules::Unsaid);
                        }
                        older => before = older,
                    }
                }
                Ok(ScriptReply::Malformed(what)) => {
                    return Err(unreadable(&format!("the script cannot read the stored {what}")));
                }
                Err(foreign) => return Err(unreadable(&foreign.to_string())),
            }
        }
        Err(StoreError::Contended { executed: Executed::No })
    }

    /// Decides each of `requests`, without debts. Those whose keys have a state of other rules are decided
    /// once more, each on its own.
    async fn verdicts(
        &self,
        requests: &[RequestAt<'_>],
        on_answer: &mut (impl FnMut(usize, Result<StoreAnswer, StoreError>) + Send),
    ) {
        let deadline = self.client.deadline();
        let (mut asks, mut places) = (Vec::with_capacity(requests.len()), Vec::new());
        for (place, RequestAt { request, at }) in requests.iter().enumerate() {
            match self.first_ask(request, at, deadline).await {
                Ok(ask) => {
                    asks.push(ask);
                    places.push(place);
                }
                Err(error) => on_answer(place, Err(error)),
            }
        }
        let mut again = Vec::new();
        let mut hear = |nth: usize, reply: Result<Bytes, RedisError>| {
            let place = places[nth];
            let request = &requests[place].request;
            let reply = reply.map(|reply| ScriptReply::decode(&reply, request.rules, request.verb));
            match reply {
                Ok(Ok(ScriptReply::Decided(answer))) => on_answer(place, Ok(answer)),
                Err(error) => on_answer(place, Err(error.into())),
                // The script changed nothing: the request is decided again as a single one.
                Ok(_) => again.push(place),
            }
        };
        self.client.eval_each(asks, deadline, &mut hear).await;
        let again = again.into_iter().map(|place| async move {
            let RequestAt { request, at } = &requests[place];
            (place, Box::pin(self.decide(request, at)).await)
        });
        let mut again: FuturesUnordered<_> = again.collect();
        while let Some((place, answer)) = again.next().await {
            on_answer(place, answer);
        }
    }

    /// Returns the first call of the script for `request`.
    async fn first_ask(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
        deadline: Instant,
    ) -> Result<ScriptArgs, StoreError> {
        let StoreRequest { policy, key, rules, verb, .. } = *request;
        let own = self.blob(request, deadline).await?;
        let before = PreviousRules::Unsaid;
        let question = ScriptRequest { verb, at, clock: self.clock(), before };
        let ask = question.encode_with(windows_at(rules, at).into_iter());
        let key = Bytes::from(state_key(&self.in_own_namespace(policy), key));
        Ok(ScriptArgs { key, args: [own.to_bytes(), ask.into()] })
    }

    pub(super) fn in_own_namespace<'p>(&self, policy: &'p str) -> Cow<'p, str> {
        match &*self.namespace {
            "" => policy.into(),
            namespace => format!("{namespace}{policy}").into(),
        }
    }

    /// Returns the blob of the rules of `request`. Those of a policy are in Redis when this returns.
    pub(super) async fn blob(
        &self,
        request: &StoreRequest<'_>,
        deadline: Instant,
    ) -> Result<RulesBlob, StoreError> {
        let address = Arc::as_ptr(request.rules).addr();
        let known = self.read(|known| known.sets.get(&address).cloned());
        let known = known.filter(|known| known.is_of(request));
        let known = match known {
            Some(known) => known,
            None => KnownSet::new(request)?,
        };
        if known.kept_until.is_some_and(|until| deadline < until) {
            return Ok(known.blob);
        }
        let mut key = None;
        if let Some(stamp) = known.blob.stamp() {
            let rules_key = rules_key(&self.in_own_namespace(request.policy), stamp.generation());
            let (rules, ttl) = (known.blob.rules(), self.life_of(&known.blob));
            // On the heap, like all rare futures: no decision carries the space for it.
            Box::pin(self.client.set(rules_key.as_bytes(), rules, ttl, deadline)).await?;
            key = Some(rules_key);
        }
        let blob = known.blob.clone();
        self.write(|all| all.keep(key, address, known, deadline + RULES_AGAIN));
        Ok(blob)
    }

    /// Returns how long unused rules are kept: as long as the last state under them may be needed.
    fn life_of(&self, blob: &RulesBlob) -> Duration {
        let apart = if self.clock() == ScriptClock::Server { Duration::ZERO } else { CLOCKS_APART };
        Duration::from_micros(blob.life().get()) + apart + 2 * RULES_AGAIN
    }

    /// Returns the rules that wrote a state with this beginning.
    pub(super) async fn writer_rules(
        &self,
        request: &StoreRequest<'_>,
        state: &[u8],
        deadline: Instant,
    ) -> Result<WriterRules, RedisError> {
        if request.origin == RuleOrigin::Caller {
            return Ok(RulesBlob::read_brought(state).map_or(WriterRules::Lost, WriterRules::Rules));
        }
        let Some(stamp) = Stamp::read(state) else { return Ok(WriterRules::Lost) };
        let key = rules_key(&self.in_own_namespace(request.policy), stamp.generation());
        let known = self.read(|known| known.kept.get(&key).cloned());
        let rules = match known {
            Some(rules) => Some(rules),
            None => self.client.get(key.as_bytes(), deadline).await?,
        };
        let blob = rules.and_then(|rules| RulesBlob::of_stamp(&rules, stamp));
        if let Some(blob) = &blob {
            self.write(|all| all.keep_rules(key, blob));
        }
        Ok(blob.map_or(WriterRules::Lost, WriterRules::Rules))
    }

    /// Reads the known rules, also after a panic elsewhere: entries are written whole.
    fn read<T>(&self, look: impl FnOnce(&KnownRules) -> T) -> T {
        look(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut KnownRules)) {
        change(&mut self.rules.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl KnownRules {
    fn keep(&mut self, key: Option<String>, address: usize, set: KnownSet, until: Instant) {
        if let Some(key) = key {
            self.keep_rules(key, &set.blob);
        }
        if self.sets.len() >= RULES_MAX {
            self.sets.retain(|_, known| known.set.strong_count() > 0);
        }
        if self.sets.len() < RULES_MAX {
            self.sets.insert(address, KnownSet { kept_until: Some(until), ..set });
        }
    }

    /// Has each set of rules stored once more by its next request.
    fn store_again(&mut self) {
        self.sets.values_mut().for_each(|known| known.kept_until = None);
    }

    fn keep_rules(&mut self, key: String, blob: &RulesBlob) {
        if self.kept.len() < RULES_MAX {
            self.kept.entry(key).or_insert_with(|| Bytes::copy_from_slice(blob.rules()));
        }
    }
}

impl KnownSet {
    fn new(request: &StoreRequest<'_>) -> Result<Self, StoreError> {
        let StoreRequest { policy, rules, origin, .. } = *request;
        affordable(rules).map_err(StoreError::TooDear)?;
        Ok(Self {
            set: Arc::downgrade(rules),
            policy: policy.into(),
            origin,
            blob: RulesBlob::new(rules, origin),
            kept_until: None,
        })
    }

    /// Returns whether `request` has the same origin, and, unless that is a caller, the same policy.
    fn is_of(&self, request: &StoreRequest<'_>) -> bool {
        let is_same_policy =
            request.origin == RuleOrigin::Caller || *self.policy == *request.policy;
        is_same_policy && self.origin == request.origin
    }
}

/// The rules that wrote a state; see [`PreviousRules`].
pub(super) enum WriterRules {
    Unsaid,
    Rules(RulesBlob),
    Lost,
}

impl WriterRules {
    pub(super) const fn as_previous(&self) -> PreviousRules<'_> {
        match self {
            Self::Unsaid => PreviousRules::Unsaid,
            Self::Rules(blob) => PreviousRules::Rules(blob),
            Self::Lost => PreviousRules::Lost,
        }
    }
}

/// Returns the windows of the calendars of `later`; those of `own` are known at `at`.
pub(super) fn windows_of(
    later: &RulesBlob,
    own: &RulesBlob,
    at: &Moment<'_>,
) -> Result<Vec<Window>, StoreError> {
    let own = own.each();
    let known = || own.iter().zip(at.windows());
    let window = |rule: &BlobRule<'_>| {
        let same = known().find(|(own, _)| rule.shares_calendar(own));
        same.and_then(|(_, window)| *window)
    };
    let later = later.each();
    let windows = later.iter().filter(|rule| rule.has_calendar()).map(window);
    windows.collect::<Option<_>>().ok_or_else(|| {
        unreadable("newer rules of this policy use a calendar unknown to this server")
    })
}

/// Returns the permits of a debt of `rules` under the rules that decide. Which rule of `later` ones stands
/// for which is unknown: each is charged the most.
fn permits_under(debt: &Debt, rules: &RuleSet, later: Option<&RulesBlob>) -> Vec<u64> {
    match later {
        None => debt.permits[..rules.rules().len()].to_vec(),
        Some(later) => vec![debt.permits.into_iter().max().unwrap_or(0); later.each().len()],
    }
}

/// Splits a reply to a request in debt into the decision and the charged permits; other replies are returned
/// as they are.
fn charged_of(
    reply: Bytes,
    debt: &Debt,
    rules: &RuleSet,
    later: Option<&RulesBlob>,
) -> (Bytes, Permits) {
    let several = later.map_or(rules.rules().len(), |later| later.each().len());
    let Some((verdict, taken)) = split_charged(&reply, several) else {
        return (reply, Permits::default());
    };
    let charged = match later {
        None => taken,
        Some(_) => {
            let least = taken[..several].iter().copied().min().unwrap_or(0);
            debt.permits.map(|permits| permits.min(least))
        }
    };
    (verdict.into(), charged)
}

/// Decodes a reply under `later` rules as an answer under `own`: values of a rule are those of the own rule
/// of the same name; if there is none, the first own rule counts as the one that decided.
fn decode_later(
    reply: &[u8],
    later: &RulesBlob,
    own: &RulesBlob,
) -> Result<ScriptReply, ForeignReply> {
    let (later, own) = (later.each(), own.each());
    let reply = ScriptReply::decode_with(reply, later.iter().map(BlobRule::limit), || None)?;
    let ScriptReply::Decided(mut answer) = reply else { return Ok(reply) };
    let own_place = |rule: usize| own.iter().position(|own| own.is_named_as(&later[rule]));
    answer.verdict.rule = own_place(answer.verdict.rule).unwrap_or(0);
    let in_use = answer.in_use.into_iter();
    let in_use = in_use.filter_map(|(rule, used)| Some((own_place(rule)?, used))).collect();
    Ok(ScriptReply::Decided(StoreAnswer { in_use, ..answer }))
}

impl<C: ScriptServer> Store for RedisStore<C> {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        self.verdict(None, request, at).await.map(|(answer, _)| answer)
    }

    async fn decide_each(
        &self,
        requests: &[RequestAt<'_>],
        on_answer: &mut (impl FnMut(usize, Result<StoreAnswer, StoreError>) + Send),
    ) {
        self.verdicts(requests, on_answer).await;
    }

    async fn charge_and_decide(
        &self,
        debt: &Debt,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        self.verdict(Some(debt), request, at).await
    }

    async fn held(
        &self,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<HeldPermits, StoreError> {
        self.read_held(request, at).await
    }

    fn leases(&self) -> bool {
        self.clock() != ScriptClock::Client
    }

    async fn announce(&self, called: &[Called]) {
        // What is lost is found within a second.
        drop(self.client.announce(called).await);
    }

    async fn announced(&self) -> Vec<Called> {
        self.client.announced().await
    }

    async fn lease(
        &self,
        request: &StoreRequest<'_>,
        message: &Message,
        at: &Moment<'_>,
    ) -> Result<LeaseReply, StoreError> {
        self.reply(request, message, at).await
    }

    /// Returns an error if the queue is so full that a request would be refused. Under a flood most requests
    /// end here, before any work is done for them.
    fn decide_at_once(
        &self,
        _request: &StoreRequest<'_>,
        _at: &Moment<'_>,
    ) -> Option<Result<Verdict, StoreError>> {
        match self.client.refuses()? {
            error @ RedisError::Overloaded { .. } => Some(Err(error.into())),
            _ => None,
        }
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> Self {
        let executed = error.outcome().into();
        match error {
            RedisError::Overloaded { .. } => Self::Overloaded { executed },
            RedisError::Refused(ref refusal) if refusal.is_wrong_type() => {
                unreadable(&error.to_string())
            }
            error => Self::Unavailable { reason: error.to_string(), executed },
        }
    }
}

impl From<CallEffect> for Executed {
    fn from(outcome: CallEffect) -> Self {
        match outcome {
            CallEffect::NotExecuted => Self::No,
            CallEffect::Unknown => Self::Perhaps,
        }
    }
}

/// Returns the error of a decision after so many calls that were answered. If there were any, and the time
/// is over, other callers came in between.
pub(super) fn failed(error: RedisError, answered: usize) -> StoreError {
    match (error, answered) {
        (RedisError::Timeout { outcome }, 1..) => {
            StoreError::Contended { executed: outcome.into() }
        }
        (error, _) => error.into(),
    }
}

pub(super) fn unreadable(reason: &str) -> StoreError {
    StoreError::Unreadable { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::{Rate, TokenBucket};

    use super::*;

    #[test]
    fn rules_are_remembered_as_long_as_there_is_room() {
        let bucket = TokenBucket::new(Rate::per_second(1).expect("a rate"), 1).expect("a bucket");
        let blob = RulesBlob::new(&RuleSet::single("a", bucket), RuleOrigin::default());
        let kept = (1..RULES_MAX).map(|place| (place.to_string(), Bytes::new())).collect();
        let mut known = KnownRules { kept, ..KnownRules::default() };
        known.keep_rules("last".to_owned(), &blob);
        known.keep_rules("late".to_owned(), &blob);
        assert_eq!(known.kept.get("last").map(|rules| &**rules), Some(blob.rules()));
        assert_eq!(known.kept.len(), RULES_MAX);
    }
}
