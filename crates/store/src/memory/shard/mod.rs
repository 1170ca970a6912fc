//! A shard: segments, each a small table of buckets, of which one at a time is split in two.
//!
//! ```text
//! tag ─▶ high half ─▶ number of the segment ─▶ low half ─▶ home bucket, or the next ones
//! ```
//!
//! The table grows by linear hashing: when a key does not find a slot near its home, its segment is
//! swept of budgets that are full again, and if that frees too little, the segment whose turn it is
//! gives half of its keys to a new one. So no request ever waits for more than some hundred keys to
//! be moved, and there is no directory to look into: a segment's number follows from the tag and
//! from how many there are, and where it lies from its number.

mod capacity;

use std::sync::Arc;

use slab::Slab;
use sluicegate_kernel::{Micros, Moment, RuleSet, States, Unsupported, Verb, Verdict};

use super::arena::{Arena, Bucket};
use super::bucket::{self, Content, SLOTS};
use super::rules::{QuotaId, RuleTable};
use crate::StoreRequest;
use capacity::Crowded;

/// Buckets from its home on in which a new key should find a slot; otherwise the shard grows.
const PROBES_MAX: usize = 32;

/// The longest time before a decision at which its caller may have read the clock, if others who read it
/// later were decided first: longer delays of a thread are ignored. A clock that goes back by more was put
/// back; one that was put back by less (a leap second) adds nothing for that long. The clock of engines is
/// never put back; this is for callers that pass in the time of another one.
const LATE_MAX: Micros = Micros::SECOND;

/// The least part of a segment that a sweep must free to avoid a split: one slot in so many.
const SWEEP_WORTH: usize = 8;

/// A key by its tag, with its rules.
#[derive(Clone, Copy)]
pub(super) struct TaggedRules<'r> {
    pub(super) tag: u64,
    pub(super) rules: &'r Arc<RuleSet>,
}

/// A request at an instant, whose key has this tag.
#[derive(Clone, Copy)]
pub(super) struct TaggedRequest<'r> {
    pub(super) tag: u64,
    pub(super) request: &'r StoreRequest<'r>,
    pub(super) at: &'r Moment<'r>,
}

/// The keys whose hashes begin alike, under one lock. What every decision needs comes first, so that
/// it lies in one cache line with the lock.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard {
    plot: ShardLayout,
    /// The number of segments, at least 1.
    segments: u32,
    /// The latest instant of a decision, since the clock was last put back.
    latest: Micros,
    rules: RuleTable,
    keys: usize,
    keys_max: usize,
    /// Most keys that count to one quota.
    keys_per_quota_max: usize,
    /// States that are longer than a slot; the slot holds their place.
    spilled: Slab<States>,
    /// Bytes that long states take.
    bytes: usize,
    /// Most bytes that they should take.
    bytes_max: usize,
    evictions: u64,
}

/// A state that is to be written.
pub(super) struct NewState<'a> {
    pub(super) rules: &'a Arc<RuleSet>,
    pub(super) quota: QuotaId,
    pub(super) states: States,
}

/// The position of a shard's segments in every row of the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShardLayout {
    /// Its first bucket.
    pub(super) begin: u32,
    /// The number of its buckets.
    pub(super) buckets: u32,
}

/// A slot of a bucket.
#[derive(Clone, Copy)]
struct SlotRef<'a> {
    bucket: &'a Bucket,
    slot: usize,
}

impl Shard {
    /// Returns an empty shard for at most `keys_max` keys (at least 1), with this plot in every row.
    pub(super) fn new(plot: ShardLayout, keys_max: usize, bytes_max: usize) -> Self {
        Self {
            plot,
            segments: 1,
            latest: Micros::ZERO,
            rules: RuleTable::default(),
            keys: 0,
            keys_max,
            keys_per_quota_max: usize::MAX,
            spilled: Slab::new(),
            bytes: 0,
            bytes_max,
            evictions: 0,
        }
    }

    /// Sets how many keys (at least 1) may count to one quota before new ones are rejected.
    pub(super) const fn set_keys_per_quota_max(&mut self, keys_max: usize) {
        self.keys_per_quota_max = keys_max;
    }

