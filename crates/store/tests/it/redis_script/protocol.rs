//! Replies of the script to odd input, foreign states, other rules and other clocks, in Lua.

use fastrand::Rng;
use sluicegate_conformance::Subject;
use sluicegate_kernel::{
    Cost, Micros, Moment, NamedRule, Rate, Retry, Rule, RuleSet, SlidingLog, TokenBucket, Verb,
};
use sluicegate_lua::LuaRedis;
use sluicegate_store::redis::codec::{
    ForeignReply, Generation, PreviousRules, RulesBlob, ScriptClock, ScriptReply, ScriptRequest,
    Stamp, state_key,
};
use sluicegate_store::{RuleOrigin, StoreAnswer};

use crate::redis_script::lua;
use crate::redis_script::random;
use crate::redis_script::subject::{Scripted, blob_of};

const NOW_US: u64 = 1_780_000_000_000_000;

pub(crate) fn bucket(permits: u64, burst: u64) -> Rule {
    TokenBucket::new(Rate::per_second(permits).unwrap(), burst).unwrap().into()
}

pub(crate) fn check(cost: u64) -> Verb {
    Verb::Check { cost: Cost::new(cost).unwrap() }
}

pub(crate) fn question(verb: &Verb, rules: &RuleSet, clock: ScriptClock, now: u64) -> Vec<u8> {
    let windows = random::windows(rules, now);
    let at = Moment::with_windows(Micros::new(now), &windows);
    ScriptRequest { verb, at: &at, clock, before: PreviousRules::Unsaid }.encode(rules)
}

/// Returns the script's reply to these bytes; `None` if it fails.
fn eval(redis: &LuaRedis, rules: &[u8], ask: &[u8]) -> Option<Vec<u8>> {
    let replies = redis.eval(&["k".into()], &[rules.to_vec(), ask.to_vec()]).ok()?;
    Some(replies[0].clone())
}

#[test]
fn cut_or_lengthened_input_is_refused_and_changes_nothing() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..200 {
        let rules = random::rules(&mut rng);
        let verb = random::verb(&mut rng, &rules);
        if rules.supports(&verb).is_err() {
            continue;
        }
        let (blob, redis) = (blob_of(&rules), lua::redis());
        let ask = question(&verb, &rules, ScriptClock::Given, NOW_US);
        for length in (0..blob.as_bytes().len()).step_by(3) {
            let reply = eval(&redis, &blob.as_bytes()[..length], &ask);
            assert_eq!(reply.as_deref(), Some(&b"\x04rules"[..]), "{rules:?} cut at {length}");
        }
        for length in 0..ask.len() {
            let reply = eval(&redis, blob.as_bytes(), &ask[..length]);
            assert_eq!(reply.as_deref(), Some(&b"\x04ask"[..]), "{verb:?} cut at {length}");
        }
        let long = [blob.as_bytes(), b"\0"].concat();
        assert_eq!(eval(&redis, &long, &ask).as_deref(), Some(&b"\x04rules"[..]));
        let long = [&ask[..], b"\x07"].concat();
        assert_eq!(eval(&redis, blob.as_bytes(), &long).as_deref(), Some(&b"\x04ask"[..]));
        assert_eq!(redis.keys().writes, 0);
    }
}

#[test]
fn numbers_that_are_none_are_refused_and_change_nothing() {
    let mut rng = Rng::with_seed(2);
    let ask = question(&check(1), &RuleSet::single("a", bucket(1, 1)), ScriptClock::Server, 0);
    for _ in 0..500 {
        let rules = random::rules(&mut rng);
        let [named] = rules.rules() else { continue };
        if named.rule.holds_permits() || named.rule.calendar().is_some() {
            continue;
        }
        let blob = blob_of(&rules).as_bytes().to_vec();
        // A number that only tells rules apart may be anything.
        let used = match named.rule {
            Rule::TokenBucket(_) => 7,
            Rule::LeakyBucket(_) => 8,
            Rule::FixedWindow(_) => 3,
            _ => named.rule.numbers().len(),
        };
        for place in 0..used {
            for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
                let mut blob = blob.clone();
                blob[17 + 8 * place..25 + 8 * place].copy_from_slice(&odd.to_le_bytes());
                let redis = lua::redis();
                redis.keys().now_us = NOW_US;
                let reply = eval(&redis, &blob, &ask);
                let context = || format!("`{odd}` as number {place} of {:?}", named.rule);
                assert_eq!(reply.as_deref(), Some(&b"\x04rules"[..]), "{}", context());
                assert_eq!(redis.keys().writes, 0, "{}", context());
            }
        }
    }
}

