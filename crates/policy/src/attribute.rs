//! Attributes of a request, for gateways that send them instead of names: the policy that guards it and the key of its
//! budget follow from them.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::finding;
use crate::limits::{HOST_BYTES_MAX, TOKEN_BYTES_MAX};
use crate::quoted::quoted;
use crate::text::TextError;

/// The attributes of one request, as far as they are known. The caller normalises them: `/a/../b` and `/%62` are not
/// `/b` here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes<'a> {
    /// The address of the client, without a port.
    pub remote_ip: Option<&'a str>,
    /// The path, with or without its query.
    pub path: Option<&'a str>,
    /// The method in capitals.
    pub method: Option<&'a str>,
    /// The `User-Agent` header.
    pub user_agent: Option<&'a str>,
    /// The status of the response, where it is known already (in logs).
    pub status: Option<&'a str>,
    /// The host that the request names.
    pub host: Option<&'a str>,
    /// Headers by name, in any case.
    pub headers: &'a [(&'a str, &'a str)],
}

/// An attribute that a key is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyAttribute {
    /// `remote_ip`
    RemoteIp,
    /// `path`
    Path,
    /// `method`
    Method,
    /// `user_agent`
    UserAgent,
    /// `status`
    Status,
    /// `host`
    Host,
    /// `header:NAME`, the name in lower case.
    Header(Box<str>),
}

/// The requests that a policy guards: those of any of its cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    /// At least one.
    pub(crate) cases: Box<[MatchCase]>,
}

/// Requests that meet conditions, without those that meet one of its exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchCase {
    pub(crate) conditions: Conditions,
    pub(crate) except: Box<[Conditions]>,
}

/// Conditions on the attributes of a request, all of which it has to meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    pub(crate) hosts: Box<[HostMatch]>,
    pub(crate) path: Option<PathMatch>,
    pub(crate) methods: Box<[Box<str>]>,
}

/// A host of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// This one, in small letters: `shop.example.com`.
    Exact(Box<str>),
    /// All hosts that end with this text, which begins with a dot: `*.example.com` is `.example.com`.
    Suffix(Box<str>),
}

/// A path of a condition, without a query (`?…`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// This one.
    Exact(Box<str>),
    /// This one and all below it: `/orders` guards `/orders` and `/orders/7`, not `/orders-old`.
    Prefix(Box<str>),
    /// All that begin with this text: `/orders` guards `/orders-old`, too.
    StartsWith(Box<str>),
}

impl KeyAttribute {
    /// The attribute that `text` names: `remote_ip`, `header:X-Tenant`.
    ///
    /// # Errors
    /// [`TextError`] if there is none of that name.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        Ok(match text {
            "remote_ip" => Self::RemoteIp,
            "path" => Self::Path,
            "method" => Self::Method,
            "user_agent" => Self::UserAgent,
            "status" => Self::Status,
            "host" => Self::Host,
            _ => match text.strip_prefix("header:") {
                Some(name) if is_token(name) => {
                    Self::Header(name.to_ascii_lowercase().into_boxed_str())
                }
                Some(name) => {
                    return Err(TextError::new(finding!(
                        "bad_header_attribute",
                        "{given} is not a header name: expected letters, digits and `-`, such as \
                         `header:x-tenant`",
                        given = quoted(name)
                    )));
                }
                None => {
                    return Err(TextError::new(finding!(
                        "unknown_attribute",
                        "unknown attribute {given}: expected `remote_ip`, `path`, `method`, \
                         `user_agent`, `status`, `host` or `header:NAME`",
                        given = quoted(text)
                    )));
                }
            },
        })
    }

    /// Its value, if the request has it.
    pub fn of<'a>(&self, attributes: &Attributes<'a>) -> Option<&'a str> {
        match self {
            Self::RemoteIp => attributes.remote_ip,
            Self::Path => attributes.path,
            Self::Method => attributes.method,
            Self::UserAgent => attributes.user_agent,
            Self::Status => attributes.status,
            Self::Host => attributes.host,
            Self::Header(name) => {
                let mut headers = attributes.headers.iter();
                let header = headers.find(|(given, _)| given.eq_ignore_ascii_case(name));
                header.map(|(_, value)| *value)
            }
        }
    }
}

