//! Leases: hot keys are decided here, from permits that the store has set aside for this process.
//!
//! ```text
//! request ─▶ Table ─▶ Cell: permits left, before their end? ─▶ taken: no lock, no call
//!                      │ no
//!                      ▼
//!                     Desk ─▶ refused in a pace · waits in the Line · the store is asked as without leases
//!                      │
//!            Keeper ◀──┴─▶ Message ─▶ Store::lease ─▶ Word ─▶ Talk (what is kept, granted, until when)
//! ```
//!
//! | File | What it does |
//! |---|---|
//! | `cell` | permits, and until when: what every hit touches |
//! | `desk` | one key: when to ask, for how much, what comes of the answer |
//! | `holder` | the holder's half of the protocol |
//! | `demand`, `pace` | how much is asked for, and how often |
//! | `line` | requests that wait for an answer |
//! | `said` | what the store last said, for answers |
//! | `counts`, `status` | what operators see |
//! | `heat`, `table` | which keys are hot; which are leased |
//! | `keeper` | the only one that sends |
//!
//! What is promised, and why it holds: [`sluicegate_kernel::lease`].

mod cell;
mod counts;
mod demand;
mod desk;
mod heat;
mod holder;
pub(crate) mod keeper;
mod line;
mod pace;
mod said;
mod status;
mod table;

/// The atomics of a cell; a model checker steps through others.
mod atomic {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
}

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::lease::Holder;
use sluicegate_kernel::limits::LEASE_PATIENCE_MAX_US;
use sluicegate_kernel::{Cost, Micros, RuleSet, Verb, Verdict, Word};
use sluicegate_policy::{LeaseBounds, Rules};
use sluicegate_store::{KeyHash, StoreRequest};
use tokio::sync::Notify;

use crate::clock::Clock;
use cell::Cell;
use counts::Counts;
pub use counts::LeaseStats;
pub(crate) use desk::{Asked, Letter};
use desk::{Desk, Subject};
use heat::{HOT_ASKS, Heat};
use holder::Talk;
use keeper::Delivered;
pub(crate) use line::{Outcome, Place};
use said::Said;
pub use status::LeaseStatus;
use table::Table;

/// What messages bring along for a verb that the store does not look at.
static LOOK: Verb = Verb::Peek { cost: Cost::ONE };

/// How leases are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// How long an answer is listened to: the deadline of the store or longer, at most 250 ms. The permits of a
    /// process that crashes come back as much later. 50 ms unless set.
    pub patience: Micros,
}

/// A key of which this process holds permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedKey {
    /// The policy's name.
    pub policy: String,
    /// The key; empty is the budget that all share.
    pub key: Vec<u8>,
    /// Permits that are left here.
    pub left: u32,
    /// Until they end; zero if they have.
    pub ends_in: Micros,
    /// Permits a second that are asked for here.
    pub rate: u64,
}

/// What a policy lets its keys be leased by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseTerms<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) bounds: LeaseBounds,
}

/// A decision by permits that are leased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) verdict: Verdict,
    /// How long ago the store said what else is left.
    pub(crate) age: Micros,
}

/// All leases of a process.
#[derive(Debug)]
pub(crate) struct Leasing {
    clock: Arc<dyn Clock>,
    holder: Holder,
    patience: Micros,
    table: Table,
    heat: Heat,
    counts: Arc<Counts>,
    begun: AtomicU64,
    /// The largest number of a message about a key that is forgotten by now. A new lease goes on from here: what
    /// was sent before, and is still under way, stays the older message. It rises with the messages about one key
    /// at a time: to 2^32 in years. Then numbers begin anew, and the store answers nothing for two seconds.
    numbered: AtomicU32,
    /// Leases for which a message is due, each once.
    due: Mutex<Vec<Arc<Lease>>>,
    wake: Notify,
    /// Whether somebody sends: without, nothing is leased.
    is_kept: AtomicBool,
    is_stopping: AtomicBool,
}

/// One leased key.
#[derive(Debug)]
pub(crate) struct Lease {
    /// How many leases were begun before it.
    number: u64,
    key: KeyHash,
    cell: Cell,
    /// The rules, by their address: the desk keeps them.
    rules: AtomicUsize,
    /// Below so many permits a message is due.
    low: AtomicU32,
    said: Said,
    /// Whether it is among those that are due.
    is_due: AtomicBool,
    desk: Mutex<Desk>,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self { patience: Micros::from_millis(50) }
    }
}

