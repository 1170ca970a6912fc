//! The tests of this crate from outside, in one program that is linked once.

mod conformance;
mod flood;
mod held;
#[cfg(feature = "redis")]
mod redis_client;
#[cfg(feature = "redis")]
mod redis_exact;
#[cfg(feature = "redis")]
mod redis_policies;
#[cfg(feature = "redis")]
mod redis_script;
#[cfg(feature = "redis")]
mod redis_store;
mod snapshot;
