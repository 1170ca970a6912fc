//! Decisions as they are made, for whoever watches: a sample of them, as JSON.
//!
//! Nobody watching costs a look at one number. Somebody watching costs a worker at most
//! [`PER_SECOND`] events a second; what comes in between is counted by the next event's `weight`. Who
//! reads too slowly is told how many events it missed.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use sluicegate::{Clock, Micros, WallClock};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::keys::KeyWriter;

/// Events that wait for those who watch: a second of what five workers say at most. One is 300 bytes.
const WAITING_MAX: usize = 1_024;

/// Who can watch at a time: a console for each operator on duty, and something is left.
const WATCHERS_MAX: usize = 16;

/// Events of one worker in a second; so many may come at once.
const PER_SECOND: u64 = 200;

/// How long nothing is said before a line is that says nothing: proxies in between give up after 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// Where decisions are told to whoever watches.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<EncodedEvent>>,
    watchers: Arc<AtomicUsize>,
    keys: Arc<KeyWriter>,
}

/// What is told of a decision. Of a request that nobody could decide there is only the first part.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DecisionEvent<'a> {
    pub(crate) wire: &'static str,
    pub(crate) policy: &'a str,
    pub(crate) verb: &'static str,
    pub(crate) result: &'static str,
    #[serde(flatten)]
    pub(crate) decision: Option<DecisionFields<'a>>,
}

/// What is told of a decision that there is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DecisionFields<'a> {
    pub(crate) mode: &'static str,
    pub(crate) rule: &'a str,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    /// `null`: this cost can never pass.
    pub(crate) retry_after_us: Option<u64>,
    pub(crate) held_us: u64,
}

/// The whole of it.
#[derive(Serialize)]
struct EventRecord<'a> {
    at_us: u64,
    #[serde(flatten)]
    told: &'a DecisionEvent<'a>,
    /// `null`: the budget that all share.
    key: Option<String>,
    /// Decisions that it stands for.
    weight: u64,
}

#[derive(Debug)]
struct EncodedEvent {
    policy: String,
    result: &'static str,
    json: String,
}

/// Which events are wanted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventFilter {
    policy: Option<String>,
    result: Option<String>,
}

/// Somebody who watches.
struct Subscriber(Arc<AtomicUsize>);

/// What a thread may still tell.
struct Allowance {
    /// When it will have told all that it may.
    until_us: Cell<u64>,
    skipped: Cell<u64>,
}

thread_local! {
    static ALLOWANCE: Allowance =
        const { Allowance { until_us: Cell::new(0), skipped: Cell::new(0) } };
}

impl Events {
    pub(crate) fn new(keys: Arc<KeyWriter>) -> Self {
        let (sender, _) = broadcast::channel(WAITING_MAX);
        Self { sender, watchers: Arc::default(), keys }
    }

    /// Whether anybody watches.
    pub(crate) fn are_watched(&self) -> bool {
        self.watchers.load(Relaxed) > 0
    }

    /// How many watch.
    pub(crate) fn watchers(&self) -> usize {
        self.watchers.load(Relaxed)
    }

    /// Tells those who watch what was decided on `key`, unless it is too soon for the next event.
    pub(crate) fn publish(&self, told: &DecisionEvent<'_>, key: Option<&[u8]>) {
        let now = WallClock.now();
        let Some(weight) = ALLOWANCE.with(|allowance| allowance.take(now)) else { return };
        let key = key.map(|key| String::from_utf8_lossy(&self.keys.shown(key)).into_owned());
        let line = EventRecord { at_us: now.get(), told, key, weight };
        let json = serde_json::to_string(&line).expect("texts and numbers are always JSON");
        let event = EncodedEvent { policy: told.policy.to_owned(), result: told.result, json };
        // Nobody watches any more: then it was told to nobody.
        self.sender.send(Arc::new(event)).ok();
    }

    /// The events from now on that `filter` lets through, in the form of `text/event-stream`, until
    /// `stop`. `None` if too many watch already.
    pub(crate) fn watch(
        &self,
        filter: EventFilter,
        stop: CancellationToken,
    ) -> Option<impl Stream<Item = String> + use<>> {
        let enter = |watchers| (watchers < WATCHERS_MAX).then_some(watchers + 1);
        self.watchers.try_update(Relaxed, Relaxed, enter).ok()?;
        let watcher = Subscriber(Arc::clone(&self.watchers));
        let watching = (self.sender.subscribe(), watcher, filter, stop);
        Some(stream::unfold(watching, async |(mut receiver, watcher, filter, stop)| {
            let said = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                said = next(&mut receiver, &filter) => said?,
            };
            Some((said, (receiver, watcher, filter, stop)))
        }))
    }
}

