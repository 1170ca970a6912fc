//! The configuration of a Redis: a URL and a few options, each error naming the field and its range.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sluicegate_net::tls;
use tokio_rustls::TlsConnector;

use super::address::{Address, RedisCredentials, Topology};
use super::config_error::RedisConfigError;
use super::url::{self, Parts};

/// The address of Redis and the settings of its connections: read from a URL.
///
/// | Form | Topology |
/// |---|---|
/// | `redis://[user:password@]host[:6379][/database]` | one server |
/// | `unix://[user:password@]/path/to/redis.sock` | one server, through a Unix socket |
/// | `redis+sentinel://[user:password@]host[:26379],host,…/master-name[/database]` | the master that Sentinels name |
/// | `redis+cluster://[user:password@]host[:6379],host,…` | a cluster; a few of its nodes |
/// | `rediss://`, `rediss+sentinel://`, `rediss+cluster://` | the same through TLS |
///
/// User and password are those of the data servers; write `:password@` for the default user, and
/// percent-encode `/ ? # @ %` in them. Options follow after `?`, joined by `&`:
///
/// | Option | Means | Range (default) |
/// |---|---|---|
/// | `connections` | connections to each server | 1..=16 (2) |
/// | `deadline_ms` | longest time of a decision, in milliseconds | 1..=10000 (20) |
/// | `connect_timeout_ms` | longest time of a connection attempt, handshakes included | 10..=30000 (1000) |
/// | `joined_max` | decisions that travel in one script call | 1..=64 (16) |
/// | `database` | the same as in the path | 0..=65535 (0) |
/// | `ca_file` | PEM file of the authorities to trust instead of the system's | – |
/// | `sentinel_user`, `sentinel_password` | for the Sentinels themselves | – |
///
/// ```
/// use sluicegate_store::redis::RedisConfig;
///
/// let config: RedisConfig = "rediss://app:secret@10.0.0.1/1?deadline_ms=10".parse()?;
/// assert_eq!(config.deadline().as_millis(), 10);
/// assert!(!format!("{config:?}").contains("secret"));
/// let error = "redis://h?connections=99".parse::<RedisConfig>().unwrap_err();
/// assert_eq!(error.to_string(), "connections: `99` is outside 1..=16");
/// # Ok::<(), sluicegate_store::redis::RedisConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisConfig {
    pub(super) topology: Topology,
    pub(super) login: RedisCredentials,
    pub(super) sentinel_login: RedisCredentials,
    pub(super) tls: bool,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) database: u16,
    pub(super) connections: usize,
    pub(super) joined_max: usize,
    pub(super) deadline: Duration,
    pub(super) connect_timeout: Duration,
}

impl RedisConfig {
    /// Returns the kind of deployment.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns whether others on the network can read the traffic: there is no TLS, and a server that the URL names
    /// is on another machine. Servers that Sentinels or a cluster name are not known yet.
    pub fn is_open(&self) -> bool {
        let named = match &self.topology {
            Topology::Standalone(address) => std::slice::from_ref(address),
            Topology::Sentinel { sentinels, .. } => sentinels,
            Topology::Cluster { seeds } => seeds,
        };
        !self.tls && !named.iter().all(Address::is_local)
    }

    /// Reads the files that it names, which a store reads when it starts.
    ///
    /// # Errors
    /// [`RedisConfigError::Authorities`].
    pub fn check_files(&self) -> Result<(), RedisConfigError> {
        self.connector().map(drop)
    }

    /// Returns TLS that trusts the authorities in `ca_file`, or those of the system; `None`: without TLS.
    ///
    /// # Errors
    /// [`RedisConfigError::Authorities`].
    pub(super) fn connector(&self) -> Result<Option<TlsConnector>, RedisConfigError> {
        if !self.tls {
            return Ok(None);
        }
        let roots = tls::authorities(self.ca_file.as_deref());
        let roots = roots.map_err(RedisConfigError::Authorities)?;
        Ok(Some(TlsConnector::from(tls::client(roots))))
    }

    /// Sets the deadline of a call: programs without waiting callers, such as a replay, can use a longer one than a
    /// server.
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the longest time that a decision may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    fn with_option(&mut self, name: &str, value: String) -> Result<(), RedisConfigError> {
        match name {
            "connections" => self.connections = whole("connections", &value, 1..=16)?,
            "joined_max" => self.joined_max = whole("joined_max", &value, 1..=64)?,
            "database" => self.database = whole("database", &value, 0..=u16::MAX)?,
            "deadline_ms" => {
                self.deadline = Duration::from_millis(whole("deadline_ms", &value, 1..=10_000)?);
            }
            "connect_timeout_ms" => {
                let ms = whole("connect_timeout_ms", &value, 10..=30_000)?;
                self.connect_timeout = Duration::from_millis(ms);
            }
            "ca_file" => self.ca_file = Some(PathBuf::from(value)),
            "sentinel_user" => self.sentinel_login.user = Some(value.into()),
            "sentinel_password" => self.sentinel_login.password = Some(value.into()),
            _ => return Err(RedisConfigError::UnknownOption { name: name.to_owned() }),
        }
        Ok(())
    }

    fn check(self) -> Result<Self, RedisConfigError> {
        let conflict = |field, reason| Err(RedisConfigError::Unusable { field, reason });
        let cluster = matches!(self.topology, Topology::Cluster { .. });
        let sentinel = matches!(self.topology, Topology::Sentinel { .. });
        if cluster && self.database != 0 {
            return conflict("database", "a cluster supports database 0 only");
        }
        if !self.tls && self.ca_file.is_some() {
            return conflict("ca_file", "requires `rediss://`");
        }
        if !sentinel && self.sentinel_login != RedisCredentials::default() {
            return conflict("sentinel_user", "requires `redis+sentinel://`");
        }
        if self.sentinel_login.user.is_some() && self.sentinel_login.password.is_none() {
            return Err(RedisConfigError::Missing { field: "sentinel_password" });
        }
        Ok(self)
    }
}

impl FromStr for RedisConfig {
    type Err = RedisConfigError;

    /// Reads a URL.
    fn from_str(url: &str) -> Result<Self, RedisConfigError> {
        let Parts { topology, tls, login, database, options } = url::parse(url)?;
        let mut config = Self {
            topology,
            login,
            sentinel_login: RedisCredentials::default(),
            tls,
            ca_file: None,
            database: 0,
            connections: 2,
            joined_max: 16,
            deadline: Duration::from_millis(20),
            connect_timeout: Duration::from_secs(1),
        };
        if let Some(database) = database {
            config.with_option("database", database)?;
        }
        for (name, value) in options {
            config.with_option(&name, value)?;
        }
        config.check()
    }
}

/// Reads `value` as a plain decimal number within `range`.
fn whole<N>(
    field: &'static str,
    value: &str,
    range: std::ops::RangeInclusive<N>,
) -> Result<N, RedisConfigError>
where
    N: FromStr + PartialOrd + Copy + TryInto<u64>,
{
    let plain = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| plain && range.contains(number));
    let bound = |number: N| number.try_into().unwrap_or(u64::MAX);
    number.ok_or_else(|| RedisConfigError::Range {
        field,
        value: value.to_owned(),
        min: bound(*range.start()),
        max: bound(*range.end()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_takes_the_place_of_the_one_in_the_url() {
        let config: RedisConfig = "redis://h?deadline_ms=5".parse().expect("a good URL");
        let minute = Duration::from_secs(60);
        let patient = config.clone().with_deadline(minute);
        assert_eq!(patient.deadline(), minute);
        assert_eq!(RedisConfig { deadline: config.deadline, ..patient }, config);
    }
}