#[test]
fn costs_outside_their_range_and_unknown_verbs_are_refused() {
    let rules = RuleSet::single("a", bucket(1, 1));
    let (blob, redis) = (blob_of(&rules), lua::redis());
    for ask in [
        [1, 0, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0x80],
        [1, 0, 255, 255, 255, 255],
        [0, 0, 1, 0, 0, 0],
        [10, 0, 1, 0, 0, 0],
        [1, 3, 1, 0, 0, 0],
    ] {
        let reply = eval(&redis, blob.as_bytes(), &ask);
        assert_eq!(reply.as_deref(), Some(&b"\x04ask"[..]), "{ask:?}");
    }
    let late = [&[1, 1, 1, 0, 0, 0][..], &((1_u64 << 52) + 1).to_le_bytes()[..7]].concat();
    assert_eq!(eval(&redis, blob.as_bytes(), &late).as_deref(), Some(&b"\x04ask"[..]));
    assert_eq!(redis.keys().writes, 0);
}

#[test]
fn a_foreign_state_is_refused_and_stays() {
    let mut rng = Rng::with_seed(3);
    for _ in 0..300 {
        let rules = random::rules(&mut rng);
        let verb = random::verb(&mut rng, &rules);
        if rules.supports(&verb).is_err() || verb == Verb::Reset {
            continue;
        }
        let mut scripted = Scripted::new(lua::redis(), ScriptClock::Given);
        scripted.start(&rules);
        let blob = blob_of(&rules);
        let tail: Vec<_> = (0..rng.usize(0..5)).map(|_| rng.u8(..)).collect();
        let value = [blob.head(), &tail].concat();
        let key = scripted.key.clone().into_bytes();
        scripted.executor.keys().values.insert(key, (value.clone(), u64::MAX));
        let windows = random::windows(&rules, NOW_US);
        let at = Moment::with_windows(Micros::new(NOW_US), &windows);
        let reply = scripted.ask(&verb, &at);
        // Several rules without any usage: such a state is never written, but sound.
        let empty = rules.rules().len() > 1 && tail == [0];
        let holders = rules.rules()[0].rule.holds_permits() && tail == [0; 4];
        assert!(
            reply == ScriptReply::Malformed("state".into()) || empty || holders,
            "{tail:?} {reply:?}"
        );
        if !empty && !holders {
            assert_eq!(scripted.executor.value(&scripted.key), Some(value));
        }
    }
}

#[test]
fn rules_that_nobody_knows_leave_nothing() {
    let (old, new) = (RuleSet::single("a", bucket(1, 100)), RuleSet::single("a", bucket(10, 20)));
    let redis = lua::redis();
    redis.keys().now_us = NOW_US;
    let (verb, at) = (check(1), Moment::new(Micros::ZERO));
    let ask = question(&verb, &old, ScriptClock::Server, 0);
    eval(&redis, blob_of(&old).as_bytes(), &ask).unwrap();
    let before = redis.value("k");

    let blob = blob_of(&new);
    let reply = eval(&redis, blob.as_bytes(), &ask).unwrap();
    let Ok(ScriptReply::Unknown(state)) = ScriptReply::decode(&reply, &new, &verb) else {
        panic!()
    };
    assert_eq!(Stamp::read(&state), blob_of(&old).stamp());
    assert_eq!(redis.value("k"), before, "a question about rules changes nothing");

    let lost = ScriptRequest {
        verb: &verb,
        at: &at,
        clock: ScriptClock::Server,
        before: PreviousRules::Lost,
    };
    let reply = eval(&redis, blob.as_bytes(), &lost.encode(&new)).unwrap();
    let Ok(ScriptReply::Decided(StoreAnswer { verdict, .. })) =
        ScriptReply::decode(&reply, &new, &verb)
    else {
        panic!()
    };
    assert!(!verdict.decision.allowed(), "what nobody knows counts as used up");
    assert_eq!(verdict.decision.retry_after(), Some(Micros::new(100_000)));
    assert!(redis.value("k").unwrap().starts_with(blob.head()));
}

