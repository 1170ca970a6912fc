//! The texts of a picture: its title, its description and the names of its limits.

use sluicegate::Micros;
use sluicegate_text::human::{Era, percent, thousands};
use sluicegate_text::terminal::one_line;

use super::BANDS;
use crate::rules::RuleTexts;
use crate::summary::{CountedBucket, RefusedKey, Summary, TimeBuckets};

/// The data of a picture.
pub(crate) struct Picture<'a> {
    /// The name of the input.
    pub(crate) input: &'a str,
    /// The zero of its instants.
    pub(crate) era: Era,
    pub(crate) summary: &'a Summary,
    /// The rules of the policy, if all requests were those of one.
    pub(crate) rules: Option<&'a RuleTexts>,
    /// The attributes of the keys, if the input does not contain them.
    pub(crate) key: Option<&'a str>,
}

/// A line of the plot: the rate of the rules in the long run.
pub(super) struct Limit {
    pub(super) name: String,
    pub(super) per_second: f64,
    /// The limit is that of all keys together.
    pub(super) is_of_all: bool,
}

impl Picture<'_> {
    /// The policy, its rules and the attributes of its keys.
    pub(super) fn title(&self) -> String {
        let Some((policy, rules)) = self.summary.policy.as_ref().zip(self.rules) else {
            return format!("Replay of {}", one_line(self.input));
        };
        let key = self.key.map(|key| format!(", by {key}")).unwrap_or_default();
        format!("{policy}: {}{key}", one_line(&rules.rules))
    }

    /// The share of refused requests, with their number and the input.
    pub(super) fn result(&self) -> String {
        let Summary { requests, refused, complete, .. } = self.summary;
        if *requests == 0 {
            return one_line(self.input);
        }
        let partial = if *complete { "" } else { ", not read to its end" };
        let (share, requests) = (percent(*refused, *requests), thousands(*requests));
        format!("{share} refused of {requests} requests in {}{partial}", one_line(self.input))
    }

    /// The picture in sentences, for readers that cannot see it.
    pub(super) fn description(&self) -> String {
        let Summary { first_at_us, last_at_us, timeline, .. } = self.summary;
        let Some((first, last)) = first_at_us.zip(*last_at_us) else {
            return "No requests in the input.".to_owned();
        };
        let at = |us| self.era.instant(Micros::new(us));
        let counts =
            BANDS.map(|(name, _, count)| format!("{} {name}", thousands(total(timeline, count))));
        let top = self.summary.top_refused.first().filter(|_| self.summary.distinct_keys > 1);
        let top = top.map(|top| format!(" Most refused: {}.", top.name())).unwrap_or_default();
        format!("Requests from {} to {}: {}.{top}", at(first), at(last), counts.join(", "))
    }

    /// The rate of the rules in the long run, of a key and of all keys; empty if requests were for more than one
    /// permit, because the picture counts requests.
    pub(super) fn limits(&self) -> Vec<Limit> {
        if self.summary.has_costs {
            return Vec::new();
        }
        let Some(rate) = self.rules.and_then(|rules| rules.rate.as_ref()) else {
            return Vec::new();
        };
        let Summary { distinct_keys: keys, distinct_keys_exact, .. } = self.summary;
        let (text, per_second) = (&rate.text, rate.per_second);
        let limit = |name, per_second, is_of_all| Limit { name, per_second, is_of_all };
        if *keys <= 1 {
            return vec![limit(format!("limit {text}"), per_second, false)];
        }
        let mut limits = vec![limit(format!("limit of one key: {text}"), per_second, false)];
        if *distinct_keys_exact {
            let name = format!("limit of all {} keys together", thousands(*keys));
            limits.push(limit(name, per_second * *keys as f64, true));
        }
        limits
    }
}

impl RefusedKey {
    /// The key on one line.
    pub(super) fn key_text(&self) -> String {
        self.key.as_deref().map_or("(shared budget)".to_owned(), one_line)
    }

    /// The key behind its policy.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.policy, self.key_text())
    }
}

/// Returns the sum of one count over all buckets.
pub(super) fn total(timeline: &TimeBuckets, count: fn(&CountedBucket) -> u64) -> u64 {
    timeline.buckets.iter().map(count).sum()
}
