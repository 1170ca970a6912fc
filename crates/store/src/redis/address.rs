//! The servers that a URL names, and the login for them.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

/// Most servers that a URL may name: a few suffice to find all others.
pub const HOSTS_MAX: usize = 16;

/// The kind of deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone(Address),
    /// The master of a replicated set, which Sentinels name.
    Sentinel {
        /// Some of the Sentinels.
        sentinels: Vec<Address>,
        /// The name that the Sentinels have for the master.
        master: Arc<str>,
    },
    /// A cluster.
    Cluster {
        /// Some of its nodes.
        seeds: Vec<Address>,
    },
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A host name or IP address, and a port.
    Tcp(Arc<str>, u16),
    /// A Unix socket.
    Unix(Arc<Path>),
}

/// The login. The password is not shown, and wiped from memory when it is dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct RedisCredentials {
    pub(super) user: Option<Arc<str>>,
    pub(super) password: Option<SecretString>,
}

impl Address {
    /// Returns whether it is on this machine.
    pub(super) fn is_local(&self) -> bool {
        let Self::Tcp(host, _) = self else { return true };
        let is_loopback = |host: &str| host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        &**host == "localhost" || is_loopback(host.trim_matches(['[', ']']))
    }

    /// Returns the host name that a certificate must be for.
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp(host, _) => Some(host),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl PartialEq for RedisCredentials {
    fn eq(&self, other: &Self) -> bool {
        let Self { user, password } = self;
        let password = password.as_ref().map(ExposeSecret::expose_secret);
        *user == other.user && password == other.password.as_ref().map(ExposeSecret::expose_secret)
    }
}

impl Eq for RedisCredentials {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_differ_by_the_user_and_by_the_password() {
        let login = |user: &str, password: &str| RedisCredentials {
            user: Some(user.into()),
            password: Some(password.to_owned().into()),
        };
        let both = login("ada", "a");
        assert_eq!(both, login("ada", "a"));
        let no_password = RedisCredentials { password: None, ..both.clone() };
        for other in
            [login("bea", "a"), login("ada", "b"), no_password, RedisCredentials::default()]
        {
            assert_ne!(both, other);
        }
    }
}
