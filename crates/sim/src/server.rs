//! The store: the scripts of Redis (`spec/redis.md`) by the kernel, and faults of the store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sluicegate::internals::kernel::{Moment, Outcome, Retry, RuleSet, Verdict};
use sluicegate::internals::store::lease::{Found, Holder, LeaseReply, Leased, Message, Record};
use sluicegate::internals::store::{Charge, Debt, Permits, RuleOrigin, StoreAnswer};
use sluicegate::{Decision, Micros, Rule, Verb};

use crate::clock::BEGIN;
use crate::plan::{MS, SECOND};
use crate::promises::Invariant;
use crate::scripts::ScriptStore;
use crate::wire::{Reply, Said, StoreAsk};

/// The longest time for which a write can be lost, µs: an older one has reached every replica.
const LOST_MAX_US: u64 = 2 * SECOND;

/// Holders of one key at most (`HoldersAreBounded`).
const HOLDERS_MAX: usize = 64;

/// More than any limit.
const ALL: u64 = 1 << 32;

/// A policy and a key.
type Name = (String, Vec<u8>);

/// A message of a holder at the store.
struct Delivery<'a> {
    ask: &'a StoreAsk,
    message: &'a Message,
    name: Name,
    /// The key as it was stored before, and as the message finds it.
    before: Option<Stored>,
    stored: Stored,
    notes: Vec<Note>,
}

/// The store that all nodes share.
#[derive(Debug, Default)]
pub(crate) struct StoreServer {
    /// The lead of its clock over true time, µs.
    ahead_us: i64,
    keys: BTreeMap<Name, Stored>,
    /// Debts that were charged, by id: the permits of each rule, and the number of rules.
    charged: BTreeMap<u128, (Permits, usize)>,
    /// The writes of the last two seconds.
    writes: VecDeque<Write>,
    /// The store by the scripts of Redis, if they execute each call too.
    scripts: Option<ScriptStore>,
}

/// The stored value of a key.
#[derive(Clone, Debug)]
struct Stored {
    rules: Arc<RuleSet>,
    /// Since when these rules are in force, ms; `None`: a caller brought them.
    since_ms: Option<u64>,
    leased: Leased,
    /// The time at which it was written.
    at: Micros,
}

/// A write that can be lost.
#[derive(Debug)]
struct Write {
    at: u64,
    name: Name,
    before: Option<Stored>,
    debt: Option<u128>,
    /// Permits of each rule that it charged.
    took: Permits,
}

/// A fact about an execution, for the record.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// These rules took over while this many permits were held.
    Converted(Arc<RuleSet>, u64),
    /// Permits of each rule that were given back.
    Refunded(Vec<u64>),
    /// The usage was reset.
    Reset,
    /// A holder reported what the store had forgotten.
    Repaired,
    /// Permits that a holder gave back.
    Returned(u64),
    /// Permits that a holder was charged, by the first rule.
    Spent(u64),
    /// Permits of each rule that were charged of the debt with this id.
    Charged(u128, Permits),
}

/// An execution.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) reply: Reply,
    pub(crate) notes: Vec<Note>,
    /// The invariant that the execution breaks, and a description.
    pub(crate) broken: Option<(Invariant, String)>,
}

/// The usage that the store forgot of a key.
#[derive(Debug)]
pub(crate) struct Forgotten {
    pub(crate) name: Vec<u8>,
    /// Permits in use, of each rule.
    pub(crate) permits: Permits,
    /// Permits held by leases, and those of them (`alive`) that had not lapsed.
    pub(crate) held: u64,
    pub(crate) alive: u64,
    /// The rules that decide again, if a write is lost that took the key over to others.
    pub(crate) back_to: Option<Arc<RuleSet>>,
}

impl StoreServer {
    /// Returns an empty store; `with_scripts`: the scripts execute each call too.
    pub(crate) fn new(with_scripts: bool) -> Self {
        let scripts = with_scripts.then(|| ScriptStore::new(LOST_MAX_US));
        Self { scripts, ..Self::default() }
    }

    /// Returns its clock at `now`, true time in µs.
    pub(crate) fn clock(&self, now: u64) -> Micros {
        Micros::new((BEGIN + now).saturating_add_signed(self.ahead_us))
    }

    pub(crate) fn step_clock(&mut self, by_us: i64) {
        self.ahead_us += by_us;
    }

