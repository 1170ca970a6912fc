//! Spenders and the keeper of a lease never mislead each other: every interleaving is explored.

#![cfg(feature = "engine")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the checker needs only a part of it")]
#[path = "../../src/lease/cell.rs"]
mod cell;

use cell::Cell;
use loom::sync::Arc;
use loom::thread;

/// The atomics that the model checker steps through.
mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}

/// Explores the interleavings with at most three switches where a thread could go on: all of them take minutes.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

/// An instant before the end of all leases here.
const EARLY: u64 = 10;

/// Returns a cell with `permits` until `end`.
fn open(permits: u32, end: u64) -> Arc<Cell> {
    let cell = Arc::new(Cell::closed());
    cell.open(permits, end);
    cell
}

/// Takes one permit at each instant; the result returns the number of permits taken.
fn spenders(cell: &Arc<Cell>, at: [u64; 2]) -> impl FnOnce() -> u32 {
    let spenders = at.map(|now| {
        let cell = Arc::clone(cell);
        thread::spawn(move || u32::from(cell.take(1, || now).is_some()))
    });
    move || spenders.into_iter().map(|spender| spender.join().unwrap()).sum()
}

#[test]
fn no_permit_is_spent_twice() {
    model(|| {
        let cell = open(1, 20);
        let spent = spenders(&cell, [EARLY, EARLY])();
        assert_eq!((spent, cell.left(), cell.hits()), (1, 0, 1));
    });
}

#[test]
fn what_a_message_says_is_unspent_is_not_spent_beside_it() {
    model(|| {
        let cell = open(2, 20);
        let spent = spenders(&cell, [EARLY, EARLY]);
        // One goes back, if it is there; the rest is kept.
        let unspent = cell.give_back(1);
        let keep = unspent.saturating_sub(1);
        let (spent, left) = (spent(), cell.left());
        assert!(left <= keep, "{left} of {keep}");
        assert_eq!(spent, (2 - unspent) + (keep - left), "each is spent, kept or given back");
    });
}

#[test]
fn what_is_void_is_taken_out_before_more_is_granted() {
    model(|| {
        let cell = open(2, 20);
        let spent = spenders(&cell, [EARLY, EARLY]);
        let unspent = cell.close();
        cell.open(1, 30);
        let (spent, left) = (spent(), cell.left());
        assert_eq!(spent, (2 - unspent) + (1 - left), "none of what is void is spent");
    });
}

#[test]
fn what_has_ended_is_not_spent_under_the_next_end() {
    model(|| {
        let cell = open(1, 20);
        // Both come after the first end: they can only have later permits.
        let spent = spenders(&cell, [25, 25]);
        let ended = cell.close();
        cell.open(1, 40);
        assert_eq!(ended, 1);
        let spent = spent();
        assert!(spent <= 1, "{spent}");
        assert_eq!(spent + cell.left(), 1);
    });
}

#[test]
fn permits_are_not_put_back_beyond_what_the_store_stands_for() {
    model(|| {
        let cell = open(1, 20);
        let spent = spenders(&cell, [EARLY, EARLY]);
        let is_back = cell.put_back(1, 1);
        let (spent, left) = (spent(), cell.left());
        assert!(left <= 1, "{left}");
        assert_eq!(spent + left, 1 + u32::from(is_back));
    });
}

#[test]
fn a_cell_that_is_stopped_gives_nothing_to_those_that_come_after() {
    model(|| {
        let cell = open(1, 20);
        cell.stop();
        let spent = spenders(&cell, [EARLY, EARLY])();
        assert_eq!((spent, cell.left()), (0, 1));
    });
}
