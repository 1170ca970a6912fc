//! A [`tower`](https://docs.rs/tower) layer that holds the requests of an HTTP service to a limit.
//!
//! ```text
//! request ─▶ KeyExtractor ─▶ KeyedRateLimiter ─▶ allowed ─▶ (delayed) ─▶ inner service
//!                 │          or Engine ├─▶ refused ─▶ 429 with Retry-After
//!                 │                    └─▶ no decision ─▶ 503 with Retry-After
//!                 └─▶ no key ─▶ 400, or 500 if the server is configured wrongly
//! ```
//!
//! ```
//! use std::sync::Arc;
//! use sluicegate::tower::{Header, RateLimitLayer};
//! use sluicegate::{KeyedRateLimiter, Rate, TokenBucket};
//!
//! // Ten requests a second for each API key, twenty at once.
//! let rule = TokenBucket::new(Rate::per_second(10)?, 20)?;
//! let limiter = Arc::new(KeyedRateLimiter::<[u8]>::new(rule, 100_000)?);
//! let layer = RateLimitLayer::new(limiter, Header::new("x-api-key")?);
//! # let _ = layer;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The inner service is neither called nor polled for a request that is refused, so a refusal costs
//! the same however busy it is. For the same reason the layer is always ready: it asks the inner
//! service whether it is ready when a request has passed.

#[cfg(feature = "engine")]
mod concurrency;
mod config;
mod future;
mod key;
mod layer;
#[cfg_attr(
    not(feature = "engine"),
    expect(dead_code, reason = "policies alone wait for a store, and do more than pass or refuse")
)]
mod limiter;
#[cfg(feature = "engine")]
mod policies;
mod respond;
mod service;

#[cfg(feature = "engine")]
pub use concurrency::ConcurrencyLayer;
pub use key::{ForwardedFor, Header, Key, KeyError, KeyExtractor, PeerAddr};
pub use layer::RateLimitLayer;

pub use crate::http::HeaderFormat;

// The traits of tower name these types; a program never does.
#[cfg(feature = "engine")]
#[doc(hidden)]
pub use concurrency::{Concurrency, ConcurrencyFuture, HeldBody};
#[doc(hidden)]
pub use future::RateLimitFuture;
#[doc(hidden)]
pub use service::RateLimit;
