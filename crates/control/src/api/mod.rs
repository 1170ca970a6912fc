//! The admin API: HTTP and JSON, below `/v1/admin`.
//!
//! ```text
//! request ─▶ CSRF guard ─▶ route ─▶ authenticate ─▶ access::allow ─▶ handler ─▶ Catalog
//!                            │                           │             └ on a blocking thread, if there is a body
//!                            │                           └─ denied: 401, 403, and of writes an audit entry
//!                            └ ROUTES: method, path, action, handler, and schemas
//! ```
//!
//! A route is a row of a table (`table.rs`), and has an [`Action`](crate::Action), which has a rule; there
//! is no other way to a handler. All routes that change something take `?reason=`, `?dry_run=true`,
//! `?force=true` and the header field `Idempotency-Key`; those that change something that exists take
//! `If-Match` with its `ETag`.

mod attempts;
mod boost;
mod budgets;
mod changes;
mod denial_audit;
mod describe;
mod handlers;
mod missing;
mod parameters;
mod principal;
mod problem;
mod query;
mod request;
mod route;
mod setup;
mod sightings;
mod table;
mod whatif;
mod work;

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{map_request, map_response};
use axum::response::Response;
use axum::routing::on;
use sluicegate::{Clock, Micros};
use tokio::sync::Semaphore;
use tower_http::csrf::CsrfLayer;

use crate::access::allow;
use crate::catalog::{Catalog, SessionSpans};
use crate::error::Error;
use crate::identity::{Oidc, Passwords, Secret};
use crate::traffic::{LiveTraffic, NoTraffic};
use attempts::Attempts;
pub use budgets::{
    Budget, BudgetError, BudgetFuture, Budgets, ExplainError, ExplainFuture, ExplainRequest,
    ExplainedKey, HeldError, HeldFuture, HeldPermit, HeldPermits, KeyOutlook, LeasedPermits,
    NoBudgets, ReleaseFuture, RuleOutlook, StoreFuture, ToExplain,
};
use changes::Changes;
use denial_audit::DenialAudit;
pub use describe::openapi;
pub use handlers::meta::{CatalogState, Meta, MetaOidc};
use handlers::stream::Streams;
use principal::authenticate;
use problem::ApiProblem;
pub use problem::damaged_total;
use request::{ApiRequest, ApiResponse};
use route::Route;
pub use setup::Setup;
use sightings::Sightings;
use sluicegate_policy::finding;
pub use table::access_table;
use table::{Handler, ROUTES};
use whatif::KeptLogs;
pub use whatif::{
    BucketCounts, ComparedBucket, ComparedCounts, ComparedKey, ComparedPolicy, ComparedTimeline,
    ComparedUndecided, Comparison, NoWhatIf, ToCompare, WhatIf, WhatIfError,
};
use work::{Work, beside};

/// The site of a request, as a browser reports it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Path prefix of the API.
pub const PREFIX: &str = "/v1/admin";

/// The admin API and its dependencies. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    catalog: Catalog,
    clock: Arc<dyn Clock>,
    budgets: Arc<dyn Budgets>,
    passwords: Passwords,
    setup: Arc<Setup>,
    attempts: Arc<Attempts>,
    changes: Arc<Changes>,
    refused: Arc<DenialAudit>,
    /// One permit for each request that verifies or exports the audit.
    verifying: Arc<Semaphore>,
    traffic: Arc<dyn LiveTraffic>,
    reading: Arc<Semaphore>,
    work: Arc<Work>,
    streams: Arc<Streams>,
    sightings: Arc<Sightings>,
    what_if: Arc<dyn WhatIf>,
    /// One permit for each what-if that runs.
    comparing: Arc<Semaphore>,
    logs: Arc<KeptLogs>,
    spans: SessionSpans,
    oidc: Option<Arc<Oidc>>,
    /// The configuration of the node, without secrets.
    settings: Arc<serde_json::Value>,
    /// URLs at which the node takes requests for permits.
    listen: Arc<[String]>,
    /// The console is served at the same address.
    #[cfg_attr(not(feature = "oidc"), expect(dead_code, reason = "nobody is sent there"))]
    has_console: bool,
    /// Returns the description of all routes, which handlers do not know.
    description: fn() -> serde_json::Value,
}

/// Period of limits per minute.
const MINUTE: Micros = Micros::from_secs(60);

