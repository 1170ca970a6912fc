//! The rules R1 to R7, and what each verb does while permits are out.

use sluicegate_kernel::algorithm::{CalendarUnit, Delay, WindowKind};
use sluicegate_kernel::lease::{Found, Holder, LeaseGrant, Message, Number};
use sluicegate_kernel::limits::{LEASE_DEADLINE_MAX_US, LEASE_HOLDERS_MAX};
use sluicegate_kernel::{
    Carry, Concurrency, Cost, FixedWindow, LeakyBucket, LeaseReply, Leased, Micros, Moment,
    NamedRule, Rate, Rule, RuleSet, SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty,
    SmoothWarmup, TokenBucket, Verb,
};

use super::holder::PATIENCE_US;
use super::key::{Key, SECOND_US, first, mark, next};

/// A lease of a second: the deadline is a sixteenth and the patience later.
const LASTS_US: u64 = SECOND_US + SECOND_US / 16 + PATIENCE_US as u64;

fn cost(permits: u64) -> Cost {
    Cost::new(permits).unwrap()
}

#[test]
fn the_example_of_the_essay_is_what_happens() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    assert_eq!((grant.granted, key.held(), grant.free), (40, 40, 60));
    assert!(!key.check(61, 200_000).allowed());
    let report = Message { marks: mark(30, 400_000), ..next(1, &grant, 10) };
    assert_eq!(key.granted(&report, 500_000).free, 63);
    assert_eq!((key.in_use(500_000), key.held()), (27, 10), "26.25, rounded up");
    let all = Verb::AtMost { cost: cost(100) };
    assert_eq!(key.decide(&all, 1_612_500).granted(), 74);
    assert_eq!(key.held(), 0);
}

#[test]
fn r1_a_central_check_finds_room_beside_what_is_held_and_is_charged_its_cost() {
    let mut key = Key::bucket();
    assert_eq!(key.lease(1, 40, 0).granted, 40);
    assert!(key.check(20, 0).allowed());
    assert_eq!(key.check(41, 0).retry_after(), Some(Micros::from_millis(100)));
    let passed = key.check(40, 0);
    assert!(passed.allowed());
    assert_eq!((passed.remaining, key.in_use(0), key.held()), (0, 60, 40));
}

#[test]
fn r1_at_most_takes_what_is_free_beside_what_is_held() {
    let mut key = Key::bucket();
    key.lease(1, 40, 0);
    let taken = key.decide(&Verb::AtMost { cost: cost(100) }, 0);
    assert_eq!((taken.granted(), taken.remaining), (60, 0));
    assert!(!key.decide(&Verb::AtMost { cost: cost(100) }, 0).allowed());
}

#[test]
fn r1_a_cost_that_would_pass_without_leases_is_never_refused_for_ever() {
    let mut key = Key::bucket();
    key.lease(1, 40, 0);
    let refused = key.check(100, 250_000);
    assert_eq!(refused.retry_after(), Some(Micros::new(LASTS_US - 250_000)));
    assert_eq!(key.check(101, 250_000).retry_after(), None);
}

#[test]
fn r2_a_grant_needs_room_beside_what_is_held_and_charges_nothing() {
    let mut key = Key::bucket();
    assert!(key.check(70, 0).allowed());
    let all = Message { need: 100, least: 1, ..first(1) };
    assert_eq!(key.granted(&all, 0).granted, 30);
    assert_eq!((key.held(), key.in_use(0)), (30, 70));
    assert_eq!(key.granted(&Message { holder: Holder(2), ..all }, 0).granted, 0);
    // What is held does not flow out.
    assert_eq!((key.held(), key.in_use(SECOND_US)), (30, 60));
}

#[test]
fn r3_what_is_reported_is_charged_as_of_when_it_was_spent() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let message = Message { marks: mark(30, 400_000), ..next(1, &grant, 10) };
    key.granted(&message, 500_000);
    // By 0.125 s all 30 were spent: of 0.4 s only 15/16 are believed.
    assert_eq!(key.held(), 10);
    let at = Moment::new(Micros::new(500_000));
    assert_eq!(key.rules.in_use(&key.leased.states, &at)[0], 27, "30 - 10/s · 0.375 s, rounded up");
}

