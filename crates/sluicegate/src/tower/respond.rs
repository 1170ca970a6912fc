//! Responses to the client: header fields on every response, and the responses that are not the service's.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use sluicegate_kernel::{Decision, Micros, RuleSet};

use super::key::KeyError;
use super::limiter::{Ruling, Undecided};
use crate::clock::{Clock, MonotonicClock};
use crate::http::{HeaderFormat, headers, problem};

/// Shortest interval between log entries about the configuration or the store: each request would repeat them.
const LOG_EVERY: Micros = Micros::SECOND;

/// Seconds after which clients may retry if the store does not answer: it may be back by then.
const RETRY_S: u64 = 1;

/// A function that makes a response to a refused request.
pub(super) type OnDenied = Arc<dyn Fn(&Parts, &Decision, &str) -> Response<String> + Send + Sync>;

/// The writer of decisions into responses.
#[derive(Clone)]
pub(super) struct Responder {
    /// The name of the limit; `None`: each rule has its own name.
    pub(super) name: Option<Box<str>>,
    pub(super) formats: Vec<HeaderFormat>,
    pub(super) on_allowed: bool,
    pub(super) on_denied: Option<OnDenied>,
    /// The instant from which a problem may be logged again, in µs of the monotonic clock.
    log_at_us: Arc<AtomicU64>,
}

impl Responder {
    /// Adds the header fields of a `ruling` by which the request went on.
    pub(super) fn allowed(&self, ruling: &Ruling, fields: &mut HeaderMap) {
        if self.on_allowed {
            self.add_fields(ruling, fields);
        }
    }

    /// Returns the response to `request`, which `ruling` refused.
    pub(super) fn denied(&self, ruling: &Ruling, request: &Parts) -> Response<String> {
        let (decision, rule) = (&ruling.decision, &*self.name_of(&ruling.rules, ruling.rule));
        let mut response = match &self.on_denied {
            Some(on_denied) => on_denied(request, decision, rule),
            None => problem_response(
                StatusCode::TOO_MANY_REQUESTS,
                problem::quota_exceeded([rule], decision),
            ),
        };
        headers::add_retry_after(response.headers_mut(), decision);
        self.add_fields(ruling, response.headers_mut());
        response
    }

    /// Returns the response if the store did not decide and the policy then refuses.
    pub(super) fn unavailable(&self, ruling: &Ruling) -> Response<String> {
        let retry_s = ruling.decision.retry_after().map_or(RETRY_S, Micros::ceil_secs);
        let mut response = no_store(retry_s.max(1));
        self.add_fields(ruling, response.headers_mut());
        response
    }

    /// Returns the policy's response to a request over its limit, with the fields of the limit.
    pub(super) fn served(
        &self,
        ruling: &Ruling,
        mut response: Response<String>,
    ) -> Response<String> {
        self.add_fields(ruling, response.headers_mut());
        response
    }

    /// Returns the response to a request that has no key.
    pub(super) fn no_key(&self, error: &KeyError) -> Response<String> {
        match error.status() {
            StatusCode::INTERNAL_SERVER_ERROR => {
                self.undecided(&Undecided::SetUp(error.to_string()))
            }
            status => problem_response(status, problem::plain(status, &error.to_string())),
        }
    }

    /// Returns the response if there is no decision. The log has the reason; the client could not act on it.
    pub(super) fn undecided(&self, reason: &Undecided) -> Response<String> {
        let logs = self.may_log();
        match reason {
            Undecided::SetUp(problem) => {
                if logs {
                    tracing::error!("rate limit layer: {problem}; returned 500");
                }
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                problem_response(status, problem::plain(status, "see the log of the server"))
            }
            Undecided::Unavailable(problem) => {
                if logs {
                    tracing::warn!("rate limit layer: {problem}; returned 503");
                }
                no_store(RETRY_S)
            }
        }
    }

    fn may_log(&self) -> bool {
        // Not 0, the value of a layer that has not logged.
        let now = MonotonicClock.now().get().max(1);
        let log = |at: u64| (at <= now).then_some(now.saturating_add(LOG_EVERY.get()));
        self.log_at_us.try_update(Ordering::Relaxed, Ordering::Relaxed, log).is_ok()
    }

    fn add_fields(&self, ruling: &Ruling, fields: &mut HeaderMap) {
        let Ruling { decision, rules, rule, mode, .. } = ruling;
        if !self.formats.is_empty() {
            let names: Vec<_> =
                (0..rules.rules().len()).map(|place| self.name_of(rules, place)).collect();
            let named = names.iter().map(|name| &**name);
            let policy = headers::rate_limit_policy(
                named.zip(rules.rules().iter().map(|named| &named.rule)),
            );
            for format in &self.formats {
                format.add_to(fields, &names[*rule], decision, &policy);
            }
        }
        if let Some(mode) = mode {
            fields.insert(headers::MODE, HeaderValue::from_static(mode));
        }
    }

    /// Returns the name of a rule in header fields and problem documents.
    fn name_of<'a>(&'a self, rules: &'a RuleSet, place: usize) -> Cow<'a, str> {
        let own = &*rules.rules()[place].name;
        match (&self.name, rules.rules()) {
            (None, _) => own.into(),
            (Some(name), [_]) => (&**name).into(),
            (Some(name), _) => format!("{name}.{own}").into(),
        }
    }
}

impl Default for Responder {
    fn default() -> Self {
        Self {
            name: None,
            formats: vec![HeaderFormat::Draft10],
            on_allowed: true,
            on_denied: None,
            log_at_us: Arc::default(),
        }
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, formats, on_allowed, on_denied: _, log_at_us: _ } = self;
        f.debug_struct("Responder")
            .field("name", name)
            .field("formats", formats)
            .field("on_allowed", on_allowed)
            .finish_non_exhaustive()
    }
}

fn no_store(retry_s: u64) -> Response<String> {
    let body = problem::reduced_capacity(retry_s);
    let mut response = problem_response(StatusCode::SERVICE_UNAVAILABLE, body);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_s));
    response
}

fn problem_response(status: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(problem::MEDIA_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
