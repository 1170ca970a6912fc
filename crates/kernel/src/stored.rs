//! The states of a key's rules, as bytes: the form that `spec/redis.md` describes under "What is
//! stored", without the generation. A store on Redis and the snapshots of a memory store have it.
//!
//! The form of one rule is its state. That of several is a byte whose bit *i* is set if rule *i*
//! has a state, then these states.

use alloc::vec::Vec;

use crate::ruleset::{NamedRule, RuleSet};
use crate::states::States;

impl RuleSet {
    /// Appends `states`, at most [`STORED_BYTES_MAX`](crate::limits::STORED_BYTES_MAX) bytes; none
    /// for a policy of one rule without a state.
    pub fn write_states(&self, states: &States, out: &mut Vec<u8>) {
        let pairs = || self.rules().iter().zip(states.as_slice());
        if let ([named], [state]) = (self.rules(), states.as_slice()) {
            if let Some(state) = state {
                named.rule.write_only_state(state, out);
            }
            return;
        }
        let present =
            |(place, (_, state)): (usize, (_, &Option<_>))| u8::from(state.is_some()) << place;
        out.push(pairs().enumerate().map(present).sum());
        for (named, state) in pairs() {
            if let Some(state) = state {
                named.rule.write_state(state, out);
            }
        }
    }

    /// Reads the states that [`write_states`](Self::write_states) of these rules wrote as `bytes`;
    /// `None` if no key under these rules can have them.
    pub fn read_states(&self, bytes: &[u8]) -> Option<States> {
        let from = &mut &*bytes;
        let slots = match self.rules() {
            [_] if from.is_empty() => alloc::vec![None],
            [only] => alloc::vec![Some(only.rule.read_only_state(from)?)],
            several => {
                let (present, rest) = from.split_first()?;
                *from = rest;
                if u32::from(*present) >> several.len() != 0 {
                    return None;
                }
                let slot = |(place, named): (usize, &NamedRule)| match present >> place & 1 {
                    0 => Some(None),
                    _ => named.rule.read_state(from).map(Some),
                };
                several.iter().enumerate().map(slot).collect::<Option<_>>()?
            }
        };
        from.is_empty().then(|| States::of(slots))
    }
}
