//! Which header fields tell clients about their budgets: the setting that HTTP and rls share. What
//! the fields say is each wire's own, but for who decided.

use crate::config::HeaderStyle;

/// The field that tells who decided while the store does not answer.
pub(super) const MODE: &str = "x-sluicegate-mode";

/// Which fields tell what is left. `Retry-After` is always on a refusal that can pass later.
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
