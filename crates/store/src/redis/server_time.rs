//! The time that a decision takes Redis, which has one thread for all keys.
//!
//! The times are measured with states as long as their rules allow, on the server's side
//! (`examples/redis_state_cost.rs`, `bench/README.md`).

use sluicegate_kernel::{NamedRule, RangeError, RuleSet};

use super::numbers::whole;

/// The longest time of a decision that is permitted, in µs: a key with a long state takes it from all
/// others.
pub const DECISION_US_MAX: u64 = 300;

/// The time of every decision, and of every rule of constant size, in ns.
pub(super) const CALL_NS: u64 = 10_000;
const RULE_NS: u64 = 5_000;

/// The rules whose states grow: code, name, the place of the number that bounds the state and its name,
/// and the time of each entry in ns.
const GROWING: [(u8, &str, usize, &str, u64); 3] = [
    (6, "sliding_window", 3, "buckets", 285),
    (8, "sliding_log", 0, "limit", 114),
    (9, "concurrency", 0, "limit", 285),
];

/// Returns the time that a rule adds to a decision, in ns; `number` returns its numbers by place.
pub(super) fn rule_ns(code: u8, number: impl Fn(usize) -> u64) -> u64 {
    let growing = GROWING.iter().find(|growing| growing.0 == code);
    RULE_NS + growing.map_or(0, |(_, _, place, _, each_ns)| number(*place) * each_ns)
}

/// Checks that Redis may decide by `rules`.
///
/// # Errors
/// [`RangeError`] if a decision could take longer than [`DECISION_US_MAX`]: it names the rule whose state
/// may grow the longest, and the range that the others leave it.
pub fn affordable(rules: &RuleSet) -> Result<(), RangeError> {
    let of = |named: &NamedRule| {
        let numbers = named.rule.numbers();
        rule_ns(named.rule.code(), |place| numbers.get(place).map_or(0, |number| whole(*number)))
    };
    let costs_ns: Vec<_> = rules.rules().iter().map(of).collect();
    let (sum_ns, max_ns) = (CALL_NS + costs_ns.iter().sum::<u64>(), DECISION_US_MAX * 1_000);
    let dearest = rules.rules().iter().zip(&costs_ns).max_by_key(|(_, cost_ns)| **cost_ns);
    let (true, Some((NamedRule { name, rule }, cost_ns))) = (sum_ns > max_ns, dearest) else {
        return Ok(());
    };
    let Some((_, kind, place, field, each_ns)) = GROWING.iter().find(|it| it.0 == rule.code())
    else {
        return Ok(());
    };
    let given = rule.numbers().get(*place).map_or(0, |number| whole(*number));
    let left_ns = (max_ns + cost_ns).saturating_sub(sum_ns + RULE_NS);
    let permitted = match left_ns / each_ns {
        0 => "the other rules use up the allowance".to_owned(),
        most => format!("expected 1..={most}"),
    };
    let instead = if *kind == "sliding_log" { "; use `sliding_window` for more" } else { "" };
    let problem = format!(
        "`{given}` could take Redis over {DECISION_US_MAX} µs per decision: {permitted}{instead}"
    );
    Err(RangeError::new(&format!("{name}.{kind}.{field}"), problem))
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::{Concurrency, Micros, Rule, SlidingLog, SlidingWindow, TokenBucket};

    use super::*;

    fn said(rules: impl IntoIterator<Item = Rule>) -> Option<String> {
        let named = |(place, rule)| NamedRule { name: format!("r{place}").into(), rule };
        let rules = RuleSet::new(rules.into_iter().enumerate().map(named).collect());
        affordable(&rules.expect("at most eight")).err().map(|error| error.to_string())
    }

    fn log(limit: u64) -> Rule {
        SlidingLog::new(limit, Micros::SECOND).expect("in range").into()
    }

    fn window(buckets: u64) -> Rule {
        SlidingWindow::new(1 << 32, Micros::SECOND, buckets).expect("in range").into()
    }

    fn held(limit: u64) -> Rule {
        Concurrency::new(limit, Micros::SECOND, 0).expect("in range").into()
    }

    #[test]
    fn a_rule_may_cost_what_is_permitted_and_no_more() {
        for (most, rule) in [(2_500, log as fn(u64) -> Rule), (1_000, held)] {
            assert_eq!(said([rule(most)]), None);
            let error = said([rule(most + 1)]).expect("one too many");
            assert!(error.contains(&format!("`{}` could take", most + 1)), "{error}");
            assert!(error.contains(&format!("expected 1..={most}")), "{error}");
        }
        assert_eq!(said([window(1_000)]), None);
    }

    #[test]
    fn the_rules_of_a_policy_share_what_a_decision_may_cost() {
        assert_eq!(said([log(1_200), log(1_200)]), None);
        let error = said([log(1_200), log(1_800)]).expect("too much together");
        assert!(error.starts_with("r1.sliding_log.limit: `1800` could take"), "{error}");
        assert!(error.contains("expected 1..=1256; use `sliding_window`"), "{error}");
        assert!(
            said((0..8).map(|_| window(250))).expect("too much").contains("use up the allowance")
        );
        assert_eq!(said((0..8).map(|_| window(109))), None);
    }

    #[test]
    fn rules_of_constant_size_are_always_affordable() {
        let rate = sluicegate_kernel::Rate::per_second(1).expect("a rate");
        let bucket = || TokenBucket::new(rate, 1 << 32).expect("in range").into();
        assert_eq!(said((0..8).map(|_| bucket())), None);
    }
}
