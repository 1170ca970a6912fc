//! Time since the last report of each node, independent of its clock.
//!
//! A node writes the time of its own clock. The node that answers remembers when it first saw a new time: a report
//! that is new since the last look was written in between, also by a clock that is minutes ahead or behind.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use utoipa::ToSchema;

use crate::catalog::{Fleet, FleetNode, NodeReport};

/// Smallest offset of a clock that is returned: reports are ten seconds apart.
const CLOCK_OFF_MIN_MS: i64 = 30_000;

/// Times at which new reports were seen, by node.
#[derive(Debug, Default)]
pub(super) struct Sightings(Mutex<HashMap<String, Sighting>>);

#[derive(Clone, Copy, Debug)]
struct Sighting {
    /// The time of the report, by the clock of the node.
    seen_at: i64,
    /// Latest time at which it was written, by the clock of this node.
    reported_at: i64,
    /// Time of the last look.
    looked_at: i64,
    /// Least lead of the node's clock: no report is written after it was seen.
    ahead_min_ms: i64,
    /// A second report was seen, which is needed to tell the offset of a clock from the age of a report.
    is_known: bool,
}

/// All nodes, the revision that they should use, and the time since each reported.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Fleet)]
pub(super) struct SeenFleet {
    /// Revision of the catalog.
    revision: i64,
    /// The nodes by name.
    nodes: Vec<SeenNode>,
    /// URLs at which the node that answers takes requests for permits, such as `http://127.0.0.1:8080`. The address
    /// `0.0.0.0` or `[::]` stands for all addresses of its machine.
    listen: Vec<String>,
}

/// A node and its state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FleetNode)]
pub(super) struct SeenNode {
    /// Node name.
    name: String,
    /// Catalog revision that the node uses.
    revision: i64,
    /// Time of the last report by the clock of the node, in milliseconds since 1970.
    seen_at: i64,
    /// State of the node at that time; null: its version does not report it.
    report: Option<NodeReport>,
    /// Time since the last report in milliseconds, by the clock of the node that answers.
    seen_ms_ago: i64,
    /// Lead of the node's clock over the one that answers, in milliseconds; negative: behind. Null: less than 30 s, or
    /// not known yet.
    clock_ahead_ms: Option<i64>,
}

impl Sightings {
    /// Returns `fleet` as seen at `now`, in milliseconds since 1970, by a node with the URLs `listen`.
    pub(super) fn of(&self, fleet: Fleet, now: i64, listen: &[String]) -> SeenFleet {
        let mut sightings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sightings.retain(|name, _| fleet.nodes.iter().any(|node| node.name == *name));
        let nodes = fleet.nodes.into_iter().map(|node| {
            let sighting = Sighting::of(sightings.get(&node.name), node.seen_at, now);
            sightings.insert(node.name.clone(), sighting);
            let seen_ms_ago = (now - sighting.reported_at).max(0);
            let FleetNode { name, revision, seen_at, report } = node;
            let clock_ahead_ms = sighting.clock_ahead_ms();
            SeenNode { name, revision, seen_at, report, seen_ms_ago, clock_ahead_ms }
        });
        SeenFleet { revision: fleet.revision, nodes: nodes.collect(), listen: listen.to_vec() }
    }
}

impl Sighting {
    fn of(before: Option<&Self>, seen_at: i64, now: i64) -> Self {
        let ahead_min_ms = seen_at - now;
        match before {
            None => {
                let reported_at = seen_at.min(now);
                Self { seen_at, reported_at, looked_at: now, ahead_min_ms, is_known: false }
            }
            Some(before) if before.seen_at == seen_at => Self { looked_at: now, ..*before },
            Some(before) => {
                let ahead_min_ms = ahead_min_ms.max(before.ahead_min_ms);
                // It was written since the last look.
                let reported_at = (seen_at - ahead_min_ms).clamp(before.looked_at.min(now), now);
                Self { seen_at, reported_at, looked_at: now, ahead_min_ms, is_known: true }
            }
        }
    }

    fn clock_ahead_ms(&self) -> Option<i64> {
        let ahead = self.ahead_min_ms;
        (self.is_known && ahead.abs() >= CLOCK_OFF_MIN_MS).then_some(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the age and clock offset of each node after each look: its time, and the times that the nodes wrote.
    fn looks<const N: usize>(looks: [(i64, [i64; N]); 4]) -> Vec<[(i64, Option<i64>); N]> {
        let sightings = Sightings::default();
        let look = |(now, seen_at): (i64, [i64; N])| {
            let node = |(place, seen_at): (usize, &i64)| FleetNode {
                name: format!("n{place}"),
                revision: 1,
                seen_at: *seen_at,
                report: None,
            };
            let nodes = seen_at.iter().enumerate().map(node).collect();
            let fleet = sightings.of(Fleet { revision: 1, nodes }, now, &[]);
            let times = fleet.nodes.iter().map(|node| (node.seen_ms_ago, node.clock_ahead_ms));
            times.collect::<Vec<_>>().try_into().expect("as many as there are nodes")
        };
        looks.into_iter().map(look).collect()
    }

    #[test]
    fn a_node_lives_whose_clock_is_five_minutes_off_and_one_that_was_killed_does_not() {
        const MIN: i64 = 60_000;
        let now = 100 * MIN;
        // One with this clock, one behind, one ahead, and one that is ahead and ends after its second report.
        let seen = looks([
            (now, [now, now - 5 * MIN, now + 5 * MIN, now + 5 * MIN]),
            (
                now + 10_000,
                [
                    now + 10_000,
                    now - 5 * MIN + 10_000,
                    now + 5 * MIN + 10_000,
                    now + 5 * MIN + 10_000,
                ],
            ),
            (
                now + 20_000,
                [
                    now + 20_000,
                    now - 5 * MIN + 20_000,
                    now + 5 * MIN + 20_000,
                    now + 5 * MIN + 10_000,
                ],
            ),
            (
                now + 60_000,
                [
                    now + 60_000,
                    now - 5 * MIN + 60_000,
                    now + 5 * MIN + 60_000,
                    now + 5 * MIN + 10_000,
                ],
            ),
        ]);
        let ages: Vec<_> = seen.iter().map(|nodes| nodes.map(|(age, _)| age)).collect();
        assert_eq!(ages[0], [0, 5 * MIN, 0, 0], "the first look knows nothing but clocks");
        assert_eq!(ages[1], [0, 0, 0, 0]);
        assert_eq!(ages[2], [0, 0, 0, 10_000]);
        assert_eq!(ages[3], [0, 0, 0, 50_000]);
        let clocks = seen[2].map(|(_, clock)| clock);
        assert_eq!(clocks, [None, Some(-5 * MIN), Some(5 * MIN), Some(5 * MIN)]);
    }

    #[test]
    fn a_node_that_ended_between_two_far_looks_ended_then() {
        let hour = 3_600_000;
        let looked =
            [(0, [0]), (hour, [hour / 6]), (hour + 5_000, [hour / 6]), (2 * hour, [hour / 6])];
        let ages: Vec<_> = looks(looked).into_iter().map(|[(age, _)]| age).collect();
        assert_eq!(ages, [0, hour * 5 / 6, hour * 5 / 6 + 5_000, 2 * hour - hour / 6]);
    }
}
