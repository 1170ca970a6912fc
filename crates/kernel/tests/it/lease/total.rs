//! Any rules, messages and instants: every step ends, within its bounds.

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use sluicegate_kernel::lease::{Hint, Holder, Leases, Mark, Marks, Message, Number};
use sluicegate_kernel::limits::{
    COST_MAX, LEASE_DEADLINE_MAX_US, LEASE_HOLDERS_MAX, RULES_MAX, SPAN_MAX_US, UNITS_MAX,
};
use sluicegate_kernel::{
    Cost, Leased, Micros, Moment, NamedRule, PermitId, Rule, RuleSet, States, Verb,
};

use super::random::Random;
use crate::exact::rules::{any_rate_rule, concurrencies};

const HISTORIES: u32 = 3_000;
const STEPS: usize = 40;

fn prove<T: Strategy>(strategy: T, property: impl Fn(T::Value)) {
    let config = ProptestConfig {
        cases: HISTORIES,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let proved = TestRunner::new(config).run(&strategy, |value| {
        property(value);
        Ok(())
    });
    proved.unwrap();
}

fn sets() -> impl Strategy<Value = RuleSet> {
    let rule = prop_oneof![8 => any_rate_rule(), 1 => concurrencies()].prop_map(|(rule, _)| rule);
    proptest::collection::vec(rule, 1..=3).prop_map(|rules: Vec<Rule>| {
        let named = rules.into_iter().enumerate();
        let named = named.map(|(place, rule)| NamedRule::new(&format!("r{place}"), rule));
        RuleSet::new(named.collect()).unwrap()
    })
}

/// A number that is small, large, or anything.
fn any_u32(random: &mut Random) -> u32 {
    let any = u32::try_from(random.below(1 << 32)).unwrap();
    random.pick(&[0, 1, any % 10, any % 1_000, any % 3_000_000, any, u32::MAX])
}

fn any_verb(random: &mut Random) -> Verb {
    let cost = Cost::new(u64::from(any_u32(random)).clamp(1, COST_MAX)).unwrap();
    let permit = PermitId(random.below(3).into());
    let max_wait = Micros::new(u64::from(any_u32(random)) * 1_000);
    match random.below(9) {
        0 => Verb::Check { cost },
        1 => Verb::Reserve { cost, max_wait },
        2 => Verb::AtMost { cost },
        3 => Verb::Peek { cost },
        4 => Verb::Refund { cost },
        5 => Verb::Reset,
        6 => Verb::Acquire { cost, permit },
        7 => Verb::Release { permit },
        _ => Verb::Renew { permit },
    }
}

fn any_message(random: &mut Random, now_us: u64) -> Message {
    let near = |random: &mut Random| {
        let some = u64::from(any_u32(random));
        let (later, earlier) = (now_us.saturating_add(some), now_us.saturating_sub(some));
        Micros::new(random.pick(&[0, earlier, now_us, later, u64::MAX]))
    };
    let marks: Vec<_> = (0..random.below(5))
        .map(|_| Mark { spent: any_u32(random), age_us: any_u32(random) })
        .collect();
    let used = std::array::from_fn::<_, RULES_MAX, _>(|_| u64::from(any_u32(random)) << 8);
    let hint = Hint { version: near(random), held: any_u32(random), used };
    Message {
        holder: Holder(random.below(80)),
        number: Number(any_u32(random) % 9),
        heard: Number(any_u32(random) % 9),
        stood: any_u32(random),
        unspent: any_u32(random),
        keep: any_u32(random),
        need: any_u32(random),
        least: any_u32(random),
        want: any_u32(random),
        share: any_u32(random),
        term_us: any_u32(random),
        patience_us: any_u32(random),
        ends: near(random),
        ended: random.chance(50),
        marks: Marks::new(&marks).unwrap(),
        hint: random.chance(50).then_some(hint),
    }
}

fn any_step(random: &mut Random, now_us: u64) -> u64 {
    let some = u64::from(any_u32(random));
    let steps = [now_us, now_us + some, now_us.saturating_sub(some), random.below(SPAN_MAX_US)];
    let likely = random.pick(&[0, 0, 0, 1, 1, 1, 1, 2, 3]);
    steps[likely].min(SPAN_MAX_US)
}

#[test]
fn every_message_and_every_verb_is_answered_and_what_is_stored_can_be_read() {
    prove((sets(), sets(), any::<u64>()), |(old, new, seed)| {
        let mut random = Random::new(seed);
        let (mut leased, mut now_us) = (Leased::default(), random.below(SPAN_MAX_US));
        for step in 0..STEPS {
            now_us = any_step(&mut random, now_us);
            let at = Moment::new(Micros::new(now_us));
            // In the middle other rules take the key over.
            let rules = if step < STEPS / 2 { &old } else { &new };
            if step == STEPS / 2 {
                leased.states = new.take_over(&old, &leased.states, &at);
            }
            if random.chance(70) {
                let message = any_message(&mut random, now_us);
                let _ = rules.lease(&mut leased, &message, &at);
            } else {
                let _ = rules.decide_beside(&mut leased, &any_verb(&mut random), &at);
            }
            check(rules, &leased, now_us);
        }
    });
}

fn check(rules: &RuleSet, leased: &Leased, now_us: u64) {
    let Leased { states, leases: Leases { version, records } } = leased;
    assert!(leased.leases.held() <= u64::from(u32::MAX), "{leased:?}");
    assert!(records.len() <= LEASE_HOLDERS_MAX, "{leased:?}");
    assert!(version.get() <= UNITS_MAX + u64::from(u32::MAX), "{leased:?}");
    for (place, record) in records.iter().enumerate() {
        let longest = now_us + LEASE_DEADLINE_MAX_US;
        assert!(record.deadline.get() <= longest || version.get() > now_us, "{leased:?}");
        let same = records[..place].iter().filter(|other| other.holder == record.holder);
        assert_eq!(same.count(), 0, "{leased:?}");
    }
    if states.is_empty() {
        // A key that was never decided has no slots for its rules yet.
        return;
    }
    let mut bytes = Vec::new();
    rules.write_states(states, &mut bytes);
    assert_eq!(rules.read_states(&bytes).as_ref(), Some(states), "{rules:?}");
}

#[test]
fn without_leases_every_verb_is_decided_as_ever() {
    prove((sets(), any::<u64>()), |(rules, seed)| {
        let mut random = Random::new(seed);
        let (mut leased, mut states) = (Leased::default(), States::default());
        let mut now_us = random.below(SPAN_MAX_US);
        for _ in 0..STEPS {
            now_us = any_step(&mut random, now_us);
            let at = Moment::new(Micros::new(now_us));
            let verb = any_verb(&mut random);
            let plain = rules.decide(&mut states, &verb, &at);
            assert_eq!(rules.decide_beside(&mut leased, &verb, &at), plain, "{verb:?}");
            let nothing = leased.states.is_empty() && states.is_empty();
            assert!(nothing || leased.states == states, "{verb:?}");
        }
    });
}
