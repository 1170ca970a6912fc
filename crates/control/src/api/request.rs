//! Requests as handlers get them, after authentication and authorization, and their responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::RawPathParams;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use sluicegate_net::headers::is_json;
use sluicegate_text::fields::Object;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::principal::Principal;
use super::problem::ApiProblem;
use super::query::QueryParams;
use super::route::Route;
use super::{Api, ClientAddress};
use crate::access::{Action, Actor};
use crate::audit::AuditTarget;
use crate::catalog::{ChangeContext, LiveSession, Page, PolicyAt, Repeatable};
use crate::json::text as json_text;
use sluicegate_policy::{Finding, finding};

/// Largest body: ten thousand policies of the size that people write, of one app.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Largest body of an unauthenticated request: a name and a password.
const BODY_OF_NOBODY_BYTES_MAX: usize = 4 << 10;

/// Largest body with a log: some hundred thousand lines, or some million as gzip.
const LOG_BODY_BYTES_MAX: usize = 32 << 20;

/// Maximum time in which a body is received.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Maximum time in which a body with a log is received.
const LOG_WAIT_MAX: Duration = Duration::from_secs(60);

/// Bodies from here on are long, in bytes.
pub(super) const LONG_BODY_BYTES: usize = 64 << 10;

/// The type of a policy as people write it (RFC 9512).
pub(super) const YAML: &str = "application/yaml";

/// The type of a line of JSON with a log behind it. No form of another site can send it.
pub(super) const LOG: &str = "application/x-sluicegate-whatif";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// Time after which a what-if that got no slot may be sent again, in seconds.
const BUSY_S: u64 = 2;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request to a handler.
pub(super) struct ApiRequest {
    pub(super) api: Api,
    /// The actor of the request, its address, reason and time.
    pub(super) by: ChangeContext,
    /// The hash of the session cookie, if there is one.
    pub(super) session: Option<String>,
    /// The session, if it is still valid.
    pub(super) live: Option<LiveSession>,
    params: BTreeMap<String, String>,
    query: QueryParams,
    /// The problem of the query, which only an actor with permission gets.
    wrong: Option<ApiProblem>,
    headers: HeaderMap,
    #[cfg_attr(not(feature = "oidc"), expect(dead_code, reason = "nobody is sent back here"))]
    uri: Uri,
    question: String,
    body: Bytes,
    /// The part of a body behind its first line, if it has a log.
    log: Bytes,
    /// The slot of a what-if.
    slot: Option<OwnedSemaphorePermit>,
    /// The permit to hold a long body in memory.
    _room: Option<OwnedSemaphorePermit>,
}

/// The response of a handler.
#[derive(Debug)]
pub(super) struct ApiResponse {
    status: StatusCode,
    body: Option<Body>,
    headers: HeaderMap,
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct ListPage<T> {
    items: Vec<T>,
    /// Cursor for the next page, to send as `after`; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Number of items on all pages; absent where they are not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<i64>,
}

impl ApiRequest {
    pub(super) fn new(
        api: Api,
        principal: Principal,
        route: &Route,
        params: &RawPathParams,
        head: &Parts,
    ) -> Self {
        let Principal { actor, session, live } = principal;
        let source = head.extensions.get::<ClientAddress>().map_or("", |source| &source.0);
        let (query, wrong) = match QueryParams::of(route, &head.uri) {
            Ok(query) => (query, None),
            Err(wrong) => (QueryParams::default(), Some(wrong)),
        };
        let mut by = ChangeContext::new(actor, source, &query.reason, api.now());
        (by.dry_run, by.force) = (query.dry_run, query.force);
        let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            api,
            by,
            session,
            live,
            params: params.collect(),
            query,
            wrong,
            headers: head.headers.clone(),
            uri: head.uri.clone(),
            question: format!("{} {}", head.method, head.uri),
            body: Bytes::new(),
            log: Bytes::new(),
            slot: None,
            _room: None,
        }
    }

