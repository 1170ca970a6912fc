//! The header fields with which clients learn about their budgets: the setting that HTTP and rls
//! share. Each wire writes its own fields, except for the mode.

use crate::config::HeaderStyle;

/// The field with the mode of a decision while the store does not answer.
pub(super) const MODE: &str = "x-sluicegate-mode";

/// The fields about a budget in a reply. `Retry-After` is always on a refusal that can pass later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BudgetHeaders {
    /// `RateLimit` and `RateLimit-Policy`, the tenth draft of the IETF.
    pub(super) ratelimit: bool,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    pub(super) x_ratelimit: bool,
}

impl BudgetHeaders {
    /// The fields of these styles.
    pub(crate) fn of(styles: &[HeaderStyle]) -> Self {
        let (ratelimit, x_ratelimit) = (HeaderStyle::Ratelimit, HeaderStyle::XRatelimit);
        Self { ratelimit: styles.contains(&ratelimit), x_ratelimit: styles.contains(&x_ratelimit) }
    }
}
