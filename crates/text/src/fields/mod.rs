//! Parses one JSON object: fields in any order, each once, each of its kind.
//!
//! The bodies of the HTTP wire and the events of `replay` are such objects; each has a [`Form`]
//! with the fields that it may have. Errors name the field and the values that it may have, in our
//! words, not the parser's. Texts are borrowed from the input unless they have escapes.

mod error;
mod names;
mod object;
mod value;

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::terminal::one_line;
pub use error::FieldError;
pub use names::Field;
pub use names::{FieldKind, listed};
pub use object::{Object, whole_number};
pub use value::whole;
use value::{AnyValue, FieldName, FieldValue};

/// The fields that an object may have, and an example of it.
#[derive(Debug)]
pub struct Form {
    /// The permitted fields.
    pub fields: &'static [Field],
    /// An object of this form, for errors.
    pub example: &'static str,
}

/// The fields that were read. The first error is kept while the rest is read, so that every other
/// field is known, wherever it stands. `None`: left out, or `null` where that is permitted.
#[derive(Debug)]
#[expect(missing_docs, reason = "see `Field::expected`")]
pub struct RequestFields<'a> {
    pub at_us: Option<u64>,
    pub policy: Option<Cow<'a, str>>,
    pub key: Option<Cow<'a, str>>,
    pub app: Option<Cow<'a, str>>,
    pub cost: Option<u64>,
    pub op: Option<Cow<'a, str>>,
    pub max_wait_us: Option<u64>,
    pub max_wait_ms: Option<u64>,
    pub charged: Option<u64>,
    pub actual_cost: Option<u64>,
    pub atomic: Option<bool>,
    pub checks: Option<&'a RawValue>,
    pub id: Option<Cow<'a, str>>,
    pub document: Option<&'a RawValue>,
    pub at: Option<Cow<'a, str>>,
    form: &'static Form,
    /// The fields that were read, a bit each.
    seen: u16,
    /// The field whose value is being read.
    reading: Option<Field>,
    problem: Option<FieldError>,
}

impl<'a> RequestFields<'a> {
    /// No fields yet, of an object of this form.
    pub const fn new(form: &'static Form) -> Self {
        Self {
            at_us: None,
            policy: None,
            key: None,
            app: None,
            cost: None,
            op: None,
            max_wait_us: None,
            max_wait_ms: None,
            charged: None,
            actual_cost: None,
            atomic: None,
            checks: None,
            id: None,
            document: None,
            at: None,
            form,
            seen: 0,
            reading: None,
            problem: None,
        }
    }

    /// Reads the object in `text`.
    ///
    /// # Errors
    /// The first [`FieldError`]; fields that could be read are set all the same.
    pub fn read(&mut self, text: &'a str) -> Result<(), FieldError> {
        if !text.trim_ascii_start().starts_with('{') {
            let (example, found) = (self.form.example, one_line(text.trim_ascii()));
            return Err(FieldError::NoObject { example, found });
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let end = json.deserialize_map(&mut *self).and_then(|()| json.end());
        if let Err(error) = end {
            return Err(FieldError::Json { field: self.reading, problem: problem(&error) });
        }
        self.problem.take().map_or(Ok(()), Err)
    }

    fn keep_first(&mut self, problem: FieldError) {
        self.problem.get_or_insert(problem);
    }

    /// Reads the value of `field`.
    fn value<M: MapAccess<'a>>(&mut self, field: Field, map: &mut M) -> Result<(), M::Error> {
        if self.seen & field.bit() != 0 {
            self.keep_first(FieldError::Twice(field));
            return map.next_value::<IgnoredAny>().map(drop);
        }
        self.seen |= field.bit();
        self.reading = Some(field);
        match field.kind() {
            FieldKind::Raw => self.raw(field, map.next_value()?),
            kind => match (kind, map.next_value_seed(AnyValue)?) {
                (FieldKind::Whole { .. }, FieldValue::Whole(number)) => self.number(field, number),
                (FieldKind::Text { .. }, FieldValue::Text(text)) if field.may_be(&text) => {
                    self.text(field, text);
                }
                (FieldKind::Flag, FieldValue::Flag(flag)) => self.atomic = Some(flag),
                (_, FieldValue::Null) if field.may_be_null() => {}
                (_, other) => self.keep_first(FieldError::Kind { field, given: other.in_short() }),
            },
        }
        self.reading = None;
        Ok(())
    }

    fn number(&mut self, field: Field, number: u64) {
        let place = match field {
            Field::AtUs => &mut self.at_us,
            Field::Cost => &mut self.cost,
            Field::MaxWaitUs => &mut self.max_wait_us,
            Field::MaxWaitMs => &mut self.max_wait_ms,
            Field::Charged => &mut self.charged,
            Field::ActualCost => &mut self.actual_cost,
            _ => return,
        };
        *place = Some(number);
    }

    fn text(&mut self, field: Field, text: Cow<'a, str>) {
        let place = match field {
            Field::Policy => &mut self.policy,
            Field::Key => &mut self.key,
            Field::App => &mut self.app,
            Field::Op => &mut self.op,
            Field::Id => &mut self.id,
            Field::At => &mut self.at,
            _ => return,
        };
        *place = Some(text);
    }

    fn raw(&mut self, field: Field, json: &'a RawValue) {
        match field {
            Field::Document => self.document = Some(json),
            Field::Checks => self.checks = Some(json),
            _ => {}
        }
    }
}

impl<'a> Visitor<'a> for &mut RequestFields<'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key_seed(FieldName(self.form))? {
            match name {
                Ok(field) => self.value(field, &mut map)?,
                Err(unknown) => {
                    self.keep_first(FieldError::Unknown { name: unknown, known: self.form.fields });
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The text of `error` without its "at line 1": most objects are on one line.
fn problem(error: &serde_json::Error) -> String {
    error.to_string().replacen(" at line 1 column ", " at column ", 1)
}
