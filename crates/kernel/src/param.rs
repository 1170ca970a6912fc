//! Parameters as data, so that documents, schemas and error messages follow from one table beside
//! the algorithm.

use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::num::{Micros, Rate};

pub use crate::range::{RangeError, within};

/// One parameter of an algorithm: its name in documents, its kind, its default.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// The name in a document, such as `burst`.
    pub name: &'static str,
    /// The kind of value that it takes.
    pub kind: Kind,
    /// The value in words when it is absent; `None`: it is required.
    pub default: Option<&'static str>,
    /// One sentence for the schema.
    pub about: &'static str,
}

/// The values that a parameter can have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Permits per period: `100/s`.
    Rate,
    /// A whole number of permits (or of other things) from `min` to `max`.
    Permits {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A span of time: `250ms`, 1 µs to 366 days.
    Span,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or a number of permits up to `max`.
    WordOrPermits {
        /// The words.
        words: &'static [&'static str],
        /// Largest number.
        max: u64,
    },
    /// A real number above `min`, at most `max`.
    Factor {
        /// The lower bound, which is itself not permitted.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// The name of a time zone: `Europe/Berlin`.
    TimeZone,
}

/// A parameter's value, parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// For [`Kind::Rate`].
    Rate(Rate),
    /// For [`Kind::Permits`] and [`Kind::WordOrPermits`].
    Permits(u64),
    /// For [`Kind::Span`].
    Span(Micros),
    /// For [`Kind::Word`], [`Kind::WordOrPermits`] and [`Kind::TimeZone`].
    Word(String),
    /// For [`Kind::Factor`].
    Factor(f64),
}

/// The parameters of one rule by name. An absent one has its default.
#[derive(Clone, Debug, Default)]
pub struct Params(Vec<(String, Value)>);

impl Params {
    /// Adds `value` under `name`.
    pub fn push(&mut self, name: &str, value: Value) {
        self.0.push((name.to_owned(), value));
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(given, _)| given == name).map(|(_, value)| value)
    }

    /// The rate called `name`.
    ///
    /// # Errors
    /// [`RangeError`] if it is absent or not a rate.
    pub fn rate(&self, name: &str) -> Result<Rate, RangeError> {
        match self.get(name) {
            Some(Value::Rate(rate)) => Ok(*rate),
            other => Err(wrong(name, "a rate such as `100/s`", other)),
        }
    }

    /// The number of permits called `name`, or `default`.
    ///
    /// # Errors
    /// [`RangeError`] if it is not a number of permits, or absent without a default.
    pub fn permits(&self, name: &str, default: Option<u64>) -> Result<u64, RangeError> {
        match (self.get(name), default) {
            (Some(Value::Permits(permits)), _) => Ok(*permits),
            (None, Some(default)) => Ok(default),
            (other, _) => Err(wrong(name, "a whole number", other)),
        }
    }

    /// The span called `name`, or `default`.
    ///
    /// # Errors
    /// [`RangeError`] if it is not a span, or absent without a default.
    pub fn span(&self, name: &str, default: Option<Micros>) -> Result<Micros, RangeError> {
        match (self.get(name), default) {
            (Some(Value::Span(span)), _) => Ok(*span),
            (None, Some(default)) => Ok(default),
            (other, _) => Err(wrong(name, "a duration such as `250ms`", other)),
        }
    }

    /// The word called `name`, or `default`.
    ///
    /// # Errors
    /// [`RangeError`] if the value is not a word.
    pub fn word<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str, RangeError> {
        match self.get(name) {
            Some(Value::Word(word)) => Ok(word),
            None => Ok(default),
            other => Err(wrong(name, "a word", other)),
        }
    }

    /// The factor called `name`, or `default`.
    ///
    /// # Errors
    /// [`RangeError`] if the value is not a number.
    pub fn factor(&self, name: &str, default: f64) -> Result<f64, RangeError> {
        match self.get(name) {
            Some(Value::Factor(factor)) => Ok(*factor),
            None => Ok(default),
            other => Err(wrong(name, "a number", other)),
        }
    }

    /// Returns whether `name` was given.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

fn wrong(name: &str, wanted: &str, given: Option<&Value>) -> RangeError {
    let problem = match given {
        None => alloc::format!("is missing, expected {wanted}"),
        Some(_) => alloc::format!("expected {wanted}"),
    };
    RangeError::new(name, problem.to_string())
}
