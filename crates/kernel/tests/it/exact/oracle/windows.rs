//! The windows: plain lists of what was granted when.

use std::cell::Cell;
use std::rc::Rc;

use num_traits::Zero;
use sluicegate_kernel::{Micros, Outcome, Window};

use super::{Oracle, Q, ceil, floor, never, pass, positive, q, ratio, retry, span};

/// Something that was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) at: u64,
    pub(crate) cost: u64,
}

fn sum(grants: impl IntoIterator<Item = Grant>) -> u64 {
    grants.into_iter().map(|grant| grant.cost).sum()
}

/// Takes `permits` from the newest grants and returns how many there were.
fn take_back(grants: &mut Vec<Grant>, permits: u64) -> u64 {
    let mut left = permits;
    while left > 0 {
        let Some(newest) = grants.last_mut() else { break };
        let back = newest.cost.min(left);
        newest.cost -= back;
        left -= back;
        if newest.cost == 0 {
            grants.pop();
        }
    }
    permits - left
}

/// A budget that comes back as the clock passes the end of each grant.
trait Ends: Oracle {
    fn grants(&self) -> &[Grant];
    /// The first instant at which a grant made at `at` counts no longer.
    fn end(&self, at: u64) -> u64;

    fn counted(&self, now: u64) -> u64 {
        sum(self.grants().iter().copied().filter(|grant| self.end(grant.at) > now))
    }

    fn ask_until_ended(&self, cost: u64, now: u64) -> Outcome {
        if cost > self.limit() {
            return never();
        }
        let fits = |at: u64| self.counted(at) + cost <= self.limit();
        if fits(now) {
            return pass(cost);
        }
        let ends = self.grants().iter().map(|grant| self.end(grant.at));
        let first = ends.filter(|end| fits(*end)).min().expect("when all have ended it fits");
        retry(first - now)
    }

    fn last_end_after(&self, now: u64) -> Micros {
        let ends = self.grants().iter().map(|grant| self.end(grant.at));
        span(ends.max().unwrap_or(0).saturating_sub(now))
    }
}

/// The exact log.
#[derive(Clone, Debug)]
pub(crate) struct SlidingLog {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    pub(crate) grants: Vec<Grant>,
}

impl Ends for SlidingLog {
    fn grants(&self) -> &[Grant] {
        &self.grants
    }

    fn end(&self, at: u64) -> u64 {
        at + self.window
    }
}

impl Oracle for SlidingLog {
    fn limit(&self) -> u64 {
        self.limit
    }

    /// Moves grants that are later than now to now.
    fn went_back(&mut self, now: u64) {
        for grant in &mut self.grants {
            grant.at = grant.at.min(now);
        }
    }

    fn ask(&self, cost: u64, _: Option<u64>, now: u64) -> Outcome {
        self.ask_until_ended(cost, now)
    }

    fn take(&mut self, cost: u64, now: u64) {
        self.grants.retain(|grant| grant.at + self.window > now);
        self.grants.push(Grant { at: now, cost });
    }

    fn give_back(&mut self, permits: u64, now: u64) -> u64 {
        self.grants.retain(|grant| grant.at + self.window > now);
        take_back(&mut self.grants, permits)
    }

    fn remaining(&self, now: u64) -> u64 {
        self.limit.saturating_sub(self.counted(now))
    }

    fn reset_after(&self, now: u64) -> Micros {
        self.last_end_after(now)
    }

    fn forget(&mut self) {
        self.grants.clear();
    }
}

/// Counters that count while any part of them overlaps the window. Time only goes on.
#[derive(Clone, Debug)]
pub(crate) struct SlidingWindow {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    pub(crate) bucket: u64,
    pub(crate) grants: Vec<Grant>,
}

impl Ends for SlidingWindow {
    fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// The last instant of the grant's bucket leaves the window.
    fn end(&self, at: u64) -> u64 {
        (at / self.bucket + 1) * self.bucket - 1 + self.window
    }
}

impl Oracle for SlidingWindow {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn went_back(&mut self, _: u64) {}

    fn ask(&self, cost: u64, _: Option<u64>, now: u64) -> Outcome {
        self.ask_until_ended(cost, now)
    }

    fn take(&mut self, cost: u64, now: u64) {
        self.grants.push(Grant { at: now, cost });
    }

    fn give_back(&mut self, permits: u64, now: u64) -> u64 {
        let live: Vec<_> =
            self.grants.iter().copied().filter(|grant| self.end(grant.at) > now).collect();
        self.grants = live;
        take_back(&mut self.grants, permits)
    }

    fn remaining(&self, now: u64) -> u64 {
        self.limit.saturating_sub(self.counted(now))
    }

    fn reset_after(&self, now: u64) -> Micros {
        self.last_end_after(now)
    }

    fn forget(&mut self) {
        self.grants.clear();
    }
}

/// The position of the windows of a [`FixedWindow`].
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    Epoch(u64),
    First(u64),
    /// The window around now, which the test sets before every request.
    Calendar(Rc<Cell<Window>>),
}

/// A count per window: what was granted in the window that is running.
#[derive(Clone, Debug)]
pub(crate) struct FixedWindow {
    pub(crate) limit: u64,
    pub(crate) layout: Layout,
    /// The count and the end of its window.
    pub(crate) counted: Option<(u64, u64)>,
}

