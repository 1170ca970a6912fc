//! When a holder may ask again, where a key has less than its holders would like.

use sluicegate_kernel::Micros;
use sluicegate_kernel::lease::Stands;

use super::demand::{ASKS_PER_CALL, Bounds, Demand};

/// Least time between two messages where permits are short.
const PACE_MIN: Micros = Micros::from_millis(10);

/// Most of it: by then what others gave back is noticed.
const PACE_MAX: Micros = Micros::SECOND;

/// In so many parts of the time in which a whole budget comes back, each holder asks once.
const PARTS: u64 = 16;

/// When the next message may be sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    next: Micros,
    /// When it may be sent if enough was asked since.
    soon: Micros,
    asks: u64,
}

impl Pace {
    /// So many asks came.
    pub(super) fn add(&mut self, asks: u64) {
        self.asks = self.asks.saturating_add(asks);
    }

    /// Whether a message may be sent. Enough asks stand for time: demand that jumps from one holder to another
    /// does not wait for the clock.
    pub(super) fn allows(&self, now: Micros) -> bool {
        now >= self.next || (self.asks >= ASKS_PER_CALL && now >= self.soon)
    }

    /// How long until the next message may be sent.
    pub(super) fn missing(&self, now: Micros) -> Micros {
        self.next.since(now)
    }

    /// The last message was not answered: another may be sent at once.
    pub(super) fn free(&mut self, now: Micros) {
        (self.next, self.soon) = (now, now);
    }

    /// The last message, which asked for `wanted` permits, was answered so. `begins_anew` says whether the rule that
    /// decides has its whole budget back at one instant.
    pub(super) fn heard(
        &mut self,
        (stands, wanted, begins_anew): (&Stands, u64, bool),
        (bounds, demand): (&Bounds, &Demand),
        now: Micros,
    ) {
        let missing = wanted.saturating_sub(stands.granted.into());
        // What was granted less because of a share is not short.
        if missing == 0 || stands.free >= missing {
            return self.free(now);
        }
        self.asks = 0;
        self.soon = now.plus(about(PACE_MIN));
        let holders = u64::try_from(stands.holders.max(1)).unwrap_or(u64::MAX);
        let part = Micros::new(bounds.span.least.get().saturating_mul(holders) / PARTS);
        let mut pace = part.min(demand.call_lasts()).min(PACE_MAX).max(PACE_MIN);
        if bounds.span.in_steps && stands.free > 0 {
            // The rest of a window is shared out in a few rounds.
            pace = PACE_MIN;
        }
        if stands.granted == 0 {
            // The store knows when there will be some.
            let retry = stands.verdict.decision.retry_after().unwrap_or(Micros::ZERO);
            if begins_anew {
                // Then, and not later: what a window admits late, it may not admit at all.
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

/// `span`, a quarter longer or shorter: holders must not ask all at once.
fn about(span: Micros) -> Micros {
    let quarter = span.get() / 4;
    Micros::new(span.get() - quarter + fastrand::u64(0..=2 * quarter))
}
