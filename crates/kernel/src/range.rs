//! Numbers outside their range.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

/// A number outside the range that its field permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeError {
    field: String,
    problem: String,
}

impl RangeError {
    /// Returns an error about `field`: `problem` states the given value and the permitted ones.
    pub fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }

    /// The field that is wrong, such as `burst`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The given value and the permitted ones.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl core::error::Error for RangeError {}

/// `value`, if `min <= value <= max`.
///
/// # Errors
/// [`RangeError`] naming `field` and the range.
pub fn within(field: &str, value: u64, min: u64, max: u64) -> Result<u64, RangeError> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(RangeError::new(field, alloc::format!("`{value}` is outside {min}..={max}")))
}
