//! Addresses that no two listeners can have.

use std::net::SocketAddr;

use super::error::{ConfigError, wrong};
use super::{Config, Listen};

/// Checks that no two listeners have one address.
///
/// # Errors
/// [`ConfigError`] for the first address that two listeners have, which names both.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let Config { http, resp, rls, admin, metrics, catalog, .. } = config;
    let sections = [
        ("http", &http.listen),
        ("resp", &resp.listen),
        ("rls", &rls.listen),
        ("admin", &admin.listen),
        ("metrics", &metrics.listen),
        ("catalog", &catalog.listen),
    ];
    let all = sections
        .into_iter()
        .flat_map(|(section, listen)| listen.as_slice().iter().map(move |one| (section, one)));
    let all: Vec<_> = all.collect();
    for (place, (section, listen)) in all.iter().enumerate() {
        let Some((other, taken)) = all[..place].iter().find(|(_, other)| collide(other, listen))
        else {
            continue;
        };
        let problem = format!(
            "`{listen}` cannot be used: `{other}.listen` has `{taken}`; expected another port, or `off`"
        );
        return wrong(&format!("{section}.listen"), problem);
    }
    Ok(())
}

/// Returns whether only one of the two can listen. Port 0 is another one each time.
fn collide(one: &Listen, other: &Listen) -> bool {
    match (one, other) {
        (Listen::Tcp(one), Listen::Tcp(other)) => one.port() != 0 && overlap(one, other),
        (Listen::Unix(one), Listen::Unix(other)) => one == other,
        _ => false,
    }
}

/// Returns whether the two have a port in common, on an address in common.
fn overlap(one: &SocketAddr, other: &SocketAddr) -> bool {
    let is_whole = one.ip().is_unspecified() || other.ip().is_unspecified();
    let is_family = one.is_ipv4() == other.is_ipv4();
    one.port() == other.port() && (one.ip() == other.ip() || is_family && is_whole)
}

#[cfg(test)]
mod tests {
    use crate::config::of_text;

    fn problem(http: &str, resp: &str) -> String {
        let text = format!(
            "[http]\ninsecure = true\nlisten = {http}\n[resp]\ninsecure = true\nlisten = {resp}"
        );
        of_text(&text).err().unwrap_or_default()
    }

    #[test]
    fn an_address_that_two_listeners_have_is_an_error_that_names_both() {
        for (http, resp, taken) in [
            ("'127.0.0.1:7'", "'127.0.0.1:7'", "127.0.0.1:7"),
            ("'127.0.0.1:7'", "['127.0.0.1:8', '0.0.0.0:7']", "127.0.0.1:7"),
            ("'[::]:7'", "'[::1]:7'", "[::]:7"),
            ("'unix:/run/s'", "'unix:/run/s'", "unix:/run/s"),
        ] {
            let problem = problem(http, resp);
            assert!(problem.starts_with("resp.listen: `"), "{problem}");
            let named = format!("cannot be used: `http.listen` has `{taken}`; expected another");
            assert!(problem.contains(&named), "{problem}");
        }
        assert!(problem("['127.0.0.1:7', '127.0.0.1:7']", "'off'").starts_with("http.listen: "));
        for (http, resp) in [
            ("'127.0.0.1:0'", "'127.0.0.1:0'"),
            ("'127.0.0.1:7'", "'127.0.0.2:7'"),
            ("'127.0.0.1:7'", "'[::]:7'"),
            ("'unix:/run/s'", "'unix:/run/t'"),
        ] {
            assert_eq!(problem(http, resp), "", "{http} {resp}");
        }
    }
}