    /// Executes `ask` at `now`.
    pub(crate) fn execute(&mut self, ask: &StoreAsk, now: u64) -> Execution {
        let mut execution = self.decide(ask, now);
        let clock = self.clock(now);
        if let Some(scripts) = &mut self.scripts {
            let reply = scripts.execute(ask, clock, now);
            let differs = (reply != execution.reply).then(|| {
                (
                    Invariant::ScriptsEqualKernel,
                    format!("the scripts say {reply:?}, and the kernel {:?}", execution.reply),
                )
            });
            execution.broken = execution.broken.or(differs);
        }
        execution
    }

    /// Executes `ask` by the kernel.
    fn decide(&mut self, ask: &StoreAsk, now: u64) -> Execution {
        let at = Moment::new(self.clock(now));
        let name = (ask.policy.clone(), ask.key.clone());
        self.expire(&name, &at);
        let before = self.stored(&name, &at);
        let mut notes = Vec::new();
        let mut stored = in_force(before.as_ref(), ask, &at);
        if before.as_ref().is_none_or(|before| *before.rules != *stored.rules) {
            notes.push(Note::Converted(Arc::clone(&stored.rules), stored.leased.leases.held()));
        }
        let first = stored.usage(&at);
        let late = lapses_late(&stored, &at);
        stored.at = at.now();
        if let Some(message) = &ask.message {
            let delivery = Delivery { ask, message, name, before, stored, notes };
            let heard = self.hear(delivery, now);
            return Execution { broken: heard.broken.or(late), ..heard };
        }
        // A debt that was charged before is not charged again.
        let is_owed = ask.debt.is_some_and(|debt| !self.charged.contains_key(&debt.id));
        let (paid, debt) = match &ask.debt {
            Some(debt) => self.charge(debt, &ask.rules, &mut stored, &at),
            None => (Permits::default(), None),
        };
        if let (Some(id), Some(Debt { charge: Charge::Added, .. })) = (debt, &ask.debt) {
            notes.push(Note::Charged(id, paid));
        }
        let (usage, in_use) = (stored.usage(&at), in_use_with_lapsed(&stored, &at));
        let rules = Arc::clone(&stored.rules);
        let verdict = match rules.decide_beside(&mut stored.leased, &ask.verb, &at) {
            Ok(verdict) => verdict,
            Err(unsupported) => {
                return Execution { reply: Err(unsupported.into()), notes, broken: None };
            }
        };
        let after = stored.usage(&at);
        let is_look = matches!(ask.verb, Verb::Peek { .. });
        let broken = late
            .or_else(|| check(&ask.verb, &verdict.decision, &usage, &after))
            .or_else(|| within(&rules, &first, &after))
            .or_else(|| retry_is_honest(&stored, ask, &verdict.decision, at.now()))
            .or_else(|| gives_back(&ask.verb, &stored, in_use, &at));
        match ask.verb {
            Verb::Refund { .. } => {
                let back = usage.0.iter().zip(&after.0);
                let back = back.map(|(before, after)| before.saturating_sub(*after)).collect();
                notes.push(Note::Refunded(back));
            }
            Verb::Reset => notes.push(Note::Reset),
            _ => {}
        }
        let answer = named_as(answer_of(verdict, &stored, &ask.verb, &at), &rules, &ask.rules);
        // What is not held is neither released nor renewed, and nothing is written.
        let is_void = before.is_none()
            && !verdict.decision.allowed()
            && matches!(ask.verb, Verb::Release { .. } | Verb::Renew { .. });
        if is_void {
            notes.clear();
        } else if !is_look || is_owed {
            let took = after.since(&first);
            self.remember(Write { at: now, name: name.clone(), before, debt, took });
            self.keys.insert(name, stored);
        } else {
            // A peek takes over the rules for its answer alone.
            notes.clear();
        }
        Execution { reply: Ok(Said::Decided(answer, paid)), notes, broken }
    }

    /// Returns the stored value of a key, unless it says no more than no value.
    fn stored(&self, name: &Name, at: &Moment<'_>) -> Option<Stored> {
        let stored = self.keys.get(name)?;
        (!stored.is_forgettable(at) || self.lingers(name, stored, at)).then(|| stored.clone())
    }

