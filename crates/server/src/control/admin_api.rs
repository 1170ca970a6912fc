//! The admin API, which opens once the catalog answers.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Result, anyhow};
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sluicegate::internals::http::TrustedProxies;
use sluicegate::internals::http::problem::MEDIA_TYPE;
use sluicegate_control::api::{
    Api, CatalogChanged, CatalogState, ClientAddress, Meta, PREFIX, Setup,
};
use sluicegate_control::identity::Oidc;
use sluicegate_text::terminal;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use super::setup_file::SetupFile;
use crate::config::{CatalogConfig, Config, Network};
use crate::protocol::Peer;

/// The reply to every request until the catalog was reached.
const AWAY: &str = "catalog unavailable; the last known policies stay in effect";

/// The reply to every request where no catalog is configured.
const NONE: &str = "no catalog is configured: start with `--catalog URL` or set `catalog.url`";

/// Longest wait of a reply to a change, until this server decides by it: reading the catalog takes milliseconds,
/// and a client gives up after seconds.
const APPLIED_WAIT_MAX: Duration = Duration::from_secs(1);

/// The admin API of a server.
#[derive(Debug)]
pub(crate) struct AdminApi {
    /// None: the catalog was not reached yet, or none is configured.
    open: OnceLock<OpenApi>,
    /// A catalog is configured.
    has_catalog: bool,
    /// The number of changes that were made here; `applied` is how many of them this server decides by.
    changes: AtomicU64,
    applied: watch::Sender<u64>,
    changed: Notify,
    /// Proxies whose `X-Forwarded-For` is trusted.
    proxies: TrustedProxies,
    /// The provider of OpenID Connect, if there is one.
    oidc: Option<Arc<Oidc>>,
    /// Maximum number of changes by one account or token in a minute.
    changes_per_minute: NonZeroU32,
    /// Number of versions that are kept of each policy.
    versions_max: NonZeroU32,
    /// The URL of the console, if this server has an address for it.
    console: Option<String>,
    /// The file for the setup token. None: standard error.
    setup_file: Option<SetupFile>,
    /// The configuration of this server, without secrets.
    settings: serde_json::Value,
    /// The URLs where this server takes requests for permits.
    listen: Vec<String>,
    /// This server has an address where the admin API answers.
    is_reachable: bool,
}

/// The API, and the router to it.
#[derive(Debug)]
struct OpenApi {
    api: Api,
    router: Router,
}

impl AdminApi {
    /// Creates the admin API that `config` describes, not open yet, with its console at this URL.
    ///
    /// # Errors
    /// What is wrong with the files that `config` names.
    pub(crate) fn new(config: &CatalogConfig, console: Option<String>) -> Result<Self> {
        let oidc = config.oidc.as_ref().map(|oidc| Oidc::new(oidc.of_catalog())).transpose();
        let oidc = oidc.map_err(|error| {
            anyhow!("catalog.oidc.{}", error.to_string().trim_start_matches('/'))
        })?;
        let proxies = config.trusted_proxies.as_slice().iter().map(|Network(network)| *network);
        let proxies = TrustedProxies::new(proxies);
        let oidc = oidc.map(Arc::new);
        Ok(Self {
            open: OnceLock::new(),
            has_catalog: config.url.is_some(),
            changes: AtomicU64::new(0),
            applied: watch::Sender::new(0),
            changed: Notify::new(),
            proxies,
            oidc,
            changes_per_minute: NonZeroU32::new(config.changes_per_minute)
                .unwrap_or(NonZeroU32::MIN),
            versions_max: config.versions_max,
            console,
            setup_file: config.setup_token_file.clone().map(SetupFile::new),
            settings: serde_json::Value::default(),
            listen: Vec::new(),
            is_reachable: true,
        })
    }

    /// Sets the configuration that is shown; secrets in it print as `***`.
    ///
    /// # Errors
    /// None that a configuration can have: all of it is texts, numbers and lists.
    pub(crate) fn showing(self, config: &Config) -> Result<Self> {
        Ok(Self { settings: serde_json::to_value(config)?, ..self })
    }

    /// Sets the URLs where the server takes requests for permits.
    pub(crate) fn listening(self, listen: Vec<String>) -> Self {
        Self { listen, ..self }
    }

    /// Sets whether the server has an address for the admin API.
    pub(crate) fn reachable(self, is_reachable: bool) -> Self {
        Self { is_reachable, ..self }
    }

    /// Opens the admin API on `api`, and announces a setup token if there are no accounts.
    ///
    /// # Errors
    /// If the catalog does not say whether there are accounts.
    pub(super) async fn open(&self, api: Api) -> Result<(), sluicegate_control::Error> {
        let api = api.with_changes_per_minute(self.changes_per_minute);
        let api = api.with_settings(self.settings.clone()).with_listen(&self.listen);
        let api = match self.console {
            Some(_) if sluicegate_console::IS_BUILT => api.with_console(),
            _ => api,
        };
        let api = match &self.oidc {
            Some(oidc) => api.with_oidc(Arc::clone(oidc)),
            None => api,
        };
        self.announce_setup(&api).await?;
        let router = api.router();
        self.open.set(OpenApi { api, router }).ok();
        Ok(())
    }