#[test]
fn r3_what_no_mark_dates_is_charged_now() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    key.granted(&next(1, &grant, 10), 500_000);
    assert_eq!((key.held(), key.in_use(500_000)), (10, 30));
}

#[test]
fn r3_nothing_is_charged_before_what_the_state_has_seen() {
    let mut key = Key::new(FixedWindow::epoch(100, Micros::SECOND).unwrap());
    let grant = key.lease(1, 40, 600_000);
    assert!(key.check(20, 1_000_000).allowed());
    // The mark is from the window before, which the state has left.
    key.granted(&Message { marks: mark(40, 400_000), ..next(1, &grant, 0) }, 1_050_000);
    assert_eq!(key.in_use(1_050_000), 60);
}

#[test]
fn r3_marks_date_no_more_than_was_spent() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    key.granted(&Message { marks: mark(90, 0), ..next(1, &grant, 30) }, 0);
    assert_eq!((key.held(), key.in_use(0)), (30, 10));
}

#[test]
fn r4_what_is_given_back_is_free_at_once() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    key.granted(&Message { keep: 0, ..next(1, &grant, 40) }, 0);
    assert_eq!((key.held(), key.in_use(0)), (0, 0));
    assert!(key.check(100, 0).allowed());
}

#[test]
fn r5_what_nobody_reports_counts_as_spent_at_the_deadline() {
    let mut key = Key::bucket();
    key.lease(1, 40, 0);
    assert_eq!(key.check(100, LASTS_US - 1).retry_after(), Some(Micros::new(1)));
    let later_us = LASTS_US + SECOND_US;
    assert_eq!(key.check(70, later_us).remaining, 0, "40 at the deadline, less 10 in a second");
    assert!(key.leases().records.is_empty());
}

#[test]
fn r6_a_lease_lasts_a_sixteenth_and_the_patience_longer_than_it_is_used() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    assert_eq!((grant.lasts, grant.ends), (Micros::new(LASTS_US), Micros::new(LASTS_US)));
    assert_eq!((LASTS_US - u64::from(PATIENCE_US)) * 16 / 17, SECOND_US);
}

#[test]
fn r6_a_shorter_term_does_not_end_a_lease_sooner() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let shorter = Message { term_us: 1_000, ..next(1, &grant, 40) };
    assert_eq!(key.granted(&shorter, 1_000).ends, grant.ends);
}

#[test]
fn r7_the_answer_names_what_the_holder_may_go_on_using() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    // Its deadline is past: the record was charged.
    let late = key.granted(&next(1, &grant, 40), LASTS_US);
    assert_eq!((late.kept, late.found), (0, Found::Void));
    let more = key.granted(&next(1, &late, 5), LASTS_US);
    assert_eq!((more.kept, more.found), (0, Found::Void), "it never had 5");
}

#[test]
fn a_grant_that_was_not_heard_of_goes_back_unused() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let more = Message { want: 5, ..next(1, &grant, 40) };
    let lost = key.granted(&more, 0);
    assert_eq!((lost.granted, key.held()), (5, 45));
    let again = Message { number: Number(3), ..next(1, &grant, 30) };
    assert_eq!(key.granted(&again, 0).kept, 30);
    assert_eq!((key.held(), key.in_use(0)), (30, 10));
}

#[test]
fn a_message_that_was_overtaken_changes_nothing() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let early = next(1, &grant, 40);
    key.granted(&Message { number: Number(3), ..early }, 0);
    let before = key.leased.clone();
    assert_eq!(key.word(&early, 1_000), LeaseReply::Superseded);
    assert_eq!(key.leased, before);
}

#[test]
fn a_message_of_no_holder_only_looks() {
    let mut key = Key::bucket();
    key.lease(1, 40, 0);
    let before = key.leased.clone();
    let look = key.granted(&Message { want: 10, ..first(0) }, LASTS_US);
    assert_eq!((look.kept, look.granted, look.free, look.holders), (0, 0, 60, 0));
    assert_eq!(key.leased, before);
}

