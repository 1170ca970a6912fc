//! The calls that wait for a connection, and how many of them the server can do in time.
//!
//! A call that cannot be answered by its deadline is not worth sending: it would delay those behind it, and
//! be charged without use. So a lane takes only as many calls as the server works off within half a
//! deadline, by the pace at which it has worked off others. That pace is that of the whole server: calls of
//! other connections and other processes make it slower.
//!
//! Example: 160 decisions that were sent together are back after 1.6 ms, so one takes 10 µs, and with a
//! deadline of 20 ms there is room for 1,000. The next one is refused at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Most calls that wait for one connection: as many as its queue holds, where the pace of the server
/// does not limit them to those that can be served within a deadline.
pub(super) const WAITING_MAX: usize = 4096;

/// Calls for which there is always room: as many as travel together; fewer are no measure of the server's
/// pace.
const ROOM_MIN: usize = 16;

/// The fewest calls that count as a queue.
const LONG: usize = 64;

/// The part of the deadline that may be spent in the queue: the rest is for the way there and back,
/// and for a pace that changes.
const QUEUED_PERCENT: u64 = 50;

/// The time of a call before any was measured, in ns: about three times that of an idle server.
const PACE_UNKNOWN_NS: u64 = 20_000;

/// The weight of a faster pace: one part in so many of the known one; a slower pace counts as half. A queue
/// that is too long makes callers wait in vain.
const PACE_MEMORY: u64 = 4;

/// Late calls in a row before the server counts as too slow: a single one may be due to this process.
const SLOW_MIN: u64 = 3;

/// Deadlines of silence that a process waits for before the server counts as gone, if it is behind itself or
/// has many calls under way: a reply may be unread, or take its time.
const OWN_SILENCE: u32 = 10;

/// The bounds of the period in which a connection is checked: twice within that silence, neither for nothing
/// nor so seldom that a process which stood still takes that for the server's silence.
const TURN_MIN: Duration = Duration::from_millis(10);
const TURN_MAX: Duration = Duration::from_millis(100);

/// The load of one connection.
#[derive(Debug)]
pub(super) struct Load {
    deadline: Duration,
    since: Instant,
    pending: AtomicUsize,
    room: AtomicUsize,
    /// Nanoseconds that the server takes for a call.
    pace_ns: AtomicU64,
    /// The time of the last reply, in µs after `since`; 0: never.
    heard_us: AtomicU64,
    /// Since when a call has been under way, in µs after `since`: before that no reply could come.
    asked_us: AtomicU64,
    /// The time at which the connection was checked last, in µs after `since`.
    turned_us: AtomicU64,
    /// The time at which this process was last found to have stood still, in µs after `since`: replies that arrived
    /// meanwhile may be unread.
    woke_us: AtomicU64,
    /// Calls in a row that had none before them and took longer than the deadline.
    slow: AtomicU64,
}

/// A call's place in the queue, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Ticket(Arc<Load>);

/// A time in which calls were always in flight, as far as it is not accounted for yet.
#[derive(Debug)]
pub(super) struct BusyPeriod {
    since: Instant,
    /// Calls that came back since.
    calls: usize,
}

impl BusyPeriod {
    pub(super) const fn begun(since: Instant) -> Self {
        Self { since, calls: 0 }
    }

    /// Notes that `calls` came back at `now`. `is_over`: none is in flight any more. Long periods are accounted for in
    /// parts of a quarter of the deadline.
    pub(super) fn came_back(&mut self, calls: usize, is_over: bool, now: Instant, load: &Load) {
        self.calls += calls;
        if is_over || now.saturating_duration_since(self.since) >= load.deadline / 4 {
            load.worked_off(self.calls, self.since, now);
            *self = Self::begun(now);
        }
    }
}

