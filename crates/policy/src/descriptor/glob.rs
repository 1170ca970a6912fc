//! Texts with `*` in them, and the texts that they match.
//!
//! A `*` stands for any characters, and for none. A match begins with the part before the first one and ends with the
//! part after the last one, and the two do not overlap. The parts between are found from left to right, each at its
//! first place behind the one before.
//!
//! **Property**: the first places find a match wherever there is one, because an earlier place leaves
//! more text for the rest. So nothing is tried twice: matching takes time in proportion to the text
//! and the pattern, whatever is in them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::finding;
use crate::finding::Finding;
use crate::limits::STARS_MAX;

/// A text with at least one `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    text: Box<str>,
    prefix: Box<str>,
    /// The parts between two `*`, without empty ones.
    middles: Box<[Box<str>]>,
    suffix: Box<str>,
}

impl Glob {
    /// Parses `text` as a pattern; `None`: it has no `*`.
    ///
    /// # Errors
    /// The problem.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, Finding> {
        let stars = text.bytes().filter(|byte| *byte == b'*').count();
        if stars > STARS_MAX {
            return Err(finding!(
                "too_many_stars",
                "has {stars} `*`, expected at most {max}",
                stars,
                max = STARS_MAX
            ));
        }
        let Some((prefix, rest)) = text.split_once('*') else { return Ok(None) };
        let (middles, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middles: Vec<_> = middles.split('*').filter(|middle| !middle.is_empty()).collect();
        let parts: Vec<_> = [prefix].into_iter().chain(middles.iter().copied()).collect();
        let text = [&*parts.join("*"), suffix].join("*").into();
        let middles = middles.into_iter().map(Box::from).collect();
        Ok(Some(Self { text, prefix: prefix.into(), middles, suffix: suffix.into() }))
    }

    /// Returns whether the pattern matches `text`.
    #[inline]
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Self { text: _, prefix, middles, suffix } = self;
        let rest = text.strip_prefix(&**prefix).and_then(|rest| rest.strip_suffix(&**suffix));
        let Some(mut rest) = rest else { return false };
        for middle in middles {
            let Some(at) = rest.find(&**middle) else { return false };
            rest = &rest[at + middle.len()..];
        }
        true
    }

    /// The text before the only `*`, if that is at the end.
    pub(crate) fn only_prefix(&self) -> Option<&str> {
        (self.middles.is_empty() && self.suffix.is_empty()).then_some(&*self.prefix)
    }

    /// As it is written, with one `*` where several follow one another.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn glob(text: &str) -> Glob {
        Glob::parse(text).unwrap().expect("there is a `*`")
    }

    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let glob = glob(pattern);
        matching.iter().for_each(|text| assert!(glob.matches(text), "{pattern} is {text}"));
        others.iter().for_each(|text| assert!(!glob.matches(text), "{pattern} is not {text}"));
    }

    #[test]
    fn a_star_stands_for_any_characters_anywhere() {
        check("*", &["", "a", "*"], &[]);
        check("a*", &["a", "ab", "a*"], &["", "ba"]);
        check("*suffix", &["suffix", "a-suffix"], &["suffix-a", "uffix"]);
        check("/api/*/action", &["/api/v1/action", "/api//action"], &["/api/action", "/api/v1"]);
        check("foo*bar*baz", &["foo123bar456baz", "foobarbaz"], &["foobaz", "foobarba", "barbaz"]);
        check("*a*b*", &["ab", "xaybz"], &["ba", "a", ""]);
        check("é*ü", &["éü", "é€ü"], &["é", "ü"]);
    }

    #[test]
    fn the_beginning_and_the_end_do_not_overlap() {
        check("bar*b", &["barab", "bar123b", "barb"], &["bar", "ba"]);
        check("aba*aba", &["abaaba", "abaxaba"], &["aba", "ababa"]);
    }

    #[test]
    fn several_stars_in_a_row_are_one() {
        check("a**b", &["ab", "axb"], &["a"]);
        assert_eq!(glob("a***b"), glob("a*b"));
        assert_eq!(glob("a**b").text(), "a*b");
    }

    #[test]
    fn only_so_many_stars_are_permitted() {
        assert_eq!(Glob::parse("a"), Ok(None));
        assert!(Glob::parse(&"*".repeat(STARS_MAX)).is_ok());
        let problem = "has 17 `*`, expected at most 16";
        let refused = Glob::parse(&"*".repeat(STARS_MAX + 1)).unwrap_err();
        assert_eq!(refused.text(), problem);
    }

    #[test]
    fn what_makes_others_go_back_and_forth_takes_no_time() {
        let pattern = alloc::format!("{}b*", "a*".repeat(STARS_MAX - 1));
        assert!(!glob(&pattern).matches(&"a".repeat(1 << 20)));
    }

    /// The plainest reading: a `*` takes nothing, or one character more.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), None) => naive(rest, text),
            (Some((b'*', rest)), Some((_, behind))) => naive(rest, text) || naive(pattern, behind),
            (Some((byte, rest)), Some((first, behind))) => byte == first && naive(rest, behind),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_the_plainest_reading_of_it_does(
            pattern in r"[ab]{0,2}(\*[ab]{0,2}){1,4}", text in "[ab]{0,9}",
        ) {
            prop_assert_eq!(
                glob(&pattern).matches(&text),
                naive(pattern.as_bytes(), text.as_bytes())
            );
        }

        #[test]
        fn a_pattern_is_written_as_it_was_read(pattern in r"[ab]{0,2}(\*[ab]{1,2}){0,4}\*") {
            let glob = glob(&pattern);
            prop_assert_eq!(glob.text(), pattern);
        }
    }
}
