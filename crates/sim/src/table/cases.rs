//! The rules, fleets and loads of the table.

use super::Case;
use super::load::{KeyDistribution, Load};
use crate::plan::{MS, RuleSpec, SECOND, WindowSpec};

/// All cases, in the order of the table.
pub(super) fn all() -> Vec<Case> {
    [buckets(), uneven(), faulty(), wide(), windows(), many_keys()].into_iter().flatten().collect()
}

/// Returns cases of one key of a token bucket, with even demand.
fn buckets() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rate, nodes) in [(2_000, 4), (10_000, 8), (500, 4), (200, 4)] {
        for times in [0.5, 0.9, 1.1, 2.0, 5.0] {
            let each = f64::from(rate) * times / nodes as f64;
            let name =
                format!("{rate}/s burst {rate}, N={nodes}, ×{times} ({each:.0}/s a node), 10 s");
            cases.push(case(name, bucket(rate, rate), nodes, 10, Load::even(each)));
        }
    }
    for (rate, nodes, times, each) in [
        (1_000, 8, 2.0, 250.0),
        (2_000, 3, 2.0, 1_333.0),
        (2_000, 4, 1.1, 550.0),
        (500, 4, 1.1, 137.0),
    ] {
        let name = format!("{rate}/s burst {rate}, N={nodes}, ×{times}, 60 s");
        cases.push(case(name, bucket(rate, rate), nodes, 60, Load::even(each)));
    }
    cases
}

/// Demand that moves, or comes in bursts: 2000/s on four nodes.
fn uneven() -> Vec<Case> {
    let on = |name: &str, burst, span_s, load| {
        case(name.to_owned(), bucket(2_000, burst), 4, span_s, load)
    };
    let bursts = |at: f64, _| if at % 2.0 > 1.9 { 10_000.0 } else { 100.0 };
    vec![
        on(
            "traffic jumps between 4 nodes each 0.5 s, ×1.5",
            2_000,
            10,
            Load::varied(
                3_000.0,
                |at, node| if half_seconds(at) % 4 == node { 3_000.0 } else { 40.0 },
            ),
        ),
        on(
            "skew 70/20/9/1, ×2",
            2_000,
            10,
            Load::varied(2_800.0, |_, node| 4_000.0 * [0.7, 0.2, 0.09, 0.01][node]),
        ),
        on("calm ×0.2, bursts ×20 for 100 ms each 2 s", 2_000, 20, Load::varied(10_000.0, bursts)),
        on("the same bursts, burst 400", 400, 20, Load::varied(10_000.0, bursts)),
        on(
            "nodes on and off each 0.5 s, ×2",
            2_000,
            10,
            Load::varied(2_000.0, |at, node| {
                if (half_seconds(at) + node).is_multiple_of(2) { 2_000.0 } else { 0.0 }
            }),
        ),
    ]
}

/// Twice the limit of 2000/s on four nodes, and something goes wrong.
fn faulty() -> Vec<Case> {
    let on = |name: &str, span_s| {
        case(format!("×2, {name}"), bucket(2_000, 2_000), 4, span_s, Load::even(1_000.0))
    };
    let flushed_at_us = [3, 8, 13, 18].map(|at| at * SECOND).to_vec();
    vec![
        Case { lost_percent: 1.0, ..on("1 % of messages lost", 10) },
        Case { lost_percent: 5.0, ..on("5 % of messages lost", 10) },
        Case { dies_every_us: Some(SECOND), ..on("a node dies each second", 20) },
        Case { dies_every_us: Some(200 * MS), ..on("a node dies each 200 ms", 10) },
        Case { round_trip_us: 10 * MS, ..on("round trip 10 ms", 10) },
        Case { flushed_at_us, ..on("FLUSHALL at 3, 8, 13, 18 s", 22) },
    ]
}

/// Many nodes.
fn wide() -> Vec<Case> {
    let five = RuleSpec::Window { window: WindowSpec::Fixed, limit: 5, window_us: 60 * SECOND };
    vec![
        case(
            "20 nodes, 100/s each, 1000/s burst 1000".to_owned(),
            bucket(1_000, 1_000),
            20,
            20,
            Load::even(100.0),
        ),
        case(
            "64 nodes, 500/s each, 16000/s burst 16000".to_owned(),
            bucket(16_000, 16_000),
            64,
            10,
            Load::even(500.0),
        ),
        case("5/min on 20 nodes, 0.5/s each".to_owned(), five, 20, 300, Load::even(0.5)),
    ]
}

/// Rules that give back in steps.
fn windows() -> Vec<Case> {
    let (one, ten) = (SECOND, 10 * SECOND);
    let rules = [
        (WindowSpec::Fixed, 2_000, one, 500.0),
        (WindowSpec::Fixed, 500, one, 125.0),
        (WindowSpec::Fixed, 5_000, ten, 125.0),
        (WindowSpec::Buckets, 20_000, ten, 500.0),
        (WindowSpec::Buckets, 5_000, ten, 125.0),
        (WindowSpec::Log, 5_000, ten, 125.0),
        (WindowSpec::Estimate, 20_000, ten, 500.0),
    ];
    let mut cases = Vec::new();
    for (window, limit, window_us, each) in rules {
        let rule = RuleSpec::Window { window, limit, window_us };
        for times in [0.5, 1.1, 2.0] {
            let (algorithm, seconds) = (window.name(), window_us / SECOND);
            let name = format!("{algorithm} {limit}/{seconds}s, N=4, ×{times}, 60 s");
            cases.push(case(name, rule, 4, 60, Load::even(each * times)));
        }
    }
    cases
}

/// Keys of which few are hot: 1000/s burst 1000 each, on four nodes.
fn many_keys() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, each, keys| {
        cases.push(case(name, bucket(1_000, 1_000), 4, 6, Load::even(each).of(keys)));
    };
    for (keys, each) in [(10_000, 2_500), (10_000, 25_000), (100, 25_000)] {
        for exponent in [1.0, 1.2] {
            let name = format!("Zipf({exponent}), {keys} keys, {each}/s a node, N=4");
            add(name, f64::from(each), KeyDistribution::zipf(keys, exponent));
        }
    }
    add(
        "uniform, 10000 keys, 2500/s a node, N=4".to_owned(),
        2_500.0,
        KeyDistribution::Uniform(10_000),
    );
    cases
}

/// Returns a case without a fault, 1 ms away from the store.
fn case(name: String, rule: RuleSpec, nodes: usize, span_s: u64, load: Load) -> Case {
    Case {
        name,
        rule,
        nodes,
        span_us: span_s * SECOND,
        round_trip_us: MS,
        lost_percent: 0.0,
        dies_every_us: None,
        flushed_at_us: Vec::new(),
        load,
    }
}

fn bucket(rate: u32, burst: u32) -> RuleSpec {
    RuleSpec::TokenBucket { permits: rate.into(), period_us: SECOND, burst: burst.into() }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a minute at most")]
fn half_seconds(at: f64) -> usize {
    (at * 2.0) as usize
}
