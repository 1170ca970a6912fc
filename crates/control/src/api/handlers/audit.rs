//! Audit entries: listed, verified and exported.

use axum::body::Body;
use futures_util::stream;
use serde::Serialize;
use sluicegate_policy::finding;
use tokio::sync::OwnedSemaphorePermit;
use utoipa::ToSchema;

use crate::api::problem::{ApiProblem, count_damaged};
use crate::api::request::{ApiRequest, ApiResponse};
use crate::audit::{AuditFilter, Chain, GENESIS, Verified};
use crate::catalog::Catalog;
use crate::error::Error;

/// Maximum number of entries that one request verifies, rounded up to a page: about two seconds of a processor.
const VERIFIED_MAX: i64 = 100_000;

/// Length of a hash, in hexadecimal digits.
const HASH_DIGITS: usize = 64;

/// The part of the chain of entries that was verified.
#[derive(Serialize, ToSchema)]
#[schema(as = Verified)]
pub(in crate::api) struct VerifiedPart {
    /// Number of the last entry that was verified.
    entries: i64,
    /// Hash of that entry. Keep the hash of the last entry of all elsewhere to detect a replaced chain.
    head: String,
    /// `true` if it is the last entry. If not, send `entries` as `from_seq` and `head` as `from_hash` to go on.
    is_complete: bool,
    /// The fault in the chain, and at which entry; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    broken: Option<String>,
}

pub(in crate::api) async fn list(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    entries(&ask, None).await
}

pub(in crate::api) async fn of_app(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    entries(&ask, Some(ask.param("app").to_owned())).await
}

pub(in crate::api) async fn verify(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let _only = ask.api.verifying.try_acquire().map_err(|_| Error::Busy)?;
    let (seq, hash) = (ask.query().from_seq.unwrap_or(0), ask.query().from_hash.clone());
    let hash = hash.unwrap_or_else(|| GENESIS.to_owned());
    let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if seq < 0 || !is_hash || (seq == 0) != (hash == GENESIS) {
        let problem = finding!(
            "bad_chain_start",
            "from_seq, from_hash: expected both, as `entries` and `head` of an earlier answer"
        );
        return Err(ApiProblem::new(axum::http::StatusCode::BAD_REQUEST, problem));
    }
    let from = Chain::behind(seq, hash.clone());
    let part = match ask.api.catalog.verify_audit_part(from, VERIFIED_MAX, |_| ()).await {
        Ok((Verified { entries, head }, is_complete)) => {
            VerifiedPart { entries, head, is_complete, broken: None }
        }
        Err(Error::Damaged(problem)) => {
            count_damaged(&problem);
            VerifiedPart { entries: seq, head: hash, is_complete: false, broken: Some(problem) }
        }
        Err(error) => return Err(error.into()),
    };
    Ok(ApiResponse::ok(&part))
}

/// Sends all entries that there are now, as lines of JSON, the oldest first.
pub(in crate::api) async fn export(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let only = ask.api.verifying.clone().try_acquire_owned().map_err(|_| Error::Busy)?;
    let catalog = ask.api.catalog.clone();
    let exporting = Exporting { catalog, seq: 0, _only: only };
    let lines = stream::try_unfold(exporting, |mut exporting| async {
        let lines = exporting.next().await.map_err(std::io::Error::other)?;
        Ok::<_, std::io::Error>(lines.map(|lines| (lines, exporting)))
    });
    Ok(ApiResponse::lines(Body::from_stream(lines)))
}

/// State of an export.
struct Exporting {
    catalog: Catalog,
    /// Number of the last entry that was sent.
    seq: i64,
    _only: OwnedSemaphorePermit,
}

impl Exporting {
    async fn next(&mut self) -> Result<Option<String>, Error> {
        let entries = self.catalog.audit_since(self.seq).await?;
        let Some(last) = entries.last() else { return Ok(None) };
        self.seq = last.seq;
        Ok(Some(entries.iter().map(|entry| entry.line() + "\n").collect()))
    }
}

async fn entries(ask: &ApiRequest, app: Option<String>) -> Result<ApiResponse, ApiProblem> {
    let filter = AuditFilter { app, entry: ask.query().entry_filter() };
    let entries = ask.api.catalog.audit(&filter, &ask.page()).await?;
    Ok(ApiResponse::documents(ask, entries, |entry| entry.seq.to_string()))
}
