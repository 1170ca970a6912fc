//! A job that works through a list without hurrying: four workers share 20 items a second, in order,
//! and the rate is raised while they wait.
//!
//! `cargo run -p sluicegate --example background_job --features tokio`

use std::error::Error;
use std::sync::Arc;

use sluicegate::{Rate, RateLimiter, TokenBucket};
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let limiter = Arc::new(RateLimiter::new(TokenBucket::new(Rate::per_second(20)?, 1)?)?);
    let mut workers = JoinSet::new();
    for worker in 1..=4 {
        let limiter = Arc::clone(&limiter);
        workers.spawn(async move {
            for item in 1..=5 {
                let waited = limiter.acquire().await?;
                println!("worker {worker}, item {item}: waited {} ms", waited.as_millis());
            }
            Ok::<_, sluicegate::AcquireError>(())
        });
    }
    limiter.try_acquire_within(1, std::time::Duration::from_millis(500)).await?;
    println!("from now on 200 a second");
    limiter.set_rate(Rate::per_second(200)?)?;
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    Ok(())
}
