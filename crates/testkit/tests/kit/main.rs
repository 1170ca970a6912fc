//! The promises of the kit, on real servers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod ends;
mod proxy;
mod sentinels;
mod server;
mod tls;
