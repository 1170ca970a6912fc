//! The admin API of a server, and the credential that requests carry: a token, or the stored login.

use anyhow::{Context, Result, anyhow, bail};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use sluicegate_control::api::PREFIX;
use sluicegate_server::config::Span;

use super::kept::StoredLogin;
use crate::client::http::{self, HttpAnswer};
use crate::client::reply;
use crate::client::target::Target;
use crate::client::token::{TOKEN, TokenArgs, warn_if_overheard};
use crate::client::watch::AdminArgs;

/// Items of a list that are asked for at a time, as many as the server returns.
const PAGE: usize = 1_000;

/// Most items of a list: as many accounts as a catalog has.
const ITEMS_MAX: usize = 100_000;

/// Largest answer: a page of items of a few KiB each.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A server that is asked with the stored login.
#[derive(Debug, Args)]
pub(crate) struct LoginServer {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Maximum time to wait for an answer.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(super) timeout: Span,
}

/// The credential that a request carries.
pub(crate) enum Credential {
    /// A token of an app.
    Bearer(HeaderValue),
    /// The session of an account.
    Session { account: String, cookie: HeaderValue },
}

/// The admin API of a server, with a credential.
pub(super) struct AdminClient<'a> {
    server: &'a LoginServer,
    credential: Option<Credential>,
}

/// A request that the server refused.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct RefusedRequest {
    status: StatusCode,
    detail: String,
}

/// A part of a list.
#[derive(Deserialize)]
struct ItemPage {
    items: Vec<Value>,
    next: Option<String>,
}

/// The body of a refusal that names invalid fields.
#[derive(Deserialize)]
struct Rejected {
    #[serde(default)]
    errors: Vec<RejectedField>,
}

#[derive(Deserialize)]
struct RejectedField {
    pointer: String,
    detail: String,
}

impl Credential {
    /// The token of `token`, else the stored login at `at`.
    ///
    /// # Errors
    /// If there is neither, or it cannot be read.
    pub(crate) fn find(token: &TokenArgs, at: &Target) -> Result<Self> {
        if let Some(bearer) = token.bearer()? {
            warn_if_overheard(at, "token");
            return Ok(Self::Bearer(bearer));
        }
        let stored = Self::stored(at)?.with_context(|| {
            format!(
                "no token and no login for {at}: run `sluicegate login`, or set --token-file or \
                 {TOKEN}"
            )
        })?;
        warn_if_overheard(at, "session");
        Ok(stored)
    }

    /// The stored login at `at`, if there is one.
    pub(super) fn stored(at: &Target) -> Result<Option<Self>> {
        let Some(StoredLogin { account, cookie }) = StoredLogin::load(at)? else {
            return Ok(None);
        };
        let mut cookie = HeaderValue::try_from(cookie).context("the stored login is damaged")?;
        cookie.set_sensitive(true);
        Ok(Some(Self::Session { account, cookie }))
    }

    /// Adds this credential to a request.
    pub(crate) fn add(&self, headers: &mut HeaderMap) {
        match self {
            Self::Bearer(bearer) => headers.insert(header::AUTHORIZATION, bearer.clone()),
            Self::Session { cookie, .. } => headers.insert(header::COOKIE, cookie.clone()),
        };
    }

    /// Returns `answer`, unless `at` no longer accepts the session.
    ///
    /// # Errors
    /// The session has expired or was ended. The error names the command that helps.
    pub(crate) fn accepted(&self, at: &Target, answer: HttpAnswer) -> Result<HttpAnswer> {
        match self {
            Self::Session { account, .. } if answer.status == StatusCode::UNAUTHORIZED => {
                Err(anyhow!(
                    "the login of {account} at {at} has expired or was ended: run `sluicegate \
                     login --name {account}`"
                ))
            }
            _ => Ok(answer),
        }
    }
}

