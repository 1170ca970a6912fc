//! Leases: hot keys are decided here, from permits that the store has set aside for this process.
//!
//! ```text
//! request ─▶ Table ─▶ Cell: permits left, before their end? ─▶ taken: no lock, no call
//!                      │ no
//!                      ▼
//!                   KeyLease ─▶ refused by the Pace · waits in the LeaseQueue · the store is asked as without leases
//!                      │
//!            sender ◀──┴─▶ Message ─▶ Store::lease ─▶ LeaseReply ─▶ LeaseSession (permits kept and granted, their end)
//! ```
//!
//! | File | Task |
//! |---|---|
//! | `cell` | permits and their end: read and written by every hit |
//! | `key_lease` | one key: when to send a message, for how many permits, the effect of the answer |
//! | `session` | the holder's half of the protocol |
//! | `demand`, `pace` | how many permits are requested, and how often |
//! | `queue` | requests that wait for an answer |
//! | `last_reply` | the store's last answer, for decisions |
//! | `counts`, `status` | for operators |
//! | `hot_keys`, `table` | finds the hot keys; holds the leased ones |
//! | `sender` | the only sender of messages |
//!
//! The guarantees, and why they hold: [`sluicegate_kernel::lease`].

mod cell;
mod counts;
mod demand;
mod hot_keys;
mod key_lease;
mod last_reply;
mod pace;
mod queue;
pub(crate) mod sender;
mod session;
mod status;
mod table;

/// The atomics of a cell; a model checker replaces them.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::lease::Holder;
use sluicegate_kernel::limits::LEASE_PATIENCE_MAX_US;
use sluicegate_kernel::{Cost, LeaseReply, Micros, RuleSet, Verb, Verdict};
use sluicegate_policy::{LeaseBounds, Rules};
use sluicegate_store::{KeyHash, StoreRequest};
use tokio::sync::Notify;

use crate::clock::Clock;
use cell::Cell;
use counts::LeaseCounts;
pub use counts::LeaseStats;
use hot_keys::{HOT_ASKS, HotKeyDetector};
use key_lease::KeyLease;
pub(crate) use key_lease::{LeasedBudget, MissOutcome, OutgoingMessage};
use last_reply::LastReply;
pub(crate) use queue::{QueueTicket, WaitOutcome};
use sender::Delivered;
use session::LeaseSession;
pub use status::LeaseStatus;
use table::Table;

/// The verb in requests about leases; the store does not use it.
static LOOK: Verb = Verb::Peek { cost: Cost::ONE };

/// The patience of leases that suits a store whose deadline is not longer: see
/// [`Engine::with_leases`](crate::Engine::with_leases).
pub const LEASE_PATIENCE: Micros = Micros::from_millis(50);

/// A key of which this process holds permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedKey {
    /// The policy's name.
    pub policy: String,
    /// The key; empty is the budget that all share.
    pub key: Vec<u8>,
    /// Permits that are left here.
    pub left: u32,
    /// Time until they end; zero if they have.
    pub ends_in: Micros,
    /// Permits per second that are requested here.
    pub rate: u64,
}

/// The terms on which a policy lets its keys be leased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTerms<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) bounds: LeaseBounds,
}

/// A request whose key may get a lease.
#[derive(Clone, Copy)]
struct LeasableRequest<'r> {
    key: KeyHash,
    request: &'r StoreRequest<'r>,
    terms: &'r LeaseTerms<'r>,
    cost: u32,
}

/// A decision by leased permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeasedDecision {
    pub(crate) verdict: Verdict,
    /// Age of the store's report of the other permits left.
    pub(crate) age: Micros,
}

/// All leases of a process.
#[derive(Debug)]
pub(crate) struct Leasing {
    clock: Arc<dyn Clock>,
    holder: Holder,
    patience: Micros,
    table: Table,
    hot_keys: HotKeyDetector,
    counts: Arc<LeaseCounts>,
    begun: AtomicU64,
    /// The largest number of a message about a key that is forgotten by now. A new lease goes on from here, so that
    /// messages still under way stay the older ones. It rises with the messages about one key
    /// at a time: to 2^32 in years. Then numbers begin anew, and the store answers nothing for two seconds.
    numbered: AtomicU32,
    /// Leases for which a message is due, each once.
    due: Mutex<Vec<Arc<Lease>>>,
    wake: Notify,
    /// A sender is running; without one, nothing is leased.
    has_sender: AtomicBool,
    is_stopping: AtomicBool,
}

/// One leased key.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Number of leases that were begun before it.
    number: u64,
    key: KeyHash,
    cell: Cell,
    /// The rules, by their address: the state keeps them.
    rules: AtomicUsize,
    /// The number of permits below which a message is due.
    low: AtomicU32,
    last_reply: LastReply,
    /// A message about the lease is due.
    is_due: AtomicBool,
    state: Mutex<KeyLease>,
}

