//! The script decides as the kernel does: in Lua 5.1 in this process, and in a real server.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod behaviour;
mod damaged;
mod differential;
mod exact;
mod leases;
mod lua;
mod protocol;
mod published;
mod random;
mod server;
mod subject;
mod vectors;
