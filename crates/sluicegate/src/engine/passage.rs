//! What is done with a request over the limit: the policy's `overflow`, carried out.
//!
//! ```text
//! check ─▶ allowed ────────────────────────────────▶ Way::Through
//!   └▶ over the limit ─▶ reject ───────────────────▶ Way::Refused
//!                      ├▶ queue ─▶ held until its turn ─▶ Way::Through, or Way::Refused
//!                      ├▶ degrade ─────────────────▶ Way::Marked
//!                      ├▶ divert ──────────────────▶ Way::Diverted
//!                      └▶ shadow ──────────────────▶ Way::Shadowed
//! ```
//!
//! A `reserve` brings its own wait along, so `queue` is nothing to it; all else is done with it as with a
//! check.
//!
//! **Queue.** Rules that book the future (`token_bucket`, `leaky_bucket`, Guava's two) say at once
//! how long the request must be held, and it is held here. Others are asked again when they say so.
//! Each time the policies are those in force then. A caller that goes away while it is held frees its
//! place, and its turn goes to the next request that wants one (`turns.rs`).
//!
//! **In turn.** Who asks for a decision is told to wait, by a `leaky_bucket` that delays for instance,
//! and waits. A gateway cannot do that: it lets a request go on or not. For it what passes is held
//! here, whatever the overflow ([`Engine::pass_in_turn`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_kernel::{Cost, Decision, Micros, Outcome, Retry, Verb};
use sluicegate_policy::{Fallback, Overflow, Policy, PolicySet};
use sluicegate_store::Store;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, sleep_until};

use super::guard::Otherwise;
use super::turns::{Budget, Turn};
use super::{Answer, DecideError, Engine, Request, admit, origin, quota_of};

/// Requests that one engine holds back at most, over all policies; the next is refused. In the server each
/// keeps 15 KB busy over Envoy's protocol (measured), whose connections carry many, so that is 150 MB, and
/// 200 MB at the outside; over HTTP and RESP it is a connection, of which there are fewer.
pub const HELD_MAX: usize = 10_000;

/// How often a held request is asked for again at most: rules that do not book the future let the
/// luckiest through, and who was unlucky so often has waited long.
const TRIES_MAX: usize = 64;

/// A decision and what follows from it.
#[derive(Clone, Debug)]
pub struct Passage {
    /// The decision. Of a request that was held it is the last one.
    pub answer: Answer,
    /// What is done with the request.
    pub way: Way,
    /// How long it was held back by the engine.
    pub held: Micros,
}

/// What is done with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// It passes.
    Through,
    /// It is refused.
    Refused,
    /// It is over the limit and passes, marked: this policy has the fallback.
    Marked(Arc<Policy>),
    /// It is over the limit and goes elsewhere: this policy says where to.
    Diverted(Arc<Policy>),
    /// It is over the limit and passes all the same, counted.
    Shadowed,
}

impl Way {
    /// Whether the caller may go on as it wanted to.
    pub const fn passes(&self) -> bool {
        matches!(self, Self::Through | Self::Shadowed)
    }

    /// The fallback of a request that was marked.
    pub fn fallback(&self) -> Option<&Fallback> {
        let Self::Marked(policy) = self else { return None };
        match policy.overflow() {
            Overflow::Degrade(fallback) => Some(fallback),
            _ => None,
        }
    }

    /// Where a diverted request goes.
    pub fn target(&self) -> Option<&str> {
        let Self::Diverted(policy) = self else { return None };
        match policy.overflow() {
            Overflow::Divert { target } => Some(target),
            _ => None,
        }
    }
}

/// Requests that are held back now.
#[derive(Debug, Default)]
pub(super) struct Held(AtomicUsize);

/// A place among them.
struct Place<'a>(&'a Held);

/// The turn of a request that is held. If nobody waits for it any more, another request may have it.
struct Booked<'a, S: Store + 'static> {
    engine: &'a Engine<S>,
    request: &'a Request<'a>,
    turn: Option<Turn>,
}

