//! Servers that follow a catalog: the real program on real databases.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod disk;
mod fleet;
mod import;
mod kept;
mod kill;
mod node;
#[cfg(feature = "oidc")]
mod oidc;
mod page;
mod permits;
pub(crate) mod stage;
mod traffic;
mod whatif;
