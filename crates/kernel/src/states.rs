//! The states of a key's rules.

use alloc::vec;
use alloc::vec::Vec;
use core::slice;

use crate::algorithm::State;

/// The states of a key's rules, in the order of the rules. Empty: a key that was never seen.
#[derive(Clone, Debug, PartialEq)]
pub struct States(Slots);

/// One slot a rule. Most policies have one rule, whose state is then stored here without a pointer.
#[derive(Clone, Debug, PartialEq)]
enum Slots {
    One(Option<State>),
    Many(Vec<Option<State>>),
}

impl States {
    /// Returns whether no rule has a state.
    pub fn is_empty(&self) -> bool {
        self.as_slice().iter().all(Option::is_none)
    }

    /// Bytes that they take in memory, with what they point to.
    pub fn bytes(&self) -> usize {
        let slots = match &self.0 {
            Slots::One(_) => 0,
            Slots::Many(slots) => slots.capacity() * size_of::<Option<State>>(),
        };
        let behind = self.as_slice().iter().flatten().map(State::heap_bytes);
        size_of::<Self>() + slots + behind.sum::<usize>()
    }

    /// The states of a set of one rule.
    #[inline]
    pub(crate) fn one(state: Option<State>) -> Self {
        Self(Slots::One(state))
    }

    /// The state of the only rule; `None` if it has none, or if there are several rules.
    #[inline]
    pub(crate) fn single(&self) -> Option<&State> {
        match &self.0 {
            Slots::One(state) => state.as_ref(),
            Slots::Many(_) => None,
        }
    }

    pub(crate) fn of(mut slots: Vec<Option<State>>) -> Self {
        Self(if slots.len() == 1 { Slots::One(slots.remove(0)) } else { Slots::Many(slots) })
    }

    /// Resets the slots to one empty slot for each of `rules` rules, if their number differs.
    #[inline]
    pub(crate) fn fit(&mut self, rules: usize) {
        if self.as_slice().len() != rules {
            *self = Self::of(vec![None; rules]);
        }
    }

    /// The state of each rule, in the order of the rules; one empty slot before the first decision.
    #[inline]
    pub fn as_slice(&self) -> &[Option<State>] {
        match &self.0 {
            Slots::One(state) => slice::from_ref(state),
            Slots::Many(states) => states,
        }
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Option<State>] {
        match &mut self.0 {
            Slots::One(state) => slice::from_mut(state),
            Slots::Many(states) => states,
        }
    }
}

impl Default for States {
    fn default() -> Self {
        Self(Slots::One(None))
    }
}
