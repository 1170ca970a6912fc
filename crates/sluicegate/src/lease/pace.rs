//! The pace of a holder's messages, for a key with fewer permits than its holders would like.

use sluicegate_kernel::Micros;
use sluicegate_kernel::lease::LeaseGrant;

use super::demand::{ASKS_PER_CALL, Bounds, Demand};

/// Least time between two messages where permits are short.
const PACE_MIN: Micros = Micros::from_millis(10);

/// Longest mean time between them: by then permits that others gave back are noticed.
const PACE_MAX: Micros = Micros::SECOND;

/// Number of messages of each holder in the time in which a whole budget comes back.
const PARTS: u64 = 16;

/// The earliest instants of the next message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    next: Micros,
    /// The instant at which it may be sent if enough requests came since.
    soon: Micros,
    asks: u64,
}

/// An answer to a message, with the state of its lease.
#[derive(Clone, Copy)]
pub(super) struct PacedReply<'r> {
    pub(super) grant: &'r LeaseGrant,
    /// The permits that the message requested.
    pub(super) wanted: u64,
    /// The rule that decides has its whole budget back at one instant.
    pub(super) begins_anew: bool,
    pub(super) bounds: &'r Bounds,
    pub(super) demand: &'r Demand,
}

impl Pace {
    /// Adds requests that came.
    pub(super) fn add(&mut self, asks: u64) {
        self.asks = self.asks.saturating_add(asks);
    }

    /// Returns whether a message may be sent. Enough requests make up for time: demand that jumps from one holder to
    /// another does not wait for the clock.
    pub(super) fn allows(&self, now: Micros) -> bool {
        now >= self.next || (self.asks >= ASKS_PER_CALL && now >= self.soon)
    }

    /// Time until the next message may be sent.
    pub(super) fn missing(&self, now: Micros) -> Micros {
        self.next.since(now)
    }

    /// Lets another message be sent at once, because the last one was not answered.
    pub(super) fn free(&mut self, now: Micros) {
        (self.next, self.soon) = (now, now);
    }

    /// Sets the pace after an answer to the last message.
    pub(super) fn on_reply(&mut self, reply: PacedReply<'_>, now: Micros) {
        let PacedReply { grant, wanted, begins_anew, bounds, demand } = reply;
        let missing = wanted.saturating_sub(grant.granted.into());
        // Permits that were not granted because of a share are not short.
        if missing == 0 || grant.free >= missing {
            return self.free(now);
        }
        self.asks = 0;
        self.soon = now.plus(about(PACE_MIN));
        let holders = u64::try_from(grant.holders.max(1)).unwrap_or(u64::MAX);
        let part = Micros::new(bounds.span.least.get().saturating_mul(holders) / PARTS);
        let mut pace = part.min(demand.call_lasts()).min(PACE_MAX).max(PACE_MIN);
        if bounds.span.in_steps && grant.free > 0 {
            // The rest of a window is shared out in a few rounds.
            pace = PACE_MIN;
        }
        if grant.granted == 0 {
            // The store knows when there will be some.
            let retry = grant.verdict.decision.retry_after().unwrap_or(Micros::ZERO);
            if begins_anew {
                // Then, and not later: permits that a window admits too late may lapse with it.
                self.next = now.plus(retry.min(about(PACE_MAX)).max(PACE_MIN));
                self.soon = self.next;
                return;
            }
            pace = pace.max(retry.min(PACE_MAX));
            self.soon = now.plus(pace);
        }
        self.next = now.plus(about(pace));
    }
}

/// Returns `span`, up to a quarter longer or shorter, so that holders do not all ask at once.
fn about(span: Micros) -> Micros {
    let quarter = span.get() / 4;
    Micros::new(span.get() - quarter + fastrand::u64(0..=2 * quarter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Micros {
        Micros::from_millis(number)
    }

    #[test]
    fn enough_requests_make_up_for_time_but_not_at_once() {
        let mut pace = Pace { next: ms(100), soon: ms(50), asks: 0 };
        pace.add(ASKS_PER_CALL - 1);
        assert!(!pace.allows(ms(99)) && pace.allows(ms(100)));
        pace.add(1);
        assert!(!pace.allows(ms(49)) && pace.allows(ms(50)));
        pace.free(ms(10));
        assert!(pace.allows(ms(10)), "the last message was not answered");
    }

    #[test]
    fn holders_spread_their_messages_over_half_of_a_span() {
        fastrand::seed(7);
        let drawn: Vec<_> = (0..500).map(|_| about(ms(1)).get()).collect();
        assert!(drawn.iter().all(|span| (750..=1_250).contains(span)), "{drawn:?}");
        assert!(drawn.iter().any(|span| *span < 800) && drawn.iter().any(|span| *span > 1_200));
    }
}
