//! What is asked of a handler, when it is known who asks and that they may; and what it replies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Query, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};
use sluicegate_net::headers::is_json;
use sluicegate_text::fields::Object;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::principal::Principal;
use super::problem::ApiProblem;
use super::table::Route;
use super::work::LONG_BODY_BYTES;
use super::{Api, ClientAddress};
use crate::access::{Action, Actor};
use crate::audit::{AuditOutcome, AuditTarget, EntryFilter};
use crate::catalog::{
    ChangeContext, LiveSession, Page, PolicyAt, PolicySort, PolicyState, Repeatable,
};
use crate::json::text as json_text;
use crate::traffic::Step;
use sluicegate_policy::{Finding, finding};

/// Largest body: ten thousand policies of the size that people write, of one app.
const BODY_BYTES_MAX: usize = 8 << 20;

/// Largest body of who is not known: a name and a password.
const BODY_OF_NOBODY_BYTES_MAX: usize = 4 << 10;

/// Largest body with a log: some hundred thousand lines, or some million as gzip.
const LOG_BODY_BYTES_MAX: usize = 32 << 20;

/// How long a body may take.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// How long a body with a log may take.
const LOG_WAIT_MAX: Duration = Duration::from_secs(60);

/// The type of a policy as people write it (RFC 9512).
pub(super) const YAML: &str = "application/yaml";

/// The type of a line of JSON with a log behind it. No form of another site can send it.
pub(super) const LOG: &str = "application/x-sluicegate-whatif";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// After so many seconds somebody may ask again whose what-if had no turn.
const BUSY_S: u64 = 2;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What is asked.
pub(super) struct ApiRequest {
    pub(super) api: Api,
    /// Who asks, from where, why, and when.
    pub(super) by: ChangeContext,
    /// The hash of the session, if it is one.
    pub(super) session: Option<String>,
    /// The session, if it goes on.
    pub(super) live: Option<LiveSession>,
    params: BTreeMap<String, String>,
    query: QueryParams,
    /// What is wrong behind the `?`: told to who may ask.
    wrong: Option<ApiProblem>,
    headers: HeaderMap,
    #[cfg_attr(not(feature = "oidc"), expect(dead_code, reason = "nobody is sent back here"))]
    uri: Uri,
    question: String,
    body: Bytes,
    /// What stands behind the first line of a body with a log.
    log: Bytes,
    /// The right to run a what-if.
    turn: Option<OwnedSemaphorePermit>,
    /// The room in memory that a long body takes.
    _room: Option<OwnedSemaphorePermit>,
}

/// What can be said behind a `?`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QueryParams {
    reason: String,
    dry_run: bool,
    force: bool,
    after: Option<String>,
    limit: Option<u32>,
    /// Of a list of policies: those in this state.
    pub(super) state: Option<PolicyState>,
    /// Of a list: those whose name contains this text.
    pub(super) q: String,
    /// Of policies in short: their order.
    pub(super) sort: PolicySort,
    /// Of a list of audit entries: see [`EntryFilter`].
    actor: String,
    action: String,
    target: String,
    outcome: Option<AuditOutcome>,
    pub(super) since: Option<i64>,
    until: Option<i64>,
    /// Of traffic: these policies, in buckets of this length, or all at a glance.
    pub(super) policy: String,
    pub(super) step: Option<Step>,
    #[serde(deserialize_with = "flag")]
    pub(super) summary: bool,
    /// Of a stream: decisions of this policy, with this result.
    pub(super) tail: Option<String>,
    pub(super) result: Option<String>,
    /// Versions of a policy, to compare.
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
    /// Of all tokens: those that end within so many days.
    pub(super) ends_within_days: Option<i64>,
    /// Of the audit: the entry behind which it is verified, and the hash of it.
    pub(super) from_seq: Option<i64>,
    pub(super) from_hash: Option<String>,
}

/// What is replied.
#[derive(Debug)]
pub(super) struct ApiResponse {
    status: StatusCode,
    body: Option<Body>,
    headers: HeaderMap,
}

/// A part of a list, and where it goes on.
#[derive(Debug, Serialize)]
pub(super) struct ListPage<T> {
    items: Vec<T>,
    /// What to ask for as `after`; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// How many there are on all pages, where that is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<i64>,
}

