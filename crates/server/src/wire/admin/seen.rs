//! Replies to operators about decisions.

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use sluicegate::internals::LeasedKey;
use sluicegate_text::terminal::one_line;

use super::{json, plain};
use crate::metrics::{Metrics, Scrape};
use crate::telemetry::{EventFilter, POLICIES_COUNTED_MAX, SHOWN_MAX, TURN, Top};
use crate::wire::ServerContext;

/// Default number of keys that are shown.
const SHOWN: usize = 10;

const OPEN_METRICS: &str = "application/openmetrics-text";

/// The query of `/v1/top`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopQuery {
    policy: String,
    n: Option<usize>,
}

/// The keys of a policy that were refused most.
#[derive(Serialize)]
struct TopReply<'a> {
    policy: &'a str,
    /// Longest time that the counts go back, s; they go back half of it at least.
    seconds: u64,
    top: Vec<Top>,
}

/// The keys of which permits are leased.
#[derive(Serialize)]
struct LeasesReply {
    leases: Vec<Lease>,
}

/// A key, and the permits that this server has of it.
#[derive(Serialize)]
struct Lease {
    policy: String,
    /// `null`: the budget that all requests share.
    key: Option<String>,
    /// Permits that are left here.
    left: u32,
    ends_in_us: u64,
    /// Permits a second that are requested here.
    rate: u64,
}

pub(super) async fn leases(State(context): State<ServerContext>) -> Response {
    let telemetry = context.engine.telemetry();
    let leases = context.engine.core().leased_keys().into_iter().map(|leased| {
        let LeasedKey { policy, key, left, ends_in, rate } = leased;
        let key = (!key.is_empty()).then(|| telemetry.shown_key(&key));
        Lease { policy, key, left, ends_in_us: ends_in.get(), rate }
    });
    json(&LeasesReply { leases: leases.collect() })
}

pub(super) async fn store(State(context): State<ServerContext>) -> Response {
    json(&context.engine.core().store().status())
}

pub(super) async fn top(
    State(context): State<ServerContext>,
    which: Result<Query<TopQuery>, QueryRejection>,
) -> Response {
    let TopQuery { policy, n } = match which {
        Ok(Query(which)) => which,
        Err(rejection) => return plain(rejection.status(), &one_line(&rejection.body_text())),
    };
    let n = n.unwrap_or(SHOWN);
    if !(1..=SHOWN_MAX).contains(&n) {
        return plain(StatusCode::BAD_REQUEST, &format!("n: `{n}` is outside 1..={SHOWN_MAX}"));
    }
    match context.engine.telemetry().top(&policy, n) {
        Some(top) => json(&TopReply { policy: &policy, seconds: 2 * TURN.as_secs(), top }),
        None => {
            let is_known = context.engine.core().policies().resolve(&policy).is_some();
            let policy = one_line(&policy);
            let problem = match is_known {
                true => format!(
                    "policy: `{policy}` is not counted on its own, only {POLICIES_COUNTED_MAX} policies are"
                ),
                false => match context.engine.near_policy(&policy, |_| true) {
                    Some(near) => {
                        format!("policy: unknown policy `{policy}`; did you mean `{near}`?")
                    }
                    None => format!("policy: unknown policy `{policy}`"),
                },
            };
            plain(StatusCode::NOT_FOUND, &problem)
        }
    }
}

pub(super) async fn events(
    State(context): State<ServerContext>,
    filter: Result<Query<EventFilter>, QueryRejection>,
) -> Response {
    let filter = match filter {
        Ok(Query(filter)) => filter,
        Err(rejection) => return plain(rejection.status(), &one_line(&rejection.body_text())),
    };
    if let Err(problem) = filter.check() {
        return plain(StatusCode::BAD_REQUEST, &problem);
    }
    let Some(events) = context.engine.telemetry().events().watch(filter, context.stop.clone())
    else {
        return plain(StatusCode::SERVICE_UNAVAILABLE, "too many event subscribers");
    };
    let events = events.map(Ok::<_, std::convert::Infallible>);
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(events)).into_response()
}

pub(super) async fn metrics(State(context): State<ServerContext>, headers: HeaderMap) -> Response {
    let ServerContext { engine, live, authenticator, certificates, snapshots, scrapes, .. } =
        context;
    let expiries = certificates.iter().map(|tls| tls.expiry()).collect();
    let scrape = Scrape { engine, live, authenticator, expiries, snapshots };
    let Metrics { open, classic } = scrapes.metrics(|| scrape.metrics()).await;
    let accepts = headers.get(header::ACCEPT).and_then(|accepts| accepts.to_str().ok());
    if accepts.is_some_and(|accepts| accepts.contains(OPEN_METRICS)) {
        let kind = format!("{OPEN_METRICS}; version=1.0.0; charset=utf-8");
        return ([(header::CONTENT_TYPE, kind)], open).into_response();
    }
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], classic).into_response()
}
