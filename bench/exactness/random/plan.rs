//! The parts of a round that its seed decides: the policy, the Redis, and the faults with their times.
//!
//! Each target has its own faults, one after the other: each server, each server's network, Redis, the policy. Faults
//! of different targets may overlap.

use std::fmt;
use std::ops::Range;

use fastrand::Rng;
use sluicegate_testkit::Faults;

use crate::bound::Limit;
use crate::fleet::Leases;

/// Servers of a round: with four, a server that is cut off has a small share, while the others still hold leases.
pub(crate) const SERVERS: usize = 4;

/// Time in which faults begin and end. It is longer than the ten seconds of a window.
pub(crate) const FAULTS_MS: u64 = 12_000;

/// Calm before the first fault, in which servers lease permits.
const CALM_MS: u64 = 1_000;

/// Length of a sliding window: the shortest that can be leased.
const WINDOW_S: u32 = 10;

/// Limits and bursts are multiples of this, so that a share of one of four servers is a whole number, also when an edit
/// divides the limit by two, four or five.
const STEP: u32 = 80;

/// The plan of a round.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) limit: Limit,
    /// The limit after an edit that lowers it.
    pub(crate) lowered: Limit,
    pub(crate) leases: Leases,
    pub(crate) on_store_failure: &'static str,
    pub(crate) store: StoreKind,
    /// Requests per second to each server.
    pub(crate) per_s: u32,
    /// The last server is used over HTTP.
    pub(crate) http: bool,
    pub(crate) faults: Vec<Fault>,
}

/// The Redis of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// One that does not persist data.
    Forgets,
    /// One that writes before it answers (`appendfsync always`).
    Lasts,
    /// A master, two replicas and three Sentinels.
    Group,
}

/// A fault and its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) at_ms: u64,
    pub(crate) for_ms: u64,
    pub(crate) kind: Kind,
}

/// The kinds of faults.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A fault between a server and Redis.
    Network {
        server: usize,
        faults: Faults,
        name: &'static str,
    },
    /// The connections of a server to Redis are closed, and none can be made.
    Closed {
        server: usize,
    },
    ServerFrozen {
        server: usize,
    },
    /// Killed, and started again at the end.
    ServerKilled {
        server: usize,
    },
    RedisFrozen,
    /// Killed, and started again at the end. In a group, the master is killed.
    RedisKilled,
    /// `FLUSHALL`.
    Flushed,
    /// The limit is lowered, and raised again at the end, on one server after the other.
    Lowered {
        apart_ms: u64,
    },
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let (limit, lowered) = limits(rng);
        let stores = [StoreKind::Forgets, StoreKind::Forgets, StoreKind::Lasts, StoreKind::Group];
        let store = pick(rng, &stores);
        let leases = pick(rng, &[Leases::Usual, Leases::Usual, Leases::Half, Leases::Off]);
        let on_store_failure = pick(rng, &["deny", "local"]);
        let (per_s, http) = (rng.u32(150..300), rng.bool());
        let mut faults = Vec::new();
        for server in 0..SERVERS {
            track(rng, 2, &mut faults, |rng| network(rng, server));
            track(rng, 1, &mut faults, |rng| process(rng, server));
        }
        // Two thirds of the rounds lose nothing, so no excess is permitted in them.
        let loses = rng.u8(..3) == 0;
        track(rng, 2, &mut faults, |rng| redis(rng, store, loses));
        let edits = rng.u64(1..=2);
        track(rng, edits, &mut faults, lowering);
        faults.sort_by_key(|fault| fault.at_ms);
        Self { limit, lowered, leases, on_store_failure, store, per_s, http, faults }
    }

    /// The number of faults for which `is` returns `true`.
    pub(crate) fn count(&self, is: impl Fn(&Kind) -> bool) -> u32 {
        let count = self.faults.iter().filter(|fault| is(&fault.kind)).count();
        u32::try_from(count).expect("a round has a dozen faults")
    }
}

/// A limit that the clients reach, and the lower one of an edit.
fn limits(rng: &mut Rng) -> (Limit, Limit) {
    let kind = rng.u8(..3);
    let part = pick(rng, &[2, 4, 5]);
    // A quota is used up after some seconds at the earliest, and rarely later than the last fault.
    let (many, few) = (STEP * rng.u32(12..60), STEP * rng.u32(2..12));
    let with = |divisor: u32| match kind {
        0 => Limit::Day { limit: many / divisor },
        1 => Limit::Window { limit: many / 2 / divisor, window_s: WINDOW_S },
        _ => Limit::Bucket { per_s: few / divisor, burst: many / 4 / divisor },
    };
    (with(1), with(part))
}

/// Up to `most` faults of one target.
fn track(
    rng: &mut Rng,
    most: u64,
    faults: &mut Vec<Fault>,
    mut draw: impl FnMut(&mut Rng) -> (Kind, Range<u64>),
) {
    let slot = (FAULTS_MS - CALM_MS) / most;
    for place in 0..most {
        if rng.bool() {
            let (kind, length) = draw(rng);
            let wait = rng.u64(..slot / 2);
            let for_ms = rng.u64(length).min(slot - wait - 1);
            faults.push(Fault { at_ms: CALM_MS + slot * place + wait, for_ms, kind });
        }
    }
}