/// The next thing to say.
async fn next(
    receiver: &mut broadcast::Receiver<Arc<EncodedEvent>>,
    filter: &EventFilter,
) -> Option<String> {
    let wanted = async {
        loop {
            match receiver.recv().await {
                Ok(event) if filter.lets_pass(&event) => {
                    return Some(format!("data: {}\n\n", event.json));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => {
                    return Some(format!("event: lag\ndata: {{\"missed\":{missed}}}\n\n"));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    };
    timeout(SILENCE_MAX, wanted).await.unwrap_or_else(|_| Some(": nothing\n\n".to_owned()))
}

impl EventFilter {
    fn lets_pass(&self, event: &EncodedEvent) -> bool {
        let Self { policy, result } = self;
        policy.as_ref().is_none_or(|policy| *policy == event.policy)
            && result.as_ref().is_none_or(|result| result == event.result)
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Allowance {
    /// The decisions that an event at `now` stands for; `None` if it may not be told.
    fn take(&self, now: Micros) -> Option<u64> {
        const EACH_US: u64 = 1_000_000 / PER_SECOND;
        let now_us = now.get();
        // A clock that went back must not silence it.
        let until_us = self.until_us.get().clamp(now_us, now_us + 1_000_000);
        self.until_us.set(until_us);
        if until_us + EACH_US > now_us + 1_000_000 {
            self.skipped.set(self.skipped.get() + 1);
            return None;
        }
        self.until_us.set(until_us + EACH_US);
        Some(self.skipped.take() + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::{FutureExt, StreamExt};
    use serde_json::Value;

    use super::*;
    use crate::config::KeyFormat;

    fn events(format: KeyFormat) -> Events {
        Events::new(Arc::new(KeyWriter::new(format)))
    }

    fn told<'a>(policy: &'a str, result: &'static str) -> DecisionEvent<'a> {
        DecisionEvent { wire: "http", policy, verb: "check", result, decision: None }
    }

    fn data(said: &str) -> Value {
        let json = said.strip_prefix("data: ").expect("an event");
        serde_json::from_str(json).expect("JSON")
    }

    #[test]
    fn a_thread_tells_a_second_of_events_at_once_and_then_at_the_rate() {
        let allowance = Allowance { until_us: Cell::new(0), skipped: Cell::new(0) };
        let at = |us: u64| allowance.take(Micros::new(1_000_000_000 + us));
        let at_once = (0..1_000).filter(|_| at(0).is_some()).count();
        assert_eq!(at_once, 200);
        assert_eq!((at(4_999), at(5_000), at(5_000)), (None, Some(802), None));
        assert_eq!(allowance.take(Micros::new(500_000_000)), None, "a clock that went back");
        assert!(allowance.take(Micros::new(500_005_000)).is_some());
    }

    #[tokio::test]
    async fn keys_are_recognised_and_not_known() {
        for (keys, shown) in [(KeyFormat::Hashed, None), (KeyFormat::Clear, Some("alice"))] {
            let events = events(keys);
            let mut watching =
                pin!(events.watch(EventFilter::default(), CancellationToken::new()).unwrap());
            for key in [b"alice", b"alice"] {
                events.publish(&told("p", "allowed"), Some(key));
            }
            let first = data(&watching.next().await.unwrap());
            let second = data(&watching.next().await.unwrap());
            assert_eq!(first["key"], second["key"]);
            let key = first["key"].as_str().unwrap();
            assert!(shown.map_or(!key.contains("alice") && key.len() == 17, |shown| key == shown));
        }
    }

    #[tokio::test]
    async fn only_what_is_wanted_is_told_and_who_lags_hears_how_much_it_missed() {
        let events = events(KeyFormat::Hashed);
        let filter = EventFilter { policy: Some("p".into()), result: Some("refused".into()) };
        let mut watching = pin!(events.watch(filter, CancellationToken::new()).unwrap());
        for (policy, result) in [("q", "refused"), ("p", "allowed"), ("p", "refused")] {
            events.publish(&told(policy, result), None);
        }
        let said = data(&watching.next().await.unwrap());
        assert_eq!((&said["policy"], &said["result"]), (&"p".into(), &"refused".into()));
        let event = EncodedEvent { policy: "p".into(), result: "refused", json: String::new() };
        let event = Arc::new(event);
        for _ in 0..WAITING_MAX + 7 {
            events.sender.send(Arc::clone(&event)).unwrap();
        }
        assert_eq!(watching.next().await.unwrap(), "event: lag\ndata: {\"missed\":7}\n\n");
        assert!(watching.next().await.unwrap().starts_with("data: "));
    }

    #[tokio::test(start_paused = true)]
    async fn who_watches_in_silence_hears_that_it_is_silent_and_the_end() {
        let (events, stop) = (events(KeyFormat::Hashed), CancellationToken::new());
        let mut watching = pin!(events.watch(EventFilter::default(), stop.clone()).unwrap());
        assert_eq!(watching.next().await.unwrap(), ": nothing\n\n");
        stop.cancel();
        assert_eq!(watching.next().await, None);
    }

    #[test]
    fn so_many_watch_and_no_more_until_one_leaves() {
        let events = events(KeyFormat::Hashed);
        let watch = || events.watch(EventFilter::default(), CancellationToken::new());
        let mut watching: Vec<_> = (0..WATCHERS_MAX).map(|_| watch().unwrap()).collect();
        assert!(watch().is_none() && events.are_watched());
        watching.pop();
        assert!(watch().is_some());
        drop(watching);
        assert!(!events.are_watched());
    }

    #[tokio::test]
    async fn nothing_is_told_where_nothing_was() {
        let events = events(KeyFormat::Hashed);
        let watching = events.watch(EventFilter::default(), CancellationToken::new()).unwrap();
        assert!(pin!(watching).next().now_or_never().is_none());
    }
}