#[test]
fn what_requests_wait_for_is_granted_in_full_or_enough_for_the_first_of_them() {
    let mut key = Key::bucket();
    assert!(key.check(10, 0).allowed());
    let needy = |need, least| Message { need, least, share: 0, ..first(1) };
    for (message, granted) in [(needy(90, 1), 90), (needy(91, 90), 90), (needy(91, 91), 0)] {
        let mut key = Key { leased: key.leased.clone(), rules: key.rules.clone() };
        assert_eq!(key.granted(&message, 0).granted, granted, "{message:?}");
    }
}

#[test]
fn beyond_need_grants_leave_half_of_the_limit_and_an_equal_part_for_each_holder() {
    let mut key = Key::bucket();
    assert_eq!(key.lease(1, 1_000, 0).granted, 50, "half of the limit");
    assert_eq!(key.lease(2, 1_000, 0).granted, 0, "all that is lent is out");
    let mut key = Key::bucket();
    key.lease(1, 10, 0);
    assert_eq!(key.lease(2, 1_000, 0).granted, 25, "half of the limit for two");
    let mut key = Key::bucket();
    let share = Message { want: 1_000, share: 5, ..first(1) };
    assert_eq!(key.granted(&share, 0).granted, 5);
    let mut key = Key::bucket();
    assert!(key.check(80, 0).allowed());
    assert_eq!(key.lease(1, 1_000, 0).granted, 10, "half of what is free");
    let window = FixedWindow::epoch(100, Micros::SECOND).unwrap();
    let mut key = Key::new(window);
    assert!(key.check(80, 0).allowed());
    assert_eq!(key.lease(1, 1_000, 0).granted, 20, "windows give back in steps: all of it");
}

#[test]
fn a_holder_too_many_gets_only_what_requests_wait_for_and_it_is_charged() {
    let rate = Rate::per_second(1_000).unwrap();
    let mut key = Key::new(TokenBucket::new(rate, 1_000).unwrap());
    let holders = LEASE_HOLDERS_MAX as u64;
    for id in 1..=holders {
        key.lease(id, 1, 0);
    }
    let held = key.held();
    let last = Message { need: 3, want: 100, ..first(holders + 1) };
    let grant = key.granted(&last, 0);
    assert_eq!((grant.found, grant.granted, grant.lasts), (Found::Full, 3, Micros::ZERO));
    assert_eq!((key.held(), key.in_use(0), key.leases().records.len()), (held, 3, 64));
}

#[test]
fn a_reservation_beside_leases_is_refused_with_its_retry_and_books_nothing() {
    let mut key = Key::bucket();
    key.lease(1, 40, 0);
    assert!(key.check(60, 0).allowed());
    let reserve = Verb::Reserve { cost: cost(10), max_wait: Micros::from_secs(60) };
    let before = key.leased.clone();
    assert_eq!(key.decide(&reserve, 0).retry_after(), Some(Micros::SECOND));
    assert_eq!(key.leased, before);
    assert!(key.decide(&reserve, SECOND_US).allowed(), "it passes at once then");
}

#[test]
fn a_peek_is_what_a_check_would_be_answered_and_changes_nothing() {
    let mut key = Key::bucket();
    key.lease(1, 40, 0);
    for at_us in [0, LASTS_US] {
        let before = key.leased.clone();
        let peeked = key.decide(&Verb::Peek { cost: cost(61) }, at_us);
        assert_eq!(key.leased, before);
        assert_eq!(key.check(61, at_us).outcome, peeked.outcome);
    }
}

#[test]
fn a_refund_gives_back_what_is_in_use_and_nothing_that_is_held() {
    let mut key = Key::bucket();
    key.lease(1, 40, 0);
    assert!(key.check(10, 0).allowed());
    let refund = key.decide(&Verb::Refund { cost: cost(30) }, 0);
    assert_eq!((refund.granted(), refund.remaining, key.held()), (10, 60, 40));
}

