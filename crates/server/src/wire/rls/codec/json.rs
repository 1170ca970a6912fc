//! Messages as proto3 maps them to JSON, as far as this wire uses them.
//!
//! Names of fields may be written as in the protocol, too; numbers may be texts, and `3`, `3.0` and `3e0`
//! are the same. Zero and empty values are left out of answers.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use sluicegate_text::fields::{self, Object};

use super::limit::UNITS;
use crate::wire::rls::proto::{
    Code, DescriptorStatus, Entry, HeaderValue, RateLimit, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, RateLimitResponse, Unit,
};

/// Reads a message.
pub(in crate::wire::rls) fn decode(body: &[u8]) -> Result<RateLimitRequest, String> {
    let Object(request) = read(body)?;
    let JsonRequest { domain, descriptors, hits_addend } = request;
    Ok(RateLimitRequest {
        domain: domain.unwrap_or_default(),
        descriptors: descriptors
            .unwrap_or_default()
            .into_iter()
            .map(|Object(of)| of.into())
            .collect(),
        hits_addend: hits_addend.map(|Number(hits)| hits).unwrap_or_default(),
    })
}

/// Reads JSON. An error of a value names its field, such as `descriptors[0].entries[1].key`.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." | "?" => error.into_inner().to_string(),
            path => format!("{path}: {}", error.into_inner()),
        }
    })?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(read)
}

/// Writes a message.
pub(in crate::wire::rls) fn encode(response: &RateLimitResponse) -> String {
    serde_json::to_string(&JsonResponse::from(response)).expect("numbers and texts are always JSON")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonRequest {
    domain: Option<String>,
    descriptors: Option<Vec<Object<JsonDescriptor>>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<u32>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonDescriptor {
    entries: Option<Vec<Object<JsonEntry>>>,
    limit: Option<Object<JsonLimit>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<u64>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonEntry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonLimit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Number<u32>>,
    unit: Option<JsonUnit>,
}

/// A whole number in any notation, or a text with one.
struct Number<T>(T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let number = match &value {
            serde_json::Value::Number(number) => whole(number),
            // As a number, with nothing around it.
            serde_json::Value::String(text) if text.trim() == text => {
                serde_json::from_str(text).ok().and_then(|number| whole(&number))
            }
            _ => None,
        };
        let number = number.and_then(|number: u64| T::try_from(number).ok());
        number.map(Self).ok_or_else(|| {
            Error::invalid_value(
                Unexpected::Other("number"),
                &"a whole number that is not too large",
            )
        })
    }
}

/// The whole number that `number` is, also where it is written with a point or an exponent.
fn whole(number: &serde_json::Number) -> Option<u64> {
    number.as_u64().or_else(|| number.as_f64().and_then(fields::whole))
}

/// A unit by name or number.
struct JsonUnit(i32);

impl<'de> Deserialize<'de> for JsonUnit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let unit = match &value {
            serde_json::Value::String(name) => {
                let named = |(unit, _): &(Unit, u64)| unit.as_str_name() == name;
                UNITS.into_iter().find(named).map(|(unit, _)| unit.into())
            }
            other => other.as_i64().and_then(|number| i32::try_from(number).ok()),
        };
        unit.map(Self).ok_or_else(|| {
            Error::invalid_value(Unexpected::Other("value"), &"a unit such as `SECOND`")
        })
    }
}

impl From<JsonDescriptor> for RateLimitDescriptor {
    fn from(descriptor: JsonDescriptor) -> Self {
        let JsonDescriptor { entries, limit, hits_addend, is_negative_hits } = descriptor;
        let entry = |Object(JsonEntry { key, value })| Entry {
            key: key.unwrap_or_default().into_bytes(),
            value: value.unwrap_or_default().into_bytes(),
        };
        let limit = limit.map(|Object(JsonLimit { requests_per_unit, unit })| RateLimitOverride {
            requests_per_unit: requests_per_unit.map(|Number(n)| n).unwrap_or_default(),
            unit: unit.map(|JsonUnit(unit)| unit).unwrap_or_default(),
        });
        Self {
            entries: entries.unwrap_or_default().into_iter().map(entry).collect(),
            limit,
            hits_addend: hits_addend.map(|Number(hits)| hits),
            is_negative_hits: is_negative_hits.unwrap_or_default(),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonResponse<'a> {
    #[serde(skip_serializing_if = "is_default")]
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<JsonStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<JsonHeader<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonStatus<'a> {
    #[serde(skip_serializing_if = "is_default")]
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<JsonCurrentLimit<'a>>,
    #[serde(skip_serializing_if = "is_default")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonCurrentLimit<'a> {
    #[serde(skip_serializing_if = "is_default")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "is_default")]
    unit: &'static str,
    #[serde(skip_serializing_if = "is_default")]
    name: &'a str,
}

#[derive(Serialize)]
struct JsonHeader<'a> {
    key: &'a str,
    value: &'a str,
}

impl<'a> From<&'a RateLimitResponse> for JsonResponse<'a> {
    fn from(response: &'a RateLimitResponse) -> Self {
        let RateLimitResponse {
            overall_code,
            statuses,
            response_headers_to_add,
            // No answer has these yet.
            request_headers_to_add: _,
            raw_body: _,
        } = response;
        let header = |HeaderValue { key, value }: &'a HeaderValue| JsonHeader { key, value };
        Self {
            overall_code: code(*overall_code),
            statuses: statuses.iter().map(Into::into).collect(),
            response_headers_to_add: response_headers_to_add.iter().map(header).collect(),
        }
    }
}

impl<'a> From<&'a DescriptorStatus> for JsonStatus<'a> {
    fn from(status: &'a DescriptorStatus) -> Self {
        let DescriptorStatus { code: c, current_limit, limit_remaining, duration_until_reset } =
            status;
        let limit = |RateLimit { requests_per_unit, unit, name }: &'a RateLimit| JsonCurrentLimit {
            requests_per_unit: *requests_per_unit,
            unit: Unit::try_from(*unit)
                .ok()
                .filter(|unit| *unit != Unit::Unknown)
                .map_or("", |unit| unit.as_str_name()),
            name,
        };
        Self {
            code: code(*c),
            current_limit: current_limit.as_ref().map(limit),
            limit_remaining: *limit_remaining,
            duration_until_reset: duration_until_reset.as_ref().map(duration),
        }
    }
}

/// The name of a code; empty for the one that is never sent.
fn code(code: i32) -> &'static str {
    match Code::try_from(code) {
        Ok(code @ (Code::Ok | Code::OverLimit)) => code.as_str_name(),
        _ => "",
    }
}

/// Seconds, with three or six digits behind the point where there is something behind it.
fn duration(span: &prost_types::Duration) -> String {
    let prost_types::Duration { seconds, nanos } = *span;
    match nanos / 1_000 {
        0 => format!("{seconds}s"),
        us if us % 1_000 == 0 => format!("{seconds}.{:03}s", us / 1_000),
        us => format!("{seconds}.{us:06}s"),
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