#[test]
fn a_state_keeps_the_instant_of_the_rules_that_wrote_it_until_others_do() {
    let rules = [RuleSet::single("a", bucket(1, 9)), random::rules(&mut Rng::with_seed(9))];
    for rules in rules.iter().filter(|rules| rules.supports(&check(1)).is_ok()) {
        let taken_over =
            |seconds: u64| RuleOrigin::Policy { since: Micros::from_secs(1_767_225_600 + seconds) };
        let [first, later] = [1_u64, 2].map(|seconds| RulesBlob::new(rules, taken_over(seconds)));
        assert!(first.stamp() < later.stamp() && first.head() != later.head());
        let redis = lua::redis();
        redis.keys().now_us = NOW_US;
        let ask = question(&check(1), rules, ScriptClock::Server, NOW_US);
        for blob in [&first, &later] {
            eval(&redis, blob.as_bytes(), &ask).unwrap();
            assert!(redis.value("k").unwrap().starts_with(first.head()));
        }
    }
}

#[test]
fn rules_that_callers_bring_along_are_read_where_they_wrote() {
    let mut rng = Rng::with_seed(6);
    for _ in 0..2_000 {
        let rules = random::rules(&mut rng);
        let blob = RulesBlob::new(&rules, RuleOrigin::Caller);
        let state = [blob.head(), &[7; 9]].concat();
        assert_eq!(RulesBlob::read_brought(&state).as_ref(), Some(&blob), "{rules:?}");
        assert!(blob.stamp().is_none() && blob.head().len() <= 1_024);
        let cut = &state[..rng.usize(0..blob.head().len())];
        assert_eq!(RulesBlob::read_brought(cut), None, "{rules:?}");
    }
}

#[test]
fn a_peek_under_new_rules_changes_nothing() {
    let (old, new) = (RuleSet::single("a", bucket(1, 100)), RuleSet::single("a", bucket(10, 20)));
    let mut scripted = Scripted::new(lua::redis(), ScriptClock::Given);
    scripted.start(&old);
    let at = Moment::new(Micros::new(NOW_US));
    scripted.decide(&check(30), &at).unwrap();
    let before = scripted.executor.value(&scripted.key);
    scripted.configure(&new);
    let verdict = scripted.decide(&Verb::Peek { cost: Cost::ONE }, &at).unwrap();
    assert!(!verdict.decision.allowed(), "30 permits in use are more than 20");
    assert_eq!(scripted.executor.value(&scripted.key), before);
}

/// Three callers whose clocks differ by up to ten seconds share a budget on the callers' clocks.
#[test]
fn clocks_that_differ_add_nothing_to_a_budget() {
    let (rate, burst) = (100, 50);
    for rule in [bucket(rate, burst), SlidingLog::new(burst, Micros::SECOND).unwrap().into()] {
        let mut rng = Rng::with_seed(4);
        let mut scripted = Scripted::new(lua::redis(), ScriptClock::Client);
        scripted.start(&RuleSet::single("a", rule.clone()));
        let (mut latest, mut granted) = (NOW_US, 0);
        for step in 0..5_000 {
            let now = NOW_US + step * 1_000 + [0, 4_000_000, 10_000_000][rng.usize(0..3)];
            latest = latest.max(now);
            let at = Moment::new(Micros::new(now));
            granted += scripted.decide(&check(1), &at).unwrap().decision.granted();
        }
        let elapsed_us = latest - NOW_US;
        let most = match rule {
            Rule::TokenBucket(_) => burst + rate * elapsed_us / 1_000_000,
            _ => burst * (elapsed_us / 1_000_000 + 1),
        };
        assert!(granted <= most, "{granted} of at most {most} by {rule:?}");
        assert!(granted > most / 4, "{granted} of {most} by {rule:?}: nobody is shut out");
    }
}

