//! The holder's half of the protocol for one key: which message is next, and what an answer means.
//!
//! Time is that of the steady clock, passed in. See [`sluicegate_kernel::lease`] for the store's half.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_kernel::lease::{Found, Hint, Holder, Mark, Marks, Message, Number, Stands};
use sluicegate_kernel::limits::{LEASE_HINT_MAX_US, LEASE_MARKS_MAX};
use sluicegate_kernel::{Micros, Word};

use super::cell::Cell;
use super::counts::{Counts, Fate};

/// How long after a message that was not heard another is due that gives back what it was granted: the shortest lease is
/// longer.
const UNHEARD_AFTER: Micros = Micros::from_millis(200);

/// Least time between two marks once there have been more than fit into a message.
const MARKS_APART_MIN: Micros = Micros::from_millis(50);

/// The last message about one key, and what the store last answered.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Talk {
    holder: Holder,
    /// How long an answer is listened to. The store keeps the permits as much longer than they are used.
    patience: Micros,
    number: u32,
    heard: u32,
    stood: u32,
    ends: Micros,
    hint: Option<(Hint, Micros)>,
    /// The message whose answer is waited for.
    sent: Option<Sent>,
    /// The last message that asked for permits, if nothing was heard since: the store may have set some aside.
    unheard: Option<Unheard>,
    /// When the last message was made.
    sent_at: Micros,
    /// Permits that were left when the last message was made, and those that its answer granted: what is not
    /// left of them is spent.
    had: u32,
    marks: MarkLog,
    counts: Arc<Counts>,
}

#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Sent {
    at: Micros,
    unspent: u32,
    keep: u32,
    ended: bool,
    /// If it asked for permits, how it is remembered once it is given up.
    asked: Option<Unheard>,
}

/// A message that asked for permits, and was not answered.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Unheard {
    made: Micros,
    /// When the store has ended what it granted.
    until: Micros,
}

/// When permits were spent since the last message.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
struct MarkLog {
    /// Instants, and how much was spent by then in all.
    marks: Vec<(Micros, u32)>,
    apart: Micros,
}

/// What a message asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// Permits that requests wait for, and those of the first of them.
    pub(super) need: u32,
    pub(super) least: u32,
    /// Permits beyond.
    pub(super) want: u32,
    pub(super) share: u32,
    pub(super) term: Micros,
    /// Permits of those that are left which go back.
    pub(super) back: u32,
}

/// What an answer means for its holder.
#[derive(Debug)]
pub(super) enum Heard {
    /// The lease goes on.
    Goes(Box<Stands>),
    /// The store has no place for one more holder: what it granted is for the requests that wait.
    Full(Box<Stands>),
    /// It is not the answer that is waited for, or it came too late: nothing is known.
    Nothing,
}

