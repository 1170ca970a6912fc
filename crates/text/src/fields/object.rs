//! Values that serde accepts in more forms than JSON documents should have.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected};

use super::value::whole;

/// An object: serde alone also accepts a list of values in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> serde::de::Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Reads a whole number that may be written with a point: `5.0` is 5. For `#[serde(deserialize_with = …)]`.
///
/// # Errors
/// If it is not a whole number, or is out of the range of `T`.
pub fn whole_number<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: TryFrom<i64>,
    D: Deserializer<'de>,
{
    const EXPECTED: &str = "a whole number";
    let number = serde_json::Number::deserialize(deserializer)?;
    let of_point = || number.as_f64().and_then(whole).and_then(|whole| i64::try_from(whole).ok());
    let whole = number.as_i64().or_else(of_point).and_then(|number| T::try_from(number).ok());
    whole.ok_or_else(|| match number.as_f64() {
        Some(other) => D::Error::invalid_value(Unexpected::Float(other), &EXPECTED),
        None => D::Error::invalid_value(Unexpected::Other("number"), &EXPECTED),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Pair {
        #[serde(deserialize_with = "whole_number")]
        left: u8,
        right: bool,
    }

    #[test]
    fn a_list_is_no_object() {
        let read = |text: &str| serde_json::from_str::<Object<Pair>>(text);
        let Object(Pair { left, right }) = read(r#"{"left":5.0,"right":true}"#).expect("a pair");
        assert_eq!((left, right), (5, true));
        let error = read("[5,true]").err().expect("a list").to_string();
        assert!(error.starts_with("invalid type: sequence, expected an object"), "{error}");
    }

    #[test]
    fn what_is_not_whole_or_too_large_is_refused() {
        for number in ["5.5", "-1", "256", "1e300", "\"5\""] {
            let text = format!(r#"{{"left":{number},"right":true}}"#);
            assert!(serde_json::from_str::<Pair>(&text).is_err(), "{number}");
        }
    }
}