    /// Receives the body, and checks no more of it than its length and type.
    pub(super) async fn read(&mut self, route: &Route, body: Body) -> Result<(), ApiProblem> {
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        if self.by.dry_run && route.action.writes() && !route.action.can_be_shown() {
            let problem = finding!("no_dry_run", "dry_run: not supported for this operation");
            return Err(ApiProblem::new(StatusCode::BAD_REQUEST, problem));
        }
        if route.takes_log() {
            self.require_type(route)?;
            // Before the body, which takes memory.
            self.slot = Some(what_if_slot(&self.api)?);
        }
        let (most, wait_max) = match self.by.actor {
            Actor::Nobody => (BODY_OF_NOBODY_BYTES_MAX, BODY_WAIT_MAX),
            _ if route.takes_log() => (LOG_BODY_BYTES_MAX, LOG_WAIT_MAX),
            _ => (BODY_BYTES_MAX, BODY_WAIT_MAX),
        };
        // Only long bodies wait for slow senders.
        let length = body.size_hint().exact();
        if length.is_none_or(|bytes| bytes > LONG_BODY_BYTES as u64) {
            self._room = Some(self.api.work.room().await?);
        }
        let body = timeout(wait_max, Limited::new(body, most).collect()).await;
        let body = body.map_err(|_| {
            ApiProblem::new(
                StatusCode::REQUEST_TIMEOUT,
                finding!("body_timeout", "timeout while reading the body"),
            )
        })?;
        let body = body.map_err(|_| {
            let problem =
                finding!("body_too_long", "the body exceeds {most} bytes, or was cut off", most);
            ApiProblem::new(StatusCode::PAYLOAD_TOO_LARGE, problem)
        })?;
        self.body = body.to_bytes();
        if !self.body.is_empty() {
            self.require_type(route)?;
        }
        Ok(())
    }

    /// Examines the body: separates its log, and computes the hash by which a repeated request is recognised.
    pub(super) fn look(&mut self, route: &Route) -> Result<(), ApiProblem> {
        if route.takes_log() {
            self.part_log()?;
        }
        let key = self.headers.get(IDEMPOTENCY_KEY).filter(|_| route.action.can_be_shown());
        if let Some(key) = key {
            let key = key.to_str().map_err(|_| {
                let problem =
                    finding!("idempotency_key_text", "idempotency-key: expected plain text");
                ApiProblem::new(StatusCode::BAD_REQUEST, problem)
            })?;
            // The catalog keeps a hash of the key, not the key: so the hash of a body that holds a password cannot be
            // compared with guesses.
            let mut hash = Sha256::new();
            hash.update(key);
            hash.update([0]);
            hash.update(&self.question);
            hash.update([0]);
            hash.update(&self.body);
            let question = format!("{:x}", hash.finalize());
            self.by.request = Some(Repeatable { name: key.to_owned(), question });
        }
        Ok(())
    }

    /// Audits that an authenticated actor lacked permission. The response does not depend on it.
    pub(super) async fn audit_denied(&self, route: &Route, app: Option<&str>) {
        if matches!(self.by.actor, Actor::Nobody) {
            return;
        }
        let target = object(route.path, |name| self.param(name));
        self.audit_failed(route.action, app, &target).await;
    }

    /// Audits an attempt that was refused, also of unauthenticated actors: a wrong password, for example. Attempts
    /// beyond a limit are only counted; the next entry has their number.
    pub(super) async fn audit_failed(&self, action: Action, app: Option<&str>, target: &str) {
        let Some(unnoted) = self.api.refused.suppressed(&self.by.actor.key()) else { return };
        let catalog = &self.api.catalog;
        let noted = catalog
            .audit_denied_after(&self.by, action, AuditTarget::new(app, target), unnoted)
            .await;
        if let Err(error) = noted {
            tracing::error!("audit: {error}");
        }
    }

    /// Returns the length of the body in bytes.
    pub(super) fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Returns the parameter of the path with this name; empty if there is none.
    pub(super) fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    /// Returns the app and the policy of the path.
    pub(super) fn policy(&self) -> (&str, &str) {
        (self.param("app"), self.param("policy"))
    }

