//! A state that was written is read back as it was, and whatever else is read does no harm.

use proptest::prelude::*;
use proptest::sample::Index;
use sluicegate_kernel::limits::STORED_BYTES_MAX;
use sluicegate_kernel::{
    Cost, Micros, Moment, NamedRule, PermitId, Rule, RuleSet, SlidingCounter, SlidingLog,
    SlidingWindow, States, Verb,
};

use crate::exact::honest::any_walk;
use crate::exact::sets::sets;
use crate::exact::walk::{Clock, Proof, Shape, Walk, holds, prove, same, steps, walks};

fn stored(rules: &RuleSet, states: &States) -> Vec<u8> {
    let mut bytes = Vec::new();
    rules.write_states(states, &mut bytes);
    bytes
}

/// Walks over `rules`, and shows `see` what is stored after each step.
fn walk_over(
    rules: &RuleSet,
    walk: &Walk,
    mut see: impl FnMut(&States, &[u8], &Moment<'_>) -> Proof,
) -> Proof {
    let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
    for asked in &walk.steps {
        let at = Moment::new(Micros::new(clock.go(asked.time)));
        let verdict = rules.decide(&mut states, &asked.verb, &at).unwrap();
        clock.hear(&verdict.decision);
        see(&states, &stored(rules, &states), &at)?;
    }
    Ok(())
}

fn reads_back(rules: &RuleSet, states: &States, bytes: &[u8]) -> Proof {
    holds(bytes.len() as u64 <= STORED_BYTES_MAX, || format!("{} bytes", bytes.len()))?;
    let read = rules.read_states(bytes);
    if states.is_empty() {
        return holds(read.is_some_and(|read| read.is_empty()), || format!("{bytes:?}"));
    }
    same(&read.as_ref(), &Some(states), || format!("{bytes:?} of {rules:?}"))
}

fn several(rules: &[(Rule, u64)]) -> RuleSet {
    let named = rules.iter().enumerate().map(|(place, (rule, _))| NamedRule {
        name: format!("rule-{place}").into(),
        rule: rule.clone(),
    });
    RuleSet::new(named.collect()).unwrap()
}

#[test]
fn a_state_that_was_written_is_read_back() {
    let name = "stored states";
    prove(name, any_walk(name), |(rule, walk)| {
        let rules = RuleSet::single("rule", rule);
        walk_over(&rules, &walk, |states, bytes, _| reads_back(&rules, states, bytes))
    });
}

#[test]
fn the_states_of_several_rules_are_read_back() {
    let name = "stored sets";
    let walks = sets().prop_flat_map(move |rules| {
        let limit = rules.iter().map(|(rule, _)| rule.limit()).min().unwrap();
        let shape = Shape {
            limit,
            scale_us: rules[0].1,
            goes_back: true,
            gives_back: true,
            steps: steps(name),
        };
        (Just(rules), walks(shape))
    });
    prove(name, walks, |(rules, walk)| {
        let rules = several(&rules);
        walk_over(&rules, &walk, |states, bytes, _| reads_back(&rules, states, bytes))
    });
}

/// One change to what was stored, as a disk or a stranger might make it.
#[derive(Clone, Debug)]
enum Change {
    Cut(Index),
    Flip(Index, u8),
    Append(Vec<u8>),
    Replace(Vec<u8>),
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<Index>().prop_map(Change::Cut),
        (any::<Index>(), 1_u8..).prop_map(|(place, bits)| Change::Flip(place, bits)),
        proptest::collection::vec(any::<u8>(), 1..40).prop_map(Change::Append),
        proptest::collection::vec(any::<u8>(), 0..80).prop_map(Change::Replace),
        Just(Change::Replace(vec![0xff; 64])),
    ]
}

fn changed(mut bytes: Vec<u8>, change: &Change) -> Vec<u8> {
    match change {
        Change::Cut(place) => bytes.truncate(place.index(bytes.len() + 1)),
        Change::Flip(place, bits) if !bytes.is_empty() => {
            let place = place.index(bytes.len());
            bytes[place] ^= bits;
        }
        Change::Flip(..) => {}
        Change::Append(more) => bytes.extend(more),
        Change::Replace(others) => bytes.clone_from(others),
    }
    bytes
}

#[test]
fn whatever_is_read_decides_without_a_panic_and_can_be_written_again() {
    let name = "stored garbage";
    let walks = (any_walk(name), proptest::collection::vec(changes(), steps(name)));
    prove(name, walks, |((rule, walk), changes)| {
        let rules = RuleSet::single("rule", rule);
        let mut changes = changes.iter();
        walk_over(&rules, &walk, |_, bytes, at| {
            let change = changes.next().expect("there is a change for every step");
            let Some(states) = rules.read_states(&changed(bytes.to_vec(), change)) else {
                return Ok(());
            };
            reads_back(&rules, &states, &stored(&rules, &states))?;
            rules.full_at(&states);
            for verb in every_verb() {
                let decided = rules.decide(&mut states.clone(), &verb, at);
                holds(decided.is_ok() == rules.supports(&verb).is_ok(), || format!("{verb:?}"))?;
            }
            Ok(())
        })
    });
}

