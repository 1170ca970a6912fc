//! The host that a request is for, by its `Host` field.
//!
//! A page in a browser can reach listeners on loopback: its site lets its own name lead to 127.0.0.1
//! (DNS rebinding), and from then on browsers take this server for a part of the site. Only the name
//! distinguishes them. So an address on loopback answers for the names of this machine and those that
//! are configured, and so does the admin API wherever it is:
//!
//! | request for | listener on loopback | on an address that others can reach |
//! |---|---|---|
//! | health (`/livez`, `/readyz`; on the admin address also `/healthz`) | any host | any host |
//! | the admin API (`/v1/admin/…`) | `localhost`, `127.0.0.0/8`, `[::1]`, configured names | the same, and every IP address |
//! | everything else | the same | any host |
//!
//! A site cannot lead an IP address elsewhere, so a request for one does not come from such a page.
//! Sockets in the file system are out of a browser's reach. HTTP/1.1 wants one `Host` (RFC 9112, section
//! 3.2). A request of HTTP/1.0 may leave it out, as health checks do: browsers never do.

use std::sync::Arc;
use std::time::Instant;

use axum::http::{Request, StatusCode, Version, header};
use sluicegate_control::api::PREFIX;
use sluicegate_text::terminal::one_line;

use super::codec::Problem;
use crate::config::{HostName, Listen};
use crate::log_pace::LogPace;

/// Paths of health checks, which show nothing of what a server does.
const HEALTH: [&str; 3] = ["/livez", "/healthz", "/readyz"];

/// The hosts that a listener answers for.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    /// The address itself with its port, as clients on this machine send it.
    own: Arc<[u8]>,
    configured: Arc<[HostName]>,
    listener: Reach,
    refused: Arc<LogPace>,
}

/// The places from which a listener can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Socket,
    Loopback,
    Elsewhere,
}

impl Hosts {
    /// The hosts of a listener at `address`; an unknown address counts as reachable from elsewhere.
    pub(crate) fn new(address: Option<&Listen>, configured: Arc<[HostName]>) -> Self {
        let listener = match address {
            Some(Listen::Unix(_)) => Reach::Socket,
            Some(address) if address.is_local() => Reach::Loopback,
            _ => Reach::Elsewhere,
        };
        let own = address.map(Listen::to_string).unwrap_or_default().into_bytes().into();
        Self { own, configured, listener, refused: Arc::default() }
    }

    /// Checks that `request` is for one of the hosts.
    ///
    /// # Errors
    /// The problem that the client gets instead of an answer.
    #[inline]
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        let (headers, uri) = (request.headers(), request.uri());
        let host = match headers.get(header::HOST) {
            Some(host) => host.as_bytes(),
            None if request.version() == Version::HTTP_10 => return Ok(()),
            None => return Err(Problem::bad_request("host: is missing")),
        };
        // If no field is there twice, this one is not.
        if headers.len() != headers.keys_len() && headers.get_all(header::HOST).iter().count() > 1 {
            return Err(Problem::bad_request("host: is given twice, expected one"));
        }
        let is_usual = *host == *self.own || host == b"localhost";
        if is_usual && uri.authority().is_none() {
            return Ok(());
        }
        // A target with a host of its own counts instead (RFC 9112, section 3.2.2).
        self.check_name(name_of(uri.host().map_or(host, str::as_bytes)), uri.path())
    }

    fn check_name(&self, name: &[u8], path: &str) -> Result<(), Problem> {
        let is_answered = match self.listener {
            Reach::Socket => true,
            Reach::Loopback => is_here(name) || self.is_configured(name),
            Reach::Elsewhere => {
                !path.starts_with(PREFIX)
                    || is_here(name)
                    || is_address(name)
                    || self.is_configured(name)
            }
        };
        if is_answered || HEALTH.contains(&path) {
            return Ok(());
        }
        let name = String::from_utf8_lossy(name);
        self.log_refused(&name);
        let detail = format!(
            "host: `{name}` is not allowed: expected `localhost`, a loopback address, or one of \
             `server.allowed_hosts`"
        );
        Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail))
    }

    /// Logs a refused host: a proxy that sends the name of its `upstream` gets 421 for every request.
    #[expect(clippy::disallowed_methods, reason = "the log is paced, nothing is decided by it")]
    fn log_refused(&self, name: &str) {
        let Some(count) = self.refused.count(Instant::now()) else { return };
        let (name, own) = (one_line(name), String::from_utf8_lossy(&self.own));
        tracing::warn!(
            "{own}: 421 for host `{name}`, which is not allowed ({count} such requests since the last line); \
             add it to `server.allowed_hosts`, or let the proxy send `localhost`"
        );
    }

    fn is_configured(&self, name: &[u8]) -> bool {
        self.configured.iter().any(|host| name.eq_ignore_ascii_case(host.as_str().as_bytes()))
    }
}