#[test]
fn a_reset_forgets_what_is_in_use_and_keeps_what_is_out() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    assert!(key.check(60, 0).allowed());
    assert_eq!(key.decide(&Verb::Reset, 0).remaining, 60);
    assert_eq!((key.held(), key.in_use(0)), (40, 0));
    assert!(key.leases().version > grant.hint.version);
    // The holder's hint is older than the reset, so it is not a sign of lost writes.
    assert_eq!(key.granted(&next(1, &grant, 40), 0).found, Found::Known);
    assert_eq!(key.in_use(0), 0);
}

#[test]
fn without_leases_every_verb_is_what_it_is_without_this_module() {
    let mut key = Key::bucket();
    let mut states = key.leased.states.clone();
    let verbs = [
        Verb::Check { cost: cost(30) },
        Verb::Reserve { cost: cost(90), max_wait: Micros::SECOND.plus(Micros::SECOND) },
        Verb::AtMost { cost: cost(30) },
        Verb::Peek { cost: cost(1) },
        Verb::Refund { cost: cost(5) },
        Verb::Reset,
    ];
    for (second, verb) in (0..).zip(&verbs) {
        let at = Moment::new(Micros::from_secs(second));
        let plain = key.rules.decide(&mut states, verb, &at);
        assert_eq!(key.rules.decide_beside(&mut key.leased, verb, &at), plain, "{verb:?}");
        assert_eq!((&key.leased.states, key.leases().version), (&states, Micros::ZERO));
    }
}

#[test]
fn deadlines_follow_a_clock_that_goes_back() {
    let mut key = Key::bucket();
    let hour_us = 3_600 * SECOND_US;
    key.lease(1, 40, hour_us);
    assert!(key.check(1, SECOND_US).allowed());
    let deadline = Micros::new(SECOND_US + LEASE_DEADLINE_MAX_US);
    assert_eq!(key.leases().records[0].deadline, deadline);
}

#[test]
fn what_had_come_back_before_a_grant_stays_so_if_the_clock_goes_back() {
    let mut key = Key::new(SlidingLog::new(100, Micros::from_secs(10)).unwrap());
    assert!(key.check(100, 0).allowed());
    let all = Message { need: 100, least: 1, ..first(1) };
    assert_eq!(key.granted(&all, 10 * SECOND_US).granted, 100);
    assert!(!key.check(1, 9 * SECOND_US).allowed());
    assert_eq!((key.in_use(9 * SECOND_US), key.held()), (0, 100));
}

#[test]
fn a_store_that_lost_everything_learns_from_the_first_holder_what_all_of_them_had() {
    let mut key = Key::bucket();
    assert!(key.check(30, 0).allowed());
    key.lease(1, 10, 0);
    let second = key.lease(2, 10, 0);
    key.leased = sluicegate_kernel::Leased::default();
    let found = key.granted(&next(2, &second, 8), 0);
    assert_eq!((found.found, found.kept), (Found::Lost, 8));
    // 30 in use and 2 spent since; 8 with this holder, and 10 with one that is not known yet.
    assert_eq!((key.in_use(0), key.held(), key.leases().holders()), (32, 18, 1));
    let first = Message { number: Number(2), heard: Number(1), stood: 10, ..first(1) };
    let first = Message { unspent: 10, keep: 10, ends: second.ends, ..first };
    assert_eq!(key.granted(&first, 0).found, Found::Lost);
    assert_eq!((key.in_use(0), key.held(), key.leases().holders()), (32, 18, 2));
}

#[test]
fn a_holder_that_a_store_knows_by_an_older_lease_leaves_what_others_hold_to_the_record_of_nobody() {
    let mut key = Key::bucket();
    let old = key.lease(1, 10, 0);
    let replica = key.leased.clone();
    let more = key.granted(&Message { want: 15, ..next(1, &old, 10) }, 0);
    key.lease(2, 10, 0);
    let third = key.lease(3, 10, 0);
    assert_eq!((more.kept, more.granted, key.held()), (10, 15, 45));
    key.leased = replica;
    assert_eq!(key.granted(&next(3, &third, 10), 0).found, Found::Lost);
    // 10 of the first and 10 of the third; the record of no holder has 15 of the first and 10 of
    // the second.
    let nobodys = |key: &Key| {
        let record = key.leases().records.iter().find(|record| record.holder == Holder::NONE);
        record.unwrap().permits()
    };
    assert_eq!((nobodys(&key), key.held()), (25, 45));
    assert_eq!(key.granted(&next(1, &more, 25), 0).found, Found::Lost);
    assert_eq!((nobodys(&key), key.held()), (10, 45), "the second has not spoken yet");
    assert!(!key.check(56, 0).allowed());
}