fn every_verb() -> [Verb; 9] {
    let (cost, permit, max_wait) = (Cost::ONE, PermitId(1), Micros::MAX);
    [
        Verb::Check { cost },
        Verb::Reserve { cost, max_wait },
        Verb::AtMost { cost },
        Verb::Peek { cost },
        Verb::Refund { cost },
        Verb::Reset,
        Verb::Acquire { cost, permit },
        Verb::Release { permit },
        Verb::Renew { permit },
    ]
}

#[test]
fn states_that_no_key_can_have_are_refused() {
    let log = sluicegate_kernel::SlidingLog::new(3, Micros::SECOND).unwrap();
    let log = RuleSet::single("log", log);
    let entry = |at: u8, cost: u8| [at, 0, 0, 0, 0, 0, 0, cost, 0, 0, 0];
    let of = |sum: u8, entries: &[[u8; 11]]| {
        let count = u8::try_from(entries.len()).unwrap();
        [&[sum, 0, 0, 0, count, 0, 0, 0][..], &entries.concat()].concat()
    };
    assert!(log.read_states(&of(3, &[entry(1, 1), entry(2, 2)])).is_some());
    for (what, bytes) in [
        ("a sum that is not theirs", of(2, &[entry(1, 1), entry(2, 2)])),
        ("an entry before an earlier one", of(2, &[entry(2, 1), entry(1, 1)])),
        ("an entry that took nothing", of(1, &[entry(1, 1), entry(2, 0)])),
        ("more entries than follow", of(1, &[entry(1, 1)])[..12].to_vec()),
        ("four billion entries", vec![0xff; 8]),
    ] {
        assert_eq!(log.read_states(&bytes), None, "{what}");
    }
    let bursty = sluicegate_kernel::Rate::per_second(1).unwrap();
    let bursty = sluicegate_kernel::SmoothBursty::new(bursty, Micros::SECOND).unwrap();
    let bursty = RuleSet::single("bursty", bursty);
    for balance in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let bytes = [&balance.to_le_bytes()[..], &[0; 7]].concat();
        assert_eq!(bursty.read_states(&bytes), None, "{balance}");
    }
    let two = several(&[log.rules(), bursty.rules()].map(|rules| (rules[0].rule.clone(), 1)));
    assert!(two.read_states(&[0]).is_some_and(|states| states.is_empty()));
    assert_eq!(two.read_states(&[4]), None, "a third rule");
    assert_eq!(two.read_states(&[]), None, "not even the byte of who is there");
}

#[test]
fn a_window_that_begins_after_the_latest_instant_is_refused() {
    let window = Micros::new(2);
    let counter = RuleSet::single("counter", SlidingCounter::new(3, window).unwrap());
    let sliding = RuleSet::single("sliding", SlidingWindow::new(3, window, 1).unwrap());
    // The latest instant that is stored is 2^56 - 1.
    let latest = (1_u64 << 55) - 1;
    for (rules, rest) in [(&counter, &[0; 8][..]), (&sliding, &[4, 0, 0, 0, 0, 0, 0, 0, 0])] {
        let bytes = |number: u64| [&number.to_le_bytes()[..7], rest].concat();
        assert!(rules.read_states(&bytes(latest)).is_some(), "{rules:?}");
        assert_eq!(rules.read_states(&bytes(latest + 1)), None, "{rules:?}");
    }
}

#[test]
fn states_take_the_bytes_of_what_they_remember() {
    let hour = Micros::from_secs(3_600);
    let log = RuleSet::single("log", SlidingLog::new(1_000, hour).unwrap());
    let sliding = SlidingWindow::new(1_000, hour, 60).unwrap();
    let both = several(&[(log.rules()[0].rule.clone(), 1), (sliding.clone().into(), 1)]);
    let bytes = |rules: &RuleSet, checks: u64| {
        let mut states = States::default();
        for at in 0..checks {
            let moment = Moment::new(Micros::from_millis(at));
            rules.decide(&mut states, &Verb::Check { cost: Cost::ONE }, &moment).unwrap();
        }
        states.bytes()
    };
    let own = size_of::<States>();
    // An entry has 16 bytes, a counter eight; a vector may have room for twice as many, and a slot is small.
    assert!((own + 16_000..own + 33_000).contains(&bytes(&log, 1_000)), "{}", bytes(&log, 1_000));
    let sliding = RuleSet::single("sliding", sliding);
    assert!((own + 480..own + 1_000).contains(&bytes(&sliding, 9)), "{}", bytes(&sliding, 9));
    assert!((own + 16_480..own + 35_000).contains(&bytes(&both, 1_000)), "{}", bytes(&both, 1_000));
}
