//! Work on what a caller sent: beside the threads that answer requests, and bounded in number, bytes and time.
//!
//! A body of some megabytes takes a processor for a while and several times its size in memory, whatever is done
//! with it: it is parsed, judged, compared, applied. The same threads decide requests of all apps. So every
//! handler of a request with a body runs here, from the first look at the body to the text of the answer, and no
//! route has to ask for it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_policy::finding;
use tokio::runtime::Handle;
use tokio::select;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::problem::ApiProblem;
use super::request::{ApiResponse, LONG_BODY_BYTES};
use crate::access::Actor;
use crate::error::Error;

/// Most long bodies in memory at a time: each may have eight megabytes, as slowly as its sender likes.
const LONG_BODIES_MAX: usize = 8;

/// Most long bodies that are worked on at a time: each takes a processor, and ten times its size in memory. Changes
/// wait for each other anyway.
const LONG_MAX: usize = 1;

/// Maximum number of short bodies that are worked on at a time, most of which wait for the database.
const SHORT_MAX: usize = 32;

/// Maximum time that a request waits for a slot: eight long bodies, one after the other.
const SLOT_WAIT_MAX: Duration = Duration::from_secs(5);

/// Maximum time of the work on one body: ten thousand policies take half a minute on a database that is a
/// millisecond away.
const WORK_WAIT_MAX: Duration = Duration::from_secs(2 * 60);

/// The bounds of work on bodies.
pub(super) struct Work {
    bodies: Arc<Semaphore>,
    long: Arc<Semaphore>,
    short: Arc<Semaphore>,
    /// Slots of unauthenticated requests, which do not take those of others.
    unknown: Arc<Semaphore>,
    slot_wait_max: Duration,
}

impl Default for Work {
    fn default() -> Self {
        Self {
            bodies: Arc::new(Semaphore::new(LONG_BODIES_MAX)),
            long: Arc::new(Semaphore::new(LONG_MAX)),
            short: Arc::new(Semaphore::new(SHORT_MAX)),
            unknown: Arc::new(Semaphore::new(SHORT_MAX)),
            slot_wait_max: SLOT_WAIT_MAX,
        }
    }
}

impl Work {
    /// Takes room in memory for a long body, which is held until its request ends.
    ///
    /// # Errors
    /// 503 if there is none in time.
    pub(super) async fn room(&self) -> Result<OwnedSemaphorePermit, ApiProblem> {
        self.slot(&self.bodies).await
    }

    /// Takes a slot for work on a body of `length` bytes that `actor` sent.
    ///
    /// # Errors
    /// 503 if no slot is free in time.
    pub(super) async fn slot_for(
        &self,
        actor: &Actor,
        length: usize,
    ) -> Result<OwnedSemaphorePermit, ApiProblem> {
        let of = match actor {
            Actor::Nobody => &self.unknown,
            _ if length > LONG_BODY_BYTES => &self.long,
            _ => &self.short,
        };
        self.slot(of).await
    }

