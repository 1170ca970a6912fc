//! Header fields for the answer that the gateway gives its client.

use std::fmt::Write;

use sluicegate::Micros;
use sluicegate::internals::http::headers::{rate_limit, rate_limit_policy};
use sluicegate_kernel::NamedRule;

use super::decision::{BudgetDecision, Limited};
use crate::wire::headers::{BudgetHeaders, MODE};
use crate::wire::rls::proto::HeaderValue;

impl BudgetHeaders {
    /// The fields about the limits that were applied, in a request that is over them or not.
    pub(super) fn values(self, limited: &[Limited<'_>], is_over: bool) -> Vec<HeaderValue> {
        let mut fields = Vec::new();
        if self.ratelimit {
            draft(limited, &mut fields);
        }
        if self.x_ratelimit {
            x_ratelimit(limited, &mut fields);
        }
        if is_over {
            fields.extend(retry_after(limited));
        }
        fields.extend(mode(limited));
        fields
    }
}

/// The mode, if the store did not decide; of several, the first.
fn mode(limited: &[Limited<'_>]) -> Option<HeaderValue> {
    let mut decided = limited.iter().filter_map(Limited::decided);
    let mode = decided.find_map(|of| of.answer.mode.name_without_store())?;
    Some(field(MODE, mode.to_owned()))
}

pub(super) fn field(key: &str, value: String) -> HeaderValue {
    HeaderValue { key: key.to_owned(), value }
}

/// Adds the fields of the draft, with each of several limits: both are lists.
fn draft(limited: &[Limited<'_>], fields: &mut Vec<HeaderValue>) {
    let (mut policies, mut limits) = (String::new(), String::new());
    for BudgetDecision { answer, .. } in limited.iter().filter_map(Limited::decided) {
        let rules = answer.rules().rules();
        let rules = rules.iter().map(|NamedRule { name, rule }| (&**name, rule));
        push_item(&mut policies, &rate_limit_policy(rules));
        push_item(&mut limits, &rate_limit(answer.rule(), &answer.decision));
    }
    if !limits.is_empty() {
        fields.push(field("ratelimit-policy", policies));
        fields.push(field("ratelimit", limits));
    }
}

fn push_item(list: &mut String, item: &axum::http::HeaderValue) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(item.to_str().unwrap_or_default());
}

/// Adds the fields that name one limit, and all of them after it: the last that refuses the request by itself,
/// or if none does, the first of those with the least left, as in `envoyproxy/ratelimit`.
fn x_ratelimit(limited: &[Limited<'_>], fields: &mut Vec<HeaderValue>) {
    let refusing = limited.iter().rfind(|of| of.is_over() && !of.is_quota());
    let least = || limited.iter().min_by_key(|of| of.limit().1);
    let Some(tightest) = refusing.or_else(least) else { return };
    let (limit, remaining) = tightest.limit();
    let mut limits = limit.to_string();
    for of in limited {
        let Some((_, window_s)) = of.unit() else { continue };
        put(&mut limits, format_args!(", {};w={window_s}", of.limit().0));
        if !of.name().is_empty() {
            put(&mut limits, format_args!(";name=\"{}\"", printable(of.name())));
        }
    }
    let reset_s = tightest.until_reset().ceil_secs();
    fields.push(field("x-ratelimit-limit", limits));
    fields.push(field("x-ratelimit-remaining", remaining.to_string()));
    fields.push(field("x-ratelimit-reset", reset_s.to_string()));
}

/// The seconds after which all refused descriptors can pass, at least one; `None` if one of them
/// never can. Of quotas, any will do.
fn retry_after(limited: &[Limited<'_>]) -> Option<HeaderValue> {
    let over = |quota| limited.iter().filter(move |of| of.is_over() && of.is_quota() == quota);
    let all_over = limited.iter().all(|of| of.is_over() || !of.is_quota());
    let mut longest = None;
    for of in over(false) {
        longest = longest.max(Some(retry(of)?));
    }
    if all_over && over(true).next().is_some() {
        longest = longest.max(Some(over(true).filter_map(retry).min()?));
    }
    Some(field("retry-after", longest?.ceil_secs().max(1).to_string()))
}

/// The time after which a descriptor over the limit can pass; `None`: never.
fn retry(of: &Limited<'_>) -> Option<Micros> {
    let decision = &of.decided()?.answer.decision;
    match decision.retry_after() {
        // What was left was taken, which was not enough.
        Some(_) if decision.allowed() => Some(decision.reset_after),
        retry => retry,
    }
}

/// A name without the characters that cannot be quoted in a header field.
fn printable(name: &str) -> String {
    let keep = |char: &char| matches!(char, ' '..='~') && !matches!(char, '"' | '\\');
    name.chars().filter(keep).collect()
}

fn put(text: &mut String, args: std::fmt::Arguments<'_>) {
    text.write_fmt(args).expect("a String takes all text");
}
