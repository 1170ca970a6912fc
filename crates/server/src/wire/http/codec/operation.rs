//! The operations, each with its path and its fields.

use sluicegate_control::Scope;
use sluicegate_text::fields::{Field, Form};

use crate::verbs::VerbName;

/// An operation; its name is the last part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Check,
    Batch,
    AtMost,
    Peek,
    Refund,
    Reset,
    Acquire,
    Renew,
    Release,
    Settle,
    Explain,
}

impl Operation {
    /// All operations, in the order of the documentation.
    pub(crate) const ALL: [Self; 11] = [
        Self::Check,
        Self::Batch,
        Self::AtMost,
        Self::Peek,
        Self::Refund,
        Self::Reset,
        Self::Acquire,
        Self::Renew,
        Self::Release,
        Self::Settle,
        Self::Explain,
    ];

    /// The path.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Check => "/v1/check",
            Self::Batch => "/v1/check:batch",
            Self::AtMost => "/v1/at_most",
            Self::Peek => "/v1/peek",
            Self::Refund => "/v1/refund",
            Self::Reset => "/v1/reset",
            Self::Acquire => "/v1/acquire",
            Self::Renew => "/v1/renew",
            Self::Release => "/v1/release",
            Self::Settle => "/v1/settle",
            Self::Explain => "/v1/explain",
        }
    }

    /// Returns whether the answer has header fields about the budget.
    pub(crate) const fn tells(self) -> bool {
        matches!(self, Self::Check | Self::AtMost | Self::Peek | Self::Acquire)
    }

    /// Returns whether a refusal can have a status of its own (`?deny=STATUS`).
    pub(crate) const fn may_deny(self) -> bool {
        matches!(self, Self::Check | Self::AtMost | Self::Acquire)
    }

    /// The scope that a token needs. A settlement states what was charged, so it can give back what was not.
    pub(crate) const fn scope(self) -> Scope {
        match self {
            Self::Refund | Self::Reset | Self::Settle => Scope::Refund,
            Self::Check
            | Self::Batch
            | Self::AtMost
            | Self::Peek
            | Self::Acquire
            | Self::Renew
            | Self::Release
            | Self::Explain => Scope::Check,
        }
    }

    /// The verb that the listener must permit.
    pub(crate) const fn verb(self) -> VerbName {
        match self {
            Self::Check | Self::Batch => VerbName::Check,
            Self::AtMost => VerbName::AtMost,
            Self::Peek | Self::Explain => VerbName::Peek,
            Self::Refund => VerbName::Refund,
            Self::Reset => VerbName::Reset,
            Self::Acquire => VerbName::Acquire,
            Self::Renew => VerbName::Renew,
            Self::Release => VerbName::Release,
            Self::Settle => VerbName::Settle,
        }
    }

    /// The fields of its body.
    pub(crate) const fn form(self) -> &'static Form {
        match self {
            Self::Check => &CHECK,
            Self::Batch => &BATCH,
            Self::AtMost | Self::Peek | Self::Refund => &COST,
            Self::Explain => &EXPLAIN,
            Self::Reset => &KEY,
            Self::Acquire => &ACQUIRE,
            Self::Renew | Self::Release => &PERMIT,
            Self::Settle => &SETTLE,
        }
    }

    /// The fields that the body must have.
    pub(crate) const fn required(self) -> &'static [Field] {
        match self {
            Self::Batch => &[Field::Checks],
            Self::Renew | Self::Release => &[Field::Policy, Field::Id],
            Self::Settle => &[Field::Policy, Field::Id, Field::Charged, Field::ActualCost],
            _ => &[Field::Policy],
        }
    }
}

/// `null` as `key` is the budget that all requests share, as `app` it is no app: both as if they were left out.
static CHECK: Form = Form {
    fields: &[Field::Policy, Field::Key, Field::App, Field::Cost, Field::MaxWaitMs],
    example: r#"{"policy":"p","key":"k"}"#,
};

static COST: Form = Form {
    fields: &[Field::Policy, Field::Key, Field::App, Field::Cost],
    example: r#"{"policy":"p","key":"k"}"#,
};

static EXPLAIN: Form = Form {
    fields: &[Field::Policy, Field::Key, Field::App, Field::Cost, Field::At],
    example: r#"{"policy":"p","key":"k"}"#,
};

static KEY: Form = Form {
    fields: &[Field::Policy, Field::Key, Field::App],
    example: r#"{"policy":"p","key":"k"}"#,
};

static ACQUIRE: Form = Form {
    fields: &[Field::Policy, Field::Key, Field::App, Field::Cost, Field::Id, Field::MaxWaitMs],
    example: r#"{"policy":"p","key":"k"}"#,
};

static PERMIT: Form = Form {
    fields: &[Field::Policy, Field::Key, Field::App, Field::Id],
    example: r#"{"policy":"p","key":"k","id":"i"}"#,
};

static SETTLE: Form = Form {
    fields: &[Field::Policy, Field::Key, Field::App, Field::Id, Field::Charged, Field::ActualCost],
    example: r#"{"policy":"p","key":"k","id":"i","charged":1000,"cost":640}"#,
};

static BATCH: Form = Form {
    fields: &[Field::Checks, Field::Atomic],
    example: r#"{"checks":[{"policy":"p","key":"k"}]}"#,
};

#[cfg(test)]
mod tests {
    use sluicegate::{Cost, PermitId, Verb};

    use super::*;
    use crate::authenticator::scope_of;

    #[test]
    fn an_operation_wants_the_scope_of_its_verb() {
        let (cost, permit) = (Cost::ONE, PermitId(1));
        for verb in [
            Verb::Check { cost },
            Verb::AtMost { cost },
            Verb::Peek { cost },
            Verb::Refund { cost },
            Verb::Reset,
            Verb::Acquire { cost, permit },
            Verb::Renew { permit },
            Verb::Release { permit },
        ] {
            let path = format!("/v1/{}", verb.name());
            let operation = Operation::ALL.into_iter().find(|operation| operation.path() == path);
            assert_eq!(operation.map(Operation::scope), Some(scope_of(&verb)), "{path}");
        }
    }
}