impl Leasing {
    pub(crate) fn new(patience: Micros, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            holder: Holder(fastrand::u64(1..)),
            patience: patience.min(Micros::new(LEASE_PATIENCE_MAX_US)),
            table: Table::new(),
            hot_keys: HotKeyDetector::new(),
            counts: Arc::default(),
            begun: AtomicU64::new(0),
            numbered: AtomicU32::new(0),
            due: Mutex::default(),
            wake: Notify::new(),
            has_sender: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Takes `cost` permits of the lease of the key, if it has them for the rules of `request`.
    #[inline]
    pub(crate) fn take(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        cost: Cost,
    ) -> Option<LeasedDecision> {
        let part = self.table.part(key);
        let lease = part.get(&key)?;
        let cost = u32::try_from(cost.get()).ok()?;
        let mut now = Micros::ZERO;
        if lease.rules.load(Ordering::Relaxed) != address(request.rules) {
            return None;
        }
        let left = lease.cell.take(cost, || {
            now = self.now();
            now.get()
        })?;
        if left < lease.low.load(Ordering::Relaxed) {
            self.runs_low(lease, now);
        }
        // The store's report may be about rules that replaced those of the request.
        let is_replaced = lease.rules.load(Ordering::Relaxed) != address(request.rules);
        Some(lease.last_reply.hit(cost, left, is_replaced.then_some(request.rules), now))
    }

    /// Handles a request of `cost` that found no permits; a hot key gets a lease.
    pub(crate) fn ask(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        terms: &LeaseTerms<'_>,
        cost: Cost,
    ) -> MissOutcome {
        let Ok(cost) = u32::try_from(cost.get()) else { return MissOutcome::NotLeased };
        if self.is_stopping.load(Ordering::Relaxed) || !self.has_sender.load(Ordering::Relaxed) {
            return MissOutcome::NotLeased;
        }
        let now = self.now();
        let found = self.table.part(key).get(&key).cloned();
        let asked = LeasableRequest { key, request, terms, cost };
        let Some(lease) = found.or_else(|| self.begin(asked, now)) else {
            return MissOutcome::NotLeased;
        };
        let mut state = lease.locked();
        // Under the lock: a sender that ends has answered all that wait, or sees this one.
        if !self.has_sender.load(Ordering::Relaxed) {
            return MissOutcome::NotLeased;
        }
        if address(state.rules()) != address(request.rules) {
            if !state.are_later(request) {
                return MissOutcome::NotLeased;
            }
            state.change_rules(&lease.cell, LeasedBudget::new(request, terms));
            lease.rules.store(address(state.rules()), Ordering::Relaxed);
            self.due(&lease);
        }
        let missed = state.miss(&lease.cell, cost, now);
        if let MissOutcome::Waits(_) = missed {
            self.due(&lease);
        }
        missed
    }

    /// Returns the refusal that [`ask`](Self::ask) would return at once.
    pub(crate) fn would_refuse(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        cost: Cost,
    ) -> Option<Verdict> {
        let part = self.table.part(key);
        let lease = part.get(&key)?;
        let cost = u32::try_from(cost.get()).ok()?;
        let mut state = lease.locked();
        let same = address(state.rules()) == address(request.rules);
        if !same || !self.has_sender.load(Ordering::Relaxed) {
            return None;
        }
        state.would_refuse(&lease.cell, cost, self.now())
    }

    /// Puts permits back that were taken here since the last message. Returns `None` if it could not.
    pub(crate) fn put_back(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        cost: Cost,
    ) -> Option<LeasedDecision> {
        let part = self.table.part(key);
        let lease = part.get(&key)?;
        let cost = u32::try_from(cost.get()).ok()?;
        let mut state = lease.locked();
        let now = self.now();
        let same = address(state.rules()) == address(request.rules);
        if !same || !state.put_back(&lease.cell, cost, now) {
            return None;
        }
        drop(state);
        Some(lease.last_reply.hit(cost, lease.cell.left(), None, now))
    }

    /// Ends the use of the key's lease, because it is decided without the store from now on. Returns the number of
    /// leased permits, once, since the store may not know yet which were spent; and the instant, by the clock of
    /// decisions.
    pub(crate) fn retire(&self, key: KeyHash) -> (u64, Micros) {
        let part = self.table.part(key);
        let stood = part.get(&key).map_or(0, |lease| lease.locked().retire(&lease.cell).into());
        (stood, self.clock.now())
    }

    /// The present instant, by the clock of decisions.
    pub(crate) fn decided_at(&self) -> Micros {
        self.clock.now()
    }

    /// Returns whether the key has permits here for a request of `cost`.
    pub(crate) fn covers(&self, key: KeyHash, request: &StoreRequest<'_>, cost: Cost) -> bool {
        self.table.part(key).get(&key).is_some_and(|lease| {
            lease.rules.load(Ordering::Relaxed) == address(request.rules)
                && self.now().get() < lease.cell.end()
                && u64::from(lease.cell.left()) >= cost.get()
        })
    }

    /// The keys that are leased, those with the most requests first.
    pub(crate) fn keys(&self) -> Vec<LeasedKey> {
        let (mut keys, now) = (Vec::new(), self.now());
        self.table.each(|lease| keys.push(lease.seen(now)));
        keys.sort_by_key(|key| std::cmp::Reverse(key.rate));
        keys
    }

    /// The lease of one key, if it has one.
    pub(crate) fn key(&self, key: KeyHash) -> Option<LeasedKey> {
        let part = self.table.part(key);
        Some(part.get(&key)?.seen(self.now()))
    }

    /// The counts so far.
    pub(crate) fn stats(&self) -> LeaseStats {
        self.counts.stats(self.table.len())
    }

    /// Begins a lease of a key that has become hot.
    fn begin(&self, asked: LeasableRequest<'_>, now: Micros) -> Option<Arc<Lease>> {
        let LeasableRequest { key, request, terms, cost } = asked;
        let over = self.hot_keys.ask(key.word(), now)?;
        let subject = LeasedBudget::new(request, terms);
        if !subject.leases(cost) {
            return None;
        }
        let session = || {
            let session = LeaseSession::new(self.holder, self.patience, Arc::clone(&self.counts));
            session.after(self.numbered.load(Ordering::Relaxed))
        };
        let added = self.table.add(key, || Lease {
            number: self.begun.fetch_add(1, Ordering::Relaxed),
            key,
            cell: Cell::closed(),
            rules: AtomicUsize::new(address(request.rules)),
            low: AtomicU32::new(0),
            last_reply: LastReply::default(),
            is_due: AtomicBool::new(false),
            state: Mutex::new(KeyLease::new(session(), subject, cost, over, now)),
        });
        if added.is_none() {
            self.make_room(key, HOT_ASKS * 1_000_000 / over.get().max(1), now);
        }
        added
    }

    /// Makes room for a key with `rate` requests per second: the key with the fewest loses its lease, if it has half
    /// as many or less.
    #[cold]
    fn make_room(&self, key: KeyHash, rate: u64, now: Micros) {
        let asks = |lease: &Lease| lease.locked().asks_per_s(now);
        let Some((coldest, lease)) = self.table.coldest(key, now, asks) else { return };
        if coldest.saturating_mul(2) <= rate && lease.locked().yield_place(&lease.cell, now) {
            self.due(&lease);
        }
    }

    #[cold]
    fn runs_low(&self, lease: &Arc<Lease>, now: Micros) {
        // Another thread that has the lock sees that, too.
        let Ok(mut state) = lease.state.try_lock() else { return };
        if state.runs_low(&lease.cell, now) {
            self.due(lease);
        }
    }

    /// Notes that a message about the lease is due.
    fn due(&self, lease: &Arc<Lease>) {
        if !lease.is_due.swap(true, Ordering::Relaxed) {
            self.due.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(lease));
            self.wake.notify_one();
        }
    }

