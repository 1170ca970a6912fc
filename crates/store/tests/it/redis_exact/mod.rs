//! Never more than the limit, and hardly less, on a real Redis with its own clock: many clients, many
//! processes, a clock that jumps.
#![cfg(feature = "redis")]

mod clock;
mod processes;
mod sustained;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sluicegate_kernel::{Cost, Micros, Moment, Rate, RuleSet, TokenBucket, Verb};
use sluicegate_store::redis::{RedisConfig, RedisStore};
use sluicegate_store::{Quota, RuleOrigin, Store, StoreRequest};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Long deadlines: these tests are about decisions, not about speed on a busy machine.
const OPTIONS: &str = "deadline_ms=5000&connect_timeout_ms=5000";

/// Clients of one load.
const CLIENTS: u32 = 64;

async fn connect(url: &str) -> Arc<RedisStore> {
    let config: RedisConfig = format!("{url}?{OPTIONS}").parse().expect("a URL of the test");
    let store = RedisStore::start(&config).expect("a configuration of the test");
    store.ready().await.expect("the server of the test is there");
    Arc::new(store)
}

fn bucket(rate: u64, burst: u64) -> Arc<RuleSet> {
    let rate = Rate::per_second(rate).expect("a rate");
    let bucket = TokenBucket::new(rate, burst).expect("a bucket");
    Arc::new(RuleSet::single("burst", bucket))
}

/// Returns whether a check of `key` passes now, by the server's clock.
async fn passes(store: &RedisStore, key: &[u8], rules: &Arc<RuleSet>) -> bool {
    let verb = &Verb::Check { cost: Cost::ONE };
    let request = StoreRequest {
        policy: "p",
        key,
        rules,
        verb,
        origin: RuleOrigin::default(),
        quota: Quota::default(),
    };
    let answer = store.decide(&request, &Moment::new(Micros::ZERO)).await;
    answer.expect("the store answers").verdict.decision.allowed()
}

/// Clients that check one key again and again until they are stopped.
struct Load {
    admitted: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    clients: JoinSet<()>,
    began: Instant,
}

impl Load {
    /// Starts [`CLIENTS`] clients that make `per_second` checks a second in all.
    fn start(store: &Arc<RedisStore>, rules: &Arc<RuleSet>, per_second: u32) -> Self {
        let (admitted, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let every = Duration::from_secs(1) * CLIENTS / per_second;
        let began = Instant::now();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (store, rules) = (Arc::clone(store), Arc::clone(rules));
            let (admitted, stop) = (Arc::clone(&admitted), Arc::clone(&stop));
            clients.spawn(async move {
                let mut tick = tokio::time::interval(every);
                while !stop.load(Ordering::Relaxed) {
                    tick.tick().await;
                    if passes(&store, b"key", &rules).await {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        Self { admitted, stop, clients, began }
    }

    fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Returns the permits admitted in all, and the shortest and the longest time that the load may
    /// have lasted.
    async fn end(self) -> (u64, Duration, Duration) {
        let least = self.began.elapsed();
        self.stop.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
        (self.admitted.load(Ordering::Relaxed), least, self.began.elapsed())
    }
}
