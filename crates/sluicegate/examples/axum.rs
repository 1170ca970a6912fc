//! An axum server that lets each client address make 5 requests at once and one more every 2 s.
//!
//! ```text
//! cargo run -p sluicegate --features axum --example axum
//! for i in 1 2 3 4 5 6; do curl -s -D - http://127.0.0.1:3000/; echo; done
//! ```
//!
//! The sixth answer is `429 Too Many Requests` with `retry-after: 2`.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use sluicegate::tower::{ForwardedFor, RateLimitLayer};
use sluicegate::{KeyedRateLimiter, TokenBucket};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rule = TokenBucket::new("1/2s".parse()?, 5)?;
    let limiter = Arc::new(KeyedRateLimiter::new(rule, CLIENTS_MAX)?);
    // Requests that a proxy on this machine forwards count for the client that it names. Where
    // there is no proxy, `PeerAddr` is the extractor to use.
    let key = ForwardedFor::behind(["127.0.0.0/8".parse()?, "::1/128".parse()?]);
    let layer = RateLimitLayer::new(limiter, key).named("front-door")?;

    let app = Router::new().route("/", get(async || "hello\n")).layer(layer);
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).await?;
    println!("curl -i http://{}/", listener.local_addr()?);
    // Without this the server does not provide the client's address to its services.
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await?;
    Ok(())
}

const PORT: u16 = 3000;

/// Addresses remembered at once; beyond it those with the fullest budgets are forgotten first.
const CLIENTS_MAX: usize = 100_000;
