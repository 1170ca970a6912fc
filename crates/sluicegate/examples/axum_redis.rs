//! An axum server whose limits are policies in a file, shared by all servers with the same Redis.
//!
//! ```text
//! redis-server &
//! cargo run -p sluicegate --features axum,redis --example axum_redis
//! for i in 1 2 3 4; do curl -s -D - -H 'x-api-key: alice' http://127.0.0.1:3000/login; echo; done
//! ```
//!
//! The fourth answer is `429 Too Many Requests`, also if another server gave the first three: start one with
//! `LISTEN=127.0.0.1:3001`. Without Redis `/login` returns 503, and `/` is limited by each server on its own, by the
//! `on_store_failure` of the policies.

use std::error::Error;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::request::Parts;
use axum::routing::get;
use sluicegate::policy::{Document, PolicySet};
use sluicegate::store::redis::{RedisConfig, RedisStore};
use sluicegate::tower::{Header, RateLimitLayer};
use sluicegate::{Engine, SteadyClock, StoreFailure};

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/axum_redis.yaml");

/// Servers that share the Redis: without it, each enforces that part of the limits.
const SERVERS: u32 = 2;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let config: RedisConfig = variable("REDIS_URL", "redis://127.0.0.1:6379").parse()?;
    let policies = PolicySet::new(Document::parse(&std::fs::read_to_string(POLICIES)?)?);

    let store = RedisStore::start(&config)?;
    if let Err(error) = store.ready().await {
        eprintln!("{error}; policies decide by `on_store_failure` until it answers");
    }
    let nodes = NonZeroU32::new(SERVERS).expect("there is at least one");
    let engine = Engine::new(policies, store, Arc::new(SteadyClock::new()))
        .with_fallback(StoreFailure::shared_by(nodes));
    let engine = Arc::new(engine);
    tokio::spawn(pay_debts(Arc::clone(&engine)));

    let layer = RateLimitLayer::by_policy_of(engine, policy_of, Header::new("x-api-key")?);
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/login", get(async || "welcome\n"))
        .layer(layer);
    let listener = tokio::net::TcpListener::bind(variable("LISTEN", "127.0.0.1:3000")).await?;
    println!("http://{}/", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

/// The policy that guards a request.
fn policy_of(request: &Parts) -> &str {
    match request.uri.path() {
        "/login" => "login",
        _ => "site",
    }
}

/// Charges Redis with what was admitted while it did not answer.
async fn pay_debts(engine: Arc<Engine<RedisStore>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        engine.pay_debts().await;
    }
}
