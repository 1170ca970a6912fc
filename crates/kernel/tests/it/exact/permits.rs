//! Concurrency, answer by answer.

use proptest::prelude::*;
use sluicegate_kernel::{Concurrency, Micros, Moment, RuleSet, States};

use crate::exact::oracle::permits as oracle;
use crate::exact::rules::{permits, spans};
use crate::exact::walk::{Clock, Shape, permit_verbs, prove, same, steps, walks_with};

#[test]
fn concurrency_answers_as_a_list_of_holders_does() {
    let name = "concurrency";
    let walks = (permits(10_000), spans()).prop_flat_map(move |(limit, ttl)| {
        let shape =
            Shape { limit, scale_us: ttl, goes_back: true, gives_back: true, steps: steps(name) };
        (Just((limit, ttl)), walks_with(shape, permit_verbs(limit)))
    });
    prove(name, walks, |((limit, ttl), walk)| {
        let rule = Concurrency::new(limit, Micros::new(ttl), 0).unwrap();
        let rules = RuleSet::single("rule", rule);
        let mut oracle = oracle::Concurrency { limit, ttl, held: Vec::new() };
        let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
        for asked in &walk.steps {
            let now = clock.go(asked.time);
            let moment = Moment::new(Micros::new(now));
            let decision = rules.decide(&mut states, &asked.verb, &moment).unwrap().decision;
            let expected = oracle.answer(&asked.verb, now);
            same(&decision, &expected, || format!("at {now}: {:?}", asked.verb))?;
            clock.hear(&decision);
        }
        Ok(())
    });
}
