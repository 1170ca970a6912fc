//! HTTP/JSON: `POST /v1/check`, `/v1/peek`, `/v1/refund`, `/v1/reset`, and `GET /livez`; for gateways
//! `/v1/auth`, in `auth`.

mod auth;
mod codec;
mod problem;
mod serve;

pub(crate) use auth::TrustedPeers;
pub use auth::path_of;
pub(crate) use serve::{connection, serve};