    /// Takes the leases for which a message is due, the oldest first: the same in each run of a simulation.
    fn take_due(&self) -> Vec<Arc<Lease>> {
        let mut due = std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner));
        for lease in &due {
            lease.is_due.store(false, Ordering::Relaxed);
        }
        due.sort_unstable_by_key(|lease| lease.number);
        due
    }

    /// The time of the steady clock.
    #[inline]
    pub(crate) fn now(&self) -> Micros {
        self.clock.steady().unwrap_or(Micros::MAX)
    }

    /// Returns whether a message that was sent at `begun` has taken no longer than a request may.
    pub(crate) fn is_in_time(&self, begun: Micros) -> bool {
        self.now().since(begun) <= self.patience
    }
}

impl Lease {
    fn locked(&self) -> MutexGuard<'_, KeyLease> {
        // If a panic left a state half changed, its message counts as lost.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn key(&self) -> KeyHash {
        self.key
    }

    /// The lease as operators see it.
    fn seen(&self, now: Micros) -> LeasedKey {
        let state = self.locked();
        let end = Micros::new(self.cell.end());
        let left = if now < end { self.cell.left() } else { 0 };
        let (policy, key) = state.name();
        let (policy, key, rate) = (policy.to_owned(), key.to_vec(), state.rate());
        LeasedKey { policy, key, left, ends_in: end.since(now), rate }
    }

    /// Returns the message that is due.
    fn next_message(&self, now: Micros) -> Option<OutgoingMessage> {
        let mut state = self.locked();
        let outgoing = state.next_message(&self.cell, now);
        self.low.store(state.low_water(now), Ordering::Relaxed);
        outgoing
    }

    /// Handles the result of the message.
    fn on_reply(&self, delivered: &Delivered, now: Micros) {
        let mut state = self.locked();
        match delivered {
            Delivered::NotSent => state.unsent(now),
            Delivered::Ignored => {
                let reply = Ok(&LeaseReply::Superseded);
                state.on_reply(&self.cell, &self.last_reply, reply, now);
            }
            Delivered::Replied(reply) => {
                state.on_reply(&self.cell, &self.last_reply, reply.as_ref(), now);
            }
        }
        self.low.store(state.low_water(now), Ordering::Relaxed);
    }
}

fn address(rules: &Arc<RuleSet>) -> usize {
    Arc::as_ptr(rules).addr()
}
