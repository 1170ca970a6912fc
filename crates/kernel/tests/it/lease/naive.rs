//! The kernel beside a model that knows every permit by itself: whose it is, or when it was charged.
//!
//! The model counts permits one by one and looks for the most that would pass by trying. It knows no
//! clock that goes back and no lost writes; those are the adversary's.

use sluicegate_kernel::algorithm::WindowKind;
use sluicegate_kernel::lease::{LeaseGrant, Message};
use sluicegate_kernel::limits::LEASE_HOLDERS_MAX;
use sluicegate_kernel::{
    Cost, FixedWindow, LeaseReply, Micros, Rate, Rule, SlidingLog, TokenBucket, Verb,
};

use super::holder::{HolderLease, Wish};
use super::key::Key;
use super::random::Random;

/// Histories of a run, and steps of each. `SLUICEGATE_WALKS=50` takes fifty times as many.
const HISTORIES: u64 = 10_000;
const STEPS: usize = 100;

const START_US: u64 = 1_000_000_000;

#[test]
fn every_step_equals_that_of_a_model_which_knows_every_permit() {
    let more = std::env::var("SLUICEGATE_WALKS").ok().map(|times| times.parse::<u64>().unwrap());
    for number in 0..HISTORIES * more.unwrap_or(1) {
        let kinds = Kind::all();
        let kind = kinds[usize::try_from(number).unwrap() % kinds.len()];
        let mut pair = Pair::new(kind, number);
        for step in 0..STEPS {
            pair.step(&format!("history {number}, step {step}, {kind:?}"));
        }
    }
}

/// The kinds of rules that the model knows.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Permits come back at `permits` every `period_us`.
    Bucket { limit: u64, permits: u64, period_us: u64 },
    /// A permit comes back this long after it was taken.
    Log { limit: u64, window_us: u64 },
    /// Permits come back at multiples of this span.
    Window { limit: u64, window_us: u64 },
}

impl Kind {
    fn all() -> [Self; 4] {
        [
            Self::Bucket { limit: 60, permits: 40, period_us: 1_000_000 },
            Self::Bucket { limit: 9, permits: 7, period_us: 3_000_000 },
            Self::Log { limit: 50, window_us: 10_000_000 },
            Self::Window { limit: 40, window_us: 1_000_000 },
        ]
    }

    fn limit(self) -> u64 {
        match self {
            Self::Bucket { limit, .. } | Self::Log { limit, .. } | Self::Window { limit, .. } => {
                limit
            }
        }
    }

    fn rule(self) -> Rule {
        match self {
            Self::Bucket { limit, permits, period_us } => {
                let rate = Rate::new(permits, Micros::new(period_us)).unwrap();
                TokenBucket::new(rate, limit).unwrap().into()
            }
            Self::Log { limit, window_us } => {
                SlidingLog::new(limit, Micros::new(window_us)).unwrap().into()
            }
            Self::Window { limit, window_us } => {
                let kind = WindowKind::Epoch(Micros::new(window_us));
                FixedWindow::new(limit, kind).unwrap().into()
            }
        }
    }
}

/// The place of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Permit {
    /// With a holder that reported it.
    Kept(u64),
    /// With a holder, if the answer arrived.
    Granted(u64),
    /// Spent, and counted from this instant on.
    Charged(u64),
}

struct NaiveRecord {
    id: u64,
    number: u32,
    deadline_us: u64,
}

struct Naive {
    kind: Kind,
    permits: Vec<Permit>,
    records: Vec<NaiveRecord>,
    /// The latest instant that charges have seen: nothing is charged before it.
    seen_us: u64,
}

/// The model's answer to a message: kept, granted, deadline.
type Answer = Option<(u64, u64, u64)>;