/// The key that `parts` make of a request.
///
/// One part is the key itself. Several are joined by `|`, with `|` and `\` inside them escaped, so that different
/// values are different keys. A part that the request does not have is empty: all requests without it share a budget.
///
/// ```
/// use sluicegate_policy::{Attributes, KeyAttribute, attribute::key_of};
///
/// let request =
///     Attributes { remote_ip: Some("203.0.113.7"), path: Some("/a|b"), ..Attributes::default() };
/// assert_eq!(key_of(&[KeyAttribute::RemoteIp], &request), "203.0.113.7");
/// let both = [KeyAttribute::RemoteIp, KeyAttribute::Path];
/// assert_eq!(key_of(&both, &request), r"203.0.113.7|/a\|b");
/// ```
pub fn key_of(parts: &[KeyAttribute], attributes: &Attributes<'_>) -> String {
    if let [only] = parts {
        return only.of(attributes).unwrap_or_default().to_owned();
    }
    let mut key = String::new();
    for (place, part) in parts.iter().enumerate() {
        if place > 0 {
            key.push('|');
        }
        push_escaped(&mut key, part.of(attributes).unwrap_or_default());
    }
    key
}

/// Adds `part` to a key of several parts, which `|` separates.
pub(crate) fn push_escaped(key: &mut String, part: &str) {
    for char in part.chars() {
        if matches!(char, '|' | '\\') {
            key.push('\\');
        }
        key.push(char);
    }
}

impl Matcher {
    /// The cases, at least one: a request of any of them is guarded.
    pub const fn cases(&self) -> &[MatchCase] {
        &self.cases
    }

    /// Returns whether it guards this request.
    pub fn matches(&self, attributes: &Attributes<'_>) -> bool {
        self.cases.iter().any(|case| case.matches(attributes))
    }
}

impl MatchCase {
    /// The conditions.
    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// The exceptions: a request that meets one of them is not of this case.
    pub const fn except(&self) -> &[Conditions] {
        &self.except
    }

    fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let Self { conditions, except } = self;
        conditions.are_met(attributes) && !except.iter().any(|except| except.are_met(attributes))
    }
}

impl Conditions {
    /// The hosts; empty: all.
    pub const fn hosts(&self) -> &[HostMatch] {
        &self.hosts
    }

    /// The paths; `None`: all.
    pub const fn path(&self) -> Option<&PathMatch> {
        self.path.as_ref()
    }

    /// The methods; empty: all.
    pub fn methods(&self) -> impl ExactSizeIterator<Item = &str> {
        self.methods.iter().map(AsRef::as_ref)
    }

    /// Returns whether this request meets all of them. An unknown attribute meets none.
    fn are_met(&self, attributes: &Attributes<'_>) -> bool {
        let Self { hosts, path, methods } = self;
        let is_host = |host: &str| hosts.iter().any(|of| of.matches(host));
        let is_method = |method: &str| methods.iter().any(|of| **of == *method);
        let path = path.as_ref();
        (hosts.is_empty() || attributes.host.is_some_and(is_host))
            && path.is_none_or(|path| attributes.path.is_some_and(|given| path.matches(given)))
            && (methods.is_empty() || attributes.method.is_some_and(is_method))
    }
}

impl HostMatch {
    /// Reads a name in small letters, or `*.` and a name; `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (suffix, name) = match text.strip_prefix('*') {
            Some(suffix) => (Some(suffix), suffix.strip_prefix('.')?),
            None => (None, text),
        };
        let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_letter);
        if text.len() > HOST_BYTES_MAX || !name.split('.').all(is_label) {
            return None;
        }
        Some(suffix.map_or_else(|| Self::Exact(name.into()), |suffix| Self::Suffix(suffix.into())))
    }

    /// Returns whether it matches `host`, in any case.
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(exact) => host.eq_ignore_ascii_case(exact),
            Self::Suffix(suffix) => {
                let (host, suffix) = (host.as_bytes(), suffix.as_bytes());
                let begin = host.len().checked_sub(suffix.len()).filter(|begin| *begin > 0);
                begin.is_some_and(|begin| host[begin..].eq_ignore_ascii_case(suffix))
            }
        }
    }
}