    /// Sets the bytes that long states may take from now on.
    pub(super) const fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Decides a request. The verdict counts if `has_room` stays true: there is
    /// room for the state, or it was there before. Otherwise no state was changed.
    ///
    /// Callers read the clock before they wait for the lock, so they come in another order than they
    /// read it. If each moved the state back to its own time, the next one would add the same span
    /// again: so time goes on here, and goes back only where the clock did.
    #[inline]
    pub(super) fn decide(
        &mut self,
        arena: &Arena,
        asked: TaggedRequest<'_>,
        has_room: &mut bool,
    ) -> Result<Verdict, Unsupported> {
        let TaggedRequest { tag, request, at } = asked;
        let StoreRequest { rules, verb, .. } = *request;
        let in_turn;
        let at = if is_late(&mut self.latest, at.now()) {
            in_turn = at.as_of(self.latest);
            &in_turn
        } else {
            at
        };
        let Some(place) = self.find(arena, tag) else {
            return self.decide_first(arena, TaggedRequest { at, ..asked }, has_room);
        };
        if !self.rules.is(place.id(), rules) {
            return self.decide_under_new_rules(place, TaggedRequest { at, ..asked }, has_room);
        }
        let verdict = if rules.packs() {
            let before = place.state();
            let (verdict, after) = rules.decide_packed(Some(before), verb, at)?;
            if let Some(after) = after.filter(|after| *after != before) {
                bucket::set_state(place.bucket, place.slot, after);
            }
            verdict
        } else {
            let states = &mut self.spilled[spilled_at(place.state())];
            let before = states.bytes();
            let verdict = rules.decide(states, verb, at)?;
            let after = states.bytes();
            self.bytes = self.bytes - before + after;
            if after > before && self.bytes > self.bytes_max {
                self.shrink(arena, tag, at.now());
            }
            verdict
        };
        if matches!(verb, Verb::Reset) {
            self.remove(place);
        }
        Ok(verdict)
    }

    /// Records the permits of each rule that are in use by a key, where `used` returns a
    /// number.
    pub(super) fn record_usage(
        &mut self,
        arena: &Arena,
        key: TaggedRules<'_>,
        mut used: impl FnMut(usize, u64) -> Option<u64>,
        at: &Moment<'_>,
    ) {
        let TaggedRules { tag, rules } = key;
        let is_late = is_late(&mut self.latest, at.now());
        let at = &if is_late { at.as_of(self.latest) } else { *at };
        let mut states = self.states(arena, tag, rules, at);
        let (in_use, mut is_said) = (rules.in_use(&states, at), false);
        for (rule, here) in in_use.into_iter().enumerate().take(rules.rules().len()) {
            if let Some(used) = used(rule, here) {
                rules.set_used(&mut states, rule, used, at);
                is_said = true;
            }
        }
        if !is_said {
            return;
        }
        let new = NewState { rules, quota: QuotaId::of(""), states };
        match self.find(arena, tag) {
            Some(place) if self.can_rewrite(place, rules, new.quota) => {
                self.rewrite(place, tag, new);
            }
            // Without room for it, the key stays without a state.
            None if !new.states.is_empty() => drop(self.insert(arena, tag, new, at.now())),
            _ => {}
        }
    }

    /// Returns the states of the key with this tag, in the units of `rules`.
    pub(super) fn states(
        &self,
        arena: &Arena,
        tag: u64,
        rules: &Arc<RuleSet>,
        at: &Moment<'_>,
    ) -> States {
        let Some(place) = self.find(arena, tag) else { return States::default() };
        let content = Content { tag, id: place.id(), state: place.state() };
        self.look(content, |old, states| match std::ptr::eq(old, &raw const **rules) {
            true => states.clone(),
            false => rules.take_over(old, states, at),
        })
    }

    /// Returns the number of keys with a state now.
    pub(super) const fn keys(&self) -> usize {
        self.keys
    }

    /// Returns the latest instant of a decision.
    pub(super) const fn latest(&self) -> Micros {
        self.latest
    }