impl Talk {
    pub(super) fn new(holder: Holder, patience: Micros, counts: Arc<Counts>) -> Self {
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

    /// Numbers its messages from the one after `number`.
    pub(super) fn after(self, number: u32) -> Self {
        Self { number, ..self }
    }

    /// The number of the last message.
    pub(super) const fn number(&self) -> u32 {
        self.number
    }

    pub(super) const fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Permits that the store last stood for: what was spent since the message that it answered, and what is
    /// left.
    pub(super) const fn stood(&self) -> u32 {
        self.stood
    }

    /// Whether an answer is waited for.
    pub(super) const fn waits(&self) -> bool {
        self.sent.is_some()
    }

    /// Whether a message is due that gives back what the store may have set aside unheard: 200, 600 and 1,400 ms after
    /// the one that asked for it, unless another is made before.
    pub(super) fn is_unheard(&self, now: Micros) -> bool {
        self.unheard.is_some_and(|Unheard { made, until }| {
            let apart = self.sent_at.since(made).plus(UNHEARD_AFTER);
            now < until && now >= self.sent_at.plus(apart)
        })
    }

    /// Whether the answer that is waited for would not be listened to any more.
    pub(super) fn is_too_late(&self, now: Micros) -> bool {
        self.sent.is_some_and(|sent| now > sent.at.plus(self.patience))
    }

    /// When the last message was made.
    pub(super) const fn sent_at(&self) -> Micros {
        self.sent_at
    }

    /// Permits that were spent since the last message was made.
    pub(super) fn spent(&self, cell: &Cell) -> u32 {
        self.had.saturating_sub(cell.left())
    }

    /// Notes that all that was spent so far was spent by now.
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

    /// The next message. What has ended goes back with it, and is never used again.
    pub(super) fn ask(&mut self, cell: &Cell, wish: &Wish, now: Micros) -> Message {
        let ended = now.get() >= cell.end();
        let unspent =
            if ended || wish.back == u32::MAX { cell.close() } else { cell.give_back(wish.back) };
        let keep = if ended { 0 } else { unspent.saturating_sub(wish.back) };
        let marks = self.marks.take(now);
        self.number = self.number.wrapping_add(1).max(1);
        let lasts = Micros::new(wish.term.get() / 16 * 17).plus(self.patience);
        let unheard = Unheard { made: now, until: now.plus(lasts) };
        let asked = (wish.need > 0 || wish.want > 0).then_some(unheard);
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
            need: wish.need,
            least: wish.least,
            want: wish.want,
            share: wish.share,
            term_us: narrow(wish.term.get()),
            patience_us: narrow(self.patience.get()),
            ends: self.ends,
            ended,
            marks,
            hint: self.hint.filter(|(_, heard)| is_fresh(*heard)).map(|(hint, _)| hint),
        }
    }

    /// Takes in `word`, if it is the answer that is waited for and in time. `note` gets what it says before the
    /// permits that it grants can be used.
    pub(super) fn hear(
        &mut self,
        cell: &Cell,
        word: &Word,
        now: Micros,
        note: impl FnOnce(&Stands),
    ) -> Heard {
        let (Word::Stands(stands), Some(sent)) = (word, self.sent) else { return self.give_up() };
        if stands.number != Number(self.number) || self.is_too_late(now) {
            return self.give_up();
        }
        (self.sent, self.unheard) = (None, None);
        let Stands { number, kept, granted, lasts, ends, found, hint, .. } = *stands;
        (self.heard, self.ends) = (number.0, ends);
        self.count(sent, stands);
        self.hint = Some((hint, now));
        if kept < sent.keep {
            // No record stands for what was kept.
            self.counts.permits(Fate::Void, cell.close());
            self.had = 0;
            self.marks.clear();
        }
        if found == Found::Full {
            self.stood = 0;
            return Heard::Full(Box::new(*stands));
        }
        self.stood = kept.saturating_add(granted);
        self.had = self.had.saturating_add(granted);
        let used_for = lasts.since(self.patience).get() / 17 * 16;
        note(stands);
        cell.open(granted, sent.at.get() + used_for);
        Heard::Goes(Box::new(*stands))
    }

    /// Counts what `sent` reported, once it was heard: a message that is lost is part of the next.
    fn count(&self, sent: Sent, stands: &Stands) {
        let Sent { unspent, keep, ended, .. } = sent;
        self.counts.permits(Fate::Spent, self.stood.saturating_sub(unspent));
        let fate = if ended { Fate::Lapsed } else { Fate::Returned };
        self.counts.permits(fate, unspent.saturating_sub(keep));
        self.counts.permits(Fate::Granted, stands.granted);
        if stands.found == Found::Lost {
            self.counts.repairs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The last message was not sent.
    pub(super) fn withdraw(&mut self) {
        self.sent = None;
    }

    /// No answer is waited for any more.
    pub(super) fn give_up(&mut self) -> Heard {
        self.unheard = self.sent.take().and_then(|sent| sent.asked).or(self.unheard);
        Heard::Nothing
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

    /// Only `spent` are spent yet: what is spent from now on was not spent by an earlier instant.
    fn were_put_back(&mut self, spent: u32) {
        for (_, noted) in &mut self.marks {
            *noted = (*noted).min(spent);
        }
    }

    /// The marks as a message has them. None are left.
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