    /// Removes a value that has expired, as Redis does on a read: it does not come back if the clock is set back.
    fn expire(&mut self, name: &Name, at: &Moment<'_>) {
        let has = |scripts: &ScriptStore| scripts.has(&name.0, &name.1, at.now());
        if self.stored(name, at).is_none() && !self.scripts.as_ref().is_some_and(has) {
            self.keys.remove(name);
        }
    }

    /// Returns whether Redis still has a value that says no more than no value, as it counts times to live in whole
    /// milliseconds. Its budgets are full; but its rules decide if they are later than those of the request.
    fn lingers(&self, name: &Name, stored: &Stored, at: &Moment<'_>) -> bool {
        let rounded = Moment::new(Micros::new(at.now().get().saturating_sub(MS)));
        let has = |scripts: &ScriptStore| scripts.has(&name.0, &name.1, at.now());
        !stored.is_forgettable(&rounded) && self.scripts.as_ref().is_some_and(has)
    }

    /// Charges `debt` of a node with rules of its `own`, once. Returns the permits that the node is informed of, and
    /// the id of the debt if it was charged now. Which rule of a later version stands for which is unknown: each is
    /// charged the most, and the least counts.
    fn charge(
        &mut self,
        debt: &Debt,
        own: &RuleSet,
        stored: &mut Stored,
        at: &Moment<'_>,
    ) -> (Permits, Option<u128>) {
        let rules = &stored.rules;
        let is_later = **rules != *own;
        let count = rules.rules().len();
        let least_of = |charged: &[u64]| charged.iter().min().copied().unwrap_or(0);
        let heard = |(charged, of): &(Permits, usize)| {
            let mut charged = *charged;
            // Rules that are not as many as those that were charged.
            if *of != count {
                let least = least_of(&charged[..*of]);
                charged[..count].fill(least);
                charged[count..].fill(0);
            }
            let least = least_of(&charged[..count]);
            if is_later { debt.permits.map(|permits| permits.min(least)) } else { charged }
        };
        if let Some(charged) = self.charged.get(&debt.id) {
            return (heard(charged), None);
        }
        let mut permits = debt.permits;
        if is_later {
            let most = permits.into_iter().max().unwrap_or(0);
            permits = Permits::default();
            permits[..rules.rules().len()].fill(most);
        }
        match debt.charge {
            Charge::Added => rules.debit_beside(&mut stored.leased, &mut permits, at),
            Charge::AtLeast => rules.raise_beside(&mut stored.leased, &mut permits, at),
        }
        // A debt of which no permit was charged is not recorded, and may be charged the next time.
        let is_noted = permits.iter().any(|permits| *permits > 0);
        if is_noted {
            self.charged.insert(debt.id, (permits, count));
        }
        (heard(&(permits, count)), is_noted.then_some(debt.id))
    }

    /// Executes a message of a holder.
    fn hear(&mut self, delivery: Delivery<'_>, now: u64) -> Execution {
        let Delivery { ask, message, name, before, mut stored, mut notes } = delivery;
        let at = Moment::new(self.clock(now));
        let (rules, first) = (Arc::clone(&stored.rules), stored.usage(&at));
        let lapsed = in_use_with_lapsed(&stored, &at)[0];
        // Under rules of a later version the holder keeps its permits, and is granted what its requests wait for.
        let is_later = rules != ask.rules;
        let under_later = Message { want: 0, hint: None, ..*message };
        let message = if is_later { &under_later } else { message };
        let mut reply = rules.lease(&mut stored.leased, message, &at);
        let after = stored.usage(&at);
        let mut broken = None;
        if let LeaseReply::Granted(grant) = &mut reply {
            if grant.found == Found::Lost {
                notes.push(Note::Repaired);
            } else {
                broken = within(&rules, &first, &after);
            }
            let returned = first.since(&after).into_iter().max().unwrap_or(0);
            notes.push(Note::Returned(returned));
            // Requests that wait for the answer are charged at once if a key has no place for another holder; so are
            // the permits that a holder had left when its lease ended, if the store has received nothing about it
            // before.
            if grant.found != Found::Full && !message.ended {
                let used = grant.hint.used[0];
                notes.push(Note::Spent(used.saturating_sub(lapsed)));
            }
            let answer = named_as(grant.verdict.into(), &rules, &ask.rules);
            grant.verdict = answer.verdict;
            if is_later {
                grant.hint.used = Permits::default();
            }
        }
        let records = stored.leased.leases.records.len();
        if records > HOLDERS_MAX {
            broken = Some((Invariant::HoldersAreBounded, format!("{records} holders of one key")));
        }
        if message.holder == Holder::NONE {
            // The message only reads.
            notes.clear();
        } else {
            let took = after.since(&first);
            self.remember(Write { at: now, name: name.clone(), before, debt: None, took });
            self.keys.insert(name, stored);
        }
        Execution { reply: Ok(Said::LeaseReply(reply)), notes, broken }
    }

