//! A rate limiter with every algorithm that never admits more than the limit.
//!
//! | you want | take | feature |
//! |---|---|---|
//! | to hold one thing to a rate | [`RateLimiter`] | – (`tokio` for `acquire().await`) |
//! | the same rate for every user | [`KeyedRateLimiter`] | – (`tokio` for `acquire(key).await`) |
//! | at most so many at once | [`ConcurrencyLimiter`] | – |
//! | a stream held to a rate of bytes | [`Throttled`] | `tokio` |
//! | requests to a web service limited | [`tower::RateLimitLayer`] | `tower`, `axum` |
//! | policies written by operators | [`Engine`] | `engine` |
//! | the same, shared by servers through Redis | [`Engine`] on a [`RedisStore`](store::redis::RedisStore) | `redis` |
//! | policies of a catalog, decided in its Redis | [`Engine::following`] | `redis` |
//! | the clock read in half the time | [`QuantaClock`], [`CachedClock`] | `quanta`, – |
//!
//! Every algorithm is a [`Rule`]: [`TokenBucket`], [`LeakyBucket`], [`SlidingWindow`] and the others
//! each document their guarantee. Time is passed in: with a [`ManualClock`] your tests need no sleep.
//!
//! ```
//! use sluicegate::{ManualClock, Micros, RateLimiter, TokenBucket, Rate};
//! use std::sync::Arc;
//!
//! let clock = Arc::new(ManualClock::default());
//! let rule = TokenBucket::new(Rate::per_second(10)?, 1)?;
//! let limiter = RateLimiter::with_clock(rule, Arc::clone(&clock))?;
//! assert!(limiter.try_acquire());
//! assert!(!limiter.try_acquire());
//! clock.advance(Micros::from_millis(100));
//! assert!(limiter.try_acquire());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Servers share limits through Redis or Valkey. The policies are a document, and a layer holds requests to one of
//! them (features `axum` and `redis`; `examples/axum_redis.rs` is a whole server). Set how many servers share the
//! Redis: while it does not answer, each passes that part of a limit, and all together never more than the limit.
//! These requests are charged to Redis afterwards, by a task that you spawn:
//!
#![cfg_attr(all(feature = "tower", feature = "redis"), doc = "```no_run")]
#![cfg_attr(not(all(feature = "tower", feature = "redis")), doc = "```ignore")]
//! use std::num::NonZeroU32;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use sluicegate::policy::{Document, PolicySet};
//! use sluicegate::store::redis::{RedisConfig, RedisStore};
//! use sluicegate::tower::{PeerAddr, RateLimitLayer};
//! use sluicegate::{Engine, SteadyClock, StoreFailure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let document = Document::parse(
//!     "policies: [{ name: login, rules: [{ token_bucket: { rate: 5/min, burst: 5 } }] }]",
//! )?;
//! let config: RedisConfig = "redis://127.0.0.1:6379".parse()?;
//! let store = RedisStore::start(&config)?;
//! let servers = NonZeroU32::new(2).expect("two servers share the Redis");
//! let engine = Engine::new(PolicySet::new(document), store, Arc::new(SteadyClock::new()))
//!     .with_fallback(StoreFailure::shared_by(servers));
//! let engine = Arc::new(engine);
//! let debtor = Arc::clone(&engine);
//! tokio::spawn(async move {
//!     loop {
//!         tokio::time::sleep(Duration::from_millis(100)).await;
//!         debtor.pay_debts().await;
//!     }
//! });
//! let layer = RateLimitLayer::by_policy(engine, "login", PeerAddr::new());
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```

mod clock;
mod concurrency;
#[cfg(feature = "engine")]
mod engine;
#[cfg(feature = "redis")]
mod following;
#[cfg(feature = "gateway")]
mod gateway;
#[cfg(feature = "http")]
mod http;
#[doc(hidden)]
pub mod internals;
mod keyed;
#[cfg(feature = "engine")]
mod lease;
mod limiter;
#[cfg(feature = "redis")]
mod record;
#[cfg(feature = "tokio")]
mod throttle;
#[cfg(feature = "tower")]
pub mod tower;
mod wait;

#[cfg(feature = "quanta")]
pub use clock::QuantaClock;
pub use clock::{CachedClock, Clock, ManualClock, MonotonicClock, SteadyClock};
pub use concurrency::{ConcurrencyLimiter, OwnedPermit, Permit};
#[cfg(feature = "engine")]
pub use engine::{
    Admission, Answer, Charged, DecideError, Disposition, Engine, Mode, Patience, Request,
    StoreFailure, Turn,
};
#[cfg(feature = "redis")]
pub use following::FollowingEngine;
pub use keyed::KeyedRateLimiter;
#[cfg(feature = "engine")]
pub use lease::LEASE_PATIENCE;
pub use limiter::{AcquireError, LimiterError, RateLimiter, Reservation};
pub use sluicegate_kernel::algorithm::Delay;
pub use sluicegate_kernel::{
    Cost, Decision, FixedWindow, LeakyBucket, Micros, PermitId, RangeError, Rate, Rule,
    SlidingCounter, SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket, Verb,
};
#[cfg(feature = "tokio")]
pub use throttle::Throttled;
pub use wait::WAITERS_MAX;

/// Policies that operators write: a document is parsed, and an engine decides by its set of policies.
///
/// The crate `sluicegate-policy` documents the parts of a policy.
#[cfg(feature = "engine")]
pub mod policy {
    pub use sluicegate_policy::{Document, DocumentErrors, PolicySet};
}

/// Stores of the state of limits, on which an engine decides.
///
/// The crate `sluicegate-store` documents how to implement a store.
pub mod store {
    pub use sluicegate_store::{MemoryStore, StoreError};

    /// A store in Redis or Valkey, which many servers share.
    #[cfg(feature = "redis")]
    pub mod redis {
        #[doc(hidden)]
        pub use sluicegate_store::redis::RedisConfigError;
        pub use sluicegate_store::redis::{RedisConfig, RedisStore};
    }
}

/// The README's Rust is run with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
