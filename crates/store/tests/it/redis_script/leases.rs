//! The kernel and the script answer the same messages of holders and the same requests beside them, bit for bit: in
//! random histories of one key, whatever holders report.

use std::{env, thread};

use fastrand::Rng;
use sluicegate_conformance::{LeasingSubject as _, Subject};
use sluicegate_kernel::algorithm::{CalendarUnit, Delay, WindowKind};
use sluicegate_kernel::lease::{Hint, Holder, Mark, Marks, Message, Number};
use sluicegate_kernel::{
    FixedWindow, LeakyBucket, LeaseReply, Leased, Micros, Moment, NamedRule, Rate, Rule, RuleSet,
    SlidingCounter, SlidingLog, SlidingWindow, TokenBucket, Unsupported, Verb, Verdict,
};
use sluicegate_store::redis::codec::ScriptClock;

use crate::redis_script::lua;
use crate::redis_script::random;
use crate::redis_script::server::{RealRedis, Timeless};
use crate::redis_script::subject::{Executor, Scripted, blob_of};

/// Histories of each part in this process, and in a real server; `SLUICEGATE_STEPS` takes as many steps of each from
/// a fresh seed.
const HISTORIES: u64 = 600;
const HISTORIES_IN_REDIS: u64 = 300;

const STEPS_PER_HISTORY: u64 = 60;

/// A window whose count is 2^53 after an edit, peeked while permits are out.
const FULL_BESIDE_LEASES: u64 = 2_305_844_062_995_897_292;

/// The kernel with a store's memory.
struct Model {
    rules: RuleSet,
    written_by: RuleSet,
    leased: Leased,
}

impl Model {
    /// Returns whether the state was written under other rules than the present ones.
    fn is_other(&self) -> bool {
        !self.leased.states.is_empty() && blob_of(&self.rules) != blob_of(&self.written_by)
    }

    /// Returns the state under the present rules.
    fn taken_over(&self, at: &Moment<'_>) -> Leased {
        let Leased { states, leases } = &self.leased;
        let states = match self.is_other() {
            true => self.rules.take_over(&self.written_by, states, at),
            false => states.clone(),
        };
        Leased { states, leases: leases.clone() }
    }

    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        let mut leased = self.taken_over(at);
        let verdict = self.rules.decide_beside(&mut leased, verb, at)?;
        // A decision that changes nothing is not written, and so forgets nothing.
        if !matches!(verb, Verb::Peek { .. }) && (self.is_other() || leased != self.leased) {
            self.keep(leased, at);
        }
        Ok(verdict)
    }

    fn lease(&mut self, message: &Message, at: &Moment<'_>) -> LeaseReply {
        let mut leased = self.taken_over(at);
        let reply = self.rules.lease(&mut leased, message, at);
        if matches!(reply, LeaseReply::Granted(_)) && message.holder != Holder::NONE {
            self.keep(leased, at);
        }
        reply
    }

    fn keep(&mut self, leased: Leased, at: &Moment<'_>) {
        let end = self.rules.leased_forgettable_at(&leased, at);
        let is_over = leased.leases.records.is_empty() && end.is_some_and(|end| end <= at.now());
        self.leased = if is_over { Leased::default() } else { leased };
        self.written_by = self.rules.clone();
    }
}

/// The record of a holder, which is partly wrong.
#[derive(Clone, Default)]
pub(crate) struct Peer {
    number: u32,
    heard: u32,
    stood: u32,
    unspent: u32,
    ends: u64,
    hint: Option<Hint>,
    sent: Vec<Message>,
}

