//! More for one key, for a while: an override that ends by itself.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use sluicegate_policy::{finding, text};
use utoipa::ToSchema;

use crate::error::{Error, PlacedFinding};

/// Maximum factor of a boost; a limit that needs more should be changed in the policy.
const FACTOR_MAX: u64 = 100;

/// The longest boost: what is to stay longer belongs in the policy.
const DAYS_MAX: i64 = 31;

const DAY_MS: i64 = 86_400_000;

/// Fields of rules that are multiplied; of a rate, only the permits are.
const MULTIPLIED: [&str; 3] = ["limit", "rate", "burst"];

/// Rules of its own for a key, until an instant.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Boost {
    /// The key, 1 to 1,024 bytes.
    #[schema(min_length = 1, max_length = 1024)]
    pub(in crate::api) key: String,
    /// Multiplies each `limit`, `rate` and `burst` of the policy for the key: 2 to 100. Only without `rules`.
    #[schema(minimum = 2, maximum = 100)]
    factor: Option<u64>,
    /// The rules for the key, as in `overrides[].rules`. Only without `factor`.
    #[schema(value_type = Option<Vec<Object>>)]
    rules: Option<Json>,
    /// Instant from which the policy holds for the key again, in UTC (`2026-12-31T18:00:00Z`): after now, at most 31 days away.
    until: String,
}

impl Boost {
    /// Returns the document with this boost, without boosts that have ended by `now`, in ms since 1970.
    ///
    /// # Errors
    /// [`Error::Invalid`] with a place in the boost; [`Error::Conflict`]: the key has rules of its own for good.
    pub(in crate::api) fn applied_to(&self, document: &Json, now: i64) -> Result<Json, Error> {
        let until = self.until_ms().map_err(|found| Error::Invalid(vec![found]))?;
        if !(now + 1..=now + DAYS_MAX * DAY_MS).contains(&until) {
            let problem = finding!(
                "bad_boost_end",
                "expected an instant after now, at most {days} days away",
                days = DAYS_MAX
            );
            return Err(Error::invalid("/until", problem));
        }
        let rules = self.rules(&document["rules"])?;
        let kept = document["overrides"].as_array().into_iter().flatten();
        let kept: Vec<_> = kept.filter(|own| !has_ended(own, now)).cloned().collect();
        let (same, mut overrides): (Vec<_>, Vec<_>) =
            kept.into_iter().partition(|own| own["key"] == *self.key);
        if same.iter().any(|own| own.get("until").is_none()) {
            return Err(Error::Conflict(finding!(
                "key_has_override",
                "the key has rules of its own without an end: change them in the policy"
            )));
        }
        overrides.push(json!({ "key": self.key, "until": self.until, "rules": rules }));
        let mut boosted = document.clone();
        boosted["overrides"] = Json::Array(overrides);
        Ok(boosted)
    }

    fn until_ms(&self) -> Result<i64, PlacedFinding> {
        let until = text::instant(&self.until);
        let until = until.map_err(|error| PlacedFinding::new("/until", error.into_finding()))?;
        Ok(i64::try_from(until.get() / 1_000).unwrap_or(i64::MAX))
    }

    /// Returns the rules for the key; `rules` are those of the policy.
    fn rules(&self, rules: &Json) -> Result<Json, Error> {
        match (self.factor, &self.rules) {
            (None, Some(rules)) => Ok(rules.clone()),
            (Some(factor @ 2..=FACTOR_MAX), None) => Ok(multiplied(rules, factor)),
            (Some(factor), None) => {
                let problem = finding!(
                    "bad_whole",
                    "{given} is not a whole number from {min} to {max}",
                    given = format!("`{factor}`"),
                    min = 2,
                    max = FACTOR_MAX
                );
                Err(Error::invalid("/factor", problem))
            }
            (None, None) | (Some(_), Some(_)) => {
                let problem = finding!("factor_or_rules", "expected either `factor` or `rules`");
                Err(Error::invalid("/factor", problem))
            }
        }
    }
}

/// Maps the place of a finding in the document to a place in the boost that made it.
pub(in crate::api) fn place_in_boost(found: PlacedFinding) -> PlacedFinding {
    let rest = found.pointer.strip_prefix("/document/overrides/");
    let place = rest.and_then(|rest| rest.find('/').map(|at| rest[at..].to_owned()));
    match place {
        Some(pointer) => PlacedFinding { pointer, ..found },
        None => found,
    }
}

fn has_ended(own: &Json, now: i64) -> bool {
    let end = own["until"].as_str().and_then(|until| text::instant(until).ok());
    end.is_some_and(|end| i128::from(end.get() / 1_000) <= i128::from(now))
}

fn multiplied(rules: &Json, factor: u64) -> Json {
    let mut rules = rules.clone();
    let all = rules.as_array_mut().into_iter().flatten().filter_map(Json::as_object_mut);
    for parameters in all.flat_map(serde_json::Map::values_mut) {
        for field in MULTIPLIED {
            if let Some(value) = parameters.get_mut(field) {
                *value = times(value, factor);
            }
        }
    }
    rules
}

