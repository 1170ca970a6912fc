//! The answer of an engine, and its consequences.

use std::sync::Arc;

use sluicegate_kernel::{Called, Decision, Micros, RuleSet, Verb, Verdict};
use sluicegate_policy::{Fallback, Overflow, Policy, Rules};

use super::Patience;
use crate::lease::LeasedDecision;

/// The engine's answer: a decision and the rule that made it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The decision.
    pub decision: Decision,
    /// The way in which it was made.
    pub mode: Mode,
    /// Age of the store's last report on the key, for a decision by a lease; zero otherwise.
    pub age: Micros,
    pub(super) rules: Arc<RuleSet>,
    pub(super) rule: usize,
    pub(super) is_perhaps_granted: bool,
}

/// A verdict, and the way in which it was made.
#[derive(Clone, Debug)]
pub(super) struct Ruling {
    pub(super) verdict: Verdict,
    pub(super) mode: Mode,
    /// See [`Answer::age`].
    pub(super) age: Micros,
    /// Waiting requests of the key that would pass now.
    pub(super) called: Vec<Called>,
    /// The store may have granted the permit that was asked for, and its answer did not come in time.
    pub(super) is_perhaps_granted: bool,
}

/// The way in which a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The store decided.
    Store,
    /// This engine decided, from permits that the store has set aside for it.
    Leased,
    /// This engine repeated a refusal of the store that still holds.
    Remembered,
    /// This engine decided without the store, by its share of the limit.
    Local,
    /// Allowed without a decision: the store does not answer, and the policy sets `allow`.
    Allow,
    /// Refused without a decision: the store does not answer, and the policy sets `deny`.
    Deny,
    /// Refused without a decision: the store answers, but did not decide this in time.
    Shed,
}

/// A decision and its consequences.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The decision; the last one, if the request was delayed.
    pub answer: Answer,
    /// The treatment of the request.
    pub way: Disposition,
    /// Time for which the engine delayed it.
    pub held: Micros,
}

/// The treatment of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Disposition {
    /// The request passes.
    Allowed,
    /// The request is refused.
    Refused,
    /// The request is over the limit; the caller serves the fallback of this policy.
    Degraded(Arc<Policy>),
    /// The request is over the limit; the caller sends it to the target of this policy.
    Diverted(Arc<Policy>),
    /// The request is over the limit, and allowed all the same: the policy is in shadow mode. A permit acquired this
    /// way holds nothing.
    Shadowed,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 7] = [
        Self::Store,
        Self::Leased,
        Self::Remembered,
        Self::Local,
        Self::Allow,
        Self::Deny,
        Self::Shed,
    ];

    /// Returns the name in metrics, events and traces.
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

    /// Returns the name, or `None` if the store decided, now or a moment ago. Wires answer callers with it.
    pub const fn name_without_store(self) -> Option<&'static str> {
        match self {
            Self::Store | Self::Leased | Self::Remembered => None,
            Self::Local | Self::Allow | Self::Deny | Self::Shed => Some(self.name()),
        }
    }

    /// Returns [`name_without_store`](Self::name_without_store), or `leased`: for answers whose callers read the
    /// permits that are left, of which others may have taken some meanwhile.
    pub const fn name_without_call(self) -> Option<&'static str> {
        match self {
            Self::Leased => Some(self.name()),
            _ => self.name_without_store(),
        }
    }
}

impl Ruling {
    pub(super) const fn by(mode: Mode, verdict: Verdict) -> Self {
        Self { verdict, mode, age: Micros::ZERO, called: Vec::new(), is_perhaps_granted: false }
    }
}

impl From<LeasedDecision> for Ruling {
    fn from(LeasedDecision { verdict, age }: LeasedDecision) -> Self {
        Self { age, ..Self::by(Mode::Leased, verdict) }
    }
}

impl Answer {
    pub(super) fn new(ruling: &Ruling, rules: &Rules) -> Self {
        let Ruling { verdict: Verdict { decision, rule }, mode, age, is_perhaps_granted, .. } =
            *ruling;
        let rules = Arc::clone(rules.set());
        Self { decision, mode, age, rules, rule, is_perhaps_granted }
    }

    /// Permits that the store was charged, or 0: only they can be given back to it. Permits granted without
    /// the store came from this engine's share or from nothing, and lapse.
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

    /// The index in [`rules`](Self::rules) of the rule that decided.
    #[cfg(feature = "tower")]
    pub(crate) const fn rule_place(&self) -> usize {
        self.rule
    }

    /// All rules that were decided together; the same `Arc` for as long as the policy has them.
    #[doc(hidden)]
    pub fn rules(&self) -> &Arc<RuleSet> {
        &self.rules
    }
}

impl Admission {
    /// Returns the consequence of an answer to `verb`, by the policy if there is one. `check`, `reserve` and
    /// `acquire` have an overflow, and for a gateway also verbs that do not get their whole cost. A permit that
    /// passed under `shadow` holds nothing, so there `renew` and `release` of an id that is not held pass as well:
    /// no caller notices the limit. Other verbs pass or are refused.
    #[inline]
    pub(super) fn new(
        answer: Answer,
        verb: &Verb,
        patience: Patience,
        policy: Option<&Arc<Policy>>,
    ) -> Self {
        let is_gateway = matches!(patience, Patience::Gateway(_));
        let is_over = match verb {
            Verb::Check { .. } | Verb::Acquire { .. } | Verb::Wait { .. } => {
                !answer.decision.allowed()
            }
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

    /// Returns the consequence of a request that is over the limit of `policy` and was not delayed.
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
    /// A decision whose only consequence is that the request passes or is refused.
    #[inline]
    fn from(answer: Answer) -> Self {
        let way =
            if answer.decision.allowed() { Disposition::Allowed } else { Disposition::Refused };
        Self { answer, way, held: Micros::ZERO }
    }
}

impl Disposition {
    /// Returns whether the caller may go on as it wanted to.
    pub const fn passes(&self) -> bool {
        matches!(self, Self::Allowed | Self::Shadowed)
    }

    /// The fallback of a degraded request.
    pub fn fallback(&self) -> Option<&Fallback> {
        let Self::Degraded(policy) = self else { return None };
        match policy.overflow() {
            Overflow::Degrade(fallback) => Some(fallback),
            _ => None,
        }
    }

    /// The target of a diverted request.
    pub fn target(&self) -> Option<&str> {
        let Self::Diverted(policy) = self else { return None };
        match policy.overflow() {
            Overflow::Divert { target } => Some(target),
            _ => None,
        }
    }
}
