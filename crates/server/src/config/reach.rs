//! Checks that addresses which other machines can reach require authentication, unless the
//! configuration permits it otherwise.
//!
//! | section | an address that others can reach needs one of |
//! |---|---|
//! | `http`, `rls` | tokens (`catalog.url` or `token_file`), `tls.client_ca`, `insecure` |
//! | `resp` | tokens (`catalog.url`), `tls.client_ca`, `password`, `insecure` |
//! | `admin` | `tls.client_ca`, `insecure` |
//! | `catalog` | `tls`, `insecure`: the admin API authenticates by itself |
//!
//! Likewise a connection to a database or a Redis on another machine needs TLS, or `url_insecure`.

use sluicegate_text::store::StoreName;

use super::error::{ConfigError, wrong};
use super::{Config, Listen, OneOrMany, TlsConfig, TokensRequired};

/// # Errors
/// [`ConfigError`] for the first address or connection that is open and that the configuration does not permit.
pub(super) fn check(config: &Config, store: &StoreName) -> Result<(), ConfigError> {
    let Config { http, resp, rls, admin, catalog, .. } = config;
    let has_tokens = catalog.url.is_some() && catalog.tokens_required != TokensRequired::Never;
    let tokens = "tokens (`catalog.url`, `catalog.tokens_required`)";
    let certificates =
        |tls: &Option<TlsConfig>| tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    let of_http = has_tokens || http.token_file.is_some() || certificates(&http.tls);
    let or_file = |section| format!("`{section}.token_file`, {tokens}");
    guarded("http", &http.listen, of_http || http.insecure, &or_file("http"))?;
    let of_rls = has_tokens || rls.token_file.is_some() || certificates(&rls.tls);
    guarded("rls", &rls.listen, of_rls || rls.insecure, &or_file("rls"))?;
    let asks = has_tokens || resp.password.is_some() || certificates(&resp.tls);
    let tokens_or_password = &format!("`resp.password_file`, {tokens}");
    guarded("resp", &resp.listen, asks || resp.insecure, tokens_or_password)?;
    guarded("admin", &admin.listen, certificates(&admin.tls) || admin.insecure, "")?;
    check_admin_api(config)?;
    check_urls(config, store)
}

/// Refuses an address that other machines can reach, unless `is_guarded`. The error names the
/// alternatives, with the section's own `remedies`.
fn guarded(
    section: &str,
    listen: &OneOrMany<Listen>,
    is_guarded: bool,
    remedies: &str,
) -> Result<(), ConfigError> {
    let Some(open) = open(listen).filter(|_| !is_guarded) else { return Ok(()) };
    let separator = if remedies.is_empty() { "" } else { ", " };
    let problem = format!(
        "`{open}` can be reached from other machines, without authentication: expected a \
         loopback address{separator}{remedies}, `{section}.tls.client_ca`, or `{section}.insecure = true`"
    );
    wrong(&format!("{section}.listen"), problem)
}

/// Refuses an admin API without TLS that other machines can reach: passwords would be sent in clear.
fn check_admin_api(config: &Config) -> Result<(), ConfigError> {
    let Config { admin, catalog, .. } = config;
    let (listen, tls, section, instead) = match catalog.listen.as_slice() {
        [] => (&admin.listen, &admin.tls, "admin", "a separate address (`catalog.listen`)"),
        _ => (&catalog.listen, &catalog.tls, "catalog", "a loopback address"),
    };
    let is_clear = catalog.url.is_some() && tls.is_none() && !catalog.insecure;
    let Some(open) = open(listen).filter(|_| is_clear) else { return Ok(()) };
    let problem = format!(
        "`{open}` can be reached from other machines, and the admin API would take passwords \
         without TLS: expected {instead}, `{section}.tls`, or `catalog.insecure = true`"
    );
    wrong(&format!("{section}.listen"), problem)
}

/// Refuses unprotected connections to a Redis or a database on another machine. An error does not
/// repeat the URL: there may be a password in it.
fn check_urls(config: &Config, store: &StoreName) -> Result<(), ConfigError> {
    let Config { store: store_config, catalog, .. } = config;
    if let StoreName::Redis(redis) = store
        && redis.is_open()
        && !store_config.url_insecure
    {
        let problem = "the connection to a Redis on another machine is not encrypted: expected \
                       `rediss://`, `rediss+sentinel://` or `rediss+cluster://`, or \
                       `store.url_insecure = true`";
        return wrong("store.url", problem.to_owned());
    }
    let url = catalog.url.as_ref().map(|url| url.expose().parse::<sluicegate_control::Url>());
    if let Some(Ok(url)) = url
        && url.is_open()
        && !catalog.url_insecure
    {
        let problem = "the certificate of a database on another machine is not verified: add \
                       `?sslmode=verify-full` (PostgreSQL) or `?ssl-mode=VERIFY_IDENTITY` (MySQL), or \
                       set `catalog.url_insecure = true`";
        return wrong("catalog.url", problem.to_owned());
    }
    Ok(())
}

