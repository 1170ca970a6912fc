//! The messages of `spec/proto`, as Rust has them. They stay within this wire.

// Formatted as the generator does it.
#[rustfmt::skip]
#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::default_trait_access,
    unreachable_pub,
    reason = "generated"
)]
mod generated;

use generated::envoy;

pub(super) use envoy::config::core::v3::HeaderValue;
pub(super) use envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
pub(super) use envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
pub(super) use envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit, rate_limit::Unit,
};
pub(super) use envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
pub(super) use envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
pub(super) use envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

/// The messages as descriptors, for reflection.
pub(super) const DESCRIPTORS: &[u8] = include_bytes!("proto/descriptors.bin");