    /// Returns the policy of the path at `version`.
    pub(super) fn policy_at(&self, version: i64) -> PolicyAt<'_> {
        PolicyAt::new(self.param("app"), self.param("policy"), version)
    }

    /// Returns the query parameters.
    pub(super) const fn query(&self) -> &QueryParams {
        &self.query
    }

    /// Parses the query with which the provider sends a browser back.
    #[cfg(feature = "oidc")]
    pub(super) fn called_back<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        super::query::parse(&self.uri)
    }

    /// Returns the cookie of this name.
    #[cfg(feature = "oidc")]
    pub(super) fn cookie(&self, name: &str) -> Option<&str> {
        super::principal::cookie(&self.headers, name)
    }

    pub(super) fn page(&self) -> Page {
        Page { after: self.query.after.clone(), limit: self.query.limit }
    }

    /// Returns whether the request has an `If-Match`.
    pub(super) fn is_versioned(&self) -> bool {
        self.headers.contains_key(header::IF_MATCH)
    }

    /// Returns the version to change, from `If-Match`.
    pub(super) fn version(&self) -> Result<i64, ApiProblem> {
        let detail = || {
            finding!(
                "bad_if_match",
                "if-match: missing or invalid, expected the `ETag` of the resource"
            )
        };
        let missing = || ApiProblem::new(StatusCode::PRECONDITION_REQUIRED, detail());
        let given = self.headers.get(header::IF_MATCH).ok_or_else(missing)?;
        let only = self.headers.get_all(header::IF_MATCH).iter().count() == 1;
        let version = given.to_str().ok().filter(|_| only).and_then(version_of);
        version.ok_or_else(|| ApiProblem::new(StatusCode::BAD_REQUEST, detail()))
    }

    /// Returns the log of the body.
    pub(super) const fn log(&self) -> &Bytes {
        &self.log
    }

    /// Takes the slot of a what-if, which ends when it is dropped.
    pub(super) const fn take_slot(&mut self) -> Option<OwnedSemaphorePermit> {
        self.slot.take()
    }

    /// Splits the body into its first line and the log. Both are copies, so that a kept log does not keep the body.
    fn part_log(&mut self) -> Result<(), ApiProblem> {
        let end = self.body.iter().position(|byte| *byte == b'\n').unwrap_or(self.body.len());
        if end > BODY_BYTES_MAX {
            let problem = finding!(
                "first_line_too_long",
                "the first line exceeds {most} bytes",
                most = BODY_BYTES_MAX
            );
            return Err(ApiProblem::new(StatusCode::PAYLOAD_TOO_LARGE, problem));
        }
        self.log = Bytes::copy_from_slice(self.body.get(end + 1..).unwrap_or_default());
        self.body = Bytes::copy_from_slice(&self.body[..end]);
        Ok(())
    }

    /// Checks that the body is of a type that the route reads.
    fn require_type(&self, route: &Route) -> Result<(), ApiProblem> {
        if route.takes_log() {
            if media_type(&self.headers, &header::CONTENT_TYPE).any(|kind| kind == LOG) {
                return Ok(());
            }
            let detail =
                finding!("content_type_log", "content-type: expected `{kind}`", kind = LOG);
            return Err(ApiProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        if is_json(&self.headers) || route.takes_yaml() && self.is_yaml() {
            return Ok(());
        }
        let detail = if route.takes_yaml() {
            finding!(
                "content_type_policy",
                "content-type: expected `application/json` or `application/yaml`"
            )
        } else {
            finding!("content_type", "content-type: expected `application/json`")
        };
        Err(ApiProblem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
    }

    pub(super) fn is_yaml(&self) -> bool {
        media_type(&self.headers, &header::CONTENT_TYPE).any(|kind| kind == YAML)
    }

    /// Returns whether the client accepts HTML: a browser rather than a program.
    #[cfg(feature = "oidc")]
    pub(super) fn wants_page(&self) -> bool {
        media_type(&self.headers, &header::ACCEPT).any(|kind| kind == "text/html")
    }

    /// Returns whether the client prefers YAML to JSON.
    pub(super) fn wants_yaml(&self) -> bool {
        let mut wanted = media_type(&self.headers, &header::ACCEPT);
        wanted.find(|kind| [YAML, "application/json", "*/*", "application/*"].contains(kind))
            == Some(YAML)
    }

    /// Parses the body as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        json(&self.body)
    }

    /// Returns the body as it was sent.
    pub(super) const fn body(&self) -> &Bytes {
        &self.body
    }
}

/// Parses a JSON body.
pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiProblem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader);
    let Object(read) = read.map_err(|error| {
        let pointer: String = error.path().iter().map(|part| format!("/{part}")).collect();
        ApiProblem::invalid(pointer, unreadable(&error.into_inner()))
    })?;
    reader.end().map_err(|error| ApiProblem::invalid("", unreadable(&error)))?;
    Ok(read)
}

