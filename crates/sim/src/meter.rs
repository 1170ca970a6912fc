//! Permits that a rule admitted, in integers, and how far they are over the rule's own bound in any interval.
//!
//! A request was decided at some instant between its question and its answer. As in `docs/exactness.md` it counts
//! towards an interval only if both lie in it: so an excess is one whichever instant that was.

use std::collections::VecDeque;

use crate::plan::{Plan, RuleSpec, SECOND, WindowSpec};

/// Permits that were admitted by one decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmittedPermits {
    pub(crate) permits: u64,
    /// The time of the question, µs.
    pub(crate) begun: u64,
    /// The time of the answer, µs.
    pub(crate) at: u64,
}

/// The permits admitted under one rule.
#[derive(Clone, Debug)]
pub(crate) enum Meter {
    /// For each instant at which an interval may begin, the units admitted since: no more than the burst, and
    /// what has flowed out. A permit is as many units as the period has µs.
    Bucket { since: Vec<(u64, u64)>, permits: u64, period_us: u64, burst: u64 },
    /// The permits admitted in the last window, by when they were asked for.
    Sliding { admitted: VecDeque<(u64, u64)>, sum: u64, limit: u64, window_us: u64 },
    /// The permits admitted in the present window of the store's clock.
    Aligned { window: u64, sum: u64, limit: u64, window_us: u64, ahead_us: u64 },
}

impl Meter {
    pub(crate) fn of(spec: &RuleSpec, plan: &Plan) -> Self {
        let bucket = |permits, period_us, burst| Self::Bucket {
            since: Vec::new(),
            permits,
            period_us,
            burst: burst * period_us,
        };
        let sliding = |limit, window_us| Self::Sliding {
            admitted: VecDeque::new(),
            sum: 0,
            limit,
            window_us,
        };
        let aligned =
            |limit, window_us| Self::Aligned { window: 0, sum: 0, limit, window_us, ahead_us: 0 };
        match *spec {
            RuleSpec::TokenBucket { permits, period_us, burst } => {
                bucket(permits, period_us, burst)
            }
            RuleSpec::LeakyBucket { permits, period_us, burst, .. } => {
                bucket(permits, period_us, burst + 1)
            }
            RuleSpec::Window { window, limit, window_us } => match window {
                WindowSpec::Fixed | WindowSpec::Estimate => aligned(limit, window_us),
                WindowSpec::Log | WindowSpec::Buckets => sliding(limit, window_us),
            },
            // A request passes on permits that the next one pays for, whatever its cost.
            RuleSpec::SmoothBursty { permits, burst_s } => {
                bucket(permits, SECOND, permits * burst_s + plan.cost_max())
            }
            // Permits that are held are counted by `permits`.
            RuleSpec::Concurrency { .. } => sliding(u64::MAX, 1),
        }
    }

    /// Returns the usage of `old` under a rule that replaces it; usage of another algorithm is not followed.
    pub(crate) fn under(&self, at: u64, old: &RuleSpec, new: &RuleSpec, plan: &Plan) -> Self {
        let used = carried(self.used(at), old, new) / self.units();
        match (self, Self::of(new, plan)) {
            (Self::Bucket { .. }, Self::Bucket { permits, period_us, burst, .. }) => {
                let since = vec![(at, used.saturating_sub(1) * period_us)];
                Self::Bucket { since, permits, period_us, burst }
            }
            (_, fresh) => fresh,
        }
    }

    /// Returns the units that flow out of the usage at `from` until `to`: [`units`](Self::units) of them are a
    /// permit.
    pub(crate) fn flows(&self, from: u64, to: u64) -> u64 {
        match self {
            Self::Bucket { permits, .. } => self.used(from).min(to.saturating_sub(from) * permits),
            Self::Sliding { .. } | Self::Aligned { .. } => 0,
        }
    }

    /// Returns the units in a permit; 1 in windows.
    pub(crate) fn units(&self) -> u64 {
        match self {
            Self::Bucket { period_us, .. } => *period_us,
            Self::Sliding { .. } | Self::Aligned { .. } => 1,
        }
    }

    /// Counts permits; returns how many are over the bound now.
    pub(crate) fn admit(&mut self, admitted: AdmittedPermits) -> u64 {
        let AdmittedPermits { permits, begun, at } = admitted;
        self.flow(at);
        match self {
            Self::Bucket { since, period_us, burst, permits: rate } => {
                since.push((begun, 0));
                let mut over = 0;
                for (start, units) in since.iter_mut().filter(|(start, _)| *start <= begun) {
                    *units += permits * *period_us;
                    // Waits are rounded up to a µs, so that the next one may be a µs shorter.
                    let bound = *burst + *rate * (at - *start + 1);
                    over = over.max(units.saturating_sub(bound));
                }
                over.div_ceil(*period_us)
            }
            Self::Sliding { admitted, sum, limit, .. } => {
                // A request that waited for its answer was asked for before others that did not.
                let later = admitted.iter().rev().take_while(|(other, _)| *other > begun).count();
                admitted.insert(admitted.len() - later, (begun, permits));
                *sum += permits;
                sum.saturating_sub(*limit)
            }
            Self::Aligned { sum, limit, window, window_us, ahead_us } => {
                if (begun + *ahead_us) / *window_us == *window {
                    *sum += permits;
                }
                sum.saturating_sub(*limit)
            }
        }
    }