/// A host without its port.
fn name_of(host: &[u8]) -> &[u8] {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|byte| *byte == b']').map(|end| end + 1),
        _ => host.iter().position(|byte| *byte == b':'),
    };
    match end.map(|end| host.split_at(end)) {
        Some((name, port)) if port.is_empty() || port[0] == b':' => name,
        _ => host,
    }
}

/// Returns whether `name` always means this machine, however names are resolved.
fn is_here(name: &[u8]) -> bool {
    (name.starts_with(b"127.") && is_v4(name))
        || name == b"[::1]"
        || name.eq_ignore_ascii_case(b"localhost")
}

/// Returns whether `name` is an IP address. Browsers take a name that ends in a number for one, or for invalid.
fn is_address(name: &[u8]) -> bool {
    is_v4(name) || (name.starts_with(b"[") && name.ends_with(b"]"))
}

fn is_v4(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of a request for `path` with these fields to a listener at `address`.
    fn status(address: &str, path: &str, hosts: &[&str]) -> u16 {
        status_of(address, Version::HTTP_11, path, hosts)
    }

    fn status_of(address: &str, version: Version, path: &str, hosts: &[&str]) -> u16 {
        let configured = ["gate.example", "10.0.0.9"].map(|host| host.parse().unwrap());
        let hosts_of = Hosts::new(Some(&address.parse().unwrap()), Arc::new(configured));
        let mut request = Request::builder().version(version).uri(path);
        for host in hosts {
            request = request.header(header::HOST, *host);
        }
        let checked = hosts_of.check(&request.body(()).unwrap());
        checked.map_or_else(|problem| problem.status().as_u16(), |()| 200)
    }

    #[test]
    fn an_address_on_loopback_answers_for_this_machine_and_configured_names() {
        for address in ["127.0.0.1:1", "[::1]:1", "127.0.0.53:1"] {
            for (host, expected) in [
                ("localhost", 200),
                ("LOCALHOST:8080", 200),
                ("127.0.0.1:8080", 200),
                ("127.8.9.1", 200),
                ("[::1]:8080", 200),
                ("[::1]", 200),
                ("gate.example", 200),
                ("Gate.Example:443", 200),
                ("10.0.0.9:80", 200),
                ("evil.example", 421),
                ("evil.example:8080", 421),
                ("127.0.0.1.evil.example", 421),
                ("127.evil.example:1", 421),
                ("localhost.evil.example", 421),
                ("evil.example:127.0.0.1", 421),
                ("[::1]evil.example", 421),
                ("[::1", 421),
                ("192.0.2.1", 421),
                ("[2001:db8::1]:80", 421),
                ("", 421),
                (":80", 421),
            ] {
                assert_eq!(status(address, "/v1/check", &[host]), expected, "{address} {host}");
                assert_eq!(status(address, "/livez", &[host]), 200, "{address} {host}");
            }
        }
    }

    #[test]
    fn elsewhere_the_admin_api_alone_answers_for_addresses_and_configured_names_only() {
        for (host, admin) in [
            ("192.0.2.1:8082", 200),
            ("[2001:db8::1]:8082", 200),
            ("localhost", 200),
            ("gate.example", 200),
            ("evil.example", 421),
            ("192.0.2.1.evil.example", 421),
            ("", 421),
        ] {
            assert_eq!(status("0.0.0.0:1", "/v1/admin/session", &[host]), admin, "{host}");
            for path in ["/v1/check", "/metrics", "/v1/policies", "/readyz"] {
                assert_eq!(status("0.0.0.0:1", path, &[host]), 200, "{host} {path}");
            }
        }
        assert_eq!(status("unix:/s", "/v1/admin/session", &["evil.example"]), 200);
    }

    #[test]
    fn a_request_has_one_host() {
        for address in ["127.0.0.1:1", "0.0.0.0:1", "unix:/s"] {
            assert_eq!(status(address, "/livez", &[]), 400, "{address}");
            let twice = ["localhost", "localhost"];
            assert_eq!(status(address, "/livez", &twice), 400, "{address}");
            let of_1_0 = |hosts| status_of(address, Version::HTTP_10, "/metrics", hosts);
            assert_eq!((of_1_0(&[]), of_1_0(&twice)), (200, 400), "{address}");
        }
    }

    #[test]
    fn a_target_with_a_host_counts_instead_of_the_field() {
        let whole = "http://u@evil.example:1/v1/check";
        assert_eq!(status("127.0.0.1:1", whole, &["localhost"]), 421);
        assert_eq!(status("127.0.0.1:1", "http://[::1]:1/v1/check", &["evil.example"]), 200);
        assert_eq!(status("127.0.0.1:1", "http://localhost/v1/check", &[]), 400);
    }
}
