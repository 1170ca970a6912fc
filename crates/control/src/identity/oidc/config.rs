//! Configuration of OpenID Connect: the provider, and the rights that its groups give.

#[cfg(any(feature = "oidc", test))]
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use axum::http::Uri;

use crate::access::Role;
use crate::error::{Error, PlacedFinding};
use crate::limits::NAME_BYTES_MAX;
use sluicegate_policy::finding;

/// Longest URL of an issuer in bytes: with a subject behind it, it is kept beside the account.
const ISSUER_BYTES_MAX: usize = 200;

/// Longest other text in bytes: that of a URL.
const TEXT_BYTES_MAX: usize = 2_000;

/// Maximum number of roles that groups give: a few for each of the apps that people of one provider share.
const ROLES_MAX: usize = 1_000;

/// Maximum number of scopes that are requested: providers know a dozen.
const SCOPES_MAX: usize = 20;

/// Path to which the provider sends people back, below the URL of the API.
const CALLBACK: &str = "/v1/admin/oidc/callback";

/// A provider of OpenID Connect, as a client that it knows.
#[derive(Clone, PartialEq, Eq)]
pub struct OidcProviderConfig {
    /// The exact URL by which the provider names itself: `https`, or `http` on loopback.
    pub issuer: String,
    /// Id of this client at the provider.
    pub client_id: String,
    /// Secret of this client at the provider.
    pub client_secret: String,
    /// The URL of the callback, as browsers reach it: it ends in `/v1/admin/oidc/callback`.
    pub redirect_url: String,
    /// Scopes that are requested beside `openid`.
    pub scopes: Vec<String>,
    /// A file of authorities in PEM, one of whom signed the provider's certificate; none: those of the
    /// system.
    pub ca: Option<PathBuf>,
    /// `true` to create an account for a person who signs in for the first time.
    pub create_accounts: bool,
    /// The claim of the ID token that lists groups.
    pub groups_claim: String,
    /// The group of administrators; none: the provider does not decide who is one.
    pub admin_group: Option<String>,
    /// Roles that other groups give.
    pub roles: Vec<GroupGrant>,
}

/// A role that a group gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupGrant {
    /// Name of the group at the provider.
    pub group: String,
    /// The app.
    pub app: String,
    /// The role in the app.
    pub role: Role,
}

impl OidcProviderConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the field, such as `/issuer`.
    pub fn check(&self) -> Result<(), Error> {
        let wrong: Vec<_> = [self.wrong_urls(), self.wrong_texts(), self.wrong_roles()].concat();
        if wrong.is_empty() { Ok(()) } else { Err(Error::Invalid(wrong)) }
    }

    fn wrong_urls(&self) -> Vec<PlacedFinding> {
        let mut all = Vec::new();
        let (issuer, back) = (&self.issuer, &self.redirect_url);
        if !is_safe_url(issuer) || issuer.contains(['?', '|']) || issuer.len() > ISSUER_BYTES_MAX {
            let problem = format!(
                "invalid URL `{issuer}`: expected `https://HOST/…`, or `http` on loopback, of at most {ISSUER_BYTES_MAX} bytes"
            );
            all.push(wrong("/issuer", problem));
        }
        if !is_safe_url(back) || !back.ends_with(CALLBACK) || back.len() > TEXT_BYTES_MAX {
            let problem = format!(
                "invalid URL `{back}`: expected `https://HOST{CALLBACK}`, or `http` on loopback"
            );
            all.push(wrong("/redirect_url", problem));
        }
        all
    }

    fn wrong_texts(&self) -> Vec<PlacedFinding> {
        let mut all = Vec::new();
        for (pointer, text) in [
            ("/client_id", &self.client_id),
            ("/client_secret", &self.client_secret),
            ("/groups_claim", &self.groups_claim),
        ] {
            if !is_word(text) {
                // It is not repeated: it may be the secret.
                let problem = format!("expected 1 to {TEXT_BYTES_MAX} bytes of text");
                all.push(wrong(pointer, problem));
            }
        }
        let is_scope = |scope: &String| is_word(scope) && !scope.contains(char::is_whitespace);
        if self.scopes.len() > SCOPES_MAX || !self.scopes.iter().all(is_scope) {
            let problem = format!("expected at most {SCOPES_MAX} scopes without spaces");
            all.push(wrong("/scopes", problem));
        }
        if self.admin_group.as_ref().is_some_and(|group| !is_word(group)) {
            all.push(wrong("/admin_group", "expected a group name".to_owned()));
        }
        all
    }

    fn wrong_roles(&self) -> Vec<PlacedFinding> {
        let mut all = Vec::new();
        if self.roles.len() > ROLES_MAX {
            all.push(wrong("/roles", format!("expected at most {ROLES_MAX} roles")));
        }
        for (place, GroupGrant { group, app, role: _ }) in self.roles.iter().enumerate() {
            if !is_word(group) {
                let problem = "expected a group name".to_owned();
                all.push(wrong(&format!("/roles/{place}/group"), problem));
            }
            if crate::catalog::name(app, "").is_err() {
                let problem = format!(
                    "invalid app name `{app}`: expected 1 to {NAME_BYTES_MAX} characters of `a-z`, `0-9`, `.`, `_` and `-`"
                );
                all.push(wrong(&format!("/roles/{place}/app"), problem));
            }
        }
        all
    }

    /// Returns whether a person in `groups` is an administrator; none: the provider does not decide it.
    #[cfg(any(feature = "oidc", test))]
    pub(crate) fn is_admin(&self, groups: &BTreeSet<String>) -> Option<bool> {
        self.admin_group.as_ref().map(|group| groups.contains(group))
    }

    /// Returns the role of a person in `groups`, in each app for which the provider decides it: the highest that
    /// one of the groups gives, or none.
    #[cfg(any(feature = "oidc", test))]
    pub(crate) fn roles_of(&self, groups: &BTreeSet<String>) -> BTreeMap<String, Option<Role>> {
        let mut roles = BTreeMap::new();
        for GroupGrant { group, app, role } in &self.roles {
            let given = groups.contains(group).then_some(*role);
            let of_app = roles.entry(app.clone()).or_insert(None);
            *of_app = given.max(*of_app);
        }
        roles
    }
}