impl Leasing {
    pub(crate) fn new(options: LeaseOptions, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            holder: Holder(fastrand::u64(1..)),
            patience: options.patience.min(Micros::new(LEASE_PATIENCE_MAX_US)),
            table: Table::new(),
            heat: Heat::new(),
            counts: Arc::default(),
            begun: AtomicU64::new(0),
            numbered: AtomicU32::new(0),
            due: Mutex::default(),
            wake: Notify::new(),
            is_kept: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Whether the key has permits here for `request`, which takes `cost`. Takes them.
    #[inline]
    pub(crate) fn take(&self, key: KeyHash, request: &StoreRequest<'_>, cost: Cost) -> Option<Hit> {
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
        // What the store said may be about rules that took the place of the request's.
        let is_replaced = lease.rules.load(Ordering::Relaxed) != address(request.rules);
        Some(lease.said.hit((cost, left), is_replaced.then_some(request.rules), now))
    }

    /// What a request of `cost` is answered that found no permits, and whether its key is leased at all.
    pub(crate) fn ask(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        terms: &LeaseTerms<'_>,
        cost: Cost,
    ) -> Asked {
        let Ok(cost) = u32::try_from(cost.get()) else { return Asked::Not };
        if self.is_stopping.load(Ordering::Relaxed) || !self.is_kept.load(Ordering::Relaxed) {
            return Asked::Not;
        }
        let now = self.now();
        let found = self.table.part(key).get(&key).cloned();
        let Some(lease) = found.or_else(|| self.begin(key, (request, terms), cost, now)) else {
            return Asked::Not;
        };
        let mut desk = lease.desk();
        // Under the lock: the keeper that ends has answered all that wait, or sees this one.
        if !self.is_kept.load(Ordering::Relaxed) {
            return Asked::Not;
        }
        if address(desk.rules()) != address(request.rules) {
            if !desk.are_later(request) {
                return Asked::Not;
            }
            desk.change_rules(&lease.cell, Subject::new(request, terms));
            lease.rules.store(address(desk.rules()), Ordering::Relaxed);
            self.due(&lease);
        }
        let asked = desk.miss(&lease.cell, cost, now);
        if let Asked::Waits(_) = asked {
            self.due(&lease);
        }
        asked
    }

    /// What [`ask`](Self::ask) would refuse at once.
    pub(crate) fn would_refuse(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        cost: Cost,
    ) -> Option<Verdict> {
        let part = self.table.part(key);
        let lease = part.get(&key)?;
        let cost = u32::try_from(cost.get()).ok()?;
        let mut desk = lease.desk();
        let same = address(desk.rules()) == address(request.rules);
        if !same || !self.is_kept.load(Ordering::Relaxed) {
            return None;
        }
        desk.would_refuse(&lease.cell, cost, self.now())
    }

    /// Puts permits back that were taken here since the last message. Returns whether it could.
    pub(crate) fn put_back(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        cost: Cost,
    ) -> Option<Hit> {
        let part = self.table.part(key);
        let lease = part.get(&key)?;
        let cost = u32::try_from(cost.get()).ok()?;
        let mut desk = lease.desk();
        let now = self.now();
        let same = address(desk.rules()) == address(request.rules);
        if !same || !desk.put_back(&lease.cell, cost, now) {
            return None;
        }
        drop(desk);
        Some(lease.said.hit((cost, lease.cell.left()), None, now))
    }

    /// The key is decided without the store from now on: no permit that is leased is used any more. Returns how
    /// many the store stood for, once: what was spent of them it may not know yet. And when that was, by the clock
    /// that decisions go by.
    pub(crate) fn retire(&self, key: KeyHash) -> (u64, Micros) {
        let part = self.table.part(key);
        let stood = part.get(&key).map_or(0, |lease| lease.desk().retire(&lease.cell).into());
        (stood, self.clock.now())
    }

    /// Whether the key has permits here for a request of `cost`.
    pub(crate) fn covers(&self, key: KeyHash, request: &StoreRequest<'_>, cost: Cost) -> bool {
        self.table.part(key).get(&key).is_some_and(|lease| {
            lease.rules.load(Ordering::Relaxed) == address(request.rules)
                && self.now().get() < lease.cell.end()
                && u64::from(lease.cell.left()) >= cost.get()
        })
    }

    /// The keys that are leased, those that are asked for most first.
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

    /// What was counted so far.
    pub(crate) fn stats(&self) -> LeaseStats {
        self.counts.stats(self.table.len())
    }

    /// A lease of a key that has become hot.
    fn begin(
        &self,
        key: KeyHash,
        (request, terms): (&StoreRequest<'_>, &LeaseTerms<'_>),
        cost: u32,
        now: Micros,
    ) -> Option<Arc<Lease>> {
        let over = self.heat.ask(key.word(), now)?;
        let subject = Subject::new(request, terms);
        if !subject.leases(cost) {
            return None;
        }
        let talk = || {
            let talk = Talk::new(self.holder, self.patience, Arc::clone(&self.counts));
            talk.after(self.numbered.load(Ordering::Relaxed))
        };
        let added = self.table.add(key, || Lease {
            number: self.begun.fetch_add(1, Ordering::Relaxed),
            key,
            cell: Cell::closed(),
            rules: AtomicUsize::new(address(request.rules)),
            low: AtomicU32::new(0),
            said: Said::default(),
            is_due: AtomicBool::new(false),
            desk: Mutex::new(Desk::new(talk(), subject, (cost, over), now)),
        });
        if added.is_none() {
            self.make_room(key, HOT_ASKS * 1_000_000 / over.get().max(1), now);
        }
        added
    }

    /// There is no place for a key that is asked for `rate` times a second: the one that is asked for least loses
    /// its lease, if that is half as often or less.
    #[cold]
    fn make_room(&self, key: KeyHash, rate: u64, now: Micros) {
        let asks = |lease: &Lease| lease.desk().asks_per_s(now);
        let Some((coldest, lease)) = self.table.coldest(key, now, asks) else { return };
        if coldest.saturating_mul(2) <= rate && lease.desk().yield_place(&lease.cell, now) {
            self.due(&lease);
        }
    }

    #[cold]
    fn runs_low(&self, lease: &Arc<Lease>, now: Micros) {
        // Another thread that has the desk sees that, too.
        let Ok(mut desk) = lease.desk.try_lock() else { return };
        if desk.runs_low(&lease.cell, now) {
            self.due(lease);
        }
    }

    /// A message is due.
    fn due(&self, lease: &Arc<Lease>) {
        if !lease.is_due.swap(true, Ordering::Relaxed) {
            self.due.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(lease));
            self.wake.notify_one();
        }
    }

