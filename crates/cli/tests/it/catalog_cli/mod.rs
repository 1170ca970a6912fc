//! The command line of the catalog from the outside: the real program, beside a catalog and its admin
//! API.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apply;
mod audit;
mod difference;
mod docs;
mod export;
mod import;
mod login;
mod stage;
mod whatif;