#[test]
fn a_lost_lease_that_has_ended_counts_as_spent() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    key.leased = sluicegate_kernel::Leased::default();
    let ended = Message { ended: true, keep: 0, ..next(1, &grant, 40) };
    let grant = key.granted(&ended, SECOND_US);
    assert_eq!((grant.kept, grant.found, key.in_use(SECOND_US)), (0, Found::Lost, 40));
}

#[test]
fn a_hint_older_than_a_minute_is_not_believed() {
    let mut key = Key::bucket();
    assert!(key.check(100, 0).allowed());
    let grant = key.lease(1, 40, 0);
    key.leased = sluicegate_kernel::Leased::default();
    let late = Message { ended: true, ..next(1, &grant, 0) };
    key.granted(&late, 61 * SECOND_US);
    assert_eq!((key.in_use(61 * SECOND_US), key.held()), (0, 0));
}

#[test]
fn the_leases_of_a_key_are_forgotten_when_no_hint_can_name_them_any_more() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    key.granted(&Message { keep: 0, ..next(1, &grant, 40) }, 0);
    let at = Moment::new(Micros::ZERO);
    let until = key.rules.leased_forgettable_at(&key.leased, &at).unwrap().get();
    assert_eq!(until, 60 * SECOND_US + 3);
    assert!(key.check(1, until - 1).allowed());
    assert_eq!(key.leases().version, Micros::new(2));
    assert!(key.check(1, until).allowed());
    assert_eq!(key.leases().version, Micros::ZERO);
}

#[test]
fn a_key_is_kept_until_what_is_out_has_lapsed_and_flowed_out() {
    let mut key = Key::bucket();
    // The 40 permits lapse at the deadline of the lease, and then flow out in 400 s.
    let rate = Rate::new(1, Micros::from_secs(10)).unwrap();
    key.rules = RuleSet::single("r", TokenBucket::new(rate, 100).unwrap());
    key.lease(1, 40, 0);
    let at = Moment::new(Micros::ZERO);
    let until = key.rules.leased_forgettable_at(&key.leased, &at).unwrap();
    assert_eq!(until, Micros::new(LASTS_US + 400 * SECOND_US));
}

#[test]
fn a_rule_that_cannot_be_leased_is_named_with_its_reason() {
    let second = Micros::SECOND;
    let short = Micros::from_millis(9_999);
    let rate = Rate::per_second(1).unwrap();
    let never: [(Rule, &str); 8] = [
        (
            Concurrency::new(1, second, 0).unwrap().into(),
            "rule `r` is a `concurrency`, whose permits cannot be leased",
        ),
        (
            SmoothBursty::new(rate, second).unwrap().into(),
            "rule `r` is a `smooth_bursty`, which books permits in advance",
        ),
        (
            SmoothWarmup::new(rate, second, 3.0).unwrap().into(),
            "rule `r` is a `smooth_warmup`, which books permits in advance",
        ),
        (
            LeakyBucket::new(rate, 9, Delay::Above(3)).unwrap().into(),
            "rule `r` is a `leaky_bucket`, whose `delay` is not `none`",
        ),
        (
            FixedWindow::first(1, Micros::from_millis(999)).unwrap().into(),
            "rule `r` is a `fixed_window`, whose window of less than 1 s is too short to lease",
        ),
        (
            SlidingWindow::new(1, short, 5).unwrap().into(),
            "rule `r` is a `sliding_window`, whose window of less than 10 s is too short to lease",
        ),
        (
            SlidingCounter::new(1, short).unwrap().into(),
            "rule `r` is a `sliding_counter`, whose window of less than 10 s is too short to lease",
        ),
        (
            SlidingLog::new(1, short).unwrap().into(),
            "rule `r` is a `sliding_log`, whose window of less than 10 s is too short to lease",
        ),
    ];
    for (rule, message) in never {
        let token = TokenBucket::new(rate, 100).unwrap();
        let rules = vec![NamedRule::new("first", token), NamedRule::new("r", rule)];
        let error = RuleSet::new(rules).unwrap().leasing_span().unwrap_err();
        assert_eq!((error.rule, error.to_string().as_str()), (1, message));
    }
}

