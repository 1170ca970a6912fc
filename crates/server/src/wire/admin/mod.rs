//! The wire for operators, on an address of its own: health, and what is in force.
//!
//! | path | what |
//! |---|---|
//! | `/livez` | `ok` while the process answers |
//! | `/readyz` | `ok` while the server should get traffic, 503 once it is to stop |
//! | `/v1/policies` | the policies in force, and the reason why a change was refused |
//! | `/v1/top?policy=P&n=10` | the keys of a policy that were refused most in the last minutes |
//! | `/v1/leases` | the keys of which this server leases permits, the most requested first |
//! | `/v1/store` | the store without its password, and since when it is away |
//! | `/v1/events` | decisions as they are made, a sample (`text/event-stream`) |
//! | `/metrics` | all metrics, as OpenMetrics, or the older text format of Prometheus |
//! | `/v1/admin/…` | the admin API, unless it has an address of its own |
//! | `/`, `/assets/…`, pages | the console, where the admin API is |
//!
//! `metrics.listen` has `/livez`, `/readyz` and `/metrics` of these, and nothing else.

mod console;
mod seen;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use serde::Serialize;
use sluicegate::internals::LeaseStatus;

use super::accept::{self, CONNECTIONS_MAX, Listener};
use super::foreign::ForeignClients;
use super::http::Hosts;
use super::{ServerContext, health, http};
use crate::policies::PolicyStatus;
use crate::protocol::Wire;

/// The policies in force.
#[derive(Serialize)]
struct Policies {
    #[serde(flatten)]
    status: PolicyStatus,
    /// Their names, in the order of the documents.
    policies: Vec<String>,
    /// The state of leases for keys of each policy without an override; absent if this server leases nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    leases: Option<BTreeMap<String, String>>,
}

/// Answers requests until the server stops, then lets those in flight end. Returns the number of
/// connections that were cut off because they did not.
pub(super) async fn serve(wire: Wire, listener: Listener, context: &ServerContext) -> usize {
    let ServerContext { workers, stop, .. } = context;
    let has_tls = listener.tls().is_some();
    let router = match wire {
        Wire::Metrics => metrics(context).fallback(async || not_found()),
        Wire::Catalog => admin_api(has_tls),
        _ if context.has_own_admin_api => observed(context).fallback(async || not_found()),
        _ => observed(context).merge(admin_api(has_tls)),
    };
    let router = router.method_not_allowed_fallback(method_not_allowed);
    let (router, stopping) = (router.with_state(context.clone()), stop.clone());
    let hosts = Hosts::new(listener.address().ok().as_ref(), Arc::clone(&context.allowed_hosts));
    let foreign = Arc::new(ForeignClients::new(listener.address().ok().as_ref()));
    let connections = Arc::clone(context.engine.telemetry().connections(wire));
    accept::serve(listener, CONNECTIONS_MAX, workers, stop, move |stream, peer| {
        let router = router.clone().layer(Extension(peer));
        let (hosts, stop) = (hosts.clone(), stopping.clone());
        connections.during(http::connection(router, hosts, stream, stop, Arc::clone(&foreign)))
    })
    .await
}

/// Counts and health: nothing that shows a key.
fn metrics(context: &ServerContext) -> Router<ServerContext> {
    health::routes(context.leaving.clone()).route("/metrics", get(seen::metrics))
}

/// The routes about this server.
fn observed(context: &ServerContext) -> Router<ServerContext> {
    metrics(context)
        .route("/healthz", get(async || "ok\n"))
        .route("/v1/policies", get(policies))
        .route("/v1/top", get(seen::top))
        .route("/v1/leases", get(seen::leases))
        .route("/v1/store", get(seen::store))
        .route("/v1/events", get(seen::events))
        .merge(decisions_elsewhere())
}

/// The paths of decisions, which this address does not answer.
fn decisions_elsewhere() -> Router<ServerContext> {
    let refuse = async || {
        let detail = "path not found: this is an address of `admin.listen`; decisions are made at `http.listen`";
        http::refuse(StatusCode::NOT_FOUND, detail)
    };
    http::decision_paths().fold(Router::new(), |router, path| router.route(path, any(refuse)))
}

/// The admin API, and the console that uses it.
fn admin_api(has_tls: bool) -> Router<ServerContext> {
    let answer = async |State(context): State<ServerContext>, Extension(peer), request: Request| {
        context.admin_api.answer(peer, request).await
    };
    Router::new().route("/v1/admin/{*rest}", any(answer)).merge(console::router(has_tls))
}

async fn policies(State(context): State<ServerContext>) -> Response {
    let core = context.engine.core();
    let policies = core.policies();
    let names = policies.policies().iter().map(|policy| policy.name().to_owned()).collect();
    let leases = core.lease_stats().map(|_| {
        let each = policies.policies().iter().map(|policy| {
            (policy.name().to_owned(), LeaseStatus::of(policy, policy.rules()).to_string())
        });
        each.collect()
    });
    json(&Policies { status: context.live.status(), policies: names, leases })
}

/// The answer to a path that this address does not have.
fn not_found() -> Response {
    http::refuse(StatusCode::NOT_FOUND, "path not found")
}

/// The answer to a method that a path does not have.
async fn method_not_allowed() -> Response {
    let detail = "method not allowed; the `allow` header names those that are";
    http::refuse(StatusCode::METHOD_NOT_ALLOWED, detail)
}

/// A refusal with its reason as text.
fn plain(status: StatusCode, problem: &str) -> Response {
    (status, format!("{problem}\n")).into_response()
}

fn json(body: &impl Serialize) -> Response {
    let body = serde_json::to_vec(body).expect("texts and numbers are always JSON");
    ([(axum::http::header::CONTENT_TYPE, "application/json")], body).into_response()
}
