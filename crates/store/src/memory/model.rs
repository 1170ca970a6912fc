//! The store beside a plain map that forgets nothing, on random walks over keys, verbs and rules.

use std::collections::HashMap;

use proptest::prelude::*;
use sluicegate_kernel::{
    Carry, Concurrency, Cost, FixedWindow, LeakyBucket, Micros, NamedRule, PermitId, Rate, Rule,
    SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, States, TokenBucket,
    algorithm::Delay,
};

use super::*;

/// Keys that a walk goes over: many times the slots of a segment.
const KEYS: u64 = 300;

/// One step: the key, its rules, the verb, the time after the step before, and the time after its
/// caller read the clock.
#[derive(Clone, Debug)]
struct TimedRequest {
    key: u64,
    rules: usize,
    verb: Verb,
    after_us: u64,
    late_us: u64,
}

/// A model of the store: it keeps every key for ever, none packed.
#[derive(Default)]
struct Model(HashMap<u64, (Arc<RuleSet>, States)>);

impl Model {
    fn decide(
        &mut self,
        key: u64,
        rules: &Arc<RuleSet>,
        verb: &Verb,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        let mut states = match self.0.get(&key) {
            Some((old, states)) if Arc::ptr_eq(old, rules) => states.clone(),
            Some((old, states)) => rules.take_over(old, states, at),
            None => States::default(),
        };
        let verdict = rules.decide(&mut states, verb, at)?;
        match verb {
            Verb::Peek { .. } => {}
            _ if states.is_empty() => drop(self.0.remove(&key)),
            _ => drop(self.0.insert(key, (Arc::clone(rules), states))),
        }
        Ok(verdict)
    }
}

/// Rule sets of every algorithm, alone and together. The span is a second, so that budgets fill up
/// again in the course of a walk.
fn rule_sets() -> Vec<Arc<RuleSet>> {
    let second = Micros::SECOND;
    let rate = |permits| Rate::per_second(permits).expect("it is not zero");
    let bucket = |permits| TokenBucket::new(rate(permits), permits).expect("in range");
    let low = bucket(5).with_initial(1).expect("below the burst");
    let first = FixedWindow::first(2, second).expect("in range");
    let rules: Vec<Rule> = vec![
        bucket(3).into(),
        bucket(7).into(),
        low.into(),
        LeakyBucket::new(rate(4), 3, Delay::Above(1)).expect("in range").into(),
        first.into(),
        SlidingCounter::new(4, second).expect("in range").into(),
        SmoothBursty::new(rate(3), second).expect("in range").into(),
        SmoothWarmup::new(rate(3), second, 3.0).expect("in range").into(),
        SlidingWindow::new(4, second, 5).expect("in range").into(),
        SlidingLog::new(3, second).expect("in range").into(),
        Concurrency::new(3, second, 0).expect("in range").into(),
    ];
    let named = |name: &str, rule: &Rule| NamedRule { name: name.into(), rule: rule.clone() };
    let both = RuleSet::new(vec![named("rule", &rules[0]), named("log", &rules[9])]);
    let mut sets: Vec<_> = rules.iter().map(|rule| RuleSet::single("rule", rule.clone())).collect();
    sets.push(sets[1].clone().with_carry(Carry::Reset));
    sets.push(sets[1].clone().with_carry(Carry::Proportional));
    sets.push(both.expect("two names"));
    sets.into_iter().map(Arc::new).collect()
}

/// A budget that is full again may have been forgotten when other rules come: then a key that
/// starts with less than a full budget is one that was never seen.
fn starts_below_full(rules: usize) -> bool {
    rules == 2 || rules == 6
}

fn verbs() -> impl Strategy<Value = Verb> {
    let cost = || (1_u64..4).prop_map(|cost| Cost::new(cost).expect("it is not zero"));
    let permit = || (0_u128..3).prop_map(PermitId);
    prop_oneof![
        12 => cost().prop_map(|cost| Verb::Check { cost }),
        2 => (cost(), 0_u64..900_000).prop_map(|(cost, wait)| {
            Verb::Reserve { cost, max_wait: Micros::new(wait) }
        }),
        1 => cost().prop_map(|cost| Verb::AtMost { cost }),
        2 => cost().prop_map(|cost| Verb::Peek { cost }),
        1 => cost().prop_map(|cost| Verb::Refund { cost }),
        1 => Just(Verb::Reset),
        2 => (cost(), permit()).prop_map(|(cost, permit)| Verb::Acquire { cost, permit }),
        1 => permit().prop_map(|permit| Verb::Release { permit }),
    ]
}

/// Returns walks whose callers are late by up to `late_max_us`, and in which a key mostly stays with
/// its rules, and now and then is decided under others.
fn walks(late_max_us: u64) -> impl Strategy<Value = Vec<TimedRequest>> {
    let sets = rule_sets().len();
    let step = (0..KEYS, prop_oneof![9 => Just(None), 1 => (0..sets).prop_map(Some)], verbs());
    let step = (step, prop_oneof![3 => Just(0), 3 => 0_u64..2_000, 1 => 0_u64..200_000]);
    let late = prop_oneof![3 => Just(0), 1 => 0..=late_max_us];
    let step = (step, late).prop_map(move |(((key, other, verb), after_us), late_us)| {
        let own = usize::try_from(key).expect("below KEYS") % sets;
        let other = other.filter(|other| !starts_below_full(own) && !starts_below_full(*other));
        TimedRequest { key, rules: other.unwrap_or(own), verb, after_us, late_us }
    });
    proptest::collection::vec(step, 1..2_000)
}

