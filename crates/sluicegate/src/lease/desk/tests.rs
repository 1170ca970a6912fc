//! One key at its holder, beside the kernel's own record of its leases.

use std::sync::Mutex;

use sluicegate_kernel::algorithm::WindowKind;
use sluicegate_kernel::lease::{Holder, Leased};
use sluicegate_kernel::limits::LEASE_HOLDERS_MAX;
use sluicegate_kernel::{FixedWindow, Moment};
use sluicegate_policy::LeaseBounds;
use sluicegate_store::{Executed, KeyHash};

use super::super::{LOOK, Lease};
use super::*;

/// A quota of 1,000 an hour, of which one holder may have 200.
pub(in crate::lease) struct Key {
    desk: Desk,
    cell: Cell,
    said: Said,
    store: Leased,
}

impl Key {
    /// Returns a key that became hot at `ms(0)`: 8 requests of `cost` came in 20 ms.
    pub(in crate::lease) fn hot(cost: u32) -> Self {
        let hour = WindowKind::Epoch(Micros::from_secs(3_600));
        let quota = FixedWindow::new(1_000, hour).expect("a quota");
        let rules = Rules::new(RuleSet::single("r", quota)).expect("it follows no calendar");
        let subject = {
            let (origin, quota) = (RuleOrigin::Caller, Quota::of("p"));
            let (policy, key, verb) = ("p", &b"k"[..], &LOOK);
            let request = StoreRequest { policy, key, rules: rules.set(), verb, origin, quota };
            let bounds = LeaseBounds { share_percent: 20, term: Micros::from_secs(2) };
            Subject::new(&request, &LeaseTerms { rules: &rules, bounds })
        };
        let talk = Talk::new(Holder(1_000), Micros::from_millis(80), Arc::default());
        let desk = Desk::new(talk, subject, (cost, Micros::from_millis(20)), ms(0));
        Self { desk, cell: Cell::closed(), said: Said::default(), store: Leased::default() }
    }

    /// Returns the key as a lease of a table.
    pub(in crate::lease) fn into_lease(self, number: u64, key: KeyHash) -> Lease {
        let Self { desk, cell, said, .. } = self;
        let (rules, low, is_due) = Default::default();
        Lease { number, key, cell, rules, low, said, is_due, desk: Mutex::new(desk) }
    }

    /// Returns the store's answer to `message`.
    fn store(&mut self, message: &Message, now: Micros) -> Word {
        self.desk.rules().lease(&mut self.store, message, &Moment::new(now))
    }

    /// Delivers the message that is due, and its answer. Returns the message.
    fn exchange(&mut self, now: Micros) -> Message {
        let message = self.desk.speak(&self.cell, now).expect("a message is due").message;
        let word = self.store(&message, now);
        self.desk.heard((&self.cell, &self.said), Ok(&word), now);
        message
    }

    fn miss(&mut self, cost: u32, now: Micros) -> Place {
        match self.desk.miss(&self.cell, cost, now) {
            Asked::Waits(place) => place,
            other => panic!("{other:?}"),
        }
    }

    /// Grants `permits` to another holder.
    fn lease_elsewhere(&mut self, holder: u64, permits: u32, now: Micros) {
        let mut talk = Talk::new(Holder(holder), Micros::from_millis(80), Arc::default());
        let term = Micros::from_secs(2);
        let wish = Wish { need: permits, least: permits, share: permits, term, ..Wish::default() };
        let message = talk.ask(&Cell::closed(), &wish, now);
        let Word::Stands(stands) = self.store(&message, now) else { panic!("it is the first") };
        assert_eq!(stands.granted, permits);
    }
}

/// Returns the instant `after` ms after a start.
fn ms(after: u64) -> Micros {
    Micros::from_millis(1_000_000 + after)
}

#[test]
fn permits_that_run_low_are_requested_once_and_for_a_key_that_is_kept() {
    let mut key = Key::hot(1);
    let _place = key.miss(1, ms(0));
    let message = key.desk.speak(&key.cell, ms(0)).expect("a request waits").message;
    assert!(!key.desk.runs_low(&key.cell, ms(1)), "an answer is awaited");
    let word = key.store(&message, ms(1));
    key.desk.heard((&key.cell, &key.said), Ok(&word), ms(1));
    key.desk.yields_since = Some(ms(1));
    assert!(!key.desk.runs_low(&key.cell, ms(2)), "it makes room for another key");
    key.desk.yields_since = None;
    key.desk.cold = Some((ms(1), 0));
    assert!(!key.desk.runs_low(&key.cell, ms(2)), "it is not worth a lease");
    key.desk.cold = None;
    assert!(key.desk.runs_low(&key.cell, ms(2)));
    assert!(key.desk.speak(&key.cell, ms(2)).is_some());
}

