//! The rules that can be leased.

use alloc::boxed::Box;
use core::fmt;

use crate::algorithm::{Leasing, Rule};
use crate::num::Micros;
use crate::ruleset::RuleSet;

/// The time in which the permits of a set of rules come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasingSpan {
    /// The least span in which the whole limit of one of the rules comes back.
    pub least: Micros,
    /// The permits of one of the rules come back in steps.
    pub in_steps: bool,
    /// The shortest window that slides; `None` if no rule has one.
    pub sliding: Option<Micros>,
}

/// A rule of a set cannot be leased, so none of them can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLeasable {
    /// The rule's place in [`RuleSet::rules`].
    pub rule: usize,
    name: Box<str>,
    algorithm: &'static str,
    reason: &'static str,
}

impl Rule {
    /// Returns whether permits that were leased count under this rule: all but those that hand out permits with ids.
    ///
    /// A rule that cannot be leased counts them too. It can replace one that could be, or stand beside it from now on,
    /// while permits are out.
    pub fn counts_leased(&self) -> bool {
        !self.holds_permits()
    }
}

impl RuleSet {
    /// Returns the time in which leased permits of these rules come back.
    ///
    /// # Errors
    /// [`NotLeasable`] for the first rule whose permits cannot be leased.
    pub fn leasing_span(&self) -> Result<LeasingSpan, NotLeasable> {
        let mut span = LeasingSpan { least: Micros::MAX, in_steps: false, sliding: None };
        for (place, named) in self.rules().iter().enumerate() {
            let (least, in_steps, sliding) = match named.rule.leasing() {
                Leasing::Flows(least) => (least, false, None),
                Leasing::Steps(least) => (least, true, None),
                Leasing::Slides { span, in_steps } => (span, in_steps, Some(span)),
                Leasing::Never(reason) => {
                    let (name, algorithm) = (named.name.clone(), named.rule.algorithm());
                    return Err(NotLeasable { rule: place, name, algorithm, reason });
                }
            };
            span = LeasingSpan {
                least: span.least.min(least),
                in_steps: span.in_steps || in_steps,
                sliding: span.sliding.into_iter().chain(sliding).min(),
            };
        }
        Ok(span)
    }
}

impl fmt::Display for NotLeasable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule: _, name, algorithm, reason } = self;
        write!(f, "rule `{name}` is a `{algorithm}`, {reason}")
    }
}

impl core::error::Error for NotLeasable {}
