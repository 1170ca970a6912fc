//! The kernel and the script run the same random histories, and agree bit for bit: on every verdict, and
//! on the state after every step.

use std::env;

use fastrand::Rng;
use sluicegate_conformance::Subject;
use sluicegate_kernel::{
    Called, Concurrency, Micros, Moment, Rule, RuleSet, SlidingLog, States, Unsupported, Verb,
    Verdict,
};
use sluicegate_lua::LuaRedis;
use sluicegate_store::RuleOrigin;
use sluicegate_store::redis::codec::{PreviousRules, ScriptClock, ScriptRequest, state_value};

use crate::redis_script::lua;
use crate::redis_script::random;
use crate::redis_script::subject::{Scripted, blob_of};

/// Steps of each of the four parts; `SLUICEGATE_STEPS` takes as many from a fresh seed.
const STEPS: u64 = 260_000;

/// Steps of one history.
const STEPS_PER_HISTORY: u64 = 50;

/// The time for which the script remembers a budget that does not start full after it is full.
const IDLE_US: u64 = 30 * 86_400 * 1_000_000;

/// The kernel with a store's memory: states are written when they change, and forgotten when they are
/// equal to no state.
struct Model {
    rules: RuleSet,
    written_by: RuleSet,
    origin: RuleOrigin,
    states: States,
    /// The waiting requests that the last decision calls.
    called: Vec<Called>,
}

impl Model {
    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        let taken_over =
            !self.states.is_empty() && blob_of(&self.rules) != blob_of(&self.written_by);
        let mut states = match taken_over {
            true => self.rules.take_over(&self.written_by, &self.states, at),
            false => self.states.clone(),
        };
        let verdict = self.rules.decide(&mut states, verb, at)?;
        self.called = match verb.is_of_permits() {
            true => self.rules.called(&states, at),
            false => Vec::new(),
        };
        if matches!(verb, Verb::Peek { .. }) || (!taken_over && states == self.states) {
            return Ok(verdict);
        }
        let forgettable = self.rules.forgettable_at(&states).is_some_and(|end| end <= at.now());
        self.states = if forgettable { States::default() } else { states };
        self.written_by = self.rules.clone();
        Ok(verdict)
    }

    /// Returns the value that the store should hold.
    fn value(&self) -> Option<Vec<u8>> {
        state_value(&self.written_by, self.origin, &self.states)
    }

    /// Forgets the key like the store, which may do so if that makes no difference.
    fn forgotten(&mut self, now: u64) {
        let full_at = self.written_by.full_at(&self.states).get();
        let idle = self.written_by.forgettable_at(&self.states).is_none();
        assert!(full_at + if idle { IDLE_US } else { 0 } <= now, "forgotten before {full_at}");
        self.states = States::default();
    }
}

/// Returns the time until the verdict expects a change.
fn hint(verdict: &Verdict) -> u64 {
    let decision = &verdict.decision;
    let spans = [decision.retry_after().unwrap_or_default(), decision.wait(), decision.reset_after];
    spans.into_iter().find(|span| *span > Micros::ZERO).map_or(0, Micros::get)
}

fn history(scripted: &mut Scripted<LuaRedis>, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    // Two that differ in limits only, so that windows are kept, and one that differs in all.
    let seed = rng.u64(..);
    let mut pool = [random::alike(seed, &mut rng), random::rules(&mut rng)];
    let first = random::alike(seed, &mut rng);
    let (written_by, origin, states) = (first.clone(), scripted.origin, States::default());
    let mut model = Model { rules: first, written_by, origin, states, called: Vec::new() };
    let on_server = scripted.clock == ScriptClock::Server;
    let mut now = random::start(&mut rng).min(if on_server { 1 << 51 } else { u64::MAX });
    let mut hinted = 0;
    scripted.executor.keys().values.clear();
    scripted.start(&model.rules);
    for step in 0..STEPS_PER_HISTORY {
        if rng.u32(0..12) == 0 {
            let place = rng.usize(0..pool.len());
            std::mem::swap(&mut model.rules, &mut pool[place]);
            scripted.configure(&model.rules);
        }
        now = random::next(&mut rng, now, hinted, !on_server);
        if on_server {
            scripted.executor.keys().now_us = now;
            if scripted.executor.value(&scripted.key).is_none() && !model.states.is_empty() {
                model.forgotten(now);
            }
        }
        let verb = random::verb(&mut rng, &model.rules);
        let windows = random::windows(&model.rules, now);
        let at = Moment::with_windows(Micros::new(now), &windows);
        let before = model.value();
        let expected = model.decide(&verb, &at);
        let got = scripted.decide(&verb, &at);
        let context = || {
            format!(
                "seed {seed}, step {step} at {now}: {verb:?} of {:?}\nbefore {before:?}",
                model.rules
            )
        };
        assert_eq!(got, expected, "{}", context());
        if got.is_ok() {
            assert_eq!(scripted.called, model.called, "{}", context());
        }
        let value = scripted.executor.value(&scripted.key);
        assert_eq!(value, model.value(), "{}", context());
        hinted = expected.map_or(0, |verdict| hint(&verdict));
    }
}

