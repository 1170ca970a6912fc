//! The breaker: stops calls to a store that does not answer.
//!
//! A decision waits for its store up to a deadline. While the store is gone, every decision would
//! wait that long in vain. So the breaker opens when half of the last second's calls have failed, if there
//! were five or more. From then on only a probe now and then finds out whether the store is back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::Micros;

/// Slots in which the last second is counted; old ones fall out one by one.
const SLOTS: usize = 10;

/// The span of one slot.
const SLOT: Micros = Micros::from_millis(100);

/// Fewest calls that can open it: a failure or two prove nothing.
const CALLS_MIN: u32 = 5;

/// Mean time between two probes: short, so that a store that is back is used again at once, and
/// long beside a deadline, so that hardly any decision waits for a store that is gone.
const PROBE_EVERY: Micros = Micros::from_millis(200);

/// Counts calls and failures, and opens when too many fail.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    slots: [Slot; SLOTS],
    open: Option<OpenPeriod>,
}

/// The outcomes of the calls of a tenth of a second.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// The number of that tenth, counted from zero of the clock.
    number: u64,
    calls: u32,
    failures: u32,
}

/// A period without calls, `from..until`; the first call after it is a probe.
#[derive(Clone, Copy, Debug)]
struct OpenPeriod {
    from: Micros,
    until: Micros,
}

impl Breaker {
    /// Returns whether the store may be called at `now`.
    pub(super) fn allows(&self, now: Micros) -> bool {
        let mut state = self.lock();
        match state.open {
            // A clock that went back must not keep it open for longer.
            Some(OpenPeriod { from, until }) if from <= now && now < until => false,
            Some(_) => {
                state.open = Some(open(now));
                true
            }
            None => true,
        }
    }

    /// Records that the store answered a call made at `now`, and closes the breaker.
    pub(super) fn record_success(&self, now: Micros) {
        let mut state = self.lock();
        if state.open.take().is_some() {
            state.slots = Default::default();
        }
        state.slot(now).calls += 1;
    }

    /// Records that the store did not answer a call made at `now`.
    pub(super) fn record_failure(&self, now: Micros) {
        let mut state = self.lock();
        let slot = state.slot(now);
        slot.calls += 1;
        slot.failures += 1;
        if state.open.is_none() && state.mostly_fails(now) {
            state.open = Some(open(now));
        }
    }

    /// Returns whether it is open.
    pub(super) fn is_open(&self) -> bool {
        self.lock().open.is_some()
    }

    /// The state, also after a panic elsewhere: its counts are then right or nearly so.
    fn lock(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BreakerState {
    fn slot(&mut self, now: Micros) -> &mut Slot {
        let number = slot_number(now);
        let place = number % SLOTS as u64;
        let slot = &mut self.slots[usize::try_from(place).expect("a place in an array")];
        if slot.number != number {
            *slot = Slot { number, ..Slot::default() };
        }
        slot
    }

    fn mostly_fails(&self, now: Micros) -> bool {
        let newest = slot_number(now);
        let recent = self.slots.iter().filter(|slot| newest.abs_diff(slot.number) < SLOTS as u64);
        let (calls, failures) = recent
            .fold((0, 0), |(calls, failures), slot| (calls + slot.calls, failures + slot.failures));
        calls >= CALLS_MIN && failures * 2 >= calls
    }
}

/// Returns a period from `now` until the next probe: half to one and a half times the mean, so that the
/// nodes of a fleet do not all come back in the same moment.
fn open(now: Micros) -> OpenPeriod {
    let span = PROBE_EVERY.get() / 2 + fastrand::u64(0..=PROBE_EVERY.get());
    OpenPeriod { from: now, until: now.plus(Micros::new(span)) }
}

fn slot_number(now: Micros) -> u64 {
    now.get() / SLOT.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Micros = Micros::from_millis(301);

    fn record_failure(breaker: &Breaker, times: u32, now: Micros) {
        (0..times).for_each(|_| breaker.record_failure(now));
    }

    #[test]
    fn it_opens_when_half_of_a_seconds_calls_fail() {
        let breaker = Breaker::default();
        let now = Micros::from_secs(100);
        (0..6).for_each(|_| breaker.record_success(now));
        record_failure(&breaker, 5, now);
        assert!(breaker.allows(now));
        breaker.record_failure(now);
        assert!(!breaker.allows(now));
    }

    #[test]
    fn a_few_failures_say_nothing_and_old_ones_are_forgotten() {
        let breaker = Breaker::default();
        record_failure(&breaker, 4, Micros::from_secs(100));
        assert!(!breaker.is_open());
        record_failure(&breaker, 4, Micros::from_secs(102));
        assert!(!breaker.is_open());
        record_failure(&breaker, 1, Micros::from_secs(102));
        assert!(breaker.is_open());
    }

    #[test]
    fn an_open_one_lets_a_single_probe_pass_and_an_answer_closes_it() {
        let breaker = Breaker::default();
        let now = Micros::from_secs(100);
        record_failure(&breaker, 5, now);
        let later = now.plus(LONGEST);
        assert!(breaker.allows(later), "a probe");
        assert!(!breaker.allows(later), "and no other");
        breaker.record_failure(later);
        assert!(!breaker.allows(later));
        assert!(breaker.allows(later.plus(LONGEST)));
        breaker.record_success(later.plus(LONGEST));
        assert!(!breaker.is_open());
        assert!(breaker.allows(later.plus(LONGEST)));
    }

    #[test]
    fn a_clock_that_goes_back_does_not_keep_it_open() {
        let breaker = Breaker::default();
        record_failure(&breaker, 5, Micros::from_secs(100));
        assert!(breaker.allows(Micros::from_secs(40)));
    }
}
