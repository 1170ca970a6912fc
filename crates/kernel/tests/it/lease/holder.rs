//! The holder's half of the protocol.

use sluicegate_kernel::lease::{Hint, Holder, LeaseGrant, Mark, Marks, Message, Number};
use sluicegate_kernel::{LeaseReply, Micros};

/// The longest time that a holder waits for an answer, µs.
pub(crate) const PATIENCE_US: u32 = 50_000;

/// A holder's lease of one key. Its instants are those of its own steady clock, in µs.
#[derive(Clone, Debug)]
pub(crate) struct HolderLease {
    pub(crate) holder: Holder,
    pub(crate) left: u32,
    /// The time at which it stops using them.
    pub(crate) end_us: u64,
    /// The holder waits for an answer.
    pub(crate) waits: bool,
    number: u32,
    heard: u32,
    stood: u32,
    ends: Micros,
    hint: Option<(Hint, u64)>,
    sent_us: u64,
    sent_keep: u32,
    spent: u32,
    /// Instants, and how much was spent by then since the last message.
    marks: Vec<(u64, u32)>,
    marks_apart_us: u64,
}

/// The wishes of a holder for its next message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    /// Permits of what is left that it gives back.
    pub(crate) back: u32,
    pub(crate) need: u32,
    pub(crate) least: u32,
    pub(crate) want: u32,
    pub(crate) share: u32,
    pub(crate) term_us: u32,
}

impl HolderLease {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            holder: Holder(id),
            left: 0,
            end_us: 0,
            waits: false,
            number: 0,
            heard: 0,
            stood: 0,
            ends: Micros::ZERO,
            hint: None,
            sent_us: 0,
            sent_keep: 0,
            spent: 0,
            marks: Vec::new(),
            marks_apart_us: 0,
        }
    }

    /// Takes `cost` if it passes here at `steady_us`, and returns whether it does.
    pub(crate) fn take(&mut self, cost: u32, steady_us: u64) -> bool {
        let passes = steady_us < self.end_us && cost <= self.left;
        if passes {
            self.left -= cost;
            self.spent += cost;
        }
        passes
    }

    /// Notes that all permits spent so far were spent by now.
    pub(crate) fn mark(&mut self, steady_us: u64) {
        let (last_us, noted) = self.marks.last().copied().unwrap_or((self.sent_us, 0));
        if self.spent == noted || steady_us < last_us + self.marks_apart_us {
            return;
        }
        if self.marks.len() == 4 {
            // Four marks cover the time since the last message: they move apart as it grows.
            self.marks = vec![self.marks[1], self.marks[3]];
            self.marks_apart_us = (2 * self.marks_apart_us).max(50_000);
        }
        self.marks.push((steady_us, self.spent));
    }

    pub(crate) fn ask(&mut self, wish: &Wish, steady_us: u64) -> Message {
        let mut told = 0;
        let marks = std::mem::take(&mut self.marks).into_iter().map(|(at_us, spent)| {
            let age_us = u32::try_from(steady_us - at_us).unwrap_or(u32::MAX);
            let since = spent - told;
            told = spent;
            Mark { spent: since, age_us }
        });
        let marks = Marks::new(&marks.collect::<Vec<_>>()).unwrap();
        (self.spent, self.marks_apart_us) = (0, 0);
        let ended = self.end_us <= steady_us;
        let unspent = self.left;
        // What has ended is never used again, even if the store would still stand for it.
        self.left = if ended { 0 } else { unspent - wish.back.min(unspent) };
        self.number += 1;
        (self.sent_us, self.sent_keep, self.waits) = (steady_us, self.left, true);
        let fresh = |(_, heard_us): &(Hint, u64)| steady_us < heard_us + 60_000_000;
        Message {
            holder: self.holder,
            number: Number(self.number),
            heard: Number(self.heard),
            stood: self.stood,
            unspent,
            keep: self.left,
            need: wish.need,
            least: wish.least,
            want: wish.want,
            share: wish.share,
            term_us: wish.term_us,
            patience_us: PATIENCE_US,
            ends: self.ends,
            ended,
            marks,
            hint: self.hint.filter(fresh).map(|(hint, _)| hint),
        }
    }

    /// Takes in the answer, if it is to the latest message and in time.
    pub(crate) fn hear(&mut self, reply: &LeaseReply, steady_us: u64) {
        let LeaseReply::Granted(grant) = reply else { return };
        let LeaseGrant { number, kept, granted, lasts, ends, hint, .. } = *grant;
        let in_time = steady_us <= self.sent_us + u64::from(PATIENCE_US);
        if !self.waits || !in_time || number != Number(self.number) {
            return;
        }
        self.waits = false;
        if kept < self.sent_keep {
            self.left = 0;
        }
        self.left += granted;
        self.heard = number.0;
        self.stood = kept + granted;
        self.ends = ends;
        self.end_us = self.sent_us + lasts.get().saturating_sub(PATIENCE_US.into()) * 16 / 17;
        self.hint = Some((hint, steady_us));
    }
}
