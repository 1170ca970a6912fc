//! Why something of the catalog was not done.

use std::path::{Path, PathBuf};

use sluicegate_policy::{Finding, TextPlace};

use crate::access::AccessDenied;
use crate::db::CatalogAddress;

/// Why something was not done. Nothing has changed, unless it is [`Unknown`](Self::Unknown).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field makes no sense, or a document does not: all that is wrong, at least one.
    #[error("{}", listed(.0))]
    Invalid(Vec<PlacedFinding>),
    /// There is none of this name.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// There is one of this name already.
    #[error("the name already exists")]
    Taken,
    /// It is not what it was when the one who changes it looked at it.
    #[error("version conflict: the current version is {0}")]
    Stale(i64),
    /// It cannot be as things are.
    #[error("{0}")]
    Conflict(Finding),
    /// It would lock out those whom it is for, and was not forced.
    #[error("{}; set `force` to do it anyway", listed_findings(.0))]
    Warned(Vec<PlacedFinding>),
    /// The same name was given to another change before.
    #[error("the idempotency key was already used for a different request")]
    KeyReused,
    /// Not for this one.
    #[error(transparent)]
    Denied(#[from] AccessDenied),
    /// There are too many of them.
    #[error("limit reached: at most {0}")]
    TooMany(String),
    /// Too many ask for this at once.
    #[error("too many concurrent requests; retry in 1 s")]
    Busy,
    /// The database does not do what it is told, or is not there.
    #[error("database: {0}")]
    Database(String),
    /// The database did not say whether it was done. Whoever asks again with the same idempotency key
    /// is told.
    #[error("outcome unknown, the database did not confirm: {0}")]
    Unknown(String),
    /// What is in the database is not what is written there.
    #[error("the catalog is damaged: {0}")]
    Damaged(String),
    /// The copy is one of another catalog, or does not say of which.
    #[error("{}", other_catalog(path, found.as_ref(), wanted))]
    OtherCatalog {
        /// The file.
        path: PathBuf,
        /// The catalog that it is a copy of, if it says so.
        found: Option<CatalogAddress>,
        /// The catalog that a copy is wanted of.
        wanted: CatalogAddress,
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

/// What is wrong or risky in what was sent, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedFinding {
    /// Where, as a JSON pointer into what was sent (RFC 6901).
    pub pointer: String,
    /// What was given there and what is permitted, or what it would do.
    pub finding: Finding,
    /// Where it stands in a text of YAML.
    pub place: Option<TextPlace>,
}

impl PlacedFinding {
    /// `finding` at `pointer`.
    pub fn new(pointer: impl Into<String>, finding: Finding) -> Self {
        Self { pointer: pointer.into(), finding, place: None }
    }
}

impl Error {
    /// The only error: what is at `pointer` makes no sense.
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

fn other_catalog(path: &Path, found: Option<&CatalogAddress>, wanted: &CatalogAddress) -> String {
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
