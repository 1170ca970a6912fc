//! The lease status of keys, for operators.

use std::fmt;

use sluicegate_kernel::written::in_units;
use sluicegate_policy::{LeaseBounds, Leases, Overflow, Policy, Rules};

use super::demand::Bounds;
use super::hot_keys::HOT_ASKS;

/// The lease status of the keys of a policy. Its text is for operators: `max_share 5%, term 2s`, `off`, or
/// `never: limit 5 is below 160`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// Leased within these bounds, once a key has many requests.
    Within(LeaseBounds),
    /// Not leased: the policy sets `off`.
    Off,
    /// Not leased, for this reason.
    Never(String),
}

impl LeaseStatus {
    /// Returns the status of keys of `policy` with these `rules`: those of the policy, or of an override.
    pub fn of(policy: &Policy, rules: &Rules) -> Self {
        let Some(bounds) = policy.lease_bounds() else {
            return match (policy.leases(), policy.overflow()) {
                (Leases::Auto | Leases::Within(_), Overflow::Queue { .. }) => {
                    Self::Never("`overflow: queue` books permits in advance".to_owned())
                }
                _ => Self::Off,
            };
        };
        let span = match rules.set().leasing_span() {
            Ok(span) => span,
            Err(reason) => return Self::Never(reason.to_string()),
        };
        let Bounds { limit, share, .. } = Bounds::new(rules.set(), span, bounds);
        if share < HOT_ASKS {
            let limit_min = (HOT_ASKS * 100).div_ceil(bounds.share_percent.into());
            return Self::Never(format!("limit {limit} is below {limit_min}"));
        }
        Self::Within(bounds)
    }
}

impl fmt::Display for LeaseStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(LeaseBounds { share_percent, term }) => {
                let (term, unit) = in_units(*term);
                write!(f, "max_share {share_percent}%, term {term}{unit}")
            }
            Self::Off => f.write_str("off"),
            Self::Never(reason) => write!(f, "never: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_policy::{Document, PolicySet};

    use super::*;

    #[test]
    fn operators_read_how_a_policy_is_leased_or_why_it_never_is() {
        for (policy, expected) in [
            ("rules: [{ token_bucket: { rate: 160/s } }]", "max_share 5%, term 2s"),
            ("rules: [{ token_bucket: { rate: 159/s } }]", "never: limit 159 is below 160"),
            (
                "rules: [{ token_bucket: { rate: 16/s } }], leases: { max_share: 50%, term: 250ms }",
                "max_share 50%, term 250ms",
            ),
            (
                "rules: [{ token_bucket: { rate: 26/s } }], leases: { max_share: 30% }",
                "never: limit 26 is below 27",
            ),
            ("rules: [{ token_bucket: { rate: 900/s } }], leases: off", "off"),
            (
                "rules: [{ token_bucket: { rate: 900/s } }], overflow: { queue: { max_wait: 1s } }",
                "never: `overflow: queue` books permits in advance",
            ),
        ] {
            let document = format!("policies: [{{ name: p, {policy} }}]");
            let set = PolicySet::new(Document::parse(&document).expect("it is valid"));
            let policy = set.resolve("p").expect("it is there");
            assert_eq!(LeaseStatus::of(policy, policy.rules()).to_string(), expected, "{document}");
        }
        let document = "policies: [{ name: p, rules: [{ concurrency: { limit: 900, ttl: 1m } }] }]";
        let set = PolicySet::new(Document::parse(document).expect("it is valid"));
        let policy = set.resolve("p").expect("it is there");
        let status = LeaseStatus::of(policy, policy.rules()).to_string();
        assert!(status.starts_with("never: rule `concurrency` is a `concurrency`, "), "{status}");
    }
}
