//! Policies from the configurations of other rate limiters: text in, policies and notes out.
//!
//! ```text
//! nginx     directives ─▶ limits by place ─┐
//! sentinel  flow rules ────────────────────┼─▶ Imported { policies, notes } ─▶ unless_wider
//! limiter_info  CSV ───────────────────────┤
//! envoy     of sluicegate-policy ──────────┘
//! ```
//!
//! Nothing here reads files or calls other programs. Each difference between a policy and the line that it comes from
//! is a note with that line and a [`Severity`]. One rule holds for all sources: where more would pass than before,
//! nothing is imported, unless the user accepts it ([`Imported::unless_wider`]).

mod envoy;
pub mod limiter_info;
mod names;
mod nginx;
mod rates;
mod sentinel;

use serde_json::Value;
use sluicegate_policy::limits::POLICIES_MAX;
use sluicegate_policy::{Finding, Policy, finding};

/// Longest text of an import in bytes: ten thousand rows, or ten times the configuration of a large site.
pub const IMPORT_BYTES_MAX: usize = 2 << 20;

/// Most notes of an import: a person reads them.
const NOTES_MAX: usize = 1_000;

/// The limiter whose configuration is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportSource {
    /// `envoyproxy/ratelimit`: YAML with descriptors.
    Envoy,
    /// The table `rate_limiter_info`, as CSV with a header line.
    RateLimiterInfo,
    /// nginx: `limit_req` and `limit_conn`.
    Nginx,
    /// Sentinel of Alibaba: flow rules as a JSON array.
    Sentinel,
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The policies, each of which is valid by itself.
    pub policies: Vec<ImportedPolicy>,
    /// Differences from the limits that were imported, and limits that were not. At most 1,000 and one that counts
    /// the others; if there are more, those by which more passes come first.
    pub notes: Vec<Note>,
    /// The [tree](sluicegate_policy::DescriptorTree) that leads to Envoy's policies, as YAML; `None` for other sources.
    pub descriptors: Option<String>,
}

/// A policy that was imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedPolicy {
    /// As in `policies` of a policy document.
    pub document: Value,
    /// The comment to write above it.
    pub comment: Option<String>,
    /// The line of the first limit that it comes from, from 1, where it is known.
    pub line: Option<u64>,
}

/// A difference between a configuration and its policies, or an error, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line, from 1; `None`: the note is about all of the text.
    pub line: Option<u64>,
    /// The effect on how much passes.
    pub severity: Severity,
    /// The difference or error.
    pub finding: Finding,
}

/// The effect of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// More passes than before: a limit was not imported, a policy lets more pass, or no request would meet it.
    Widens,
    /// As much passes as before, or less.
    Differs,
}

impl ImportSource {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Envoy, Self::RateLimiterInfo, Self::Nginx, Self::Sentinel];

    /// The name in requests: `envoy`, `rate_limiter_info`, `nginx` or `sentinel`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::RateLimiterInfo => "rate_limiter_info",
            Self::Nginx => "nginx",
            Self::Sentinel => "sentinel",
        }
    }

    /// The source of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.name() == name)
    }
}

impl Imported {
    /// The import itself, unless more would pass by its policies than before.
    ///
    /// # Errors
    /// All notes of [`Severity::Widens`], if there are any and `lossy` is false.
    pub fn unless_wider(self, lossy: bool) -> Result<Self, Vec<Note>> {
        let widens = |note: &Note| note.severity == Severity::Widens;
        if lossy || !self.notes.iter().any(widens) {
            return Ok(self);
        }
        Err(self.notes.into_iter().filter(widens).collect())
    }
}

impl Note {
    /// A note about something that cannot be read, or by which more passes.
    fn widens(line: impl Into<Option<u64>>, finding: Finding) -> Self {
        Self { line: line.into(), severity: Severity::Widens, finding }
    }

    /// A note about another difference.
    fn differs(line: impl Into<Option<u64>>, finding: Finding) -> Self {
        Self { line: line.into(), severity: Severity::Differs, finding }
    }
}

/// Imports `text`.
///
/// # Errors
/// Everything that keeps it from being read: it is too long, it has errors of syntax, or a row is malformed.
pub fn import(source: ImportSource, text: &str) -> Result<Imported, Vec<Note>> {
    if text.len() > IMPORT_BYTES_MAX {
        let problem =
            finding!("import_too_long", "expected at most {max} bytes", max = IMPORT_BYTES_MAX);
        return Err(vec![Note::widens(None, problem)]);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let imported = match source {
        ImportSource::Envoy => envoy::import(text),
        ImportSource::RateLimiterInfo => limiter_info::import(text),
        ImportSource::Nginx => nginx::import(text),
        ImportSource::Sentinel => sentinel::import(text),
    };
    imported.map(checked).map_err(limited)
}

/// Keeps the policies that are valid; the others become notes.
fn checked(imported: Imported) -> Imported {
    let Imported { policies, mut notes, descriptors } = imported;
    let more = policies.len().saturating_sub(POLICIES_MAX);
    if more > 0 {
        notes.insert(0, Note::widens(None, too_many(more)));
    }
    let mut valid = Vec::new();
    for policy in policies.into_iter().take(POLICIES_MAX) {
        let Err(errors) = Policy::parse_one(&policy.document.to_string()) else {
            valid.push(policy);
            continue;
        };
        let name = policy.document["name"].as_str().unwrap_or_default();
        let problem = errors.errors().first().map(ToString::to_string).unwrap_or_default();
        let finding =
            finding!("import_invalid", "`{name}` was not imported: {problem}", name, problem);
        notes.push(Note::widens(policy.line, finding));
    }
    Imported { policies: valid, notes: limited(notes), descriptors }
}

fn too_many(more: usize) -> Finding {
    let max = POLICIES_MAX;
    finding!("import_too_many", "{more} more policies were not imported: at most {max}", more, max)
}

/// The first notes, and the number of the others. Where not all fit, those by which more passes come first.
fn limited(mut notes: Vec<Note>) -> Vec<Note> {
    if notes.len() > NOTES_MAX {
        notes.sort_by_key(|note| note.severity);
        let (severity, more) = (notes[NOTES_MAX].severity, notes.len() - NOTES_MAX);
        notes.truncate(NOTES_MAX);
        notes.push(Note {
            line: None,
            severity,
            finding: finding!("import_more", "and {more} more", more),
        });
    }
    notes
}