#[test]
fn the_least_span_of_the_rules_is_that_of_the_set() {
    let rate = Rate::per_second(10).unwrap();
    let month = WindowKind::Calendar(CalendarUnit::Month, "UTC".into());
    let rules = vec![
        NamedRule::new("burst", TokenBucket::new(rate, 100).unwrap()),
        NamedRule::new("month", FixedWindow::new(9, month).unwrap()),
    ];
    let span = RuleSet::new(rules).unwrap().leasing_span().unwrap();
    assert_eq!((span.least, span.in_steps), (Micros::from_secs(10), true));
    assert_eq!(span.sliding, None);
    let span = Key::bucket().rules.leasing_span().unwrap();
    assert_eq!((span.least, span.in_steps), (Micros::from_secs(10), false));
    let rules = vec![
        NamedRule::new("minute", SlidingCounter::new(9, Micros::from_secs(60)).unwrap()),
        NamedRule::new("half", SlidingCounter::new(9, Micros::from_secs(30)).unwrap()),
    ];
    let span = RuleSet::new(rules).unwrap().leasing_span().unwrap();
    assert_eq!((span.sliding, span.in_steps), (Some(Micros::from_secs(30)), false));
}

#[test]
fn under_rules_that_cannot_be_leased_permits_only_come_back() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let old = key.rules.clone();
    key.rules = RuleSet::single("r", Concurrency::new(5, Micros::SECOND, 0).unwrap());
    let at = Moment::new(Micros::ZERO);
    key.leased.states = key.rules.take_over(&old, &key.leased.states, &at);
    let more = Message { need: 1, want: 5, ..next(1, &grant, 30) };
    let grant = key.granted(&more, 0);
    assert_eq!((grant.kept, grant.granted), (30, 0));
    let permit = sluicegate_kernel::PermitId(7);
    let taken = key.decide(&Verb::Acquire { cost: cost(5), permit }, 0);
    assert_eq!(taken.granted(), 5, "what is out is no permit of this rule");
    let late = key.decide(&Verb::Release { permit }, LASTS_US);
    assert_eq!((late.granted(), key.held()), (0, 0));
}

#[test]
fn under_a_lower_limit_what_is_out_counts_and_is_charged() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let window = FixedWindow::epoch(10, Micros::from_secs(10)).unwrap();
    key.rules = RuleSet::single("r", window);
    key.leased.states = Default::default();
    assert_eq!(key.check(1, 0).retry_after(), Some(Micros::new(LASTS_US)));
    key.granted(&next(1, &grant, 0), 0);
    assert_eq!(key.in_use(0), 40, "the limit may be raised again");
}

#[test]
fn usage_that_does_not_stay_in_use_is_counted_up_to_twice_the_limit() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let window = FixedWindow::epoch(10, Micros::from_secs(10)).unwrap();
    key.rules = RuleSet::single("r", window).with_carry(Carry::Proportional);
    key.leased.states = Default::default();
    key.granted(&next(1, &grant, 0), 0);
    assert_eq!(key.in_use(0), 20);
}

