//! Decisions without the store: by the policy's `on_store_failure` while it does not answer, and refusals of requests
//! that an overloaded store did not decide. [`Share`] also keeps what they need of the store's answers.
//!
//! **`local`**: this node enforces its share. Among n nodes every permit counts n times against the
//! whole limit: a request of cost c is charged c·n, so a node lets `burst/n` pass at once and
//! `rate/n` in the long run, and all nodes together no more than the limit. It begins from the usage that
//! the store last reported, which is recorded from each of its answers. The permits that it
//! admits are a [debt](super::debts), which the store charges when it answers again.
//!
//! Example: `100/s burst 50` on 4 nodes; the store last reported that 10 are left. A node that counts 4 for
//! one lets 2 pass (8 of 10), and then one every 40 ms.
//!
//! A limit smaller than the number of nodes leaves no node a whole permit: it refuses. Choose `allow`
//! or `deny` for such policies.
//!
//! **`allow`**: everything passes. Each request uses the budget up, as far as it goes, and the store
//! charges that when it answers again.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sluicegate_kernel::limits::COST_MAX;
use sluicegate_kernel::{
    Cost, Decision, Micros, Moment, Outcome, Retry, Rule, RuleSet, Unsupported, Verb, Verdict,
};
use sluicegate_store::{KeyHash, Permits, StoreAnswer, StoreRequest};

use super::debts::{Debts, SharedRequest};
use super::known_usage::KnownUsage;

/// Time until the next try when nothing is known: the store may be back by then.
const ASK_AGAIN: Micros = Micros::SECOND;

/// Time until the next try while the store is overloaded: some deadlines later.
const SHED_RETRY: Micros = Micros::from_millis(100);

/// Permits of a lease that are spent.
#[derive(Clone, Copy)]
pub(super) struct SpentPermits<'m> {
    pub(super) permits: u64,
    /// The instant of the request that is decided, which may have waited since.
    pub(super) at: &'m Moment<'m>,
    /// The present: permits spent meanwhile count in its window.
    pub(super) now: &'m Moment<'m>,
}

/// This node's part of every budget.
#[derive(Debug)]
pub(super) struct Share {
    nodes: AtomicU32,
    /// The usage that the store last reported.
    known: KnownUsage,
    debts: Debts,
}

impl Share {
    /// Returns one of `nodes` equal parts, for at most `keys_max` keys.
    pub(super) fn new(nodes: NonZeroU32, keys_max: usize) -> Self {
        let (known, debts) = (KnownUsage::new(keys_max), Debts::default());
        Self { nodes: nodes.get().into(), known, debts }
    }

    pub(super) fn hash(&self, policy: &str, key: &[u8]) -> KeyHash {
        self.known.hash(policy, key)
    }

    /// The permits that were admitted here and are not charged yet.
    pub(super) const fn debts(&self) -> &Debts {
        &self.debts
    }

    /// Sets the number of nodes that share the limits from now on. Debts keep the number under which they began.
    pub(super) fn set_nodes(&self, nodes: NonZeroU32) {
        self.nodes.store(nodes.get(), Ordering::Relaxed);
    }

    /// Number of nodes that share the limits.
    pub(super) fn nodes(&self) -> u64 {
        self.nodes.load(Ordering::Relaxed).into()
    }

    /// Records the usage that the store reported.
    pub(super) fn record_usage(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        answer: &StoreAnswer,
        at: &Moment<'_>,
    ) {
        let StoreAnswer { verdict: Verdict { decision, rule }, in_use, .. } = answer;
        let of_decider = [(*rule, decision.limit.saturating_sub(decision.remaining))];
        let reported = if in_use.is_empty() { &of_decider[..] } else { in_use };
        self.known.record_usage(key, request.rules, reported, at);
        self.debts.record_usage(key, request.rules, reported, at);
    }

