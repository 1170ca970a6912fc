//! A policy as servers publish it for programs that decide in Redis themselves: one flat record, with rules that
//! are compiled. `spec/record.md` is the format.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use sluicegate_kernel::algorithm::CalendarUnit;
use sluicegate_kernel::{Micros, RuleSet};

use super::blob::RulesBlob;
use crate::RuleOrigin;

/// The format of a record. A record that says what a program of this version must not skip has a greater one.
pub const RECORD_FORMAT: u32 = 1;

/// The rules of one key in place of those of its policy.
#[derive(Clone, Copy, Debug)]
pub struct KeyOverride<'r> {
    /// The key.
    pub key: &'r [u8],
    /// Its rules.
    pub rules: &'r RuleSet,
    /// The instant at which they end.
    pub until: Option<Micros>,
}

/// All that a program needs to decide by a policy: nothing of it is to be checked or parsed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyRecord {
    record: u32,
    #[serde(flatten)]
    settings: RecordSettings,
    #[serde(flatten)]
    rules: RecordRules,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<RecordOverride>,
}

/// The members of a record beside its rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordSettings {
    /// The apps that may use the policy; `*` is every app.
    pub apps: Vec<String>,
    /// The answer without Redis: `local`, `allow` or `deny`.
    pub on_store_failure: &'static str,
    /// The treatment of requests over the limit.
    pub overflow: RecordOverflow,
    /// Servers may lease its permits.
    pub leases: bool,
    /// The attributes of a request that make its key; none: the program passes the key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<String>,
}

/// The treatment of requests over the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RecordOverflow {
    /// They are refused.
    Reject,
    /// They pass, and are counted.
    Shadow,
    /// They wait.
    Queue {
        /// The longest wait, µs.
        max_wait_us: u64,
    },
    /// They are refused with a tag, or with a response that the program sends.
    Degrade {
        /// The tag.
        #[serde(skip_serializing_if = "Option::is_none")]
        tag: Option<String>,
        /// The response.
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<RecordResponse>,
    },
    /// They are refused, and the program sends them elsewhere.
    Divert {
        /// The target, as the policy names it.
        target: String,
    },
}

/// A response in place of that of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordResponse {
    /// 200 to 599.
    pub status: u16,
    /// Its body.
    pub body: String,
    /// Its header fields by name, in lower case.
    pub headers: BTreeMap<String, String>,
}

/// The rules of one override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct RecordOverride {
    key: String,
    /// Its end, in ms since 1970; absent: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    until_ms: Option<u64>,
    #[serde(flatten)]
    rules: RecordRules,
}

/// A rule set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct RecordRules {
    /// The rules of the blob, without what surrounds them, in base64url.
    blob: String,
    /// The longest time for which a state under these rules is of use, ms.
    life_ms: u64,
    /// Each rule's name and limit, in their order.
    each: Vec<RecordRule>,
}

/// The name, limit and calendar of a rule, for answers and headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct RecordRule {
    name: String,
    limit: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calendar: Option<RecordCalendar>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct RecordCalendar {
    unit: &'static str,
    zone: String,
}

impl PolicyRecord {
    /// The record of a policy of `rules`, and of the `overrides` for some keys. They are in the order of their
    /// keys then.
    pub fn new<'r>(
        settings: RecordSettings,
        rules: &RuleSet,
        overrides: impl IntoIterator<Item = KeyOverride<'r>>,
    ) -> Self {
        let overrides = overrides.into_iter().map(|KeyOverride { key, rules, until }| {
            let key = String::from_utf8_lossy(key).into_owned();
            let until_ms = until.map(|until| until.get() / 1_000);
            RecordOverride { key, until_ms, rules: RecordRules::new(rules) }
        });
        let mut overrides: Vec<_> = overrides.collect();
        overrides.sort_by(|one, other| one.key.cmp(&other.key));
        Self { record: RECORD_FORMAT, settings, rules: RecordRules::new(rules), overrides }
    }
}

impl RecordRules {
    fn new(rules: &RuleSet) -> Self {
        let blob = RulesBlob::new(rules, RuleOrigin::default());
        let each = rules.rules().iter().map(|named| RecordRule {
            name: named.name.to_string(),
            limit: named.rule.limit(),
            window_us: named.rule.window().map(Micros::get),
            calendar: named
                .rule
                .calendar()
                .map(|(unit, zone)| RecordCalendar { unit: word(unit), zone: zone.into() }),
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
