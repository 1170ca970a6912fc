//! What every wire asks: the engine, and what is noted of its answers.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use sluicegate::policy::{PolicySet, Rules};
use sluicegate::store::Store;
use sluicegate::{
    Answer, DecideError, Engine, Explanation, Micros, Passage, Request, SettleError, Settled,
    Settlement, Verb, Way,
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::eyes::{Begun, Eyes, KeyFormat, Seen};
use crate::store::AnyStore;
use crate::trace::{Parent, Traces};
use crate::wire::Wire;

/// How often it is looked at whether the store answers, to say so.
const STORE_EVERY: Duration = Duration::from_secs(1);

/// How often debts are paid of keys that are not asked for any more: soon enough that other servers
/// hardly pass more than the limit meanwhile.
const DEBTS_EVERY: Duration = Duration::from_millis(100);

/// How long a server that stops waits for its store to take what it owes: a store that answers takes
/// thousands of keys meanwhile.
const LAST_PAYMENT_MAX: Duration = Duration::from_secs(1);

/// The one way from a wire to a decision.
///
/// What is asked is decided by the policy that it names, or by `rules` that the caller brings along;
/// under those nothing follows from a refusal. A check may be held back here, and dropping the future
/// frees its place.
#[derive(Debug)]
pub(crate) struct Gate<S = AnyStore> {
    engine: Arc<Engine<S>>,
    eyes: Eyes,
    traces: Option<Traces>,
}

impl<S: Store + 'static> Gate<S> {
    /// The gate to `engine`.
    pub(crate) fn new(engine: Engine<S>) -> Self {
        let eyes = Eyes::new(NonZeroU16::MIN, &engine.policies(), false, KeyFormat::default());
        Self { engine: Arc::new(engine), eyes, traces: None }
    }

    /// The same, whose decisions are seen by `eyes`.
    pub(crate) fn seen_by(self, eyes: Eyes) -> Self {
        Self { eyes, ..self }
    }

    /// The same, whose decisions are traced.
    pub(crate) fn traced(self, traces: Option<Traces>) -> Self {
        Self { traces, ..self }
    }

    /// Decides `request`, which came over `wire`, and does what its policy says of traffic over the
    /// limit.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub(crate) async fn pass(
        &self,
        wire: Wire,
        rules: Option<&Rules>,
        request: &Request<'_>,
    ) -> Result<Passage, DecideError> {
        let now = self.engine.now();
        match self.pass_at_once(wire, rules, request, now) {
            Some(passed) => passed,
            // On the heap: those that are passed at once should not carry the space for waiting.
            None => Box::pin(self.pass_in_time(wire, rules, request, now)).await,
        }
    }

    /// The same for a request that came in at `now`, if nobody has to be waited for and it is not
    /// traced; otherwise `None`, and nothing was done.
    #[inline]
    pub(crate) fn pass_at_once(
        &self,
        wire: Wire,
        rules: Option<&Rules>,
        request: &Request<'_>,
        now: Micros,
    ) -> Option<Result<Passage, DecideError>> {
        if self.traces.is_some() {
            return None;
        }
        let begun = self.eyes.begin();
        let passed = match rules {
            None => self.engine.pass_at_once(request, now)?,
            Some(rules) => self.decide_by_at_once(rules, request, now)?.map(Passage::from),
        };
        self.note((wire, rules), request, &passed, begun);
        Some(passed)
    }

    /// The same for one that was not passed at once.
    pub(crate) async fn pass_in_time(
        &self,
        wire: Wire,
        rules: Option<&Rules>,
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Passage, DecideError> {
        let passing = async {
            match rules {
                None => self.engine.pass_as_of(request, now).await,
                Some(rules) => self.decide_by(rules, request, now).await.map(Passage::from),
            }
        };
        self.seen((wire, rules), request, passing).await
    }

    /// Decides `request` of a gateway, which cannot hold it back: see [`Engine::pass_in_turn`]. It is
    /// held here for `hold_max` at most.
    ///
    /// # Errors
    /// [`DecideError`]; a refusal is an answer, not an error.
    pub(crate) async fn pass_in_turn(
        &self,
        wire: Wire,
        rules: Option<&Rules>,
        request: &Request<'_>,
        hold_max: Micros,
    ) -> Result<Passage, DecideError> {
        let now = self.engine.now();
        // On the heap, once: each future around it would have room for it twice, as long as it is held.
        let passing = Box::pin(async {
            match rules {
                None => self.engine.pass_in_turn(request, now, hold_max).await,
                Some(rules) => {
                    self.decide_by(rules, request, now).await.map(|it| all_of(it, request))
                }
            }
        });
        self.seen((wire, rules), request, passing).await
    }

    async fn decide_by(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        now: Micros,
    ) -> Result<Answer, DecideError> {
        let name = own_name(request);
        let own = name.as_deref().map(|policy| Request { policy, ..request.clone() });
        self.engine.decide_by(rules, own.as_ref().unwrap_or(request), now).await
    }

    fn decide_by_at_once(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        now: Micros,
    ) -> Option<Result<Answer, DecideError>> {
        let name = own_name(request);
        let own = name.as_deref().map(|policy| Request { policy, ..request.clone() });
        self.engine.decide_by_at_once(rules, own.as_ref().unwrap_or(request), now)
    }

    /// What `passing` comes to, for operators to see.
    async fn seen(
        &self,
        (wire, rules): (Wire, Option<&Rules>),
        request: &Request<'_>,
        passing: impl Future<Output = Result<Passage, DecideError>>,
    ) -> Result<Passage, DecideError> {
        let begun = self.eyes.begin();
        let passed = match &self.traces {
            None => passing.await,
            Some(traces) => traces.decision((wire, rules.is_some()), request, passing).await,
        };
        self.note((wire, rules), request, &passed, begun);
        passed
    }

    /// Corrects a charge to what it cost. Operators see the correction.
    ///
    /// # Errors
    /// [`SettleError`].
    pub(crate) async fn settle(
        &self,
        wire: Wire,
        settlement: &Settlement<'_>,
    ) -> Result<Settled, SettleError> {
        let begun = self.eyes.begin();
        let settled = self.engine.settle(settlement).await;
        let seen = match &settled {
            Ok(settled) => Ok(settled.answer.clone().into()),
            Err(SettleError::Decide(error)) => Err(error.clone()),
            Err(SettleError::Undone(error) | SettleError::Unknown(error)) => {
                Err(DecideError::Store(error.clone()))
            }
            // Nothing was decided about a budget.
            Err(_) => return settled,
        };
        let Settlement { policy, key, app, .. } = *settlement;
        let request = Request { policy, key, app, verb: settlement.correction() };
        self.note((wire, None), &request, &seen, begun);
        settled
    }

    /// Which rules hold for `request`, a peek, and what each would say. Operators see that peek.
    ///
    /// # Errors
    /// [`DecideError`].
    pub(crate) async fn explain(
        &self,
        wire: Wire,
        request: &Request<'_>,
    ) -> Result<Explanation, DecideError> {
        let begun = self.eyes.begin();
        let explained = self.engine.explain(request).await;
        let seen = explained.as_ref().map(|explanation| explanation.answer.clone().into());
        self.note((wire, None), request, &seen.map_err(Clone::clone), begun);
        explained
    }

    /// Lets operators see that a look answered `request`: it was refused without being asked.
    pub(crate) fn refused_by_look(&self, wire: Wire, request: &Request<'_>, seen: &Passage) {
        self.note((wire, None), request, &Ok(seen.clone()), Begun::UNTIMED);
    }

    /// Lets operators see what became of `request`.
    #[inline]
    fn note(
        &self,
        (wire, rules): (Wire, Option<&Rules>),
        request: &Request<'_>,
        passed: &Result<Passage, DecideError>,
        begun: Begun,
    ) {
        let decided = passed.as_ref().map(|Passage { answer, way, held }| (answer, way, *held));
        let seen = Seen { wire, request, by_caller: rules.is_some(), decided };
        self.eyes.see(&seen, begun);
    }

    /// The trace that a caller names in `headers`.
    pub(crate) fn parent(&self, headers: &HeaderMap) -> Parent {
        Traces::parent(self.traces.as_ref(), headers)
    }

    /// Where decisions are traced.
    pub(crate) const fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }

    /// Says when the store is given up and when it is back, has it charge what was admitted meanwhile,
    /// and does what [`Eyes::keep`] does, until `stop`.
    pub(crate) async fn keep(&self, stop: &CancellationToken) {
        let saying = async {
            let mut without_store = false;
            while timeout(STORE_EVERY, stop.cancelled()).await.is_err() {
                let is_without_store = self.engine.is_without_store();
                match (without_store, is_without_store) {
                    (false, true) => tracing::warn!(
                        "store: it does not answer; policies decide by `on_store_failure`"
                    ),
                    (true, false) => tracing::info!("store: it answers again"),
                    _ => {}
                }
                without_store = is_without_store;
            }
        };
        let paying = async {
            while self.engine.goes_on_without_store()
                && timeout(DEBTS_EVERY, stop.cancelled()).await.is_err()
            {
                while !self.engine.is_without_store() {
                    let before = self.engine.debts();
                    if before == 0 || self.engine.pay_debts().await >= before {
                        break;
                    }
                }
            }
        };
        tokio::join!(saying, paying, self.eyes.keep(stop));
    }

    /// Pays what this server still owes the store, as far as that answers within a second: a server that
    /// stops would forget it.
    pub(crate) async fn pay_all(&self) {
        let paying = async {
            while self.engine.pay_debts().await > 0 {
                sleep(DEBTS_EVERY / 10).await;
            }
        };
        if timeout(LAST_PAYMENT_MAX, paying).await.is_err() {
            let keys = self.engine.debts();
            tracing::warn!("store: it does not answer; what {keys} keys owe it is forgotten");
        }
    }

    /// Puts `policies` in force from the next request on.
    pub(crate) fn set_policies(&self, policies: PolicySet) {
        self.eyes.follow(&policies);
        self.engine.set_policies(policies);
    }

    /// What operators see of the decisions.
    pub(crate) const fn eyes(&self) -> &Eyes {
        &self.eyes
    }

    /// The engine behind it.
    pub(crate) const fn engine(&self) -> &Arc<Engine<S>> {
        &self.engine
    }
}

/// Under which name stores keep a budget of rules that an app brings along, where it is known which
/// asks: others may call theirs the same. No policy has it, and no app: both have no `/`.
fn own_name(request: &Request<'_>) -> Option<String> {
    request.app.map(|app| format!("{app}/{}", request.policy))
}

/// Who is granted less than they ask for is over a limit that no policy has a way for.
fn all_of(answer: Answer, request: &Request<'_>) -> Passage {
    match request.verb {
        Verb::AtMost { cost } if answer.decision.granted() < cost.get() => {
            Passage { answer, way: Way::Refused, held: Micros::ZERO }
        }
        _ => answer.into(),
    }
}

#[cfg(test)]
impl Gate {
    /// A gate to these policies, with state in memory.
    pub(crate) fn in_memory(policies: sluicegate::policy::PolicySet) -> Arc<Self> {
        let store = AnyStore::Memory(Arc::default());
        Arc::new(Self::new(Engine::new(policies, store, Arc::new(sluicegate::WallClock))))
    }
}
