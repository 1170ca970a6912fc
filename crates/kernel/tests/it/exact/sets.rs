//! Several rules: each also decides on its own, and the answer of the set must be the joined one.

use proptest::prelude::*;
use sluicegate_kernel::{
    Cost, Decision, Micros, Moment, NamedRule, Outcome, Retry, Rule, RuleSet, States, Verb, Verdict,
};

use crate::exact::rules::any_rate_rule;
use crate::exact::walk::{Clock, Shape, prove, same, steps, walks};

/// Rules that remember nothing of a request that another rule refused.
pub(crate) fn sets() -> impl Strategy<Value = Vec<(Rule, u64)>> {
    let full_at_first = any_rate_rule().prop_filter("starts full", |(rule, _)| match rule {
        Rule::TokenBucket(bucket) => bucket.initial() == bucket.burst(),
        _ => true,
    });
    proptest::collection::vec(full_at_first, 2..=5)
}

struct Alone {
    rules: RuleSet,
    states: States,
}

impl Alone {
    fn would(&self, verb: &Verb, now: u64) -> Decision {
        decide(&self.rules, &mut self.states.clone(), verb, now).decision
    }
}

fn decide(rules: &RuleSet, states: &mut States, verb: &Verb, now: u64) -> Verdict {
    rules.decide(states, verb, &Moment::new(Micros::new(now))).unwrap()
}

#[test]
fn a_set_charges_every_rule_or_none() {
    let name = "sets of rules";
    let walks = sets().prop_flat_map(move |rules| {
        let limit = rules.iter().map(|(rule, _)| rule.limit()).min().unwrap();
        let scale_us = rules.iter().map(|(_, scale)| *scale).min().unwrap();
        let shape =
            Shape { limit, scale_us, goes_back: false, gives_back: true, steps: steps(name) };
        (Just(rules), walks(shape))
    });
    prove(name, walks, |(rules, walk)| {
        let named = rules.iter().enumerate().map(|(place, (rule, _))| NamedRule {
            name: format!("rule-{place}").into(),
            rule: rule.clone(),
        });
        let set = RuleSet::new(named.collect()).unwrap();
        let mut alone: Vec<_> = rules
            .iter()
            .map(|(rule, _)| Alone {
                rules: RuleSet::single("rule", rule.clone()),
                states: States::default(),
            })
            .collect();
        let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
        for asked in &walk.steps {
            let now = clock.go(asked.time);
            let verdict = decide(&set, &mut states, &asked.verb, now);
            let expected = together(&mut alone, &asked.verb, now);
            same(&verdict, &expected, || format!("at {now}: {:?} of {set:?}", asked.verb))?;
            clock.hear(&verdict.decision);
        }
        Ok(())
    });
}

/// Joins the answers of rules that decide alone; all are charged, or none.
fn together(alone: &mut [Alone], verb: &Verb, now: u64) -> Verdict {
    let verb = &match *verb {
        // Take what the rule with the least has, or check one to find when there will be some.
        Verb::AtMost { .. } => {
            let granted = alone.iter().map(|rule| rule.would(verb, now).granted()).min().unwrap();
            Verb::Check { cost: Cost::new(granted).unwrap_or(Cost::ONE) }
        }
        ref other => other.clone(),
    };
    let apart: Vec<_> = alone.iter().map(|rule| rule.would(verb, now)).collect();
    let slowest = apart.iter().enumerate().rev().max_by_key(|(_, decision)| retry(decision));
    let (rule, decision) = slowest.unwrap();
    if !decision.allowed() {
        return Verdict { decision: *decision, rule };
    }
    if !matches!(verb, Verb::Peek { .. }) {
        for rule in alone {
            decide(&rule.rules, &mut rule.states, verb, now);
        }
    }
    let granted = apart.iter().map(Decision::granted).min().unwrap();
    let wait = apart.iter().map(Decision::wait).max().unwrap();
    let slowest = apart.iter().position(|decision| decision.wait() == wait).unwrap();
    let rule = if wait > Micros::ZERO {
        slowest
    } else {
        apart.iter().enumerate().min_by_key(|(_, decision)| decision.remaining).unwrap().0
    };
    let decision = Decision { outcome: Outcome::Allow { granted, wait }, ..apart[rule] };
    Verdict { decision, rule }
}

fn retry(decision: &Decision) -> Retry {
    match decision.outcome {
        Outcome::Allow { .. } => Retry::After(Micros::ZERO),
        Outcome::Deny { retry } => retry,
    }
}
