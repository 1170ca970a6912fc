//! The kit does to real servers what it says.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod ends;
mod proxy;
mod sentinels;
mod server;
mod tls;
