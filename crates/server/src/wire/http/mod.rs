//! HTTP/JSON: `POST /v1/check` and its kin, `GET /v1/openapi.json`, `GET /livez` and `GET /readyz`;
//! for gateways `/v1/auth`, in `auth`.
//!
//! `docs/wires/http.md` is for clients.

mod auth;
mod codec;
mod deny;
mod host;
mod openapi;
mod request_guard;
mod response;
mod serve;
mod unnamed;

pub(crate) use auth::TrustedPeers;
pub use auth::path_of;
pub use codec::requests_in;
pub(crate) use host::Hosts;
pub(crate) use response::refuse;
pub(crate) use serve::{connection, decision_paths, serve};