/// Passes the instants at which callers read the clock to the store, and to the model as if none had
/// been overtaken.
fn answers_as_the_model(store: &MemoryStore, walk: &[TimedRequest]) -> Result<(), TestCaseError> {
    let (sets, mut model) = (rule_sets(), Model::default());
    let (mut now, mut latest) = (2_000_000, 0);
    for step in walk {
        now += step.after_us;
        let read = now - step.late_us;
        latest = latest.max(read);
        let rules = &sets[step.rules];
        let at = Moment::new(Micros::new(latest));
        let expected = model.decide(step.key, rules, &step.verb, &at);
        let at = Moment::new(Micros::new(read));
        let got = store.decide_hashed(store.hash_of(&step.key), rules, &step.verb, &at);
        prop_assert_eq!(got, expected, "at {}: {:?}", read, step);
    }
    prop_assert_eq!(store.evictions(), 0);
    prop_assert!(store.len() <= model.0.len(), "{} keys of {}", store.len(), model.0.len());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_table_that_splits_and_sweeps_all_the_time_answers_as_a_map(walk in walks(1_000_000)) {
        // Two buckets a segment: 300 keys do not fit into one by far.
        answers_as_the_model(&MemoryStore::with_shards(1, 1_000, 2), &walk)?;
    }

    #[test]
    fn several_shards_of_ordinary_segments_answer_as_a_map(walk in walks(0)) {
        answers_as_the_model(&MemoryStore::new(40_000), &walk)?;
    }

    /// Usage does not flow out in this walk, so all that is ever granted is the limit of each key that
    /// is there, what its eviction gave back (at most half), and the one budget that others share.
    #[test]
    fn no_flood_grants_more_than_the_keys_that_are_there_have(
        asked in proptest::collection::vec((0..KEYS, 1_u64..5), 1..2_000),
        keys_max in 1_usize..40,
        quota in 1_usize..60,
    ) {
        const LIMIT: u64 = 10;
        let day = Micros::from_secs(86_400);
        let rules: Vec<Rule> = vec![
            FixedWindow::epoch(LIMIT, day).expect("in range").into(),
            SlidingLog::new(LIMIT, day).expect("in range").into(),
            TokenBucket::new(Rate::new(1, day).expect("in range"), LIMIT).expect("in range").into(),
        ];
        for rule in rules {
            let store = MemoryStore::with_shards(1, keys_max, 2).with_keys_per_policy_max(quota);
            let rules = Arc::new(RuleSet::single("r", rule));
            let (mut granted, mut of_key) = (0, HashMap::<u64, (u64, u64)>::new());
            for (key, cost) in &asked {
                let verb = Verb::Check { cost: Cost::new(*cost).expect("it is not zero") };
                let before = (store.evictions(), store.overflows());
                let at = Moment::new(Micros::SECOND);
                let verdict = store.decide_hashed(store.hash_of(key), &rules, &verb, &at);
                let took = verdict.expect("rules that know check").decision.granted();
                granted += took;
                if store.overflows() > before.1 {
                    continue;
                }
                // The permits that a key had of its own since the store last evicted anything.
                let (since, own) = of_key.entry(*key).or_default();
                if store.evictions() > *since {
                    (*since, *own) = (store.evictions(), 0);
                }
                *own += took;
                prop_assert!(*own <= LIMIT, "{} of {}: {:?}", own, key, rules);
            }
            let keys = u64::try_from(store.len()).expect("a few");
            let most = LIMIT * keys + LIMIT / 2 * store.evictions() + LIMIT;
            prop_assert!(granted <= most, "{} of {}: {:?}", granted, most, rules);
            prop_assert!(store.len() <= keys_max.min(quota), "{} keys", keys);
        }
    }

    #[test]
    fn the_cap_holds_whatever_comes(walk in walks(0), keys_max in 1_usize..40) {
        let (store, sets, mut now) = (MemoryStore::with_shards(1, keys_max, 2), rule_sets(), 0);
        for step in &walk {
            now += step.after_us;
            let at = Moment::new(Micros::new(now));
            let key = store.hash_of(&step.key);
            let verdict = store.decide_hashed(key, &sets[step.rules], &step.verb, &at);
            prop_assert!(store.len() <= keys_max, "{} keys", store.len());
            // No request came in between: a state of a moment ago is still there.
            if let (Ok(verdict), Verb::Check { cost }) = (verdict, &step.verb) {
                let peek = Verb::Peek { cost: *cost };
                let again = store.decide_hashed(key, &sets[step.rules], &peek, &at);
                let again = again.expect("rules that know check know peek");
                // Of several rules, another one may decide now.
                let same = (again.rule != verdict.rule)
                    || again.decision.remaining == verdict.decision.remaining;
                prop_assert!(same, "{:?}: {:?}, then {:?}", step, verdict, again);
            }
        }
    }
}
