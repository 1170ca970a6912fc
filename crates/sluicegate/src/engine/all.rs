//! Decides several requests together: all pass, or none is charged.
//!
//! Stores decide one budget at a time. So each check is first looked at by a peek, and the request that is
//! expected to be refused is decided first: if it is, the others were never touched. Only when other callers
//! take permits in between may one be charged and another refused; then the charge is given back.

use std::cmp::Reverse;
use std::fmt;
use std::mem;
use std::sync::Arc;

use sluicegate_kernel::{Cost, Micros, Verb};
use sluicegate_policy::Overflow;
use sluicegate_store::Store;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::guard::takes;
use super::request::TakenPermits;
use super::{Admission, Answer, DecideError, Limits, Observer, Patience, Request, Turn};

/// The outcome of requests that were decided together.
#[derive(Clone, Debug)]
pub enum BatchOutcome {
    /// All pass: the decisions, in the order of the requests.
    Passed(Vec<Admission>),
    /// None passes, because one does not.
    Refused {
        /// The place of the refused request.
        place: usize,
        /// Its decision.
        admission: Admission,
        /// Places of requests that stay charged because the store did not take the permits back; none while it answers.
        stay_charged: Vec<usize>,
    },
}

/// The reason for which requests were not decided together: one could not be decided. None passes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {place}: {error}")]
pub struct BatchError {
    /// The place of the request that could not be decided.
    pub place: usize,
    /// The error of that request.
    pub error: DecideError,
    /// Places of requests that stay charged because the store did not take the permits back.
    pub stay_charged: Vec<usize>,
}

/// The expected outcome of a request, in the order in which requests are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Forecast {
    /// Expected to be refused; of a gateway's request the wait, µs, the longest first; otherwise 0.
    Refused(Reverse<u64>),
    Diverted,
    Degraded,
    Passes,
    MayBeHeld,
}

/// Permits charged for requests that belong together: given back unless they are [kept](Self::keep), also if
/// the caller stops waiting.
pub struct ChargedBatch<'t, 'r, S: Store + 'static, O: Observer> {
    turn: &'t Turn<'t, S, O>,
    requests: &'t [Request<'r>],
    /// Place of each request that was charged, and its permits.
    taken: Vec<(usize, u64)>,
}

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// Decides `requests` together: all pass, or none is charged. Each may be delayed up to its
    /// patience; one without patience is refused where its policy would delay it.
    ///
    /// If the future is dropped, what was charged is given back.
    ///
    /// # Errors
    /// [`BatchError`]; a refusal is an answer, not an error.
    ///
    /// Outside of a tokio runtime nothing can be given back, and the charge stays.
    #[doc(hidden)]
    pub async fn decide_all(&self, requests: &[Request<'_>]) -> Result<BatchOutcome, BatchError> {
        let mut charged = self.batch(requests);
        let mut admissions = vec![None; requests.len()];
        for place in self.order(requests).await? {
            match self.decide(&self.not_held(&requests[place])).await {
                Ok(admission) if admission.way.passes() => {
                    charged.record(place, &admission);
                    admissions[place] = Some(admission);
                }
                Ok(admission) => {
                    let stay_charged = charged.give_back().await;
                    return Ok(BatchOutcome::Refused { place, admission, stay_charged });
                }
                Err(error) => {
                    let stay_charged = charged.give_back().await;
                    return Err(BatchError { place, error, stay_charged });
                }
            }
        }
        charged.keep();
        Ok(BatchOutcome::Passed(admissions.into_iter().flatten().collect()))
    }

    /// Returns a batch of `requests` with nothing charged yet; some may be charged together, and given back together.
    #[doc(hidden)]
    pub const fn batch<'t, 'r>(
        &'t self,
        requests: &'t [Request<'r>],
    ) -> ChargedBatch<'t, 'r, S, O> {
        ChargedBatch { turn: self, requests, taken: Vec::new() }
    }

    /// Returns the places of `requests` in the order in which they are decided: expected refusals come first.
    async fn order(&self, requests: &[Request<'_>]) -> Result<Vec<usize>, BatchError> {
        let mut places: Vec<_> = (0..requests.len()).collect();
        if requests.len() < 2 {
            return Ok(places);
        }
        let (looked_at, looks): (Vec<_>, Vec<_>) =
            places.iter().filter_map(|place| Some((*place, as_peek(&requests[*place])?))).unzip();
        let mut forecasts = vec![Forecast::Passes; requests.len()];
        for (place, looked) in looked_at.into_iter().zip(self.decide_each(&looks).await) {
            let undecided = |error| BatchError { place, error, stay_charged: Vec::new() };
            forecasts[place] = self.forecast(&requests[place], &looked.map_err(undecided)?);
        }
        places.sort_by_key(|place| forecasts[*place]);
        Ok(places)
    }

    /// Returns the expected outcome of `request`, by the result of its peek, `looked`.
    fn forecast(&self, request: &Request<'_>, looked: &Admission) -> Forecast {
        let policy = self.policies.resolve(request.limits.name());
        policy.map_or(Forecast::Passes, |policy| {
            Forecast::of(request.patience, policy.overflow(), &looked.answer)
        })
    }

    /// Returns `request`, changed so that a check without patience books no turn for later.
    fn not_held<'r>(&self, request: &Request<'r>) -> Request<'r> {
        let Limits::Policy(name) = request.limits else { return request.clone() };
        let overflow = self.policies.resolve(name).map(|policy| policy.overflow());
        match (request.patience, overflow, &request.verb) {
            (Patience::None, Some(Overflow::Queue { .. }), &Verb::Check { cost }) => {
                request.with_verb(Verb::Reserve { cost, max_wait: Micros::ZERO })
            }
            _ => request.clone(),
        }
    }

    /// Gives back what was taken, in a task of its own.
    /// Returns the indexes of those that the store did not take back.
    /// `None`: there is no runtime to run it.
    pub(super) fn give_back(&self, taken: Vec<TakenPermits>) -> Option<JoinHandle<Vec<usize>>> {
        let (engine, label) = (Arc::clone(self.engine), self.label);
        Some(Handle::try_current().ok()?.spawn(async move {
            let turn = engine.turn_for(label);
            let mut kept = Vec::new();
            for (place, TakenPermits { request, permits }) in taken.iter().enumerate().rev() {
                let Ok(cost) = Cost::new(*permits) else { continue };
                let request = request.borrow();
                let policy = turn.policies.resolve(request.limits.name());
                // What was taken here goes back, even where the app may not refund.
                let owner = policy.filter(|policy| !policy.entrusts(request.app));
                let app = owner.and_then(|policy| policy.owner()).or(request.app);
                let verb = match request.verb {
                    Verb::Acquire { permit, .. } => Verb::Release { permit },
                    _ => Verb::Refund { cost },
                };
                let patience = Patience::None;
                if turn.decide(&Request { app, verb, patience, ..request }).await.is_err() {
                    kept.push(place);
                }
            }
            kept
        }))
    }
}