impl FixedWindow {
    fn count(&self, now: u64) -> u64 {
        self.counted.map_or(0, |(count, end)| if now < end { count } else { 0 })
    }

    fn end(&self, now: u64) -> u64 {
        match &self.layout {
            Layout::Epoch(window) => (now / window + 1) * window,
            Layout::First(window) => match self.counted {
                Some((count, end)) if count > 0 && now < end => end,
                _ => now + window,
            },
            Layout::Calendar(window) => window.get().end.get(),
        }
    }
}

impl Oracle for FixedWindow {
    fn limit(&self) -> u64 {
        self.limit
    }

    /// The window that is running now takes the count over.
    fn went_back(&mut self, now: u64) {
        let latest = match self.layout {
            Layout::First(window) => now + window,
            _ => self.end(now),
        };
        if let Some((_, end)) = &mut self.counted {
            *end = latest.min(*end);
        }
    }

    fn ask(&self, cost: u64, _: Option<u64>, now: u64) -> Outcome {
        match self.count(now) + cost {
            _ if cost > self.limit => never(),
            wanted if wanted <= self.limit => pass(cost),
            _ => retry(self.end(now) - now),
        }
    }

    fn take(&mut self, cost: u64, now: u64) {
        self.counted = Some((self.count(now) + cost, self.end(now)));
    }

    fn give_back(&mut self, permits: u64, now: u64) -> u64 {
        let back = self.count(now).min(permits);
        if let Some((count, _)) = &mut self.counted {
            *count -= back;
        }
        back
    }

    fn remaining(&self, now: u64) -> u64 {
        self.limit.saturating_sub(self.count(now))
    }

    fn reset_after(&self, now: u64) -> Micros {
        if self.count(now) == 0 { Micros::ZERO } else { span(self.end(now) - now) }
    }

    fn forget(&mut self) {
        self.counted = None;
    }
}

/// `previous · (1 - elapsed/window) + current`.
#[derive(Clone, Debug)]
pub(crate) struct SlidingCounter {
    pub(crate) limit: u64,
    pub(crate) window: u64,
    /// Number of the running window and both counts.
    pub(crate) counted: Option<(u64, u64, u64)>,
}

impl SlidingCounter {
    /// Number of the window around `now`, the previous count and the current one.
    fn counts(&self, now: u64) -> (u64, u64, u64) {
        let running = now / self.window;
        let (previous, current) = match self.counted {
            Some((window, previous, current)) if window == running => (previous, current),
            Some((window, _, current)) if window + 1 == running => (current, 0),
            _ => (0, 0),
        };
        (running, previous, current)
    }

    pub(crate) fn estimate(&self, now: u64) -> Q {
        let (running, previous, current) = self.counts(now);
        let elapsed = now - running * self.window;
        q(previous) * (q(1) - ratio(elapsed, self.window)) + q(current)
    }

    /// The first instant, `now` or later, at which the estimate leaves room for `cost`.
    fn first_fit(&self, cost: u64, now: u64) -> u64 {
        let mut at = now;
        loop {
            let (running, previous, current) = self.counts(at);
            let (begin, end) = (running * self.window, (running + 1) * self.window);
            // previous · (1 - e/window) <= limit - current - cost
            if let Some(room) = self.limit.checked_sub(current + cost) {
                if previous == 0 {
                    return at;
                }
                let elapsed = (q(1) - positive(ratio(room, previous))) * q(self.window);
                let fit = begin + ceil(&elapsed);
                if fit.max(at) < end {
                    return fit.max(at);
                }
            }
            at = end;
        }
    }
}

impl Oracle for SlidingCounter {
    fn limit(&self) -> u64 {
        self.limit
    }

    /// Adds the counts of windows that have not begun to the running one.
    fn went_back(&mut self, now: u64) {
        let running = now / self.window;
        if let Some((window, previous, current)) = self.counted
            && running < window
        {
            self.counted = Some((running, 0, (previous + current).min(self.limit)));
        }
    }

    fn ask(&self, cost: u64, _: Option<u64>, now: u64) -> Outcome {
        if cost > self.limit {
            return never();
        }
        match self.first_fit(cost, now) - now {
            0 => pass(cost),
            us => retry(us),
        }
    }

    fn take(&mut self, cost: u64, now: u64) {
        let (running, previous, current) = self.counts(now);
        self.counted = Some((running, previous, current + cost));
    }

    fn give_back(&mut self, permits: u64, now: u64) -> u64 {
        if self.counted.is_none() {
            return 0;
        }
        let (running, previous, current) = self.counts(now);
        let newest = current.min(permits);
        let oldest = previous.min(permits - newest);
        self.counted = Some((running, previous - oldest, current - newest));
        newest + oldest
    }

    fn remaining(&self, now: u64) -> u64 {
        floor(&(q(self.limit) - self.estimate(now)))
    }

    fn reset_after(&self, now: u64) -> Micros {
        let mut at = now;
        while !self.estimate(at).is_zero() {
            at = (at / self.window + 1) * self.window;
        }
        span(at - now)
    }

    fn forget(&mut self) {
        self.counted = None;
    }
}