impl<'a> AdminClient<'a> {
    /// The admin API of `server`, asked with the stored login.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn signed_in(server: &'a LoginServer) -> Result<Self> {
        let at = &server.admin.to;
        let stored = Credential::stored(at)?;
        let stored =
            stored.with_context(|| format!("no login for {at}: run `sluicegate login`"))?;
        warn_if_overheard(at, "session");
        Ok(Self { server, credential: Some(stored) })
    }

    /// Like [`signed_in`](Self::signed_in), but without a stored login, or with one that cannot be read, it sends no
    /// credential.
    pub(super) fn signing_in(server: &'a LoginServer) -> Self {
        Self { server, credential: Credential::stored(&server.admin.to).unwrap_or_default() }
    }

    /// Sends a request for `path`, relative to the prefix of the API, and returns the answer.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the request.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<HttpAnswer> {
        self.send_for(method, path, body, None).await
    }

    /// Like [`send`](Self::send); with a `version`, the server changes the item only in that version.
    async fn send_for(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        version: Option<i64>,
    ) -> Result<HttpAnswer> {
        let is_sign_out = method == Method::DELETE && path == "/session";
        let is_sign_in = method == Method::POST && matches!(path, "/setup" | "/session");
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{PREFIX}{path}"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .context("invalid name")?;
        if let Some(version) = version {
            let tag = HeaderValue::try_from(format!("\"{version}\"")).expect("digits are plain");
            request.headers_mut().insert(header::IF_MATCH, tag);
        }
        if let Some(credential) = &self.credential {
            credential.add(request.headers_mut());
        }
        let LoginServer { admin: AdminArgs { to, trust }, timeout: Span(patience) } = self.server;
        let answer = http::send_for((to, trust), request, *patience, ANSWER_BYTES_MAX).await?;
        if reply::is_elsewhere(&answer) {
            bail!("{to} has no admin API: `--to` is the admin address of a server with a catalog");
        }
        if is_sign_in && answer.status == StatusCode::NOT_FOUND {
            bail!(
                "{}; `--to` is the admin address of a server with a catalog, such as \
                 http://127.0.0.1:8082",
                refusal(&answer)
            );
        }
        // Signing out is complete if the session has already ended.
        let is_done = is_sign_out && answer.status == StatusCode::UNAUTHORIZED;
        if !answer.status.is_success() && !is_done {
            // A wrong password at sign-in is not an expired login.
            let answer = match &self.credential {
                Some(credential) if !is_sign_in => credential.accepted(to, answer)?,
                _ => answer,
            };
            return Err(RefusedRequest { status: answer.status, detail: refusal(&answer) }.into());
        }
        Ok(answer)
    }

    /// The answer to a request as JSON.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) async fn json(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value> {
        self.read(&self.send(method, path, body).await?)
    }

    /// All items of the list at `path`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}?limit={PAGE}{after}");
            let ItemPage { items, next } =
                self.read(&self.send(Method::GET, &page, None).await?)?;
            let is_empty = items.is_empty();
            all.extend(items);
            match next {
                Some(_) if all.len() >= ITEMS_MAX => {
                    bail!("{}: more than {ITEMS_MAX} items", self.at())
                }
                Some(_) if is_empty => {
                    bail!("{} did not answer like an admin address", self.at())
                }
                Some(next) => after = format!("&after={}", http::encoded(&next)),
                None => return Ok(all),
            }
        }
    }

    /// Deletes the item at `path`, in its current version.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) async fn delete_versioned(&self, path: &str) -> Result<()> {
        let there = self.json(Method::GET, path, None).await?;
        self.send_for(Method::DELETE, path, None, there["version"].as_i64()).await?;
        Ok(())
    }

    /// The address of the server.
    pub(super) const fn at(&self) -> &Target {
        &self.server.admin.to
    }

    fn read<'b, T: Deserialize<'b>>(&self, answer: &'b HttpAnswer) -> Result<T> {
        serde_json::from_slice(&answer.body)
            .with_context(|| format!("{} did not answer like an admin address", self.at()))
    }
}

impl RefusedRequest {
    /// Returns whether `error` is a refusal with status 409: the request conflicts with an existing item.
    pub(super) fn is_conflict(error: &anyhow::Error) -> bool {
        error.downcast_ref::<Self>().is_some_and(|refused| refused.status == StatusCode::CONFLICT)
    }
}

/// Why the server refused a request: each invalid field with its name, else the detail.
fn refusal(answer: &HttpAnswer) -> String {
    let Ok(Rejected { errors }) = serde_json::from_slice(&answer.body) else {
        return reply::problem(answer.status, &answer.body);
    };
    let fields = errors.iter().map(|RejectedField { pointer, detail }| {
        let name = pointer.trim_start_matches('/').replace('/', ".");
        format!("{name}: {detail}")
    });
    match fields.collect::<Vec<_>>() {
        fields if fields.is_empty() => reply::problem(answer.status, &answer.body),
        fields => reply::shortened(&fields.join("; ")),
    }
}
