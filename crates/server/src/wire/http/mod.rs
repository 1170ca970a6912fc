//! HTTP/JSON: `POST /v1/check` and its kin, `GET /v1/openapi.json` and `GET /livez`.
//!
//! `docs/wires/http.md` is for those who ask.

mod codec;
mod openapi;
mod serve;

pub(crate) use codec::Headers;
pub(crate) use serve::{connection, serve};
