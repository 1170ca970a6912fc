//! The version of a server.

use std::fmt;

/// The name and the number of a server's version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The server is Valkey; otherwise Redis.
    pub valkey: bool,
    /// The number of that version, such as `[7, 0, 15]`.
    pub number: [u16; 3],
}

impl Version {
    /// Reads it from the answer to `INFO server`.
    pub(crate) fn from_info(info: &str) -> Option<Self> {
        let valkey = field(info, "valkey_version");
        let mut parts = valkey.or_else(|| field(info, "redis_version"))?.split('.');
        let mut part = || parts.next()?.parse().ok();
        Some(Self { valkey: valkey.is_some(), number: [part()?, part()?, part()?] })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.number;
        let name = if self.valkey { "valkey" } else { "redis" };
        write!(f, "{name} {major}.{minor}.{patch}")
    }
}

/// The value of a field in an answer to `INFO` or `CLUSTER INFO`.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_is_told_from_redis_whose_version_it_also_names() {
        let version = |info: &str| Version::from_info(info).map(|version| version.to_string());
        assert_eq!(
            version("# Server\r\nredis_version:7.0.15\r\n"),
            Some("redis 7.0.15".to_owned())
        );
        let valkey = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.8\r\n";
        assert_eq!(version(valkey), Some("valkey 8.1.8".to_owned()));
        assert_eq!(version("redis_version:seven\r\n"), None);
    }
}
