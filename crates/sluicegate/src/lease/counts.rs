//! How leases fare. Counted when messages are answered and where requests wait: no hit touches these.

use std::sync::atomic::{AtomicU64, Ordering};

const KINDS: usize = LeaseStats::KINDS.len();
const OUTCOMES: usize = LeaseStats::OUTCOMES.len();
const FATES: usize = LeaseStats::FATES.len();

/// What an engine has counted of its leases since it was made: see
/// [`Engine::lease_stats`](crate::Engine::lease_stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseStats {
    /// Keys that have a lease here now, also if no permit is left: at most 4,096.
    pub keys: usize,
    /// Messages to the store, a row for each of [`KINDS`](Self::KINDS), a column for each of
    /// [`OUTCOMES`](Self::OUTCOMES).
    pub messages: [[u64; OUTCOMES]; KINDS],
    /// Permits, by what became of them: one number for each of [`FATES`](Self::FATES).
    pub permits: [u64; FATES],
    /// Requests that waited for the answer to a message.
    pub waits: u64,
    /// Answers by which the store had lost writes, and put them back from what this holder reported.
    pub repairs: u64,
    /// Answers by which the store had no place for one more holder of the key.
    pub full: u64,
}

/// Why a message was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// The store stands for nothing yet.
    #[default]
    First,
    /// Permits ran short.
    More,
    /// Their time did.
    Renew,
    /// Nothing is asked for any more.
    End,
}

/// What became of a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum MessageOutcome {
    Answered,
    /// The store did not answer.
    Lost,
    /// It answered too late, or another message.
    Late,
}

/// What became of permits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    Granted,
    Spent,
    /// Given back before their end.
    Returned,
    /// Unused at their end.
    Lapsed,
    /// The store stood for them no more.
    Void,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    messages: [[AtomicU64; OUTCOMES]; KINDS],
    permits: [AtomicU64; FATES],
    pub(super) waits: AtomicU64,
    pub(super) repairs: AtomicU64,
    pub(super) full: AtomicU64,
}

impl LeaseStats {
    /// Why messages are sent: the first of a lease, for more permits, for more time, and to give back what is
    /// not asked for.
    pub const KINDS: [&str; 4] = ["first", "more", "renew", "end"];

    /// What becomes of messages.
    pub const OUTCOMES: [&str; 3] = ["answered", "lost", "late"];

    /// What becomes of permits: granted by the store; of those spent here, given back before their end, unused
    /// at their end, or no longer known to the store.
    pub const FATES: [&str; 5] = ["granted", "spent", "returned", "lapsed", "void"];
}

impl Counts {
    pub(super) fn message(&self, kind: Kind, outcome: MessageOutcome) {
        self.messages[kind as usize][outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn permits(&self, fate: Fate, permits: u32) {
        self.permits[fate as usize].fetch_add(permits.into(), Ordering::Relaxed);
    }

    /// So far, with `keys` leased now.
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
