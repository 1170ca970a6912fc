//! A state of 16 bytes loses nothing of the state, and decides as the state does.

use proptest::prelude::*;
use sluicegate_kernel::{Micros, Moment, Rule, RuleSet, States};

use crate::exact::rules::any_rate_rule;
use crate::exact::walk::{Clock, Shape, holds, prove, same, steps, walks};

#[test]
fn packing_loses_nothing_and_changes_no_answer() {
    let name = "packed states";
    let walks = any_rate_rule().prop_flat_map(move |(rule, scale_us)| {
        let limit = rule.limit();
        let shape =
            Shape { limit, scale_us, goes_back: true, gives_back: true, steps: steps(name) };
        (Just(rule), walks(shape))
    });
    prove(name, walks, |(rule, walk)| {
        let rules = RuleSet::single("rule", rule.clone());
        holds(rules.packs() == is_of_constant_size(&rule), || format!("{rule:?}"))?;
        let (mut states, mut packed, mut clock) = (States::default(), None, Clock::new(walk.start));
        for asked in walk.steps.iter().filter(|_| rules.packs()) {
            let now = clock.go(asked.time);
            let at = Moment::new(Micros::new(now));
            let expected = rules.decide(&mut states, &asked.verb, &at).unwrap();
            let (verdict, next) = rules.decide_packed(packed, &asked.verb, &at).unwrap();
            let context = || format!("at {now}: {:?} on {packed:?} of {rule:?}", asked.verb);
            same(&verdict, &expected, context)?;
            same(&next, &rules.pack(&states), context)?;
            let unpacked = next.map_or_else(States::default, |packed| rules.unpack(packed));
            same(&unpacked, &states, context)?;
            packed = next;
            clock.hear(&verdict.decision);
        }
        Ok(())
    });
}

fn is_of_constant_size(rule: &Rule) -> bool {
    !matches!(
        rule,
        Rule::SlidingWindow(_) | Rule::SlidingLog(_) | Rule::Concurrency(_) | Rule::SmoothWarmup(_)
    )
}

#[test]
fn several_rules_do_not_pack() {
    let two = ["a", "b"].map(|name| sluicegate_kernel::NamedRule {
        name: name.into(),
        rule: sluicegate_kernel::TokenBucket::new(crate::exact::rules::rate((1, 1)), 1)
            .unwrap()
            .into(),
    });
    let rules = RuleSet::new(two.to_vec()).unwrap();
    assert!(!rules.packs());
    assert!(rules.unpack(u128::MAX).is_empty());
}