fn histories(part: u64, clock: ScriptClock, origin: RuleOrigin) {
    let (steps, base) = match env::var("SLUICEGATE_STEPS") {
        Ok(steps) => (steps.parse().unwrap(), fastrand::u64(0..1 << 40)),
        Err(_) => (STEPS, 0),
    };
    let mut scripted = Scripted::new(lua::redis(), clock);
    scripted.origin = origin;
    for number in 0..steps / STEPS_PER_HISTORY {
        history(&mut scripted, (part << 60) + base + number);
    }
}

#[test]
fn the_script_is_the_kernel_bit_for_bit_1() {
    histories(1, ScriptClock::Given, RuleOrigin::default());
}

#[test]
fn the_script_is_the_kernel_bit_for_bit_2() {
    histories(2, ScriptClock::Given, RuleOrigin::default());
}

#[test]
fn the_script_is_the_kernel_bit_for_bit_by_limits_that_callers_bring_along() {
    histories(3, ScriptClock::Given, RuleOrigin::Caller);
}

#[test]
fn nothing_is_forgotten_too_early_on_the_servers_clock() {
    histories(4, ScriptClock::Server, RuleOrigin::default());
}

/// Logs and permits are read eight at a time, which the short states of the other histories do not need.
#[test]
fn long_logs_and_lists_of_permits_are_the_kernels_bit_for_bit() {
    let log: Rule = SlidingLog::new(250, Micros::SECOND).unwrap().into();
    let held: Rule = Concurrency::new(250, Micros::SECOND, 40).unwrap().into();
    for seed in 0..120 {
        let mut rng = Rng::with_seed(seed);
        let rules = RuleSet::single("a", if seed % 2 == 0 { log.clone() } else { held.clone() });
        let (origin, states) = (RuleOrigin::default(), States::default());
        let (written_by, called) = (rules.clone(), Vec::new());
        let mut model = Model { rules, written_by, origin, states, called };
        let mut scripted = Scripted::new(lua::redis(), ScriptClock::Given);
        scripted.start(&model.rules);
        let (mut now, mut longest) = (1_800_000_000_000_000, 0);
        for step in 0..800 {
            now = match rng.u32(0..200) {
                0 => now + rng.u64(0..1_500_000),
                1 => now - rng.u64(0..500_000),
                _ => now + rng.u64(0..12_000),
            };
            let verb = random::verb_of_many(&mut rng, &model.rules);
            let at = Moment::new(Micros::new(now));
            let (expected, got) = (model.decide(&verb, &at), scripted.decide(&verb, &at));
            assert_eq!(got, expected, "seed {seed}, step {step} at {now}: {verb:?}");
            let value = scripted.executor.value(&scripted.key);
            assert_eq!(value, model.value(), "seed {seed}, step {step} at {now}: {verb:?}");
            longest = longest.max(value.map_or(0, |value| value.len()));
        }
        assert!(longest > 11 * 60, "{longest} bytes: too short to say anything");
    }
}

#[test]
fn the_same_that_is_asked_in_a_row_is_decided_as_if_asked_one_after_the_other() {
    let (in_a_row, in_turn) = (lua::redis(), lua::redis());
    let key = "sg:{k}".to_owned();
    let mut granted = 0;
    for seed in 0..4_000 {
        let mut rng = Rng::with_seed(seed);
        let rules = random::rules(&mut rng);
        let blob = blob_of(&rules).as_bytes().to_vec();
        in_a_row.keys().values.clear();
        in_turn.keys().values.clear();
        let mut now = random::start(&mut rng).min(1 << 51);
        for _ in 0..6 {
            now = random::next(&mut rng, now, 0, false);
            let verb = random::verb(&mut rng, &rules);
            let windows = random::windows(&rules, now);
            let at = Moment::with_windows(Micros::new(now), &windows);
            let ask = ScriptRequest {
                verb: &verb,
                at: &at,
                clock: ScriptClock::Server,
                before: PreviousRules::Unsaid,
            };
            let args = [blob.clone(), ask.encode(&rules)];
            let times = rng.usize(1..=5);
            in_a_row.keys().now_us = now;
            in_turn.keys().now_us = now;
            let (keys, all) = (vec![key.clone(); times], vec![args.clone(); times].concat());
            let together = in_a_row.eval(&keys, &all).unwrap();
            let each = |_| in_turn.eval(std::slice::from_ref(&key), &args).unwrap().remove(0);
            let alone: Vec<_> = (0..times).map(each).collect();
            assert_eq!(together, alone, "seed {seed}: {verb:?} of {rules:?} at {now}");
            let [row, turn] = [&in_a_row, &in_turn].map(|redis| redis.keys().values.clone());
            assert_eq!(row, turn, "seed {seed}: {verb:?} of {rules:?} at {now}");
            granted += together.iter().filter(|reply| reply[0] == 1).count();
        }
    }
    assert!(granted > 10_000, "only {granted}");
    let [row, turn] = [&in_a_row, &in_turn].map(|redis| redis.keys().writes);
    assert!(row < turn, "{row} writes where each would be written by itself: {turn}");
}