/// The first address that other machines can reach, if there is one.
fn open(listen: &OneOrMany<Listen>) -> Option<&Listen> {
    listen.as_slice().iter().find(|listen| !listen.is_local())
}

#[cfg(test)]
mod tests {
    use crate::config::of_text;

    /// The problem of `text`; empty if there is none.
    fn problem(text: &str) -> String {
        of_text(text).err().unwrap_or_default()
    }

    const CATALOG: &str = "[catalog]\nurl = 'sqlite:c.db'\n";

    #[test]
    fn an_address_that_others_can_reach_asks_who_they_are_or_is_said_to_be_open() {
        for wire in ["http", "resp", "rls"] {
            for address in ["0.0.0.0:1", "[::]:1", "10.0.0.5:1", "[::ffff:127.0.0.1]:1"] {
                let open = format!("[{wire}]\nlisten = ['127.0.0.1:2', '{address}']\n");
                let refused = problem(&open);
                let begins =
                    format!("{wire}.listen: `{address}` can be reached from other machines");
                assert!(refused.starts_with(&begins), "{refused}");
                for remedy in ["catalog.url", ".tls.client_ca", ".insecure = true"] {
                    assert!(refused.contains(remedy), "{refused}");
                }
                assert_eq!(refused.contains("resp.password_file"), wire == "resp", "{refused}");

                let tls = "tls = { cert = 'c', key = 'k'";
                assert_ne!(problem(&format!("{open}{tls} }}")), "", "TLS alone asks nobody");
                assert_eq!(problem(&format!("{open}{tls}, client_ca = 'a' }}")), "");
                assert_eq!(problem(&format!("{open}insecure = true")), "");
                let with_file = problem(&format!("{open}token_file = 't'"));
                assert_eq!(with_file.is_empty(), wire != "resp", "{wire}: {with_file}");
                assert_eq!(problem(&format!("{open}{CATALOG}")), "");
                let never = format!("{open}{CATALOG}tokens_required = 'never'");
                assert!(problem(&never).starts_with(&begins), "{never}");
            }
            for address in ["127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "unix:/s"] {
                assert_eq!(problem(&format!("[{wire}]\nlisten = '{address}'")), "");
            }
        }
        assert_eq!(problem("[resp]\nlisten = '0.0.0.0:1'\npassword = 'hunter2'"), "");
    }

    #[test]
    fn metrics_for_everybody_are_no_passwords_in_clear() {
        let open = "[admin]\nlisten = '0.0.0.0:1'\ninsecure = true\n";
        assert_eq!(problem(open), "");
        let refused = problem(&format!("{open}{CATALOG}"));
        assert!(refused.starts_with("admin.listen: `0.0.0.0:1` can be reached"), "{refused}");
        assert!(
            refused.contains("`catalog.listen`") && refused.contains("`catalog.insecure = true`")
        );
        for more in ["insecure = true", "listen = '127.0.0.1:2'"] {
            assert_eq!(problem(&format!("{open}{CATALOG}{more}")), "", "{more}");
        }
        let tls = "[admin.tls]\ncert = 'c'\nkey = 'k'\n";
        assert_eq!(problem(&format!("{open}{tls}{CATALOG}")), "");
        let own = format!("{CATALOG}listen = '0.0.0.0:1'\n");
        assert!(problem(&own).starts_with("catalog.listen: `0.0.0.0:1` can be reached"));
        assert_eq!(problem(&format!("{own}tls = {{ cert = 'c', key = 'k' }}")), "");
        assert_eq!(problem(&format!("{own}insecure = true")), "");
    }

    #[test]
    fn a_store_and_a_database_on_another_machine_are_spoken_to_by_tls() {
        for (section, url, instead) in [
            ("store", "redis://:hunter2@h", "rediss://:hunter2@h"),
            ("store", "redis+cluster://127.0.0.1,10.0.0.1", "redis+cluster://127.0.0.1,localhost"),
            ("store", "redis+sentinel://10.0.0.1/m", "rediss+sentinel://10.0.0.1/m"),
            ("store", "redis://[2001:db8::1]", "redis://[::1]"),
            ("catalog", "postgres://u:hunter2@h/c", "postgres://u@h/c?sslmode=verify-full"),
            ("catalog", "mysql://u:hunter2@h/c", "mysql://u@127.0.0.1/c"),
        ] {
            let text = format!("[{section}]\nurl = '{url}'\n");
            let refused = problem(&text);
            assert!(refused.starts_with(&format!("{section}.url: the ")), "{url}: {refused}");
            assert!(refused.contains(&format!("`{section}.url_insecure = true`")), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
            assert_eq!(problem(&format!("{text}url_insecure = true")), "");
            assert_eq!(problem(&format!("[{section}]\nurl = '{instead}'")), "", "{instead}");
        }
        assert_eq!(problem("[store]\nurl = 'unix:///run/redis.sock'"), "");
    }
}
