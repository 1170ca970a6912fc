//! Forward-auth: a gateway asks about the request that it has in hand, and passes it on or not.
//!
//! ```text
//! client ─▶ gateway ── GET /v1/auth[/POLICY][?deny=403][&app=NAME] ─▶ here ─▶ 200 or 429
//!              └▶ what is protected, on 200
//! ```
//!
//! The request in question is told by header fields: `X-Original-URI` and `X-Original-Method` (nginx),
//! or `X-Forwarded-Uri`, `-Method`, `-Host` and `-For` (Traefik, Caddy, and others). Whoever says so
//! must be in `http.trusted_peers`. With a policy in the path it is that policy that decides, without
//! one it is all whose `match` guards the request; a request over the limit of one charges none.

mod codec;
mod serve;

pub(crate) use codec::TrustedPeers;
pub(super) use serve::{AUTH, AUTH_POLICY, knowing, routes};

/// The one spelling of the path that `target`, the target of a request, asks for; `None` if it asks for
/// none. For fuzzing.
pub fn path_of(target: &[u8]) -> Option<String> {
    sluicegate::gateway::normal_path(target).ok()
}
