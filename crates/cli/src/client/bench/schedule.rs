//! The times at which questions are due, shared by all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::plan::{BenchPlan, Until};

/// Delay of a timer, which counts in milliseconds, that is not charged to the server: within it, a question counts from
/// when it is sent.
const TIMER_SLACK: Duration = Duration::from_millis(2);

/// The questions of a run.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    begin: Instant,
    until: Until,
    rate: Option<u64>,
    next: Arc<AtomicU64>,
}

impl Schedule {
    /// A schedule that begins now.
    pub(super) fn new(plan: &BenchPlan) -> Self {
        let BenchPlan { until, rate, .. } = plan;
        let rate = rate.map(|rate| rate.get().into());
        Self { begin: Instant::now(), until: *until, rate, next: Arc::default() }
    }

    /// The time at which it began.
    pub(super) const fn begin(&self) -> Instant {
        self.begin
    }

    /// Puts the next questions into `due`, at most `most`, each with the time from which its latency counts. Empty: no
    /// more come.
    pub(super) async fn next(&self, most: usize, due: &mut Vec<Instant>) {
        due.clear();
        let Some(rate) = self.rate else { return self.next_at_once(most, due) };
        let Some(first) = self.take(rate, |_| true) else { return };
        let first = self.time_of(first, rate);
        let waited = first > Instant::now();
        if waited {
            sleep_until(first).await;
        }
        let now = Instant::now();
        let from = |due: Instant| if waited && now - due <= TIMER_SLACK { now } else { due };
        due.push(from(first));
        while due.len() < most
            && let Some(next) = self.take(rate, |due| due <= now)
        {
            due.push(from(self.time_of(next, rate)));
        }
    }

    fn next_at_once(&self, most: usize, due: &mut Vec<Instant>) {
        let (now, most) = (Instant::now(), most as u64);
        let left = match self.until {
            Until::Requests(requests) => requests,
            Until::Elapsed(duration) if now - self.begin < duration => u64::MAX,
            Until::Elapsed(_) => 0,
        };
        let take = |next: u64| Some(next + left.saturating_sub(next).min(most));
        let next = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let next = next.unwrap_or_else(|next| next);
        due.extend((0..left.saturating_sub(next).min(most)).map(|_| now));
    }

    /// The number of the next question, if there is one and it is due at a time that is `wanted`.
    fn take(&self, rate: u64, wanted: impl Fn(Instant) -> bool) -> Option<u64> {
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            let due = self.time_of(next, rate);
            let comes = match self.until {
                Until::Requests(requests) => next < requests,
                Until::Elapsed(duration) => due - self.begin < duration,
            };
            (comes && wanted(due)).then_some(next + 1)
        });
        taken.ok()
    }

    fn time_of(&self, number: u64, rate: u64) -> Instant {
        let (secs, rest) = (number / rate, number % rate);
        self.begin + Duration::from_secs(secs) + Duration::from_nanos(rest * 1_000_000_000 / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(until: Until, rate: Option<u64>) -> Schedule {
        Schedule { begin: Instant::now(), until, rate, next: Arc::default() }
    }

    /// The due times of each batch, in ms since the beginning, for a connection that takes `work` for each batch.
    async fn times(schedule: &Schedule, most: usize, work: Duration) -> Vec<Vec<u128>> {
        let (mut batches, mut due) = (Vec::new(), Vec::new());
        loop {
            schedule.next(most, &mut due).await;
            if due.is_empty() {
                return batches;
            }
            batches.push(due.iter().map(|due| (*due - schedule.begin).as_millis()).collect());
            tokio::time::sleep(work).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_loop_asks_when_it_was_answered() {
        let answered = Duration::from_millis(40);
        let five = schedule(Until::Requests(5), None);
        assert_eq!(times(&five, 2, answered).await, [vec![0, 0], vec![40, 40], vec![80]]);
        let short = schedule(Until::Elapsed(Duration::from_millis(100)), None);
        assert_eq!(times(&short, 1, answered).await, [vec![0], vec![40], vec![80]]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_loop_counts_from_when_a_question_was_due_however_late_it_is_asked() {
        let slow = schedule(Until::Requests(4), Some(100));
        let late = times(&slow, 1, Duration::from_millis(25)).await;
        assert_eq!(late, [vec![0], vec![10], vec![20], vec![30]]);
        let pipelined = schedule(Until::Elapsed(Duration::from_millis(50)), Some(100));
        let late = times(&pipelined, 3, Duration::from_millis(25)).await;
        assert_eq!(late, [vec![0], vec![10, 20], vec![30, 40]]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_loop_does_not_count_the_lateness_of_its_own_timer() {
        // At 3,000/s questions are due within milliseconds, which timers do not distinguish.
        let schedule = schedule(Until::Requests(6), Some(3_000));
        let mut due = Vec::new();
        schedule.next(1, &mut due).await;
        schedule.next(6, &mut due).await;
        assert!(due.iter().all(|due| *due == Instant::now()), "{due:?}");
    }
}
