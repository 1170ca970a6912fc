//! The pauses between attempts to connect: doubling, jittered, bounded.

use std::time::Duration;

/// The first pause: long enough not to spin, short enough not to be noticed.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The longest pause: a server that comes back is noticed well within a second.
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// The age from which a connection counts as good: the next pause is the shortest again.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// The pauses between attempts that fail. Attempts never end.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the next pause: between half of the present bound and all of it, so that many
    /// clients that lost one server do not come back at the same moment.
    pub(super) fn pause(&mut self) -> Duration {
        let bound = PAUSE_MIN.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Makes the next pause the shortest again, after a success.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Notes that a connection was lost that had been there for `age`.
    pub(super) fn record_loss(&mut self, age: Duration) {
        if age >= SETTLED_AFTER {
            self.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_never_pass_it() {
        let mut backoff = Backoff::default();
        let first = backoff.pause();
        assert!(first >= PAUSE_MIN / 2 && first <= PAUSE_MIN, "{first:?}");
        for _ in 0..100 {
            assert!(backoff.pause() <= PAUSE_MAX);
        }
        assert!(backoff.pause() >= PAUSE_MAX / 2);
        backoff.reset();
        assert!(backoff.pause() <= PAUSE_MIN);
    }

    #[test]
    fn a_connection_counts_as_good_once_it_has_lasted() {
        let mut backoff = Backoff { failures: 16 };
        backoff.record_loss(SETTLED_AFTER - Duration::from_nanos(1));
        assert!(backoff.pause() > PAUSE_MIN, "it may be lost again at once");
        backoff.record_loss(SETTLED_AFTER);
        assert!(backoff.pause() <= PAUSE_MIN);
    }

    #[test]
    fn two_clients_do_not_come_back_at_the_same_moment() {
        let mut pauses: Vec<_> = (0..32).map(|_| Backoff::default().pause()).collect();
        pauses.sort();
        pauses.dedup();
        assert!(pauses.len() > 16, "{pauses:?}");
    }
}
