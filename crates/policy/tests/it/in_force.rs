//! A version of a policy is in force since a set with it was taken over, and later than the one before.

use sluicegate_kernel::Micros;
use sluicegate_policy::{Document, PolicySet};

fn document(burst: u64) -> Document {
    let text = format!(
        "policies: [{{ name: a, rules: [{{ token_bucket: {{ rate: 1/s, burst: {burst} }} }}] }}, \
         {{ name: b, rules: [{{ token_bucket: {{ rate: 1/s }} }}] }}]"
    );
    Document::parse(&text).expect("a document")
}

fn since(set: &PolicySet, name: &str) -> Micros {
    set.resolve(name).expect("it is there").in_force_since()
}

#[test]
fn what_changed_is_later_and_what_did_not_stays() {
    let (now, later) = (Micros::from_secs(100), Micros::from_secs(200));
    let first = PolicySet::new(document(1)).in_force(&PolicySet::default(), now);
    assert_eq!((since(&first, "a"), since(&first, "b")), (now, now));
    let second = PolicySet::succeeding(&first, document(2)).in_force(&first, later);
    assert_eq!((since(&second, "a"), since(&second, "b")), (later, now));
    let again = PolicySet::succeeding(&second, document(2)).in_force(&second, Micros::MAX);
    assert_eq!((since(&again, "a"), since(&again, "b")), (later, now));
}

#[test]
fn a_version_is_later_than_the_one_before_it_although_the_clock_stands_or_goes_back() {
    let now = Micros::from_secs(100);
    let first = PolicySet::new(document(1)).in_force(&PolicySet::default(), now);
    let second = PolicySet::succeeding(&first, document(2)).in_force(&first, now);
    let third = PolicySet::succeeding(&second, document(1)).in_force(&second, Micros::ZERO);
    assert!(since(&first, "a") < since(&second, "a") && since(&second, "a") < since(&third, "a"));
    // The very set that was in force before is taken over anew.
    let fourth = first.clone().in_force(&third, Micros::ZERO);
    assert!(since(&fourth, "a") > since(&third, "a"));
}
