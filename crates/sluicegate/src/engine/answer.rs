//! What an engine says, and what follows from it.

use std::sync::Arc;

use sluicegate_kernel::{Decision, Micros, RuleSet, Verb, Verdict};
use sluicegate_policy::{Fallback, Overflow, Policy, Rules};

use super::Patience;
use crate::lease::Hit;

/// The engine's answer: a decision and the rule that made it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// Who made it.
    pub mode: Mode,
    /// Of a decision by a lease, how long ago the store said what else is left; zero otherwise.
    pub age: Micros,
    pub(super) rules: Arc<RuleSet>,
    pub(super) rule: usize,
}

/// A verdict, and who gave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruling {
    pub(super) verdict: Verdict,
    pub(super) mode: Mode,
    /// See [`Answer::age`].
    pub(super) age: Micros,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The store.
    Store,
    /// This engine, from permits that the store has set aside for it.
    Leased,
    /// This engine, which knows from the store that this is refused until then.
    Remembered,
    /// This engine without the store: its share of the limit.
    Local,
    /// Nobody: the store does not answer, and the policy says `allow`.
    Allow,
    /// Nobody: the store does not answer, and the policy says `deny`.
    Deny,
    /// Nobody: the store answers, but could not decide this in time. It was refused.
    Shed,
}

/// A decision and what follows from it.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The decision. Of a request that was held it is the last one.
    pub answer: Answer,
    /// What is done with the request.
    pub way: Disposition,
    /// How long it was held back by the engine.
    pub held: Micros,
}

/// What is done with a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Disposition {
    /// It passes.
    Allowed,
    /// It is refused.
    Refused,
    /// It is over the limit; the caller serves the fallback of this policy.
    Degraded(Arc<Policy>),
    /// It is over the limit; the caller sends it to the target of this policy.
    Diverted(Arc<Policy>),
    /// It is over the limit, and allowed all the same: the policy is in shadow mode. A permit that was acquired so
    /// holds nothing.
    Shadowed,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Store,
        Self::Leased,
        Self::Remembered,
        Self::Local,
        Self::Allow,
        Self::Deny,
        Self::Shed,
    ];

    /// What it is called in metrics, events and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Leased => "leased",
            Self::Remembered => "remembered",
            Self::Local => "local",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Shed => "shed",
        }
    }

    /// Its name, unless the store decided, now or a moment ago. Wires answer callers with it.
    pub const fn name_without_store(self) -> Option<&'static str> {
        match self {
            Self::Store | Self::Leased | Self::Remembered => None,
            Self::Local | Self::Allow | Self::Deny | Self::Shed => Some(self.name()),
        }
    }

    /// The same, with `leased`: answers whose callers read what is left report it, as that may be less by what
    /// others took meanwhile.
    pub const fn name_without_call(self) -> Option<&'static str> {
        match self {
            Self::Leased => Some(self.name()),
            _ => self.name_without_store(),
        }
    }
}

impl Ruling {
    pub(super) const fn by(mode: Mode, verdict: Verdict) -> Self {
        Self { verdict, mode, age: Micros::ZERO }
    }
}

impl From<Hit> for Ruling {
    fn from(Hit { verdict, age }: Hit) -> Self {
        Self { verdict, mode: Mode::Leased, age }
    }
}

impl Answer {
    pub(super) fn new(ruling: Ruling, rules: &Rules) -> Self {
        let Ruling { verdict: Verdict { decision, rule }, mode, age } = ruling;
        Self { decision, mode, age, rules: Arc::clone(rules.set()), rule }
    }

    /// Permits that the store was charged, or 0: what can be given back to it. What was granted without
    /// the store was taken of this engine's share or of nothing, and lapses.
    pub const fn charged(&self) -> u64 {
        match self.mode {
            Mode::Store | Mode::Leased => self.decision.granted(),
            Mode::Remembered | Mode::Local | Mode::Allow | Mode::Deny | Mode::Shed => 0,
        }
    }

    /// The name of the rule that decided.
    pub fn rule(&self) -> &str {
        &self.rules.rules()[self.rule].name
    }

    /// Which of [`rules`](Self::rules) decided.
    #[cfg(feature = "tower")]
    pub(crate) const fn rule_place(&self) -> usize {
        self.rule
    }

    /// All rules that were decided together; the very same for as long as the policy has them.
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }
}

impl Admission {
    /// What follows from an answer to `verb`, by the policy if there is one. `check`, `reserve` and `acquire`
    /// have an overflow, and for a gateway what it does not get as a whole. A permit that passed under `shadow`
    /// holds nothing, so there `renew` and `release` of what is not held pass as well: no caller notices the
    /// limit. Other verbs pass or are refused.
    #[inline]
    pub(super) fn new(
        answer: Answer,
        verb: &Verb,
        patience: Patience,
        policy: Option<&Arc<Policy>>,
    ) -> Self {
        let is_gateway = matches!(patience, Patience::Gateway(_));
        let is_over = match verb {
            Verb::Check { .. } | Verb::Acquire { .. } => !answer.decision.allowed(),
            Verb::Renew { .. } | Verb::Release { .. } => {
                let is_shadow = |policy: &Arc<Policy>| *policy.overflow() == Overflow::Shadow;
                !answer.decision.allowed() && policy.is_some_and(is_shadow)
            }
            Verb::Reserve { .. } => !is_gateway && !answer.decision.allowed(),
            Verb::Peek { .. } => is_gateway && !answer.decision.allowed(),
            Verb::AtMost { cost } => is_gateway && answer.decision.granted() < cost.get(),
            _ => false,
        };
        match policy {
            Some(policy) if is_over => Self::over(answer, policy),
            None if is_over => Self { answer, way: Disposition::Refused, held: Micros::ZERO },
            _ => answer.into(),
        }
    }

    /// What follows when a request is over the limit of `policy` and was not held.
    fn over(answer: Answer, policy: &Arc<Policy>) -> Self {
        let way = match policy.overflow() {
            Overflow::Reject | Overflow::Queue { .. } => Disposition::Refused,
            Overflow::Degrade(_) => Disposition::Degraded(Arc::clone(policy)),
            Overflow::Divert { .. } => Disposition::Diverted(Arc::clone(policy)),
            Overflow::Shadow => Disposition::Shadowed,
        };
        Self { answer, way, held: Micros::ZERO }
    }
}

impl From<Answer> for Admission {
    /// A decision from which nothing follows but that it passes or is refused.
    #[inline]
    fn from(answer: Answer) -> Self {
        let way =
            if answer.decision.allowed() { Disposition::Allowed } else { Disposition::Refused };
        Self { answer, way, held: Micros::ZERO }
    }
}

impl Disposition {
    /// Whether the caller may go on as it wanted to.
    pub const fn passes(&self) -> bool {
        matches!(self, Self::Allowed | Self::Shadowed)
    }

    /// The fallback of a request that was marked.
    pub fn fallback(&self) -> Option<&Fallback> {
        let Self::Degraded(policy) = self else { return None };
        match policy.overflow() {
            Overflow::Degrade(fallback) => Some(fallback),
            _ => None,
        }
    }

    /// Where a diverted request goes.
    pub fn target(&self) -> Option<&str> {
        let Self::Diverted(policy) = self else { return None };
        match policy.overflow() {
            Overflow::Divert { target } => Some(target),
            _ => None,
        }
    }
}
