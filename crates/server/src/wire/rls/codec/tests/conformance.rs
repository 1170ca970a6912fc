//! Byte for byte the same as Envoy's own protocol, in both directions.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3 as envoy_common;
use envoy_types::pb::envoy::service::ratelimit::v3 as envoy;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit as EnvoyUnit;
use envoy_types::pb::google::protobuf::{Struct, UInt64Value};
use proptest::prelude::*;
use prost::Message;

use crate::wire::rls::proto::{
    Code, DescriptorStatus, HeaderValue, RateLimit, RateLimitRequest, RateLimitResponse, Unit,
};

fn envoy_request() -> impl Strategy<Value = envoy::RateLimitRequest> {
    let entry = (".{0,5}", ".{0,5}");
    let limit = proptest::option::of((any::<u32>(), -1..10_i32));
    let hits = proptest::option::of(any::<u64>());
    let descriptor = (proptest::collection::vec(entry, 0..3), limit, hits, any::<bool>()).prop_map(
        |(entries, limit, hits, is_negative_hits)| envoy_common::RateLimitDescriptor {
            entries: entries
                .into_iter()
                .map(|(key, value)| envoy_common::rate_limit_descriptor::Entry { key, value })
                .collect(),
            limit: limit.map(|(requests_per_unit, unit)| {
                envoy_common::rate_limit_descriptor::RateLimitOverride { requests_per_unit, unit }
            }),
            hits_addend: hits.map(|value| UInt64Value { value }),
            is_negative_hits,
        },
    );
    let descriptors = proptest::collection::vec(descriptor, 0..3);
    (".{0,5}", descriptors, any::<u32>()).prop_map(|(domain, descriptors, hits_addend)| {
        envoy::RateLimitRequest { domain, descriptors, hits_addend }
    })
}

fn response() -> impl Strategy<Value = RateLimitResponse> {
    let limit = (any::<u32>(), 0..8_i32, ".{0,5}")
        .prop_map(|(requests_per_unit, unit, name)| RateLimit { requests_per_unit, unit, name });
    let span = (any::<i64>(), 0..1_000_000_000)
        .prop_map(|(seconds, nanos)| prost_types::Duration { seconds, nanos });
    let (limit, span) = (proptest::option::of(limit), proptest::option::of(span));
    let status = (0..3_i32, limit, any::<u32>(), span).prop_map(
        |(code, current_limit, limit_remaining, duration_until_reset)| DescriptorStatus {
            code,
            current_limit,
            limit_remaining,
            duration_until_reset,
        },
    );
    let header = (".{0,5}", ".{0,5}").prop_map(|(key, value)| HeaderValue { key, value });
    let headers = || proptest::collection::vec(header.clone(), 0..3);
    let body = proptest::collection::vec(any::<u8>(), 0..5);
    let statuses = proptest::collection::vec(status, 0..3);
    (0..3_i32, statuses, headers(), headers(), body).prop_map(
        |(overall_code, statuses, to_answer, to_request, raw_body)| RateLimitResponse {
            overall_code,
            statuses,
            response_headers_to_add: to_answer,
            request_headers_to_add: to_request,
            raw_body,
        },
    )
}

proptest! {
    #[test]
    fn what_envoy_asks_is_read_and_written_as_it_was(request in envoy_request()) {
        let bytes = request.encode_to_vec();
        let read = RateLimitRequest::decode(&*bytes).unwrap();
        prop_assert_eq!(&read.domain, &request.domain);
        prop_assert_eq!(read.encode_to_vec(), bytes);
    }

    #[test]
    fn what_is_answered_is_read_by_envoy_and_written_as_it_was(response in response()) {
        let bytes = response.encode_to_vec();
        let read = envoy::RateLimitResponse::decode(&*bytes).unwrap();
        prop_assert_eq!(read.statuses.len(), response.statuses.len());
        prop_assert_eq!(read.encode_to_vec(), bytes);
    }

    #[test]
    fn fields_that_are_not_known_are_skipped(response in response()) {
        let mut envoys = envoy::RateLimitResponse::decode(&*response.encode_to_vec()).unwrap();
        envoys.dynamic_metadata = Some(Struct::default());
        envoys.quota = Some(envoy::rate_limit_response::Quota { requests: 1, ..Default::default() });
        let read = RateLimitResponse::decode(&*envoys.encode_to_vec()).unwrap();
        prop_assert_eq!(read, response);
    }
}

#[test]
fn names_of_units_and_codes_are_envoys() {
    use envoy::rate_limit_response::rate_limit::Unit as Envoys;
    for number in 0..9 {
        let ours = Unit::try_from(number).ok().map(|unit| unit.as_str_name());
        assert_eq!(ours, Envoys::try_from(number).ok().map(|unit| unit.as_str_name()));
        // Limits that are sent along have the same numbers, as far as they go.
        if let Ok(unit) = EnvoyUnit::try_from(number) {
            assert_eq!(ours, Some(unit.as_str_name()));
        }
    }
    for number in 0..4 {
        let ours = Code::try_from(number).ok().map(|code| code.as_str_name());
        let envoys = envoy::rate_limit_response::Code::try_from(number).ok();
        assert_eq!(ours, envoys.map(|code| code.as_str_name()));
    }
}
