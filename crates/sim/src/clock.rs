//! Clocks that the world sets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use sluicegate::{Clock, Micros};

/// The instant of the Unix epoch, in µs, at which every history begins: in 2026.
pub(crate) const BEGIN: u64 = 1_770_000_000_000_000;

/// The steady clock of each machine at that instant, µs. It differs from the wall clock, so code that takes one
/// for the other breaks an invariant.
const UPTIME_US: u64 = 3_600_000_000;

/// The speed of an exact clock: its advance in 1,000 µs of true time, µs.
const TRUE_SPEED: i64 = 1_000;

/// A node's clocks: the world sets them before the node runs, and wakes those that wait for them.
#[derive(Debug, Default)]
pub(crate) struct SimClock {
    wall: AtomicU64,
    steady: AtomicU64,
    hands: Mutex<Hands>,
    /// Wakers that were set since the world last looked, each with its instant by the wall clock, µs.
    alarms: Mutex<Vec<(u64, Waker)>>,
}

/// The readings of both clocks at an instant, and their speed since.
#[derive(Clone, Copy, Debug)]
struct Hands {
    /// µs of true time.
    since: u64,
    wall: u64,
    steady: u64,
    /// The advance in 1,000 µs of true time, µs.
    speed: i64,
}

impl SimClock {
    /// Sets both clocks as of `now`, µs of true time.
    pub(crate) fn set(&self, now: u64) {
        let Hands { wall, steady, .. } = self.hands().at(now);
        self.wall.store(wall, Ordering::Relaxed);
        self.steady.store(steady, Ordering::Relaxed);
    }

    /// Makes both clocks faster by `by` thousandths from `now` on.
    pub(crate) fn drift(&self, now: u64, by: i64) {
        let mut hands = self.hands();
        *hands = Hands { speed: TRUE_SPEED + by, ..hands.at(now) };
    }

    /// Sets the wall forward (or back), µs.
    pub(crate) fn step_wall(&self, now: u64, by_us: i64) {
        let mut hands = self.hands();
        let Hands { wall, .. } = hands.at(now);
        *hands = Hands { wall: wall.saturating_add_signed(by_us), ..hands.at(now) };
    }

    /// Sets both clocks back by `span_us`, during which they stood still.
    pub(crate) fn stood(&self, now: u64, span_us: u64) {
        let mut hands = self.hands();
        let Hands { wall, steady, .. } = hands.at(now);
        *hands = Hands { wall: wall - span_us, steady: steady - span_us, ..hands.at(now) };
    }

    /// Alarms that were set since the last look: when they ring by the wall, µs.
    pub(crate) fn take_alarms(&self) -> Vec<(u64, Waker)> {
        std::mem::take(&mut *self.alarms.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns how long after `now` the wall clock shows `wall`, µs of true time; 0: it does already.
    pub(crate) fn shows_in(&self, wall: u64, now: u64) -> u64 {
        let hands = self.hands();
        let missing = wall.saturating_sub(hands.at(now).wall);
        (missing * TRUE_SPEED.unsigned_abs()).div_ceil(hands.speed.unsigned_abs())
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hands {
    fn at(&self, now: u64) -> Self {
        let Self { since, wall, steady, speed } = *self;
        let shown = (now - since) * speed.unsigned_abs() / TRUE_SPEED.unsigned_abs();
        Self { since: now, wall: wall + shown, steady: steady + shown, speed }
    }
}

impl Default for Hands {
    fn default() -> Self {
        Self { since: 0, wall: BEGIN, steady: UPTIME_US, speed: TRUE_SPEED }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Micros {
        Micros::new(self.wall.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Option<Micros> {
        Some(Micros::new(self.steady.load(Ordering::Relaxed)))
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn wake_at(&self, at: Micros, waker: &Waker) -> bool {
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        alarms.push((at.get(), waker.clone()));
        true
    }
}