/// A fault between a server and Redis, and its duration in ms.
fn network(rng: &mut Rng, server: usize) -> (Kind, Range<u64>) {
    /// Delay, ms: up to a little more than a decision may take (`deadline_ms`, 20).
    const SLOW_MS: Range<u64> = 1..25;
    /// Delay, ms, of messages that a network delivers after a partition; a server forgets a lease after ten seconds.
    const LATE_MS: Range<u64> = 1_000..11_000;
    let ms = std::time::Duration::from_millis;
    let slow = Faults::delay(ms(rng.u64(SLOW_MS)), ms(rng.u64(SLOW_MS)));
    let late = ms(rng.u64(LATE_MS));
    let rate = std::num::NonZeroU32::MIN.saturating_add(rng.u32(2_000..20_000));
    let network = |faults, name| Kind::Network { server, faults, name };
    match rng.u8(..8) {
        0 => (network(slow, "slow"), 300..4_000),
        // Messages of this time are held, and delivered on their old connection when nothing waits for them.
        1 | 2 => (network(Faults::delay(late, ms(0)), "held, delivered late"), 30..500),
        3 => (network(Faults::delay(ms(0), late), "answers late"), 30..500),
        4 => (network(Faults::cut_replies(), "answers lost"), 50..2_500),
        5 => (network(Faults::black_hole(), "all lost"), 50..3_000),
        6 => (network(Faults::limit(rate), "trickling"), 300..3_000),
        _ => (Kind::Closed { server }, 0..1_500),
    }
}

fn process(rng: &mut Rng, server: usize) -> (Kind, Range<u64>) {
    match rng.bool() {
        true => (Kind::ServerFrozen { server }, 50..5_000),
        // Clients try to connect to it for three seconds.
        false => (Kind::ServerKilled { server }, 0..1_000),
    }
}

fn redis(rng: &mut Rng, store: StoreKind, loses: bool) -> (Kind, Range<u64>) {
    /// Time, ms, that is usually longer than Sentinels wait for a master (two seconds) and need to replace it.
    const REPLACED_MS: Range<u64> = 3_500..5_000;
    match (store, loses, rng.u8(..3)) {
        (StoreKind::Lasts, _, 0 | 1) => (Kind::RedisKilled, 0..3_000),
        (StoreKind::Group, true, 0) => (Kind::RedisKilled, REPLACED_MS),
        (StoreKind::Group, true, 1) => (Kind::RedisFrozen, REPLACED_MS),
        // Too short for a Sentinel to consider it dead.
        (StoreKind::Group, false, _) => (Kind::RedisFrozen, 20..200),
        (StoreKind::Forgets, true, 0) => (Kind::RedisKilled, 0..2_000),
        (_, true, 1 | 2) => (Kind::Flushed, 0..1),
        _ => (Kind::RedisFrozen, 20..3_500),
    }
}

fn lowering(rng: &mut Rng) -> (Kind, Range<u64>) {
    // Servers check the file once a second, and leases of the higher limit end after 2.4 more: some of these faults are
    // over before that.
    (Kind::Lowered { apart_ms: pick(rng, &[0, 0, 100, 300]) }, 1_500..8_000)
}

fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())]
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_ms, for_ms, kind } = self;
        write!(f, "{at_ms} ms {kind}")?;
        if !matches!(kind, Kind::Flushed) {
            write!(f, " for {for_ms}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network { server, faults, name } => {
                write!(f, "net {server} {name}")?;
                match (faults.delay_to_server + faults.delay_to_client).as_millis() {
                    0 => Ok(()),
                    late => write!(f, " by {late}"),
                }
            }
            Self::Closed { server } => write!(f, "net {server} closed"),
            Self::ServerFrozen { server } => write!(f, "server {server} frozen"),
            Self::ServerKilled { server } => write!(f, "server {server} killed"),
            Self::RedisFrozen => write!(f, "redis frozen"),
            Self::RedisKilled => write!(f, "redis killed"),
            Self::Flushed => write!(f, "FLUSHALL"),
            Self::Lowered { apart_ms: 0 } => write!(f, "lowered"),
            Self::Lowered { apart_ms } => write!(f, "lowered, {apart_ms} apart,"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, lowered, leases, on_store_failure, store, per_s, http, faults: _ } = self;
        let store = match store {
            StoreKind::Forgets => "plain",
            StoreKind::Lasts => "appendfsync always",
            StoreKind::Group => "sentinels",
        };
        let leases = match leases {
            Leases::Off => "leases off",
            Leases::Usual => "leases",
            Leases::Half => "leases of half",
        };
        let http = if *http { ", one over HTTP" } else { "" };
        write!(
            f,
            "{limit} (lowered {lowered}), {on_store_failure}, {leases}, {store}, {per_s}/s{http}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_the_same_again_and_faults_end_in_time() {
        for seed in 0..500 {
            let (plan, again) = (Plan::of(seed), Plan::of(seed));
            assert_eq!(format!("{plan:?}"), format!("{again:?}"));
            for fault in plan.faults {
                assert!(fault.at_ms + fault.for_ms < FAULTS_MS, "seed {seed}: {fault}");
            }
        }
    }

    #[test]
    fn a_group_that_loses_nothing_is_not_made_to_replace_its_master() {
        for seed in 0..500 {
            let rng = &mut Rng::with_seed(seed);
            let (kind, _) = redis(rng, StoreKind::Group, false);
            assert!(matches!(kind, Kind::RedisFrozen));
        }
    }
}