impl Forecast {
    fn of(patience: Patience, overflow: &Overflow, looked: &Answer) -> Self {
        let is_over = !looked.decision.allowed();
        let retry = looked.decision.retry_after();
        let Patience::Gateway(_) = patience else {
            // They keep their order: the first that is refused is reported.
            return match overflow {
                Overflow::Reject | Overflow::Queue { .. } if is_over => Self::Refused(Reverse(0)),
                Overflow::Divert { .. } | Overflow::Degrade(_) if is_over => Self::Diverted,
                _ => Self::Passes,
            };
        };
        match overflow {
            Overflow::Queue { max_wait }
                if !is_over || retry.is_some_and(|retry| retry <= *max_wait) =>
            {
                Self::MayBeHeld
            }
            Overflow::Queue { .. } | Overflow::Reject if is_over => {
                Self::Refused(Reverse(retry.map_or(u64::MAX, Micros::get)))
            }
            Overflow::Divert { .. } if is_over => Self::Diverted,
            Overflow::Degrade(_) if is_over => Self::Degraded,
            _ if looked.decision.wait() > Micros::ZERO => Self::MayBeHeld,
            _ => Self::Passes,
        }
    }
}

impl<S: Store + 'static, O: Observer> ChargedBatch<'_, '_, S, O> {
    /// Decides the requests at `places`, each on its own and all at once, and records the permits of those
    /// that pass.
    ///
    /// # Errors
    /// The first [`DecideError`]; a refusal is an answer, not an error.
    pub async fn decide(&mut self, places: &[usize]) -> Result<Vec<Admission>, DecideError> {
        let requests: Vec<_> = places.iter().map(|place| self.requests[*place].clone()).collect();
        let decided = self.turn.decide_each(&requests).await;
        for (place, decided) in places.iter().zip(&decided) {
            if let Ok(admission) = decided {
                self.record(*place, admission);
            }
        }
        decided.into_iter().collect()
    }

    /// Returns the places of the requests that are recorded as charged.
    pub fn taken(&self) -> impl Iterator<Item = usize> {
        self.taken.iter().map(|(place, _)| *place)
    }

    /// Keeps the charges: they are not given back.
    pub fn keep(mut self) {
        self.taken.clear();
    }

    fn record(&mut self, place: usize, admission: &Admission) {
        let takes = takes(&self.requests[place].verb);
        if takes && admission.way.passes() && admission.answer.charged() > 0 {
            self.taken.push((place, admission.answer.charged()));
        }
    }

    /// Gives back what was taken. Returns the places of what stays charged.
    pub async fn give_back(&mut self) -> Vec<usize> {
        let taken = mem::take(&mut self.taken);
        if taken.is_empty() {
            return Vec::new();
        }
        let kept = match self.spawn_refund(&taken) {
            Some(giving_back) => giving_back.await.ok(),
            None => None,
        };
        // A task that panicked has not given back either.
        let kept = kept.unwrap_or_else(|| (0..taken.len()).collect());
        let mut places: Vec<_> = kept.into_iter().map(|nth| taken[nth].0).collect();
        places.sort_unstable();
        places
    }

    fn spawn_refund(&self, taken: &[(usize, u64)]) -> Option<JoinHandle<Vec<usize>>> {
        let of = |(place, permits): &(usize, u64)| TakenPermits {
            request: self.requests[*place].to_owned(),
            permits: *permits,
        };
        self.turn.give_back(taken.iter().map(of).collect())
    }
}

impl<S: Store + 'static, O: Observer> fmt::Debug for ChargedBatch<'_, '_, S, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChargedBatch").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl<S: Store + 'static, O: Observer> Drop for ChargedBatch<'_, '_, S, O> {
    fn drop(&mut self) {
        let taken = mem::take(&mut self.taken);
        if !taken.is_empty() {
            self.spawn_refund(&taken);
        }
    }
}

/// Returns `request` as a peek, if it is a check of a policy; `None` for all others, which are not peeked at.
fn as_peek<'r>(request: &Request<'r>) -> Option<Request<'r>> {
    let (Limits::Policy(_), &Verb::Check { cost }) = (request.limits, &request.verb) else {
        return None;
    };
    Some(request.with_verb(Verb::Peek { cost }).with_patience(Patience::None))
}