/// Returns the target of a request to `path` as a completed action would have it in the audit: the last name in the
/// path. A member is named with the app. Creation in an app has none yet: the name is in the body.
fn object<'p>(path: &str, param: impl Fn(&str) -> &'p str) -> String {
    let steps = path.split('/');
    let names: Vec<_> =
        steps.filter_map(|step| step.strip_prefix('{')?.strip_suffix('}')).collect();
    match names.as_slice() {
        ["app"] if !path.ends_with("{app}") => String::new(),
        ["app", "account"] => format!("{}/{}", param("app"), param("account")),
        [.., last] => param(last).to_owned(),
        [] => String::new(),
    }
}

/// Takes the slot of a what-if.
fn what_if_slot(api: &Api) -> Result<OwnedSemaphorePermit, ApiProblem> {
    Arc::clone(&api.comparing).try_acquire_owned().map_err(|_| {
        let problem = finding!(
            "whatif_busy",
            "another what-if runs on this node; retry in {seconds} s",
            seconds = BUSY_S
        );
        ApiProblem::again_in(BUSY_S, problem)
    })
}

/// Returns the problem of a JSON body. An error of syntax has its line and column; other errors have a pointer.
fn unreadable(error: &serde_json::Error) -> Finding {
    let (text, at) =
        (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
    let text = if error.is_data() { text.strip_suffix(&at).unwrap_or(&text) } else { &text };
    finding!("unreadable", "{problem}", problem = text)
}

/// Parses the version in an `ETag`, which must be written as this API writes it.
fn version_of(tag: &str) -> Option<i64> {
    let version = tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok()?;
    (etag(version) == tag).then_some(version)
}

fn etag(version: i64) -> String {
    format!("\"{version}\"")
}

/// Returns the media types in a header field, in their order, without their parameters.
fn media_type<'h>(headers: &'h HeaderMap, field: &HeaderName) -> impl Iterator<Item = &'h str> {
    let named = headers.get(field).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kinds = named.split(',').map(|kind| kind.split(';').next().unwrap_or_default());
    kinds.map(str::trim_ascii)
}

impl ApiResponse {
    /// Creates a 200 with this body, as JSON.
    pub(super) fn ok(body: &impl Serialize) -> Self {
        Self::of(StatusCode::OK, body)
    }

    /// Creates a 201 with this body, as JSON.
    pub(super) fn created(body: &impl Serialize) -> Self {
        Self::of(StatusCode::CREATED, body)
    }

