//! Names and values as they stand in the text, before they are checked.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::Form;
use super::names::Field;
use crate::terminal::one_line;

/// Reads the name of a field, known or unknown.
pub(super) struct FieldName(pub(super) &'static Form);

impl<'a> DeserializeSeed<'a> for FieldName {
    type Value = Result<Field, String>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Result<Field, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let field = self.0.fields.iter().copied().find(|field| field.name() == name);
        Ok(field.ok_or_else(|| one_line(name)))
    }
}

/// A value of any kind. Its field checks the kind, so that the error is in our words, not the parser's.
pub(super) enum FieldValue<'a> {
    Whole(u64),
    Text(Cow<'a, str>),
    Flag(bool),
    Null,
    Other(String),
}

impl FieldValue<'_> {
    pub(super) fn in_short(self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Text(text) => format!("\"{}\"", one_line(&text)),
            Self::Flag(flag) => flag.to_string(),
            Self::Null => "null".to_owned(),
            Self::Other(given) => given,
        }
    }
}

/// The whole number that a number with a point or an exponent has: `5.0` is 5, as in JSON Schema, and as PHP and Python
/// write it. At most 2^53 - 1: a double does not represent all larger numbers.
pub fn whole(number: f64) -> Option<u64> {
    const DOUBLES_MAX: f64 = 9_007_199_254_740_991.0;
    let is_whole = number.fract() == 0.0 && (0.0..=DOUBLES_MAX).contains(&number);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number of at most 53 bits"
    )]
    is_whole.then_some(number as u64)
}

/// Reads a [`FieldValue`].
pub(super) struct AnyValue;

impl<'a> DeserializeSeed<'a> for AnyValue {
    type Value = FieldValue<'a>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<FieldValue<'a>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for AnyValue {
    type Value = FieldValue<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_u64<E>(self, number: u64) -> Result<FieldValue<'a>, E> {
        Ok(FieldValue::Whole(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<FieldValue<'a>, E> {
        Ok(FieldValue::Other(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<FieldValue<'a>, E> {
        Ok(match whole(number) {
            Some(whole) => FieldValue::Whole(whole),
            None => FieldValue::Other(format!("{number:?}")),
        })
    }

    fn visit_bool<E>(self, given: bool) -> Result<FieldValue<'a>, E> {
        Ok(FieldValue::Flag(given))
    }

    fn visit_unit<E>(self) -> Result<FieldValue<'a>, E> {
        Ok(FieldValue::Null)
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<FieldValue<'a>, E> {
        Ok(FieldValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<FieldValue<'a>, E> {
        Ok(FieldValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut seq: S) -> Result<FieldValue<'a>, S::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Other("[..]".to_owned()))
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<FieldValue<'a>, M::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(FieldValue::Other("{..}".to_owned()))
    }
}
