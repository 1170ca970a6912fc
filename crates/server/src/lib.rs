//! A server of Sluicegate: one engine behind the wires, as a library.
//!
//! ```text
//! serve ─┬─▶ wire      one folder per protocol: HTTP, RESP, RLS, admin
//!        ├─▶ engine    the engine that all wires ask, and the telemetry that counts each decision
//!        ├─▶ policies  the policies in force, from files or a catalog
//!        ├─▶ control   the catalog that a node follows, and the admin API
//!        └─▶ config    the settings of file, environment and command line
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic on a closed stream")]

mod authenticator;
pub mod config;
mod control;
pub mod descriptors;
mod engine;
mod histogram;
pub mod log;
mod log_pace;
mod metrics;
mod policies;
mod protocol;
pub mod serve;
mod service_manager;
mod snapshot;
mod store;
mod telemetry;
mod token_file;
mod trace;
mod verbs;
pub mod wire;
mod workers;

pub use policies::publish::records;
