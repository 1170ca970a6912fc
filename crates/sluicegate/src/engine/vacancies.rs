//! Booked turns whose requests were dropped.
//!
//! A request that is delayed has booked its turn in the store: its permits at that instant. If its
//! caller goes away, the permits cannot go back: those behind it keep their later turns, and the next
//! request would be booked for the turn of the last of them, so that both pass at once (ADR 3). So the
//! turn is kept, and the next request of the same budget that takes as much gets it. If none comes in
//! time, the turn lapses, and less than the limit passes.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::Outcome;
use tokio::time::Instant;

use super::{Answer, Request};

/// Most turns that are kept: as many as requests are delayed. Those beyond lapse.
const VACANCIES_MAX: usize = super::HELD_MAX;

/// By budget, the answers by the instant of their turn and a number.
type Vacant = HashMap<Claim, BTreeMap<(Instant, usize), Answer>>;

/// The turns without a request, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Vacancies {
    vacant: Mutex<Vacant>,
    count: AtomicUsize,
}

/// The budget and permits that a request must have to use a turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    policy: String,
    key: Option<Vec<u8>>,
    permits: u64,
}

/// A turn, and the store's answer when it was booked.
#[derive(Debug)]
pub(super) struct Vacancy {
    pub(super) due: Instant,
    pub(super) answer: Answer,
}

impl Claim {
    /// Returns the claim to `permits` of the budget of `request`.
    pub(super) fn of(request: &Request<'_>, permits: u64) -> Self {
        let key = request.key.map(<[u8]>::to_vec);
        Self { policy: request.limits.name().to_owned(), key, permits }
    }

    /// Returns the claim to a budget, whatever it takes.
    pub(super) fn on(policy: &str, key: &[u8]) -> Self {
        let key = (!key.is_empty()).then(|| key.to_vec());
        Self { policy: policy.to_owned(), key, permits: 0 }
    }
}

impl Vacancies {
    /// Returns whether there is none: most of the time.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Keeps a turn for another request, if there is room.
    pub(super) fn vacate(&self, budget: Claim, Vacancy { due, answer }: Vacancy) {
        let mut vacant = self.lock();
        if self.count.load(Ordering::Relaxed) >= VACANCIES_MAX {
            let now = Instant::now();
            vacant.retain(|_, turns| {
                *turns = turns.split_off(&(now, usize::MAX));
                !turns.is_empty()
            });
            self.count.store(vacant.values().map(BTreeMap::len).sum(), Ordering::Relaxed);
        }
        let count = self.count.load(Ordering::Relaxed);
        if count < VACANCIES_MAX {
            let turns = vacant.entry(budget).or_default();
            // The number keeps turns of the same instant apart.
            let number = (0..).find(|number| !turns.contains_key(&(due, *number)));
            turns.insert((due, number.expect("not all are taken")), answer);
            self.count.store(count + 1, Ordering::Relaxed);
        }
    }

    /// Takes the first turn of `budget` that is still to come, and is due by `last`.
    pub(super) fn take(&self, budget: &Claim, last: Instant) -> Option<Vacancy> {
        let now = Instant::now();
        let mut vacant = self.lock();
        let turns = vacant.get_mut(budget)?;
        let kept = turns.len();
        // Turns that were due by now have lapsed: those behind them may pass in the next moment.
        *turns = turns.split_off(&(now, usize::MAX));
        let next = turns.first_entry().filter(|first| first.key().0 <= last);
        let turn = next.map(|first| {
            let ((due, _), mut answer) = first.remove_entry();
            if let Outcome::Allow { wait, .. } = &mut answer.decision.outcome {
                *wait = due.duration_since(now).into();
            }
            Vacancy { due, answer }
        });
        self.count.fetch_sub(kept - turns.len(), Ordering::Relaxed);
        if turns.is_empty() {
            vacant.remove(budget);
        }
        turn
    }

    fn lock(&self) -> MutexGuard<'_, Vacant> {
        self.vacant.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluicegate_kernel::{Decision, Micros, Verb};
    use sluicegate_policy::{Document, PolicySet};

    use super::*;
    use crate::{Cost, Engine, Mode};

    fn answer() -> Answer {
        let policies = "policies: [ { name: p, rules: [ { token_bucket: { rate: 1/s } } ] } ]";
        let policies = PolicySet::new(Document::parse(policies).expect("valid"));
        let engine = std::sync::Arc::new(Engine::in_memory(policies));
        let request = Request::new("p", None, Verb::Check { cost: Cost::ONE });
        let admission = engine.turn_at(Micros::ZERO).try_decide(&request).expect("it is in memory");
        let answer = admission.expect("there is such a policy").answer;
        assert_eq!(answer.mode, Mode::Store);
        let outcome = Outcome::Allow { granted: 1, wait: Micros::SECOND };
        Answer { decision: Decision { outcome, ..answer.decision }, ..answer }
    }

    fn budget(permits: u64) -> Claim {
        Claim { policy: "p".to_owned(), key: None, permits }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_turn_that_is_to_come_goes_to_a_request_that_takes_as_much() {
        let (turns, begin) = (Vacancies::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        for due in [300, 100, 200, 200] {
            turns.vacate(budget(1), Vacancy { due: at(due), answer: answer() });
        }
        assert!(turns.take(&budget(2), at(1_000)).is_none());
        assert!(turns.take(&budget(1), at(99)).is_none(), "it would wait too long");
        tokio::time::advance(Duration::from_millis(100)).await;
        let due = || turns.take(&budget(1), at(1_000)).map(|turn| turn.due);
        assert_eq!(due(), Some(at(200)), "what was due by now has lapsed");
        let turn = turns.take(&budget(1), at(1_000)).expect("there are two of that instant");
        assert_eq!(turn.answer.decision.wait(), Micros::from_millis(100), "and not a second");
        assert_eq!(due(), Some(at(300)));
        assert_eq!((due(), turns.is_empty()), (None, true));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_turns_are_kept_than_requests_are_held() {
        let (turns, answer, begin) = (Vacancies::default(), answer(), Instant::now());
        let vacate = |permits, s| {
            let due = begin + Duration::from_secs(s);
            turns.vacate(budget(permits), Vacancy { due, answer: answer.clone() });
        };
        (0..=VACANCIES_MAX as u64).for_each(|permits| vacate(permits, 1));
        let last = begin + Duration::from_secs(9);
        assert!(turns.take(&budget(VACANCIES_MAX as u64), last).is_none(), "there is no room");
        tokio::time::advance(Duration::from_secs(2)).await;
        vacate(0, 3);
        assert!(turns.take(&budget(0), last).is_some(), "those that have lapsed make room");
        assert!(turns.is_empty());
    }
}