impl QueryParams {
    /// How many of a list that has no pages: as many as are asked for, from 1 to `most`.
    pub(super) fn limit(&self, default: u32, most: u32) -> i64 {
        self.limit.unwrap_or(default).clamp(1, most).into()
    }
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
        let asked =
            if route.is_called_back { Ok(QueryParams::default()) } else { query(&head.uri) };
        let (query, wrong) = match asked {
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
            turn: None,
            _room: None,
        }
    }

    /// Reads the body, and looks no closer at it than at its length.
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
            self.turn = Some(turn(&self.api)?);
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

    /// Looks at the body: where its log begins, and which request this is if it may come again.
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

    /// Notes that this was not for who asked. What they are told does not depend on it.
    pub(super) async fn audit_denied(&self, route: &Route, app: Option<&str>) {
        if matches!(self.by.actor, Actor::Nobody) {
            return;
        }
        let target = object(route.path, |name| self.param(name));
        self.audit_failed(route.action, app, &target).await;
    }

    /// The same of what is not for them by what they said, whoever they are: a wrong password. What
    /// somebody tries too often is counted only, and noted with the next that is.
    pub(super) async fn audit_failed(&self, action: Action, app: Option<&str>, target: &str) {
        let Some(unnoted) = self.api.refused.turn(&self.by.actor.key()) else { return };
        let catalog = &self.api.catalog;
        let noted = catalog
            .audit_denied_after(&self.by, action, AuditTarget::new(app, target), unnoted)
            .await;
        if let Err(error) = noted {
            tracing::error!("audit: {error}");
        }
    }

    /// How long the body is.
    pub(super) fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// The part of the path that is called so.
    pub(super) fn param(&self, name: &str) -> &str {
        self.params.get(name).map_or("", String::as_str)
    }

    /// The app and the policy of the path.
    pub(super) fn policy(&self) -> (&str, &str) {
        (self.param("app"), self.param("policy"))
    }

    /// The same, as of `version`.
    pub(super) fn policy_at(&self, version: i64) -> PolicyAt<'_> {
        PolicyAt::new(self.param("app"), self.param("policy"), version)
    }

    /// What stands behind the `?`.
    pub(super) const fn query(&self) -> &QueryParams {
        &self.query
    }

    /// What stands behind the `?` of who was sent back here.
    #[cfg(feature = "oidc")]
    pub(super) fn called_back<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        query(&self.uri)
    }

    /// The cookie of this name.
    #[cfg(feature = "oidc")]
    pub(super) fn cookie(&self, name: &str) -> Option<&str> {
        super::principal::cookie(&self.headers, name)
    }

    /// Which part of a list.
    pub(super) fn entry_filter(&self) -> EntryFilter {
        let QueryParams { actor, action, target, outcome, since, until, .. } = &self.query;
        let [actor, action, target] = [actor, action, target].map(Clone::clone);
        EntryFilter { actor, action, target, outcome: *outcome, since: *since, until: *until }
    }

    pub(super) fn page(&self) -> Page {
        Page { after: self.query.after.clone(), limit: self.query.limit }
    }

    /// Whether it is said which version is to be changed.
    pub(super) fn is_versioned(&self) -> bool {
        self.headers.contains_key(header::IF_MATCH)
    }

    /// The version that is to be changed, by the header field `If-Match`.
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

    /// The log of the body.
    pub(super) const fn log(&self) -> &Bytes {
        &self.log
    }

    /// The right to run a what-if, which ends when it is dropped.
    pub(super) const fn take_turn(&mut self) -> Option<OwnedSemaphorePermit> {
        self.turn.take()
    }

    /// Parts the body into its first line and the log. Each is a copy: a log that is kept keeps no more than itself.
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

    /// That the body is of a type that the route reads.
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

    /// Whether a browser goes to this address, rather than a program.
    #[cfg(feature = "oidc")]
    pub(super) fn wants_page(&self) -> bool {
        media_type(&self.headers, &header::ACCEPT).any(|kind| kind == "text/html")
    }

    /// Whether the answer is to be YAML rather than JSON.
    pub(super) fn wants_yaml(&self) -> bool {
        let mut wanted = media_type(&self.headers, &header::ACCEPT);
        wanted.find(|kind| [YAML, "application/json", "*/*", "application/*"].contains(kind))
            == Some(YAML)
    }

    /// The body, if it is JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiProblem> {
        json(&self.body)
    }

    /// The body as it was sent.
    pub(super) const fn body(&self) -> &Bytes {
        &self.body
    }
}

/// What a body of JSON says.
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

/// What a request to `path` is about, as the audit names it when it is done: what the path names last. A member is
/// named with the app. Of a list in an app that is nothing yet: what would be made is in the body.
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

/// The right to run a what-if.
fn turn(api: &Api) -> Result<OwnedSemaphorePermit, ApiProblem> {
    Arc::clone(&api.comparing).try_acquire_owned().map_err(|_| {
        let problem = finding!(
            "whatif_busy",
            "another what-if runs on this node; retry in {seconds} s",
            seconds = BUSY_S
        );
        ApiProblem::again_in(BUSY_S, problem)
    })
}

