//! The rules of a policy as its document has them, and their rate in the long run: for the
//! title of a picture and the line of its limit.

use serde_json::{Map, Value};
use sluicegate_kernel::algorithm::{AlgorithmInfo, algorithms};
use sluicegate_policy::Document;
use sluicegate_policy::text;

const DAY_US: u64 = 24 * 3_600 * 1_000_000;

/// The texts and the rate of a policy that pictures show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RuleTexts {
    /// Its rules: `leaky_bucket 6/min, burst 4`.
    pub(crate) rules: String,
    /// The rate of each key in the long run; `None` without a rule that limits a rate, and if some keys
    /// have overrides.
    pub(crate) rate: Option<LongRunRate>,
}

/// Permits that pass over any long time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LongRunRate {
    /// The rate as the document has it: `6/min`, `50 per 10s`.
    pub(crate) text: String,
    /// Permits per second.
    pub(crate) per_second: f64,
}

impl RuleTexts {
    /// Returns the texts of the policy called `name` in `document`; `None` if the document has no such policy.
    pub(crate) fn of(document: &str, name: &str) -> Option<Self> {
        let policies = Document::written(document).ok()?;
        let policy = policies.iter().find(|policy| policy["name"] == name)?;
        let rules = policy["rules"].as_array()?.iter();
        let rules: Vec<_> = rules.filter_map(|rule| in_words(rule.as_object()?)).collect();
        let rates = rules.iter().filter_map(|(_, rate)| rate.clone());
        let rate = rates.min_by(|one, other| one.per_second.total_cmp(&other.per_second));
        let has_overrides = policy["overrides"].as_array().is_some_and(|all| !all.is_empty());
        let rate = rate.filter(|_| !has_overrides);
        let rules: Vec<_> = rules.into_iter().map(|(text, _)| text).collect();
        Some(Self { rules: rules.join(" and "), rate })
    }
}

/// Returns the text of a rule, with its long-run rate. Its parameters are in the order of the algorithm's table.
fn in_words(rule: &Map<String, Value>) -> Option<(String, Option<LongRunRate>)> {
    let AlgorithmInfo { name: algorithm, params: table, .. } =
        algorithms().iter().find(|algorithm| rule.contains_key(algorithm.name))?;
    let given = rule.get(*algorithm)?.as_object()?;
    let rate = long_run_rate(given);
    let mut words: Vec<_> = rate.iter().map(|rate| rate.text.clone()).collect();
    for param in *table {
        let is_in_rate = matches!(param.name, "rate" | "limit" | "window" | "calendar");
        match given.get(param.name) {
            Some(value) if rate.is_none() || !is_in_rate => {
                words.push(format!("{} {}", param.name, plain(value)));
            }
            _ => {}
        }
    }
    Some((format!("{algorithm} {}", words.join(", ")), rate))
}

/// Returns a `rate`, or a `limit` for each `window` or unit of a `calendar`.
fn long_run_rate(given: &Map<String, Value>) -> Option<LongRunRate> {
    if let Some(rate) = given.get("rate") {
        let text = plain(rate);
        let rate = text::rate(&text).ok()?;
        return Some(LongRunRate {
            text,
            per_second: rate.permits() as f64 / seconds(rate.period().get()),
        });
    }
    let limit = plain(given.get("limit")?);
    let (unit, us) = match (given.get("calendar"), given.get("window")) {
        (Some(unit), _) => (plain(unit), calendar_us(&plain(unit))?),
        (None, window) => (plain(window?), text::span(&plain(window?)).ok()?.get()),
    };
    let per_second = limit.parse::<f64>().ok()? / seconds(us);
    Some(LongRunRate { text: format!("{limit} per {unit}"), per_second })
}

/// Returns the mean length of a unit of a calendar, µs.
fn calendar_us(unit: &str) -> Option<u64> {
    match unit {
        "day" => Some(DAY_US),
        "week" => Some(7 * DAY_US),
        "month" => Some(365 * DAY_US / 12),
        "year" => Some(365 * DAY_US),
        _ => None,
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(rules: &str) -> (String, Option<f64>) {
        let document = format!(
            "policies: [{{ name: other, rules: [{{ sliding_log: {{ limit: 1, window: 1s }} }}] }}, {{ name: p, rules: [{rules}] }}]"
        );
        let texts = RuleTexts::of(&document, "p").expect("it is there");
        (texts.rules, texts.rate.map(|rate| rate.per_second))
    }

    #[test]
    fn a_rule_is_told_in_the_words_of_its_document_with_its_rate_first() {
        for (rule, text, rate) in [
            (
                "{ leaky_bucket: { burst: 4, rate: 6/min } }",
                "leaky_bucket 6/min, burst 4",
                Some(0.1),
            ),
            (
                "{ sliding_window: { window: 10s, limit: 50 } }",
                "sliding_window 50 per 10s",
                Some(5.0),
            ),
            (
                "{ smooth_warmup: { rate: 5/s, warmup: 2s, cold_factor: 3.5 } }",
                "smooth_warmup 5/s, warmup 2s, cold_factor 3.5",
                Some(5.0),
            ),
            (
                "{ fixed_window: { limit: 86400, calendar: day, time_zone: Europe/Berlin } }",
                "fixed_window 86400 per day, time_zone Europe/Berlin",
                Some(1.0),
            ),
            ("{ concurrency: { limit: 5, ttl: 10s } }", "concurrency limit 5, ttl 10s", None),
        ] {
            assert_eq!(words(rule), (text.to_owned(), rate));
        }
    }

    #[test]
    fn of_several_rules_the_slowest_is_the_rate() {
        let (text, rate) = words(
            "{ name: a, token_bucket: { rate: 2/s } }, { name: b, sliding_log: { limit: 10, window: 10s } }",
        );
        assert_eq!(text, "token_bucket 2/s and sliding_log 10 per 10s");
        assert_eq!(rate, Some(1.0));
    }

    #[test]
    fn keys_with_rules_of_their_own_have_no_rate_in_common() {
        let rules = "[{ token_bucket: { rate: 9/s } }]";
        let document = format!(
            "policies: [{{ name: p, rules: {rules}, overrides: [{{ key: vip, rules: {rules} }}] }}]"
        );
        let texts = RuleTexts::of(&document, "p").expect("it is there");
        assert_eq!((texts.rules.as_str(), texts.rate), ("token_bucket 9/s", None));
    }

    #[test]
    fn a_policy_that_is_not_there_has_no_words() {
        assert_eq!(RuleTexts::of("policies: []", "p"), None);
    }
}
