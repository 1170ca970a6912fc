//! What can be wrong with one event, in words that name the field and what is permitted there.

use std::fmt::Write as _;

use sluicegate::DecideError;
use sluicegate_kernel::RangeError;
use sluicegate_policy::DocumentErrors;

use super::jsonl::{Field, Op};
use super::source::LINE_BYTES_MAX;
use crate::say::{self, one_line};

/// Why an event was not decided. It changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The line is longer than is read.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    LongLine,
    /// The line is no text.
    #[error("byte {0} of the line is not UTF-8")]
    Utf8(usize),
    /// The line is not JSON; if the trouble lies in a field, which.
    #[error("{}", not_json(.field, .problem))]
    Json {
        /// The field that was being read.
        field: Option<Field>,
        /// What is wrong and where.
        problem: String,
    },
    /// There is no such field.
    #[error("unknown field `{0}`, expected one of {fields}", fields = names(Field::ALL.map(Field::name)))]
    UnknownField(String),
    /// A field comes twice.
    #[error("{}: is given twice", .0.name())]
    Twice(Field),
    /// A field's value is of the wrong kind.
    #[error("{}: `{given}` is not {}", .field.name(), .field.expected())]
    Kind {
        /// The field.
        field: Field,
        /// What was given, in short.
        given: String,
    },
    /// A number is outside its range.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// There is no such operation.
    #[error("op: unknown op `{0}`, expected one of {ops}", ops = names(Op::ALL.map(Op::name)))]
    UnknownOp(String),
    /// The operation needs this field.
    #[error("{}: is missing, `{}` needs {}", .field.name(), .op.name(), .field.expected())]
    Missing {
        /// The field.
        field: Field,
        /// The operation.
        op: Op,
    },
    /// The operation does not know this field.
    #[error("{}: does not go with `{}`", .field.name(), .op.name())]
    Misplaced {
        /// The field.
        field: Field,
        /// The operation.
        op: Op,
    },
    /// Time went back.
    #[error(
        "at_us: `{at}` is before `{reached}`, the event before it; expected {reached} or later"
    )]
    Backwards {
        /// What was given, µs.
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
    /// The new document is no policy.
    #[error("{}", in_document(.0))]
    Document(#[from] DocumentErrors),
    /// The engine did not decide.
    #[error("{}", say::decide_error(.0))]
    Decide(#[from] DecideError),
    /// Too many reservations wait.
    #[error("max_wait_us: `{0}` reservations wait already, which is the most at a time")]
    PendingFull(usize),
    /// A reservation held too many lines back.
    #[error("max_wait_us: gave up, `{0}` later lines were held back by this reservation")]
    HeldBack(usize),
}

fn not_json(field: &Option<Field>, problem: &str) -> String {
    match field {
        None => format!("not JSON: {problem}"),
        Some(field) => {
            format!("{}: not JSON ({problem}), expected {}", field.name(), field.expected())
        }
    }
}

/// On one line: `document.rules[0].token_bucket.rate: ..; and 2 more`.
fn in_document(errors: &DocumentErrors) -> String {
    let Some((first, others)) = errors.errors().split_first() else { return String::new() };
    let dot = if first.path().is_empty() { "" } else { "." };
    let more = others.len() + errors.omitted();
    match more {
        0 => format!("document{dot}{first}"),
        _ => format!("document{dot}{first}; and {more} more"),
    }
}

/// "`a`, `b`, `c`".
fn names<const N: usize>(names: [&str; N]) -> String {
    let mut list = String::new();
    for name in names {
        let comma = if list.is_empty() { "" } else { ", " };
        write!(list, "{comma}`{name}`").expect("a string takes everything");
    }
    list
}