    async fn slot(&self, of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ApiProblem> {
        match timeout(self.slot_wait_max, Arc::clone(of).acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => Err(Error::Busy.into()),
        }
    }
}

/// Does `work` on a thread that answers no requests, and gives `slot` back at its end. It ends at its next wait
/// when this is dropped.
///
/// # Errors
/// Those of the work, and 503 if it takes too long.
pub(super) async fn beside(
    slot: Option<OwnedSemaphorePermit>,
    work: impl Future<Output = Result<ApiResponse, ApiProblem>> + Send + 'static,
) -> Result<ApiResponse, ApiProblem> {
    let (asking, gone) = oneshot::channel::<Infallible>();
    let runtime = Handle::current();
    let working = spawn_blocking(move || {
        let _slot = slot;
        runtime.block_on(async {
            select! {
                biased;
                done = timeout(WORK_WAIT_MAX, work) => done.unwrap_or_else(|_| Err(too_slow())),
                // The request was dropped, so this is not read.
                _ = gone => Err(Error::Busy.into()),
            }
        })
    });
    let done = working.await;
    drop(asking);
    done.unwrap_or_else(|error| {
        tracing::error!("admin API: {error}");
        Err(ApiProblem::invalid("", finding!("parse_failed", "the body cannot be read")))
    })
}

fn too_slow() -> ApiProblem {
    let seconds = WORK_WAIT_MAX.as_secs();
    ApiProblem::unavailable(finding!("work_timeout", "not done within {seconds} s", seconds))
}

#[cfg(test)]
impl Work {
    /// Takes every slot of this work until the permits are dropped; other requests are refused at once.
    pub(super) fn occupied() -> (Self, Vec<OwnedSemaphorePermit>) {
        let work = Self { slot_wait_max: Duration::ZERO, ..Self::default() };
        let all = |of: &Arc<Semaphore>, count: usize| {
            let count = u32::try_from(count).expect("it is small");
            Arc::clone(of).try_acquire_many_owned(count).expect("nobody else has any")
        };
        let permits =
            [(&work.long, LONG_MAX), (&work.short, SHORT_MAX), (&work.unknown, SHORT_MAX)]
                .map(|(of, count)| all(of, count))
                .into();
        (work, permits)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use axum::body::Body;
    use axum::http::{Request, StatusCode, header};
    use axum::response::Response;
    use http_body_util::BodyExt as _;
    use serde_json::{Value as Json, json};
    use sluicegate::internals::WallClock;
    use tempfile::TempDir;
    use tower::ServiceExt as _;

    use super::*;
    use crate::Catalog;
    use crate::api::request::LOG;
    use crate::api::route::Route;
    use crate::api::table::ROUTES;
    use crate::api::{Api, NoBudgets, PREFIX, Setup};

    async fn send(
        api: &Api,
        cookie: &str,
        (method, path): (&str, &str),
        kind: &str,
        body: String,
    ) -> Response {
        let request = Request::builder().method(method).uri(format!("{PREFIX}{path}"));
        let request = request.header(header::CONTENT_TYPE, kind).header(header::COOKIE, cookie);
        let request = request.body(Body::from(body)).unwrap();
        api.router().oneshot(request).await.unwrap()
    }

    /// An API with an administrator, and the cookie of their session.
    async fn stage(folder: &TempDir) -> (Api, String) {
        let url = format!("sqlite:{}", folder.path().join("catalog.db").display());
        let catalog = Catalog::open(&url.parse().unwrap()).await.unwrap();
        let clock = Arc::new(WallClock);
        let mut api = Api::new(catalog, clock, Setup::none(), Arc::new(NoBudgets));
        let token = api.renew_setup().await.unwrap().unwrap();
        api = api.with_changes_per_minute(NonZeroU32::new(1_000).unwrap());
        let password = "correct horse battery";
        let new = json!({ "token": token.expose(), "account": "ada", "password": password });
        let json = "application/json";
        let made = send(&api, "", ("POST", "/setup"), json, new.to_string()).await;
        assert_eq!(made.status(), StatusCode::CREATED);
        let who = json!({ "account": "ada", "password": password }).to_string();
        let signed_in = send(&api, "", ("POST", "/session"), json, who).await;
        let cookie = signed_in.headers()[header::SET_COOKIE].to_str().unwrap();
        (api, cookie.split(';').next().unwrap().to_owned())
    }

    /// Sends a body to a route, with made-up names in its path.
    async fn ask(api: &Api, cookie: &str, route: &Route, length: usize) -> Response {
        let path = route.path.replace(['{', '}'], "");
        let body = json!({ "x": "x".repeat(length) }).to_string();
        let kind = if route.takes_log() { LOG } else { "application/json" };
        let body = if route.takes_log() { format!("{body}\nlog") } else { body };
        send(api, cookie, (route.method.as_str(), &path), kind, body).await
    }

    #[tokio::test]
    async fn every_route_that_takes_a_body_waits_for_a_slot_and_refuses_when_there_is_none() {
        let folder = TempDir::new().unwrap();
        let (free, cookie) = stage(&folder).await;
        let (work, slots) = Work::occupied();
        let what_if = Arc::clone(&free.comparing).try_acquire_owned().unwrap();
        let busy = Api { work: Arc::new(work), ..free };
        let takers = || ROUTES.iter().map(|(route, _)| route).filter(|route| route.asks.is_some());
        assert!(takers().count() > 20);
        for length in [1, 2 * LONG_BODY_BYTES] {
            for route in takers() {
                let what = format!("{} {} of {length} bytes", route.method, route.path);
                let response = ask(&busy, &cookie, route, length).await;
                let expected = if route.takes_log() { 429 } else { 503 };
                assert_eq!(response.status().as_u16(), expected, "{what}");
                assert!(response.headers().contains_key(header::RETRY_AFTER), "{what}");
                let body = response.into_body().collect().await.unwrap().to_bytes();
                let problem: Json = serde_json::from_slice(&body).unwrap();
                let code = if route.takes_log() { "whatif_busy" } else { "busy" };
                assert_eq!(problem["code"], code, "{what}");
            }
        }
        drop((slots, what_if));
        for route in takers() {
            let response = ask(&busy, &cookie, route, 1).await;
            let what = format!("{} {}", route.method, route.path);
            assert!(![503, 429].contains(&response.status().as_u16()), "{what}");
        }
    }

    #[tokio::test]
    async fn work_of_a_request_that_is_dropped_ends_and_gives_its_slot_back() {
        let work = Work { slot_wait_max: Duration::from_secs(60), ..Work::default() };
        for _ in 0..SHORT_MAX {
            let slot = work.slot_for(&Actor::Operator, 1).await.unwrap();
            let never = beside(Some(slot), std::future::pending());
            assert!(timeout(Duration::from_millis(1), never).await.is_err());
        }
        // All of them come back.
        for _ in 0..2 * SHORT_MAX {
            drop(work.slot_for(&Actor::Operator, 1).await.unwrap());
        }
        assert!(Arc::clone(&work.short).try_acquire_many_owned(1).is_ok());
    }
}
