//! Forward-auth: a gateway asks about a client's request, and passes it on or not.
//!
//! ```text
//! client ─▶ gateway ── GET /v1/auth[/POLICY][?deny=403][&app=NAME] ─▶ here ─▶ 200 or 429
//!              └▶ the protected service, on 200
//! ```
//!
//! Header fields describe the client's request: `X-Original-URI` and `X-Original-Method` (nginx), or
//! `X-Forwarded-Uri`, `-Method`, `-Host` and `-For` (Traefik, Caddy, and others). The sender must be
//! in `http.trusted_peers`. With a policy in the path, that policy decides; without one, all policies
//! whose `match` guards the request; a request over the limit of one charges none.

mod codec;
mod serve;

pub(crate) use codec::TrustedPeers;
pub(super) use serve::{AUTH, AUTH_POLICY, knowing, routes};

/// The normal form of the path in `target`, the target of a request; `None` if there is none. For fuzzing.
pub fn path_of(target: &[u8]) -> Option<String> {
    sluicegate::internals::gateway::normal_path(target).ok()
}
