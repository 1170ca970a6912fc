//! What the client is told: header fields on every response, and the response to a refusal.

use std::fmt;
use std::sync::Arc;

use ::http::header::CONTENT_TYPE;
use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use sluicegate_kernel::{Decision, RuleSet, Verdict};

use super::key::KeyError;
use crate::http::{HeaderFormat, headers, problem};

/// A request that was refused.
#[derive(Debug)]
#[non_exhaustive]
pub struct Denied<'a> {
    /// The request, but for its body.
    pub request: &'a Parts,
    /// The refusal.
    pub decision: &'a Decision,
    /// The name of the rule that refused, as the header fields have it.
    pub rule: &'a str,
}

/// Makes a response to a refused request.
pub(super) type OnDenied = Arc<dyn Fn(&Denied<'_>) -> Response<String> + Send + Sync>;

/// Writes what a decision says into responses.
#[derive(Clone)]
pub(super) struct Responder {
    /// The names of the rules in header fields.
    names: Vec<Box<str>>,
    policy: HeaderValue,
    pub(super) formats: Vec<HeaderFormat>,
    pub(super) on_allowed: bool,
    pub(super) on_denied: Option<OnDenied>,
}

impl Responder {
    /// Speaks of `rules` by their own names.
    pub(super) fn new(rules: &RuleSet) -> Self {
        let names: Vec<_> = rules.rules().iter().map(|named| named.name.clone()).collect();
        Self {
            policy: policy(&names, rules),
            names,
            formats: vec![HeaderFormat::Draft10],
            on_allowed: true,
            on_denied: None,
        }
    }

    /// Speaks of `rules` as those of the policy `name`.
    pub(super) fn rename(&mut self, name: &str, rules: &RuleSet) {
        self.names = match rules.rules() {
            [_] => vec![name.into()],
            many => many.iter().map(|named| format!("{name}.{}", named.name).into()).collect(),
        };
        self.policy = policy(&self.names, rules);
    }

    /// Adds the header fields of a `verdict` that allowed.
    pub(super) fn allowed(&self, verdict: &Verdict, headers: &mut HeaderMap) {
        if self.on_allowed {
            self.add_fields(verdict, headers);
        }
    }

    /// The response to `request`, which `verdict` refused.
    pub(super) fn denied(&self, verdict: &Verdict, request: &Parts) -> Response<String> {
        let (decision, rule) = (&verdict.decision, &*self.names[verdict.rule]);
        let mut response = match &self.on_denied {
            Some(on_denied) => on_denied(&Denied { request, decision, rule }),
            None => problem_response(
                StatusCode::TOO_MANY_REQUESTS,
                problem::quota_exceeded([rule], decision),
            ),
        };
        headers::add_retry_after(response.headers_mut(), decision);
        self.add_fields(verdict, response.headers_mut());
        response
    }

    fn add_fields(&self, verdict: &Verdict, headers: &mut HeaderMap) {
        for format in &self.formats {
            format.add_to(headers, &self.names[verdict.rule], &verdict.decision, &self.policy);
        }
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { names, policy, formats, on_allowed, on_denied: _ } = self;
        f.debug_struct("Responder")
            .field("names", names)
            .field("policy", policy)
            .field("formats", formats)
            .field("on_allowed", on_allowed)
            .finish_non_exhaustive()
    }
}

fn policy(names: &[Box<str>], rules: &RuleSet) -> HeaderValue {
    let rules = rules.rules().iter().map(|named| &named.rule);
    headers::rate_limit_policy(names.iter().map(|name| &**name).zip(rules))
}

/// The response to a request that has no key.
pub(super) fn no_key(error: &KeyError) -> Response<String> {
    let status = error.status();
    problem_response(status, problem::plain(status, &error.to_string()))
}

fn problem_response(status: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let media_type = HeaderValue::from_static(problem::MEDIA_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}