impl PathMatch {
    /// Returns whether it guards `path`.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        match self {
            Self::Exact(exact) => path == &**exact,
            Self::Prefix(prefix) => path.strip_prefix(&**prefix).is_some_and(|below| {
                below.is_empty() || below.starts_with('/') || prefix.ends_with('/')
            }),
            Self::StartsWith(text) => path.starts_with(&**text),
        }
    }
}

impl fmt::Display for KeyAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RemoteIp => f.write_str("remote_ip"),
            Self::Path => f.write_str("path"),
            Self::Method => f.write_str("method"),
            Self::UserAgent => f.write_str("user_agent"),
            Self::Status => f.write_str("status"),
            Self::Host => f.write_str("host"),
            Self::Header(name) => write!(f, "header:{name}"),
        }
    }
}

/// Returns whether `text` is a token of HTTP (RFC 9110, 5.6.2), as names of methods and headers are.
pub(crate) fn is_token(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_prefix_guards_what_is_below_it() {
        let check = |prefix: &str, path: &str, expected: bool| {
            let found = PathMatch::Prefix(prefix.into()).matches(path);
            assert_eq!(found, expected, "{prefix} and {path}");
        };
        check("/orders", "/orders", true);
        check("/orders", "/orders/7", true);
        check("/orders", "/orders?page=2", true);
        check("/orders", "/orders-old", false);
        check("/orders", "/order", false);
        check("/orders/", "/orders/7", true);
        check("/orders/", "/orders", false);
        check("/", "/anything", true);
        check("/", "", false);
        assert!(PathMatch::Exact("/a".into()).matches("/a?b=/c"));
        assert!(!PathMatch::Exact("/a".into()).matches("/a/"));
        assert!(PathMatch::StartsWith("/orders".into()).matches("/orders-old/7?a"));
        assert!(!PathMatch::StartsWith("/orders".into()).matches("/order"));
    }

    #[test]
    fn a_host_is_a_name_or_all_below_one() {
        let check = |of: &str, host: &str, expected: bool| {
            let found = HostMatch::parse(of).map(|of| of.matches(host));
            assert_eq!(found, Some(expected), "{of} and {host}");
        };
        check("shop.example", "Shop.Example", true);
        check("shop.example", "a.shop.example", false);
        check("*.example", "shop.example", true);
        check("*.example", "a.shop.EXAMPLE", true);
        check("*.example", "example", false);
        check("*.example", ".example", false);
        check("*.example", "notexample", false);
        for text in [
            "",
            "*",
            "*.",
            "a..b",
            ".a",
            "a.",
            "Shop",
            "a:80",
            "a*",
            "*.*.a",
            "ä",
            &"a".repeat(254),
        ] {
            assert_eq!(HostMatch::parse(text), None, "{text}");
        }
    }

    #[test]
    fn attributes_are_named_as_they_are_displayed() {
        for name in
            ["remote_ip", "path", "method", "user_agent", "status", "host", "header:x-tenant"]
        {
            assert_eq!(KeyAttribute::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(
            KeyAttribute::parse("header:X-Tenant"),
            Ok(KeyAttribute::Header("x-tenant".into()))
        );
        for name in ["", "ip", "header", "header:", "header:a b", "Path"] {
            assert!(KeyAttribute::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn headers_are_found_in_any_case() {
        let headers = [("x-other", "1"), ("X-TENANT", "acme")];
        let request = Attributes { headers: &headers, ..Attributes::default() };
        assert_eq!(KeyAttribute::Header("x-tenant".into()).of(&request), Some("acme"));
    }

    proptest! {
        #[test]
        fn different_values_are_different_keys(
            a in r"[a|\\]{0,4}", b in r"[a|\\]{0,4}", c in r"[a|\\]{0,4}", d in r"[a|\\]{0,4}",
        ) {
            let parts = [KeyAttribute::Path, KeyAttribute::Host];
            let key = |path: &str, host: &str| {
                let (path, host) = (Some(path), Some(host));
                key_of(&parts, &Attributes { path, host, ..Attributes::default() })
            };
            prop_assert_eq!(key(&a, &b) == key(&c, &d), (&a, &b) == (&c, &d));
        }
    }
}
