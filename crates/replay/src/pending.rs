//! Reservations that wait to be tried again, in virtual time.
//!
//! Most algorithms cannot book the future: they only return the time until another try is worthwhile. A
//! reservation that can wait that long is tried again at exactly that instant, before any event at or after it;
//! of several at the same instant, the first that came goes first. Nothing is charged in the meantime.

use std::collections::BTreeMap;

use sluicegate::{Cost, Micros};

use super::output::OutputSlot;

/// Most reservations that wait at a time. All may be woken by the same instant for one of them to
/// pass, so that many more would be slow in vain.
pub(crate) const PENDING_MAX: usize = 10_000;

/// A reservation that was refused and can wait.
#[derive(Debug)]
pub(crate) struct PendingReservation {
    /// The line of its event.
    pub(crate) line: u64,
    /// The instant of its event.
    pub(crate) at: Micros,
    /// The instant at which its longest wait ends.
    pub(crate) deadline: Micros,
    pub(crate) policy: Box<str>,
    pub(crate) key: Option<Box<str>>,
    pub(crate) cost: Cost,
}

/// Reservations by the instant at which they are tried again, then in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Pending(BTreeMap<(Micros, OutputSlot), PendingReservation>);

impl Pending {
    /// Returns whether one has to be tried at `now` or before.
    pub(crate) fn is_due(&self, now: Micros) -> bool {
        self.0.first_key_value().is_some_and(|((due, _), _)| *due <= now)
    }

    /// Returns whether [`PENDING_MAX`] are waiting.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= PENDING_MAX
    }

    /// Keeps `reservation`, whose line goes to `place`, until `due`.
    pub(crate) fn push(&mut self, due: Micros, place: OutputSlot, reservation: PendingReservation) {
        self.0.insert((due, place), reservation);
    }

    /// Returns the first that has to be tried at `now` or before, with its instant.
    pub(crate) fn pop_due(
        &mut self,
        now: Micros,
    ) -> Option<(Micros, OutputSlot, PendingReservation)> {
        let first = self.0.first_entry().filter(|first| first.key().0 <= now)?;
        let ((due, place), reservation) = first.remove_entry();
        Some((due, place, reservation))
    }

    /// Removes the reservation of `place`.
    pub(crate) fn remove(&mut self, place: OutputSlot) -> Option<PendingReservation> {
        let key = *self.0.keys().find(|(_, other)| *other == place)?;
        self.0.remove(&key)
    }
}