    /// The leases for which a message is due, the oldest first: the same in each run of a simulation.
    fn take_due(&self) -> Vec<Arc<Lease>> {
        let mut due = std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner));
        for lease in &due {
            lease.is_due.store(false, Ordering::Relaxed);
        }
        due.sort_unstable_by_key(|lease| lease.number);
        due
    }

    /// By the steady clock.
    #[inline]
    fn now(&self) -> Micros {
        self.clock.steady().unwrap_or(Micros::MAX)
    }
}

impl Lease {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // A desk that a panic left half changed is one whose message was lost.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn key(&self) -> KeyHash {
        self.key
    }

    /// What is seen of it.
    fn seen(&self, now: Micros) -> LeasedKey {
        let desk = self.desk();
        let end = Micros::new(self.cell.end());
        let left = if now < end { self.cell.left() } else { 0 };
        let (policy, key) = desk.name();
        let (policy, key, rate) = (policy.to_owned(), key.to_vec(), desk.rate());
        LeasedKey { policy, key, left, ends_in: end.since(now), rate }
    }

    /// The message that is due.
    fn speak(&self, now: Micros) -> Option<Letter> {
        let mut desk = self.desk();
        let letter = desk.speak(&self.cell, now);
        self.low.store(desk.low_water(now), Ordering::Relaxed);
        letter
    }

    /// What came of the message.
    fn heard(&self, delivered: &Delivered, now: Micros) {
        let mut desk = self.desk();
        match delivered {
            Delivered::NotSent => desk.unsent(now),
            Delivered::NotHeard => desk.heard((&self.cell, &self.said), Ok(&Word::Overtaken), now),
            Delivered::Said(said) => desk.heard((&self.cell, &self.said), said.as_ref(), now),
        }
        self.low.store(desk.low_water(now), Ordering::Relaxed);
    }
}

fn address(rules: &Arc<RuleSet>) -> usize {
    Arc::as_ptr(rules).addr()
}
