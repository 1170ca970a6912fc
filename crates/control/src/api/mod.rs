//! The admin API: HTTP and JSON, below `/v1/admin`.
//!
//! ```text
//! request ─▶ CSRF guard ─▶ route ─▶ who asks ─▶ access::allow ─▶ handler ─▶ Catalog
//!                            │                       └─ denied: 401, 403, and of writes an audit entry
//!                            └ ROUTES: method, path, action, handler, and how it is described
//! ```
//!
//! A route is a row of a table (`table.rs`), and has an [`Action`](crate::Action), which has a rule; there
//! is no other way to a handler. All routes that change something take `?reason=`, `?dry_run=true`,
//! `?force=true` and the header field `Idempotency-Key`; those that change what is there take
//! `If-Match` with its `ETag`.

mod ask;
mod budgets;
mod describe;
mod handlers;
mod problem;
mod refused;
mod setup;
mod table;
mod who;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::on;
use sluicegate::{Clock, KeyedRateLimiter, Micros, Rate, TokenBucket};
use sluicegate_kernel::RuleSet;
use tower_http::csrf::CsrfLayer;

use crate::access::allow;
use crate::catalog::{Catalog, SessionSpans};
use crate::identity::{Oidc, Passwords};
use ask::Ask;
pub use budgets::{Budget, Budgets, NoBudgets, Told};
pub use describe::openapi;
use problem::Problem;
use refused::Refused;
pub use setup::Setup;
pub use table::access_table;
use table::{ROUTES, Route};
use who::{Who, who};

/// Where the API is.
pub const PREFIX: &str = "/v1/admin";

/// What the API needs. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    catalog: Catalog,
    clock: Arc<dyn Clock>,
    budgets: Arc<dyn Budgets>,
    passwords: Passwords,
    setup: Arc<Setup>,
    attempts: Arc<Attempts>,
    refused: Arc<Refused>,
    spans: SessionSpans,
    oidc: Option<Arc<Oidc>>,
}

/// How often somebody may try to sign in, by our own limiter.
#[derive(Debug)]
struct Attempts {
    /// Of one account: who guesses a password tries many.
    of_account: KeyedRateLimiter<str>,
    /// From one address: who guesses accounts tries many, too.
    of_source: KeyedRateLimiter<str>,
    /// The same, of sign-ins that begin here and go on elsewhere.
    #[cfg_attr(not(feature = "oidc"), expect(dead_code, reason = "there is no elsewhere"))]
    of_begun: KeyedRateLimiter<str>,
}

/// Keys that the limiters of attempts hold: beyond, those who tried least are forgotten.
const ATTEMPTS_KEYS_MAX: usize = 100_000;

/// Attempts a minute: of a person who mistypes, and of the people behind one address.
const ATTEMPTS_OF_ACCOUNT: u64 = 10;
const ATTEMPTS_OF_SOURCE: u64 = 60;

impl Api {
    /// The API of `catalog`. `setup` is what the first account is made with; live budgets are looked
    /// up in `budgets`.
    ///
    /// # Panics
    /// Never: the limits of attempts make sense.
    pub fn new(
        catalog: Catalog,
        clock: Arc<dyn Clock>,
        setup: Setup,
        budgets: Arc<dyn Budgets>,
    ) -> Self {
        let attempts = Attempts {
            of_account: limiter(ATTEMPTS_OF_ACCOUNT, &clock),
            of_source: limiter(ATTEMPTS_OF_SOURCE, &clock),
            of_begun: limiter(ATTEMPTS_OF_SOURCE, &clock),
        };
        let refused = Refused::new(limiter(refused::NOTED, &clock));
        Self {
            catalog,
            budgets,
            passwords: Passwords::default(),
            setup: Arc::new(setup),
            attempts: Arc::new(attempts),
            refused: Arc::new(refused),
            spans: SessionSpans::default(),
            oidc: None,
            clock,
        }
    }

    /// The same, where people may also sign in elsewhere.
    #[must_use]
    pub fn with_oidc(self, oidc: Arc<Oidc>) -> Self {
        Self { oidc: Some(oidc), ..self }
    }

    /// What answers requests; the address of who asks is the request's extension [`Source`].
    pub fn router(&self) -> Router {
        let mut router = Router::new();
        for route in ROUTES {
            let api = self.clone();
            let handler = move |params: RawPathParams, request: Request| {
                let api = api.clone();
                async move { api.answer(route, &params, request).await }
            };
            router = router.route(&format!("{PREFIX}{}", route.path), on(route.filter(), handler));
        }
        router
            .method_not_allowed_fallback(async || {
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not know this method")
                    .respond()
            })
            .layer(CsrfLayer::new())
    }

    /// Milliseconds since 1970.
    fn now(&self) -> i64 {
        i64::try_from(self.clock.now().get() / 1_000).unwrap_or(i64::MAX)
    }

    async fn answer(
        &self,
        route: &'static Route,
        params: &RawPathParams,
        request: Request,
    ) -> Response {
        let answered = self.try_answer(route, params, request).await;
        let mut response = answered.unwrap_or_else(Problem::respond);
        let headers = response.headers_mut();
        // What is answered is for who asked, now.
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    }

    async fn try_answer(
        &self,
        route: &'static Route,
        params: &RawPathParams,
        request: Request<Body>,
    ) -> Result<Response, Problem> {
        let (head, body) = request.into_parts();
        let source =
            head.extensions.get::<Source>().map_or_else(String::new, |source| source.0.clone());
        let Who { actor, session } = who(self, &head).await?;
        let app = params.iter().find(|(name, _)| *name == "app").map(|(_, app)| app.to_owned());
        let mut ask = Ask::new(self.clone(), (actor, session, source), (route, params), &head);
        if let Err(denied) = allow(&ask.by.actor, route.action, app.as_deref()) {
            if route.action.writes() {
                ask.note_denied(route.action, app.as_deref()).await;
            }
            return Err(denied.into());
        }
        ask.read(route, body).await?;
        (route.handle)(ask).await.map(ask::Reply::respond)
    }
}

/// So many a minute of each key, and as many at once.
fn limiter(per_minute: u64, clock: &Arc<dyn Clock>) -> KeyedRateLimiter<str> {
    let rate = Rate::new(per_minute, Micros::from_secs(60));
    let rule = rate.and_then(|rate| TokenBucket::new(rate, per_minute));
    let rules = RuleSet::single("attempts", rule.expect("the rate makes sense").into());
    KeyedRateLimiter::with_rules(rules, ATTEMPTS_KEYS_MAX, Arc::clone(clock))
        .expect("a token bucket is served")
}

/// The address of who asks, put into the extensions of a request by whoever accepted the connection.
#[derive(Clone, Debug)]
pub struct Source(pub String);

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").finish_non_exhaustive()
    }
}