impl Peer {
    /// Returns its next message: mostly the truth.
    pub(crate) fn message(&mut self, rng: &mut Rng, holder: Holder, limit: u64) -> Message {
        let few = |rng: &mut Rng| {
            let most = limit.min(u64::from(u32::MAX));
            u32::try_from(random::number(rng, 0, most)).unwrap()
        };
        self.number += 1;
        let lies = rng.u32(0..12) == 0;
        let spent = rng.u32(0..=self.unspent);
        self.unspent -= spent;
        let marks: Vec<_> = (0..rng.usize(0..=4))
            .map(|_| Mark {
                spent: rng.u32(0..=spent.max(1)),
                age_us: u32::try_from(random::number(rng, 0, 3_000_000)).unwrap(),
            })
            .collect();
        let message = Message {
            holder,
            number: Number(if lies { rng.u32(0..self.number + 2) } else { self.number }),
            heard: Number(if lies { rng.u32(0..self.number + 2) } else { self.heard }),
            stood: if lies { few(rng) } else { self.stood },
            unspent: if lies { few(rng) } else { self.unspent },
            keep: if rng.bool() { self.unspent } else { rng.u32(0..=self.unspent) },
            need: few(rng),
            least: few(rng),
            want: few(rng),
            share: few(rng),
            term_us: u32::try_from(random::number(rng, 0, 3_000_000)).unwrap(),
            patience_us: u32::try_from(random::number(rng, 0, 300_000)).unwrap(),
            ends: Micros::new(self.ends),
            ended: rng.u32(0..6) == 0,
            marks: Marks::new(&marks).unwrap(),
            hint: self.hint.filter(|_| rng.u32(0..4) > 0),
        };
        self.unspent = message.keep;
        self.sent.push(message);
        message
    }

    pub(crate) fn hear(&mut self, reply: &LeaseReply) {
        let LeaseReply::Granted(grant) = reply else { return };
        self.heard = grant.number.0;
        self.stood = grant.kept + grant.granted;
        self.unspent = if grant.kept < self.unspent { 0 } else { self.unspent } + grant.granted;
        (self.ends, self.hint) = (grant.ends.get(), Some(grant.hint));
    }
}

/// Returns a rule that can be leased.
fn leasable(rng: &mut Rng) -> Rule {
    let limit = random::number(rng, 1, 5_000);
    let periods = [1_000, 200_000, 1_000_000, 60_000_000];
    let rate = |rng: &mut Rng| {
        Rate::new(random::number(rng, 1, 3_000), Micros::new(periods[rng.usize(0..4)])).unwrap()
    };
    let window = |rng: &mut Rng| Micros::new([10_000_000, 12_345_678, 60_000_000][rng.usize(0..3)]);
    match rng.u32(0..8) {
        0 => TokenBucket::new(rate(rng), limit).unwrap().into(),
        1 => {
            let initial = rng.u64(0..=limit);
            TokenBucket::new(rate(rng), limit).unwrap().with_initial(initial).unwrap().into()
        }
        2 => TokenBucket::new(rate(rng), limit).unwrap().refilled_by_interval().into(),
        3 => LeakyBucket::new(rate(rng), limit, Delay::None).unwrap().into(),
        4 => {
            let span = [1_000_000, 2_500_000, 10_000_000][rng.usize(0..3)];
            let kind = match rng.u32(0..3) {
                0 => WindowKind::Epoch(Micros::new(span)),
                1 => WindowKind::First(Micros::new(span)),
                _ => WindowKind::Calendar(CalendarUnit::Day, "UTC".into()),
            };
            FixedWindow::new(limit, kind).unwrap().into()
        }
        5 => SlidingWindow::new(limit, window(rng), rng.u64(1..=12)).unwrap().into(),
        6 => SlidingCounter::new(limit, window(rng)).unwrap().into(),
        _ => SlidingLog::new(limit, window(rng)).unwrap().into(),
    }
}

/// Returns one to three rules that can be leased, sometimes any.
pub(crate) fn leasable_rules(rng: &mut Rng) -> RuleSet {
    if rng.u32(0..8) == 0 {
        return random::rules(rng);
    }
    let count = if rng.bool() { 1 } else { rng.usize(2..4) };
    let named = ["a", "b", "c"].into_iter().take(count);
    let named = named.map(|name| NamedRule { name: name.into(), rule: leasable(rng) });
    RuleSet::new(named.collect()).unwrap()
}

/// Returns the next instant: mostly soon, sometimes when leases end, or earlier.
fn next(rng: &mut Rng, now: u64) -> u64 {
    match rng.u32(0..40) {
        0..=9 => now,
        10..=24 => now + random::number(rng, 0, 300_000),
        25..=34 => now + random::number(rng, 0, 3_000_000),
        35 | 36 => now + random::number(rng, 0, 80_000_000),
        37 => now + random::number(rng, 0, 100_000_000_000),
        38 => now.saturating_sub(random::number(rng, 0, 5_000_000)),
        _ => now.saturating_sub(random::number(rng, 0, 80_000_000)),
    }
}

/// Names a history whose step panics before its answers are compared.
struct NamedHistory(u64);

impl Drop for NamedHistory {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("seed {}", self.0);
        }
    }
}