/// The rules of 100 permits that cannot be leased.
fn not_leasable() -> Vec<Rule> {
    let (rate, short) = (Rate::per_second(10).unwrap(), Micros::from_secs(9));
    vec![
        LeakyBucket::new(rate, 100, Delay::Above(0)).unwrap().into(),
        SmoothBursty::new(rate, Micros::from_secs(10)).unwrap().into(),
        SmoothWarmup::new(rate, Micros::from_secs(10), 3.0).unwrap().into(),
        SlidingWindow::new(100, short, 9).unwrap().into(),
        SlidingCounter::new(100, short).unwrap().into(),
        SlidingLog::new(100, short).unwrap().into(),
        FixedWindow::epoch(100, Micros::from_millis(999)).unwrap().into(),
    ]
}

/// Leases 40 permits of a bucket, whose rules then become `rules`.
fn replaced_while_40_are_out(rules: RuleSet) -> (Key, LeaseGrant) {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let old = core::mem::replace(&mut key.rules, rules);
    assert!(key.rules.leasing_span().is_err());
    key.leased.states = key.rules.take_over(&old, &key.leased.states, &Moment::new(Micros::ZERO));
    (key, grant)
}

/// Permits that are out can still be spent, and what was spent counts: the next edit may bring the bucket back.
#[test]
fn permits_that_are_out_count_under_a_rule_that_cannot_be_leased() {
    for rule in not_leasable() {
        let books = rule.books() && !matches!(rule, Rule::LeakyBucket(_));
        let (mut key, grant) = replaced_while_40_are_out(RuleSet::single("r", rule.clone()));
        // Guava's two let any cost pass, and make the next request wait.
        assert!(books || !key.check(rule.limit() - 39, 0).allowed(), "{rule:?}");
        let before = key.in_use(0);
        assert_eq!(key.granted(&next(1, &grant, 0), 0).granted, 0);
        assert!(key.in_use(0) >= before + 40, "{rule:?}: {before}, then {}", key.in_use(0));
    }
}

#[test]
fn permits_that_are_out_count_under_a_second_rule_that_cannot_be_leased() {
    for rule in not_leasable() {
        let bucket = Key::bucket().rules.rules()[0].rule.clone();
        let both = vec![NamedRule::new("r", bucket), NamedRule::new("second", rule)];
        let (mut key, grant) = replaced_while_40_are_out(RuleSet::new(both).unwrap());
        let at = Moment::new(Micros::ZERO);
        let second = |key: &Key| key.rules.in_use(&key.leased.states, &at)[1];
        let before = second(&key);
        key.granted(&next(1, &grant, 0), 0);
        assert_eq!(key.in_use(0), 40);
        assert!(second(&key) >= before + 40, "{:?}", key.rules.rules()[1]);
    }
}

#[test]
fn a_lease_that_lapses_counts_under_rules_that_cannot_be_leased() {
    let rule = SlidingWindow::new(100, Micros::from_secs(9), 9).unwrap();
    let (mut key, _) = replaced_while_40_are_out(RuleSet::single("r", rule));
    assert!(key.check(60, LASTS_US).allowed());
    assert_eq!((key.in_use(LASTS_US), key.held()), (100, 0));
}

/// Permits that were spent from a lease count, whatever the limit was when they were reported.
#[test]
fn a_limit_that_was_lowered_and_raised_admits_no_more_than_the_higher_one() {
    for rules in [quota, bucket] {
        let mut key = Key { rules: rules(12_000), leased: Leased::default() };
        let grant = key.lease(1, 3_000, 0);
        let old = core::mem::replace(&mut key.rules, rules(1_000));
        let at = Moment::new(Micros::ZERO);
        key.leased.states = key.rules.take_over(&old, &key.leased.states, &at);
        key.granted(&next(1, &grant, 0), 0);
        let old = core::mem::replace(&mut key.rules, rules(12_000));
        key.leased.states = key.rules.take_over(&old, &key.leased.states, &at);
        assert_eq!(key.in_use(0), 3_000);
    }
}

fn quota(limit: u64) -> RuleSet {
    RuleSet::single("r", FixedWindow::epoch(limit, Micros::from_secs(60)).unwrap())
}

fn bucket(limit: u64) -> RuleSet {
    let rate = Rate::new(10, Micros::SECOND).unwrap();
    RuleSet::single("r", TokenBucket::new(rate, limit).unwrap())
}
