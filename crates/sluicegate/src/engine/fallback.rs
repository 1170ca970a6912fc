//! What is decided while the store does not answer: what the policy says under `on_store_failure`.
//!
//! **`local`**: this node enforces its share. Among n nodes every permit counts n times against the
//! whole limit: a request of cost c is charged c·n, so a node lets `burst/n` pass at once and
//! `rate/n` in the long run, and all nodes together no more than the limit. It begins from what the
//! store last said was in use, which the store's answers put down here as they come by.
//!
//! Example: `100/s burst 50` on 4 nodes; the store last said 10 are left. A node that counts 4 for
//! one lets 2 pass (8 of 10), and then one every 40 ms.
//!
//! A limit smaller than the number of nodes leaves no node a whole permit: it refuses. Choose `allow`
//! or `deny` for such policies.

use sluicegate_kernel::limits::COST_MAX;
use sluicegate_kernel::{
    Cost, Decision, Micros, Moment, Outcome, Retry, Unsupported, Verb, Verdict,
};
use sluicegate_store::{KeyHash, MemoryStore, Request};

/// When to ask again where nothing is known: the store may be back by then.
const ASK_AGAIN: Micros = Micros::SECOND;

/// This node's part of every budget.
#[derive(Debug)]
pub(super) struct Share {
    nodes: u64,
    usage: MemoryStore,
}

impl Share {
    /// One of `nodes` equal parts, for at most `keys_max` keys.
    pub(super) fn new(nodes: u64, keys_max: usize) -> Self {
        Self { nodes, usage: MemoryStore::new(keys_max) }
    }

    pub(super) fn hash(&self, request: &Request<'_>) -> KeyHash {
        self.usage.hash(request.policy, request.key)
    }

    /// Puts down what the store said is in use.
    pub(super) fn learn(
        &self,
        key: KeyHash,
        request: &Request<'_>,
        verdict: &Verdict,
        at: &Moment<'_>,
    ) {
        let Decision { limit, remaining, .. } = verdict.decision;
        let used = limit.saturating_sub(remaining);
        self.usage.learn(key, request.rules, (verdict.rule, used), at);
    }

    /// Decides by this node's share.
    pub(super) fn decide(
        &self,
        key: KeyHash,
        request: &Request<'_>,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        let Some(verb) = self.scaled(request.verb) else {
            return Ok(denied(request, Retry::After(ASK_AGAIN)));
        };
        let verdict = self.usage.decide_hashed(key, request.rules, &verb, at)?;
        Ok(self.in_permits(request, verdict))
    }

    /// `verb` with every permit counted once for each node; `None` if that is no cost.
    fn scaled(&self, verb: &Verb) -> Option<Verb> {
        let nodes = self.nodes;
        let scaled = |cost: Cost| {
            let cost = cost.get().checked_mul(nodes).filter(|cost| *cost <= COST_MAX)?;
            Cost::new(cost).ok()
        };
        Some(match *verb {
            Verb::Check { cost } => Verb::Check { cost: scaled(cost)? },
            Verb::Reserve { cost, max_wait } => Verb::Reserve { cost: scaled(cost)?, max_wait },
            Verb::AtMost { cost } => Verb::AtMost { cost: scaled(cost)? },
            Verb::Peek { cost } => Verb::Peek { cost: scaled(cost)? },
            Verb::Refund { cost } => Verb::Refund { cost: scaled(cost)? },
            Verb::Acquire { cost, permit } => Verb::Acquire { cost: scaled(cost)?, permit },
            Verb::Reset | Verb::Release { .. } | Verb::Renew { .. } => verb.clone(),
        })
    }

    /// `verdict` in permits of this node.
    fn in_permits(&self, request: &Request<'_>, verdict: Verdict) -> Verdict {
        let Verdict { decision, rule } = verdict;
        let outcome = match decision.outcome {
            Outcome::Allow { granted, wait } => self.granted(request, granted / self.nodes, wait),
            // It passes as soon as the store is back.
            Outcome::Deny { retry: Retry::Never } if fits(request) => {
                Outcome::Deny { retry: Retry::After(ASK_AGAIN) }
            }
            refused => refused,
        };
        let (limit, remaining) = (decision.limit / self.nodes, decision.remaining / self.nodes);
        Verdict { decision: Decision { outcome, limit, remaining, ..decision }, rule }
    }

    /// A part of a permit is none.
    fn granted(&self, request: &Request<'_>, granted: u64, wait: Micros) -> Outcome {
        match (request.verb, granted) {
            (Verb::AtMost { .. }, 0) => Outcome::Deny { retry: Retry::After(ASK_AGAIN) },
            _ => Outcome::Allow { granted, wait },
        }
    }
}

/// What `on_store_failure: allow` says.
pub(super) fn allowed(request: &Request<'_>) -> Verdict {
    let granted = cost_of(request).map_or(0, Cost::get);
    blind(request, Outcome::Allow { granted, wait: Micros::ZERO })
}

/// What `on_store_failure: deny` says.
pub(super) fn refused(request: &Request<'_>) -> Verdict {
    denied(request, Retry::After(ASK_AGAIN))
}

fn denied(request: &Request<'_>, retry: Retry) -> Verdict {
    blind(request, Outcome::Deny { retry })
}

/// A verdict of somebody who does not know what is left.
fn blind(request: &Request<'_>, outcome: Outcome) -> Verdict {
    let limit = request.rules.rules()[0].rule.limit();
    Verdict {
        decision: Decision { outcome, limit, remaining: 0, reset_after: Micros::ZERO },
        rule: 0,
    }
}

/// Whether the whole limits could let the request pass.
fn fits(request: &Request<'_>) -> bool {
    let limits = request.rules.rules().iter().map(|named| named.rule.limit());
    cost_of(request).is_some_and(|cost| limits.min().is_some_and(|least| cost.get() <= least))
}

fn cost_of(request: &Request<'_>) -> Option<Cost> {
    match *request.verb {
        Verb::Check { cost }
        | Verb::Reserve { cost, .. }
        | Verb::AtMost { cost }
        | Verb::Peek { cost }
        | Verb::Refund { cost }
        | Verb::Acquire { cost, .. } => Some(cost),
        Verb::Reset | Verb::Release { .. } | Verb::Renew { .. } => None,
    }
}