impl Naive {
    /// Returns whether `more` permits would pass at `now_us` if none were held.
    fn lets_pass(&self, more: u64, now_us: u64) -> bool {
        let charged = self.permits.iter().filter_map(|permit| match permit {
            Permit::Charged(at_us) => Some(*at_us),
            _ => None,
        });
        match self.kind {
            Kind::Bucket { limit, permits, period_us } => {
                let (mut level, mut last_us) = (0, 0);
                for at_us in charged.chain([now_us]) {
                    level = u64::saturating_sub(level, (at_us - last_us) * permits) + period_us;
                    last_us = at_us;
                }
                level - period_us + more * period_us <= limit * period_us
            }
            Kind::Log { limit, window_us } => {
                charged.filter(|at_us| at_us + window_us > now_us).count() as u64 + more <= limit
            }
            Kind::Window { limit, window_us } => {
                let running = |at_us: &u64| at_us / window_us == now_us / window_us;
                charged.filter(running).count() as u64 + more <= limit
            }
        }
    }

    fn held(&self) -> u64 {
        self.permits.iter().filter(|permit| !matches!(permit, Permit::Charged(_))).count() as u64
    }

    fn free(&self, now_us: u64) -> u64 {
        let held = self.held();
        (0..).find(|more| !self.lets_pass(held + more + 1, now_us)).unwrap()
    }

    fn count(&self, of: Permit) -> u64 {
        self.permits.iter().filter(|permit| **permit == of).count() as u64
    }

    /// Makes `count` of the permits `from` permits `to`, or none at all.
    fn change(&mut self, from: Permit, to: Option<Permit>, count: u64) {
        for _ in 0..count {
            let place = self.permits.iter().position(|permit| *permit == from).unwrap();
            let _ = self.permits.remove(place);
            self.permits.extend(to);
        }
    }

    fn charge(&mut self, from: Permit, count: u64, by_us: u64) {
        let at_us = by_us.max(self.seen_us);
        self.change(from, Some(Permit::Charged(at_us)), count);
        if count > 0 {
            self.see(at_us);
        }
    }

    fn see(&mut self, at_us: u64) {
        self.seen_us = match self.kind {
            Kind::Window { window_us, .. } => at_us - at_us % window_us,
            _ => at_us,
        };
    }

    /// Charges what is past its deadline, and what `id` spent, oldest first.
    fn charge_spent(&mut self, id: u64, spent: &[(u64, u64)], now_us: u64) {
        let mut all: Vec<_> = spent.iter().map(|(by_us, count)| (*by_us, id, *count)).collect();
        for record in self.records.extract_if(.., |record| record.deadline_us <= now_us) {
            all.push((record.deadline_us, record.id, u64::MAX));
        }
        all.sort_by_key(|spent| spent.0);
        for (by_us, id, count) in all {
            let granted =
                self.count(Permit::Granted(id)).min(if count == u64::MAX { count } else { 0 });
            let kept = self.count(Permit::Kept(id)).min(count);
            self.charge(Permit::Kept(id), kept, by_us);
            self.charge(Permit::Granted(id), granted, by_us);
        }
    }

    fn check(&mut self, cost: u64, now_us: u64) -> bool {
        self.charge_spent(0, &[], now_us);
        let passes = self.lets_pass(self.held() + cost, now_us);
        if passes {
            self.permits.extend((0..cost).map(|_| Permit::Charged(now_us)));
            self.see(now_us);
        }
        passes
    }

    fn reset(&mut self, now_us: u64) {
        self.charge_spent(0, &[], now_us);
        self.permits.retain(|permit| !matches!(permit, Permit::Charged(_)));
        self.seen_us = 0;
    }

