//! The errors of an object that cannot be read, apart from the meaning of its values.

use super::names::{Field, listed};

/// The reason why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The text is not an object.
    #[error("expected an object such as `{example}`, found {}", or_nothing(.found))]
    NoObject {
        /// An example of an object.
        example: &'static str,
        /// The value that was given, shortened.
        found: String,
    },
    /// The text is not JSON.
    #[error("{}", not_json(*.field, .problem))]
    Json {
        /// The field whose value is invalid, if the error is in a value.
        field: Option<Field>,
        /// The error and its place.
        problem: String,
    },
    /// The field is unknown.
    #[error("unknown field `{name}`, expected one of {}", listed(.known.iter().map(|field| field.name())))]
    Unknown {
        /// Its name, shortened.
        name: String,
        /// The known fields.
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
        /// The value that was given, shortened.
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
