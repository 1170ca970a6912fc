//! One holder's messages, without a store.

use sluicegate_kernel::algorithm::WindowKind;
use sluicegate_kernel::lease::Leased;
use sluicegate_kernel::{FixedWindow, Moment, RuleSet};

use super::*;

/// Returns the instant `after` ms after a start.
fn ms(after: u64) -> Micros {
    Micros::from_millis(1_000_000 + after)
}

#[test]
fn what_nobody_heard_of_is_asked_back_at_200_600_and_1400_ms_until_it_has_ended() {
    let mut session = LeaseSession::new(Holder(1), Micros::from_millis(80), Arc::default());
    let (cell, term) = (Cell::closed(), Micros::from_secs(2));
    let asks = LeaseRequest { need: 1, least: 1, want: 9, share: 9, term, back: 0 };
    session.ask(&cell, &asks, ms(0));
    session.give_up();
    for due in [200, 600, 1_400] {
        assert!(!session.is_unheard(ms(due - 1)), "{due}");
        assert!(session.is_unheard(ms(due)), "{due}");
        // It requests nothing, and is not answered either.
        session.ask(&cell, &LeaseRequest::default(), ms(due));
        session.give_up();
    }
    session.ask(&cell, &asks, ms(4_000));
    session.give_up();
    // The term of 2 s, a sixteenth more, and the 80 ms of its patience.
    assert!(session.is_unheard(ms(6_204)));
    assert!(!session.is_unheard(ms(6_205)), "the store has ended it by then");
}

#[test]
fn what_was_heard_is_not_asked_back() {
    let mut session = LeaseSession::new(Holder(1), Micros::from_millis(80), Arc::default());
    let (cell, term) = (Cell::closed(), Micros::from_secs(2));
    session.ask(
        &cell,
        &LeaseRequest { need: 1, least: 1, want: 9, share: 9, term, back: 0 },
        ms(0),
    );
    session.give_up();
    let message = session.ask(&cell, &LeaseRequest::default(), ms(200));
    let hour = WindowKind::Epoch(Micros::from_secs(3_600));
    let rules = RuleSet::single("r", FixedWindow::new(100, hour).expect("a quota"));
    let reply = rules.lease(&mut Leased::default(), &message, &Moment::new(ms(201)));
    assert!(matches!(session.on_reply(&cell, &reply, ms(202), |_| {}), ReplyOutcome::Granted(_)));
    assert!(!session.is_unheard(ms(1_000)));
}

#[test]
fn what_was_put_back_was_not_spent_by_an_earlier_instant() {
    let mut session = LeaseSession::new(Holder(1), Micros::from_millis(80), Arc::default());
    let (cell, term) = (Cell::closed(), Micros::from_secs(2));
    let asks = LeaseRequest { need: 1, least: 1, want: 99, share: 99, term, back: 0 };
    let message = session.ask(&cell, &asks, ms(0));
    let hour = WindowKind::Epoch(Micros::from_secs(3_600));
    let rules = RuleSet::single("r", FixedWindow::new(1_000, hour).expect("a quota"));
    let reply = rules.lease(&mut Leased::default(), &message, &Moment::new(ms(1)));
    assert!(matches!(session.on_reply(&cell, &reply, ms(2), |_| {}), ReplyOutcome::Granted(_)));
    assert!(cell.take(40, || ms(10).get()).is_some());
    session.mark(&cell, ms(25));
    assert!(session.put_back(&cell, 40, ms(50)));
    assert!(cell.take(40, || ms(150).get()).is_some());
    let message = session.ask(&cell, &LeaseRequest::default(), ms(200));
    let marks = message.marks.as_slice();
    assert!(marks.iter().all(|mark| mark.spent == 0), "{marks:?}");
}

#[test]
fn permits_spent_at_the_instant_of_the_last_message_have_a_mark() {
    let mut log = MarkLog::default();
    log.note(5, ms(10), ms(10));
    log.note(5, ms(10), ms(20));
    let marks = log.take(ms(30));
    let marks: Vec<_> = marks.as_slice().iter().map(|mark| (mark.spent, mark.age_us)).collect();
    assert_eq!(marks, [(5, 20_000)]);
}

#[test]
fn marks_move_apart_when_there_are_more_than_fit_into_a_message() {
    let mut log = MarkLog::default();
    let noted = [(1, 10), (2, 20), (3, 30), (4, 40), (5, 50), (6, 99), (7, 100)];
    for (spent, at) in noted {
        log.note(spent, ms(0), ms(at));
    }
    let marks = log.take(ms(110));
    let marks: Vec<_> = marks.as_slice().iter().map(|mark| (mark.spent, mark.age_us)).collect();
    // Two of the first four stay; after that they are 50 ms apart: the one at 99 ms is part of the next.
    assert_eq!(marks, [(2, 90_000), (2, 70_000), (1, 60_000), (2, 10_000)]);
}
