//! Kinds of values: addresses, spans, secrets, lists.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use axum::http::Uri;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sluicegate::internals::http::IpNet;
use sluicegate_policy::text;

/// The text that is shown instead of a secret.
const HIDDEN: &str = "***";

/// Longest host in bytes: that of the domain name system (RFC 1035, section 2.3.4).
const HOST_BYTES_MAX: usize = 253;

/// An address that a wire listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// Addresses with the same first bits, or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network(pub(crate) IpNet);

/// A host: a name or an address, without a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostName(String);

/// A duration, as in policy documents: `250ms`, `60s`, `5m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

/// A text that is never printed, and wiped from memory when it is dropped.
#[derive(Clone, Debug)]
pub struct ConfigSecret(SecretString);

/// The URL of a collector: `http://127.0.0.1:4317`. A login in it is never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Endpoint(String);

/// A list, of which a single member may stand alone. In one text members are separated by commas,
/// and `off` is the empty list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct OneOrMany<T>(Vec<T>);

impl Listen {
    /// The loopback address with `port`, which only programs on this machine can reach.
    pub(super) fn loopback(port: u16) -> OneOrMany<Self> {
        OneOrMany::from([Self::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))])
    }

    /// Returns whether only programs on this machine can reach the address.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:")
            && !path.is_empty()
        {
            return Ok(Self::Unix(path.into()));
        }
        // The one name that needs no look-up.
        let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        named.as_deref().unwrap_or(text).parse().map(Self::Tcp).map_err(|_| {
            let expected = "`127.0.0.1:8080`, `[::1]:8080` or `unix:/path`";
            match text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u32>())) {
                Some((_, Ok(port))) if port > u16::MAX.into() => {
                    format!("invalid address `{text}`: port {port} is above {}", u16::MAX)
                }
                Some((host, Ok(_))) if host.parse::<HostName>().is_ok_and(|host| !host.is_ip()) => {
                    format!(
                        "invalid address `{text}`: names are not looked up, expected {expected}"
                    )
                }
                _ => format!("invalid address `{text}`: expected {expected}"),
            }
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Network {
    /// The loopback networks.
    pub(super) fn loopback() -> OneOrMany<Self> {
        let v4 = IpNet::new_assert(Ipv4Addr::new(127, 0, 0, 0).into(), 8);
        let v6 = IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST));
        OneOrMany::from([Self(v4), Self(v6)])
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = || text.parse().map(|address: IpAddr| IpNet::from(address));
        text.parse().or_else(|_| one()).map(Self).map_err(|_| {
            format!(
                "invalid network `{text}`: expected `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.7`"
            )
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl HostName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the host is an address, not a name.
    fn is_ip(&self) -> bool {
        self.0.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_v6 = || text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_name = (1..=HOST_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_part);
        if is_name || is_v6().is_some() {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "invalid host `{text}`: expected `limits.example.org`, `10.0.0.7` or `[2001:db8::7]`, \
             without scheme and port"
        ))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(given: &str) -> Result<Self, String> {
        text::span(given).map(|span| Self(span.into())).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::span_text(self.0.into()))
    }
}

impl ConfigSecret {
    /// A secret of this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into().into())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

/// Writes the URL of a store without its password; the URL of a memory store is not a secret.
pub(super) fn store_url<S: Serializer>(
    url: &ConfigSecret,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match url.expose() {
        "memory" | "memory://" => serializer.serialize_str("memory://"),
        other => serializer.serialize_str(&without_password(other)),
    }
}

/// Writes the URL of a database, without its password.
pub(super) fn database_url<S: Serializer>(
    url: &Option<ConfigSecret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    url.as_ref().map(|url| without_password(url.expose())).serialize(serializer)
}

/// `url` with `***` for its password. Where a password may be elsewhere, nothing is shown.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.starts_with("sqlite:") { url.to_owned() } else { HIDDEN.to_owned() };
    };
    if rest.to_ascii_lowercase().contains("password") {
        return HIDDEN.to_owned();
    }
    // A password may contain what ends it elsewhere: all of it is before the last `@`.
    match rest.rsplit_once('@') {
        None => url.to_owned(),
        Some((login, server)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            format!("{scheme}://{user}:{HIDDEN}@{server}")
        }
    }
}

impl PartialEq for ConfigSecret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for ConfigSecret {}

