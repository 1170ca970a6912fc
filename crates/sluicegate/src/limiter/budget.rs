//! The part of a limiter under its lock: its rule and, while the lane is closed, its state.

use sluicegate_kernel::{
    Algorithm, Ask, Cost, Decision, Micros, Moment, Outcome, Rule, State, TokenBucket,
};

use super::fast_path::{FULL_AT_MAX, FastPath, Terms};

/// Units that the word of a lane keeps free above the horizon: four times what the kernel counts to
/// (2^53), so that a full bucket with the deepest debt fits at the last instant before it.
const HEADROOM: u64 = 1 << 55;

/// A rule with its state, and its form in a lane.
#[derive(Debug)]
pub(crate) struct LimiterBudget {
    rule: Rule,
    /// Stale while the lane is open: then the word counts.
    state: Option<State>,
    /// The terms of the lane, if the rule fits and the clock never goes back.
    terms: Option<Terms>,
    generation: u8,
    rule_changes: u64,
}

type BucketState = <TokenBucket as Algorithm>::State;

impl LimiterBudget {
    /// Returns the budget of a new limiter.
    pub(crate) fn new(rule: Rule, now: Micros) -> Self {
        let state = beginning(&rule, now);
        Self { rule, state, terms: None, generation: 0, rule_changes: 0 }
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    pub(crate) fn state(&self) -> Option<&State> {
        self.state.as_ref()
    }

    /// Number of changes of the rule.
    pub(crate) fn rule_changes(&self) -> u64 {
        self.rule_changes
    }

    /// Takes the cost of `ask`, or refuses.
    pub(crate) fn take(&mut self, ask: &Ask, now: Micros) -> Decision {
        let at = Moment::new(now);
        self.rewind(&at);
        let outcome = self.rule.check(self.state.as_ref(), ask, &at);
        if let Outcome::Allow { .. } = outcome {
            self.rule.charge(&mut self.state, ask, &at);
        }
        self.decision(outcome, &at)
    }

    /// Takes the permits that can pass at once, up to `cost`.
    pub(crate) fn take_up_to(&mut self, cost: Cost, now: Micros) -> Decision {
        let at = Moment::new(now);
        self.rewind(&at);
        let available = self.rule.available(self.state.as_ref(), &at).min(cost.get());
        // With nothing to grant, the refusal of one permit contains the wait for it.
        let granted = Cost::new(available).unwrap_or(Cost::ONE);
        self.take(&Ask::reserve(granted, Micros::ZERO), now)
    }

    /// Returns the answer that `ask` would get.
    pub(crate) fn peek(&self, ask: &Ask, now: Micros) -> Decision {
        let at = Moment::new(now);
        self.decision(self.rule.check(self.state.as_ref(), ask, &at), &at)
    }

    /// Gives up to `cost` back, never above full.
    pub(crate) fn refund(&mut self, cost: Cost, now: Micros) -> Decision {
        let at = Moment::new(now);
        self.rewind(&at);
        let refund = |state: &mut State| self.rule.refund(state, cost.get(), &at);
        let granted = self.state.as_mut().map_or(0, refund);
        self.decision(Outcome::Allow { granted, wait: Micros::ZERO }, &at)
    }

    /// Puts `rule` in force and carries the usage over.
    pub(crate) fn set_rule(&mut self, rule: Rule, now: Micros) {
        let at = Moment::new(now);
        self.rewind(&at);
        if rule == self.rule {
            return;
        }
        let convert = |state| rule.convert(&self.rule, &state, &at);
        self.state = self.state.take().and_then(convert).or_else(|| beginning(&rule, now));
        self.rule = rule;
        self.rule_changes += 1;
    }

    /// Restores the state before a booking.
    pub(crate) fn restore(&mut self, state: Option<State>) {
        self.state = state;
    }

    /// Returns the decision of `outcome` with the rest of the budget.
    pub(crate) fn decision(&self, outcome: Outcome, at: &Moment<'_>) -> Decision {
        self.rule.report(self.state.as_ref(), outcome, at)
    }

    fn rewind(&mut self, at: &Moment<'_>) {
        if let Some(state) = &mut self.state {
            self.rule.rewind(state, at);
        }
    }
}

/// Moves between the lane and the lock.
impl LimiterBudget {
    /// Closes the lane, so that the state here is the one that counts.
    pub(crate) fn close(&mut self, lane: &FastPath) {
        if let Some(full_at) = lane.close() {
            self.state = self.unfold(full_at);
        }
    }

    /// Returns the budget that `close` would leave here, if the lane is open. Does not close it.
    pub(crate) fn peek_closed(&self, lane: &FastPath) -> Option<Self> {
        let state = self.unfold(lane.full_at()?);
        Some(Self { rule: self.rule.clone(), state, ..*self })
    }

    /// Opens the lane, if the rule can be decided there.
    pub(crate) fn open(&mut self, lane: &FastPath, now: Micros) {
        let Some((terms, full_at)) = self.fold(now) else { return };
        if self.terms != Some(terms) {
            lane.set_terms(terms);
            self.terms = Some(terms);
            // The last generation belongs to the closed word.
            self.generation = (self.generation + 1) % u8::MAX;
        }
        lane.open(self.generation, full_at);
        self.state = self.unfold(full_at);
    }

    /// Returns the state in the lane's terms; in the terms before, unless they no longer fit.
    fn fold(&self, now: Micros) -> Option<(Terms, u64)> {
        let (Rule::TokenBucket(bucket), Some(State::TokenBucket(state))) =
            (&self.rule, &self.state)
        else {
            return None;
        };
        let units = bucket.units();
        if units.tick_us != 1 {
            return None;
        }
        // As of now, so that the instant it counts from is not before the lane's zero.
        let (used, at) = bucket.convert(bucket, state, &Moment::new(now))?.parts();
        let terms = |zero: Micros| Terms {
            zero_us: zero.get(),
            horizon_us: (FULL_AT_MAX - HEADROOM) / units.per_tick,
            per_us: units.per_tick,
            per_permit: units.per_permit,
            depth: bucket.burst() * units.per_permit,
        };
        let fits = |terms: &Terms| {
            let elapsed_us = at.get().checked_sub(terms.zero_us)?;
            (elapsed_us <= terms.horizon_us).then(|| elapsed_us * terms.per_us + used)
        };
        let kept = self.terms.map(|before| terms(Micros::new(before.zero_us)));
        let kept = kept.and_then(|terms| Some((terms, fits(&terms)?)));
        kept.or_else(|| Some((terms(at), used)))
    }

    fn unfold(&self, full_at: u64) -> Option<State> {
        let zero_us = self.terms.map_or(0, |terms| terms.zero_us);
        Some(State::TokenBucket(BucketState::new(full_at, Micros::new(zero_us))))
    }
}

/// Returns the state of a new limiter: a token bucket begins to fill up from its `initial`
/// tokens at once, and not with the first request that is allowed.
fn beginning(rule: &Rule, now: Micros) -> Option<State> {
    let Rule::TokenBucket(bucket) = rule else { return None };
    let missing = (bucket.burst() - bucket.initial()) * bucket.units().per_permit;
    Some(State::TokenBucket(BucketState::new(missing, now)))
}
