//! The admin API, as clients of HTTP see it.

mod attempts;
mod bounds;
mod client;
mod described;
mod keys;
mod lists;
mod lives;
mod matrix;
#[cfg(feature = "oidc")]
mod oidc;
mod people;
mod permits;
mod refused;
mod traffic;
mod yaml;
