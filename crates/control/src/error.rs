//! Errors of the catalog.

use std::path::{Path, PathBuf};

use sluicegate_policy::{Finding, TextPlace};

use crate::access::AccessDenied;

/// The reason for a failure. Nothing has changed, unless it is [`Unknown`](Self::Unknown).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field or a document is invalid: all findings, at least one.
    #[error("{}", listed(.0))]
    Invalid(Vec<PlacedFinding>),
    /// No object has this name.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// An object has this name already.
    #[error("the name already exists")]
    Taken,
    /// The version to change is not the current one.
    #[error("version conflict: the current version is {0}")]
    Stale(i64),
    /// The current state does not permit it.
    #[error("{0}")]
    Conflict(Finding),
    /// The change causes warnings, and was not forced.
    #[error("{}; set `force` to do it anyway", listed_findings(.0))]
    Warned(Vec<PlacedFinding>),
    /// The idempotency key was used for another request before.
    #[error("the idempotency key was already used for a different request")]
    KeyReused,
    /// The actor lacks permission.
    #[error(transparent)]
    Denied(#[from] AccessDenied),
    /// The maximum number is reached.
    #[error("limit reached: at most {0}")]
    TooMany(String),
    /// Too many requests need this at once.
    #[error("too many concurrent requests; retry in 1 s")]
    Busy,
    /// The database refuses a statement, or is unavailable.
    #[error("database: {0}")]
    Database(String),
    /// The database did not confirm the outcome. A request that is sent again with the same idempotency key gets
    /// it.
    #[error("outcome unknown, the database did not confirm: {0}")]
    Unknown(String),
    /// The content of the database, or of a copy, is not what was written.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
    /// The copy is one of another catalog, or does not name one.
    #[error("{}", other_catalog(path, found.as_deref(), wanted))]
    OtherCatalog {
        /// The file.
        path: PathBuf,
        /// The address of the catalog that it is a copy of, if it names one.
        found: Option<String>,
        /// The address of the catalog whose copy is expected.
        wanted: String,
    },
    /// The copy of the catalog was written by another version of this program.
    #[error(
        "{} has format {format}, expected {expected}: another version of Sluicegate wrote it; start \
         this version while the database is available, and it replaces the file", path.display()
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The format that this version reads.
        expected: u32,
    },
}

/// Something wrong or risky in a request, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedFinding {
    /// The place, as a JSON pointer into the body (RFC 6901), or to a parameter such as `/reason`.
    pub pointer: String,
    /// The value and what is permitted, or the effect of the change.
    pub finding: Finding,
    /// The position in a text of YAML.
    pub place: Option<TextPlace>,
}

impl PlacedFinding {
    /// Creates `finding` at `pointer`.
    pub fn new(pointer: impl Into<String>, finding: Finding) -> Self {
        Self { pointer: pointer.into(), finding, place: None }
    }
}

impl Error {
    /// Creates an error with one finding, at `pointer`.
    pub(crate) fn invalid(pointer: &str, finding: Finding) -> Self {
        Self::Invalid(vec![PlacedFinding::new(pointer, finding)])
    }
}

fn listed(errors: &[PlacedFinding]) -> String {
    let lines =
        errors.iter().map(|PlacedFinding { pointer, finding, .. }| match pointer.as_str() {
            "" => finding.to_string(),
            pointer => format!("{pointer}: {finding}"),
        });
    lines.collect::<Vec<_>>().join("; ")
}

fn other_catalog(path: &Path, found: Option<&str>, wanted: &str) -> String {
    let path = path.display();
    match found {
        Some(found) => format!(
            "{path} is a copy of {found}, and not of {wanted}; if the same catalog was there before, \
             set `catalog.kept_of = \"{found}\"`"
        ),
        None => format!(
            "{path} does not say which catalog it is a copy of, because an earlier version of Sluicegate \
             wrote it; if it is one of {wanted}, set `catalog.kept_of = \"{wanted}\"`"
        ),
    }
}

fn listed_findings(warnings: &[PlacedFinding]) -> String {
    let texts = warnings.iter().map(|warning| warning.finding.text());
    texts.collect::<Vec<_>>().join("; ")
}
