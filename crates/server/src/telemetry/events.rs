//! A sample of decisions as they are made, as JSON, for clients that watch.
//!
//! Without a watcher, a decision costs one comparison. With one, a worker sends at most [`PER_SECOND`] events
//! a second that a watcher wants; the next event of the same policy and result counts those that were skipped
//! in its `weight`. A watcher that reads too slowly gets the number of events that it missed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures_util::{Stream, stream};
use serde::{Deserialize, Serialize};
use sluicegate::internals::WallClock;
use sluicegate::{Clock, Micros, Patience, Request, Verb};
use sluicegate_control::traffic::EVENT_RESULTS;
use sluicegate_text::terminal::one_line;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::counts::POLICIES_COUNTED_MAX;
use super::keys::KeyWriter;

/// Maximum number of events that wait for watchers: as many as five workers send in a second. One is 300 bytes.
const WAITING_MAX: usize = 1_024;

/// Maximum number of watchers: a console for each operator on duty, and some more.
const WATCHERS_MAX: usize = 16;

/// Events of one worker in a second, of which all may come at once; more are left out.
const PER_SECOND: u64 = 200;

/// Maximum number of policies whose skipped events a worker counts: as many as have counts of their own.
/// An event of another policy stands for itself alone.
const SKIPPED_POLICIES_MAX: usize = POLICIES_COUNTED_MAX;

/// Longest silence before a comment line is sent: proxies in between give up after 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The events of decisions, for clients that watch.
#[derive(Debug)]
pub(crate) struct Events {
    sender: broadcast::Sender<Arc<EncodedEvent>>,
    watchers: Arc<Watchers>,
    keys: Arc<KeyWriter>,
}

/// The event of a decision. A request that could not be decided has no `decision`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DecisionEvent<'a> {
    /// The time of the request, by which it is decided, µs since the Unix epoch.
    pub(crate) at_us: u64,
    pub(crate) wire: &'static str,
    pub(crate) policy: &'a str,
    #[serde(flatten)]
    pub(crate) request: AskedFields,
    pub(crate) result: &'static str,
    #[serde(flatten)]
    pub(crate) decision: Option<DecisionFields<'a>>,
}

/// The fields of a request that a replay needs to repeat it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct AskedFields {
    pub(crate) verb: &'static str,
    /// Permits; absent for verbs without a number of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<u64>,
    /// Longest wait that was requested; of `reserve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_wait_us: Option<u64>,
    /// The permit: a hash of its id, 32 hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) permit: Option<String>,
    /// `policy` if the request may be delayed as its policy sets, `gateway` if as a gateway allows; else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<&'static str>,
    /// Longest delay that a gateway allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hold_max_us: Option<u64>,
}

impl AskedFields {
    /// The fields of `request`.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let cost = match &request.verb {
            Verb::Check { cost }
            | Verb::Reserve { cost, .. }
            | Verb::AtMost { cost }
            | Verb::Acquire { cost, .. }
            | Verb::Wait { cost, .. }
            | Verb::Peek { cost }
            | Verb::Refund { cost } => Some(cost.get()),
            Verb::Reset | Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. } => None,
        };
        let max_wait_us = match &request.verb {
            Verb::Reserve { max_wait, .. } => Some(max_wait.get()),
            _ => None,
        };
        let permit = match &request.verb {
            Verb::Acquire { permit, .. }
            | Verb::Wait { permit, .. }
            | Verb::Leave { permit, .. }
            | Verb::Release { permit }
            | Verb::Renew { permit } => Some(format!("{:032x}", permit.0)),
            _ => None,
        };
        let (waits, hold_max_us) = match request.patience {
            Patience::None => (None, None),
            Patience::Policy => (Some("policy"), None),
            Patience::Gateway(hold_max) => (Some("gateway"), Some(hold_max.get())),
            Patience::Permit(max_wait) => (Some("permit"), Some(max_wait.get())),
        };
        Self { verb: request.verb.name(), cost, max_wait_us, permit, waits, hold_max_us }
    }
}

