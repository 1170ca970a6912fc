//! Future events in the order of time; those of one instant in the order in which they were added.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Future events.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Reverse<QueuedEvent<E>>>,
    /// Events that were ever added.
    count: u64,
}

/// An event: instant and number order it.
#[derive(Debug)]
struct QueuedEvent<E> {
    at: u64,
    number: u64,
    event: E,
}

impl<E> Queue<E> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), count: 0 }
    }

    pub(crate) fn add(&mut self, at: u64, event: E) {
        self.count += 1;
        self.heap.push(Reverse(QueuedEvent { at, number: self.count, event }));
    }

    /// Takes the next event out, with its instant.
    pub(crate) fn next(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|Reverse(QueuedEvent { at, event, .. })| (at, event))
    }
}

impl<E> PartialEq for QueuedEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for QueuedEvent<E> {}

impl<E> PartialOrd for QueuedEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for QueuedEvent<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