    /// Removes `permits` from the usage.
    pub(crate) fn forgive(&mut self, at: u64, permits: u64) {
        self.flow(at);
        match self {
            Self::Bucket { since, period_us, .. } => {
                let units = permits.saturating_mul(*period_us);
                since.iter_mut().for_each(|(_, used)| *used = used.saturating_sub(units));
            }
            Self::Sliding { admitted, sum, .. } => {
                let mut left = permits;
                // The youngest first, as the kernel does.
                for (_, permits) in admitted.iter_mut().rev() {
                    let forgiven = left.min(*permits);
                    *permits -= forgiven;
                    left -= forgiven;
                    *sum -= forgiven;
                }
            }
            Self::Aligned { sum, .. } => *sum = sum.saturating_sub(permits),
        }
    }

    /// Sets the store's clock forward, or back: then windows of its clock begin anew.
    pub(crate) fn clock_step(&mut self, at: u64, by_us: i64) {
        self.flow(at);
        match self {
            Self::Bucket { since, permits, .. } => {
                let units = u64::try_from(by_us).unwrap_or(0).saturating_mul(*permits);
                since.iter_mut().for_each(|(_, used)| *used = used.saturating_sub(units));
            }
            Self::Sliding { admitted, sum, .. } if by_us > 0 => {
                admitted.clear();
                *sum = 0;
            }
            Self::Sliding { .. } => {}
            Self::Aligned { sum, ahead_us, window_us, window, .. } => {
                let length = i64::try_from(*window_us).expect("windows are short");
                let by_us = u64::try_from(by_us.rem_euclid(length)).expect("it is positive");
                *ahead_us = (*ahead_us + by_us) % *window_us;
                *window = (at + *ahead_us) / *window_us;
                *sum = 0;
            }
        }
    }

    /// Sets how far the store's clock is ahead of true time, µs.
    pub(crate) fn set_ahead(&mut self, by_us: i64) {
        if let Self::Aligned { ahead_us, window_us, .. } = self {
            let length = i64::try_from(*window_us).expect("windows are short");
            *ahead_us = u64::try_from(by_us.rem_euclid(length)).expect("it is positive");
        }
    }

    /// Returns whether its windows, of the store's clock, begin at other instants than those of nodes' clocks.
    pub(crate) fn is_out_of_step(&self) -> bool {
        matches!(self, Self::Aligned { ahead_us: 1.., .. })
    }

    /// Returns the units in use at `at`.
    fn used(&self, at: u64) -> u64 {
        match self {
            Self::Bucket { since, permits, .. } => {
                let left = |(start, used): &(u64, u64)| {
                    used.saturating_sub(at.saturating_sub(*start) * permits)
                };
                since.iter().map(left).max().unwrap_or(0)
            }
            Self::Sliding { sum, .. } | Self::Aligned { sum, .. } => *sum,
        }
    }

    /// Returns the permits in use at `at`, rounded up.
    pub(crate) fn used_permits(&mut self, at: u64) -> u64 {
        self.flow(at);
        self.used(at).div_ceil(self.units())
    }

    /// Returns the most permits that flow out in `span_us`.
    pub(crate) fn flows_in(&self, span_us: u64) -> u64 {
        match self {
            Self::Bucket { permits, period_us, .. } => (span_us * permits).div_ceil(*period_us),
            Self::Sliding { .. } | Self::Aligned { .. } => 0,
        }
    }

    /// Returns the permits in use beyond the limit at `at`, rounded up.
    pub(crate) fn above(&self, at: u64) -> u64 {
        let most = match self {
            Self::Bucket { burst, .. } => *burst,
            Self::Sliding { limit, .. } | Self::Aligned { limit, .. } => *limit,
        };
        self.used(at).saturating_sub(most).div_ceil(self.units())
    }

    /// Drops the usage that has flowed out by `at`.
    fn flow(&mut self, at: u64) {
        match self {
            // An interval that begins later counts all usage that matters.
            Self::Bucket { since, permits, .. } => {
                since.retain(|(start, used)| *used > at.saturating_sub(*start) * *permits);
            }
            Self::Sliding { admitted, sum, window_us, .. } => {
                while admitted.front().is_some_and(|(then, _)| then + *window_us <= at) {
                    *sum -= admitted.pop_front().map_or(0, |(_, permits)| permits);
                }
            }
            Self::Aligned { window, sum, window_us, ahead_us, .. } => {
                let now = (at + *ahead_us) / *window_us;
                if now != *window {
                    (*window, *sum) = (now, 0);
                }
            }
        }
    }
}

/// Returns what `used` units under `old` are under `new`. Permits in use stay; under Guava's algorithms, stored
/// permits are rescaled, and a debt keeps its time (`spec/README.md`).
fn carried(used: u64, old: &RuleSpec, new: &RuleSpec) -> u64 {
    let (RuleSpec::SmoothBursty { permits: from, .. }, RuleSpec::SmoothBursty { permits: to, .. }) =
        (old, new)
    else {
        return used;
    };
    let stored_max = old.limit() * SECOND;
    let debt = used.saturating_sub(stored_max);
    (used - debt) * new.limit() / old.limit() + debt * to / from
}