    /// Renews the setup token until there are accounts.
    pub(super) async fn renew_setup(&self) {
        let Some(OpenApi { api, .. }) = self.open.get() else { return };
        loop {
            sleep(Setup::GOOD).await;
            // A catalog that does not answer is asked again.
            if !self.announce_setup(api).await.unwrap_or(true) {
                return;
            }
        }
    }

    /// Writes a new setup token, if there are no accounts and this server has an address for the
    /// admin API. Returns whether a token has to be renewed later.
    async fn announce_setup(&self, api: &Api) -> Result<bool, sluicegate_control::Error> {
        let Some(secret) = api.renew_setup().await? else {
            self.remove_setup_file();
            return Ok(false);
        };
        if !self.is_reachable {
            tracing::info!(
                "the catalog has no accounts; create one at a server with an admin API: this one has no `admin.listen` \
                 and no `catalog.listen`"
            );
            return Ok(false);
        }
        let minutes = Setup::GOOD.as_secs() / 60;
        let secret = secret.expose();
        if let Some(file) = &self.setup_file {
            let path = file.path();
            match file.write(secret) {
                Ok(()) => tracing::info!(
                    "the catalog has no accounts: create one with the setup token in {path}, within {minutes} minutes"
                ),
                Err(error) => {
                    tracing::error!(
                        "catalog.setup_token_file: cannot write {path}: {error}; nobody can create the first account \
                         until this process may write there: mend its folder and restart"
                    );
                }
            }
            return Ok(true);
        }
        // Not by the log, which is kept.
        terminal::print_error_line(format_args!(
            "the catalog has no accounts: create one with this setup token, within {minutes} minutes\n  {secret}",
        ));
        if let Some(console) = self.console.as_deref().filter(|_| sluicegate_console::IS_BUILT) {
            terminal::print_error_line(format_args!("or open {console}/setup#{secret}"));
        }
        Ok(true)
    }

    /// Closes the connections to the catalog, after the last reply.
    pub(crate) async fn close(&self) {
        if let Some(OpenApi { api, .. }) = self.open.get() {
            api.close().await;
        }
    }

    /// Removes the file with the setup token: the token was used, or the server stops.
    pub(crate) fn remove_setup_file(&self) {
        if let Some(file) = &self.setup_file {
            file.remove();
        }
    }

    /// The number of versions that are kept of each policy.
    pub(super) const fn versions_max(&self) -> NonZeroU32 {
        self.versions_max
    }

    /// Returns whether the API is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.get().is_some()
    }

    /// Returns when something was changed here since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Answers `request` of `peer`, which may be a proxy.
    pub(crate) async fn answer(&self, peer: Peer, mut request: Request<Body>) -> Response {
        let Some(OpenApi { api, router }) = self.open.get() else {
            return self.without_catalog(&request);
        };
        let source = self.source(peer, request.headers());
        request.extensions_mut().insert(ClientAddress(source));
        let response = match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if self.setup_file.as_ref().is_some_and(SetupFile::is_written) && !api.has_setup_token() {
            self.remove_setup_file();
        }
        if response.extensions().get::<CatalogChanged>().is_some() {
            self.wait_applied().await;
        }
        response
    }

    /// Has the catalog read, and waits until this server decides by the change: the client may use it next.
    async fn wait_applied(&self) {
        let change = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
        self.changed.notify_one();
        let mut applied = self.applied.subscribe();
        // The change was made, however long that takes; there is always a sender.
        _ = timeout(APPLIED_WAIT_MAX, applied.wait_for(|applied| *applied >= change)).await;
    }

    /// The number of changes that were made here so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Records that this server decides by the first `changes` of the changes that were made here.
    pub(super) fn set_applied(&self, changes: u64) {
        self.applied.send_replace(changes);
    }

    /// The reply to `request` while there is no catalog.
    fn without_catalog(&self, request: &Request<Body>) -> Response {
        if request.method().is_safe() && request.uri().path().strip_prefix(PREFIX) == Some("/meta")
        {
            let state = if self.has_catalog { CatalogState::Away } else { CatalogState::None };
            let meta = serde_json::to_string(&Meta::new(state, self.oidc.as_deref()));
            let meta = meta.expect("texts and numbers are always JSON");
            let headers =
                [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
            return (headers, meta).into_response();
        }
        let (status, detail) = match self.has_catalog {
            true => (StatusCode::SERVICE_UNAVAILABLE, AWAY),
            false => (StatusCode::NOT_FOUND, NONE),
        };
        let problem = serde_json::json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": detail,
        });
        let mut response =
            (status, [(header::CONTENT_TYPE, MEDIA_TYPE)], problem.to_string()).into_response();
        if self.has_catalog {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    /// The address that a request comes from: the peer's, or the one that a trusted proxy reports.
    fn source(&self, peer: Peer, headers: &HeaderMap) -> String {
        let Peer::Ip(address) = peer else { return "local".to_owned() };
        let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        let lines = lines.into_iter().map(HeaderValue::as_bytes);
        self.proxies.client_address(address, lines).to_string()
    }
}
