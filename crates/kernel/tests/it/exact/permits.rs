//! Concurrency, answer by answer.

use proptest::prelude::*;
use sluicegate_kernel::{Concurrency, Micros, Moment, RuleSet, States};

use crate::exact::oracle::permits as oracle;
use crate::exact::rules::{permits, spans};
use crate::exact::walk::{Clock, Shape, permit_verbs, prove, same, steps, walks_with};

#[test]
fn concurrency_answers_as_a_list_of_holders_does() {
    let name = "concurrency";
    let queues = prop_oneof![Just(0), 1..=4_u64, Just(10_000)];
    let walks = (permits(10_000), spans(), queues).prop_flat_map(move |(limit, ttl, queue)| {
        let shape =
            Shape { limit, scale_us: ttl, goes_back: true, gives_back: true, steps: steps(name) };
        (Just((limit, ttl, queue)), walks_with(shape, permit_verbs(limit)))
    });
    prove(name, walks, |((limit, ttl, queue), walk)| {
        let rule = Concurrency::new(limit, Micros::new(ttl), queue).unwrap();
        let rules = RuleSet::single("rule", rule);
        let queue = usize::try_from(queue).unwrap();
        let mut oracle = oracle::Concurrency::new(limit, ttl, queue);
        let (mut states, mut clock) = (States::default(), Clock::new(walk.start));
        for asked in &walk.steps {
            let now = clock.go(asked.time);
            let moment = Moment::new(Micros::new(now));
            let decision = rules.decide(&mut states, &asked.verb, &moment).unwrap().decision;
            let expected = oracle.answer(&asked.verb, now);
            same(&decision, &expected, || format!("at {now}: {:?}", asked.verb))?;
            prop_assert_eq!(rules.called(&states, &moment), oracle.called(now));
            clock.hear(&decision);
        }
        Ok(())
    });
}
