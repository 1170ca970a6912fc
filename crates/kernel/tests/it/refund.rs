//! Permits that are given back to a fixed window before it ends count as never taken; and no rule gives back more than
//! was asked.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use sluicegate_kernel::algorithm::WindowKind;
use sluicegate_kernel::{
    Cost, FixedWindow, Micros, Moment, Rate, RuleSet, SmoothBursty, SmoothWarmup, States, Verb,
};

const SPAN: Micros = Micros::SECOND;

/// The rules with that promise, on which stores rely to give back grants that no caller received.
fn rules() -> Vec<RuleSet> {
    let kinds = [WindowKind::Epoch(SPAN), WindowKind::First(SPAN)];
    let rule = |kind| FixedWindow::new(30, kind).unwrap();
    kinds.into_iter().map(|kind| RuleSet::single("a", rule(kind))).collect()
}

fn decide(rules: &RuleSet, states: &mut States, verb: &Verb, at_us: u64) -> (u64, Micros) {
    let verdict = rules.decide(states, verb, &Moment::new(Micros::new(at_us))).unwrap();
    (verdict.decision.granted(), verdict.decision.reset_after)
}

proptest! {
    #[test]
    fn a_refund_in_time_leaves_what_there_is_without_the_grant(
        which in 0..rules().len(),
        before in 1_u64..15,
        taken in 1_u64..15,
        others in prop::collection::vec((1_u64..9, 0_u64..300_000), 0..6),
        late in 0_u64..300_000,
    ) {
        let rules = &rules()[which];
        let at_us = 1_800_000_000_000_000;
        let check = |cost| Verb::Check { cost: Cost::new(cost).unwrap() };
        let mut with = States::default();
        decide(rules, &mut with, &check(before), at_us);
        let mut without = with.clone();
        let (granted, reset_after) = decide(rules, &mut with, &check(taken), at_us);
        prop_assume!(granted > 0);
        let mut now = at_us;
        for (cost, later) in others {
            now = (now + later).min(at_us + reset_after.get() - 1);
            if decide(rules, &mut with, &check(cost), now).0 > 0 {
                // What passes beside the grant passes without it.
                prop_assert_eq!(decide(rules, &mut without, &check(cost), now).0, cost);
            }
        }
        now = (now + late).min(at_us + reset_after.get() - 1);
        decide(rules, &mut with, &Verb::Refund { cost: Cost::new(taken).unwrap() }, now);
        let in_use = |states: &States, at_us| rules.in_use(states, &Moment::new(Micros::new(at_us)));
        for at_us in [now, now + 1, now + 143_000, now + 999_999, now + 3_000_000] {
            prop_assert_eq!(in_use(&with, at_us), in_use(&without, at_us));
        }
    }
}

#[test]
fn a_refund_gives_back_no_more_than_was_asked() {
    let rate = Rate::per_second(100).unwrap();
    let bursty = SmoothBursty::new(rate, Micros::from_secs(2)).unwrap();
    let warmup = SmoothWarmup::new(rate, Micros::from_secs(2), 3.0).unwrap();
    for rules in [RuleSet::single("a", bursty), RuleSet::single("a", warmup)] {
        let (mut states, mut now) = (States::default(), 1_800_000_000_000_000);
        let cost = |permits| Cost::new(permits).unwrap();
        for step in 0_u64..10_000 {
            now += 1_003 + step * 7_919 % 40_009;
            decide(&rules, &mut states, &Verb::AtMost { cost: cost(1 + step % 7) }, now);
            let permits = 1 + step % 3;
            let refund = Verb::Refund { cost: cost(permits) };
            let (back, _) = decide(&rules, &mut states, &refund, now + step % 501);
            assert!(back <= permits, "{back} of {permits} at step {step}");
        }
    }
}
