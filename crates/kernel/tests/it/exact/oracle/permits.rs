//! Held permits, as a list.

use sluicegate_kernel::{Decision, Outcome, PermitId, Verb};

use super::{never, pass, retry, span};

/// A `concurrency` rule with the permits that are held.
#[derive(Clone, Debug)]
pub(crate) struct Concurrency {
    pub(crate) limit: u64,
    pub(crate) ttl: u64,
    pub(crate) held: Vec<Held>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    permit: PermitId,
    cost: u64,
    lapses: u64,
}

impl Concurrency {
    pub(crate) fn answer(&mut self, verb: &Verb, now: u64) -> Decision {
        if let Verb::Peek { cost } = verb {
            let mut seen = self.clone();
            seen.arrive(now);
            let outcome = seen.ask(cost.get(), now);
            return seen.report(outcome, now);
        }
        self.arrive(now);
        let outcome = match *verb {
            Verb::Acquire { cost, permit } => self.acquire(cost.get(), permit, now),
            Verb::Release { permit } => match self.find(permit, now) {
                Some(place) => {
                    let released = self.held.remove(place);
                    self.forget_lapsed(now);
                    pass(released.cost)
                }
                None => never(),
            },
            Verb::Renew { permit } => match self.find(permit, now) {
                Some(place) => {
                    self.held[place].lapses = now + self.ttl;
                    pass(self.held[place].cost)
                }
                None => never(),
            },
            // A permit goes back by its name; nothing else can be given back.
            Verb::Refund { .. } => pass(0),
            Verb::Reset => {
                self.held.clear();
                pass(0)
            }
            _ => unreachable!("the walks ask for nothing else"),
        };
        self.report(outcome, now)
    }

    /// Limits every hold to `ttl` from now.
    fn arrive(&mut self, now: u64) {
        for held in &mut self.held {
            held.lapses = held.lapses.min(now + self.ttl);
        }
    }

    /// Removes permits that have lapsed. Until a permit comes or goes they stay: the clock may go
    /// back.
    fn forget_lapsed(&mut self, now: u64) {
        self.held.retain(|held| held.lapses > now);
    }

    fn find(&self, permit: PermitId, now: u64) -> Option<usize> {
        self.held.iter().position(|held| held.permit == permit && held.lapses > now)
    }

    fn in_use(&self, now: u64) -> u64 {
        self.held.iter().filter(|held| held.lapses > now).map(|held| held.cost).sum()
    }

    fn acquire(&mut self, cost: u64, permit: PermitId, now: u64) -> Outcome {
        if self.find(permit, now).is_some() {
            return never();
        }
        let outcome = self.ask(cost, now);
        if let Outcome::Allow { .. } = outcome {
            self.forget_lapsed(now);
            self.held.push(Held { permit, cost, lapses: now + self.ttl });
        }
        outcome
    }

    fn ask(&self, cost: u64, now: u64) -> Outcome {
        let fits = |at: u64| self.in_use(at) + cost <= self.limit;
        if cost > self.limit {
            return never();
        }
        if fits(now) {
            return pass(cost);
        }
        let lapses = self.held.iter().map(|held| held.lapses);
        let first = lapses.filter(|lapses| *lapses > now && fits(*lapses)).min();
        retry(first.expect("when all have lapsed it fits") - now)
    }

    fn report(&self, outcome: Outcome, now: u64) -> Decision {
        let last = self.held.iter().map(|held| held.lapses).max().unwrap_or(now);
        Decision {
            outcome,
            limit: self.limit,
            remaining: self.limit - self.in_use(now),
            reset_after: span(last.saturating_sub(now)),
        }
    }
}
