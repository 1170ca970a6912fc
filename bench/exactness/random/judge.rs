//! The promise of a round, by the formulas of `docs/exactness.md`, compared with the results of its clients.
//!
//! With `deny`, a limit may be exceeded only by what a Redis forgot. With `local`, the shares of servers that were cut
//! off are added, but only for permits that came from shares: those of Redis and of leases are also judged without
//! them.

use crate::bound::{Admitted, Limit};
use crate::load::Tally;

use super::plan::SERVERS;

/// Longest wait of a decision for Redis (`deadline_ms`), µs: permits that refill meanwhile count twice in a share.
const DEADLINE_US: u64 = 20_000;

/// The facts of a round on which its promise depends.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) limit: Limit,
    /// Times in which only the lowered limit was in force.
    pub(crate) lowered: Vec<(u64, u64, Limit)>,
    /// Times that Redis lost writes.
    pub(crate) losses: u32,
    /// Masters that were replaced while they ran: both halves may have taken writes.
    pub(crate) splits: u32,
    /// Servers that were killed, each time.
    pub(crate) kills: u32,
}

/// The promise and the result, in permits.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// Everything that passed.
    pub(crate) may: f64,
    pub(crate) over: f64,
    /// Permits of Redis and leases alone.
    pub(crate) may_store: f64,
    pub(crate) over_store: f64,
}

impl Verdict {
    /// Judges a round.
    pub(crate) fn of(facts: &Facts, tally: &Tally) -> Self {
        let Facts { limit, losses, splits, .. } = facts;
        let span_us = tally.last_replied_us.saturating_sub(tally.first_sent_us);
        let may_store =
            f64::from(*losses) * limit.allows(0) + f64::from(*splits) * limit.allows(span_us);
        let by_store: Vec<_> = tally.admitted.iter().filter(|it| !it.by_share).copied().collect();
        let by_share = tally.admitted.len() - by_store.len();
        Self {
            may: may_store + shares(facts, tally).min(by_share as f64),
            over: facts.most_over(&tally.admitted),
            may_store,
            over_store: facts.most_over(&by_store),
        }
    }

    /// Returns whether both promises were kept.
    pub(crate) fn is_within(&self) -> bool {
        self.over <= self.may && self.over_store <= self.may_store
    }
}

impl Facts {
    /// The largest excess over the highest limit that was in force at any time of an interval.
    fn most_over(&self, admitted: &[Admitted]) -> f64 {
        let lowered = self.lowered.iter().map(|&(from, to, limit)| {
            let within = admitted.iter().filter(|it| it.sent_us >= from && it.replied_us <= to);
            limit.most_over(&within.copied().collect::<Vec<_>>())
        });
        lowered.fold(self.limit.most_over(admitted), f64::max)
    }
}

/// Permits that servers which are cut off may give beyond the limit: a share of the burst each, once more after each
/// kill; a share of the rate for as long as others reach Redis; and the requests under way when an outage begins. While
/// none reaches Redis, all shares together are the limit, and the first server that reconnects may get from Redis the
/// permits that the others gave.
fn shares(facts: &Facts, tally: &Tally) -> f64 {
    let servers = SERVERS as f64;
    let (burst, per_s) = match facts.limit {
        Limit::Bucket { per_s, burst } => (f64::from(burst), f64::from(per_s)),
        limit => (limit.allows(0), 0.0),
    };
    let spans: Vec<_> =
        tally.cut_off.values().flat_map(|outages| &outages.spans).copied().collect();
    let cut_off = tally.cut_off.values().filter(|outages| !outages.spans.is_empty()).count();
    let lives = cut_off as f64 + f64::from(facts.kills);
    let seconds = |us: u64| us as f64 / 1e6;
    let all: u64 = spans.iter().map(|(from, to)| to - from).sum();
    let together_us = together(&spans);
    let apart = seconds(all.saturating_sub(together_us * SERVERS as u64)) * per_s / servers;
    let together = (seconds(together_us) * per_s).min(burst * (servers - 1.0) / servers);
    let on_their_way = seconds(DEADLINE_US) * per_s * spans.len() as f64;
    lives * burst / servers + apart + together + on_their_way
}

/// Time, in µs, in which as many spans overlap as there are servers.
fn together(spans: &[(u64, u64)]) -> u64 {
    let mut ends: Vec<_> =
        spans.iter().flat_map(|&(from, to)| [(from, true), (to, false)]).collect();
    ends.sort_unstable();
    let (mut open, mut since, mut together) = (0, 0, 0);
    for (at, begins) in ends {
        if open == SERVERS {
            together += at - since;
        }
        open = if begins { open + 1 } else { open - 1 };
        since = at;
    }
    together
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_in_which_every_server_was_cut_off() {
        let three = [(0, 10), (2, 12), (3, 9)];
        assert_eq!(together(&three), 0);
        assert_eq!(together(&[&three[..], &[(1, 5), (7, 8)]].concat()), 2 + 1);
    }

    #[test]
    fn a_lowered_limit_is_judged_while_it_alone_is_in_force() {
        let limit = |limit| Limit::Day { limit };
        let lowered = vec![(100, 200, limit(1))];
        let facts = Facts { limit: limit(5), lowered, losses: 0, splits: 0, kills: 0 };
        let at = |us| Admitted { sent_us: us, replied_us: us + 1, key: 0, by_share: false };
        assert_eq!(facts.most_over(&[at(0), at(99), at(110), at(200)]), 0.0);
        assert_eq!(facts.most_over(&[at(0), at(110), at(120)]), 1.0);
    }
}
