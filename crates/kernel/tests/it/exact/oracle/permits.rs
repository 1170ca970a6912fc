//! Held permits and waiting requests, as lists.

use std::collections::BTreeMap;

use sluicegate_kernel::{Called, Decision, Outcome, PermitId, ProcessId, Retry, Verb};

use super::{never, pass, retry, span};

/// The time for which a process that waits counts as present after it has asked.
const PRESENT: u64 = 3_000_000;

/// A `concurrency` rule with the permits that are held, and the requests that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Concurrency {
    limit: u64,
    ttl: u64,
    queue: usize,
    held: Vec<Held>,
    line: Vec<Waiting>,
    /// Until when each process with a waiting request is present.
    present: BTreeMap<ProcessId, u64>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    permit: PermitId,
    cost: u64,
    process: ProcessId,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    permit: PermitId,
    cost: u64,
    lapses: u64,
}

impl Concurrency {
    pub(crate) fn new(limit: u64, ttl: u64, queue: usize) -> Self {
        Self { limit, ttl, queue, ..Self::default() }
    }

    pub(crate) fn answer(&mut self, verb: &Verb, now: u64) -> Decision {
        if let Verb::Peek { cost } = verb {
            let mut seen = self.clone();
            seen.arrive(now);
            let outcome = seen.ask(cost.get(), None, now);
            return seen.report(outcome, now);
        }
        self.arrive(now);
        let outcome = match *verb {
            Verb::Acquire { cost, permit } => self.acquire(cost.get(), permit, now),
            Verb::Wait { cost, permit, process } => self.wait(cost.get(), permit, process, now),
            Verb::Leave { permit, process } => {
                let before = self.line.len();
                self.line.retain(|it| (it.permit, it.process) != (permit, process));
                self.forget_idle();
                if self.line.len() < before { pass(0) } else { never() }
            }
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
                (self.held, self.line) = (Vec::new(), Vec::new());
                self.present.clear();
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
        for until in self.present.values_mut() {
            *until = (*until).min(now + PRESENT);
        }
        self.present.retain(|_, until| *until > now);
        self.line.retain(|waiting| self.present.contains_key(&waiting.process));
    }

    /// Forgets processes without waiting requests.
    fn forget_idle(&mut self) {
        let line = &self.line;
        self.present.retain(|process, _| line.iter().any(|waiting| waiting.process == *process));
    }

    /// The waiting requests that all fit beside what is held, from the first on.
    pub(crate) fn called(&self, now: u64) -> Vec<Called> {
        let mut taken = self.in_use(now);
        let fits = |waiting: &&Waiting| {
            taken += waiting.cost;
            taken <= self.limit
        };
        let called = self.line.iter().take_while(fits).take(16);
        called.map(|it| Called { permit: it.permit, process: it.process }).collect()
    }

    fn wait(&mut self, cost: u64, permit: PermitId, process: ProcessId, now: u64) -> Outcome {
        let outcome = self.acquire(cost, permit, now);
        let Outcome::Deny { retry: Retry::After(wait) } = outcome else { return outcome };
        let wanted = Waiting { permit, cost, process };
        match self.line.iter().position(|waiting| waiting.permit == permit) {
            Some(place) => self.line[place] = wanted,
            None if self.line.len() == self.queue => return outcome,
            None => self.line.push(wanted),
        }
        self.present.insert(process, now + PRESENT);
        self.forget_idle();
        Outcome::Allow { granted: 0, wait }
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
        let outcome = self.ask(cost, Some(permit), now);
        if let Outcome::Allow { .. } = outcome {
            self.forget_lapsed(now);
            self.line.retain(|waiting| waiting.permit != permit);
            self.forget_idle();
            self.held.push(Held { permit, cost, lapses: now + self.ttl });
        }
        outcome
    }

    fn ask(&self, cost: u64, permit: Option<PermitId>, now: u64) -> Outcome {
        let before = self.line.iter().take_while(|waiting| Some(waiting.permit) != permit);
        let before: u64 = before.map(|waiting| waiting.cost).sum();
        let fits = |at: u64| self.in_use(at) + before + cost <= self.limit;
        if cost > self.limit {
            return never();
        }
        if fits(now) {
            return pass(cost);
        }
        let lapses = self.held.iter().map(|held| held.lapses);
        let first = lapses.filter(|lapses| *lapses > now && fits(*lapses)).min();
        // Requests that wait want more than is left: nothing is sure before all are gone.
        retry(first.unwrap_or_else(|| self.last(now)) - now)
    }

    /// The instant from which nothing is held, and no process that waits is present.
    fn last(&self, now: u64) -> u64 {
        let held = self.held.iter().map(|held| held.lapses);
        held.chain(self.present.values().copied()).max().unwrap_or(now)
    }

    fn report(&self, outcome: Outcome, now: u64) -> Decision {
        Decision {
            outcome,
            limit: self.limit,
            remaining: self.limit - self.in_use(now),
            reset_after: span(self.last(now).saturating_sub(now)),
        }
    }
}
