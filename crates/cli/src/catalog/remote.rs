//! The admin API of a running server, for the policies of one app.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use sluicegate_control::api::PREFIX;
use sluicegate_control::catalog::{AppliedAll, PolicyView};
use sluicegate_policy::limits::POLICIES_MAX;
use sluicegate_server::config::Span;

use crate::admin::client::Credential;
use crate::client::http::{self, HttpAnswer};
use crate::client::reply;
use crate::client::target::Target;
use crate::client::token::TokenArgs;
use crate::client::watch::AdminArgs;

/// Policies that are asked for at a time, of 64 KiB at most.
const PAGE: usize = 100;

/// Largest answer: ten thousand policies before and after a change.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Most attempts at a change whose outcome is unknown, and the time between them. Each attempt has
/// the same idempotency key, so the server makes the change once.
const TRIES_MAX: u32 = 3;
const TRY_AFTER: Duration = Duration::from_millis(500);

/// The address of a server, and the token for it.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerAccess {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    token: TokenArgs,
    /// Maximum time to wait for an answer.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    timeout: Span,
}

/// The policies of one app on a server.
pub(crate) struct Remote {
    server: ServerAccess,
    app: String,
    credential: Credential,
}

/// Options of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApplyOptions<'a> {
    pub(crate) reason: &'a str,
    /// Apply changes even if they could lock out clients.
    pub(crate) force: bool,
}

/// A refusal of the server.
#[derive(Debug)]
pub(crate) struct RemoteError {
    pub(crate) status: StatusCode,
    pub(crate) detail: String,
    pub(crate) errors: Vec<RejectedField>,
    pub(crate) warnings: Vec<RejectedField>,
}

/// An invalid or risky field of the documents that were sent.
#[derive(Debug, Deserialize)]
pub(crate) struct RejectedField {
    /// The place: a JSON pointer (RFC 6901).
    pub(crate) pointer: String,
    pub(crate) detail: String,
}

/// A problem document of the server.
#[derive(Deserialize)]
struct ApplyProblem {
    #[serde(default)]
    errors: Vec<RejectedField>,
    #[serde(default)]
    warnings: Vec<RejectedField>,
}

/// A part of a list.
#[derive(Deserialize)]
struct PolicyPage {
    items: Vec<PolicyView>,
    next: Option<String>,
}

impl Remote {
    /// The policies of `app` on `server`.
    ///
    /// # Errors
    /// If there is neither a token nor a stored login.
    pub(crate) fn new(server: &ServerAccess, app: &str) -> Result<Self> {
        let credential = Credential::find(&server.token, &server.admin.to)?;
        Ok(Self { server: server.clone(), app: app.to_owned(), credential })
    }

    /// Returns all policies of the app, by name.
    ///
    /// # Errors
    /// If the server does not answer with them.
    pub(crate) async fn policies(&self) -> Result<Vec<PolicyView>> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let query = format!("?limit={PAGE}{after}");
            let answer = self.send(self.request(Method::GET, &query, None)).await?;
            if !answer.status.is_success() {
                bail!("{}", reply::problem(answer.status, &answer.body));
            }
            let PolicyPage { items, next } = self.read(&answer)?;
            all.extend(items);
            match next {
                // A correct server has no more policies than that.
                Some(_) if all.len() > POLICIES_MAX => {
                    bail!("{}: more than {POLICIES_MAX} policies", self.server.admin.to)
                }
                // Names need no escapes.
                Some(next) => after = format!("&after={next}"),
                None => return Ok(all),
            }
        }
    }

    /// Returns what applying `documents` would change.
    ///
    /// # Errors
    /// If the server does not answer as expected.
    pub(crate) async fn show(
        &self,
        documents: &[&Value],
        how: ApplyOptions<'_>,
    ) -> Result<Result<AppliedAll, RemoteError>> {
        let query = format!("{}&dry_run=true", how.query());
        let request = self.request(Method::PUT, &query, Some(body(documents)));
        self.answered(&self.send(request).await?)
    }

    /// Applies `documents`, if the policies are as they were in `version`.
    ///
    /// # Errors
    /// If it is unknown whether the server applied them.
    pub(crate) async fn apply(
        &self,
        documents: &[&Value],
        version: i64,
        how: ApplyOptions<'_>,
    ) -> Result<Result<AppliedAll, RemoteError>> {
        let name = format!("{:032x}", u128::from_ne_bytes(random()?));
        let (query, body) = (how.query(), body(documents));
        let mut tries = 1;
        loop {
            let mut request = self.request(Method::PUT, &query, Some(body.clone()));
            let headers = request.headers_mut();
            let plain = |text: String| HeaderValue::try_from(text).expect("digits are plain");
            headers.insert(header::IF_MATCH, plain(format!("\"{version}\"")));
            headers.insert("idempotency-key", plain(name.clone()));
            let answer = self.send(request).await;
            let is_known = answer.as_ref().is_ok_and(|answer| !answer.status.is_server_error());
            if is_known || tries == TRIES_MAX {
                let unknown = "it is unknown whether they were applied; check with `policies diff`";
                let answer = answer.context(unknown)?;
                return self.answered(&answer);
            }
            tries += 1;
            tokio::time::sleep(TRY_AFTER).await;
        }
    }

    /// The address of the server.
    pub(crate) const fn at(&self) -> &Target {
        &self.server.admin.to
    }

    fn request(&self, method: Method, query: &str, body: Option<Value>) -> Request<Vec<u8>> {
        let path = format!("{PREFIX}/apps/{}/policies{query}", self.app);
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .expect("names of apps are plain, and what is not is escaped");
        self.credential.add(request.headers_mut());
        request
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<HttpAnswer> {
        let Span(patience) = self.server.timeout;
        let AdminArgs { to, trust } = &self.server.admin;
        let answer = http::send_for((to, trust), request, patience, ANSWER_BYTES_MAX).await?;
        self.credential.accepted(to, answer)
    }

    fn answered(&self, answer: &HttpAnswer) -> Result<Result<AppliedAll, RemoteError>> {
        if answer.status.is_success() {
            return self.read(answer).map(Ok);
        }
        let problem = serde_json::from_slice(&answer.body);
        let ApplyProblem { errors, warnings } =
            problem.unwrap_or(ApplyProblem { errors: Vec::new(), warnings: Vec::new() });
        let detail = reply::problem(answer.status, &answer.body);
        Ok(Err(RemoteError { status: answer.status, detail, errors, warnings }))
    }

    fn read<'a, T: Deserialize<'a>>(&self, answer: &'a HttpAnswer) -> Result<T> {
        let at = &self.server.admin.to;
        serde_json::from_slice(&answer.body)
            .with_context(|| format!("{at} did not answer like an admin address"))
    }
}

impl ApplyOptions<'_> {
    fn query(&self) -> String {
        let reason = http::encoded(self.reason);
        format!("?reason={reason}&force={}", self.force)
    }
}

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| anyhow!("cannot get random bytes: {error}"))?;
    Ok(bytes)
}

fn body(documents: &[&Value]) -> Value {
    let policies: Vec<_> =
        documents.iter().map(|document| json!({ "document": document })).collect();
    json!({ "policies": policies })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_escaped_byte_by_byte() {
        let how = ApplyOptions { reason: "a&b=c d%é", force: true };
        assert_eq!(how.query(), "?reason=a%26b%3Dc%20d%25%C3%A9&force=true");
    }
}
