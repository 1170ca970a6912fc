//! Header fields in, a verdict as a response out. No IO.

mod error;
mod guarded;
mod path;
mod query;
mod verdict;

pub(super) use error::{AuthError, POLICIES_MAX, TOKEN};
pub(super) use guarded::{GatewayRequest, PolicyKey};
pub(super) use path::normal as normal_path;
pub(super) use query::Query;
pub(super) use verdict::{PolicyDecision, encode};

pub(crate) use guarded::TrustedPeers;

#[cfg(test)]
mod tests;
