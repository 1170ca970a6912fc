//! What can be wrong with an object before anybody asks what it means.

use super::names::{Field, listed};

/// Why an object could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// It is something else than an object.
    #[error("expected an object such as `{example}`, found {}", or_nothing(.found))]
    NoObject {
        /// An object.
        example: &'static str,
        /// What was given, in short.
        found: String,
    },
    /// It is not JSON; if the trouble lies in a field, which.
    #[error("{}", not_json(*.field, .problem))]
    Json {
        /// The field that was being read.
        field: Option<Field>,
        /// What is wrong and where.
        problem: String,
    },
    /// There is no such field.
    #[error("unknown field `{name}`, expected one of {}", listed(.known.iter().map(|field| field.name())))]
    Unknown {
        /// Its name, in short.
        name: String,
        /// The fields that there are.
        known: &'static [Field],
    },
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
    /// A field is missing.
    #[error("{}: is missing, expected {}", .0.name(), .0.expected())]
    Missing(Field),
}

fn or_nothing(found: &str) -> String {
    if found.is_empty() { "nothing".to_owned() } else { format!("`{found}`") }
}

fn not_json(field: Option<Field>, problem: &str) -> String {
    match field {
        None => format!("not JSON: {problem}"),
        Some(field) => {
            format!("{}: not JSON ({problem}), expected {}", field.name(), field.expected())
        }
    }
}