/// Maximum number of requests that verify or export the audit at a time: each may read all of it.
const VERIFIED_MAX: usize = 1;

/// Maximum number of requests that read traffic at a time: one may read thousands of rows.
const READ_MAX: usize = 2;

/// Maximum number of what-ifs at a time: one takes a processor and some hundred megabytes.
const COMPARED_MAX: usize = 1;

impl Api {
    /// Creates the API of `catalog`. `setup` has the token to create the first account with; live budgets are
    /// looked up in `budgets`.
    ///
    /// # Panics
    /// Never: the limits of attempts make sense.
    pub fn new(
        catalog: Catalog,
        clock: Arc<dyn Clock>,
        setup: Setup,
        budgets: Arc<dyn Budgets>,
    ) -> Self {
        let attempts = Attempts::new(&clock);
        let noted = attempts::limiter(denial_audit::NOTED, denial_audit::NOTED, MINUTE, &clock);
        let refused = DenialAudit::new(noted);
        Self {
            catalog,
            budgets,
            passwords: Passwords::default(),
            setup: Arc::new(setup),
            attempts: Arc::new(attempts),
            changes: Arc::new(Changes::new(&clock)),
            refused: Arc::new(refused),
            verifying: Arc::new(Semaphore::new(VERIFIED_MAX)),
            traffic: Arc::new(NoTraffic),
            reading: Arc::new(Semaphore::new(READ_MAX)),
            work: Arc::default(),
            streams: Arc::default(),
            sightings: Arc::default(),
            what_if: Arc::new(NoWhatIf),
            comparing: Arc::new(Semaphore::new(COMPARED_MAX)),
            logs: Arc::default(),
            spans: SessionSpans::default(),
            oidc: None,
            settings: Arc::default(),
            listen: Arc::default(),
            has_console: false,
            description: openapi,
            clock,
        }
    }

    /// Adds sign-in with OpenID Connect.
    #[must_use]
    pub fn with_oidc(self, oidc: Arc<Oidc>) -> Self {
        Self { oidc: Some(oidc), ..self }
    }

    /// Adds the traffic that the node counts itself.
    #[must_use]
    pub fn with_traffic(self, traffic: Arc<dyn LiveTraffic>) -> Self {
        Self { traffic, ..self }
    }

    /// Declares that the console is at the same address: people whose sign-in fails are sent there.
    #[must_use]
    pub fn with_console(self) -> Self {
        Self { has_console: true, ..self }
    }

    /// Sets the configuration of the node, which must not contain secrets.
    #[must_use]
    pub fn with_settings(self, settings: serde_json::Value) -> Self {
        Self { settings: Arc::new(settings), ..self }
    }

    /// Sets the URLs at which the node takes requests for permits.
    #[must_use]
    pub fn with_listen(self, listen: &[String]) -> Self {
        Self { listen: listen.into(), ..self }
    }

    /// Adds the service that runs policies on logs.
    #[must_use]
    pub fn with_what_if(self, what_if: Arc<dyn WhatIf>) -> Self {
        Self { what_if, ..self }
    }

    /// Sets the number of changes that one account or token may make in a minute.
    #[must_use]
    pub fn with_changes_per_minute(self, changes: NonZeroU32) -> Self {
        Self { changes: Arc::new(Changes::per_minute(changes, &self.clock)), ..self }
    }