    /// Returns the permits of a key that are in use by its first rule, or held.
    pub(crate) fn used(&self, key: &[u8], now: u64) -> u64 {
        let at = Moment::new(self.clock(now));
        let stored = self.stored(&("p".to_owned(), key.to_vec()), &at);
        stored.map_or(0, |stored| stored.usage(&at).0[0])
    }

    /// Returns the rules of a key, and its usage under them.
    pub(crate) fn of(&self, key: &[u8], now: u64) -> Option<(Arc<RuleSet>, Leased)> {
        let at = Moment::new(self.clock(now));
        let stored = self.stored(&("p".to_owned(), key.to_vec()), &at)?;
        Some((stored.rules, stored.leased))
    }

    /// Returns the permits of a key that leases hold.
    pub(crate) fn held(&self, key: &[u8], now: u64) -> u64 {
        let at = Moment::new(self.clock(now));
        let stored = self.stored(&("p".to_owned(), key.to_vec()), &at);
        stored.map_or(0, |stored| stored.leased.leases.held())
    }

    /// Returns the permits of a key that leases hold and that have not lapsed.
    pub(crate) fn out(&self, key: &[u8], now: u64) -> u64 {
        let now = self.clock(now);
        let stored = self.keys.get(&("p".to_owned(), key.to_vec()));
        stored.map_or(0, |stored| stored.alive(now))
    }

    /// Returns the permits of a key that `holder` holds.
    pub(crate) fn held_by(&self, key: &[u8], holder: Holder, now: u64) -> u64 {
        let now = self.clock(now);
        let records = |stored: &Stored| {
            let mut records = stored.leased.leases.records.iter();
            let record = records.find(|it| it.holder == holder && it.deadline > now)?;
            Some(record.permits())
        };
        self.keys.get(&("p".to_owned(), key.to_vec())).and_then(records).unwrap_or(0)
    }

    /// Returns whether a key without requests is forgotten `span_us` after `now`: its usage has flowed out, also after
    /// a limit was lowered, and hints are no longer believed.
    pub(crate) fn is_gone_in(&self, key: &[u8], span_us: u64, now: u64) -> bool {
        let at = Moment::new(self.clock(now + span_us));
        self.stored(&("p".to_owned(), key.to_vec()), &at).is_none()
    }

    /// Returns whether a check of `cost` would be refused at `now`; `None` if that is unknown here.
    pub(crate) fn refuses(&self, key: &[u8], cost: sluicegate::Cost, now: u64) -> Option<bool> {
        let stored = self.keys.get(&("p".to_owned(), key.to_vec()))?;
        let at = Moment::new(self.clock(now));
        let look = Verb::Peek { cost };
        let verdict = stored.rules.decide_beside(&mut stored.leased.clone(), &look, &at).ok()?;
        Some(!verdict.decision.allowed())
    }

    /// Forgets `key`, or all keys.
    pub(crate) fn forget(&mut self, key: Option<&[u8]>, now: u64) -> Vec<Forgotten> {
        let at = Moment::new(self.clock(now));
        if let Some(scripts) = &mut self.scripts {
            scripts.forget(key);
        }
        let mut forgotten = Vec::new();
        self.keys.retain(|name, stored| {
            let goes = name.0 == "p" && key.is_none_or(|key| key == name.1) || key.is_none();
            if goes && name.0 == "p" {
                let (permits, held) = (stored.usage(&at).0, stored.leased.leases.held());
                let alive = stored.alive(at.now());
                forgotten.push(Forgotten {
                    name: name.1.clone(),
                    permits,
                    held,
                    alive,
                    back_to: None,
                });
            }
            !goes
        });
        if key.is_none() {
            self.charged.clear();
        }
        self.writes.clear();
        forgotten
    }