    /// Sets the latest instant of a decision, of one before this process began.
    pub(super) const fn set_latest(&mut self, latest: Micros) {
        self.latest = latest;
    }

    /// Returns the bytes that long states take.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of budgets that were dropped although they were not full.
    pub(super) const fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Passes the keys in the segment with this number to `see`: tags, rules and states. Returns `false`
    /// if there are not so many segments.
    ///
    /// A key that moves between two calls moves to a segment that is the last then: a caller that goes on
    /// until there is none has seen every key, some twice.
    pub(super) fn show_segment(
        &self,
        arena: &Arena,
        number: u32,
        mut see: impl FnMut(u64, &Arc<RuleSet>, &States),
    ) -> bool {
        if number >= self.segments {
            return false;
        }
        for (_, content) in self.segment_at(arena, number).iter().flat_map(contents) {
            let rules = self.rules.rules(content.id);
            self.look(content, |_, states| see(content.tag, rules, states));
        }
        true
    }

    /// Restores states, in place of those of an earlier call for this tag, unless they have become
    /// forgettable; returns whether it did.
    pub(super) fn restore(
        &mut self,
        arena: &Arena,
        tag: u64,
        new: NewState<'_>,
        now: Micros,
    ) -> bool {
        if let Some(place) = self.find(arena, tag) {
            self.remove(place);
        }
        let is_full = new.rules.forgettable_at(&new.states).is_some_and(|at| at <= now);
        if !is_full && !new.states.is_empty() {
            let is_kept = self.insert(arena, tag, new, now);
            self.evictions += u64::from(!is_kept);
        }
        !is_full
    }

