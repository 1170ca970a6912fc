//! The verbs that a listener permits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluicegate::Verb;

/// The name of a verb: the last part of its path in HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum VerbName {
    /// Takes permits, or waits for them: also batches, `CL.THROTTLE` and forward-auth.
    Check,
    /// Takes the permits that are left, up to the cost.
    AtMost,
    /// Takes nothing: also `explain`.
    Peek,
    /// Gives permits back.
    Refund,
    /// Forgets a key.
    Reset,
    /// Holds a permit of a `concurrency` rule.
    Acquire,
    /// Holds it for longer.
    Renew,
    /// Gives it back.
    Release,
    /// Corrects an estimated charge.
    Settle,
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verbs(u16);

impl VerbName {
    /// All verbs.
    pub(crate) const ALL: [Self; 9] = [
        Self::Check,
        Self::AtMost,
        Self::Peek,
        Self::Refund,
        Self::Reset,
        Self::Acquire,
        Self::Renew,
        Self::Release,
        Self::Settle,
    ];

    /// The name in paths and in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::AtMost => "at_most",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reset => "reset",
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Settle => "settle",
        }
    }
}

impl From<&Verb> for VerbName {
    fn from(verb: &Verb) -> Self {
        match verb {
            Verb::Check { .. } | Verb::Reserve { .. } => Self::Check,
            Verb::AtMost { .. } => Self::AtMost,
            Verb::Peek { .. } => Self::Peek,
            Verb::Refund { .. } => Self::Refund,
            Verb::Reset => Self::Reset,
            Verb::Acquire { .. } | Verb::Wait { .. } => Self::Acquire,
            Verb::Renew { .. } => Self::Renew,
            Verb::Release { .. } | Verb::Leave { .. } => Self::Release,
        }
    }
}

impl Verbs {
    /// The set of `verbs`.
    pub(crate) fn of(verbs: &[VerbName]) -> Self {
        Self(verbs.iter().fold(0, |set, verb| set | 1 << *verb as u16))
    }

    /// Returns whether `verb` is in the set.
    pub(crate) const fn has(self, verb: VerbName) -> bool {
        self.0 & 1 << verb as u16 != 0
    }
}

/// Every verb.
impl Default for Verbs {
    fn default() -> Self {
        Self::of(&VerbName::ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_verbs_that_it_is_made_of_and_no_others() {
        let some = Verbs::of(&[VerbName::Check, VerbName::Settle]);
        let has = VerbName::ALL.into_iter().filter(|verb| some.has(*verb));
        assert_eq!(has.map(VerbName::name).collect::<Vec<_>>(), ["check", "settle"]);
        assert!(VerbName::ALL.into_iter().all(|verb| Verbs::default().has(verb)));
    }
}
