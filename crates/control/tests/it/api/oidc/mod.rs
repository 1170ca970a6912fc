//! Sign-in with OpenID Connect, at a provider of the test's own.

mod bounds;
mod groups;
mod provider;
mod refused;
mod ways;

use std::sync::Arc;

use serde_json::json;
use sluicegate_control::identity::{GroupGrant, Oidc, OidcProviderConfig};

use crate::api::client::{Answer, Client, Served};
use provider::{CLIENT_ID, CLIENT_SECRET, Provider};

/// The subject of the provider's person, unless a test changes it.
const SUB: &str = "1234";

/// An API where people sign in at a provider, and an administrator `ada` with a password.
struct Stage {
    served: Served,
    ada: Client,
    provider: Provider,
}

/// A sign-in that has begun.
struct Begun {
    browser: Client,
    /// The page to which the browser was sent.
    page: String,
}

fn config(issuer: &str) -> OidcProviderConfig {
    OidcProviderConfig {
        issuer: issuer.to_owned(),
        client_id: CLIENT_ID.to_owned(),
        client_secret: CLIENT_SECRET.to_owned(),
        redirect_url: "https://limits.example.org/v1/admin/oidc/callback".to_owned(),
        scopes: vec!["email".to_owned()],
        ca: None,
        create_accounts: false,
        groups_claim: "groups".to_owned(),
        admin_group: None,
        roles: Vec::<GroupGrant>::new(),
    }
}

impl Stage {
    async fn start(changed: impl FnOnce(&mut OidcProviderConfig)) -> Self {
        Self::at(Provider::start().await, changed).await
    }

    /// Starts a stage with the console at the same address.
    async fn with_console() -> Self {
        let provider = Provider::start().await;
        let oidc = Arc::new(Oidc::new(config(&provider.issuer)).expect("it makes sense"));
        let served = Served::with_admin_of(|api| api.with_oidc(oidc).with_console()).await;
        Self { served: served.0, ada: served.1, provider }
    }

    async fn at(provider: Provider, changed: impl FnOnce(&mut OidcProviderConfig)) -> Self {
        let mut config = config(&provider.issuer);
        changed(&mut config);
        let oidc = Arc::new(Oidc::new(config).expect("it makes sense"));
        let (served, ada) = Served::with_admin_of(|api| api.with_oidc(oidc)).await;
        Self { served, ada, provider }
    }

    /// Creates an account for the provider's person.
    async fn account(&self, name: &str) {
        let subject = format!("{}|{SUB}", self.provider.issuer);
        let body = json!({ "name": name, "subject": subject });
        let made = self.served.ask(&self.ada, "POST /accounts", Some(body)).await;
        assert_eq!(made.status, 201, "{made:?}");
    }

    /// Begins the sign-in of a browser.
    async fn begin(&self, browser: &Client) -> Begun {
        let answer = self.served.ask(browser, "GET /oidc/login", None).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = Some(answer.cookie());
        let page = answer.headers["location"].to_str().expect("plain text").to_owned();
        Begun { browser: Client { cookie, ..browser.clone() }, page }
    }

    /// Sends the browser to the callback with the query that the provider gave it.
    async fn call_back(&self, browser: &Client, called: &str) -> Answer {
        // Browsers report this after a redirect from another site.
        let browser = browser.with("sec-fetch-site", "cross-site");
        self.served.ask(&browser, &format!("GET /oidc/callback?{called}"), None).await
    }

    /// Signs a new browser in, from the first request to the callback.
    async fn sign_in(&self) -> Answer {
        let Begun { browser, page } = self.begin(&Client::default()).await;
        self.call_back(&browser, &self.provider.visit(&page)).await
    }

    /// Signs a new browser in, which must succeed, and returns its client.
    async fn signed_in(&self) -> Client {
        let answer = self.sign_in().await;
        assert_eq!(answer.status, 303, "{answer:?}");
        Client { cookie: Some(session(&answer).expect("it has one")), ..Client::default() }
    }

    /// Returns the audit behind the entry numbered `since`, as `actor action target outcome`.
    async fn audit(&self, since: i64) -> Vec<String> {
        self.served.catalog.verify_audit().await.expect("it holds");
        let entries = self.served.catalog.audit_since(since).await.expect("it answers");
        let told = |entry: &sluicegate_control::audit::AuditEntry| {
            format!("{} {} {} {}", entry.actor, entry.action, entry.target, entry.outcome)
        };
        entries.iter().map(told).collect()
    }

    /// Returns the number of entries in the audit.
    async fn entries(&self) -> i64 {
        self.served.catalog.verify_audit().await.expect("it holds").entries
    }
}

/// Returns the cookie of a session that was set, if one was.
fn session(answer: &Answer) -> Option<String> {
    let cookies = answer.headers.get_all("set-cookie").into_iter();
    let mut cookies = cookies.map(|cookie| cookie.to_str().expect("plain text"));
    let cookie = cookies.find(|cookie| cookie.starts_with("__Host-sluicegate=sgs_"))?;
    cookie.split(';').next().map(str::to_owned)
}