/// A caller whose clock is behind must not find the budget forgotten and use it up as of its own time:
/// the next one would see that time pass once more.
#[test]
fn a_budget_that_is_full_again_is_remembered_for_clocks_that_are_behind() {
    let mut scripted = Scripted::new(lua::redis(), ScriptClock::Client);
    scripted.start(&RuleSet::single("a", bucket(100, 10)));
    let mut granted = 0;
    for round in 1..=100 {
        let now = NOW_US + round * 110_000;
        scripted.executor.keys().now_us = now;
        for behind_us in [50_000_000, 0] {
            let at = Moment::new(Micros::new(now - behind_us));
            let asked = (0..10).map(|_| scripted.decide(&check(1), &at).unwrap());
            granted += asked.map(|verdict| verdict.decision.granted()).sum::<u64>();
        }
    }
    let most = 10 + 100 * 11;
    assert!(granted <= most, "{granted} of at most {most} in 11 s");
}

#[test]
fn a_key_says_nothing_and_every_key_has_its_own() {
    let keys: Vec<_> = [("a", &b"b"[..]), ("ab", b""), ("", b"ab"), ("a", b"b\0"), ("a", b"{b}")]
        .into_iter()
        .map(|(policy, key)| state_key(policy, key))
        .collect();
    for (place, key) in keys.iter().enumerate() {
        assert!(key.len() == 27 && key.starts_with("sg:{") && key.ends_with('}'), "{key}");
        assert!(!keys[..place].contains(key), "{key} stands for two");
    }
    // Worked out with another implementation of SHA-256.
    assert_eq!(keys[0], "sg:{z2q2E-OUI5H4jtaYVX4WgA}");
}

#[test]
fn a_generation_follows_everything_that_a_rule_is() {
    let named = |name: &str, rule| NamedRule { name: name.into(), rule };
    let sets = [
        RuleSet::single("a", bucket(1, 1)),
        RuleSet::single("b", bucket(1, 1)),
        RuleSet::single("a", bucket(2, 1)),
        RuleSet::single("a", bucket(1, 2)),
        RuleSet::single("a", bucket(1, 1)).with_carry(sluicegate_kernel::Carry::Reset),
        RuleSet::new(vec![named("a", bucket(1, 1)), named("b", bucket(1, 1))]).unwrap(),
        RuleSet::new(vec![named("b", bucket(1, 1)), named("a", bucket(1, 1))]).unwrap(),
    ];
    let generations: Vec<Generation> =
        sets.iter().map(|set| blob_of(set).stamp().unwrap().generation()).collect();
    for (place, generation) in generations.iter().enumerate() {
        assert!(!generations[..place].contains(generation), "{:?}", sets[place]);
    }
    assert_eq!(blob_of(&sets[0]), blob_of(&sets[0].clone()));
}

#[test]
fn replies_of_others_are_refused() {
    let rules = RuleSet::single("a", bucket(1, 1));
    let verb = check(1);
    let mut reply = vec![0; 27];
    reply[6..13].fill(0xff);
    let Ok(ScriptReply::Decided(StoreAnswer { verdict, .. })) =
        ScriptReply::decode(&reply, &rules, &verb)
    else {
        panic!()
    };
    assert_eq!(verdict.decision.retry_after(), None);
    assert!(Retry::Never > Retry::After(Micros::MAX));
    for length in (0..27).chain([28]) {
        let reply = vec![1; length];
        let refused = Err(ForeignReply { length });
        assert_eq!(ScriptReply::decode(&reply, &rules, &verb), refused);
    }
    assert!(ScriptReply::decode(&[5], &rules, &verb).is_err());
    reply[1] = 1;
    assert!(ScriptReply::decode(&reply, &rules, &verb).is_err(), "there is no second rule");
    assert!(ScriptReply::decode(&[2], &rules, &verb).is_err(), "these rules know the verb");
}