/// Runs one history, and counts in `found` the results that the store found for holders.
fn history(scripted: &mut Scripted<impl Executor>, seed: u64, found: &mut [u64; 5]) {
    let (mut rng, _named) = (Rng::with_seed(seed), NamedHistory(seed));
    let (first, mut other) = (leasable_rules(&mut rng), leasable_rules(&mut rng));
    let mut model = Model { rules: first.clone(), written_by: first, leased: Leased::default() };
    // Sometimes there are enough of them to find no room.
    let many = if rng.u32(0..20) == 0 { 80 } else { 4 };
    let mut peers = vec![Peer::default(); many];
    let mut now = 1_770_000_000_000_000 + rng.u64(0..1 << 40);
    scripted.start(&model.rules);
    let steps = if many > 4 { 6 * STEPS_PER_HISTORY } else { STEPS_PER_HISTORY };
    for step in 0..steps {
        if rng.u32(0..30) == 0 {
            std::mem::swap(&mut model.rules, &mut other);
            scripted.configure(&model.rules);
        }
        // Many meet while none of their leases ends.
        now =
            if many > 4 && rng.u32(0..50) > 0 { now + rng.u64(0..10) } else { next(&mut rng, now) };
        let windows = random::windows(&model.rules, now);
        let at = Moment::with_windows(Micros::new(now), &windows);
        let context = format!("seed {seed}, step {step} at {now}");
        if rng.u32(0..4) == 0 {
            let verb = random::verb(&mut rng, &model.rules);
            let before = model.leased.clone();
            let expected = model.decide(&verb, &at);
            let got = scripted.decide(&verb, &at);
            assert_eq!(got, expected, "{context}: {verb:?} of {:?} at {before:?}", model.rules);
            continue;
        }
        let place = rng.usize(0..peers.len());
        let holder = Holder(place as u64 + 1);
        let peer = &mut peers[place];
        let limit = model.rules.rules().iter().map(|named| named.rule.limit()).min().unwrap();
        let message = match (rng.u32(0..12), peer.sent.is_empty()) {
            (0, _) => {
                Message { holder: Holder::NONE, ..peer.clone().message(&mut rng, holder, limit) }
            }
            // It is repeated, or comes late.
            (1, false) => peer.sent[rng.usize(0..peer.sent.len())],
            _ => peer.message(&mut rng, holder, limit),
        };
        let before = model.leased.clone();
        let expected = model.lease(&message, &at);
        let got = scripted.lease(&message, &at);
        assert_eq!(got, expected, "{context}: {message:?} of {:?} at {before:?}", model.rules);
        if let LeaseReply::Granted(grant) = &expected {
            found[grant.found as usize] += 1;
        }
        if message.holder == holder && rng.u32(0..5) > 0 {
            peer.hear(&expected);
        }
        if rng.u32(0..200) == 0 {
            // Writes are lost.
            scripted.lose();
            model.leased = Leased::default();
        }
    }
}

fn histories(part: u64, executor: impl Executor, few: u64) {
    let (count, base) = match env::var("SLUICEGATE_STEPS") {
        Ok(steps) => (steps.parse::<u64>().unwrap() / STEPS_PER_HISTORY, fastrand::u64(0..1 << 40)),
        Err(_) => (few, 0),
    };
    let mut scripted = Scripted::new(executor, ScriptClock::Given);
    let mut found = [0; 5];
    for number in 0..count {
        history(&mut scripted, (part << 60) + base + number, &mut found);
    }
    println!("{count} histories; known, new, void, lost, full: {found:?}");
    assert!(found.iter().all(|times| *times > 0), "not everything happened: {found:?}");
}

#[test]
fn a_history_in_which_less_than_nothing_is_left() {
    let mut scripted = Scripted::new(lua::redis(), ScriptClock::Given);
    history(&mut scripted, FULL_BESIDE_LEASES, &mut [0; 5]);
}

#[test]
fn the_script_answers_holders_as_the_kernel_does_1() {
    histories(1, lua::redis(), HISTORIES);
}

#[test]
fn the_script_answers_holders_as_the_kernel_does_2() {
    histories(2, lua::redis(), HISTORIES);
}

#[test]
fn the_script_answers_holders_as_the_kernel_does_in_a_real_server() {
    if let Some(server) = RealRedis::start() {
        histories(3, Timeless(server), HISTORIES_IN_REDIS);
    }
}
