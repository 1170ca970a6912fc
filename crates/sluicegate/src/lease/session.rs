//! The holder's half of the protocol for one key: which message is next, and the meaning of an answer.
//!
//! Time is that of the steady clock, passed in. See [`sluicegate_kernel::lease`] for the store's half.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_kernel::lease::{Found, Hint, Holder, LeaseGrant, Mark, Marks, Message, Number};
use sluicegate_kernel::limits::{LEASE_HINT_MAX_US, LEASE_MARKS_MAX};
use sluicegate_kernel::{LeaseReply, Micros};

use super::cell::Cell;
use super::counts::{Fate, LeaseCounts};

/// Time after a message without an answer at which the next is due, to give back what the store granted: the shortest
/// lease is longer.
const UNHEARD_AFTER: Micros = Micros::from_millis(200);

/// Least time between two marks once there have been more than fit into a message.
const MARKS_APART_MIN: Micros = Micros::from_millis(50);

/// The last message about one key, and the store's last answer.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct LeaseSession {
    holder: Holder,
    /// Longest time until an answer is accepted. The store keeps the permits that much longer than they are used.
    patience: Micros,
    number: u32,
    heard: u32,
    stood: u32,
    ends: Micros,
    hint: Option<(Hint, Micros)>,
    /// The message whose answer is awaited.
    sent: Option<Sent>,
    /// The last message that requested permits, if no answer came since: the store may have set some aside.
    unheard: Option<Unheard>,
    /// The instant at which the last message was made.
    sent_at: Micros,
    /// Permits that were left when the last message was made, and those that its answer granted: those of them
    /// that are not left are spent.
    had: u32,
    marks: MarkLog,
    counts: Arc<LeaseCounts>,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Sent {
    at: Micros,
    unspent: u32,
    keep: u32,
    ended: bool,
    /// If it requested permits, its record for the time after it is given up.
    asked: Option<Unheard>,
}

/// A message that requested permits, and was not answered.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Unheard {
    made: Micros,
    /// The instant by which the store has ended its grant.
    until: Micros,
}

/// The instants at which permits were spent since the last message.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
struct MarkLog {
    /// Instants, and the total spent by then.
    marks: Vec<(Micros, u32)>,
    apart: Micros,
}

/// The request in a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaseRequest {
    /// Permits for which requests wait, and those of the first of them.
    pub(super) need: u32,
    pub(super) least: u32,
    /// Permits beyond these.
    pub(super) want: u32,
    pub(super) share: u32,
    pub(super) term: Micros,
    /// Number of unspent permits that go back.
    pub(super) back: u32,
}

/// The meaning of an answer for its holder.
#[derive(Debug)]
pub(super) enum ReplyOutcome {
    /// The lease goes on.
    Granted(Box<LeaseGrant>),
    /// The store has no place for one more holder: its grant is for the requests that wait.
    NoCapacity(Box<LeaseGrant>),
    /// The answer is not the awaited one, or came too late: nothing is known.
    Stale,
}

impl LeaseSession {
    pub(super) fn new(holder: Holder, patience: Micros, counts: Arc<LeaseCounts>) -> Self {
        Self {
            holder,
            patience,
            number: 0,
            heard: 0,
            stood: 0,
            ends: Micros::ZERO,
            hint: None,
            sent: None,
            unheard: None,
            sent_at: Micros::ZERO,
            had: 0,
            marks: MarkLog::default(),
            counts,
        }
    }

    /// Returns this session, which numbers its messages from the one after `number`.
    pub(super) fn after(self, number: u32) -> Self {
        Self { number, ..self }
    }

