//! The permits of a key that are held, for an operator: see [`RuleSet::held`].
//!
//! A permit is held under every `concurrency` rule of a policy, and each rule has its own `ttl`. The list has a permit once,
//! until it has lapsed under all of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::algorithm::{Rule, State};
use crate::decision::{HeldPermits, ListedPermit, Moment, PermitId};
use crate::ruleset::RuleSet;
use crate::states::States;

impl RuleSet {
    /// Returns the permits that are held, of the key whose usage is `states`. It changes nothing.
    pub fn held(&self, states: &States, at: &Moment<'_>) -> HeldPermits {
        let mut seen = states.clone();
        seen.fit(self.rules().len());
        self.rewind(&mut seen, at);
        let (mut by_id, mut waiting) = (BTreeMap::<PermitId, ListedPermit>::new(), 0);
        for (named, state) in self.rules().iter().zip(seen.as_slice()) {
            let (Rule::Concurrency(_), Some(State::Concurrency(state))) = (&named.rule, state)
            else {
                continue;
            };
            // The rules of an edit have not all held the same permits: the one that holds longest counts.
            waiting = state.waiting().max(waiting);
            for held in state.listed(at.now()) {
                let listed = by_id.entry(held.permit).or_insert(held);
                if listed.lapses_after < held.lapses_after {
                    *listed = held;
                }
            }
        }
        let mut permits: Vec<_> = by_id.into_values().collect();
        permits.sort_by_key(|held| held.lapses_after);
        HeldPermits { permits, waiting }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use crate::algorithm::Concurrency;
    use crate::decision::ProcessId;
    use crate::limits::TICKET_TTL_US;
    use crate::num::{Cost, Micros};
    use crate::ruleset::NamedRule;
    use crate::verb::Verb;

    fn concurrency(limit: u64, ttl_s: u64, queue: u64) -> Concurrency {
        Concurrency::new(limit, Micros::from_secs(ttl_s), queue).expect("parameters of a test")
    }

    fn at(seconds: u64) -> Moment<'static> {
        Moment::new(Micros::from_secs(seconds))
    }

    fn acquire(rules: &RuleSet, states: &mut States, name: &str, cost: u64, seconds: u64) {
        let (cost, permit) = (Cost::new(cost).expect("a cost"), PermitId::named(name));
        let verb = Verb::Acquire { cost, permit };
        let verdict = rules.decide(states, &verb, &at(seconds)).expect("a verb of permits");
        assert!(verdict.decision.allowed(), "{name}");
    }

    fn of(name: &str, cost: u64, lapses_after_s: u64) -> ListedPermit {
        let lapses_after = Micros::from_secs(lapses_after_s);
        ListedPermit { permit: PermitId::named(name), cost, lapses_after }
    }

    #[test]
    fn held_permits_are_listed_in_the_order_in_which_they_lapse() {
        let rules = RuleSet::single("slots", concurrency(4, 30, 1));
        let mut states = States::default();
        assert_eq!(rules.held(&states, &at(0)), HeldPermits::default());
        acquire(&rules, &mut states, "a", 1, 0);
        acquire(&rules, &mut states, "b", 3, 1);
        let (permit, process) = (PermitId::named("c"), ProcessId(7));
        let wait = Verb::Wait { cost: Cost::ONE, permit, process };
        rules.decide(&mut states, &wait, &at(1)).expect("a verb of permits");
        let held = rules.held(&states, &at(2));
        assert_eq!(held, HeldPermits { permits: vec![of("a", 1, 28), of("b", 3, 29)], waiting: 1 });
        let renew = Verb::Renew { permit: PermitId::named("a") };
        rules.decide(&mut states, &renew, &at(3)).expect("a verb of permits");
        let held = rules.held(&states, &at(4));
        assert_eq!(held.permits, [of("b", 3, 27), of("a", 1, 29)]);
        // What has lapsed, and a process that has gone, are not listed, though the state has them.
        let later = Moment::new(Micros::from_secs(31).plus(Micros::new(TICKET_TTL_US)));
        assert_eq!(rules.held(&states, &later), HeldPermits::default());
    }

    #[test]
    fn a_permit_of_two_rules_is_listed_once_until_it_has_lapsed_under_both() {
        let rules = vec![
            NamedRule::new("short", concurrency(2, 5, 0)),
            NamedRule::new("long", concurrency(9, 60, 0)),
        ];
        let rules = RuleSet::new(rules).expect("two rules");
        let mut states = States::default();
        acquire(&rules, &mut states, "a", 2, 0);
        assert_eq!(rules.held(&states, &at(1)).permits, [of("a", 2, 59)]);
        assert_eq!(rules.held(&states, &at(6)).permits, [of("a", 2, 54)]);
    }

    #[test]
    fn a_clock_that_is_set_back_shows_no_more_than_the_ttl() {
        let rules = RuleSet::single("slots", concurrency(1, 30, 0));
        let mut states = States::default();
        acquire(&rules, &mut states, "a", 1, 1_000);
        assert_eq!(rules.held(&states, &at(10)).permits, [of("a", 1, 30)]);
    }

    #[test]
    fn an_id_is_32_digits_in_text_and_nothing_else_is() {
        let id = PermitId(0xab);
        let text = id.to_string();
        assert_eq!(text, "000000000000000000000000000000ab");
        assert_eq!(PermitId::from_hex(&text), Some(id));
        assert_eq!(PermitId::from_hex(&text.to_uppercase()), Some(id));
        let longer = alloc::format!("{text}0");
        let signed = alloc::format!("+{}", &text[1..]);
        for wrong in ["", "ab", &longer, &signed, "g0000000000000000000000000000000", "é"] {
            assert_eq!(PermitId::from_hex(wrong), None, "{wrong}");
        }
    }
}