    /// Makes a replica take over that lacks the writes of the last `lost_us`. Returns the old store, and what is
    /// forgotten.
    pub(crate) fn fail_over(&mut self, lost_us: u64, now: u64) -> (Self, Vec<Forgotten>) {
        let Self { ahead_us, keys, charged, .. } = self;
        let (keys, charged) = (keys.clone(), charged.clone());
        let old = Self { ahead_us: *ahead_us, keys, charged, ..Self::default() };
        (old, self.lose(lost_us, now))
    }

    /// Loses the writes of the last `lost_us`.
    pub(crate) fn lose(&mut self, lost_us: u64, now: u64) -> Vec<Forgotten> {
        let clock = self.clock(now);
        if let Some(scripts) = &mut self.scripts {
            scripts.lose(lost_us, clock, now);
        }
        let mut forgotten = Vec::new();
        while let Some(write) = self.writes.pop_back() {
            if write.at + lost_us < now {
                self.writes.push_back(write);
                break;
            }
            let Write { at: _, name, before, debt, took } = write;
            if name.0 == "p" {
                let stored = self.keys.get(&name);
                // Its usage comes back in the units of earlier rules, as if they had been in force all the time.
                let rules = before.as_ref().zip(stored);
                let is_converted = rules.is_some_and(|(old, new)| old.rules != new.rules);
                let took = if is_converted { took.map(|_| ALL) } else { took };
                let old = rules.filter(|_| is_converted);
                let back_to = old.map(|(old, _)| Arc::clone(&old.rules));
                // Permits that were held before may have been spent since, and come back as if they were not.
                let held = |stored: &Stored| stored.leased.leases.held();
                let held = stored.map_or(0, held).max(before.as_ref().map_or(0, held));
                let alive = stored.map_or(0, |stored| stored.alive(self.clock(now)));
                forgotten.push(Forgotten {
                    name: name.1.clone(),
                    permits: took,
                    held,
                    alive,
                    back_to,
                });
            }
            if let Some(id) = debt {
                self.charged.remove(&id);
            }
            match before.filter(|before| !before.is_forgettable(&Moment::new(clock))) {
                Some(before) => self.keys.insert(name, before),
                None => self.keys.remove(&name),
            };
        }
        forgotten
    }

    fn remember(&mut self, write: Write) {
        let now = write.at;
        self.writes.push_back(write);
        while self.writes.front().is_some_and(|oldest| oldest.at + LOST_MAX_US < now) {
            self.writes.pop_front();
        }
    }
}

/// Permits of each rule that are in use or held.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Usage(Permits);

impl Usage {
    fn since(&self, before: &Self) -> Permits {
        let mut since = self.0;
        since.iter_mut().zip(before.0).for_each(|(now, then)| *now = now.saturating_sub(then));
        since
    }
}

impl Stored {
    /// Returns whether it says no more than no value.
    fn is_forgettable(&self, at: &Moment<'_>) -> bool {
        let until = self.rules.leased_forgettable_at(&self.leased, at);
        until.is_some_and(|until| until <= at.now())
    }

    /// Returns the permits that leases hold and that have not lapsed.
    fn alive(&self, now: Micros) -> u64 {
        let records = self.leased.leases.records.iter();
        records.filter(|it| it.deadline > now).map(Record::permits).sum()
    }

    fn usage(&self, at: &Moment<'_>) -> Usage {
        let mut permits = self.rules.in_use(&self.leased.states, at);
        for (permits, named) in permits.iter_mut().zip(self.rules.rules()) {
            let held = self.leased.leases.held();
            *permits += if named.rule.counts_leased() { held } else { 0 };
        }
        Usage(permits)
    }
}

/// Returns the permits in use by each rule when leases that lapsed by `at` are charged, and nothing else.
fn in_use_with_lapsed(stored: &Stored, at: &Moment<'_>) -> Permits {
    stored.rules.in_use(&settled(stored, at).leased.states, at)
}

/// Returns `stored` after leases that lapsed by `at` are charged.
fn settled(stored: &Stored, at: &Moment<'_>) -> Stored {
    let mut settled = stored.clone();
    stored.rules.debit_beside(&mut settled.leased, &mut Permits::default(), at);
    settled
}

