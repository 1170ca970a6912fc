//! What a gateway knows of a request, for those that send attributes instead of names: which policy
//! guards it and whose budget it takes.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;

use crate::error::quoted;
use crate::finding;
use crate::limits::TOKEN_BYTES_MAX;
use crate::text::TextError;

/// The attributes of one request, as far as they are known. Who fills them in normalises them:
/// `/a/../b` and `/%62` are not `/b` here.
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
    /// The host that was asked.
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

/// Which requests a policy guards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matcher {
    pub(crate) path: Option<PathMatch>,
    pub(crate) methods: Box<[Box<str>]>,
}

/// Which paths a policy guards. A query (`?…`) is no part of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// This one.
    Exact(Box<str>),
    /// This one and all below it: `/orders` guards `/orders` and `/orders/7`, not `/orders-old`.
    Prefix(Box<str>),
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
                _ => {
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
/// One part is the key itself. Several are joined by `|`, with `|` and `\` inside them escaped, so
/// that different values are different keys. A part that the request does not have is empty: those
/// who lack it share a budget.
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

/// Adds `part` to a key of several that `|` parts.
pub(crate) fn push_escaped(key: &mut String, part: &str) {
    for char in part.chars() {
        if matches!(char, '|' | '\\') {
            key.push('\\');
        }
        key.push(char);
    }
}

impl Matcher {
    /// Which paths; `None`: all.
    pub const fn path(&self) -> Option<&PathMatch> {
        self.path.as_ref()
    }

    /// Which methods; empty: all.
    pub fn methods(&self) -> impl ExactSizeIterator<Item = &str> {
        self.methods.iter().map(AsRef::as_ref)
    }

    /// Whether it guards this request.
    pub fn matches(&self, attributes: &Attributes<'_>) -> bool {
        let Self { path, methods } = self;
        let path =
            path.as_ref().is_none_or(|path| attributes.path.is_some_and(|p| path.matches(p)));
        let has = |method: &str| methods.iter().any(|permitted| **permitted == *method);
        path && (methods.is_empty() || attributes.method.is_some_and(has))
    }
}

impl PathMatch {
    /// Whether it guards `path`.
    pub fn matches(&self, path: &str) -> bool {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        match self {
            Self::Exact(exact) => path == &**exact,
            Self::Prefix(prefix) => path.strip_prefix(&**prefix).is_some_and(|below| {
                below.is_empty() || below.starts_with('/') || prefix.ends_with('/')
            }),
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

/// Whether `text` is a token of HTTP (RFC 9110, 5.6.2), as names of methods and headers are.
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