/// The fields of a decision that was made.
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

/// The whole event.
#[derive(Serialize)]
struct EventRecord<'a> {
    #[serde(flatten)]
    event: &'a DecisionEvent<'a>,
    /// `null`: the budget that all requests share.
    key: Option<String>,
    /// The key is shown in clear text, but is not UTF-8, so that `key` differs from it.
    #[serde(rename = "key_is_cut", skip_serializing_if = "std::ops::Not::not")]
    key_differs: bool,
    /// Number of decisions that this event stands for.
    weight: u64,
}

#[derive(Debug)]
struct EncodedEvent {
    policy: String,
    result: &'static str,
    json: String,
}

/// The events that a client wants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventFilter {
    policy: Option<String>,
    result: Option<String>,
}

/// The clients that watch.
#[derive(Debug, Default)]
struct Watchers {
    count: AtomicUsize,
    /// The filter of each.
    filters: RwLock<Vec<EventFilter>>,
}

/// A client that watches, and its filter.
struct Watcher(Arc<Watchers>, EventFilter);

/// Numbers of events that were not sent, by policy and result.
type SkippedEvents = HashMap<Box<str>, Vec<(&'static str, u64)>>;

/// The events that a thread may still send.
struct Allowance {
    /// The time at which all events that were sent are worked off, µs since the Unix epoch.
    until_us: Cell<u64>,
    /// Events that were skipped since the last one of each policy and result.
    skipped: RefCell<SkippedEvents>,
}

thread_local! {
    static ALLOWANCE: Allowance = Allowance::new();
}

impl Events {
    pub(crate) fn new(keys: Arc<KeyWriter>) -> Self {
        let (sender, _) = broadcast::channel(WAITING_MAX);
        Self { sender, watchers: Arc::default(), keys }
    }

    /// Returns whether a client watches.
    pub(crate) fn are_watched(&self) -> bool {
        self.watchers.count.load(Relaxed) > 0
    }

    /// The number of clients that watch.
    pub(crate) fn watchers(&self) -> usize {
        self.watchers.count.load(Relaxed)
    }

    /// The form in which operators see `key`.
    pub(super) fn shown_key(&self, key: &[u8]) -> String {
        String::from_utf8_lossy(&self.keys.shown(key)).into_owned()
    }

    /// Sends the decision on `key` to clients that want it, unless it is too soon for the next event.
    pub(crate) fn publish(&self, made: &DecisionEvent<'_>, key: Option<&[u8]>) {
        if !self.watchers.want(made.policy, made.result) {
            return;
        }
        let now = WallClock.now();
        let taken = ALLOWANCE.with(|allowance| allowance.take(now, made.policy, made.result));
        let Some(weight) = taken else { return };
        let key_differs = key.is_some_and(|key| !self.keys.shows_whole(key));
        let key = key.map(|key| self.shown_key(key));
        let line = EventRecord { event: made, key, key_differs, weight };
        let json = serde_json::to_string(&line).expect("texts and numbers are always JSON");
        let event = EncodedEvent { policy: made.policy.to_owned(), result: made.result, json };
        // An error means that no client watches any more.
        self.sender.send(Arc::new(event)).ok();
    }

    /// Returns the events from now on that `filter` lets through, in the form of
    /// `text/event-stream`, until `stop`. `None` if there are too many watchers.
    pub(crate) fn watch(
        &self,
        filter: EventFilter,
        stop: CancellationToken,
    ) -> Option<impl Stream<Item = String> + use<>> {
        let watcher = Watcher::enter(&self.watchers, filter)?;
        let watching = (self.sender.subscribe(), watcher, stop);
        Some(stream::unfold(watching, async |(mut receiver, watcher, stop)| {
            let line = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                line = next(&mut receiver, &watcher.1) => line?,
            };
            Some((line, (receiver, watcher, stop)))
        }))
    }
}

