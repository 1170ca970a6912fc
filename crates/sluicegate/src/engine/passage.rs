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
//! **Queue.** Rules that book the future (`token_bucket`, `leaky_bucket`, Guava's two) say at once
//! how long the request must be held, and it is held here. Others are asked again when they say so.
//! A caller that goes away while it is held frees its place, and gives back what was booked for it.
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
use tokio::time::sleep;

use super::{Answer, DecideError, Engine, Request, admit};

/// Requests that one engine holds back at most, over all policies: each keeps a connection and a few
/// KB busy, so that is 100 MB at the outside; the next is refused.
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

/// Permits that were booked for a request that is still held: given back if nobody waits any more.
struct Booked<S: Store + 'static> {
    engine: Arc<Engine<S>>,
    policy: String,
    key: Option<Vec<u8>>,
    app: Option<String>,
    cost: Option<Cost>,
}

impl<S: Store + 'static> Engine<S> {
    /// Decides `request` now and does what its policy says of traffic over the limit. Only `check`
    /// has an overflow; other verbs pass or are refused.
    ///
    /// Under `queue` it waits, at most as long as the policy permits: dropping the future frees its
    /// place and gives back what was booked.
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
        let policy = policies.resolve(request.policy);
        match (&request.verb, policy.map(|policy| policy.overflow())) {
            (&Verb::Check { cost }, Some(&Overflow::Queue { max_wait })) => {
                self.queue(&policies, (request, cost), max_wait, now).await
            }
            _ => {
                let answer = self.decide_in(&policies, request, now).await?;
                Ok(Passage::new(answer, &request.verb, policy))
            }
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
            (
                &(Verb::Check { cost } | Verb::AtMost { cost }),
                Some(&Overflow::Queue { max_wait }),
            ) => self.queue(&policies, (request, cost), max_wait.min(hold_max), now).await,
            _ => {
                let answer = self.decide_in(&policies, request, now).await?;
                let passage = match policy {
                    Some(policy) if is_over(&request.verb, &answer.decision) => {
                        Passage { answer, way: way(policy), held: Micros::ZERO }
                    }
                    _ => answer.into(),
                };
                let is_held = overflow != Some(&Overflow::Shadow) && takes(&request.verb);
                Ok(if is_held { self.hold(request, passage, hold_max).await } else { passage })
            }
        }
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
        let Ok(cost) = Cost::new(decision.granted()) else { return passage };
        if wait == Micros::ZERO || passage.way != Way::Through {
            return passage;
        }
        let booked = Booked::new(self, request, cost);
        if let Some(_place) = self.held.enter()
            && wait <= hold_max
        {
            booked.held(wait).await;
            return Passage { held: wait, ..passage };
        }
        let retry = Retry::After(wait.since(hold_max).max(Micros::new(1)));
        let decision = Decision { outcome: Outcome::Deny { retry }, ..decision };
        Passage::from(Answer { decision, ..passage.answer })
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
                let answered = self.ask_at_once(rules, (request, key), now)?;
                Some(answered.map(|answer| Passage::new(answer, &request.verb, Some(policy))))
            }
        }
    }

    /// Holds `request` back until it passes, for `max_wait` at most.
    async fn queue(
        self: &Arc<Self>,
        policies: &PolicySet,
        (request, cost): (&Request<'_>, Cost),
        max_wait: Micros,
        now: Micros,
    ) -> Result<Passage, DecideError> {
        let Some(_place) = self.held.enter() else {
            let verb = Verb::Reserve { cost, max_wait: Micros::ZERO };
            let at_once = Request { verb, ..request.clone() };
            return Ok(self.decide_in(policies, &at_once, now).await?.into());
        };
        let (mut held, mut now) = (Micros::ZERO, now);
        for tries_left in (0..TRIES_MAX).rev() {
            let left = Micros::new(max_wait.get() - held.get());
            let verb = Verb::Reserve { cost, max_wait: left };
            let reserve = Request { verb, ..request.clone() };
            let answer = self.decide_in(policies, &reserve, now).await?;
            if answer.decision.allowed() {
                let wait = answer.decision.wait();
                if wait > Micros::ZERO {
                    Booked::new(self, request, cost).held(wait).await;
                    held = Micros::new(held.get() + wait.get());
                }
                return Ok(Passage { held, ..answer.into() });
            }
            match answer.decision.retry_after() {
                Some(retry) if retry <= left && tries_left > 0 => {
                    sleep(retry.into()).await;
                    held = Micros::new(held.get() + retry.get());
                    now = self.clock.now();
                }
                _ => return Ok(Passage { held, ..answer.into() }),
            }
        }
        unreachable!("the last try returns")
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
            (Verb::Check { .. }, Some(policy)) if !answer.decision.allowed() => {
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

const fn takes(verb: &Verb) -> bool {
    matches!(verb, Verb::Check { .. } | Verb::AtMost { .. })
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

impl<S: Store + 'static> Booked<S> {
    fn new(engine: &Arc<Engine<S>>, request: &Request<'_>, cost: Cost) -> Self {
        Self {
            engine: Arc::clone(engine),
            policy: request.policy.to_owned(),
            key: request.key.map(<[u8]>::to_vec),
            app: request.app.map(ToOwned::to_owned),
            cost: Some(cost),
        }
    }

    /// Waits; if that is given up, the permits go back.
    async fn held(mut self, wait: Micros) {
        sleep(wait.into()).await;
        self.cost = None;
    }
}

impl<S: Store + 'static> Drop for Booked<S> {
    fn drop(&mut self) {
        let Some(cost) = self.cost else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (engine, policy) = (Arc::clone(&self.engine), std::mem::take(&mut self.policy));
        let (key, app) = (self.key.take(), self.app.take());
        runtime.spawn(async move {
            let verb = Verb::Refund { cost };
            let key = key.as_deref();
            let request = Request { policy: &policy, key, app: app.as_deref(), verb };
            // Without a store the booking lapses by itself.
            engine.decide(&request).await.ok();
        });
    }
}