impl fmt::Debug for OidcProviderConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OidcProviderConfig").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

/// Returns whether nobody between can read or change what is sent there: the URL has TLS, or is on this machine.
pub(super) fn is_safe_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default();
    // A user before an `@` has no place in these URLs.
    let is_plain_host =
        !host.is_empty() && uri.authority().is_some_and(|all| !all.as_str().contains('@'));
    let is_safe = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => is_loopback(host),
        _ => false,
    };
    is_safe && is_plain_host && !url.contains('#')
}

/// Returns whether a host in a URL is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn is_word(text: &str) -> bool {
    (1..=TEXT_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control)
}

/// Creates a finding, which is only shown at the start of the program.
fn wrong(pointer: &str, problem: impl fmt::Display) -> PlacedFinding {
    PlacedFinding::new(pointer, finding!("oidc_config", "{problem}", problem))
}

/// A configuration for tests.
#[cfg(test)]
pub(super) fn example() -> OidcProviderConfig {
    OidcProviderConfig {
        issuer: "https://id.example.org/realms/all".to_owned(),
        client_id: "sluicegate".to_owned(),
        client_secret: "48151623".to_owned(),
        redirect_url: "https://limits.example.org/v1/admin/oidc/callback".to_owned(),
        scopes: vec!["email".to_owned()],
        ca: None,
        create_accounts: false,
        groups_claim: "groups".to_owned(),
        admin_group: None,
        roles: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::example as config;
    use super::*;

    fn problem(change: impl FnOnce(&mut OidcProviderConfig)) -> String {
        let mut config = config();
        change(&mut config);
        config.check().map_or_else(|error| error.to_string(), |()| "none".to_owned())
    }

    #[test]
    fn secrets_do_not_go_over_wires_that_others_read() {
        assert_eq!(problem(|_| {}), "none");
        for url in ["http://localhost:1", "http://127.0.0.1:1/x", "http://[::1]:1"] {
            assert_eq!(problem(|config| config.issuer = url.to_owned()), "none", "{url}");
        }
        for url in [
            "http://id.example.org",
            "http://localhost.example.org",
            "ftp://id.example.org",
            "https://",
            "https://id.example.org?x",
            "https://id.example.org#x",
            "https://a:b@id.example.org",
            "id.example.org",
            "",
        ] {
            let problem = problem(|config| config.issuer = url.to_owned());
            assert!(problem.starts_with("/issuer: "), "{url}: {problem}");
        }
        for url in
            ["https://limits.example.org/", "http://limits.example.org/v1/admin/oidc/callback"]
        {
            let problem = problem(|config| config.redirect_url = url.to_owned());
            assert!(problem.starts_with("/redirect_url: "), "{url}: {problem}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named_and_the_secret_is_not() {
        let problem = problem(|config| {
            config.client_id.clear();
            config.client_secret.push('\n');
            config.scopes.push("a b".to_owned());
            config.admin_group = Some(String::new());
            let (group, app) = (String::new(), "Shop".to_owned());
            config.roles.push(GroupGrant { group, app, role: Role::Viewer });
        });
        for part in [
            "/client_id",
            "/client_secret",
            "/scopes",
            "/admin_group",
            "/roles/0/group",
            "/roles/0/app",
        ] {
            assert!(problem.contains(&format!("{part}: ")), "{part}: {problem}");
        }
        assert!(!problem.contains("48151623") && !format!("{:?}", config()).contains("48151623"));
    }

    #[test]
    fn of_several_groups_the_highest_role_counts_and_of_none_there_is_none() {
        let give = |group: &str, app: &str, role| GroupGrant {
            group: group.to_owned(),
            app: app.to_owned(),
            role,
        };
        let config = OidcProviderConfig {
            admin_group: Some("root".to_owned()),
            roles: vec![
                give("sellers", "shop", Role::Owner),
                give("all", "shop", Role::Viewer),
                give("bankers", "bank", Role::Owner),
            ],
            ..config()
        };
        let groups = |all: &[&str]| all.iter().map(|group| (*group).to_owned()).collect();
        let roles =
            |shop, bank| BTreeMap::from([("shop".to_owned(), shop), ("bank".to_owned(), bank)]);
        assert_eq!(config.roles_of(&groups(&["all", "sellers"])), roles(Some(Role::Owner), None));
        assert_eq!(config.roles_of(&groups(&["all"])), roles(Some(Role::Viewer), None));
        assert_eq!(config.roles_of(&groups(&[])), roles(None, None));
        assert_eq!(config.is_admin(&groups(&["root"])), Some(true));
        assert_eq!(config.is_admin(&groups(&[])), Some(false));
        assert_eq!(
            OidcProviderConfig { admin_group: None, ..config }.is_admin(&groups(&["root"])),
            None
        );
    }
}
