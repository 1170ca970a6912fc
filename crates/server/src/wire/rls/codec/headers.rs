//! Header fields for the answer that the gateway gives its client.

use std::fmt::Write;

use sluicegate::http::headers::{rate_limit, rate_limit_policy};
use sluicegate_kernel::NamedRule;

use super::reply::{Decided, rule, unit, until_reset};
use crate::wire::headers::{Headers, MODE, mode_without_store};
use crate::wire::rls::proto::HeaderValue;

impl Headers {
    /// The fields that tell of what was `decided`.
    pub(super) fn tell(self, decided: &[Decided<'_>]) -> Vec<HeaderValue> {
        let mut fields = Vec::new();
        if self.ratelimit && !decided.is_empty() {
            draft(decided, &mut fields);
        }
        if self.x_ratelimit {
            x_ratelimit(decided, &mut fields);
        }
        fields.extend(retry_after(decided));
        fields.extend(mode(decided));
        fields
    }
}

/// Who decided, where that was not the store, of several the first.
fn mode(decided: &[Decided<'_>]) -> Option<HeaderValue> {
    let mode = decided.iter().find_map(|of| mode_without_store(of.answer.mode))?;
    Some(field(MODE, mode.to_owned()))
}

pub(super) fn field(key: &str, value: String) -> HeaderValue {
    HeaderValue { key: key.to_owned(), value }
}

/// Of several limits each is told: both fields are lists.
fn draft(decided: &[Decided<'_>], fields: &mut Vec<HeaderValue>) {
    let (mut policies, mut limits) = (String::new(), String::new());
    for Decided { answer, .. } in decided {
        let rules = answer.rules().rules();
        let rules = rules.iter().map(|NamedRule { name, rule }| (&**name, rule));
        push_item(&mut policies, &rate_limit_policy(rules));
        push_item(&mut limits, &rate_limit(answer.rule(), &answer.decision));
    }
    fields.push(field("ratelimit-policy", policies));
    fields.push(field("ratelimit", limits));
}

fn push_item(list: &mut String, item: &axum::http::HeaderValue) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(item.to_str().unwrap_or_default());
}

/// Of several limits the one with the least left is told, and all of them after it.
fn x_ratelimit(decided: &[Decided<'_>], fields: &mut Vec<HeaderValue>) {
    let least = |of: &Decided<'_>| (!of.is_refused(), of.answer.decision.remaining);
    let Some(tightest) = decided.iter().min_by_key(|of| least(of)) else { return };
    let decision = &tightest.answer.decision;
    let mut limits = decision.limit.to_string();
    for Decided { answer, name, .. } in decided {
        let Some((_, window_s)) = unit(rule(answer)) else { continue };
        put(&mut limits, format_args!(", {};w={window_s}", answer.decision.limit));
        if !name.is_empty() {
            put(&mut limits, format_args!(";name=\"{}\"", printable(name)));
        }
    }
    let reset_s = until_reset(decision).ceil_secs();
    fields.push(field("x-ratelimit-limit", limits));
    fields.push(field("x-ratelimit-remaining", decision.remaining.to_string()));
    fields.push(field("x-ratelimit-reset", reset_s.to_string()));
}

/// The seconds after which all that refused can pass, at least one; none if one of them never can.
fn retry_after(decided: &[Decided<'_>]) -> Option<HeaderValue> {
    let refused = decided.iter().filter(|of| of.is_refused());
    let mut longest = None;
    for Decided { answer, .. } in refused {
        let retry = match answer.decision.retry_after() {
            // What was left was taken, which was not enough.
            Some(_) if answer.decision.allowed() => answer.decision.reset_after,
            retry => retry?,
        };
        longest = longest.max(Some(retry));
    }
    Some(field("retry-after", longest?.ceil_secs().max(1).to_string()))
}

/// A name as it can stand between quotes of a header field.
fn printable(name: &str) -> String {
    let keep = |char: &char| matches!(char, ' '..='~') && !matches!(char, '"' | '\\');
    name.chars().filter(keep).collect()
}

fn put(text: &mut String, args: std::fmt::Arguments<'_>) {
    text.write_fmt(args).expect("a String takes all text");
}