#[test]
fn permits_that_run_low_wait_for_the_pace_where_they_are_short() {
    let mut key = Key::hot(1);
    key.lease_elsewhere(1, 1_000, ms(0));
    let mut place = key.miss(1, ms(0));
    assert_eq!(key.exchange(ms(0)).need, 1);
    assert!(matches!(place.try_recv(), Ok(Outcome::Refused(_))));
    assert!(!key.desk.runs_low(&key.cell, ms(1)), "the store had none a millisecond ago");
    assert!(key.desk.runs_low(&key.cell, ms(1_300)));
}

#[test]
fn a_renewal_gives_back_more_than_twice_what_is_needed_and_a_request_for_more_does_not() {
    for (reason, keep) in [(Reason::Renew, 2 * 24), (Reason::More, 199)] {
        let mut key = Key::hot(25);
        let _place = key.miss(1, ms(0));
        key.exchange(ms(0));
        assert_eq!(key.cell.left(), 199, "a share, of which one request took one");
        // From now on 16 permits are requested in a second: those of 1.5 s are enough.
        key.desk.demand = Demand::begin(8, 8, Micros::from_millis(500), ms(9));
        (key.desk.reason, key.desk.last_ask) = (Some(reason), ms(9));
        let message = key.exchange(ms(9));
        assert_eq!((message.unspent, message.keep), (199, keep), "{reason:?}");
    }
}

#[test]
fn permits_of_a_waiter_that_left_are_for_the_next_when_the_store_has_no_place_for_the_holder() {
    let mut key = Key::hot(1);
    for holder in 1..=LEASE_HOLDERS_MAX as u64 {
        key.lease_elsewhere(holder, 1, ms(0));
    }
    let (left, mut stays) = (key.miss(3, ms(0)), key.miss(2, ms(0)));
    let message = key.desk.speak(&key.cell, ms(0)).expect("two requests wait").message;
    drop(left);
    let word = key.store(&message, ms(1));
    key.desk.heard((&key.cell, &key.said), Ok(&word), ms(1));
    let Ok(Outcome::Taken(hit)) = stays.try_recv() else { panic!("5 permits came") };
    let decision = hit.verdict.decision;
    let outcome = Decided::Allow { granted: 2, wait: Micros::ZERO };
    assert_eq!((decision.outcome, decision.remaining), (outcome, 3));
    assert_eq!(key.cell.left(), 0, "they are no lease");
}

#[test]
fn a_cold_key_is_warm_again_after_eight_requests_within_half_a_second() {
    let mut key = Key::hot(1);
    let mut warm_at = |nth_ms: [u64; 9]| {
        key.desk.cold = Some((ms(0), 0));
        nth_ms.into_iter().position(|at| key.desk.is_warm(1, ms(at)))
    };
    assert_eq!(warm_at([10, 10, 10, 10, 10, 10, 10, 500, 500]), Some(7));
    // The count begins anew with a request that comes later.
    assert_eq!(warm_at([10, 10, 10, 10, 10, 10, 10, 501, 502]), None);
    assert_eq!(warm_at([501, 510, 520, 530, 540, 550, 560, 1_001, 1_001]), Some(7));
}

#[test]
fn waiters_ask_the_store_themselves_after_an_error_that_is_no_outage() {
    let gone = StoreError::Unavailable { reason: "gone".to_owned(), executed: Executed::No };
    let damaged = StoreError::Unreadable { reason: "damaged".to_owned() };
    for (error, fails) in [(gone, true), (damaged, false)] {
        let mut key = Key::hot(1);
        let mut place = key.miss(1, ms(0));
        key.desk.speak(&key.cell, ms(0)).expect("a request waits");
        key.desk.heard((&key.cell, &key.said), Err(&error), ms(1));
        let outcome = place.try_recv().expect("it is answered");
        assert_eq!(matches!(outcome, Outcome::Failed(_)), fails, "{outcome:?}");
        let may_wait = matches!(key.desk.miss(&key.cell, 1, ms(2)), Asked::Waits(_));
        assert_eq!(may_wait, fails, "a message that failed for its key is not repeated for a while");
    }
}
