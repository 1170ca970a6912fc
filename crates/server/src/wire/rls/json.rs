//! `POST /json`: the same questions for those who speak no gRPC, as `envoyproxy/ratelimit` has it.
//!
//! Messages are as the mapping of proto3 to JSON writes them: `{"domain": "d", "descriptors":
//! [{"entries": [{"key": "k", "value": "v"}]}]}` is answered with
//! `{"overallCode": "OK", "statuses": [...]}` and 200, or 429 where the request is over the limit.
//! Names of fields may be written as in the protocol, too; what is zero or empty is left out of
//! answers; numbers of 64 bits are texts.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::post;
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use sluicegate::store::Store;
use tonic::Code as Grpc;

use super::codec::{Refusal, UNITS};
use super::proto::{
    Code, DescriptorStatus, Entry, HeaderValue, RateLimit, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, RateLimitResponse, Unit,
};
use super::service::RateLimits;

/// What a router of HTTP takes to answer `POST /json`.
pub(crate) fn routes<S: Store + 'static>(limits: Arc<RateLimits<S>>) -> Router {
    Router::new().route("/json", post(decide::<S>)).with_state(limits)
}

async fn decide<S: Store>(
    State(limits): State<Arc<RateLimits<S>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<String> {
    if is_from_a_page(&headers) {
        let problem = "content-type: expected `application/json` from a page";
        return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem.to_owned());
    }
    let message = match decode(&body) {
        Ok(message) => message,
        Err(problem) => return plain(StatusCode::BAD_REQUEST, problem),
    };
    match limits.decide(&message).await {
        Ok(answer) => {
            let over = answer.overall_code == i32::from(Code::OverLimit);
            let status = if over { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            respond(status, "application/json", encode(&answer))
        }
        Err(refusal) => plain(status(&refusal), refusal.message()),
    }
}

/// Programs send whatever type they like, or none; a page in a browser can send a plain one to a
/// server on loopback unasked, and says so.
fn is_from_a_page(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = given.is_some_and(|given| given.starts_with("application/json"));
    headers.contains_key(header::ORIGIN) && !is_json
}

fn status(refusal: &Refusal) -> StatusCode {
    match refusal.code() {
        Grpc::NotFound => StatusCode::NOT_FOUND,
        Grpc::PermissionDenied => StatusCode::FORBIDDEN,
        Grpc::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_REQUEST,
    }
}

fn plain(status: StatusCode, problem: String) -> Response<String> {
    respond(status, "text/plain; charset=utf-8", problem + "\n")
}

fn respond(status: StatusCode, kind: &'static str, body: String) -> Response<String> {
    Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, kind)
        .body(body)
        .expect("a known status and a constant header")
}

/// Reads a message.
pub(super) fn decode(body: &[u8]) -> Result<RateLimitRequest, String> {
    let request: Asked = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let Asked { domain, descriptors, hits_addend } = request;
    Ok(RateLimitRequest {
        domain: domain.unwrap_or_default(),
        descriptors: descriptors.unwrap_or_default().into_iter().map(Into::into).collect(),
        hits_addend: hits_addend.map(|Number(hits)| hits).unwrap_or_default(),
    })
}

/// Writes a message.
pub(super) fn encode(response: &RateLimitResponse) -> String {
    serde_json::to_string(&Answered::from(response)).expect("numbers and texts are always JSON")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Asked {
    domain: Option<String>,
    descriptors: Option<Vec<AskedDescriptor>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<u32>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AskedDescriptor {
    entries: Option<Vec<AskedEntry>>,
    limit: Option<AskedLimit>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number<u64>>,
    #[serde(alias = "is_negative_hits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedEntry {
    key: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AskedLimit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Option<Number<u32>>,
    unit: Option<AskedUnit>,
}

/// A whole number, or a text that is one.
struct Number<T>(T);

impl<'de, T: TryFrom<u64>> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let number = match &value {
            serde_json::Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        let number = number.and_then(|number: u64| T::try_from(number).ok());
        number.map(Self).ok_or_else(|| {
            Error::invalid_value(Unexpected::Other("it"), &"a whole number that is not too large")
        })
    }
}

/// A unit by name or number.
struct AskedUnit(i32);

impl<'de> Deserialize<'de> for AskedUnit {
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
            Error::invalid_value(Unexpected::Other("it"), &"a unit such as `SECOND`")
        })
    }
}

impl From<AskedDescriptor> for RateLimitDescriptor {
    fn from(asked: AskedDescriptor) -> Self {
        let AskedDescriptor { entries, limit, hits_addend, is_negative_hits } = asked;
        let entry = |AskedEntry { key, value }| Entry {
            key: key.unwrap_or_default(),
            value: value.unwrap_or_default(),
        };
        let limit = limit.map(|AskedLimit { requests_per_unit, unit }| RateLimitOverride {
            requests_per_unit: requests_per_unit.map(|Number(n)| n).unwrap_or_default(),
            unit: unit.map(|AskedUnit(unit)| unit).unwrap_or_default(),
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
struct Answered<'a> {
    #[serde(skip_serializing_if = "is_default")]
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<AnsweredStatus<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<AnsweredHeader<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredStatus<'a> {
    #[serde(skip_serializing_if = "is_default")]
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<AnsweredLimit<'a>>,
    #[serde(skip_serializing_if = "is_default")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredLimit<'a> {
    #[serde(skip_serializing_if = "is_default")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "is_default")]
    unit: &'static str,
    #[serde(skip_serializing_if = "is_default")]
    name: &'a str,
}

#[derive(Serialize)]
struct AnsweredHeader<'a> {
    key: &'a str,
    value: &'a str,
}

impl<'a> From<&'a RateLimitResponse> for Answered<'a> {
    fn from(response: &'a RateLimitResponse) -> Self {
        let RateLimitResponse {
            overall_code,
            statuses,
            response_headers_to_add,
            // No answer has these yet.
            request_headers_to_add: _,
            raw_body: _,
        } = response;
        let header = |HeaderValue { key, value }: &'a HeaderValue| AnsweredHeader { key, value };
        Self {
            overall_code: code(*overall_code),
            statuses: statuses.iter().map(Into::into).collect(),
            response_headers_to_add: response_headers_to_add.iter().map(header).collect(),
        }
    }
}

impl<'a> From<&'a DescriptorStatus> for AnsweredStatus<'a> {
    fn from(status: &'a DescriptorStatus) -> Self {
        let DescriptorStatus { code: c, current_limit, limit_remaining, duration_until_reset } =
            status;
        let limit = |RateLimit { requests_per_unit, unit, name }: &'a RateLimit| AnsweredLimit {
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

/// The name of a code; the one that is never sent is none.
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
