//! A policy's rules as they are published beside its document: what a program needs to decide by them
//! that does not compile documents. `spec/redis-protocol.md` is the format.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use sluicegate_kernel::algorithm::CalendarUnit;
use sluicegate_kernel::{Micros, RuleSet};

use super::blob::RulesBlob;
use super::script::FORMAT;
use crate::RuleOrigin;

/// What a policy's rules and those of its overrides come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CompiledPolicy {
    /// The format of the rules.
    format: u8,
    rules: CompiledRules,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<CompiledOverride>,
}

/// The rules of one override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CompiledOverride {
    key: String,
    /// When it ends, in ms since 1970; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    until_ms: Option<u64>,
    #[serde(flatten)]
    rules: CompiledRules,
}

/// A rule set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CompiledRules {
    /// The rules of the blob, without what surrounds them, in base64url.
    blob: String,
    /// How long a state under these rules is of use at most.
    life_ms: u64,
    /// What is known of each rule, in their order.
    each: Vec<CompiledRule>,
}

/// What answers and headers say of a rule, and whose calendar it follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CompiledRule {
    name: String,
    limit: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calendar: Option<CompiledCalendar>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct CompiledCalendar {
    unit: &'static str,
    zone: String,
}

impl CompiledPolicy {
    /// The policy of `rules`, and of the `overrides` for some keys, each with the instant at which it ends. They
    /// are in the order of their keys then.
    pub fn new<'r>(
        rules: &RuleSet,
        overrides: impl IntoIterator<Item = (&'r [u8], &'r RuleSet, Option<Micros>)>,
    ) -> Self {
        let overrides = overrides.into_iter().map(|(key, rules, until)| {
            let key = String::from_utf8_lossy(key).into_owned();
            let until_ms = until.map(|until| until.get() / 1_000);
            CompiledOverride { key, until_ms, rules: CompiledRules::new(rules) }
        });
        let mut overrides: Vec<_> = overrides.collect();
        overrides.sort_by(|one, other| one.key.cmp(&other.key));
        Self { format: FORMAT, rules: CompiledRules::new(rules), overrides }
    }
}

impl CompiledRules {
    fn new(rules: &RuleSet) -> Self {
        let blob = RulesBlob::new(rules, RuleOrigin::default());
        let each = rules.rules().iter().map(|named| CompiledRule {
            name: named.name.to_string(),
            limit: named.rule.limit(),
            window_us: named.rule.window().map(Micros::get),
            calendar: named
                .rule
                .calendar()
                .map(|(unit, zone)| CompiledCalendar { unit: word(unit), zone: zone.into() }),
        });
        Self {
            blob: URL_SAFE_NO_PAD.encode(blob.rules()),
            life_ms: blob.life().get().div_ceil(1_000),
            each: each.collect(),
        }
    }
}

/// The unit as a document has it.
const fn word(unit: CalendarUnit) -> &'static str {
    match unit {
        CalendarUnit::Day => "day",
        CalendarUnit::Week => "week",
        CalendarUnit::Month => "month",
        CalendarUnit::Year => "year",
    }
}
