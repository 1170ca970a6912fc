//! Decisions of the script on damaged states: any bytes at all get a decision, or a refusal to read them, soon,
//! and never an error of Lua, which a client could not tell from a server that is gone.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fastrand::Rng;
use mlua::debug::Debug;
use mlua::{HookTriggers, Lua};
use sluicegate_conformance::{LeasingSubject as _, Subject as _};
use sluicegate_kernel::lease::{Holder, Message};
use sluicegate_kernel::{
    Cost, LeaseReply, Micros, Moment, RuleSet, SlidingLog, SlidingWindow, Verb,
};
use sluicegate_lua::LuaRedis;
use sluicegate_store::redis::codec::{PreviousRules, ScriptClock, ScriptReply, ScriptRequest};
use sluicegate_store::redis::lease::{LeaseRequest, LeaseScriptReply};

use crate::redis_script::leases::{Peer, leasable_rules};
use crate::redis_script::lua;
use crate::redis_script::protocol::{bucket, check};
use crate::redis_script::random;
use crate::redis_script::subject::{Scripted, blob_of};

/// Keys whose states are damaged; `SLUICEGATE_STEPS` takes as many from a fresh seed.
const KEYS: u64 = 1_000;

/// Ways in which each of them is damaged.
const DAMAGES: u64 = 12;

/// The most instructions of one call: the largest sound states take a tenth of them.
const INSTRUCTIONS_MAX: u32 = 2_000_000;

/// Counts the calls that took too many instructions, and ends them.
fn limited(redis: &LuaRedis) -> Arc<AtomicU32> {
    let endless = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&endless);
    let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_MAX);
    let hook = move |_: &Lua, _: &Debug<'_>| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(mlua::Error::runtime("endless"))
    };
    redis.lua().set_hook(triggers, hook).unwrap();
    endless
}

/// Makes a few decisions, and leases permits of some rules.
fn live(rng: &mut Rng, scripted: &mut Scripted<LuaRedis>, rules: &RuleSet, start: u64) -> u64 {
    let (mut now, mut peers) = (start, [Peer::default(), Peer::default()]);
    for _ in 0..rng.usize(1..12) {
        now = random::next(rng, now, 1_000_000, false);
        scripted.executor.keys().now_us = now;
        let windows = random::windows(rules, now);
        let at = Moment::with_windows(Micros::new(now), &windows);
        if rules.leasing_span().is_ok() && rng.bool() {
            let place = rng.usize(0..peers.len());
            let message = peers[place].message(rng, Holder(place as u64 + 1), 100);
            peers[place].hear(&scripted.lease(&message, &at));
        } else {
            let verb = random::verb(rng, rules);
            if rules.supports(&verb).is_ok() {
                scripted.ask(&verb, &at);
            }
        }
    }
    now
}

/// Returns `value` with some of its bytes changed, mostly of those behind its head.
fn damaged(rng: &mut Rng, value: &[u8], head: usize) -> Vec<u8> {
    let mut value = value.to_vec();
    for _ in 0..rng.usize(1..=2) {
        let from = if rng.u8(0..8) > 0 && head < value.len() { head } else { 0 };
        let place = rng.usize(from..value.len());
        let end = value.len().min(place + 8);
        match rng.u8(0..6) {
            0..=2 => value[place] ^= 1 << rng.u8(0..8),
            3 => value[place] = rng.u8(..),
            4 => value[place..end].fill(0xff),
            _ => value[place..end].fill(0),
        }
    }
    value
}

