//! The log of outages: when the store stops answering, why, and how long it was away.

use std::fmt;
use std::time::{Duration, Instant};

use sluicegate::{Engine, Observer};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::AnyStore;

/// How often the breaker is looked at: once it is open, it stays so for 200 ms on average, so that a store that
/// comes and goes writes a few lines a second.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is known of the store's outages.
#[derive(Debug, Default)]
struct Outages {
    /// When the present one began.
    since: Option<Instant>,
    /// Decisions without the store that ended outages have reported. Those before the breaker opened belong to
    /// the next one, so that the log and the metrics agree.
    reported: u64,
}

/// What a look at the store finds.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Begun,
    Ended { lasted: Duration, decided: u64 },
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

/// The line of an outage that the server does not see the end of.
struct Unfinished<'a> {
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
    let mut outages = Outages::default();
    redis.look(engine.is_without_store(), engine.now());
    while timeout(LOOK_EVERY, stop.cancelled()).await.is_err() {
        let is_without_store = engine.is_without_store();
        redis.look(is_without_store, engine.now());
        match outages.look(is_without_store, &decided, Instant::now()) {
            Some(Change::Begun) => {
                let error = redis.last_error();
                let error = error.as_deref().unwrap_or("no answer");
                let policies = engine.policies().policies().len();
                tracing::warn!("{}", Begun { store, error, policies });
            }
            Some(Change::Ended { lasted, decided }) => {
                tracing::info!("{}", Ended { store, lasted, decided });
            }
            None => {}
        }
    }
    if let Some((lasted, decided)) = outages.present(&decided, Instant::now()) {
        tracing::info!("{}", Unfinished { store, lasted, decided });
    }
}

impl Outages {
    /// What has changed at `now`, where `decided` decisions in all were made without the store.
    fn look(
        &mut self,
        is_without_store: bool,
        decided: impl Fn() -> u64,
        now: Instant,
    ) -> Option<Change> {
        match (self.since, is_without_store) {
            (None, true) => {
                self.since = Some(now);
                Some(Change::Begun)
            }
            (Some(_), false) => {
                let (lasted, in_outage) = self.present(&decided, now)?;
                *self = Self { since: None, reported: self.reported + in_outage };
                Some(Change::Ended { lasted, decided: in_outage })
            }
            _ => None,
        }
    }

    /// How long the present outage has lasted at `now`, and how many decisions belong to it.
    fn present(&self, decided: impl Fn() -> u64, now: Instant) -> Option<(Duration, u64)> {
        self.since.map(|since| (now - since, decided() - self.reported))
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

impl fmt::Display for Unfinished<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, lasted, decided } = self;
        let seconds = lasted.as_secs();
        write!(
            f,
            "store {store}: still unavailable after {seconds} s; {decided} decisions without it"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn an_outage_counts_all_decisions_without_the_store_since_the_last_one() {
        let (start, mut outages) = (Instant::now(), Outages::default());
        let mut look = |without, decided, seconds| {
            outages.look(without, || decided, start + Duration::from_secs(seconds))
        };
        // Six failed before the breaker opened.
        assert_eq!(look(false, 6, 1), None);
        assert_eq!(look(true, 8, 2), Some(Change::Begun));
        assert_eq!(look(true, 15, 3), None);
        let ended = |seconds, decided| {
            Some(Change::Ended { lasted: Duration::from_secs(seconds), decided })
        };
        assert_eq!(look(false, 20, 7), ended(5, 20));
        assert_eq!(look(true, 21, 9), Some(Change::Begun));
        assert_eq!(look(false, 23, 10), ended(1, 3));
        assert_eq!(look(true, 25, 11), Some(Change::Begun));
        let end = start + Duration::from_secs(13);
        assert_eq!(outages.present(|| 30, end), Some((Duration::from_secs(2), 7)));
    }

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
        assert_eq!(
            Unfinished { store, lasted: Duration::from_secs(3), decided: 5 }.to_string(),
            "store redis://10.0.0.5:6379: still unavailable after 3 s; 5 decisions without it"
        );
    }
}
