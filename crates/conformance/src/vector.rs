//! The format of a vector: plain integers in µs and permits, none above 2^53.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One key's life under one policy: requests, when they come, and the expected answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// The behaviour that it shows; also the name of its file.
    pub name: String,
    /// A sentence or two for the reader of a failure.
    pub about: String,
    /// The rules of the policy when the key is first seen.
    pub rules: Vec<RuleSpec>,
    /// The requests, in this order. Time may go back.
    pub steps: Vec<Step>,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Unique in its policy; decisions report it.
    pub name: String,
    /// Such as `token_bucket`.
    pub algorithm: String,
    /// By the names of the policy document; spans carry their unit: `window_us`.
    pub params: BTreeMap<String, ParamValue>,
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ParamValue {
    /// `rate`.
    Rate(RateSpec),
    /// Permits, buckets, or µs.
    Whole(u64),
    /// `cold_factor`.
    Factor(f64),
    /// `align`, `refill`, `delay`, `calendar`, `time_zone`.
    Word(String),
}

/// `permits` every `period_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateSpec {
    /// 1 to 2^32.
    pub permits: u64,
    /// 1 µs to 366 days.
    pub period_us: u64,
}

/// One request for the key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The time of the clock, µs.
    pub at_us: u64,
    /// The verb.
    pub op: Op,
    /// Permits; absent = 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The longest acceptable wait of a `reserve`; absent = unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait_us: Option<u64>,
    /// The name of the permit that `acquire`, `release` and `renew` are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// For each rule the calendar window around `at_us`, as `[start_us, end_us]`; null where the
    /// rule has no calendar. Absent where no rule has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Vec<Option<[u64; 2]>>>,
    /// The rules that a `configure` sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<RuleSpec>>,
    /// The effect of a `configure` on usage; absent = `usage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<Carry>,
    /// The expected answer; a `configure` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
}

/// A verb.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Pass now or be refused.
    Check,
    /// Pass within `max_wait_us`.
    Reserve,
    /// Take what there is, up to `cost`.
    AtMost,
    /// Report the answer to a check, and change nothing.
    Peek,
    /// Give `cost` back.
    Refund,
    /// Forget the key's usage.
    Reset,
    /// Hold a permit called `id`.
    Acquire,
    /// Give the permit `id` back.
    Release,
    /// Hold the permit `id` for another ttl.
    Renew,
    /// Put other rules in place.
    Configure,
}

impl Op {
    /// Every verb.
    pub const ALL: [Self; 10] = [
        Self::Check,
        Self::Reserve,
        Self::AtMost,
        Self::Peek,
        Self::Refund,
        Self::Reset,
        Self::Acquire,
        Self::Release,
        Self::Renew,
        Self::Configure,
    ];
}

/// The effect of changed rules on usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Carry {
    /// Permits in use stay in use.
    Usage,
    /// The part of the limit that is in use stays the same part.
    Proportional,
    /// Every key starts anew.
    Reset,
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Expect {
    /// A decision.
    Decision(Answer),
    /// The step cannot be carried out, and changes nothing.
    Failure(Failure),
}

/// The error of a step without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The reason.
    pub error: ErrorCode,
}

/// A decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The request passes.
    pub allowed: bool,
    /// Permits granted, or given back; 0 if refused.
    pub granted: u64,
    /// The time for which an allowed request must be held back.
    pub wait_us: u64,
    /// The largest cost that the deciding rule ever lets pass at once, or the most permits that it
    /// stores.
    pub limit: u64,
    /// Permits left under that rule after this decision.
    pub remaining: u64,
    /// Time after which a refused request can pass; 0 if allowed, null if never.
    pub retry_after_us: Option<u64>,
    /// The time until that rule's budget is full again.
    pub reset_after_us: u64,
    /// The rule that decided.
    pub rule: String,
}

/// The reason why a step cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The rules do not know the verb.
    Unsupported,
    /// A number is outside its range.
    Range,
}
