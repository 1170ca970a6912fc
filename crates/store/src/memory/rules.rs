//! The rules that wrote each state: small numbers in the slots instead of pointers.

use std::collections::HashMap;
use std::sync::Arc;

use siphasher::sip::SipHasher13;
use sluicegate_kernel::RuleSet;

use super::bucket::ID_MAX;

/// The rule sets of one shard's keys, by id. What every decision needs comes first.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct RuleTable {
    /// The rules that were looked up last: nearly always those of the next look-up.
    last: Last,
    /// The rules with id `i + 1` are at `i`.
    held: Vec<Option<RuleEntry>>,
    /// The number of slots whose rules count to each quota.
    slots: HashMap<QuotaId, usize>,
}

/// Stands for the name of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct QuotaId(u64);

impl QuotaId {
    /// Returns the id of a name. Operators choose the names, so the hash needs no secret.
    pub(super) fn of(name: &str) -> Self {
        Self(SipHasher13::new().hash(name.as_bytes()))
    }
}

#[derive(Debug)]
struct RuleEntry {
    rules: Arc<RuleSet>,
    quota: QuotaId,
    /// Slots that carry this id.
    slots: usize,
}

/// The address of rules that the table holds, and their id. An address that is held is not used
/// again for other rules.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    address: usize,
    id: u16,
}

impl RuleTable {
    /// Returns whether `id` stands for these very rules.
    #[inline]
    pub(super) fn is(&self, id: u16, rules: &Arc<RuleSet>) -> bool {
        if self.last.id == id {
            return self.last.address == address(rules);
        }
        Arc::ptr_eq(self.rules(id), rules)
    }

    /// Returns the rules that `id` stands for.
    pub(super) fn rules(&self, id: u16) -> &Arc<RuleSet> {
        &self.held(id).rules
    }

    /// Returns the quota that the keys with this id count to.
    pub(super) fn quota(&self, id: u16) -> QuotaId {
        self.held(id).quota
    }

    /// Returns the number of slots that count to `quota`.
    pub(super) fn slots_of(&self, quota: QuotaId) -> usize {
        self.slots.get(&quota).copied().unwrap_or_default()
    }

    /// Returns whether `id` is freed with its last slot.
    pub(super) fn is_last_slot(&self, id: u16) -> bool {
        self.held(id).slots == 1
    }

    /// Returns whether `rules` have an id or can get one.
    pub(super) fn has_room_for(&self, rules: &Arc<RuleSet>, quota: QuotaId) -> bool {
        self.held.len() < usize::from(ID_MAX)
            || self.id(rules, quota).is_some()
            || self.held.iter().any(Option::is_none)
    }

    /// Returns the id of `rules`, for one slot more. There must be [room](Self::has_room_for) for
    /// them.
    pub(super) fn hold(&mut self, rules: &Arc<RuleSet>, quota: QuotaId) -> u16 {
        let id = self.id(rules, quota).unwrap_or_else(|| self.add(rules, quota));
        self.last = Last { address: address(rules), id };
        self.held[index(id)].as_mut().expect("the id was just found or added").slots += 1;
        *self.slots.entry(quota).or_default() += 1;
        id
    }

    /// Counts one slot less with `id`; rules without a slot are removed.
    pub(super) fn release(&mut self, id: u16) {
        let place = &mut self.held[index(id)];
        let held = place.as_mut().expect("an id in a slot is held");
        held.slots -= 1;
        let of_quota = self.slots.get_mut(&held.quota).expect("a slot counts to a quota");
        *of_quota -= 1;
        if *of_quota == 0 {
            self.slots.remove(&held.quota);
        }
        if held.slots == 0 {
            *place = None;
            if self.last.id == id {
                self.last = Last::default();
            }
        }
    }

    /// Returns the id with the fewest slots.
    pub(super) fn rarest(&self) -> Option<u16> {
        let held = (1..=ID_MAX).zip(&self.held).filter_map(|(id, held)| Some((id, held.as_ref()?)));
        held.min_by_key(|(_, held)| held.slots).map(|(id, _)| id)
    }

    /// Returns the id of `rules`, if a slot of theirs counts to `quota`.
    fn id(&self, rules: &Arc<RuleSet>, quota: QuotaId) -> Option<u16> {
        let Last { address: last, id } = self.last;
        if id != 0 && last == address(rules) && self.held(id).quota == quota {
            return Some(id);
        }
        let is_theirs = |held: &Option<RuleEntry>| {
            let held = held.as_ref().filter(|held| held.quota == quota);
            held.is_some_and(|held| Arc::ptr_eq(&held.rules, rules))
        };
        (1..=ID_MAX).zip(&self.held).find(|(_, held)| is_theirs(held)).map(|(id, _)| id)
    }

    fn add(&mut self, rules: &Arc<RuleSet>, quota: QuotaId) -> u16 {
        let place = self.held.iter().position(Option::is_none).unwrap_or(self.held.len());
        if place == self.held.len() {
            self.held.push(None);
        }
        self.held[place] = Some(RuleEntry { rules: Arc::clone(rules), quota, slots: 0 });
        u16::try_from(place + 1).ok().filter(|id| *id <= ID_MAX).expect("there is an id left")
    }

    fn held(&self, id: u16) -> &RuleEntry {
        self.held[index(id)].as_ref().expect("an id in a slot is held")
    }
}

fn index(id: u16) -> usize {
    usize::from(id) - 1
}

fn address(rules: &Arc<RuleSet>) -> usize {
    Arc::as_ptr(rules).addr()
}
