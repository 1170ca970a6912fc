//! The tests of this crate from outside, in one program that is linked once.

mod answers;
mod catalog;
mod catalog_cli;
mod client;
mod config;
mod gateways;
mod hostile;
mod http;
mod policies;
mod program;
mod published;
mod replay;
mod resp;
mod rls;
mod server;
mod service_manager;
mod streams;
mod telemetry;
mod terminal;
mod tls;
mod tokens;
