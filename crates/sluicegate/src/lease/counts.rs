//! Counts of leases, taken when messages are answered and where requests wait: no hit touches these.

use std::sync::atomic::{AtomicU64, Ordering};

const KINDS: usize = LeaseStats::KINDS.len();
const OUTCOMES: usize = LeaseStats::OUTCOMES.len();
const FATES: usize = LeaseStats::FATES.len();

/// Counts of an engine's leases since it was made: see
/// [`Engine::lease_stats`](crate::Engine::lease_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// Keys that have a lease here now, also if no permit is left: at most 4,096.
    pub keys: usize,
    /// Messages to the store, a row for each of [`KINDS`](Self::KINDS), a column for each of
    /// [`OUTCOMES`](Self::OUTCOMES).
    pub messages: [[u64; OUTCOMES]; KINDS],
    /// Permits, by their fate: one number for each of [`FATES`](Self::FATES).
    pub permits: [u64; FATES],
    /// Requests that waited for the answer to a message.
    pub waits: u64,
    /// Answers after which the store had lost writes and restored them from this holder's report.
    pub repairs: u64,
    /// Answers that the store had no place for one more holder of the key.
    pub full: u64,
}

/// The reason for which a message was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum MessageReason {
    /// The store has set no permits aside yet.
    #[default]
    First,
    /// Permits ran short.
    More,
    /// The term of the permits was about to end.
    Renew,
    /// No request has used the permits for a while.
    End,
}

/// The outcome of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum MessageOutcome {
    Answered,
    /// The store did not answer.
    Lost,
    /// The store answered too late, or answered another message.
    Late,
}

/// The fate of permits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Granted,
    Spent,
    /// Given back before their end.
    Returned,
    /// Unused at their end.
    Lapsed,
    /// The store no longer had a record of them.
    Void,
}

#[derive(Debug, Default)]
pub(super) struct LeaseCounts {
    messages: [[AtomicU64; OUTCOMES]; KINDS],
    permits: [AtomicU64; FATES],
    pub(super) waits: AtomicU64,
    pub(super) repairs: AtomicU64,
    pub(super) full: AtomicU64,
}

impl LeaseStats {
    /// Names of the reasons for messages: the first of a lease, for more permits, for more time, and to give back
    /// unused permits.
    pub const KINDS: [&str; 4] = ["first", "more", "renew", "end"];

    /// Names of the outcomes of messages.
    pub const OUTCOMES: [&str; 3] = ["answered", "lost", "late"];

    /// Names of the fates of permits: granted by the store; of those spent here, given back before their end, unused
    /// at their end, or no longer known to the store.
    pub const FATES: [&str; 5] = ["granted", "spent", "returned", "lapsed", "void"];
}

impl LeaseCounts {
    pub(super) fn message(&self, kind: MessageReason, outcome: MessageOutcome) {
        self.messages[kind as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn permits(&self, fate: Fate, permits: u32) {
        self.permits[fate as usize].fetch_add(permits.into(), Ordering::Relaxed);
    }

    /// Returns the counts so far, with `keys` leased now.
    pub(super) fn stats(&self, keys: usize) -> LeaseStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LeaseStats {
            keys,
            messages: self.messages.each_ref().map(|kind| kind.each_ref().map(read)),
            permits: self.permits.each_ref().map(read),
            waits: read(&self.waits),
            repairs: read(&self.repairs),
            full: read(&self.full),
        }
    }
}
