//! Puts lines in the order of time, as far as a bounded buffer can.
//!
//! Servers log a request when it *ends*, so logs are out of order by as long as requests last. A
//! line is released once one has come that is later by more than the window, since those that come then are
//! at most that late. Equal times keep the order of the input.
//!
//! A line that comes after a later one was released is *late*: time does not run back, so it is
//! decided at the time already reached, and counted.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use sluicegate::Micros;

/// Most lines that wait for their turn: with keys of ordinary length under 200 MB. A log that has
/// more lines within the window is put in order as far as this many lines reach.
pub(crate) const REORDER_LINES_MAX: usize = 1_000_000;

/// Lines that wait for their turn.
pub(crate) struct Reorder<T> {
    window: Micros,
    lines_max: usize,
    waiting: BinaryHeap<Reverse<QueuedLine<T>>>,
    pushed: u64,
    /// The latest time that was seen.
    newest: Micros,
    /// The time of the line that was released last.
    reached: Micros,
    late: u64,
}

struct QueuedLine<T> {
    at: Micros,
    place: u64,
    line: T,
}

impl<T> Reorder<T> {
    /// Returns a buffer for lines that are up to `window` late.
    pub(crate) fn new(window: Micros) -> Self {
        Self::with_lines_max(window, REORDER_LINES_MAX)
    }

    fn with_lines_max(window: Micros, lines_max: usize) -> Self {
        Self {
            window,
            lines_max,
            waiting: BinaryHeap::new(),
            pushed: 0,
            newest: Micros::ZERO,
            reached: Micros::ZERO,
            late: 0,
        }
    }

    /// Takes the next line of the input.
    pub(crate) fn push(&mut self, at: Micros, line: T) {
        if at < self.reached {
            self.late += 1;
        }
        let at = at.max(self.reached);
        self.newest = self.newest.max(at);
        self.waiting.push(Reverse(QueuedLine { at, place: self.pushed, line }));
        self.pushed += 1;
    }

    /// Returns the next line in the order of time, with the time at which it is decided, if it may be released.
    pub(crate) fn pop_due(&mut self) -> Option<(Micros, T)> {
        let Reverse(first) = self.waiting.peek()?;
        let due = self.newest.since(first.at) > self.window;
        if due || self.waiting.len() > self.lines_max { self.pop() } else { None }
    }

    /// Returns the next line in the order of time, at the end of the input.
    pub(crate) fn pop(&mut self) -> Option<(Micros, T)> {
        let Reverse(QueuedLine { at, place: _, line }) = self.waiting.pop()?;
        self.reached = at;
        Some((at, line))
    }

    /// Number of lines that came too late to be put in order.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }
}

impl<T> Ord for QueuedLine<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.place).cmp(&(other.at, other.place))
    }
}

impl<T> PartialOrd for QueuedLine<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for QueuedLine<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for QueuedLine<T> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the times in the order of release, each with its place in the input, and the number of late ones.
    fn order(window: u64, lines_max: usize, times: &[u64]) -> (Vec<(u64, usize)>, u64) {
        let mut reorder = Reorder::with_lines_max(Micros::new(window), lines_max);
        let mut out = Vec::new();
        for (place, at) in times.iter().enumerate() {
            reorder.push(Micros::new(*at), place);
            out.extend(std::iter::from_fn(|| reorder.pop_due()));
        }
        out.extend(std::iter::from_fn(|| reorder.pop()));
        (out.into_iter().map(|(at, place)| (at.get(), place)).collect(), reorder.late())
    }

    #[test]
    fn lines_within_the_window_are_put_in_order_and_ties_keep_theirs() {
        let (out, late) = order(5, 100, &[10, 8, 10, 5, 8, 20]);
        assert_eq!(out, [(5, 3), (8, 1), (8, 4), (10, 0), (10, 2), (20, 5)]);
        assert_eq!(late, 0);
    }

    #[test]
    fn a_line_that_is_exactly_the_window_late_is_still_in_time() {
        assert_eq!(
            order(5, 100, &[10, 15, 10, 16, 17]),
            (vec![(10, 0), (10, 2), (15, 1), (16, 3), (17, 4)], 0)
        );
    }

    #[test]
    fn a_later_line_is_counted_and_decided_at_the_time_already_reached() {
        let (out, late) = order(5, 100, &[10, 12, 30, 11, 31]);
        assert_eq!(out, [(10, 0), (12, 1), (12, 3), (30, 2), (31, 4)]);
        assert_eq!(late, 1);
    }

    #[test]
    fn a_full_buffer_lets_the_earliest_line_go() {
        let (out, late) = order(1_000, 2, &[3, 2, 5, 1, 4]);
        assert_eq!((out.len(), late), (5, 1));
        assert!(out.is_sorted());
    }

    proptest! {
        #[test]
        fn time_never_runs_back_and_no_line_is_lost(
            times in proptest::collection::vec(0_u64..100, 0..200),
            window in 0_u64..50,
        ) {
            let (out, late) = order(window, 20, &times);
            prop_assert_eq!(out.len(), times.len());
            prop_assert!(out.is_sorted_by_key(|(at, _)| *at));
            let moved = out.iter().filter(|(at, place)| times[*place] != *at).count();
            prop_assert_eq!(moved as u64, late);
        }

        #[test]
        fn what_is_at_most_a_window_late_comes_out_sorted(
            steps in proptest::collection::vec((0_u64..10, 0_u64..30), 0..200),
        ) {
            let mut now = 100;
            let times: Vec<_> = steps.iter().map(|(step, back)| { now += step; now - back }).collect();
            let (out, late) = order(30, 10_000, &times);
            let mut sorted: Vec<_> = times.into_iter().enumerate().map(|(place, at)| (at, place)).collect();
            sorted.sort();
            prop_assert_eq!((out, late), (sorted, 0));
        }
    }
}