    /// Creates a 200 with YAML.
    pub(super) fn yaml(text: String) -> Self {
        let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(YAML))];
        let headers = headers.into_iter().collect();
        Self { status: StatusCode::OK, body: Some(text.into()), headers }
    }

    /// Creates a 204.
    pub(super) fn done() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: None, headers: HeaderMap::new() }
    }

    /// Creates a page of a list, with a cursor if it is full.
    pub(super) fn list<T: Serialize>(
        ask: &ApiRequest,
        items: Vec<T>,
        next: impl FnOnce(&T) -> String,
    ) -> Self {
        Self::part(ask.page().limit(), items, next)
    }

    /// Creates a page of a list of documents, which has a smaller limit.
    pub(super) fn documents<T: Serialize>(
        ask: &ApiRequest,
        items: Vec<T>,
        next: impl FnOnce(&T) -> String,
    ) -> Self {
        Self::part(ask.page().limit_of_documents(), items, next)
    }

    fn part<T: Serialize>(limit: i64, items: Vec<T>, next: impl FnOnce(&T) -> String) -> Self {
        let is_full = i64::try_from(items.len()).is_ok_and(|len| len == limit);
        let next = items.last().filter(|_| is_full).map(next);
        Self::ok(&ListPage { items, next, total: None })
    }

    /// Creates a list that is short enough for one page.
    pub(super) fn all<T: Serialize>(items: Vec<T>) -> Self {
        Self::ok(&ListPage { items, next: None, total: None })
    }

    /// Creates a page of a list, with the number of all items.
    pub(super) fn counted<T: Serialize>(items: Vec<T>, next: Option<String>, total: i64) -> Self {
        Self::ok(&ListPage { items, next, total: Some(total) })
    }

    fn of(status: StatusCode, body: &impl Serialize) -> Self {
        Self { status, body: Some(encoded(body).into()), headers: HeaderMap::new() }
    }

    /// Creates a 200 with an `ETag`, or a 304 if the client has this body already.
    pub(super) fn tagged(ask: &ApiRequest, body: &impl Serialize) -> Self {
        let body = encoded(body);
        let tag = format!("\"{:x}\"", Sha256::digest(&body));
        let tag = HeaderValue::try_from(tag).expect("a number is plain text");
        let is_known = ask.headers.get(header::IF_NONE_MATCH) == Some(&tag);
        let headers = HeaderMap::from_iter([(header::ETAG, tag)]);
        match is_known {
            true => Self { status: StatusCode::NOT_MODIFIED, body: None, headers },
            false => Self { status: StatusCode::OK, body: Some(body.into()), headers },
        }
    }

    /// Events that follow one another, as `text/event-stream`.
    pub(super) fn events(body: Body) -> Self {
        let kind = HeaderValue::from_static("text/event-stream");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]);
        Self { status: StatusCode::OK, body: Some(body), headers }
    }

    /// JSON, a value in each line, as `application/jsonl`.
    pub(super) fn lines(body: Body) -> Self {
        let kind = HeaderValue::from_static("application/jsonl");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]);
        Self { status: StatusCode::OK, body: Some(body), headers }
    }

    /// Sets the `ETag` of this version.
    pub(super) fn version(mut self, version: i64) -> Self {
        let tag = HeaderValue::try_from(etag(version));
        self.headers.insert(header::ETAG, tag.expect("a number is plain text"));
        self
    }

    /// Creates a redirect to `location`; none if that is not a valid header value.
    #[cfg(feature = "oidc")]
    pub(super) fn see(location: &str) -> Option<Self> {
        let headers = [(header::LOCATION, HeaderValue::try_from(location).ok()?)];
        let headers = headers.into_iter().collect();
        Some(Self { status: StatusCode::SEE_OTHER, body: None, headers })
    }

    /// Sets the cookie of a session, or (none) deletes it.
    pub(super) fn cookie(self, secret: Option<&str>) -> Self {
        let value = match secret {
            Some(secret) => format!("{}={secret}; {ATTRIBUTES}", super::principal::COOKIE),
            None => format!("{}=; Max-Age=0; {ATTRIBUTES}", super::principal::COOKIE),
        };
        self.set_cookie(&value)
    }

    /// Sets a cookie, which is given with its attributes.
    pub(super) fn set_cookie(mut self, value: &str) -> Self {
        let value = HeaderValue::try_from(value).expect("secrets are plain text");
        self.headers.append(header::SET_COOKIE, value);
        self
    }

    pub(super) fn respond(self) -> Response {
        let has_body = self.body.is_some();
        let mut response = Response::new(self.body.unwrap_or_default());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if has_body {
            response.headers_mut().entry(header::CONTENT_TYPE).or_insert(JSON);
        }
        response
    }
}

fn encoded(body: &impl Serialize) -> Vec<u8> {
    json_text(body).into_bytes()
}

/// Attributes of the session cookie: no script can read it, and no request from another site contains it.
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Strict";

#[cfg(test)]
mod tests {
    use super::object;
    use crate::api::table::ROUTES;

    #[test]
    fn a_denied_attempt_is_about_what_the_path_names() {
        let param = |name: &str| match name {
            "app" => "shop",
            "account" => "vic",
            "policy" => "orders.create",
            "token" => "0190",
            "version" => "3",
            other => panic!("no path has `{other}`"),
        };
        for (path, target) in [
            ("/apps", ""),
            ("/accounts", ""),
            ("/accounts/{account}/sessions", "vic"),
            ("/apps/{app}", "shop"),
            ("/apps/{app}/policies", ""),
            ("/apps/{app}/tokens", ""),
            ("/apps/{app}/policies/{policy}", "orders.create"),
            ("/apps/{app}/policies/{policy}/keys/reset", "orders.create"),
            ("/apps/{app}/members/{account}", "shop/vic"),
            ("/apps/{app}/tokens/{token}", "0190"),
        ] {
            assert!(ROUTES.iter().any(|(route, _)| route.path == path), "{path}");
            assert_eq!(object(path, param), target, "{path}");
        }
        // No path has a part that is not known here.
        ROUTES.iter().for_each(|(route, _)| drop(object(route.path, param)));
    }
}
