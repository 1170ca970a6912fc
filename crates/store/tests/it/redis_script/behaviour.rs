//! Keys, expiries and commands of the script in a real server.

use std::collections::BTreeMap;

use fastrand::Rng;
use sluicegate_conformance::Subject;
use sluicegate_kernel::{Cost, Micros, Moment, Rate, RuleSet, TokenBucket, Verb};
use sluicegate_store::redis::codec::{ScriptClock, ScriptReply, state_key};
use sluicegate_store::redis::script::SHA1;

use crate::redis_script::protocol::{bucket, check, question};
use crate::redis_script::random;
use crate::redis_script::server::{RealRedis, Resp};
use crate::redis_script::subject::{Executor, Scripted, blob_of};

impl RealRedis {
    fn pttl(&mut self, key: &str) -> i64 {
        let Resp::Integer(ttl) = self.call(&[b"PTTL", key.as_bytes()]) else { panic!("no number") };
        ttl
    }

    fn value(&mut self, key: &str) -> Resp {
        self.call(&[b"GET", key.as_bytes()])
    }

    /// Returns the calls of each command since the start.
    fn calls(&mut self) -> BTreeMap<String, u64> {
        let Resp::Text(info) = self.call(&[b"INFO", b"commandstats"]) else { panic!("no text") };
        let info = String::from_utf8(info).unwrap();
        let lines = info.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
        let calls = lines.map(|line| {
            let (command, rest) = line.split_once(":calls=").unwrap();
            (command.to_owned(), rest.split(',').next().unwrap().parse().unwrap())
        });
        calls.collect()
    }
}

#[test]
fn every_write_leaves_an_end() {
    let Some(server) = RealRedis::start() else { return };
    let (mut scripted, mut rng) = (Scripted::new(server, ScriptClock::Server), Rng::with_seed(1));
    let mut kept = 0;
    for _ in 0..200 {
        let rules = random::rules(&mut rng);
        scripted.start(&rules);
        for _ in 0..20 {
            let verb = random::verb(&mut rng, &rules);
            let windows = random::windows(&rules, 1_780_000_000_000_000);
            let at = Moment::with_windows(Micros::new(1_780_000_000_000_000), &windows);
            let _ = scripted.decide(&verb, &at);
            let ttl = scripted.executor.pttl(&scripted.key);
            // -1 would be a key without an end.
            assert!(ttl == -2 || ttl >= 0, "{ttl} after {verb:?} of {rules:?}");
            kept += u32::from(ttl > 0);
        }
    }
    assert!(kept > 1_000, "only {kept} steps left a key");
}

#[test]
fn a_lost_end_is_put_back_by_the_next_write() {
    let Some(server) = RealRedis::start() else { return };
    let mut scripted = Scripted::new(server, ScriptClock::Server);
    scripted.start(&RuleSet::single("a", bucket(1, 100)));
    let at = Moment::new(Micros::ZERO);
    scripted.decide(&check(10), &at).unwrap();
    let key = scripted.key.clone();
    assert_eq!(scripted.executor.call(&[b"PERSIST", key.as_bytes()]), Resp::Integer(1));
    assert_eq!(scripted.executor.pttl(&key), -1);
    scripted.decide(&check(10), &at).unwrap();
    let ttl = scripted.executor.pttl(&key);
    assert!((19_000..=20_001).contains(&ttl), "{ttl} ms for 20 permits at 1/s");
}

#[test]
fn a_full_budget_is_no_key() {
    let Some(server) = RealRedis::start() else { return };
    let mut scripted = Scripted::new(server, ScriptClock::Server);
    scripted.start(&RuleSet::single("a", bucket(1, 100)));
    let at = Moment::new(Micros::ZERO);
    for back in [Verb::Refund { cost: Cost::new(10).unwrap() }, Verb::Reset] {
        scripted.decide(&check(10), &at).unwrap();
        assert_ne!(scripted.executor.value(&scripted.key.clone()), Resp::Nil);
        scripted.decide(&back, &at).unwrap();
        assert_eq!(scripted.executor.value(&scripted.key.clone()), Resp::Nil, "{back:?}");
    }
}

#[test]
fn a_budget_that_starts_low_is_remembered_after_it_is_full() {
    let Some(server) = RealRedis::start() else { return };
    let mut scripted = Scripted::new(server, ScriptClock::Server);
    let low = TokenBucket::new(Rate::per_second(1000).unwrap(), 1000).unwrap();
    scripted.start(&RuleSet::single("a", low.with_initial(1).unwrap()));
    scripted.decide(&check(2), &Moment::new(Micros::ZERO)).unwrap();
    let days = scripted.executor.pttl(&scripted.key.clone()) / 86_400_000;
    assert!((29..=30).contains(&days), "{days} days");
}

#[test]
fn a_refused_check_and_a_peek_write_nothing() {
    let Some(server) = RealRedis::start() else { return };
    let mut scripted = Scripted::new(server, ScriptClock::Server);
    scripted.start(&RuleSet::single("a", bucket(1, 5)));
    let at = Moment::new(Micros::ZERO);
    scripted.decide(&check(5), &at).unwrap();
    let key = scripted.key.clone();
    let (before, calls) = (scripted.executor.value(&key), scripted.executor.calls());
    for verb in [check(5), check(6), Verb::Peek { cost: Cost::ONE }] {
        let verdict = scripted.decide(&verb, &at).unwrap();
        assert!(!verdict.decision.allowed(), "{verb:?}");
    }
    assert_eq!(scripted.executor.value(&key), before);
    let after = scripted.executor.calls();
    assert_eq!((after.get("set"), after.get("del")), (calls.get("set"), calls.get("del")));
}