/// Waits for the next event that `filter` lets through, or another line of the stream.
async fn next(
    receiver: &mut broadcast::Receiver<Arc<EncodedEvent>>,
    filter: &EventFilter,
) -> Option<String> {
    let wanted = async {
        loop {
            match receiver.recv().await {
                Ok(event) if filter.lets_pass(&event.policy, event.result) => {
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
    /// Creates a filter for events of `policy`, or for those with this result only.
    pub(crate) const fn new(policy: String, result: Option<String>) -> Self {
        Self { policy: Some(policy), result }
    }

    /// Checks that an event can have the result.
    ///
    /// # Errors
    /// A text that names the results.
    pub(crate) fn check(&self) -> Result<(), String> {
        match &self.result {
            Some(result) if !EVENT_RESULTS.contains(&result.as_str()) => {
                let (result, known) = (one_line(result), EVENT_RESULTS.join(", "));
                Err(format!("result: unknown result `{result}`, expected {known}"))
            }
            _ => Ok(()),
        }
    }

    fn lets_pass(&self, of_policy: &str, of_result: &str) -> bool {
        let Self { policy, result } = self;
        policy.as_ref().is_none_or(|policy| policy == of_policy)
            && result.as_ref().is_none_or(|result| result == of_result)
    }
}

impl Watchers {
    /// Returns whether a client wants events of this policy and result.
    fn want(&self, policy: &str, result: &str) -> bool {
        let filters = self.filters.read().unwrap_or_else(PoisonError::into_inner);
        filters.iter().any(|filter| filter.lets_pass(policy, result))
    }
}

impl Watcher {
    /// Adds a client that watches; `None` if there are too many already.
    fn enter(watchers: &Arc<Watchers>, filter: EventFilter) -> Option<Self> {
        let mut filters = watchers.filters.write().unwrap_or_else(PoisonError::into_inner);
        if filters.len() >= WATCHERS_MAX {
            return None;
        }
        filters.push(filter.clone());
        watchers.count.store(filters.len(), Relaxed);
        Some(Self(Arc::clone(watchers), filter))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let Self(watchers, own) = self;
        let mut filters = watchers.filters.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = filters.iter().position(|filter| filter == own) {
            filters.swap_remove(place);
        }
        watchers.count.store(filters.len(), Relaxed);
    }
}

impl Allowance {
    fn new() -> Self {
        Self { until_us: Cell::new(0), skipped: RefCell::default() }
    }

    /// Returns the number of decisions that an event at `now` stands for; `None` if it may not be sent.
    fn take(&self, now: Micros, policy: &str, result: &'static str) -> Option<u64> {
        const EACH_US: u64 = 1_000_000 / PER_SECOND;
        let now_us = now.get();
        // A clock that went back must not silence the thread.
        let until_us = self.until_us.get().clamp(now_us, now_us + 1_000_000);
        self.until_us.set(until_us);
        if until_us + EACH_US > now_us + 1_000_000 {
            self.skip(policy, result);
            return None;
        }
        self.until_us.set(until_us + EACH_US);
        let mut skipped = self.skipped.borrow_mut();
        let of_policy = skipped.get_mut(policy).into_iter().flatten();
        let skipped =
            of_policy.filter(|(of, _)| *of == result).map(|(_, skipped)| std::mem::take(skipped));
        Some(skipped.sum::<u64>() + 1)
    }

    fn skip(&self, policy: &str, result: &'static str) {
        let mut skipped = self.skipped.borrow_mut();
        if !skipped.contains_key(policy) {
            if skipped.len() >= SKIPPED_POLICIES_MAX {
                return;
            }
            skipped.insert(policy.into(), Vec::new());
        }
        let Some(of_policy) = skipped.get_mut(policy) else { return };
        match of_policy.iter_mut().find(|(of, _)| *of == result) {
            Some((_, skipped)) => *skipped += 1,
            None => of_policy.push((result, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::{FutureExt, StreamExt};
    use serde_json::Value;

    use super::*;
    use crate::config::KeyFormat;
    use crate::telemetry::counts::PermitResult;

    fn events(format: KeyFormat) -> Events {
        Events::new(Arc::new(KeyWriter::new(format)))
    }

    fn made<'a>(policy: &'a str, result: &'static str) -> DecisionEvent<'a> {
        let request = AskedFields { verb: "check", ..AskedFields::default() };
        DecisionEvent { at_us: 0, wire: "http", policy, request, result, decision: None }
    }

    fn data(text: &str) -> Value {
        let json = text.strip_prefix("data: ").expect("an event");
        serde_json::from_str(json).expect("JSON")
    }

    #[test]
    fn a_thread_tells_a_second_of_events_at_once_and_then_at_the_rate() {
        let allowance = Allowance::new();
        let at = |us: u64| allowance.take(Micros::new(1_000_000_000 + us), "p", "allowed");
        let at_once = (0..1_000).filter(|_| at(0).is_some()).count();
        assert_eq!(at_once, 200);
        assert_eq!((at(4_999), at(5_000), at(5_000)), (None, Some(802), None));
        let earlier = |us: u64| allowance.take(Micros::new(us), "p", "allowed");
        assert_eq!(earlier(500_000_000), None, "a clock that went back");
        assert!(earlier(500_005_000).is_some());
    }

    #[test]
    fn an_event_stands_for_those_of_its_policy_and_result_that_were_skipped_and_for_no_other() {
        let (allowance, mut weights) = (Allowance::new(), HashMap::new());
        let mut tell = |at_us: u64, policy, result| {
            if let Some(weight) = allowance.take(Micros::new(at_us), policy, result) {
                *weights.entry((policy, result)).or_insert(0) += weight;
            }
        };
        for decision in 0..90_000_u64 {
            let at_us = 1_000_000_000 + 10 * decision;
            tell(at_us, "busy", if decision % 3 == 0 { "refused" } else { "allowed" });
            if decision % 789 == 0 {
                tell(at_us, "calm", "refused");
            }
        }
        // A second later there is room for what is left.
        for (policy, result) in [("busy", "allowed"), ("busy", "refused"), ("calm", "refused")] {
            tell(1_002_000_000, policy, result);
        }
        let expected = [(("busy", "allowed"), 60_001), (("busy", "refused"), 30_001)];
        assert_eq!(weights, expected.into_iter().chain([(("calm", "refused"), 116)]).collect());
    }

    #[test]
    fn a_result_that_no_event_has_is_an_error_that_names_the_results() {
        let check = |result: &str| EventFilter::new("p".into(), Some(result.into())).check();
        for result in PermitResult::ALL.map(PermitResult::name).into_iter().chain(["error"]) {
            assert_eq!(check(result), Ok(()), "{result}");
        }
        let known = "expected allowed, held, shadowed, degraded, diverted, refused, error";
        let problem = format!("result: unknown result `denied`, {known}");
        assert_eq!(check("denied"), Err(problem));
    }

    #[tokio::test]
    async fn what_nobody_wants_takes_no_room_of_what_somebody_wants() {
        let events = events(KeyFormat::Hashed);
        let filter = EventFilter { policy: Some("calm".into()), result: None };
        let mut watching = pin!(events.watch(filter, CancellationToken::new()).unwrap());
        for _ in 0..10 * PER_SECOND {
            events.publish(&made("busy", "refused"), None);
        }
        events.publish(&made("calm", "refused"), None);
        assert_eq!(data(&watching.next().await.unwrap())["weight"], 1);
    }

    #[tokio::test]
    async fn keys_are_recognised_and_not_known() {
        for (keys, shown) in [(KeyFormat::Hashed, None), (KeyFormat::Clear, Some("alice"))] {
            let events = events(keys);
            let mut watching =
                pin!(events.watch(EventFilter::default(), CancellationToken::new()).unwrap());
            for key in [b"alice", b"alice"] {
                events.publish(&made("p", "allowed"), Some(key));
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
            events.publish(&made(policy, result), None);
        }
        let event = data(&watching.next().await.unwrap());
        assert_eq!((&event["policy"], &event["result"]), (&"p".into(), &"refused".into()));
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