/// What is wrong with a body of JSON. An error of syntax has its line and column; other errors have a pointer.
fn unreadable(error: &serde_json::Error) -> Finding {
    let (text, at) =
        (error.to_string(), format!(" at line {} column {}", error.line(), error.column()));
    let text = if error.is_data() { text.strip_suffix(&at).unwrap_or(&text) } else { &text };
    finding!("unreadable", "{problem}", problem = text)
}

/// The version that an `ETag` of ours says, to the letter.
fn version_of(tag: &str) -> Option<i64> {
    let version = tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok()?;
    (etag(version) == tag).then_some(version)
}

fn etag(version: i64) -> String {
    format!("\"{version}\"")
}

/// What stands behind the `?`.
fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiProblem> {
    let query = Query::try_from_uri(uri);
    let Query(query) = query.map_err(|error| {
        let problem = finding!("bad_query", "{problem}", problem = error.body_text());
        ApiProblem::new(StatusCode::BAD_REQUEST, problem)
    })?;
    Ok(query)
}

/// The media types that a field names, in their order, without their parameters.
fn media_type<'h>(headers: &'h HeaderMap, field: &HeaderName) -> impl Iterator<Item = &'h str> {
    let named = headers.get(field).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kinds = named.split(',').map(|kind| kind.split(';').next().unwrap_or_default());
    kinds.map(str::trim_ascii)
}

/// `1`, or as other flags are given.
fn flag<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    match String::deserialize(from)?.as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(D::Error::custom(format!("`{other}` is neither `1` nor `0`"))),
    }
}

impl ApiResponse {
    /// What was asked for.
    pub(super) fn ok(body: &impl Serialize) -> Self {
        Self::of(StatusCode::OK, body)
    }

    /// What was made.
    pub(super) fn created(body: &impl Serialize) -> Self {
        Self::of(StatusCode::CREATED, body)
    }

    /// What was asked for, as YAML.
    pub(super) fn yaml(text: String) -> Self {
        let headers = [(header::CONTENT_TYPE, HeaderValue::from_static(YAML))];
        let headers = headers.into_iter().collect();
        Self { status: StatusCode::OK, body: Some(text.into()), headers }
    }

    /// It was done, and there is nothing to say.
    pub(super) fn done() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: None, headers: HeaderMap::new() }
    }

    /// A part of a list, that goes on behind `next` if it is as long as was asked for.
    pub(super) fn list<T: Serialize>(
        ask: &ApiRequest,
        items: Vec<T>,
        next: impl FnOnce(&T) -> String,
    ) -> Self {
        Self::part(ask.page().limit(), items, next)
    }

    /// The same of what has documents.
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

    /// A list that is short enough for one page.
    pub(super) fn all<T: Serialize>(items: Vec<T>) -> Self {
        Self::ok(&ListPage { items, next: None, total: None })
    }

    /// A part of a list that is counted.
    pub(super) fn counted<T: Serialize>(items: Vec<T>, next: Option<String>, total: i64) -> Self {
        Self::ok(&ListPage { items, next, total: Some(total) })
    }

    fn of(status: StatusCode, body: &impl Serialize) -> Self {
        Self { status, body: Some(encoded(body).into()), headers: HeaderMap::new() }
    }

    /// What was asked for, or that it is what the client has already.
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

    /// The same, of this version.
    pub(super) fn version(mut self, version: i64) -> Self {
        let tag = HeaderValue::try_from(etag(version));
        self.headers.insert(header::ETAG, tag.expect("a number is plain text"));
        self
    }

    /// The client is to go elsewhere.
    #[cfg(feature = "oidc")]
    pub(super) fn see(location: &str) -> Option<Self> {
        let headers = [(header::LOCATION, HeaderValue::try_from(location).ok()?)];
        let headers = headers.into_iter().collect();
        Some(Self { status: StatusCode::SEE_OTHER, body: None, headers })
    }

    /// The same, and the client is to keep this cookie of a session, or (none) to forget it.
    pub(super) fn cookie(self, secret: Option<&str>) -> Self {
        let value = match secret {
            Some(secret) => format!("{}={secret}; {ATTRIBUTES}", super::principal::COOKIE),
            None => format!("{}=; Max-Age=0; {ATTRIBUTES}", super::principal::COOKIE),
        };
        self.set_cookie(&value)
    }

    /// The same, and the client is to keep a cookie, with its attributes.
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

/// Of the cookie: no script sees it, no other site sends it.
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
            assert!(ROUTES.iter().any(|route| route.path == path), "{path}");
            assert_eq!(object(path, param), target, "{path}");
        }
        // No path has a part that is not known here.
        ROUTES.iter().for_each(|route| drop(object(route.path, param)));
    }
}
