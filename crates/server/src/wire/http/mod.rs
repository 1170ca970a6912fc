//! HTTP/JSON: `POST /v1/check`, `/v1/peek`, `/v1/refund`, `/v1/reset`, and `GET /livez`.

mod codec;
mod guard;
mod problem;
mod serve;

pub use codec::requests_in;
pub(crate) use serve::{connection, serve};