/// `RefundFrees`: refunded permits are no longer in use, as far as they still were. Guava's two algorithms count booked
/// permits as in use, and a sliding counter gives back to the present window alone.
fn gives_back(
    verb: &Verb,
    Stored { rules, leased, .. }: &Stored,
    before: Permits,
    at: &Moment<'_>,
) -> Option<(Invariant, String)> {
    let Verb::Refund { cost } = verb else { return None };
    let after = rules.in_use(&leased.states, at);
    let each = rules.rules().iter().zip(before.into_iter().zip(after));
    let exact = each.filter(|(named, _)| {
        matches!(
            named.rule,
            Rule::TokenBucket(_)
                | Rule::LeakyBucket(_)
                | Rule::FixedWindow(_)
                | Rule::SlidingWindow(_)
                | Rule::SlidingLog(_)
                | Rule::Concurrency(_)
        )
    });
    exact
        .filter_map(|(named, (before, after))| {
            let due = cost.get().min(before);
            let back = before.saturating_sub(after);
            (back < due).then(|| {
                (
                    Invariant::RefundFrees,
                    format!(
                        "a refund of {} gives {back} back to {named:?}, of {before} in use",
                        cost.get()
                    ),
                )
            })
        })
        .next()
}

/// `LapsedIsUsedByDeadline`: lapsed permits count as used by their deadline, and flow out from then on. Checks the only
/// bucket of a key that was written before.
fn lapses_late(stored: &Stored, at: &Moment<'_>) -> Option<(Invariant, String)> {
    let Stored { rules, leased, at: written_at, .. } = stored;
    let [named] = rules.rules() else { return None };
    let Rule::TokenBucket(bucket) = &named.rule else { return None };
    let rate = bucket.rate();
    let (now, permits, period_us) = (at.now(), rate.permits(), rate.period().get());
    let mut lapsed: Vec<_> =
        leased.leases.records.iter().filter(|record| record.deadline <= now).collect();
    lapsed.sort_by_key(|record| record.deadline);
    if lapsed.first()?.deadline < *written_at {
        return None;
    }
    let flows = |used: u64, span: Micros| used.saturating_sub(span.get() * permits);
    let (mut used, mut since) =
        (rules.in_use(&leased.states, &Moment::new(*written_at))[0] * period_us, *written_at);
    for record in lapsed {
        used = flows(used, record.deadline.since(since)) + record.permits() * period_us;
        since = record.deadline;
    }
    let most = flows(used, now.since(since)).div_ceil(period_us) + 1;
    let used = in_use_with_lapsed(stored, at)[0];
    (used > most).then(|| {
        (
            Invariant::LapsedIsUsedByDeadline,
            format!("{used} of {named:?} are in use, and {most} may be by what lapsed"),
        )
    })
}

/// Returns the rules that decide about `ask`, and the states under them: the later version of a policy.
fn in_force(before: Option<&Stored>, ask: &StoreAsk, at: &Moment<'_>) -> Stored {
    let since_ms = match ask.origin {
        RuleOrigin::Policy { since } => Some(since.get() / MS),
        RuleOrigin::Caller => None,
    };
    // The clock of a node may be ahead: the store notes no instant to come.
    let noted_ms = since_ms.map(|ms| ms.min(at.now().get() / MS));
    let own = |leased| {
        let (rules, since_ms) = (Arc::clone(&ask.rules), noted_ms);
        Stored { rules, since_ms, leased, at: at.now() }
    };
    let Some(before) = before else { return own(Leased::default()) };
    if *before.rules == *ask.rules {
        return before.clone();
    }
    match (before.since_ms, since_ms) {
        (Some(stored), Some(asked)) if asked < stored => before.clone(),
        _ => {
            let Leased { states, leases } = &before.leased;
            let states = ask.rules.take_over(&before.rules, states, at);
            own(Leased { states, leases: leases.clone() })
        }
    }
}

/// Returns the answer to `verb` of a store that keeps `stored` from now on.
fn answer_of(verdict: Verdict, stored: &Stored, verb: &Verb, at: &Moment<'_>) -> StoreAnswer {
    let mut answer = StoreAnswer::of(verdict, &stored.rules, &stored.leased.states, at);
    if !verb.is_of_permits() {
        answer.called.clear();
    }
    let in_use = settled(stored, at).usage(at);
    for (place, used) in &mut answer.in_use {
        *used = in_use.0[*place];
    }
    answer
}

