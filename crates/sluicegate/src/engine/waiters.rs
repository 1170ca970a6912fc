//! Requests of this process that wait for a permit of a `concurrency` rule.
//!
//! ```text
//! acquire ─▶ Verb::Wait ─▶ granted ───────────────────────────▶ Disposition::Allowed
//!              ├▶ refused: the queue is full, or never ────────▶ the policy's overflow
//!              └▶ a ticket ─▶ called, or a second has passed ─▶ Verb::Wait again
//! ```
//!
//! The order is that of the store: a request has its ticket there (`kernel/algorithm/waiters.rs`). A request that is called
//! asks again, and takes its permit; an answer that frees or grants a permit names the requests that can, and those of other
//! processes are announced to these. If the message is lost, the first request of the key in this process asks anyway after a second, which
//! also keeps the tickets of all others. So a request that waits costs the store two calls, and a key one a second.
//!
//! A request that gives up, or whose caller goes away, gives its ticket back. Should that fail, its ticket is called some
//! day, no request here wants it, and it is given back then.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::take;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use sluicegate_kernel::{Called, Micros, PermitId, ProcessId};
use tokio::sync::{Notify, mpsc};

use super::vacancies::Claim;

/// Most requests of other processes whose call is under way: the others ask within a second.
const OUTGOING_MAX: usize = 1_024;

/// Most requests that were dropped outside of a runtime and are still to give their tickets back: those of others are given
/// back when they are called.
const LEFT_MAX: usize = 1_024;

/// The requests that wait.
#[derive(Debug)]
pub(super) struct Waiters {
    process: ProcessId,
    waiting: Mutex<Waiting>,
    has_outgoing: Notify,
    /// Notified of each request that begins to wait.
    entered: Notify,
    /// The end of [`left`](Self::left) for requests that are dropped.
    leaving: Mutex<Option<mpsc::Sender<BoxFuture<'static, ()>>>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The requests that wait for permits of each id; several keys may have the same.
    by_permit: HashMap<PermitId, Vec<Arc<Call>>>,
    lines: HashMap<Claim, Line>,
    numbers: u64,
    /// Requests of other processes that are to be called there.
    outgoing: Vec<Called>,
}

/// The requests that wait for a permit of one budget.
#[derive(Debug, Default)]
struct Line {
    /// In the order in which they came here.
    calls: BTreeMap<u64, Arc<Call>>,
    permits: HashSet<PermitId>,
    /// The instant at which the first of them last asked and was not granted its permit.
    looked: Micros,
    /// The permit of the first of them while it looks: it asks although it was not called.
    looking: Option<PermitId>,
    /// Permits that were called, and that no request of this process wants: at most 16 of an answer.
    unwanted: BTreeSet<PermitId>,
}

/// The call of a request that waits.
#[derive(Debug, Default)]
struct Call {
    is_called: AtomicBool,
    changed: Notify,
}

/// A request that waits. Its place is free when it is dropped.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    waiters: &'a Waiters,
    line: Claim,
    number: u64,
    permit: PermitId,
    call: Arc<Call>,
}

impl Default for Waiters {
    fn default() -> Self {
        let process = ProcessId(fastrand::u64(..));
        let (has_outgoing, entered) = (Notify::new(), Notify::new());
        let (waiting, leaving) = (Mutex::default(), Mutex::default());
        Self { process, waiting, has_outgoing, entered, leaving }
    }
}

impl Waiters {
    /// The process in whose name the requests wait.
    pub(super) const fn process(&self) -> ProcessId {
        self.process
    }

