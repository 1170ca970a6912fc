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
    state: KeyLease,
    cell: Cell,
    last_reply: LastReply,
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
            LeasedBudget::new(&request, &LeaseTerms { rules: &rules, bounds })
        };
        let session = LeaseSession::new(Holder(1_000), Micros::from_millis(80), Arc::default());
        let state = KeyLease::new(session, subject, cost, Micros::from_millis(20), ms(0));
        Self {
            state,
            cell: Cell::closed(),
            last_reply: LastReply::default(),
            store: Leased::default(),
        }
    }

    /// Returns the key as a lease of a table.
    pub(in crate::lease) fn into_lease(self, number: u64, key: KeyHash) -> Lease {
        let Self { state, cell, last_reply, .. } = self;
        let (rules, low, is_due) = Default::default();
        Lease { number, key, cell, rules, low, last_reply, is_due, state: Mutex::new(state) }
    }

    /// Returns the store's answer to `message`.
    fn store(&mut self, message: &Message, now: Micros) -> LeaseReply {
        self.state.rules().lease(&mut self.store, message, &Moment::new(now))
    }

    /// Delivers the message that is due, and its answer. Returns the message.
    fn exchange(&mut self, now: Micros) -> Message {
        let message = self.state.next_message(&self.cell, now).expect("a message is due").message;
        let reply = self.store(&message, now);
        self.state.on_reply(&self.cell, &self.last_reply, Ok(&reply), now);
        message
    }

    fn miss(&mut self, cost: u32, now: Micros) -> QueueTicket {
        match self.state.miss(&self.cell, cost, now) {
            MissOutcome::Waits(place) => place,
            other => panic!("{other:?}"),
        }
    }

    /// Grants `permits` to another holder.
    fn lease_elsewhere(&mut self, holder: u64, permits: u32, now: Micros) {
        let mut session =
            LeaseSession::new(Holder(holder), Micros::from_millis(80), Arc::default());
        let term = Micros::from_secs(2);
        let request = LeaseRequest {
            need: permits,
            least: permits,
            share: permits,
            term,
            ..LeaseRequest::default()
        };
        let message = session.ask(&Cell::closed(), &request, now);
        let LeaseReply::Granted(grant) = self.store(&message, now) else {
            panic!("it is the first")
        };
        assert_eq!(grant.granted, permits);
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
    let message = key.state.next_message(&key.cell, ms(0)).expect("a request waits").message;
    assert!(!key.state.runs_low(&key.cell, ms(1)), "an answer is awaited");
    let reply = key.store(&message, ms(1));
    key.state.on_reply(&key.cell, &key.last_reply, Ok(&reply), ms(1));
    key.state.yields_since = Some(ms(1));
    assert!(!key.state.runs_low(&key.cell, ms(2)), "it makes room for another key");
    key.state.yields_since = None;
    key.state.cold = Some((ms(1), 0));
    assert!(!key.state.runs_low(&key.cell, ms(2)), "it is not worth a lease");
    key.state.cold = None;
    assert!(key.state.runs_low(&key.cell, ms(2)));
    assert!(key.state.next_message(&key.cell, ms(2)).is_some());
}

#[test]
fn permits_that_run_low_wait_for_the_pace_where_they_are_short() {
    let mut key = Key::hot(1);
    key.lease_elsewhere(1, 1_000, ms(0));
    let mut place = key.miss(1, ms(0));
    assert_eq!(key.exchange(ms(0)).need, 1);
    assert!(matches!(place.try_recv(), Ok(WaitOutcome::Refused(_))));
    assert!(!key.state.runs_low(&key.cell, ms(1)), "the store had none a millisecond ago");
    assert!(key.state.runs_low(&key.cell, ms(1_300)));
}

#[test]
fn a_renewal_gives_back_more_than_twice_what_is_needed_and_a_request_for_more_does_not() {
    for (reason, keep) in [(Reason::Renew, 2 * 24), (Reason::More, 199)] {
        let mut key = Key::hot(25);
        let _place = key.miss(1, ms(0));
        key.exchange(ms(0));
        assert_eq!(key.cell.left(), 199, "a share, of which one request took one");
        // From now on 16 permits are requested in a second: those of 1.5 s are enough.
        key.state.demand = Demand::begin(8, 8, Micros::from_millis(500), ms(9));
        (key.state.reason, key.state.last_ask) = (Some(reason), ms(9));
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
    let message = key.state.next_message(&key.cell, ms(0)).expect("two requests wait").message;
    drop(left);
    let reply = key.store(&message, ms(1));
    key.state.on_reply(&key.cell, &key.last_reply, Ok(&reply), ms(1));
    let Ok(WaitOutcome::Taken(hit)) = stays.try_recv() else { panic!("5 permits came") };
    let decision = hit.verdict.decision;
    let outcome = Outcome::Allow { granted: 2, wait: Micros::ZERO };
    assert_eq!((decision.outcome, decision.remaining), (outcome, 3));
    assert_eq!(key.cell.left(), 0, "they are no lease");
}

#[test]
fn a_cold_key_is_warm_again_after_eight_requests_within_half_a_second() {
    let mut key = Key::hot(1);
    let mut warm_at = |nth_ms: [u64; 9]| {
        key.state.cold = Some((ms(0), 0));
        nth_ms.into_iter().position(|at| key.state.is_warm(1, ms(at)))
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
        key.state.next_message(&key.cell, ms(0)).expect("a request waits");
        key.state.on_reply(&key.cell, &key.last_reply, Err(&error), ms(1));
        let outcome = place.try_recv().expect("it is answered");
        assert_eq!(matches!(outcome, WaitOutcome::Failed(_)), fails, "{outcome:?}");
        let may_wait = matches!(key.state.miss(&key.cell, 1, ms(2)), MissOutcome::Waits(_));
        assert_eq!(
            may_wait, fails,
            "a message that failed for its key is not repeated for a while"
        );
    }
}

#[test]
fn a_message_that_gives_back_what_was_not_heard_of_requests_no_permits() {
    let mut key = Key::hot(1);
    let place = key.miss(1, ms(0));
    key.state.next_message(&key.cell, ms(0)).expect("a request waits");
    let gone = StoreError::Unavailable { reason: "gone".to_owned(), executed: Executed::Perhaps };
    key.state.on_reply(&key.cell, &key.last_reply, Err(&gone), ms(20));
    drop(place);
    assert!(!key.state.tick(&key.cell, ms(199)));
    assert!(key.state.tick(&key.cell, ms(200)));
    let message = key.exchange(ms(200));
    assert_eq!((message.need, message.want, message.unspent), (0, 0, 0));
    // A request that came meanwhile waits for this message: it requests permits.
    let mut key = Key::hot(1);
    let _place = key.miss(1, ms(0));
    key.state.reason = Some(Reason::Unheard);
    assert_eq!(key.exchange(ms(200)).need, 1);
}
