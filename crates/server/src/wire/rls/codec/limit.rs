//! Limits that descriptors send along, and the units of limits in answers.

use std::convert::Infallible;

use quick_cache::sync::Cache;
use sluicegate::{FixedWindow, Micros, Rule};
use sluicegate_kernel::RuleSet;
use sluicegate_policy::Rules;

use crate::wire::rls::proto::Unit;

/// Maximum number of limits that are remembered, some 500 bytes each: gateways use a handful. A
/// limit that was forgotten is made anew, and its keys keep what is in use.
const LIMITS_MAX: usize = 1_024;

/// Every unit with its seconds: a month has 30 days and a year 365, as in `envoyproxy/ratelimit`.
pub(in crate::wire::rls) const UNITS: [(Unit, u64); 7] = [
    (Unit::Second, 1),
    (Unit::Minute, 60),
    (Unit::Hour, 3_600),
    (Unit::Day, 86_400),
    (Unit::Week, 7 * 86_400),
    (Unit::Month, 30 * 86_400),
    (Unit::Year, 365 * 86_400),
];

/// At most so many permits in windows of so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::wire::rls) struct WindowLimit {
    pub(super) permits: u64,
    pub(super) window_s: u64,
}

/// The rules of limits that were sent along: stores expect the identical rules again.
#[derive(Debug)]
pub(in crate::wire::rls) struct WindowRuleCache(Cache<WindowLimit, Rules>);

impl WindowRuleCache {
    /// The rules of `limit`.
    pub(in crate::wire::rls) fn rules(&self, limit: WindowLimit) -> Rules {
        let Ok(rules) = self.0.get_or_insert_with(&limit, || Ok::<_, Infallible>(limit.rules()));
        rules
    }
}

impl Default for WindowRuleCache {
    fn default() -> Self {
        Self(Cache::new(LIMITS_MAX))
    }
}

impl WindowLimit {
    fn rules(self) -> Rules {
        let Self { permits, window_s } = self;
        let rule = FixedWindow::epoch(permits, Micros::from_secs(window_s))
            .expect("32 bits of permits, at least one, and 365 days are within the bounds");
        Rules::new(RuleSet::single("limit", Rule::from(rule)))
            .expect("a window of seconds follows no calendar")
    }
}
