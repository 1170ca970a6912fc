//! Header fields in, a verdict as a response out. No IO.

mod error;
mod guarded;
mod query;
mod verdict;

pub(super) use error::{AuthError, TOKEN};
pub(super) use guarded::GatewayRequest;
pub(super) use query::Query;
pub(super) use verdict::{HeldBy, encode, encode_held};

pub(crate) use guarded::TrustedPeers;

#[cfg(test)]
mod tests;
