//! The log of outages: when the store stops answering, why, and how long it was away.

use std::fmt;
use std::time::{Duration, Instant};

use sluicegate::Engine;
use sluicegate::internals::{Observer, Uncharged};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::AnyStore;

/// Interval between looks at the breaker: once open, it stays so for 200 ms on average, so that a store that
/// comes and goes writes a few lines a second.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Time that an idle store may be away before that is an outage: a connection that was lost is replaced sooner.
const AWAY_MAX: Duration = Duration::from_secs(1);

/// The outages of a store.
#[derive(Debug, Default)]
struct Outages {
    /// The start of the present outage.
    since: Option<Instant>,
    /// The time when the store was first seen away.
    away: Option<Instant>,
    /// Number of decisions without the store that ended outages have reported. Decisions before the breaker
    /// opened belong to the next outage, so that the log and the metrics agree.
    reported: u64,
}

/// The state of the store, by a look at it.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// Decisions are made without the store.
    is_without: bool,
    /// The store is away, also if nothing is decided.
    is_away: bool,
}

/// A change that a look at the store finds.
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
    uncharged: Uncharged,
}

/// The line of an outage that goes on when the server stops.
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
    // The log has the beginning of an outage in which the server started.
    let since = redis.was_away_at_start.then(Instant::now);
    let mut outages = Outages { since, ..Outages::default() };
    redis.look(engine.is_without_store(), engine.now());
    let mut lost = 0;
    while timeout(LOOK_EVERY, stop.cancelled()).await.is_err() {
        let is_without = engine.is_without_store();
        let away = redis.look(is_without, engine.now());
        let look = Look { is_without, is_away: away.is_some() };
        match outages.look(look, &decided, Instant::now()) {
            Some(Change::Begun) => {
                // If the store is given up, the last call has the cause.
                let error = redis.last_error().filter(|_| is_without).or(away);
                let error = error.as_deref().unwrap_or("no answer");
                let policies = engine.policies().policies().len();
                tracing::warn!("{}", Begun { store, error, policies });
            }
            Some(Change::Ended { lasted, decided }) => {
                let Uncharged { held, lost: all } = engine.uncharged();
                let uncharged = Uncharged { held, lost: all - std::mem::replace(&mut lost, all) };
                tracing::info!("{}", Ended { store, lasted, decided, uncharged });
            }
            None => {}
        }
    }
    if let Some((lasted, decided)) = outages.present(&decided, Instant::now()) {
        tracing::info!("{}", Unfinished { store, lasted, decided });
    }
}

impl Outages {
    /// Returns the change at `now`, where `decided` counts all decisions that were made without the store.
    fn look(
        &mut self,
        Look { is_without, is_away }: Look,
        decided: impl Fn() -> u64,
        now: Instant,
    ) -> Option<Change> {
        self.away = is_away.then(|| self.away.unwrap_or(now));
        let is_away_for_long = self.away.is_some_and(|since| now - since >= AWAY_MAX);
        match self.since {
            None if is_without || is_away_for_long => {
                self.since = Some(self.away.unwrap_or(now));
                Some(Change::Begun)
            }
            Some(_) if !is_without && !is_away => {
                let (lasted, in_outage) = self.present(&decided, now)?;
                *self = Self { reported: self.reported + in_outage, ..Self::default() };
                Some(Change::Ended { lasted, decided: in_outage })
            }
            _ => None,
        }
    }

    /// The time that the present outage has lasted at `now`, and the number of its decisions.
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
        let Self { store, lasted, decided, uncharged: Uncharged { held, lost } } = self;
        let seconds = lasted.as_secs();
        write!(
            f,
            "store {store}: available again after {seconds} s; {decided} decisions without it"
        )?;
        if *held > 0 {
            write!(f, "; permits of `concurrency` rules that only this server counts: {held}")?;
        }
        if *lost > 0 {
            write!(
                f,
                "; permits that are never charged, as there was no room to note them: {lost}"
            )?;
        }
        Ok(())
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
        let mut look = |is_without, decided, seconds| {
            let look = Look { is_without, is_away: is_without };
            outages.look(look, || decided, start + Duration::from_secs(seconds))
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
    #[expect(clippy::disallowed_methods, reason = "any instant will do")]
    fn a_store_that_is_away_for_a_second_is_an_outage_also_if_nothing_is_decided() {
        let (start, mut outages) = (Instant::now(), Outages::default());
        let mut look = |is_away, millis| {
            let look = Look { is_without: false, is_away };
            outages.look(look, || 0, start + Duration::from_millis(millis))
        };
        assert_eq!([look(true, 0), look(true, 900), look(false, 950)], [None, None, None]);
        assert_eq!([look(true, 1_000), look(true, 1_900)], [None, None]);
        assert_eq!(look(true, 2_000), Some(Change::Begun));
        assert_eq!(look(true, 3_000), None);
        let lasted = Duration::from_secs(3);
        assert_eq!(look(false, 4_000), Some(Change::Ended { lasted, decided: 0 }));
        assert_eq!(look(false, 4_100), None);
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
        let ended = |held, lost| {
            let (lasted, uncharged) = (Duration::from_millis(12_700), Uncharged { held, lost });
            Ended { store, lasted, decided: 48, uncharged }.to_string()
        };
        assert_eq!(
            ended(0, 0),
            "store redis://10.0.0.5:6379: available again after 12 s; 48 decisions without it"
        );
        assert!(
            ended(3, 9).ends_with(
                "it; permits of `concurrency` rules that only this server counts: 3; permits that are never charged, as \
                 there was no room to note them: 9"
            ),
            "{}",
            ended(3, 9)
        );
        assert_eq!(
            Unfinished { store, lasted: Duration::from_secs(3), decided: 5 }.to_string(),
            "store redis://10.0.0.5:6379: still unavailable after 3 s; 5 decisions without it"
        );
    }
}