/// Returns the answer by `rules` with the places of the caller's rules, which are `asked`.
fn named_as(answer: StoreAnswer, rules: &RuleSet, asked: &RuleSet) -> StoreAnswer {
    if rules == asked {
        return answer;
    }
    let place_of = |place: usize| {
        asked.rules().iter().position(|named| named.name == rules.rules()[place].name)
    };
    let StoreAnswer { mut verdict, in_use, called } = answer;
    verdict.rule = place_of(verdict.rule).unwrap_or(0);
    let in_use =
        in_use.into_iter().filter_map(|(place, used)| Some((place_of(place)?, used))).collect();
    StoreAnswer { verdict, in_use, called }
}

/// `LookChangesNothing` and `AnswerIsTrue`: a refusal and a peek change no usage, and no answer promises more than
/// there is.
fn check(
    verb: &Verb,
    decision: &Decision,
    Usage(before): &Usage,
    Usage(after): &Usage,
) -> Option<(Invariant, String)> {
    let is_look = matches!(verb, Verb::Peek { .. });
    // Lapsed permits are charged as of their deadline, and have flowed out in part.
    let grew = before.iter().zip(after).any(|(before, after)| after > before);
    if (is_look || !decision.allowed()) && grew {
        return Some((
            Invariant::LookChangesNothing,
            format!("{} changed usage {before:?} to {after:?}", verb.name()),
        ));
    }
    if decision.remaining > decision.limit {
        return Some((
            Invariant::AnswerIsTrue,
            format!("{} of {} remain", decision.remaining, decision.limit),
        ));
    }
    let asked = match *verb {
        Verb::Check { cost } | Verb::Reserve { cost, .. } | Verb::AtMost { cost } => cost.get(),
        _ => return None,
    };
    let grants = decision.granted();
    let exact = !matches!(verb, Verb::AtMost { .. });
    if grants > asked || exact && decision.allowed() && grants != asked {
        return Some((
            Invariant::AnswerIsTrue,
            format!("{} of {asked} granted {grants}", verb.name()),
        ));
    }
    None
}

/// `StoreWithinLimit`: no more is in use than the limit, unless it was before and did not grow.
fn within(
    rules: &RuleSet,
    Usage(before): &Usage,
    Usage(after): &Usage,
) -> Option<(Invariant, String)> {
    let each = rules.rules().iter().zip(before.iter().zip(after));
    for (named, (before, after)) in each {
        // Guava's two algorithms and reservations book the future.
        let books = matches!(
            named.rule,
            Rule::SmoothBursty(_)
                | Rule::SmoothWarmup(_)
                | Rule::TokenBucket(_)
                | Rule::LeakyBucket(_)
        );
        if !books && *after > named.rule.limit() && after > before {
            return Some((
                Invariant::StoreWithinLimit,
                format!("{} has {after} of {} in use", named.name, named.rule.limit()),
            ));
        }
    }
    None
}

/// `RefusalEndsAtItsRetry`: a refused check passes after the retry of its answer, and not a µs before.
fn retry_is_honest(
    Stored { rules, leased, .. }: &Stored,
    ask: &StoreAsk,
    decision: &Decision,
    clock: Micros,
) -> Option<(Invariant, String)> {
    let (Verb::Check { cost }, Outcome::Deny { retry: Retry::After(retry) }) =
        (&ask.verb, decision.outcome)
    else {
        return None;
    };
    // Leased permits may come back at any time.
    if leased.leases.held() > 0 {
        return None;
    }
    let passes = |instant: Micros| {
        let at = Moment::new(instant);
        let look = Verb::Peek { cost: *cost };
        let verdict = rules.decide_beside(&mut leased.clone(), &look, &at);
        verdict.is_ok_and(|verdict| verdict.decision.allowed())
    };
    let then = clock.plus(retry);
    if !passes(then) {
        return Some((
            Invariant::RefusalEndsAtItsRetry,
            format!("cost {} is refused after its retry of {retry}", cost.get()),
        ));
    }
    let sooner = Micros::new(then.get() - 1);
    if sooner > clock && passes(sooner) && rules.rules().len() == 1 {
        return Some((
            Invariant::RefusalEndsAtItsRetry,
            format!("cost {} passes before its retry of {retry}", cost.get()),
        ));
    }
    None
}