impl<S: Store + 'static> Engine<S> {
    /// Decides `request` now and does what its policy says of traffic over the limit. Only `check` and
    /// `reserve` have an overflow; other verbs pass or are refused.
    ///
    /// Under `queue` it waits, at most as long as the policy permits: dropping the future frees its
    /// place, and its turn for another request.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub async fn pass(self: &Arc<Self>, request: &Request<'_>) -> Result<Passage, DecideError> {
        self.pass_as_of(request, self.clock.now()).await
    }

    /// The same as if it were `now`, µs since the Unix epoch.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub async fn pass_as_of(
        self: &Arc<Self>,
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Passage, DecideError> {
        let policies = self.policies.load_full();
        match request.verb {
            Verb::Check { cost } if queues(&policies, request).is_some() => {
                drop(policies);
                self.queue((request, cost), Micros::MAX, now).await
            }
            _ => self.pass_unheld(&policies, request, now).await,
        }
    }

    /// The same for a caller that lets requests go on or not, and cannot hold them back: a gateway.
    ///
    /// What passes is held here until it may go on, as under `queue`, but under `shadow`, where
    /// nothing is held. What would be held for longer than `hold_max` is refused, and takes nothing.
    /// `AtMost` that is granted less than it asks for is over the limit and goes the way of its policy
    /// like a check, as does `Peek`; under `queue` it takes all or nothing.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub async fn pass_in_turn(
        self: &Arc<Self>,
        request: &Request<'_>,
        now: Micros,
        hold_max: Micros,
    ) -> Result<Passage, DecideError> {
        let policies = self.policies.load_full();
        let policy = policies.resolve(request.policy);
        let overflow = policy.map(|policy| policy.overflow());
        match (&request.verb, overflow) {
            (&(Verb::Check { cost } | Verb::AtMost { cost }), Some(Overflow::Queue { .. })) => {
                self.queue((request, cost), hold_max, now).await
            }
            (&(Verb::Check { cost } | Verb::AtMost { cost }), overflow)
                if overflow != Some(&Overflow::Shadow) =>
            {
                if let Some(turn) = self.vacant_turn(&policies, (request, cost), hold_max) {
                    return Ok(self.hold(request, turn.answer.into(), hold_max).await);
                }
                let passage = self.decide_for_gateway((&policies, policy), request, now).await?;
                Ok(self.hold(request, passage, hold_max).await)
            }
            _ => self.decide_for_gateway((&policies, policy), request, now).await,
        }
    }

    async fn decide_for_gateway(
        &self,
        (policies, policy): (&PolicySet, Option<&Arc<Policy>>),
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Passage, DecideError> {
        let answer = self.decide_in(policies, request, now).await?;
        Ok(match policy {
            Some(policy) if is_over(&request.verb, &answer.decision) => {
                Passage { answer, way: way(policy), held: Micros::ZERO }
            }
            _ => answer.into(),
        })
    }

    /// Holds `request`, which passes, for as long as its decision says. If that is too long, or too
    /// many are held, it is refused, and what it took goes back.
    async fn hold(
        self: &Arc<Self>,
        request: &Request<'_>,
        passage: Passage,
        hold_max: Micros,
    ) -> Passage {
        let decision = passage.answer.decision;
        let wait = decision.wait();
        if wait == Micros::ZERO || passage.way != Way::Through {
            return passage;
        }
        if wait <= hold_max {
            let booked = Booked::new(self, request, &passage.answer);
            if let Some(_place) = self.held.enter() {
                booked.held().await;
                return Passage { held: wait, ..passage };
            }
        } else {
            self.give_back(request, &passage.answer);
        }
        let retry = Retry::After(wait.since(hold_max).max(Micros::new(1)));
        let decision = Decision { outcome: Outcome::Deny { retry }, ..decision };
        Passage::from(Answer { decision, ..passage.answer })
    }

    /// Decides `request` and holds it back in no case.
    async fn pass_unheld(
        &self,
        policies: &PolicySet,
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Passage, DecideError> {
        let answer = self.decide_in(policies, request, now).await?;
        Ok(Passage::new(answer, &request.verb, policies.resolve(request.policy)))
    }

    /// What [`pass_as_of`](Self::pass_as_of) says if nobody has to be waited for, neither a store nor
    /// a turn; otherwise `None`, and nothing was done.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    #[inline]
    pub fn pass_at_once(
        &self,
        request: &Request<'_>,
        now: Micros,
    ) -> Option<Result<Passage, DecideError>> {
        let policies = self.policies.load();
        let (policy, key, rules) = match admit(&policies, request) {
            Ok(admitted) => admitted,
            Err(error) => return Some(Err(error)),
        };
        match (&request.verb, policy.overflow()) {
            (Verb::Check { .. }, Overflow::Queue { .. }) => None,
            _ => {
                let of_policy = (rules, origin(policy), quota_of(policy));
                let otherwise = || Otherwise::of(policy);
                let answered = self.ask_at_once(otherwise, of_policy, (request, key), now)?;
                Some(answered.map(|answer| Passage::new(answer, &request.verb, Some(policy))))
            }
        }
    }

    /// Holds `request` back until it passes, for as long as its policy and `hold_max` say at most.
    async fn queue(
        self: &Arc<Self>,
        (request, cost): (&Request<'_>, Cost),
        hold_max: Micros,
        now: Micros,
    ) -> Result<Passage, DecideError> {
        let Some(_place) = self.held.enter() else {
            let verb = Verb::Reserve { cost, max_wait: Micros::ZERO };
            let at_once = Request { verb, ..request.clone() };
            return self.pass_unheld(&self.policies.load_full(), &at_once, now).await;
        };
        let (mut held, mut now, mut refused) = (Micros::ZERO, now, None);
        for tries_left in (0..TRIES_MAX).rev() {
            // By now other policies may be in force.
            let policies = self.policies.load_full();
            let Some(max_wait) = queues(&policies, request) else {
                let passed = self.pass_unheld(&policies, request, now).await;
                return or_refused(passed, refused).map(|passage| Passage { held, ..passage });
            };
            let left = max_wait.min(hold_max).since(held);
            let reserve =
                Request { verb: Verb::Reserve { cost, max_wait: left }, ..request.clone() };
            let passed = match self.vacant_turn(&policies, (request, cost), left) {
                Some(turn) => Ok(turn.answer.into()),
                None => self.decide_in(&policies, &reserve, now).await.map(Passage::from),
            };
            let passage = Passage { held, ..or_refused(passed, refused)? };
            let decision = passage.answer.decision;
            if decision.allowed() {
                let wait = decision.wait();
                if wait == Micros::ZERO {
                    return Ok(passage);
                }
                Booked::new(self, request, &passage.answer).held().await;
                return Ok(Passage { held: held.plus(wait), ..passage });
            }
            match decision.retry_after() {
                Some(retry) if retry <= left && tries_left > 0 => {
                    sleep(retry.into()).await;
                    held = held.plus(retry);
                    now = self.clock.now();
                    refused = Some(passage);
                }
                _ => return Ok(passage),
            }
        }
        unreachable!("the last try returns")
    }

    /// A turn that was booked for a request like this one, which may be asked, and that nobody waits for
    /// any more.
    fn vacant_turn(
        &self,
        policies: &PolicySet,
        (request, cost): (&Request<'_>, Cost),
        hold_max: Micros,
    ) -> Option<Turn> {
        if self.turns.is_empty() {
            return None;
        }
        admit(policies, request).ok()?;
        let last = Instant::now().checked_add(hold_max.into())?;
        self.turns.take(&Budget::of(request, cost.get()), last)
    }

    /// Gives back what was taken for a request that cannot be held, in a task of its own.
    fn give_back(self: &Arc<Self>, request: &Request<'_>, answer: &Answer) {
        let (Ok(cost), Ok(runtime)) = (Cost::new(answer.charged()), Handle::try_current()) else {
            return;
        };
        let (engine, policy) = (Arc::clone(self), request.policy.to_owned());
        let (key, app) = (request.key.map(<[u8]>::to_vec), request.app.map(ToOwned::to_owned));
        runtime.spawn(async move {
            let verb = Verb::Refund { cost };
            let (key, app) = (key.as_deref(), app.as_deref());
            // Without a store the booking lapses by itself.
            engine.decide(&Request { policy: &policy, key, app, verb }).await.ok();
        });
    }

    /// Requests that are held back now.
    pub fn held(&self) -> usize {
        self.held.0.load(Ordering::Relaxed)
    }
}

impl Passage {
    /// What follows from an answer that was not held, by the policy if there is one.
    #[inline]
    fn new(answer: Answer, verb: &Verb, policy: Option<&Arc<Policy>>) -> Self {
        match (verb, policy) {
            (Verb::Check { .. } | Verb::Reserve { .. }, Some(policy))
                if !answer.decision.allowed() =>
            {
                Self { answer, way: way(policy), held: Micros::ZERO }
            }
            _ => answer.into(),
        }
    }
}

impl From<Answer> for Passage {
    /// A decision from which nothing follows but that it passes or is refused.
    #[inline]
    fn from(answer: Answer) -> Self {
        let way = if answer.decision.allowed() { Way::Through } else { Way::Refused };
        Self { answer, way, held: Micros::ZERO }
    }
}

/// Whether what is to be taken as a whole, or looked at, is more than there is.
const fn is_over(verb: &Verb, decision: &Decision) -> bool {
    match verb {
        Verb::AtMost { cost } => decision.granted() < cost.get(),
        Verb::Check { .. } | Verb::Peek { .. } => !decision.allowed(),
        _ => false,
    }
}

/// How long the policy of `request` holds requests back; `None` if it does not.
fn queues(policies: &PolicySet, request: &Request<'_>) -> Option<Micros> {
    match policies.resolve(request.policy)?.overflow() {
        Overflow::Queue { max_wait } => Some(*max_wait),
        _ => None,
    }
}

/// What was decided. If the policy is not there any more for a request that it held, it is refused, as
/// it was before.
fn or_refused(
    passed: Result<Passage, DecideError>,
    refused: Option<Passage>,
) -> Result<Passage, DecideError> {
    match (passed, refused) {
        (Err(error), Some(refused)) if !matches!(error, DecideError::Store(_)) => Ok(refused),
        (passed, _) => passed,
    }
}

/// What follows when a request is over the limit of `policy` and was not held.
fn way(policy: &Arc<Policy>) -> Way {
    match policy.overflow() {
        Overflow::Reject | Overflow::Queue { .. } => Way::Refused,
        Overflow::Degrade(_) => Way::Marked(Arc::clone(policy)),
        Overflow::Divert { .. } => Way::Diverted(Arc::clone(policy)),
        Overflow::Shadow => Way::Shadowed,
    }
}

impl Held {
    fn enter(&self) -> Option<Place<'_>> {
        let enter = |held| (held < HELD_MAX).then_some(held + 1);
        let entered = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, enter);
        entered.is_ok().then_some(Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a, S: Store + 'static> Booked<'a, S> {
    fn new(engine: &'a Engine<S>, request: &'a Request<'a>, answer: &Answer) -> Self {
        let due = Instant::now() + answer.decision.wait().into();
        Self { engine, request, turn: Some(Turn { due, answer: answer.clone() }) }
    }

    /// Waits; if that is given up, the turn is vacant.
    async fn held(mut self) {
        if let Some(turn) = &self.turn {
            sleep_until(turn.due).await;
        }
        self.turn = None;
    }
}

impl<S: Store + 'static> Drop for Booked<'_, S> {
    fn drop(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        // What was taken of a share, or of nothing, is nobody else's.
        let charged = turn.answer.charged();
        if charged > 0 {
            self.engine.turns.vacate(Budget::of(self.request, charged), turn);
        }
    }
}