    fn message(&mut self, message: &Message, now_us: u64) -> Answer {
        let id = message.holder.0;
        let known = self.records.iter().position(|it| it.id == id && it.deadline_us > now_us);
        let mut deadline_us = 0;
        if let Some(place) = known {
            let NaiveRecord { number, deadline_us: until_us, .. } = self.records[place];
            if message.number.0 < number {
                return None;
            }
            if message.number.0 == number {
                self.charge_spent(0, &[], now_us);
                let (kept, granted) = (Permit::Kept(id), Permit::Granted(id));
                return Some((self.count(kept), self.count(granted), until_us));
            }
            let granted = self.count(Permit::Granted(id));
            let heard = message.heard.0 == number;
            self.change(Permit::Granted(id), heard.then_some(Permit::Kept(id)), granted);
            if message.heard.0 <= number {
                deadline_us = until_us;
            } else {
                self.change(Permit::Kept(id), None, self.count(Permit::Kept(id)));
                self.records.remove(place);
            }
        }
        let base = if deadline_us > 0 { self.count(Permit::Kept(id)) } else { 0 };
        let is_void = u64::from(message.unspent) > base;
        let (unspent, keep) =
            if is_void { (0, 0) } else { (message.unspent.into(), message.keep.into()) };
        self.charge_spent(id, &spent(message, base - unspent, now_us), now_us);
        self.change(Permit::Kept(id), None, if base > 0 { unspent - keep } else { 0 });
        // A message brings counters to now. A log has seen no more than its newest entry.
        let is_charged = self.permits.iter().any(|permit| matches!(permit, Permit::Charged(_)));
        if is_charged && !matches!(self.kind, Kind::Log { .. }) {
            self.see(now_us);
        }
        self.grant(message, keep, deadline_us, now_us)
    }

    fn grant(&mut self, message: &Message, keep: u64, deadline_us: u64, now_us: u64) -> Answer {
        let id = message.holder.0;
        let (free, held, half) = (self.free(now_us), self.held(), self.kind.limit() / 2);
        let holds = |id| self.count(Permit::Kept(id)) + self.count(Permit::Granted(id)) > 0;
        let others = self.records.iter().filter(|other| other.id != id && holds(other.id)).count();
        let sharers = i128::try_from(others + 1).unwrap();
        let needed = match (u64::from(message.need), u64::from(message.least)) {
            (need, _) if free >= need => need,
            (_, least) if free >= least => free,
            _ => 0,
        };
        let [needed, keep, free, held, half] = [needed, keep, free, held, half].map(i128::from);
        let divisor = if matches!(self.kind, Kind::Bucket { .. }) { 2 } else { sharers };
        let most = [
            message.want.into(),
            (free - needed) / divisor,
            i128::from(message.share) - keep - needed,
            half - held - needed,
            half / sharers - keep - needed,
        ];
        let granted = needed + most.into_iter().min().unwrap().max(0);
        let granted = u64::try_from(granted).unwrap();
        self.permits.extend((0..granted).map(|_| Permit::Granted(id)));
        let (term, patience) = (u64::from(message.term_us), u64::from(message.patience_us));
        let deadline_us = deadline_us.max(now_us + term + term / 16 + patience);
        self.records.retain(|record| record.id != id);
        self.records.push(NaiveRecord { id, number: message.number.0, deadline_us });
        Some((u64::try_from(keep).unwrap(), granted, deadline_us))
    }
}

/// The times at which `count` permits were spent: by the marks, and the rest now.
fn spent(message: &Message, count: u64, now_us: u64) -> Vec<(u64, u64)> {
    let mut left = count;
    let mut spent = Vec::new();
    for mark in message.marks.as_slice() {
        let some = left.min(mark.spent.into());
        left -= some;
        spent.push((now_us - u64::from(mark.age_us) * 15 / 16, some));
    }
    spent.push((now_us, left));
    spent
}

/// The kernel and the model, with the holders that send to both.
struct Pair {
    key: Key,
    naive: Naive,
    nodes: Vec<HolderLease>,
    holders: u64,
    late: Vec<Message>,
    random: Random,
    now_us: u64,
}

impl Pair {
    fn new(kind: Kind, number: u64) -> Self {
        let naive = Naive { kind, permits: Vec::new(), records: Vec::new(), seen_us: 0 };
        let nodes = (1..=3).map(HolderLease::new).collect();
        let (key, random) = (Key::new(kind.rule()), Random::new(number));
        Self { key, naive, nodes, holders: 3, late: Vec::new(), random, now_us: START_US }
    }