/// Multiplies a number, or the permits of a rate such as `10/s`.
fn times(value: &Json, factor: u64) -> Json {
    if let Some(number) = value.as_u64() {
        return json!(number.saturating_mul(factor));
    }
    let Some(rate) = value.as_str() else { return value.clone() };
    let digits = rate.bytes().take_while(u8::is_ascii_digit).count();
    let (permits, rest) = rate.split_at(digits);
    match permits.parse::<u64>() {
        Ok(permits) => json!(format!("{}{rest}", permits.saturating_mul(factor))),
        Err(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-24T12:00:00Z.
    const NOW: i64 = 1_795_521_600_000;

    fn boost(fields: &Json) -> Boost {
        let mut all = json!({ "key": "vip", "until": "2026-11-24T18:00:00Z" });
        let all_fields = all.as_object_mut().unwrap();
        all_fields.extend(fields.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn pointer(found: Result<Json, Error>) -> String {
        match found {
            Err(Error::Invalid(found)) => found[0].pointer.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_factor_multiplies_limits_rates_and_bursts() {
        let rules = json!([
            { "name": "burst", "token_bucket": { "rate": "10/s", "burst": 20 } },
            { "fixed_window": { "limit": 500, "window": "1h" } },
            { "leaky_bucket": { "rate": "1MiB/2s", "burst": 4, "delay": 3 } },
        ]);
        let boosted =
            boost(&json!({ "factor": 3 })).applied_to(&json!({ "rules": rules }), NOW).unwrap();
        let expected = json!([
            { "name": "burst", "token_bucket": { "rate": "30/s", "burst": 60 } },
            { "fixed_window": { "limit": 1_500, "window": "1h" } },
            { "leaky_bucket": { "rate": "3MiB/2s", "burst": 12, "delay": 3 } },
        ]);
        assert_eq!(
            boosted["overrides"],
            json!([{ "key": "vip", "until": "2026-11-24T18:00:00Z", "rules": expected }])
        );
        assert_eq!(boosted["rules"], rules, "others have what they had");
    }

    #[test]
    fn a_boost_replaces_the_one_before_and_ended_ones_go() {
        let rules = json!([{ "sliding_log": { "limit": 1, "window": "1s" } }]);
        let own = |key: &str, until: &str| json!({ "key": key, "until": until, "rules": rules });
        let document = json!({ "rules": rules, "overrides": [
            own("vip", "2026-11-24T13:00:00Z"),
            own("ended", "2026-11-24T12:00:00Z"),
            own("other", "2026-11-24T12:00:01Z"),
            { "key": "for good", "rules": rules },
        ] });
        let boosted = boost(&json!({ "rules": rules })).applied_to(&document, NOW).unwrap();
        let keys: Vec<_> =
            boosted["overrides"].as_array().unwrap().iter().map(|own| &own["key"]).collect();
        assert_eq!(keys, ["other", "for good", "vip"]);
        let other = Boost { key: "for good".to_owned(), ..boost(&json!({ "factor": 2 })) };
        assert!(matches!(other.applied_to(&document, NOW), Err(Error::Conflict(_))));
    }

    #[test]
    fn the_end_is_after_now_and_at_most_31_days_away() {
        let document = json!({ "rules": [] });
        let of =
            |until: &str| boost(&json!({ "factor": 2, "until": until })).applied_to(&document, NOW);
        for until in
            ["2026-11-24T12:00:00Z", "2026-12-25T12:00:01Z", "1970-01-01T00:00:00Z", "soon"]
        {
            assert_eq!(pointer(of(until)), "/until", "{until}");
        }
        for until in ["2026-11-24T12:00:01Z", "2026-12-25T12:00:00Z"] {
            assert!(of(until).is_ok(), "{until}");
        }
    }

    #[test]
    fn a_boost_has_a_factor_or_rules() {
        let document = json!({ "rules": [] });
        for fields in [
            json!({}),
            json!({ "factor": 2, "rules": [] }),
            json!({ "factor": 1 }),
            json!({ "factor": 101 }),
        ] {
            assert_eq!(pointer(boost(&fields).applied_to(&document, NOW)), "/factor");
        }
    }

    #[test]
    fn what_is_wrong_with_the_document_has_its_place_in_the_boost() {
        let place = |pointer: &str| {
            place_in_boost(PlacedFinding::new(pointer, finding!("bad_key", "bad"))).pointer
        };
        assert_eq!(
            place("/document/overrides/3/rules/0/sliding_log/limit"),
            "/rules/0/sliding_log/limit"
        );
        assert_eq!(place("/document/overrides/3/key"), "/key");
        assert_eq!(place("/document/overrides"), "/document/overrides");
    }
}
