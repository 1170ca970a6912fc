//! The protocols of a server, by name, and the peers of its connections.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A protocol at the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wire {
    /// HTTP/JSON.
    Http,
    /// For operators: health, policies.
    Admin,
    /// The protocol of Redis.
    Resp,
    /// Envoy's rate limit service.
    Rls,
    /// The admin API, where it has an address of its own.
    Catalog,
    /// Metrics and health, for programs that collect them.
    Metrics,
}

impl Wire {
    /// All wires.
    pub(crate) const ALL: [Self; 6] =
        [Self::Http, Self::Resp, Self::Rls, Self::Admin, Self::Catalog, Self::Metrics];

    /// The name: the wire's section in the configuration, and its label in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Admin => "admin",
            Self::Resp => "resp",
            Self::Rls => "rls",
            Self::Catalog => "catalog",
            Self::Metrics => "metrics",
        }
    }

    /// The option of `serve` that sets the listen addresses, if there is one.
    pub(crate) const fn option(self) -> Option<&'static str> {
        match self {
            Self::Http => Some("--listen"),
            Self::Admin => Some("--admin"),
            Self::Resp => Some("--resp"),
            Self::Rls => Some("--rls"),
            Self::Metrics => Some("--metrics"),
            Self::Catalog => None,
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// An IP address. An IPv4-mapped IPv6 address is stored as IPv4.
    Ip(IpAddr),
    /// A program on this machine, through a socket in the file system.
    Local,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address.ip().to_canonical())
    }
}
