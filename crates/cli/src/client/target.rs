//! The address of a server: parsed, and connected to.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use axum::http::uri::Authority;
use sluicegate_server::config::Listen;
use sluicegate_text::human;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_util::either::Either;

/// Longest wait for resolving a name, and for connecting to each address: servers on the same
/// network answer in milliseconds, a lost packet is sent again after a second and after three.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// The variable with the HTTP address of a server.
pub(crate) const URL: &str = "SLUICEGATE_URL";

/// The variable with the admin address of a server.
pub(crate) const ADMIN_URL: &str = "SLUICEGATE_ADMIN_URL";

/// Schemes of addresses without TLS, as servers print them; the command determines the protocol.
const SCHEMES: [&str; 4] = ["http", "resp", "rls", "admin"];

/// Schemes of addresses with TLS, for HTTP.
const TLS_SCHEMES: [&str; 2] = ["https", "admin+https"];

/// A server's address as it was written: `http://127.0.0.1:8080`, `https://gate.example`,
/// `localhost:6380`, `unix:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A name or an address, and a port.
    Tcp { host: String, port: u16 },
    /// A name or an address, and a port, with TLS, for HTTP.
    Tls { host: String, port: u16 },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Target {
    /// This machine, at `port`.
    pub(super) fn loopback(port: u16) -> Self {
        Self::Tcp { host: "127.0.0.1".to_owned(), port }
    }

    /// Returns the addresses of the server, at least one.
    ///
    /// # Errors
    /// If the name cannot be resolved.
    pub(super) async fn addresses(&self) -> Result<Vec<Listen>> {
        let (host, port) = match self {
            Self::Tcp { host, port } | Self::Tls { host, port } => (&**host, *port),
            Self::Unix(path) => return Ok(vec![Listen::Unix(path.clone())]),
        };
        let found = timeout(CONNECT_WAIT_MAX, lookup_host((host, port))).await;
        let found = found.map_err(|_| late(CONNECT_WAIT_MAX)).flatten();
        let found = found.with_context(|| format!("cannot find {host}"))?;
        let found: Vec<_> = found.take(ADDRESSES_MAX).map(Listen::Tcp).collect();
        if found.is_empty() { Err(anyhow!("cannot find {host}: no address")) } else { Ok(found) }
    }

    /// Returns whether others can read the traffic: it has no TLS, and the server is not on this
    /// machine.
    pub(crate) fn is_overheard(&self) -> bool {
        let Self::Tcp { host, .. } = self else { return false };
        host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// The value of `host` in requests.
    pub(super) fn authority(&self) -> String {
        match self {
            Self::Tcp { host, port } | Self::Tls { host, port } => match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            },
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

/// Connects to the first of `addresses` that accepts.
///
/// # Errors
/// The error of the last one.
pub(super) async fn connect(addresses: &[Listen]) -> Result<ServerStream> {
    let mut refused = anyhow!("no address");
    for address in addresses {
        let connected = timeout(CONNECT_WAIT_MAX, connect_to(address)).await;
        match connected.map_err(|_| late(CONNECT_WAIT_MAX)).flatten() {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                refused = anyhow!(error).context(format!("cannot connect to {address}"));
            }
        }
    }
    Err(refused)
}

/// A connection to a server.
pub(super) type ServerStream = Either<TcpStream, UnixStream>;

async fn connect_to(address: &Listen) -> io::Result<ServerStream> {
    match address {
        Listen::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            // Requests are written whole, so there is nothing to wait for.
            stream.set_nodelay(true)?;
            Ok(Either::Left(stream))
        }
        Listen::Unix(path) => Ok(Either::Right(UnixStream::connect(path).await?)),
    }
}

fn late(patience: Duration) -> io::Error {
    let problem = format!("no answer within {}", human::span(patience.into()));
    io::Error::new(io::ErrorKind::TimedOut, problem)
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            Err(format!(
                "{why}: expected an address such as `http://127.0.0.1:8080`, `localhost:8080` or \
                 `unix:/path`"
            ))
        };
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, text),
        };
        let is_tls = scheme.is_some_and(|scheme| TLS_SCHEMES.contains(&scheme));
        if let Some(path) = rest.strip_prefix("unix:").filter(|_| !is_tls) {
            return if path.is_empty() { wrong("no path") } else { Ok(Self::Unix(path.into())) };
        }
        match scheme {
            Some(scheme) if !is_tls && !SCHEMES.contains(&scheme) => {
                return wrong("an unknown scheme");
            }
            _ => {}
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let is_place = |place: &str| place.parse::<Authority>().is_ok() && !place.ends_with(':');
        if rest.split_once(['/', '?']).is_some_and(|(place, _)| is_place(place)) {
            return wrong("a path is not permitted");
        }
        let authority = match rest.parse::<Authority>() {
            Ok(authority) if !rest.contains('@') => authority,
            _ => return wrong("no host and port"),
        };
        let default = match scheme {
            Some("http") => Some(80),
            Some("https") => Some(443),
            _ => None,
        };
        let Some(port) = authority.port_u16().or(default) else { return wrong("no port") };
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = host.to_owned();
        match is_tls {
            _ if host.is_empty() => wrong("no host"),
            true => Ok(Self::Tls { host, port }),
            false => Ok(Self::Tcp { host, port }),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { .. } => f.write_str(&self.authority()),
            Self::Tls { .. } => write!(f, "https://{}", self.authority()),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_itself_can_be_asked() {
        for (text, host, port) in [
            ("http://127.0.0.1:8080", "127.0.0.1", 8080),
            ("http://gate.example/", "gate.example", 80),
            ("resp://127.0.0.1:6380", "127.0.0.1", 6380),
            ("admin://[::1]:9090", "::1", 9090),
            ("localhost:1", "localhost", 1),
        ] {
            let target = Target::Tcp { host: host.to_owned(), port };
            assert_eq!(text.parse(), Ok(target), "{text}");
        }
        for (text, host, port, shown) in [
            ("https://gate.example", "gate.example", 443, "https://gate.example:443"),
            ("admin+https://[::1]:8082/", "::1", 8082, "https://[::1]:8082"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target, Target::Tls { host: host.to_owned(), port }, "{text}");
            assert_eq!(target.to_string(), shown);
        }
        let unix = Ok(Target::Unix("/run/s".into()));
        assert_eq!("unix:/run/s".parse(), unix);
        assert_eq!("http://unix:/run/s".parse(), unix);
        let target: Target = "http://[::1]:80".parse().unwrap();
        assert_eq!(
            (target.authority().as_str(), target.to_string().as_str()),
            ("[::1]:80", "[::1]:80")
        );
    }

    #[test]
    fn only_what_leaves_the_machine_in_the_clear_is_overheard() {
        for (text, is_overheard) in [
            ("http://127.0.0.1:1", false),
            ("http://[::1]:1", false),
            ("localhost:1", false),
            ("unix:/run/s", false),
            ("https://gate.example", false),
            ("http://gate.example", true),
            ("192.0.2.1:1", true),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().is_overheard(), is_overheard, "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_told_what_is_one() {
        for (text, why) in [
            ("", "no host and port"),
            ("localhost", "no port"),
            ("resp://localhost", "no port"),
            ("localhost:x", "no port"),
            ("localhost:65536", "no port"),
            ("http://me@localhost:80", "no host and port"),
            ("http://localhost:80/v1", "a path is not permitted"),
            ("localhost:80/v1/check", "a path is not permitted"),
            ("https://", "no host and port"),
            ("https://unix:/run/s", "no host and port"),
            ("redis://localhost:6379", "an unknown scheme"),
            ("unix:", "no path"),
            (":80", "no host"),
        ] {
            let problem = text.parse::<Target>().unwrap_err();
            assert!(
                problem.starts_with(&format!("{why}: expected an address such as ")),
                "{problem}"
            );
        }
    }
}