    /// Records that at least so many permits are in use under each rule: permits of a lease are spent after the
    /// store's last report.
    pub(super) fn raise_usage(&self, key: KeyHash, rules: &Arc<RuleSet>, spent: SpentPermits<'_>) {
        let SpentPermits { permits, at, now } = spent;
        let raise = |is_meant: fn(&Rule) -> bool, at: &Moment<'_>| {
            let used = self.known.in_use(key, rules, at).into_iter().zip(rules.rules()).enumerate();
            let used = used.filter(|(_, (_, named))| is_meant(&named.rule));
            let raised = used.map(|(place, (used, _))| (place, used.max(permits)));
            self.known.record_usage(key, rules, &raised.collect::<Vec<_>>(), at);
        };
        raise(|_| true, at);
        raise(|rule| matches!(rule, Rule::FixedWindow(_)), now);
    }

    /// Permits of each rule that are in use by the store's last report.
    pub(super) fn in_use(&self, key: KeyHash, rules: &Arc<RuleSet>, at: &Moment<'_>) -> Permits {
        self.known.in_use(key, rules, at)
    }

    /// Decides by this node's share.
    pub(super) fn decide(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        let known = |at: &Moment<'_>| self.known.states(key, request.rules, at);
        let scaled = |nodes| scaled(request.verb, nodes);
        let shared = SharedRequest { key, request, nodes: self.nodes(), scaled };
        match self.debts.decide(shared, at, known)? {
            Some((verdict, nodes)) => Ok(in_permits(request, verdict, nodes)),
            None => denied(request, Retry::After(ASK_AGAIN)),
        }
    }

    /// Lets the request pass, and records its cost as far as the budget goes.
    pub(super) fn allow(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        request.rules.supports(request.verb)?;
        if let Verb::Check { cost } | Verb::Reserve { cost, .. } | Verb::AtMost { cost } =
            *request.verb
        {
            let known = |at: &Moment<'_>| self.known.states(key, request.rules, at);
            let scaled = |nodes| scaled(&Verb::AtMost { cost }, nodes);
            let shared = SharedRequest { key, request, nodes: 1, scaled };
            if self.debts.decide(shared, at, known)?.is_none() {
                self.debts.lose(cost);
            }
        }
        let granted = cost_of(request).map_or(0, Cost::get);
        Ok(blind(request, Outcome::Allow { granted, wait: Micros::ZERO }))
    }
}

/// Returns `verb` with every permit counted `nodes` times; `None` if the cost is then too large.
fn scaled(verb: &Verb, nodes: u64) -> Option<Verb> {
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
        // Without the store, requests wait in their processes.
        Verb::Acquire { cost, permit } | Verb::Wait { cost, permit, .. } => {
            Verb::Acquire { cost: scaled(cost)?, permit }
        }
        Verb::Reset | Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. } => {
            verb.clone()
        }
    })
}

/// Returns `verdict` in permits of one of `nodes`.
fn in_permits(request: &StoreRequest<'_>, verdict: Verdict, nodes: u64) -> Verdict {
    let Verdict { decision, rule } = verdict;
    let outcome = match decision.outcome {
        // A part of a permit is not granted.
        Outcome::Allow { granted, .. }
            if granted < nodes && matches!(request.verb, Verb::AtMost { .. }) =>
        {
            Outcome::Deny { retry: Retry::After(ASK_AGAIN) }
        }
        Outcome::Allow { granted, wait } => Outcome::Allow { granted: granted / nodes, wait },
        // It passes as soon as the store is back.
        Outcome::Deny { retry: Retry::Never } if fits(request) => {
            Outcome::Deny { retry: Retry::After(ASK_AGAIN) }
        }
        refused => refused,
    };
    let (limit, remaining) = (decision.limit / nodes, decision.remaining / nodes);
    Verdict { decision: Decision { outcome, limit, remaining, ..decision }, rule }
}

/// Returns the refusal of `on_store_failure: deny`.
pub(super) fn refused(request: &StoreRequest<'_>) -> Result<Verdict, Unsupported> {
    denied(request, Retry::After(ASK_AGAIN))
}

/// Returns the refusal of a request that an overloaded store did not decide.
pub(super) fn shed(request: &StoreRequest<'_>) -> Result<Verdict, Unsupported> {
    denied(request, Retry::After(SHED_RETRY))
}

fn denied(request: &StoreRequest<'_>, retry: Retry) -> Result<Verdict, Unsupported> {
    request.rules.supports(request.verb)?;
    Ok(blind(request, Outcome::Deny { retry }))
}

/// Returns a verdict for a budget whose remaining permits are unknown.
fn blind(request: &StoreRequest<'_>, outcome: Outcome) -> Verdict {
    let limit = request.rules.rules()[0].rule.limit();
    Verdict {
        decision: Decision { outcome, limit, remaining: 0, reset_after: Micros::ZERO },
        rule: 0,
    }
}

/// Returns whether every whole limit is at least the cost of the request.
fn fits(request: &StoreRequest<'_>) -> bool {
    let limits = request.rules.rules().iter().map(|named| named.rule.limit());
    cost_of(request).is_some_and(|cost| limits.min().is_some_and(|least| cost.get() <= least))
}

fn cost_of(request: &StoreRequest<'_>) -> Option<Cost> {
    match *request.verb {
        Verb::Check { cost }
        | Verb::Reserve { cost, .. }
        | Verb::AtMost { cost }
        | Verb::Peek { cost }
        | Verb::Refund { cost }
        | Verb::Acquire { cost, .. }
        | Verb::Wait { cost, .. } => Some(cost),
        Verb::Reset | Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. } => None,
    }
}
