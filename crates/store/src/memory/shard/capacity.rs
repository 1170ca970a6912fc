//! Eviction from a full shard: of a few neighbours, the key with the most left goes.
//!
//! A key that is refused, or nearly, is never evicted, so a flood of new keys gives no budget back. If
//! no neighbour has enough left to be forgotten there is no room, and the new key shares a budget
//! (`beyond_quota.rs`).

use sluicegate_kernel::{Left, Micros};

use super::super::arena::Arena;
use super::super::bucket::{self, Content};
use super::super::rules::QuotaId;
use super::{NewState, Shard, SlotRef, contents, home, number};

/// Most entries examined to find one to evict: enough to find a full one, few enough for each request.
const EVICTION_SAMPLE_MAX: usize = 16;

/// Most buckets searched for them, where most keys are of another kind: about a segment.
const EVICTION_BUCKETS_MAX: usize = 128;

/// Most keys that one new key or one growing state evicts: it should not wait for more.
const EVICTIONS_MAX: usize = 16;

/// The least that a key must have left to be evicted. So an eviction never gives back more than half a
/// limit, and states that grow as they are used are more than half as long as they may become when they
/// stay.
const EVICTION_LEFT_MIN: Left = Left::HALF;

/// The bound that one key more would pass.
#[derive(Clone, Copy)]
pub(super) enum Crowded {
    /// The keys of a quota.
    Quota(QuotaId),
    /// All keys.
    Keys,
    /// The slots of its segment, where no segment can be split any more.
    Slots,
    /// The bytes of long states.
    Bytes,
    /// The rule sets that a shard tells apart. The keys of this one, which has the fewest, may make
    /// room for another.
    Rules(u16),
}

/// A key that is to be forgotten, with the part of its budget that is left.
pub(super) struct Victim<'a> {
    place: SlotRef<'a>,
    content: Content,
    left: Left,
}

impl Shard {
    /// Makes room for one key more; returns `false` if that would cost others too much.
    pub(super) fn make_room(
        &mut self,
        arena: &Arena,
        tag: u64,
        new: &NewState<'_>,
        now: Micros,
    ) -> bool {
        for _ in 0..EVICTIONS_MAX {
            let Some(crowded) = self.crowded(new) else { return true };
            let Some(victim) = self.victim(arena, tag, crowded, now) else { return false };
            self.evict(arena, tag, &victim, now);
        }
        self.crowded(new).is_none()
    }

    /// Returns whether there is room for one key more, or could be made.
    pub(super) fn has_room(
        &self,
        arena: &Arena,
        tag: u64,
        new: &NewState<'_>,
        now: Micros,
    ) -> bool {
        let is_full = || {
            !self.can_split(arena)
                && !self.segment(arena, tag).iter().any(|bucket| bucket::free(bucket).is_some())
        };
        let crowded = self.crowded(new).or_else(|| is_full().then_some(Crowded::Slots));
        crowded.is_none_or(|crowded| self.victim(arena, tag, crowded, now).is_some())
    }

    /// Returns the bound that one key more would pass, if there is one.
    fn crowded(&self, NewState { rules, quota, states }: &NewState<'_>) -> Option<Crowded> {
        if self.keys_per_quota_max < self.keys_max
            && self.rules.slots_of(*quota) >= self.keys_per_quota_max
        {
            return Some(Crowded::Quota(*quota));
        }
        if self.keys >= self.keys_max {
            return Some(Crowded::Keys);
        }
        if !rules.packs() && self.bytes + states.bytes() > self.bytes_max {
            return Some(Crowded::Bytes);
        }
        let has_id = self.rules.has_room_for(rules, *quota);
        if has_id { None } else { self.rules.rarest().map(Crowded::Rules) }
    }

    /// Returns the key with the most left among a few neighbours of `tag`, if it has enough to be
    /// forgotten.
    ///
    /// A quota forgets only keys that are full again: its new keys have their shared budget.
    pub(super) fn victim<'a>(
        &self,
        arena: &'a Arena,
        tag: u64,
        crowded: Crowded,
        now: Micros,
    ) -> Option<Victim<'a>> {
        let makes_room = |content: &Content| match crowded {
            Crowded::Quota(quota) => self.rules.quota(content.id) == quota,
            Crowded::Keys | Crowded::Slots => true,
            Crowded::Bytes => !self.rules.rules(content.id).packs(),
            Crowded::Rules(id) => content.id == id,
        };
        let buckets = match crowded {
            Crowded::Slots => self.plot.buckets as usize,
            _ => EVICTION_BUCKETS_MAX,
        };
        let sample = self
            .neighbours(arena, tag, buckets)
            .filter(|(_, content)| content.tag != tag && makes_room(content))
            .take(EVICTION_SAMPLE_MAX);
        let mut best: Option<Victim<'a>> = None;
        for (place, content) in sample {
            let left = self.look(content, |rules, states| rules.left(states, now));
            if best.as_ref().is_none_or(|best| left > best.left) {
                best = Some(Victim { place, content, left });
            }
            if left == Left::ALL {
                break;
            }
        }
        let least = match crowded {
            Crowded::Quota(_) => Left::ALL,
            _ => EVICTION_LEFT_MIN,
        };
        best.filter(|best| best.left >= least)
    }

    /// Forgets a key that was found near `tag`.
    pub(super) fn evict(&mut self, arena: &Arena, tag: u64, victim: &Victim<'_>, now: Micros) {
        let Victim { place, content, left } = *victim;
        let is_forgettable = self.is_forgettable(content, now);
        self.evictions += u64::from(left < Left::ALL);
        self.remove(place);
        if is_forgettable {
            // Where one is full again, others are: a sweep forgets them together.
            self.sweep(self.segment(arena, tag), now);
        }
    }

    /// Forgets long states that were hardly used, because that of `tag` has grown.
    #[cold]
    pub(super) fn shrink(&mut self, arena: &Arena, tag: u64, now: Micros) {
        for _ in 0..EVICTIONS_MAX {
            if self.bytes <= self.bytes_max {
                return;
            }
            let Some(victim) = self.victim(arena, tag, Crowded::Bytes, now) else { return };
            self.remove(victim.place);
            self.evictions += u64::from(victim.left < Left::ALL);
        }
    }

    /// Returns the keys in so many buckets of this shard, those first that a search for `tag` passes;
    /// in the buckets of its own segment before those of others.
    fn neighbours<'a>(
        &self,
        arena: &'a Arena,
        tag: u64,
        buckets: usize,
    ) -> impl Iterator<Item = (SlotRef<'a>, Content)> {
        let own = number(tag, self.segments);
        let segment = self.segment_at(arena, own);
        let (before, from) = segment.split_at(home(tag, segment.len()));
        let others = (0..self.segments).filter(move |number| *number != own);
        let others = others.flat_map(|number| self.segment_at(arena, number));
        from.iter().chain(before).chain(others).take(buckets).flat_map(contents)
    }
}
