//! The log of outages: when the store stops answering, why, and how long it was away.

use std::fmt;
use std::time::{Duration, Instant};

use sluicegate::{Engine, Observer};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::AnyStore;

/// How often the breaker is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A store that does not answer.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: Instant,
    /// Decisions without the store before it.
    decided: u64,
}

/// The line that begins an outage.
struct Begun<'a> {
    store: &'a str,
    error: &'a str,
    policies: usize,
}

/// The line that ends an outage.
struct Ended<'a> {
    store: &'a str,
    lasted: Duration,
    decided: u64,
}

/// Logs the outages of `engine`'s store until `stop`. `decided` counts decisions without the store.
#[expect(clippy::disallowed_methods, reason = "a span is measured, nothing is decided by it")]
pub(crate) async fn log<O: Observer>(
    engine: &Engine<AnyStore, O>,
    decided: impl Fn() -> u64,
    stop: &CancellationToken,
) {
    let Some(redis) = engine.store().on_redis() else { return };
    let store = redis.name();
    let mut outage = None;
    while timeout(LOOK_EVERY, stop.cancelled()).await.is_err() {
        match (outage, engine.is_without_store()) {
            (None, true) => {
                outage = Some(Outage { since: Instant::now(), decided: decided() });
                let error = redis.last_error();
                let error = error.as_deref().unwrap_or("no answer");
                let policies = engine.policies().policies().len();
                tracing::warn!("{}", Begun { store, error, policies });
            }
            (Some(begun), false) => {
                let Outage { since, decided: before } = begun;
                let decided = decided().saturating_sub(before);
                tracing::info!("{}", Ended { store, lasted: since.elapsed(), decided });
                outage = None;
            }
            _ => {}
        }
    }
}

impl fmt::Display for Begun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, error, policies } = self;
        let s = if *policies == 1 { "policy falls" } else { "policies fall" };
        write!(f, "store {store}: unavailable ({error}); {policies} {s} back to `on_store_failure`")
    }
}

impl fmt::Display for Ended<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, lasted, decided } = self;
        let seconds = lasted.as_secs();
        write!(
            f,
            "store {store}: available again after {seconds} s; {decided} decisions without it"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_names_the_store_the_cause_and_how_long_it_lasted() {
        let store = "redis://10.0.0.5:6379";
        let error = "redis is unavailable: cannot connect to 10.0.0.5:6379: connection refused";
        assert_eq!(
            Begun { store, error, policies: 3 }.to_string(),
            "store redis://10.0.0.5:6379: unavailable (redis is unavailable: cannot connect to \
             10.0.0.5:6379: connection refused); 3 policies fall back to `on_store_failure`"
        );
        let one = Begun { store, error: "no answer", policies: 1 }.to_string();
        assert!(one.ends_with("(no answer); 1 policy falls back to `on_store_failure`"), "{one}");
        assert_eq!(
            Ended { store, lasted: Duration::from_millis(12_700), decided: 48 }.to_string(),
            "store redis://10.0.0.5:6379: available again after 12 s; 48 decisions without it"
        );
    }
}
