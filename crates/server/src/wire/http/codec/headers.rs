//! Header fields about a client's budget.

use std::cell::RefCell;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use sluicegate::Answer;
use sluicegate::internals::http::HeaderFormat;
use sluicegate::internals::http::headers::{add_retry_after, rate_limit_policy};
use sluicegate_kernel::{NamedRule, RuleSet};

use crate::wire::headers::BudgetHeaders;

/// Maximum number of rules whose field a thread remembers, each in one place by its address: some
/// hundred are used often, and they are small.
const KNOWN_MAX: usize = 256;

impl BudgetHeaders {
    /// Adds the fields of `answer`.
    pub(crate) fn add_to(self, headers: &mut HeaderMap, answer: &Answer) {
        self.add_limits_to(headers, answer);
        add_retry_after(headers, &answer.decision);
    }

    /// Adds the fields of `answer` without `Retry-After`.
    pub(crate) fn add_limits_to(self, headers: &mut HeaderMap, answer: &Answer) {
        let (rule, decision) = (answer.rule(), &answer.decision);
        if self.ratelimit {
            HeaderFormat::Draft10.add_to(headers, rule, decision, &policy_of(answer.rules()));
        }
        if self.x_ratelimit {
            let none = HeaderValue::from_static("");
            HeaderFormat::XRateLimit.add_to(headers, rule, decision, &none);
        }
    }
}

/// Rules, and the value of their field, which is constant.
type CachedHeader = Option<(Arc<RuleSet>, HeaderValue)>;

thread_local! {
    /// The known values, by address.
    static KNOWN: RefCell<[CachedHeader; KNOWN_MAX]> =
        const { RefCell::new([const { None }; KNOWN_MAX]) };
}

/// The value of `RateLimit-Policy` for `rules`.
fn policy_of(rules: &Arc<RuleSet>) -> HeaderValue {
    let place = Arc::as_ptr(rules).addr() / size_of::<RuleSet>() % KNOWN_MAX;
    KNOWN.with_borrow_mut(|known| match &known[place] {
        // The known rules are kept alive, so that no others can have their address.
        Some((held, value)) if Arc::ptr_eq(held, rules) => value.clone(),
        _ => {
            let named = rules.rules().iter().map(|NamedRule { name, rule }| (&**name, rule));
            let value = rate_limit_policy(named);
            known[place] = Some((Arc::clone(rules), value.clone()));
            value
        }
    })
}

#[cfg(test)]
mod tests {
    use sfv::{BareItem, List, ListEntry, Parser};
    use sluicegate::policy::{Document, PolicySet};
    use sluicegate::{Cost, Engine, Micros, Request, Verb};

    use super::*;
    use crate::config::HeaderStyle;

    const POLICIES: &str = "
policies:
  - name: p
    rules:
      - { name: burst, token_bucket: { rate: 5/s, burst: 10 } }
      - { name: hourly, fixed_window: { limit: 12, window: 1h } }
";

    fn engine() -> Arc<Engine> {
        let policies = Document::parse(POLICIES).expect("it is a document");
        Arc::new(Engine::in_memory(PolicySet::new(policies)))
    }

    fn check(engine: &Arc<Engine>, cost: u64) -> Answer {
        let cost = Cost::new(cost).expect("it is in its range");
        let request = Request::new("p", Some(b"k"), Verb::Check { cost });
        let turn = engine.turn_at(Micros::from_secs(7_200));
        let decided = turn.try_decide(&request).expect("memory need not be waited for");
        decided.expect("there is such a policy").answer
    }

    /// The members of the list that the field is: each with its integer parameters.
    fn list(headers: &HeaderMap, name: &str) -> Vec<(String, Vec<(String, i64)>)> {
        let value = headers.get(name).expect("the field is there");
        let list: List = Parser::new(value.as_bytes()).parse().expect("it is a list of RFC 9651");
        let member = |entry| {
            let ListEntry::Item(item) = entry else { panic!("an inner list in {value:?}") };
            let BareItem::String(name) = item.bare_item else { panic!("no string in {value:?}") };
            let integers = item.params.into_iter().map(|(key, value)| match value {
                BareItem::Integer(integer) => (key.into(), integer.into()),
                other => panic!("{key:?} is {other:?}"),
            });
            (name.into(), integers.collect())
        };
        list.into_iter().map(member).collect()
    }

    fn told(styles: &[HeaderStyle], answer: &Answer) -> HeaderMap {
        let mut headers = HeaderMap::new();
        BudgetHeaders::of(styles).add_to(&mut headers, answer);
        headers
    }

    fn member(name: &str, parameters: &[(&str, i64)]) -> (String, Vec<(String, i64)>) {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), *value));
        (name.to_owned(), parameters.collect())
    }

    #[test]
    fn the_structured_fields_say_every_limit_and_what_is_left_of_the_tightest() {
        let headers = told(&[HeaderStyle::Ratelimit], &check(&engine(), 3));
        let policies =
            [member("burst", &[("q", 10), ("w", 2)]), member("hourly", &[("q", 12), ("w", 3_600)])];
        assert_eq!(list(&headers, "ratelimit-policy"), policies);
        assert_eq!(list(&headers, "ratelimit"), [member("burst", &[("r", 7), ("t", 1)])]);
        assert_eq!(headers.len(), 2, "{headers:?}");
    }

    #[test]
    fn what_is_remembered_of_rules_is_never_said_of_others() {
        for limit in 1..=1_000 {
            let document = POLICIES.replace("limit: 12", &format!("limit: {limit}"));
            let document = Document::parse(&document).expect("it is a document");
            let engine = Arc::new(Engine::in_memory(PolicySet::new(document)));
            for _ in 0..2 {
                let headers = told(&[HeaderStyle::Ratelimit], &check(&engine, 1));
                let field = headers["ratelimit-policy"].to_str().expect("it is text");
                assert!(field.ends_with(&format!("\"hourly\";q={limit};w=3600")), "{field}");
            }
        }
    }

    #[test]
    fn a_refusal_says_when_to_come_again_in_all_fields_alike() {
        let engine = engine();
        check(&engine, 10);
        let refused = check(&engine, 6);
        assert!(!refused.decision.allowed());
        let headers = told(&[HeaderStyle::Ratelimit, HeaderStyle::XRatelimit], &refused);
        assert_eq!(list(&headers, "ratelimit"), [member("hourly", &[("r", 2), ("t", 3_600)])]);
        assert_eq!(headers["retry-after"], "3600");
        for (name, value) in [("limit", "12"), ("remaining", "2"), ("reset", "3600")] {
            assert_eq!(headers[format!("x-ratelimit-{name}")], value);
        }
    }

    #[test]
    fn what_can_never_pass_has_no_time_to_come_again() {
        let headers = told(&[], &check(&engine(), 11));
        assert!(headers.is_empty(), "{headers:?}");
    }
}
