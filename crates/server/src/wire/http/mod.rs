//! HTTP/JSON: `POST /v1/check`, `/v1/peek`, `/v1/refund`, `/v1/reset`, and `GET /livez`; for gateways
//! `/v1/auth` ([`auth`]).

mod auth;
mod codec;
mod problem;
mod serve;

pub(crate) use auth::TrustedPeers;
pub(crate) use serve::{connection, serve};