    /// Decides on a key without a state.
    fn decide_first(
        &mut self,
        arena: &Arena,
        asked: TaggedRequest<'_>,
        has_room: &mut bool,
    ) -> Result<Verdict, Unsupported> {
        let TaggedRequest { tag, request, at } = asked;
        let StoreRequest { rules, verb, quota, .. } = *request;
        let mut states = States::default();
        let verdict = rules.decide(&mut states, verb, at)?;
        *has_room = match verb {
            // It may hold a permit of the shared budget that is used where there is no room.
            Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. } => false,
            _ => {
                let is_to_write = !states.is_empty();
                let new = NewState { rules, quota: QuotaId::of(quota.name), states };
                match is_to_write {
                    true => self.insert(arena, tag, new, at.now()),
                    false => self.has_room(arena, tag, &new, at.now()),
                }
            }
        };
        Ok(verdict)
    }

    /// Decides under rules other than those that wrote the state: the state is taken over first. If the
    /// rules do not support the verb, the old state stays.
    #[cold]
    fn decide_under_new_rules(
        &mut self,
        place: SlotRef<'_>,
        asked: TaggedRequest<'_>,
        has_room: &mut bool,
    ) -> Result<Verdict, Unsupported> {
        let TaggedRequest { tag, request, at } = asked;
        let StoreRequest { rules, verb, quota, .. } = *request;
        let quota = QuotaId::of(quota.name);
        let content = Content { tag, id: place.id(), state: place.state() };
        let mut states = self.look(content, |old, states| rules.take_over(old, states, at));
        let verdict = rules.decide(&mut states, verb, at)?;
        if !matches!(verb, Verb::Peek { .. }) {
            *has_room = self.can_rewrite(place, rules, quota);
            if *has_room {
                self.rewrite(place, tag, NewState { rules, quota, states });
            }
        }
        Ok(verdict)
    }

    /// Returns whether a slot may hold a state of `rules` instead of its own: they have an id or can get
    /// one.
    fn can_rewrite(&self, place: SlotRef<'_>, rules: &Arc<RuleSet>, quota: QuotaId) -> bool {
        self.rules.has_room_for(rules, quota) || self.rules.is_last_slot(place.id())
    }

    /// Lets a slot hold another state, or none if that is empty.
    fn rewrite(&mut self, place: SlotRef<'_>, tag: u64, new: NewState<'_>) {
        self.remove(place);
        if !new.states.is_empty() {
            self.write(place, tag, new);
        }
    }

    #[inline]
    fn find<'a>(&self, arena: &'a Arena, tag: u64) -> Option<SlotRef<'a>> {
        let segment = self.segment(arena, tag);
        let mut next = home(tag, segment.len());
        for _ in 0..segment.len() {
            let bucket = &segment[next];
            if let Some(slot) = bucket::find(bucket, tag) {
                return Some(SlotRef { bucket, slot });
            }
            if !bucket::overflows(bucket) {
                return None;
            }
            next = after(next, segment.len());
        }
        None
    }

    /// Returns the number of the bucket where a search for this tag begins.
    #[inline]
    pub(super) fn home(&self, arena: &Arena, tag: u64) -> usize {
        let ShardLayout { begin, buckets } = self.plot;
        let place = begin as usize + home(tag, buckets as usize);
        arena.number(number(tag, self.segments) as usize, place)
    }

    #[inline]
    fn segment<'a>(&self, arena: &'a Arena, tag: u64) -> &'a [Bucket] {
        self.segment_at(arena, number(tag, self.segments))
    }

    #[inline]
    fn segment_at<'a>(&self, arena: &'a Arena, number: u32) -> &'a [Bucket] {
        let ShardLayout { begin, buckets } = self.plot;
        arena.slice(number as usize, begin as usize, buckets as usize)
    }

    /// Writes the state of a key that has none; returns `false` if there is no room for it.
    #[cold]
    fn insert(&mut self, arena: &Arena, tag: u64, new: NewState<'_>, now: Micros) -> bool {
        if !self.make_room(arena, tag, &new, now) {
            return false;
        }
        let segment = self.segment(arena, tag);
        let mut place = free(segment, tag, PROBES_MAX);
        if place.is_none() {
            if self.sweep(segment, now) * SWEEP_WORTH >= segment.len() * SLOTS {
                self.rebuild(arena, segment);
            } else {
                self.split(arena);
            }
        }
        // If it was not the turn of its segment, the key lies further from its home until it is; in a
        // segment without any slot left the turn comes at once.
        while place.is_none() {
            let segment = self.segment(arena, tag);
            place = free(segment, tag, segment.len());
            if place.is_none() && !self.split(arena) {
                let Some(victim) = self.victim(arena, tag, Crowded::Slots, now) else {
                    return false;
                };
                self.evict(arena, tag, &victim, now);
            }
        }
        let place = place.expect("the loop ends with a place");
        self.write(place, tag, new);
        true
    }

    /// Removes forgettable states and returns their number.
    fn sweep(&mut self, segment: &[Bucket], now: Micros) -> usize {
        let before = self.keys;
        for (place, content) in segment.iter().flat_map(contents) {
            if self.is_forgettable(content, now) {
                self.remove(place);
            }
        }
        before - self.keys
    }

    /// Adds a segment, with half of the keys of the one whose turn it is; returns `false` if the arena has
    /// no row for it.
    fn split(&mut self, arena: &Arena) -> bool {
        if !self.can_split(arena) {
            return false;
        }
        let new = self.segments;
        self.segments += 1;
        // Its keys have been where the number without its highest bit leads.
        self.rebuild(arena, self.segment_at(arena, new & !(1 << new.ilog2())));
        true
    }

    fn can_split(&self, arena: &Arena) -> bool {
        (self.segments as usize) < arena.rows()
    }

    /// Puts the keys of a segment where they belong now, as near to their homes as possible.
    fn rebuild(&mut self, arena: &Arena, segment: &[Bucket]) {
        let contents: Vec<_> = segment.iter().flat_map(contents).map(|(_, it)| it).collect();
        segment.iter().for_each(bucket::clear_all);
        for content in contents {
            let segment = self.segment(arena, content.tag);
            let place = free(segment, content.tag, segment.len());
            let SlotRef { bucket, slot } =
                place.expect("they fitted before, and not more are there");
            bucket::put(bucket, slot, content);
        }
    }

    /// Fills a free slot.
    fn write(
        &mut self,
        place: SlotRef<'_>,
        tag: u64,
        NewState { rules, quota, states }: NewState<'_>,
    ) {
        let id = self.rules.hold(rules, quota);
        let state = match rules.pack(&states) {
            Some(packed) => packed,
            None => {
                self.bytes += states.bytes();
                self.spilled.insert(states) as u128
            }
        };
        bucket::put(place.bucket, place.slot, Content { tag, id, state });
        self.keys += 1;
    }

    fn remove(&mut self, place: SlotRef<'_>) {
        let id = place.id();
        if !self.rules.rules(id).packs() {
            self.bytes -= self.spilled.remove(spilled_at(place.state())).bytes();
        }
        self.rules.release(id);
        bucket::clear(place.bucket, place.slot);
        self.keys -= 1;
    }

    fn is_forgettable(&self, content: Content, now: Micros) -> bool {
        self.look(content, RuleSet::forgettable_at).is_some_and(|at| at <= now)
    }

    /// Returns the result of `see` on the rules and states of a slot.
    fn look<T>(&self, content: Content, see: impl FnOnce(&RuleSet, &States) -> T) -> T {
        let rules = self.rules.rules(content.id);
        if rules.packs() {
            see(rules, &rules.unpack(content.state))
        } else {
            see(rules, &self.spilled[spilled_at(content.state)])
        }
    }
}