impl Load {
    /// Returns a load without calls, each to be answered within `deadline`.
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            since: Instant::now(),
            pending: AtomicUsize::new(0),
            room: AtomicUsize::new(room(deadline, PACE_UNKNOWN_NS)),
            pace_ns: AtomicU64::new(PACE_UNKNOWN_NS),
            heard_us: AtomicU64::new(0),
            asked_us: AtomicU64::new(0),
            turned_us: AtomicU64::new(0),
            woke_us: AtomicU64::new(0),
            slow: AtomicU64::new(0),
        }
    }

    /// Returns a place for one call more, if it can be answered in time.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Ticket> {
        let ticket = Ticket(Arc::clone(self));
        let before = self.pending.fetch_add(1, Ordering::Relaxed);
        (before < self.room.load(Ordering::Relaxed)).then_some(ticket)
    }

    /// Returns a place for a call of the connection's own, which is made in any case.
    pub(super) fn enter_anyway(self: &Arc<Self>) -> Ticket {
        self.pending.fetch_add(1, Ordering::Relaxed);
        Ticket(Arc::clone(self))
    }

    /// Returns whether there is a place for one call more.
    pub(super) fn has_room(&self) -> bool {
        self.pending.load(Ordering::Relaxed) < self.room.load(Ordering::Relaxed)
    }

    /// Returns whether there is a queue.
    pub(super) fn is_long(&self) -> bool {
        self.pending.load(Ordering::Relaxed) >= LONG.min(self.room.load(Ordering::Relaxed))
    }

    /// Notes that a call was sent at `now`, with none before it that is still to be answered.
    pub(super) fn record_call(&self, now: Instant) {
        self.asked_us.store(self.us_at(now), Ordering::Relaxed);
    }

    /// Returns the longest period between checks of the connection, so that a process that stood still
    /// notices.
    pub(super) fn turn_every(&self) -> Duration {
        (self.deadline * OWN_SILENCE / 2).clamp(TURN_MIN, TURN_MAX)
    }

    /// Notes that the connection is checked at `now`.
    pub(super) fn turned(&self, now: Instant) {
        if self.was_suspended(now) {
            self.woke_us.store(self.us_at(now), Ordering::Relaxed);
        }
        self.turned_us.store(self.us_at(now), Ordering::Relaxed);
    }

    /// Returns whether this process, or the task of the connection, has not run for a while: it was stopped,
    /// or had no processor.
    fn was_suspended(&self, now: Instant) -> bool {
        let turned_us = self.turned_us.load(Ordering::Relaxed);
        let still = Duration::from_micros(self.us_at(now).saturating_sub(turned_us));
        turned_us > 0 && still >= self.turn_every() * 2
    }

    /// Returns how long the server has been silent at `now`: since its last reply, since a call was sent, or
    /// since this process could read again.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        let since_us = [&self.heard_us, &self.asked_us, &self.woke_us];
        let since_us = since_us.into_iter().map(|us| us.load(Ordering::Relaxed)).max();
        Duration::from_micros(self.us_at(now).saturating_sub(since_us.unwrap_or_default()))
    }

    /// Notes that the server answered at `now`, as it does to a new connection.
    pub(super) fn greeted(&self, now: Instant) {
        self.heard_us.store(self.us_at(now).max(1), Ordering::Relaxed);
    }

    /// Notes a reply at `now` to a call that was sent at `sent`; the reply before it came at `before`.
    pub(super) fn record_reply(&self, sent: Instant, before: Instant, now: Instant) {
        self.greeted(now);
        if sent > before {
            // No call was before it: this is the round trip.
            let is_slow = now.saturating_duration_since(sent) > self.deadline;
            let slow = if is_slow { self.slow.load(Ordering::Relaxed) + 1 } else { 0 };
            self.slow.store(slow, Ordering::Relaxed);
        }
    }

    /// Notes that the server worked `calls` off from `begun` to `now`, without a pause. Single replies are
    /// no measure: a server writes those to all calls that it read together.
    fn worked_off(&self, calls: usize, begun: Instant, now: Instant) {
        let span_ns = micros(now.saturating_duration_since(begun)).saturating_mul(1_000);
        let is_brief = span_ns < micros(self.deadline).saturating_mul(1_000) / 4;
        let Some(each_ns) = span_ns.checked_div(calls as u64) else { return };
        let known = self.pace_ns.load(Ordering::Relaxed);
        let pace_ns = match each_ns > known {
            // Most of it is the round trip.
            true if is_brief && calls < ROOM_MIN => return,
            true => known.midpoint(each_ns),
            false => (known * (PACE_MEMORY - 1) + each_ns) / PACE_MEMORY,
        };
        self.pace_ns.store(pace_ns, Ordering::Relaxed);
        self.room.store(room(self.deadline, pace_ns), Ordering::Relaxed);
    }

    /// Returns whether the server answers, so that a late call was one too many. `is_own`: this process may
    /// be the reason: the call waited here, its timer was late, or many were sent.
    pub(super) fn answers(&self, is_own: bool, now: Instant) -> bool {
        if self.heard_us.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let is_slow = self.slow.load(Ordering::Relaxed) >= SLOW_MIN;
        match is_own {
            true => self.was_suspended(now) || self.silence(now) < self.deadline * OWN_SILENCE,
            false => self.silence(now) < self.deadline && !is_slow,
        }
    }

    fn us_at(&self, now: Instant) -> u64 {
        micros(now.saturating_duration_since(self.since))
    }

    /// Returns whether a timer that was due at `due` shows that this process is behind.
    pub(super) fn is_behind(&self, due: Instant, now: Instant) -> bool {
        now.saturating_duration_since(due) > self.deadline / 4
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the calls that are worked off at this pace within the part of a deadline that may be spent in the
/// queue.
fn room(deadline: Duration, pace_ns: u64) -> usize {
    let queued_ns = micros(deadline).saturating_mul(1_000) / 100 * QUEUED_PERCENT;
    let calls = usize::try_from(queued_ns / pace_ns.max(1)).unwrap_or(WAITING_MAX);
    calls.clamp(ROOM_MIN, WAITING_MAX)
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(20);

    fn at(load: &Load, us: u64) -> Instant {
        load.since + Duration::from_micros(us)
    }

    /// Notes `times` times 160 calls, each of which takes this long.
    fn flush(load: &Load, times: u64, each_us: u64) {
        for time in 1..=times {
            let (begun, now) =
                (at(load, time * 160 * each_us), at(load, (time + 1) * 160 * each_us));
            load.record_reply(begun, begun, now);
            load.worked_off(160, begun, now);
        }
    }

    fn room(load: &Arc<Load>) -> usize {
        std::iter::from_fn(|| load.enter()).collect::<Vec<_>>().len()
    }

    #[test]
    fn a_server_of_unknown_pace_is_given_a_chance() {
        assert_eq!(room(&Arc::new(Load::new(DEADLINE))), 500, "10 ms at 20 us each");
    }

    #[test]
    fn as_many_calls_may_wait_as_the_server_works_off_in_half_a_deadline() {
        let load = Arc::new(Load::new(DEADLINE));
        flush(&load, 50, 10);
        assert!((990..=1_000).contains(&room(&load)), "{} at 10 us each", room(&load));
        flush(&load, 20, 100);
        assert!((100..=101).contains(&room(&load)), "{} at 100 us each", room(&load));
        flush(&load, 100, 10_000);
        assert_eq!(room(&load), ROOM_MIN);
    }

    #[test]
    fn calls_that_come_back_in_parts_are_accounted_for_together() {
        let load = Arc::new(Load::new(DEADLINE));
        let mut busy = BusyPeriod::begun(at(&load, 0));
        for part in 1..=6 {
            busy.came_back(100, false, at(&load, 1_000 * part), &load);
            let rooms = if part < 5 { 500..=500 } else { 540..=610 };
            assert!(rooms.contains(&room(&load)), "{} after {part} ms", room(&load));
        }
        busy.came_back(300, true, at(&load, 7_000), &load);
        assert!(room(&load) > 610, "{}: 400 in 2 ms, in two parts", room(&load));
    }

    #[test]
    fn what_is_given_back_takes_the_place_of_other_calls() {
        let load = Arc::new(Load::new(DEADLINE));
        let refunds: Vec<_> = (0..300).map(|_| load.enter_anyway()).collect();
        assert_eq!(room(&load), 200);
        drop(refunds);
        assert_eq!(room(&load), 500);
    }

    #[test]
    fn the_way_there_and_back_is_not_the_pace() {
        let load = Arc::new(Load::new(DEADLINE));
        for call in 0..100 {
            let sent = at(&load, 1_000 * call + 10);
            load.worked_off(1, sent, sent + Duration::from_micros(900));
        }
        assert_eq!(room(&load), 500);
    }

    #[test]
    fn a_server_that_stood_still_is_given_room_again() {
        let load = Arc::new(Load::new(DEADLINE));
        load.worked_off(500, at(&load, 0), at(&load, 10_000_000));
        assert_eq!(room(&load), ROOM_MIN);
        for flush in 0..100 {
            let sent = at(&load, 10_000_000 + 300 * flush);
            load.worked_off(8, sent, sent + Duration::from_micros(300));
        }
        assert!(
            room(&load) > 250,
            "{}: 300 us for 8, the way there and back included",
            room(&load)
        );
    }

    #[test]
    fn a_few_calls_that_take_long_are_the_pace() {
        let load = Arc::new(Load::new(DEADLINE));
        for call in 0..100 {
            let sent = at(&load, 20_000 * call);
            load.worked_off(3, sent, sent + Duration::from_micros(6_000));
        }
        assert_eq!(room(&load), ROOM_MIN);
    }

    #[test]
    fn the_own_standstill_is_not_the_servers_silence() {
        let load = Load::new(DEADLINE);
        load.turned(at(&load, 1_000));
        load.record_reply(at(&load, 1_010), at(&load, 1_000), at(&load, 1_100));
        load.record_call(at(&load, 1_200));
        // The process is stopped for a second. A timer fires before the replies are read.
        assert!(load.answers(true, at(&load, 1_001_200)));
        load.turned(at(&load, 1_001_300));
        assert!(load.answers(false, at(&load, 1_021_200)), "it is heard again for a moment only");
        assert!(!load.answers(false, at(&load, 1_021_300)));
        for turn in 1..=3 {
            load.turned(at(&load, 1_001_300 + 100_000 * turn));
        }
        assert!(!load.answers(true, at(&load, 1_301_300)), "and says nothing");
    }

    #[test]
    fn a_silent_server_does_not_answer_and_neither_does_a_slow_one() {
        let load = Load::new(DEADLINE);
        assert!(!load.answers(true, at(&load, 10)), "it has never said anything");
        load.record_reply(at(&load, 10), at(&load, 0), at(&load, 100));
        assert!(load.answers(false, at(&load, 15_000)));
        assert!(!load.answers(false, at(&load, 20_100)));
        assert!(load.answers(true, at(&load, 20_100)), "a reply may lie there unread");
        assert!(!load.answers(true, at(&load, 200_100)));
        load.record_call(at(&load, 300_000));
        assert!(load.answers(false, at(&load, 319_000)), "nobody asked it for anything before");
        assert!(!load.answers(false, at(&load, 320_000)));
        let load = Load::new(DEADLINE);
        load.record_reply(at(&load, 10), at(&load, 0), at(&load, 100));
        for call in 1..=3 {
            let begun = 100_000 * call;
            assert!(call < 3 || load.answers(false, at(&load, begun - 60_000)), "not yet");
            load.record_reply(at(&load, begun), at(&load, begun - 1), at(&load, begun + 30_000));
        }
        assert!(!load.answers(false, at(&load, 331_000)), "its replies come, too late");
        load.record_reply(at(&load, 331_000), at(&load, 330_000), at(&load, 331_100));
        assert!(load.answers(false, at(&load, 332_000)));
    }
}
