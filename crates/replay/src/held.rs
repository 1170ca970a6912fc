//! Delayed requests of a gateway, in virtual time.
//!
//! A delayed request goes on at exactly its instant, before any request at or after it; of several at the same instant,
//! the first that came goes first. So the answer to a line never depends on the lines after it.

use std::collections::BTreeMap;

use sluicegate::internals::gateway::{GuardingBudget, PolicyDecision};
use sluicegate::{DecideError, Micros};

use super::decider::{Decider, Deciding, Progressed};
use super::request::StreamedRequest;

/// Requests that are delayed, each with a tag of the caller. The engine bounds their number
/// ([`sluicegate::internals::HELD_MAX`]).
pub(crate) struct HeldRequests<T> {
    held: BTreeMap<(Micros, u64), HeldRequest<T>>,
    /// The number of the next request.
    next: u64,
}

struct HeldRequest<T> {
    deciding: Deciding,
    budgets: Vec<GuardingBudget>,
    tag: T,
}

/// A request whose decision has begun.
struct BegunRequest {
    deciding: Deciding,
    budgets: Vec<GuardingBudget>,
}

/// The answer to a request.
pub(crate) struct Decided<T> {
    /// The tag of the caller.
    pub(crate) tag: T,
    /// The budgets that it asked for; empty for a request of a server.
    pub(crate) budgets: Vec<GuardingBudget>,
    /// The decisions of all its policies, or of the one that does not let it pass.
    pub(crate) decided: Result<Vec<PolicyDecision>, DecideError>,
}

impl<T> HeldRequests<T> {
    /// Returns an empty set.
    pub(crate) const fn new() -> Self {
        Self { held: BTreeMap::new(), next: 0 }
    }

    /// Asks `decider` at `at` for a permit from each of `budgets`; `None`: the request is delayed. `tag` gets
    /// whether it is, and returns its tag.
    pub(crate) fn ask(
        &mut self,
        decider: &Decider,
        at: Micros,
        budgets: Vec<GuardingBudget>,
        tag: impl FnOnce(bool) -> T,
    ) -> Option<Decided<T>> {
        let deciding = decider.ask_as_gateway(budgets.clone(), at);
        self.begin(decider, at, BegunRequest { deciding, budgets }, tag)
    }

    /// Asks `decider` at `at` to decide a request of a server again; otherwise like [`ask`](Self::ask).
    pub(crate) fn ask_again(
        &mut self,
        decider: &Decider,
        at: Micros,
        request: StreamedRequest,
        tag: impl FnOnce(bool) -> T,
    ) -> Option<Decided<T>> {
        let deciding = decider.ask_again(request, at);
        self.begin(decider, at, BegunRequest { deciding, budgets: Vec::new() }, tag)
    }

    fn begin(
        &mut self,
        decider: &Decider,
        at: Micros,
        request: BegunRequest,
        tag: impl FnOnce(bool) -> T,
    ) -> Option<Decided<T>> {
        let BegunRequest { mut deciding, budgets } = request;
        match decider.progress(&mut deciding, at) {
            Progressed::Decided(decided) => Some(Decided { tag: tag(false), budgets, decided }),
            Progressed::HeldUntil(due) => {
                let request = HeldRequest { deciding, budgets, tag: tag(true) };
                self.held.insert((due, self.next), request);
                self.next += 1;
                None
            }
        }
    }

    /// Returns the next delayed request that is decided at `now` or before.
    pub(crate) fn next_decided(&mut self, decider: &Decider, now: Micros) -> Option<Decided<T>> {
        loop {
            let first = self.held.first_entry().filter(|first| first.key().0 <= now)?;
            let ((at, number), mut request) = first.remove_entry();
            match decider.progress(&mut request.deciding, at) {
                Progressed::Decided(decided) => {
                    let HeldRequest { budgets, tag, .. } = request;
                    return Some(Decided { tag, budgets, decided });
                }
                // An instant later at least, so that time goes on.
                Progressed::HeldUntil(due) => {
                    self.held.insert((due.max(at.plus(Micros::new(1))), number), request);
                }
            }
        }
    }

    /// Removes the request whose tag `is_wanted`, as if its caller had gone away.
    pub(crate) fn remove(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut held = self.held.iter();
        let key = *held.find(|(_, request)| is_wanted(&request.tag))?.0;
        self.held.remove(&key).map(|request| request.tag)
    }
}