#[test]
fn a_damaged_state_is_decided_or_refused_and_nothing_fails() {
    let given = env::var("SLUICEGATE_STEPS").ok().and_then(|steps| steps.parse().ok());
    let mut rng = if given.is_some() { Rng::new() } else { Rng::with_seed(11) };
    let (mut refused, mut decided) = (0, 0);
    for _ in 0..given.unwrap_or(KEYS) {
        let seed = rng.u64(..);
        let mut rng = Rng::with_seed(seed);
        let rules = if rng.bool() { random::rules(&mut rng) } else { leasable_rules(&mut rng) };
        let mut scripted = Scripted::new(lua::lenient_redis(), ScriptClock::Server);
        scripted.start(&rules);
        let start = random::start(&mut rng);
        let now = live(&mut rng, &mut scripted, &rules, start);
        let Some(value) = scripted.executor.value(&scripted.key) else { continue };
        let (blob, endless) = (blob_of(&rules), limited(&scripted.executor));
        for _ in 0..DAMAGES {
            let damaged = damaged(&mut rng, &value, blob.head().len());
            let key = scripted.key.clone().into_bytes();
            let said = || format!("seed {seed}: {rules:?}, {value:02x?} became {damaged:02x?}");
            scripted.executor.keys().values.insert(key, (damaged.clone(), u64::MAX));
            for _ in 0..3 {
                let now = random::next(&mut rng, now, 1_000_000, false);
                scripted.executor.keys().now_us = now;
                let windows = random::windows(&rules, now);
                let at = Moment::with_windows(Micros::new(now), &windows);
                let (clock, before) = (ScriptClock::Server, PreviousRules::Unsaid);
                let run = |ask: Vec<u8>| {
                    let args = [blob.as_bytes().to_vec(), ask];
                    let keys = [scripted.key.clone()];
                    let replies = scripted.executor.eval(&keys, &args);
                    assert_eq!(endless.load(Ordering::Relaxed), 0, "{}", said());
                    replies.unwrap_or_else(|error| panic!("{error} of {}", said())).remove(0)
                };
                let is_read = if rules.leasing_span().is_ok() && rng.bool() {
                    let message = Peer::default().message(&mut rng, Holder(1), 100);
                    let ask = LeaseRequest { message: &message, at: &at, clock, before };
                    let reply =
                        LeaseScriptReply::decode(&run(ask.encode(&rules)), &rules, &message);
                    matches!(reply, Ok(LeaseScriptReply::Answer(_)))
                } else {
                    let ordinary = check(1);
                    let any = random::verb(&mut rng, &rules);
                    let verb: &Verb = if rng.bool() { &ordinary } else { &any };
                    let ask = ScriptRequest { verb, at: &at, clock, before };
                    let reply = ScriptReply::decode(&run(ask.encode(&rules)), &rules, verb);
                    matches!(reply, Ok(ScriptReply::Decided(_)))
                };
                *(if is_read { &mut decided } else { &mut refused }) += 1;
            }
        }
    }
    assert!(refused > 100 && decided > 100, "{refused} refused, {decided} decided");
}

/// Changes the state of `rules` after a check and a lease by `damage`, and checks that it is refused until it is
/// reset.
fn is_refused_until_reset(rules: &RuleSet, damage: impl FnOnce(&mut Vec<u8>, usize)) {
    let mut scripted = Scripted::new(lua::lenient_redis(), ScriptClock::Server);
    scripted.start(rules);
    let at = Moment::new(Micros::from_secs(1_800_000_000));
    scripted.executor.keys().now_us = at.now().get();
    scripted.ask(&check(1), &at);
    let first = Peer::default().message(&mut Rng::with_seed(1), Holder(1), 100);
    let word = scripted.lease(&Message { need: 10, least: 10, ..first }, &at);
    assert!(matches!(&word, LeaseReply::Granted(grant) if grant.granted > 0), "{word:?}");
    let mut value = scripted.executor.value(&scripted.key).unwrap();
    damage(&mut value, blob_of(rules).head().len());
    let key = scripted.key.clone().into_bytes();
    scripted.executor.keys().values.insert(key, (value, u64::MAX));
    let endless = limited(&scripted.executor);
    for verb in [check(1), Verb::Peek { cost: Cost::ONE }, check(1)] {
        assert_eq!(scripted.ask(&verb, &at), ScriptReply::Malformed("state".into()));
    }
    assert_eq!(endless.load(Ordering::Relaxed), 0);
    assert!(matches!(scripted.ask(&Verb::Reset, &at), ScriptReply::Decided(_)));
    let ScriptReply::Decided(answer) = scripted.ask(&check(1), &at) else { panic!("it is new") };
    assert_eq!(answer.verdict.decision.remaining, rules.rules()[0].rule.limit() - 1);
}

#[test]
fn a_bucket_from_after_all_time_is_refused_and_not_counted_up_to_for_ever() {
    let window = SlidingWindow::new(100, Micros::from_secs(3_600), 12).unwrap();
    let rules = RuleSet::single("a", window);
    // The seventh byte of the newest bucket's number: 2^53 is added.
    is_refused_until_reset(&rules, |value, head| value[head + 6] ^= 0x20);
}

#[test]
fn leases_that_do_not_add_up_are_refused() {
    let rules = RuleSet::single("a", bucket(1, 100));
    // Behind a level of 14 bytes come a mark, 7 bytes of a version, and 4 of the held permits.
    is_refused_until_reset(&rules, |value, head| {
        assert_eq!(value[head + 14], b'L');
        value[head + 14 + 8 + 2] ^= 0x40;
    });
}

#[test]
fn a_log_with_more_entries_than_permits_is_refused() {
    let rules = RuleSet::single("a", SlidingLog::new(100, Micros::from_secs(3_600)).unwrap());
    // Behind the sum of all costs the number of entries, and these.
    is_refused_until_reset(&rules, |value, head| {
        value[head + 4] += 100;
        value.splice(head + 8..head + 8, [0; 100 * 11]);
    });
}

#[test]
fn an_empty_text_is_no_state() {
    let rules = RuleSet::single("a", bucket(1, 100));
    is_refused_until_reset(&rules, |value, _| value.clear());
}
