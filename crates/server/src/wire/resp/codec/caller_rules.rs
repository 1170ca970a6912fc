//! The rules that callers send along with `SG.*`, after the option `RULES`.

use quick_cache::sync::Cache;
use sluicegate::Request;
use sluicegate::internals::Limits;
use sluicegate_kernel::Rule;
use sluicegate_kernel::algorithm::WindowKind;
use sluicegate_policy::Rules;
use sluicegate_text::terminal::{escaped, one_line};

use super::error_reply::{ErrorReply, shown};

/// Longest name of a caller's limits, as for names of policies.
pub(super) const NAME_BYTES_MAX: usize = 128;

/// Longest text of rules: eight rules, the most that there may be, of 250 bytes each.
pub(super) const RULES_BYTES_MAX: usize = 2 * 1024;

/// Maximum number of texts whose rules are remembered, with them some 4 KB each: applications use a handful. A text
/// that was forgotten is read anew, and its keys keep what is in use.
const TEXTS_MAX: usize = 1_024;

/// The beginning of the names of callers' limits in stores. A policy, an app and such a name have no `/`, so no budget
/// is also that of a policy, of `CL.THROTTLE` or of another app.
const PREFIX: &str = "SG.RULES/";

/// The limits that a caller sends along: their name in stores, and their rules.
#[derive(Debug)]
pub(crate) struct CallerLimits<'a> {
    name: String,
    text: &'a str,
    /// Absent until they are read.
    rules: Option<Rules>,
}

/// The rules of texts that were sent, for all connections: stores expect the identical rules again.
#[derive(Debug)]
pub(crate) struct CallerRuleCache(Cache<String, Rules>);

impl<'a> CallerLimits<'a> {
    /// The limits called `name` with the rules in `text`, which are not read yet.
    pub(super) fn new(name: &[u8], text: &'a [u8]) -> Result<Self, ErrorReply> {
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let name = std::str::from_utf8(name)
            .ok()
            .filter(|name| (1..=NAME_BYTES_MAX).contains(&name.len()))
            .filter(|name| name.bytes().all(|byte| is_allowed(&byte)))
            .ok_or_else(|| {
                let name = shown(name);
                ErrorReply::bad_request(format_args!(
                    "name: invalid name `{name}` of limits: expected 1 to {NAME_BYTES_MAX} bytes of `[A-Za-z0-9._-]`"
                ))
            })?;
        let bytes = text.len();
        if !(1..=RULES_BYTES_MAX).contains(&bytes) {
            return Err(ErrorReply::bad_request(format_args!(
                "rules: `{bytes}` bytes are outside 1..={RULES_BYTES_MAX}"
            )));
        }
        let text = std::str::from_utf8(text).map_err(|error| {
            let place = error.valid_up_to();
            ErrorReply::bad_request(format_args!("rules: byte {place} is not UTF-8"))
        })?;
        Ok(Self { name: format!("{PREFIX}{name}"), text, rules: None })
    }

    /// Reads the rules, unless `known` has them.
    pub(super) fn read(&mut self, known: &CallerRuleCache) -> Result<(), ErrorReply> {
        self.rules = Some(known.0.get_or_insert_with(self.text, || rules_of(self.text))?);
        Ok(())
    }

    /// The rules.
    pub(super) fn rules(&self) -> &Rules {
        self.rules.as_ref().expect("a request is decided after its rules were read")
    }

    /// `request` under `rules`, which are those of these limits.
    pub(super) fn put_on<'r>(&'r self, request: &Request<'r>, rules: &'r Rules) -> Request<'r> {
        Request { limits: Limits::Brought { name: &self.name, rules }, ..request.clone() }
    }
}

impl Default for CallerRuleCache {
    fn default() -> Self {
        Self(Cache::new(TEXTS_MAX))
    }
}

/// The rules in `text`, or the first error in them.
fn rules_of(text: &str) -> Result<Rules, ErrorReply> {
    let rules = Rules::parse(text).map_err(|errors| match errors.errors() {
        [] => ErrorReply::bad_request("rules: invalid"),
        [first, rest @ ..] => {
            let more = match rest.len() + errors.omitted() {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let (path, problem) = (one_line(first.path()), escaped(first.problem()));
            ErrorReply::bad_request(format_args!("{path}: {problem}{more}"))
        }
    })?;
    // Limits that callers bring along follow no calendar: the engine knows the zones of policies alone.
    let mut all = rules.set().rules().iter();
    let follows_calendar = |rule: &Rule| matches!(rule, Rule::FixedWindow(rule) if matches!(rule.kind(), WindowKind::Calendar(..)));
    match all.position(|named| follows_calendar(&named.rule)) {
        None => Ok(rules),
        Some(place) => Err(ErrorReply::bad_request(format_args!(
            "rules[{place}].fixed_window.calendar: calendar windows need a policy, expected `window`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::decision_request::SentLimits;
    use super::super::throttle_limit::ThrottleLimit;
    use super::*;

    fn read(text: &str, known: &CallerRuleCache) -> Result<Rules, ErrorReply> {
        let mut limits = CallerLimits::new(b"n", text.as_bytes())?;
        limits.read(known)?;
        Ok(limits.rules().clone())
    }

    #[test]
    fn the_same_text_is_the_very_same_rules() {
        let known = CallerRuleCache::default();
        let bucket = |burst| format!(r#"[{{"token_bucket":{{"rate":"1/s","burst":{burst}}}}}]"#);
        let first = read(&bucket(1), &known).unwrap();
        let other = read(&bucket(2), &known).unwrap();
        assert!(Arc::ptr_eq(first.set(), read(&bucket(1), &known).unwrap().set()));
        assert!(!Arc::ptr_eq(first.set(), other.set()));
    }

    #[test]
    fn requests_without_rules_are_as_short_as_without_this_option() {
        assert_eq!(size_of::<SentLimits<'_>>(), size_of::<Option<ThrottleLimit>>());
    }

    #[test]
    fn texts_that_are_remembered_are_bounded() {
        let known = CallerRuleCache::default();
        for burst in 1..=2 * TEXTS_MAX {
            read(&format!(r#"[{{"token_bucket":{{"rate":"1/s","burst":{burst}}}}}]"#), &known)
                .unwrap();
            assert!(read(&format!("[{burst}]"), &known).is_err());
        }
        assert!(known.0.len() <= TEXTS_MAX);
    }
}