impl Serialize for ConfigSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de> Deserialize<'de> for ConfigSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A value of another type may be a secret as well: it is not repeated.
        String::deserialize(deserializer)
            .map(Self::new)
            .map_err(|_| de::Error::custom("expected a string"))
    }
}

impl Endpoint {
    /// The whole URL, with a login.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns whether the URL is of HTTP and has a host.
    pub(super) fn is_http(&self) -> bool {
        let uri = self.0.parse::<Uri>();
        uri.is_ok_and(|uri| {
            uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty())
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.split_once("://"), self.0.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => write!(f, "{scheme}://{HIDDEN}@{host}"),
            (None, Some(_)) => f.write_str(HIDDEN),
            (_, None) => f.write_str(&self.0),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Endpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<T> OneOrMany<T> {
    /// The members.
    pub(crate) fn as_slice(&self) -> &[T] {
        &self.0
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const N: usize> From<[T; N]> for OneOrMany<T> {
    fn from(members: [T; N]) -> Self {
        Self(members.into())
    }
}

impl<'de, T: Deserialize<'de> + JsonSchema> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + JsonSchema> de::Visitor<'de> for Members<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a string{}, or a list of strings", such_as::<T>())
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
                let members =
                    text.split(',').map(str::trim).filter(|member| !matches!(*member, "" | "off"));
                members.map(|member| T::deserialize(member.into_deserializer())).collect()
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = list.next_element()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_any(Members(PhantomData)).map(Self)
    }
}

/// ` such as "5m"`: the first example of a kind of value, if it has examples.
fn such_as<T: JsonSchema>() -> String {
    let schema = T::json_schema(&mut SchemaGenerator::default()).to_value();
    match schema["examples"][0].as_str() {
        Some(example) => format!(" such as \"{example}\""),
        None => String::new(),
    }
}

/// Reads a value that is written as text.
struct TextVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err = String> + JsonSchema> de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string{}", such_as::<T>())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Values that are written as text.
macro_rules! as_text {
    ($($kind:ty: $schema:expr),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(TextVisitor(PhantomData))
            }
        }

        impl JsonSchema for $kind {
            fn schema_name() -> Cow<'static, str> {
                stringify!($kind).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    )*};
}

as_text! {
    Listen: json_schema!({ "type": "string", "examples": ["127.0.0.1:8080", "unix:/run/sluicegate.sock"] }),
    Network: json_schema!({ "type": "string", "examples": ["10.0.0.0/8", "2001:db8::/32", "192.0.2.7"] }),
    HostName: json_schema!({ "type": "string", "examples": ["limits.example.org", "10.0.0.7"] }),
    Span: json_schema!({ "type": "string", "examples": ["250ms", "60s", "5m"] })
}

impl JsonSchema for Endpoint {
    fn schema_name() -> Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "examples": ["http://127.0.0.1:4317"] })
    }
}

impl JsonSchema for ConfigSecret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "writeOnly": true })
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        let list = json_schema!({ "type": "array", "items": one });
        let Some(names) = names(&T::json_schema(generator)) else {
            return json_schema!({ "anyOf": [one, list] });
        };
        let member = format!("(off|{})?", names.join("|"));
        let joined = format!(r"^\s*{member}(\s*,\s*{member})*\s*$");
        json_schema!({ "anyOf": [one, { "type": "string", "pattern": joined }, list] })
    }
}

/// The names that `schema` permits; `None` if it permits other texts too.
fn names(schema: &Schema) -> Option<Vec<String>> {
    let name = |one: &serde_json::Value| Some(one.get("const")?.as_str()?.to_owned());
    schema.get("oneOf")?.as_array()?.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("redis://10.0.0.5:6379/2", "redis://10.0.0.5:6379/2"),
            (
                "rediss://app:s3cret@10.0.0.5:6379/2?deadline_ms=9",
                "rediss://app:***@10.0.0.5:6379/2?deadline_ms=9",
            ),
            ("redis://:p@ss/w:rd@host", "redis://:***@host"),
            ("redis+sentinel://a,b/m?sentinel_password=x@y", "***"),
            ("postgres://u:p@db/x", "postgres://u:***@db/x"),
            ("sqlite:/var/lib/sluicegate/c.db", "sqlite:/var/lib/sluicegate/c.db"),
            ("s3cret", "***"),
        ] {
            assert_eq!(without_password(url), shown, "{url}");
        }
    }
}
