//! `leases`: a word, or a map of bounds.

use sluicegate_kernel::Micros;

use super::fields::{Fields, optional};
use super::overrides::WrittenOverride;
use crate::error::At;
use crate::finding;
use crate::leases::{
    LeaseBounds, Leases, NeverLeased, SHARE_PERCENT_MAX, SHARE_PERCENT_MIN, TERM_MAX, TERM_MIN,
};
use crate::node::DocumentNode;
use crate::policy::{Overflow, Rules};
use crate::quoted::quoted;
use crate::text::{span, whole};

pub(super) fn leases(node: &DocumentNode, at: &At<'_>) -> Option<Leases> {
    match node {
        DocumentNode::Text(word) if word == "auto" => Some(Leases::Auto),
        DocumentNode::Text(word) if word == "off" => Some(Leases::Off),
        DocumentNode::Map(_) => {
            let fields = Fields::read(node, at, &["max_share", "term"])?;
            let share = optional(&fields, at, "max_share", max_share);
            let term = optional(&fields, at, "term", term);
            let default = LeaseBounds::default();
            Some(Leases::Within(LeaseBounds {
                share_percent: share?.unwrap_or(default.share_percent),
                term: term?.unwrap_or(default.term),
            }))
        }
        _ => at.expected("`auto`, `off` or `{ max_share: 10%, term: 1s }`", node),
    }
}

/// Reports bounds that are set, at their place `at`, for a policy that is never leased.
pub(super) fn check_leasable(
    leases: Leases,
    rules: &Rules,
    overrides: &[WrittenOverride<'_>],
    overflow: &Overflow,
    at: &At<'_>,
) -> Option<()> {
    if !matches!(leases, Leases::Within(_)) {
        return Some(());
    }
    let Some(never) = never_leased(rules, overrides, overflow) else { return Some(()) };
    at.report(finding!("never_leased", "{reason}; expected `auto` or `off`", reason = never))
}

fn never_leased(
    rules: &Rules,
    overrides: &[WrittenOverride<'_>],
    overflow: &Overflow,
) -> Option<NeverLeased> {
    if let Err(reason) = rules.set().leasing_span() {
        return Some(NeverLeased::Rule(reason));
    }
    let of_override = |(place, own): (usize, &WrittenOverride<'_>)| {
        Some(NeverLeased::OverrideRule(place, own.rules().set().leasing_span().err()?))
    };
    let own = overrides.iter().enumerate().find_map(of_override);
    own.or_else(|| matches!(overflow, Overflow::Queue { .. }).then_some(NeverLeased::Queue))
}

fn max_share(node: &DocumentNode, at: &At<'_>) -> Option<u8> {
    let wanted = "a share from 1% to 50%, such as `10%`";
    let DocumentNode::Text(text) = node else { return at.expected(wanted, node) };
    let (min, max) = (SHARE_PERCENT_MIN.into(), SHARE_PERCENT_MAX.into());
    let percent = text.strip_suffix('%').and_then(|number| whole(number, min, max).ok());
    match percent.and_then(|percent| u8::try_from(percent).ok()) {
        Some(percent) => Some(percent),
        None => at.report(finding!(
            "bad_share",
            "{given} is not a whole percentage from {min}% to {max}%, such as `10%`",
            given = quoted(text),
            min,
            max
        )),
    }
}

fn term(node: &DocumentNode, at: &At<'_>) -> Option<Micros> {
    let wanted = "a duration from 100ms to 2s, such as `1s`";
    let (DocumentNode::Text(text) | DocumentNode::Number(text)) = node else {
        return at.expected(wanted, node);
    };
    match at.ok(span(text))? {
        term if (TERM_MIN..=TERM_MAX).contains(&term) => Some(term),
        _ => at.report(finding!(
            "out_of_range",
            "{problem}",
            problem = alloc::format!("{} is out of range, expected {wanted}", quoted(text))
        )),
    }
}