    fn step(&mut self, about: &str) {
        let (limit, now_us) = (self.naive.kind.limit(), self.now_us);
        let node = self.random.index(self.nodes.len());
        match self.random.below(100) {
            0..25 => {
                let spans = [1, 10_000, 100_000, 400_000, 1_100_000, 3_000_000];
                self.now_us += self.random.pick(&spans);
            }
            25..55 => {
                let wish = self.wish();
                let message = self.nodes[node].ask(&wish, now_us);
                let reply =
                    if self.random.chance(85) { self.compare(&message, about) } else { None };
                if let Some(reply) = reply.filter(|_| self.random.chance(85)) {
                    self.nodes[node].hear(&reply, now_us);
                }
                if self.random.chance(20) {
                    self.late.push(message);
                }
            }
            55..65 if !self.late.is_empty() => {
                let place = self.random.index(self.late.len());
                let message = self.late.swap_remove(place);
                let _ = self.compare(&message, about);
            }
            65..80 => {
                let cost = u32::try_from(1 + self.random.below(limit)).unwrap();
                let cost = cost.min(self.nodes[node].left);
                self.nodes[node].take(cost, now_us);
            }
            80..85 => self.nodes[node].mark(now_us),
            85..95 => {
                let cost = 1 + self.random.below(limit / 2);
                let decision = self.key.check(cost, now_us);
                assert_eq!(decision.allowed(), self.naive.check(cost, now_us), "{about}");
                assert_eq!(decision.remaining, self.naive.free(now_us), "{about}");
            }
            95 => {
                let limit = Cost::new(limit).unwrap();
                let decision = self.key.decide(&Verb::AtMost { cost: limit }, now_us);
                self.naive.charge_spent(0, &[], now_us);
                let free = self.naive.free(now_us);
                assert_eq!(decision.granted(), free, "{about}");
                assert!(free == 0 || self.naive.check(free, now_us), "{about}");
            }
            96 => {
                self.key.decide(&Verb::Reset, now_us);
                self.naive.reset(now_us);
            }
            97..99 => {
                self.holders += 1;
                self.nodes[node] = HolderLease::new(self.holders);
            }
            _ => {}
        }
        assert_eq!(self.key.held(), self.naive.held(), "{about}");
    }

    fn wish(&mut self) -> Wish {
        let limit = self.naive.kind.limit();
        let mut up_to = |most: u64| u32::try_from(self.random.below(most + 1)).unwrap();
        let [back, need, want, share] = [limit / 4, limit / 2, limit, limit].map(&mut up_to);
        let least = up_to(need.into());
        let term_us = self.random.pick(&[100_000, 500_000, 1_000_000, 2_000_000]);
        let need = if self.random.chance(30) { need } else { 0 };
        Wish { back, need, least, want, share, term_us }
    }

    /// The kernel's answer to `message`, which must be the model's.
    fn compare(&mut self, message: &Message, about: &str) -> Option<LeaseReply> {
        assert!(self.naive.records.len() < LEASE_HOLDERS_MAX);
        let reply = self.key.word(message, self.now_us);
        let model = self.naive.message(message, self.now_us);
        let (LeaseReply::Granted(grant), Some((kept, granted, deadline_us))) = (reply, model)
        else {
            assert_eq!((reply, model), (LeaseReply::Superseded, None), "{about}");
            return None;
        };
        let LeaseGrant { free, holders, .. } = grant;
        let answer = (grant.kept.into(), grant.granted.into(), grant.ends.get());
        assert_eq!(answer, (kept, granted, deadline_us), "{about}");
        let held =
            |id| self.naive.count(Permit::Kept(id)) + self.naive.count(Permit::Granted(id)) > 0;
        let with_permits = self.naive.records.iter().filter(|record| held(record.id)).count();
        assert_eq!((free, holders), (self.naive.free(self.now_us), with_permits), "{about}");
        Some(reply)
    }
}
