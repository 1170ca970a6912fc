//! The wires: one folder a protocol, each a `codec` (no IO) and a `serve` (IO).
//!
//! A wire owns its types and its status mapping; nothing of it leaves its folder.

mod accept;
pub(crate) mod http;
pub mod resp;

pub(crate) use accept::DRAIN_MAX;