impl SlotRef<'_> {
    #[inline]
    fn id(&self) -> u16 {
        bucket::id(self.bucket, self.slot)
    }

    #[inline]
    fn state(&self) -> u128 {
        bucket::state(self.bucket, self.slot)
    }
}

/// Returns whether a caller with the time `now` has been overtaken by one that was decided at `latest`.
/// Otherwise `now` becomes the latest.
#[inline]
pub(super) fn is_late(latest: &mut Micros, now: Micros) -> bool {
    let behind = latest.since(now);
    if behind > Micros::ZERO && behind <= LATE_MAX {
        return true;
    }
    *latest = now;
    false
}

/// Returns the buckets of a segment that a search for `tag` passes.
fn way(segment: &[Bucket], tag: u64) -> impl Iterator<Item = &Bucket> {
    let (before, from) = segment.split_at(home(tag, segment.len()));
    from.iter().chain(before)
}

/// Returns a free slot in the first `probes` buckets from the home of `tag` on. Searches are led there.
fn free(segment: &[Bucket], tag: u64, probes: usize) -> Option<SlotRef<'_>> {
    let mut passed = way(segment, tag).take(probes).enumerate();
    let (passed, place) = passed.find_map(|(passed, bucket)| {
        Some((passed, SlotRef { bucket, slot: bucket::free(bucket)? }))
    })?;
    way(segment, tag).take(passed).for_each(bucket::set_overflows);
    Some(place)
}

fn contents(bucket: &Bucket) -> impl Iterator<Item = (SlotRef<'_>, Content)> {
    (0..SLOTS)
        .filter_map(move |slot| Some((SlotRef { bucket, slot }, bucket::content(bucket, slot)?)))
}

/// Returns the segment that a tag belongs into, of so many: as many bits of its high half as there are
/// numbers for, or one less.
#[inline]
fn number(tag: u64, segments: u32) -> u32 {
    let bits = u32::try_from(tag >> 32).expect("the high half of 64 bits");
    let mask = segments.next_power_of_two() - 1;
    match bits & mask {
        number if number < segments => number,
        number => number & (mask >> 1),
    }
}

/// Returns the bucket that a tag belongs into: its low half, scaled to the number of buckets.
#[inline]
fn home(tag: u64, buckets: usize) -> usize {
    let scaled = ((tag & u64::from(u32::MAX)) * buckets as u64) >> 32;
    usize::try_from(scaled).expect("a part of the number of buckets")
}

#[inline]
fn after(bucket: usize, buckets: usize) -> usize {
    if bucket + 1 == buckets { 0 } else { bucket + 1 }
}

fn spilled_at(state: u128) -> usize {
    usize::try_from(state).expect("such a slot holds a place in `spilled`")
}