    /// Has a request wait for `permit` of `line`. `None` if another one waits for it: of two with one name, only one can
    /// hold it.
    pub(super) fn enter(&self, line: Claim, permit: PermitId) -> Option<Waiter<'_>> {
        let mut waiting = self.lock();
        let Waiting { by_permit, lines, numbers, .. } = &mut *waiting;
        let waits_in = lines.entry(line.clone()).or_default();
        if !waits_in.permits.insert(permit) {
            return None;
        }
        *numbers += 1;
        let call = Arc::new(Call::default());
        waits_in.calls.insert(*numbers, Arc::clone(&call));
        by_permit.entry(permit).or_default().push(Arc::clone(&call));
        self.entered.notify_one();
        Some(Waiter { waiters: self, line, number: *numbers, permit, call })
    }

    /// Returns whether a request waits for `permit` of `line`.
    pub(super) fn waits(&self, line: &Claim, permit: PermitId) -> bool {
        self.lock().lines.get(line).is_some_and(|line| line.permits.contains(&permit))
    }

    /// Has `called`, requests of other processes, called there.
    pub(super) fn send(&self, called: Vec<Called>) {
        let outgoing = &mut self.lock().outgoing;
        let room = OUTGOING_MAX - outgoing.len();
        outgoing.extend(called.into_iter().take(room));
        self.has_outgoing.notify_one();
    }

    /// Returns the requests of other processes that are to be called there, as soon as there are any.
    pub(super) async fn outgoing(&self) -> Vec<Called> {
        loop {
            let outgoing = take(&mut self.lock().outgoing);
            if !outgoing.is_empty() {
                return outgoing;
            }
            self.has_outgoing.notified().await;
        }
    }

    /// Waits until a request has begun to wait, or is to be called elsewhere.
    pub(super) async fn used(&self) {
        tokio::select! {
            biased;
            () = self.entered.notified() => {}
            () = self.has_outgoing.notified() => self.has_outgoing.notify_one(),
        }
    }

    /// Returns what gives the tickets of requests back that are dropped outside of a runtime from now on.
    pub(super) fn left(&self) -> mpsc::Receiver<BoxFuture<'static, ()>> {
        let (sender, left) = mpsc::channel(LEFT_MAX);
        *self.leaving.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        left
    }

    /// Has `leaving` give a ticket back if calls are passed on. Otherwise the ticket lapses with its process, or is given back
    /// when it is called.
    pub(super) fn leave_later(&self, leaving: BoxFuture<'static, ()>) {
        let sender = self.leaving.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sender) = sender {
            drop(sender.try_send(leaving));
        }
    }

    /// Calls the requests of this process. Returns those of others.
    pub(super) fn call(&self, called: Vec<Called>) -> Vec<Called> {
        let (own, others): (Vec<_>, _) =
            called.into_iter().partition(|called| called.process == self.process);
        let waiting = self.lock();
        for Called { permit, .. } in own {
            waiting.by_permit.get(&permit).into_iter().flatten().for_each(|call| call.call());
        }
        others
    }

    /// Ends the look of a request for `permit` of `line`, and calls the next in the order of the store if it is of this
    /// process: a request that came here later may have its ticket before the one that looks.
    pub(super) fn end_look(&self, line: &Claim, permit: PermitId, called: &[Called]) {
        let mut waiting = self.lock();
        let Waiting { by_permit, lines, .. } = &mut *waiting;
        let Some(line) = lines.get_mut(line) else { return };
        if line.looking.take_if(|looking| *looking == permit).is_none() {
            return;
        }
        let next =
            called.first().filter(|next| next.process == self.process && next.permit != permit);
        let calls = next.and_then(|next| by_permit.get(&next.permit));
        calls.into_iter().flatten().for_each(|call| call.call());
    }

    /// Notes which of `called` no request of this process wants in `line`. Without requests there, the store forgets their
    /// tickets.
    pub(super) fn note_unwanted(&self, line: &Claim, called: &[Called]) {
        let mut waiting = self.lock();
        let Some(line) = waiting.lines.get_mut(line) else { return };
        let own = called.iter().filter(|called| called.process == self.process);
        let unwanted =
            own.map(|called| called.permit).filter(|permit| !line.permits.contains(permit));
        line.unwanted = unwanted.collect();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiter<'_> {
    /// Returns whether the request was called since the last time.
    pub(super) fn take_call(&self) -> bool {
        self.call.is_called.swap(false, Ordering::Relaxed)
    }

    /// Waits until the request may have been called, or be the first of its budget in this process.
    pub(super) async fn changed(&self) {
        self.call.changed.notified().await;
    }

    /// Notes that the request asks although it was not called.
    pub(super) fn look(&self) {
        if let Some(line) = self.waiters.lock().lines.get_mut(&self.line) {
            line.looking = Some(self.permit);
        }
    }

    /// Notes that the request asked at `now`. Returns whether it is the first of its budget in this process.
    pub(super) fn note_asked(&self, now: Micros) -> bool {
        let waiting = &mut *self.waiters.lock();
        let Some(line) = waiting.lines.get_mut(&self.line) else { return false };
        let is_first = line.is_first(self.number);
        // What others ask does not put it off: one that comes finds no permit for one that came before.
        if is_first {
            line.looked = now;
        }
        is_first
    }

    /// The instant at which the first request of its budget in this process last asked, if it is the first now.
    pub(super) fn looked(&self) -> Option<Micros> {
        let waiting = self.waiters.lock();
        let line = waiting.lines.get(&self.line).filter(|line| line.is_first(self.number));
        line.map(|line| line.looked)
    }

    /// Takes the permits of its budget that were called, and that no request of this process wants.
    pub(super) fn take_unwanted(&self) -> Vec<PermitId> {
        let waiting = &mut *self.waiters.lock();
        let Some(line) = waiting.lines.get_mut(&self.line) else { return Vec::new() };
        let unwanted = take(&mut line.unwanted);
        unwanted.into_iter().filter(|permit| !line.permits.contains(permit)).collect()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        let Waiting { by_permit, lines, .. } = &mut *waiting;
        if let Some(calls) = by_permit.get_mut(&self.permit) {
            calls.retain(|call| !Arc::ptr_eq(call, &self.call));
            if calls.is_empty() {
                by_permit.remove(&self.permit);
            }
        }
        let Some(line) = lines.get_mut(&self.line) else { return };
        line.calls.remove(&self.number);
        line.permits.remove(&self.permit);
        match line.calls.first_key_value() {
            // The next one may be the first now.
            Some((_, next)) => next.changed.notify_one(),
            None => drop(lines.remove(&self.line)),
        }
    }
}

impl Line {
    fn is_first(&self, number: u64) -> bool {
        self.calls.first_key_value().is_some_and(|(first, _)| *first == number)
    }
}

impl Call {
    fn call(&self) {
        self.is_called.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }
}
