//! One line taken apart: fields in any order, each once, each of its kind.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use sluicegate::{Cost, Micros};
use sluicegate_kernel::limits::SPAN_MAX_US;
use sluicegate_kernel::param::within;

use super::names::{Field, Op};
use super::{Act, Event};
use crate::replay::error::EventError;
use crate::say::one_line;

/// Longest name of a permit: that of a key.
const ID_BYTES_MAX: usize = 1024;

/// The fields as they come in; the first semantic problem is kept while the rest is read on, so
/// that `at_us` is known wherever it stands.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    pub(super) at_us: Option<u64>,
    policy: Option<Cow<'a, str>>,
    key: Option<Cow<'a, str>>,
    cost: Option<u64>,
    op: Option<Op>,
    max_wait_us: Option<u64>,
    id: Option<Cow<'a, str>>,
    document: Option<&'a RawValue>,
    /// The fields that have come, a bit each.
    seen: u8,
    /// The field whose value is being read.
    pub(super) reading: Option<Field>,
    pub(super) problem: Option<EventError>,
}

impl<'a> Fields<'a> {
    /// The event that the fields make.
    pub(super) fn event(&mut self) -> Result<Event<'a>, EventError> {
        let op = self.op.unwrap_or_default();
        let missing = |field| EventError::Missing { field, op };
        let at = self.at_us.ok_or_else(|| missing(Field::AtUs))?;
        let at = within("at_us", at, 0, SPAN_MAX_US).map(Micros::new)?;
        self.refuse_misplaced(op)?;
        let policy = self.policy.take();
        let cost = self.cost.map_or(Ok(Cost::ONE), Cost::new)?;
        let max_wait =
            within("max_wait_us", self.max_wait_us.unwrap_or(SPAN_MAX_US), 0, SPAN_MAX_US)?;
        if let Some(id) = self.id.as_ref().filter(|id| !(1..=ID_BYTES_MAX).contains(&id.len())) {
            return Err(EventError::IdLength(id.len()));
        }
        let id = self.id.take();
        let act = match op {
            Op::Check => Act::Check(cost),
            Op::Peek => Act::Peek(cost),
            Op::Refund => Act::Refund(cost),
            Op::Reset => Act::Reset,
            Op::Reserve => Act::Reserve { cost, max_wait: Micros::new(max_wait) },
            Op::AtMost => Act::AtMost(cost),
            Op::Acquire => Act::Acquire { cost, id },
            Op::Release => Act::Release(id.ok_or_else(|| missing(Field::Id))?),
            Op::Renew => Act::Renew(id.ok_or_else(|| missing(Field::Id))?),
            Op::Configure => Act::Configure(self.document.ok_or_else(|| missing(Field::Document))?),
        };
        Ok(Event { at, policy, key: self.key.take(), act })
    }

    fn refuse_misplaced(&self, op: Op) -> Result<(), EventError> {
        let holds = matches!(op, Op::Acquire | Op::Release | Op::Renew);
        let (reserves, configures) = (op == Op::Reserve, op == Op::Configure);
        for (given, goes, field) in [
            (self.max_wait_us.is_some(), reserves, Field::MaxWaitUs),
            (self.id.is_some(), holds, Field::Id),
            (self.document.is_some(), configures, Field::Document),
        ] {
            if given && !goes {
                return Err(EventError::Misplaced { field, op });
            }
        }
        Ok(())
    }

    fn note(&mut self, problem: EventError) {
        self.problem.get_or_insert(problem);
    }

    /// Reads the value of `field`.
    fn value<M: MapAccess<'a>>(&mut self, field: Field, map: &mut M) -> Result<(), M::Error> {
        if self.seen & field.bit() != 0 {
            self.note(EventError::Twice(field));
            return map.next_value::<IgnoredAny>().map(drop);
        }
        self.seen |= field.bit();
        self.reading = Some(field);
        if field == Field::Document {
            self.document = Some(map.next_value()?);
        } else {
            match map.next_value_seed(AnyValue)? {
                Value::Whole(number) if field.is_number() => self.number(field, number),
                Value::Text(text) if !field.is_number() => self.text(field, text),
                Value::Null if field == Field::Key => {}
                other => self.note(EventError::Kind { field, given: other.in_short() }),
            }
        }
        self.reading = None;
        Ok(())
    }

    fn number(&mut self, field: Field, number: u64) {
        let place = match field {
            Field::AtUs => &mut self.at_us,
            Field::Cost => &mut self.cost,
            Field::MaxWaitUs => &mut self.max_wait_us,
            Field::Policy | Field::Key | Field::Op | Field::Id | Field::Document => return,
        };
        *place = Some(number);
    }

    fn text(&mut self, field: Field, text: Cow<'a, str>) {
        match field {
            Field::Policy => self.policy = Some(text),
            Field::Key => self.key = Some(text),
            Field::Id => self.id = Some(text),
            Field::Op => match Op::named(&text) {
                Some(op) => self.op = Some(op),
                None => self.note(EventError::UnknownOp(one_line(&text))),
            },
            Field::AtUs | Field::Cost | Field::MaxWaitUs | Field::Document => {}
        }
    }
}

impl<'a> Visitor<'a> for &mut Fields<'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object such as {\"at_us\":0,\"policy\":\"p\",\"key\":\"k\"}")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(name) = map.next_key_seed(FieldName)? {
            match name {
                Ok(field) => self.value(field, &mut map)?,
                Err(unknown) => {
                    self.note(EventError::UnknownField(unknown));
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// A field's name, or one that is none.
struct FieldName;

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
        Ok(Field::named(name).ok_or_else(|| one_line(name)))
    }
}

/// A value of any kind: whether it fits its field is said in our words, not the parser's.
enum Value<'a> {
    Whole(u64),
    Text(Cow<'a, str>),
    Null,
    Other(String),
}

impl Value<'_> {
    fn in_short(self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Text(text) => format!("\"{}\"", one_line(&text)),
            Self::Null => "null".to_owned(),
            Self::Other(given) => given,
        }
    }
}

struct AnyValue;

impl<'a> DeserializeSeed<'a> for AnyValue {
    type Value = Value<'a>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Value<'a>, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for AnyValue {
    type Value = Value<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value<'a>, E> {
        Ok(Value::Whole(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value<'a>, E> {
        Ok(Value::Other(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value<'a>, E> {
        Ok(Value::Other(format!("{number:?}")))
    }

    fn visit_bool<E>(self, given: bool) -> Result<Value<'a>, E> {
        Ok(Value::Other(given.to_string()))
    }

    fn visit_unit<E>(self) -> Result<Value<'a>, E> {
        Ok(Value::Null)
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Value<'a>, E> {
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value<'a>, E> {
        Ok(Value::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut seq: S) -> Result<Value<'a>, S::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other("[..]".to_owned()))
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Value<'a>, M::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other("{..}".to_owned()))
    }
}
