//! Errors of one event; their text names the field and the permitted values.

use sluicegate::DecideError;
use sluicegate_kernel::RangeError;
use sluicegate_policy::{DocumentErrors, KeyAttribute};
use sluicegate_text::fields::{Field, FieldError, listed};
use sluicegate_text::terminal::{self, one_line};

use super::op::OpName;
use super::source::LINE_BYTES_MAX;

/// The reason for which an event was not decided. It changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The line is too long.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    LongLine,
    /// The line is not UTF-8.
    #[error("byte {0} of the line is not UTF-8")]
    Utf8(usize),
    /// The line is not an object of known fields.
    #[error(transparent)]
    Fields(#[from] FieldError),
    /// The line is a decision from a server's stream, among events of another format.
    #[error(
        "the line is a decision of `/v1/events`; choose `--format events`, or write events such as `{example}`"
    )]
    StreamedDecision {
        /// An event of the other format.
        example: &'static str,
    },
    /// The line is not a decision of a server.
    #[error("the line is no event of `/v1/events`: {0}")]
    NotAnEvent(String),
    /// A decision of a server lacks a field: servers before 0.1.0 leave out some.
    #[error("{0}: is missing; servers of an earlier version leave it out")]
    Absent(&'static str),
    /// A permit is not a hash.
    #[error("permit: `{0}` is not 32 hexadecimal digits")]
    Permit(String),
    /// The patience is not known.
    #[error("waits: `{0}` is not `policy` or `gateway`")]
    Waits(String),
    /// The key was cut.
    #[error("key: is not whole (`key_is_cut`), so its budget is not known")]
    KeyIsCut,
    /// Some keys are hashes, and some are not.
    #[error(
        "key: hashed and clear keys are mixed, so one client may have two budgets; \
         set `admin.keys` alike and record again"
    )]
    MixedKeys,
    /// A number is outside its range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// There is no such operation.
    #[error("op: unknown op `{0}`, expected one of {ops}", ops = listed(OpName::ALL.map(OpName::name)))]
    UnknownOp(String),
    /// The operation needs this field.
    #[error("{}: is missing, `{}` needs {}", .field.name(), .op.name(), .field.expected())]
    Missing {
        /// The field.
        field: Field,
        /// The operation.
        op: OpName,
    },
    /// The operation does not support this field.
    #[error("{}: cannot be combined with `{}`", .field.name(), .op.name())]
    Misplaced {
        /// The field.
        field: Field,
        /// The operation.
        op: OpName,
    },
    /// Time went back.
    #[error(
        "at_us: `{at}` is before the previous event at `{reached}`; expected {reached} or later"
    )]
    Backwards {
        /// The given instant, µs.
        at: u64,
        /// The instant already reached, µs.
        reached: u64,
    },
    /// A permit's name is too long or empty.
    #[error("id: `{0}` bytes are outside 1..=1024")]
    IdLength(usize),
    /// The new document is for another policy than the event.
    #[error("document.name: `{document}` is not `{}`, the policy of the event", one_line(.policy))]
    OtherPolicy {
        /// The name in the document.
        document: String,
        /// The name in the event.
        policy: String,
    },
    /// The new document is not a valid policy.
    #[error("{}", in_document(.0))]
    Document(#[from] DocumentErrors),
    /// The engine did not decide.
    #[error("{}", terminal::decide_error(.0))]
    Decide(#[from] DecideError),
    /// Too many reservations wait.
    #[error("max_wait_us: limit reached: at most `{0}` pending reservations")]
    PendingFull(usize),
    /// A reservation, or a delayed request, held back too many lines.
    #[error("max_wait_us: gave up: this reservation delayed `{0}` later lines")]
    HeldBack(usize),
}

/// The reason for which the policy or the key of a log's lines cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// There is no policy of this name.
    #[error("--policy: unknown policy `{}`{}", one_line(.name), did_you_mean(.near.as_deref()))]
    UnknownPolicy {
        /// The name.
        name: String,
        /// The policy with the most similar name.
        near: Option<String>,
    },
    /// There are this many policies, none with a `match`, and none was chosen.
    #[error("--policy: is missing: choose one of the {0} policies, or give them a `match`")]
    PolicyMissing(usize),
    /// The key needs an attribute that no log has.
    #[error("key: logs have no attribute `{0}`; choose another with `--key remote_ip`")]
    NotLogged(KeyAttribute),
}

/// Returns `, did you mean `near`?`, if there is such a name.
pub(crate) fn did_you_mean(near: Option<&str>) -> String {
    near.map(|near| format!(", did you mean `{near}`?")).unwrap_or_default()
}

/// Returns the errors on one line: `document.rules[0].token_bucket.rate: ..; and 2 more`.
fn in_document(errors: &DocumentErrors) -> String {
    let Some((first, others)) = errors.errors().split_first() else { return String::new() };
    let separator = if first.path().is_empty() { ": " } else { "." };
    let more = others.len() + errors.omitted();
    match more {
        0 => format!("document{separator}{first}"),
        _ => format!("document{separator}{first}; and {more} more"),
    }
}