#[test]
fn nothing_that_a_user_wrote_appears_in_the_server() {
    let Some(mut server) = RealRedis::start() else { return };
    let rules = RuleSet::single("secret-rule", bucket(1, 5));
    let (blob, verb) = (blob_of(&rules), check(1));
    let ask = question(&verb, &rules, ScriptClock::Server, 0);
    for key in [&b"secret-user"[..], b"", b"\0{secret}\r\n", &[b'k'; 1024]] {
        let key = state_key("secret-policy", key);
        server.eval(&[key], &[blob.as_bytes().to_vec(), ask.clone()]).unwrap();
    }
    let Resp::List(keys) = server.call(&[b"KEYS", b"*"]) else { panic!("no list") };
    assert_eq!(keys.len(), 4);
    for key in keys {
        let Resp::Text(key) = key else { panic!("no text") };
        let Resp::Text(value) = server.call(&[b"GET", &key]) else { panic!("no text") };
        assert_eq!((key.len(), value.len()), (27, 20));
        let both = [key, value].concat();
        assert!(!both.windows(6).any(|part| part == b"secret"), "{both:?}");
    }
}

#[test]
fn keys_of_one_call_have_decisions_of_their_own() {
    let Some(mut server) = RealRedis::start() else { return };
    let (one, two) = (RuleSet::single("a", bucket(1, 5)), RuleSet::single("a", bucket(1, 1)));
    let (first, second) = (blob_of(&one), blob_of(&two));
    let (verb, none) = (check(1), [0; 40]);
    let ask = question(&verb, &one, ScriptClock::Server, 0);
    let blobs = [first.as_bytes(), second.as_bytes(), &none, first.as_bytes(), second.as_bytes()];
    let keys: Vec<_> = ["x", "y", "z", "x", "y"].map(|key| state_key("p", key.as_bytes())).into();
    let args: Vec<_> = blobs.iter().flat_map(|blob| [blob.to_vec(), ask.clone()]).collect();
    let replies = server.eval(&keys, &args).unwrap();
    let decode = |place: usize, rules| ScriptReply::decode(&replies[place], rules, &verb).unwrap();
    let remaining = |reply| match reply {
        ScriptReply::Decided(answer) => {
            (answer.verdict.decision.allowed(), answer.verdict.decision.remaining)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(remaining(decode(0, &one)), (true, 4));
    assert_eq!(remaining(decode(1, &two)), (true, 0));
    assert_eq!(decode(2, &one), ScriptReply::Malformed("rules".into()));
    assert_eq!(remaining(decode(3, &one)), (true, 3));
    assert_eq!(remaining(decode(4, &two)), (false, 0));
    assert_eq!(server.calls().get("time"), Some(&1), "the clock is read once a call");
}

#[test]
fn an_error_of_one_key_is_the_reply_of_that_key() {
    let Some(mut server) = RealRedis::start() else { return };
    let rules = RuleSet::single("a", bucket(1, 5));
    let (blob, verb) = (blob_of(&rules), check(1));
    let ask = question(&verb, &rules, ScriptClock::Server, 0);
    server.call(&[b"HSET", b"y", b"field", b"value"]);
    let mut call = |keys: &[&str]| {
        let count = keys.len().to_string();
        let mut words: Vec<&[u8]> = vec![b"EVALSHA", SHA1.as_bytes(), count.as_bytes()];
        words.extend(keys.iter().map(|key| key.as_bytes()));
        words.extend(keys.iter().flat_map(|_| [blob.as_bytes(), &ask]));
        server.call(&words)
    };
    let remaining = |reply: &Resp| {
        let Resp::Text(reply) = reply else { panic!("{reply:?}") };
        match ScriptReply::decode(reply, &rules, &verb) {
            Ok(ScriptReply::Decided(answer)) => answer.verdict.decision.remaining,
            other => panic!("{other:?}"),
        }
    };
    let wrong =
        |reply: &Resp| matches!(reply, Resp::Error(error) if error.starts_with("WRONGTYPE "));
    for left in [4, 3] {
        let Resp::List(replies) = call(&["x", "y", "z"]) else { panic!("no list") };
        let [x, y, z] = &replies[..] else { panic!("{replies:?}") };
        assert!(wrong(y), "{y:?}");
        assert_eq!((remaining(x), remaining(z)), (left, left));
    }
    let alone = call(&["y"]);
    assert!(wrong(&alone), "{alone:?}");
}

#[test]
fn what_cannot_be_written_is_granted_to_nobody_who_asked_the_same() {
    let Some(mut server) = RealRedis::start() else { return };
    let rules = RuleSet::single("a", bucket(1, 5));
    let (blob, verb) = (blob_of(&rules), check(1));
    let ask = question(&verb, &rules, ScriptClock::Server, 0);
    let mut call = |memory_max: &[u8]| {
        server.call(&[b"CONFIG", b"SET", b"maxmemory", memory_max]);
        let keys = ["x", "x", "x", "y"];
        let mut words: Vec<&[u8]> = vec![b"EVALSHA", SHA1.as_bytes(), b"4"];
        words.extend(keys.iter().map(|key| key.as_bytes()));
        words.extend(keys.iter().flat_map(|_| [blob.as_bytes(), &ask]));
        let Resp::List(replies) = server.call(&words) else { panic!("no list") };
        replies
    };
    let full = |reply: &Resp| matches!(reply, Resp::Error(error) if error.contains("OOM"));
    let refused = call(b"1");
    assert!(refused.iter().all(full), "{refused:?}");
    let left = call(b"0").into_iter().map(|reply| {
        let Resp::Text(reply) = reply else { panic!("{reply:?}") };
        match ScriptReply::decode(&reply, &rules, &verb) {
            Ok(ScriptReply::Decided(answer)) => answer.verdict.decision.remaining,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(left.collect::<Vec<_>>(), [4, 3, 2, 4]);
}