    /// Replaces the setup token by a new one, valid for [`Setup::GOOD`]; none if there are accounts.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn renew_setup(&self) -> Result<Option<Secret>, Error> {
        if self.catalog.has_accounts().await? {
            return Ok(None);
        }
        Ok(Some(self.setup.renew(self.now())))
    }

    /// Ends all connections to the database; requests fail from now on.
    pub async fn close(&self) {
        self.catalog.close().await;
    }

    /// Returns whether there is a setup token that was not used, expired or not.
    pub fn has_setup_token(&self) -> bool {
        self.setup.is_pending()
    }

    /// Returns the router of the API. The extension [`ClientAddress`] of a request has the address of its client.
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        for (route, handler) in ROUTES {
            let api = self.clone();
            let answer = move |params: RawPathParams, request: Request| {
                let api = api.clone();
                async move { api.answer(route, *handler, &params, request).await }
            };
            router = router.route(&format!("{PREFIX}{}", route.path), on(route.filter(), answer));
        }
        router
            .method_not_allowed_fallback(async || {
                let problem = finding!("method_not_allowed", "method not allowed");
                ApiProblem::new(StatusCode::METHOD_NOT_ALLOWED, problem).respond()
            })
            .fallback(async || {
                let problem = finding!("path_not_found", "path not found");
                ApiProblem::new(StatusCode::NOT_FOUND, problem).respond()
            })
            .layer(CsrfLayer::new())
            .layer(map_request(without_contradiction))
            .layer(map_response(of_other_site))
    }

    /// Returns the current time in milliseconds since 1970.
    fn now(&self) -> i64 {
        i64::try_from(self.clock.now().get() / 1_000).unwrap_or(i64::MAX)
    }

    async fn answer(
        &self,
        route: &'static Route,
        handler: Handler,
        params: &RawPathParams,
        request: Request,
    ) -> Response {
        let answered = self.try_answer(route, handler, params, request).await;
        let mut response = answered.unwrap_or_else(ApiProblem::respond);
        if route.action.writes() && response.status().is_success() {
            response.extensions_mut().insert(CatalogChanged);
        }
        let headers = response.headers_mut();
        // An answer is for this client, at this moment.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    async fn try_answer(
        &self,
        route: &'static Route,
        handler: Handler,
        params: &RawPathParams,
        request: Request<Body>,
    ) -> Result<Response, ApiProblem> {
        self.logs.forget(self.now());
        let (head, body) = request.into_parts();
        let principal = authenticate(self, &head).await?;
        let app = params.iter().find(|(name, _)| *name == "app").map(|(_, app)| app.to_owned());
        let mut ask = ApiRequest::new(self.clone(), principal, route, params, &head);
        if let Err(denied) = allow(&ask.by.actor, route.action, app.as_deref()) {
            if route.action.writes() {
                ask.audit_denied(route, app.as_deref()).await;
            }
            return Err(denied.into());
        }
        self.changes.count(&ask.by.actor, route.action)?;
        ask.read(route, body).await?;
        if let Some(app) = app.filter(|_| route.action.writes() && !ask.by.dry_run) {
            self.changes.count_bytes(&app, ask.body_bytes())?;
        }
        let actor = ask.by.actor.clone();
        let answered = match ask.body_bytes() {
            0 => handled(route, handler, ask).await,
            // A what-if has its slot already.
            _ if route.takes_log() => beside(None, handled(route, handler, ask)).await,
            length => {
                let slot = self.work.slot_for(&ask.by.actor, length).await?;
                beside(Some(slot), handled(route, handler, ask)).await
            }
        };
        match answered {
            Ok(answer) => Ok(answer.respond()),
            Err(problem) => Err(missing::named(self, &actor, route, params, problem).await),
        }
    }
}

/// Examines the body of a request, and calls its handler.
async fn handled(
    route: &'static Route,
    handler: Handler,
    mut ask: ApiRequest,
) -> Result<ApiResponse, ApiProblem> {
    ask.look(route)?;
    handler(ask).await
}

/// Removes `Sec-Fetch-Site: none` from a request with an `Origin`, which then decides. A browser that sends `none`
/// sends no `Origin`, so a request with both may come from another site.
async fn without_contradiction(mut request: Request) -> Request {
    let headers = request.headers_mut();
    let is_none = |value: &HeaderValue| value.as_bytes().trim_ascii() == b"none";
    if headers.contains_key(header::ORIGIN) && headers.get_all(SEC_FETCH_SITE).iter().any(is_none) {
        headers.remove(SEC_FETCH_SITE);
    }
    request
}

/// Adds a problem to the refusal of a cross-site request, which has no body yet.
async fn of_other_site(response: Response) -> Response {
    if response.status() != StatusCode::FORBIDDEN
        || response.headers().contains_key(header::CONTENT_TYPE)
    {
        return response;
    }
    let problem =
        finding!("cross_site", "origin: cross-site request refused; `Origin` must match the host");
    ApiProblem::new(StatusCode::FORBIDDEN, problem).respond()
}

/// Address of the client: the server that accepted the connection puts it into the extensions of a request.
#[derive(Clone, Debug)]
pub struct ClientAddress(pub String);

/// An extension of responses: the request changed the catalog, or may have.
#[derive(Clone, Copy, Debug)]
pub struct CatalogChanged;

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}
