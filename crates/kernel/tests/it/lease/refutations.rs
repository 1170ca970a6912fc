//! Five ways in which earlier protocols let too much pass. Each is a rule now.

use sluicegate_kernel::lease::{Found, Message, Number};
use sluicegate_kernel::{LeaseReply, Micros, SlidingLog, Verb};

use super::holder::{HolderLease, PATIENCE_US, Wish};
use super::key::{Key, SECOND_US, first, next};

const MINUTE_US: u64 = 60 * SECOND_US;

fn wish(want: u32) -> Wish {
    Wish { want, share: u32::MAX, term_us: 1_000_000, ..Wish::default() }
}

/// A lease of 40 that began at one minute, and its holder, whose clock is the store's.
fn leased(key: &mut Key) -> HolderLease {
    let mut holder = HolderLease::new(1);
    let message = holder.ask(&wish(40), MINUTE_US);
    let reply = key.word(&message, MINUTE_US);
    holder.hear(&reply, MINUTE_US);
    assert_eq!(holder.left, 40);
    holder
}

/// Earlier, a repeated message was executed again, with a second grant.
#[test]
fn one_number_is_executed_once_however_often_it_arrives() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 10, 0);
    let message = Message { want: 10, ..next(1, &grant, 4) };
    let once = key.granted(&message, 0);
    assert_eq!((once.kept, once.granted, key.held(), key.in_use(0)), (4, 10, 14, 6));
    for at_us in [0, 1, 900_000] {
        let again = key.granted(&message, at_us);
        assert_eq!((again.kept, again.granted, again.ends), (4, 10, once.ends));
        assert_eq!(again.number, Number(2));
        assert_eq!(key.held(), 14);
    }
    assert_eq!(key.in_use(900_000), 0, "nothing more was charged");
}

/// An earlier protocol answered a repetition of a void message as if its permits stood.
#[test]
fn a_repetition_of_what_was_void_is_void() {
    let mut key = Key::bucket();
    let mut holder = leased(&mut key);
    // The store's clock runs ahead: it has charged the lease, which its holder still uses.
    let late_us = MINUTE_US + 5 * SECOND_US;
    let message = holder.ask(&wish(7), MINUTE_US + 1_000);
    let first = key.granted(&message, late_us);
    assert_eq!((first.found, first.kept, first.granted), (Found::Void, 0, 7));
    let again = key.granted(&message, late_us);
    assert_eq!((again.kept, again.granted), (0, 7));
    holder.hear(&LeaseReply::Granted(again), MINUTE_US + 2_000);
    assert_eq!(holder.left, 7, "only what is new");
}

/// Earlier, a lease that had lapsed was taken up again after the store's clock went back.
#[test]
fn a_lease_that_lapsed_is_not_used_again_after_the_clock_went_back() {
    let mut key = Key::bucket();
    let mut holder = leased(&mut key);
    let lapsed_us = MINUTE_US + 2 * SECOND_US;
    assert!(key.check(60, lapsed_us).allowed());
    assert_eq!(key.held(), 0, "its 40 are charged");
    // Now it is a minute and a half again, and the deadline lies ahead.
    let message = holder.ask(&wish(0), lapsed_us + 1_000);
    assert!(message.ended && message.keep == 0 && message.unspent == 40);
    let reply = key.word(&message, MINUTE_US + SECOND_US / 2);
    holder.hear(&reply, lapsed_us + 1_000);
    assert_eq!((holder.left, key.held()), (0, 0));
}

/// An earlier protocol recognised a lease by its deadline, which changes when a clock goes back.
#[test]
fn a_lease_is_known_by_its_number_and_not_by_its_deadline() {
    let mut key = Key::bucket();
    let mut holder = leased(&mut key);
    // The clock goes back by a minute, and the deadline with it.
    assert!(key.check(1, 1_000).allowed());
    let message = holder.ask(&wish(0), MINUTE_US + 1_000);
    assert_ne!(message.ends, key.leases().records[0].deadline);
    let grant = key.granted(&message, 2_000);
    assert_eq!((grant.found, grant.kept), (Found::Known, 40));

    // And the other way round: another lease with the same deadline is another one.
    let mut key = Key::bucket();
    let old = key.lease(1, 40, 0);
    let unheard = Message { want: 5, keep: 0, ..next(1, &old, 40) };
    let new = key.granted(&unheard, 0);
    assert_eq!((new.ends, new.kept, new.granted), (old.ends, 0, 5));
    let wrong = Message { number: Number(3), ..next(1, &old, 40) };
    assert_eq!(key.granted(&wrong, 0).kept, 0, "it gave these back with the message before");
}

/// Earlier, a message that was half a second late met a clock that had gone back, and its answer was
/// believed.
#[test]
fn an_answer_that_comes_too_late_is_not_believed() {
    // In a log what is charged twice is not in the way of the 100 that pass.
    let mut key = Key::new(SlidingLog::new(100, Micros::from_secs(10)).unwrap());
    let mut holder = leased(&mut key);
    let sent_us = holder.end_us - 1_000;
    let message = holder.ask(&wish(0), sent_us);
    assert!(!message.ended);
    // It is under way for half a second. Meanwhile the lease lapses, and the clock goes back.
    let lapsed_us = MINUTE_US + 2 * SECOND_US;
    assert!(key.check(1, lapsed_us).allowed());
    let back_us = MINUTE_US + SECOND_US / 2;
    let grant = key.granted(&message, back_us);
    assert_eq!((grant.found, grant.kept), (Found::Lost, 40), "the store cannot know better");
    let heard_us = sent_us + SECOND_US / 2;
    assert!(heard_us > sent_us + u64::from(PATIENCE_US));
    holder.hear(&LeaseReply::Granted(grant), heard_us);
    assert!(!holder.take(1, heard_us), "it has ended, and was not prolonged");
    // What the store set aside once more comes back with the next message.
    let message = holder.ask(&wish(0), heard_us);
    assert_eq!(message.keep, 0);
    let _ = key.word(&message, back_us + 1_000);
    assert_eq!(key.held(), 0);
}

/// A draft of this module took a record of a lower number for a sign of lost writes.
#[test]
fn an_old_message_after_the_end_of_its_lease_is_no_sign_of_lost_writes() {
    let mut key = Key::bucket();
    let grant = key.lease(1, 40, 0);
    let old = Message { want: 5, ..next(1, &grant, 40) };
    let renewed = key.granted(&Message { number: Number(3), ..old }, 0);
    // The lease has lapsed when message 2 arrives, which leaves a record of its own.
    let late_us = 2 * SECOND_US;
    let _ = key.word(&old, late_us);
    let in_use = key.in_use(late_us);
    let ended = Message { ended: true, keep: 0, ..next(1, &renewed, 45) };
    let grant = key.granted(&ended, late_us);
    assert_eq!((grant.kept, grant.found), (0, Found::Void));
    assert_eq!((key.in_use(late_us), key.held()), (in_use, 0), "nothing is charged once more");
}

#[test]
fn the_first_message_of_a_holder_may_be_repeated_too() {
    let mut key = Key::bucket();
    let message = Message { want: 10, ..first(1) };
    assert_eq!(key.granted(&message, 0).granted, 10);
    assert_eq!(key.granted(&message, 0).granted, 10);
    assert_eq!(key.held(), 10);
    let peek = Verb::Peek { cost: sluicegate_kernel::Cost::ONE };
    assert_eq!(key.decide(&peek, 0).remaining, 90);
}