    /// The number of the last message.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    pub(super) const fn counts(&self) -> &Arc<LeaseCounts> {
        &self.counts
    }

    /// Permits of the store's last answer: those spent since the message that it answered, and those that are
    /// left.
    pub(super) const fn stood(&self) -> u32 {
        self.stood
    }

    /// Returns whether an answer is awaited.
    pub(super) const fn waits(&self) -> bool {
        self.sent.is_some()
    }

    /// Returns whether a message is due that gives back permits the store may have set aside unheard: 200, 600 and
    /// 1,400 ms after the one that requested them, unless another is made before.
    pub(super) fn is_unheard(&self, now: Micros) -> bool {
        self.unheard.is_some_and(|Unheard { made, until }| {
            let apart = self.sent_at.since(made).plus(UNHEARD_AFTER);
            now < until && now >= self.sent_at.plus(apart)
        })
    }

    /// Returns whether the awaited answer would now be too late.
    pub(super) fn is_too_late(&self, now: Micros) -> bool {
        self.sent.is_some_and(|sent| now > sent.at.plus(self.patience))
    }

    /// The instant at which the last message was made.
    pub(super) const fn sent_at(&self) -> Micros {
        self.sent_at
    }

    /// Permits that were spent since the last message was made.
    pub(super) fn spent(&self, cell: &Cell) -> u32 {
        self.had.saturating_sub(cell.left())
    }

    /// Marks that all permits spent so far were spent by now.
    pub(super) fn mark(&mut self, cell: &Cell, now: Micros) {
        let spent = self.spent(cell);
        self.marks.note(spent, self.sent_at, now);
    }

    /// Takes permits back that were spent since the last message was made; returns whether it could.
    pub(super) fn put_back(&mut self, cell: &Cell, permits: u32, now: Micros) -> bool {
        if now.get() >= cell.end() || !cell.put_back(permits, self.had) {
            return false;
        }
        let spent = self.spent(cell);
        self.marks.were_put_back(spent);
        true
    }

    /// Returns the next message. Permits that have ended go back with it, and are never used again.
    pub(super) fn ask(&mut self, cell: &Cell, request: &LeaseRequest, now: Micros) -> Message {
        let ended = now.get() >= cell.end();
        let unspent = if ended || request.back == u32::MAX {
            cell.close()
        } else {
            cell.give_back(request.back)
        };
        let keep = if ended { 0 } else { unspent.saturating_sub(request.back) };
        let marks = self.marks.take(now);
        self.number = self.number.wrapping_add(1).max(1);
        let lasts = Micros::new(request.term.get() / 16 * 17).plus(self.patience);
        let unheard = Unheard { made: now, until: now.plus(lasts) };
        let asked = (request.need > 0 || request.want > 0).then_some(unheard);
        self.sent = Some(Sent { at: now, unspent, keep, ended, asked });
        (self.sent_at, self.had) = (now, keep);
        let is_fresh = |heard: Micros| now < heard.plus(Micros::new(LEASE_HINT_MAX_US));
        Message {
            holder: self.holder,
            number: Number(self.number),
            heard: Number(self.heard),
            stood: self.stood,
            unspent,
            keep,
            need: request.need,
            least: request.least,
            want: request.want,
            share: request.share,
            term_us: narrow(request.term.get()),
            patience_us: narrow(self.patience.get()),
            ends: self.ends,
            ended,
            marks,
            hint: self.hint.filter(|(_, heard)| is_fresh(*heard)).map(|(hint, _)| hint),
        }
    }

    /// Takes in `reply`, if it is the awaited answer and in time. `note` gets its content before the
    /// permits that it grants can be used.
    pub(super) fn on_reply(
        &mut self,
        cell: &Cell,
        reply: &LeaseReply,
        now: Micros,
        note: impl FnOnce(&LeaseGrant),
    ) -> ReplyOutcome {
        let (LeaseReply::Granted(grant), Some(sent)) = (reply, self.sent) else {
            return self.give_up();
        };
        if grant.number != Number(self.number) || self.is_too_late(now) {
            return self.give_up();
        }
        (self.sent, self.unheard) = (None, None);
        let LeaseGrant { number, kept, granted, lasts, ends, found, hint, .. } = *grant;
        (self.heard, self.ends) = (number.0, ends);
        self.count(sent, grant);
        self.hint = Some((hint, now));
        if kept < sent.keep {
            // The store has no record of the kept permits.
            self.counts.permits(Fate::Void, cell.close());
            self.had = 0;
            self.marks.clear();
        }
        if found == Found::Full {
            self.stood = 0;
            return ReplyOutcome::NoCapacity(Box::new(*grant));
        }
        self.stood = kept.saturating_add(granted);
        self.had = self.had.saturating_add(granted);
        let used_for = lasts.since(self.patience).get() / 17 * 16;
        note(grant);
        cell.open(granted, sent.at.get() + used_for);
        ReplyOutcome::Granted(Box::new(*grant))
    }

    /// Counts the report of `sent`, once it was answered: a message that is lost is part of the next.
    fn count(&self, sent: Sent, grant: &LeaseGrant) {
        let Sent { unspent, keep, ended, .. } = sent;
        self.counts.permits(Fate::Spent, self.stood.saturating_sub(unspent));
        let fate = if ended { Fate::Lapsed } else { Fate::Returned };
        self.counts.permits(fate, unspent.saturating_sub(keep));
        self.counts.permits(Fate::Granted, grant.granted);
        if grant.found == Found::Lost {
            self.counts.repairs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Withdraws the last message, which was not sent.
    pub(super) fn withdraw(&mut self) {
        self.sent = None;
    }

    /// Stops awaiting an answer.
    pub(super) fn give_up(&mut self) -> ReplyOutcome {
        self.unheard = self.sent.take().and_then(|sent| sent.asked).or(self.unheard);
        ReplyOutcome::Stale
    }
}

impl MarkLog {
    fn note(&mut self, spent: u32, since: Micros, now: Micros) {
        let (last, noted) = self.marks.last().copied().unwrap_or((since, 0));
        if spent <= noted || now < last.plus(self.apart) {
            return;
        }
        if self.marks.len() == LEASE_MARKS_MAX {
            // As many cover the whole time since the last message: they move apart as it grows.
            self.marks = vec![self.marks[1], self.marks[3]];
            self.apart = self.apart.plus(self.apart).max(MARKS_APART_MIN);
        }
        self.marks.push((now, spent));
    }

    /// Lowers the marks to `spent` permits in all: permits spent from now on were not spent by an earlier instant.
    fn were_put_back(&mut self, spent: u32) {
        for (_, noted) in &mut self.marks {
            *noted = (*noted).min(spent);
        }
    }

    /// Takes the marks for a message. None are left.
    fn take(&mut self, now: Micros) -> Marks {
        let mut marks = [Mark::default(); LEASE_MARKS_MAX];
        let mut told = 0;
        for ((at, spent), mark) in self.marks.iter().zip(&mut marks) {
            *mark = Mark { spent: spent - told, age_us: narrow(now.since(*at).get()) };
            told = *spent;
        }
        let count = self.marks.len();
        self.clear();
        Marks::new(&marks[..count]).expect("there are no more than fit")
    }

    fn clear(&mut self) {
        self.marks.clear();
        self.apart = Micros::ZERO;
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod small_world;
#[cfg(test)]
mod tests;
