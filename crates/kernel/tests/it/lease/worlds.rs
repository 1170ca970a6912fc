//! The rules that can be leased, with their bounds, and the faults of a history.

use sluicegate_kernel::algorithm::{CalendarUnit, Delay, WindowKind};
use sluicegate_kernel::{
    FixedWindow, LeakyBucket, Micros, NamedRule, Rate, Rule, RuleSet, SlidingCounter, SlidingLog,
    SlidingWindow, TokenBucket,
};

use super::judge::Bound;

/// Rules, and their promises.
pub(crate) struct World {
    pub(crate) name: &'static str,
    pub(crate) rules: RuleSet,
    pub(crate) bounds: Vec<Bound>,
    /// The time in which its state changes much.
    pub(crate) span_us: u64,
    /// Length of the windows that a calendar is taken to have, if one of the rules has it.
    pub(crate) calendar_us: Option<u64>,
    /// The bound holds if the store's clock goes back. Aligned windows begin anew then.
    pub(crate) holds_back: bool,
    /// The distance to its bound, in millionths of a permit, to which a history must come to show that nothing is
    /// refused without need: half a permit, but for rules whose own bound is further away; `None` if it cannot be
    /// reached.
    pub(crate) near: Option<i128>,
}

/// The faults of a history.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) name: &'static str,
    /// Messages and answers are lost, repeated, late and out of order.
    pub(crate) network: bool,
    /// Holders crash, and come back under new names.
    pub(crate) crashes: bool,
    /// Clocks of holders run this much faster or slower at most, in parts of a thousand.
    pub(crate) drift: u64,
    /// The store's clock goes back.
    pub(crate) back: bool,
    /// Usage is reset.
    pub(crate) resets: bool,
}

pub(crate) const FAULTS: [Faults; 5] = [
    Faults { name: "none", ..NO_FAULTS },
    Faults { name: "network", network: true, ..NO_FAULTS },
    Faults { name: "crashes, 1 %", network: true, crashes: true, drift: 10, ..NO_FAULTS },
    Faults {
        name: "crashes, 5 %, resets",
        network: true,
        crashes: true,
        drift: 50,
        resets: true,
        ..NO_FAULTS
    },
    Faults {
        name: "crashes, 5 %, back",
        network: true,
        crashes: true,
        drift: 50,
        back: true,
        ..NO_FAULTS
    },
];

const NO_FAULTS: Faults =
    Faults { name: "", network: false, crashes: false, drift: 0, back: false, resets: false };

/// Half a permit, in millionths.
const HALF: i128 = 500_000;

const LONG_TICKS: &str = "token of long ticks";

pub(crate) fn worlds() -> Vec<World> {
    let mut worlds = buckets();
    worlds.extend(windows());
    worlds.push(several());
    worlds
}

fn buckets() -> Vec<World> {
    let (second, minute) = (1_000_000, 60_000_000);
    let smooth = |name, permits, period_us, depth| {
        let rule = token(permits, period_us, depth);
        (name, Rule::from(rule), Bound::Bucket { depth, permits, period_us })
    };
    let stepped = token(100, second, 200).refilled_by_interval();
    let new = token(50, second, 100).with_initial(10).unwrap();
    let meter = LeakyBucket::new(rate(100, second), 99, Delay::None).unwrap();
    // A bucket so deep that it counts in ticks of half a minute.
    let deep = 1 << 32;
    let year = 366 * 86_400_000_000;
    [
        smooth("token 1000/s burst 1000", 1_000, second, 1_000),
        smooth("token 100/s burst 50", 100, second, 50),
        smooth("token 10/s burst 200", 10, second, 200),
        smooth("token 7/min burst 3", 7, minute, 3),
        smooth(LONG_TICKS, (1 << 32) - 5, year, deep),
        (
            "token by interval",
            stepped.into(),
            Bound::Stepped { depth: 200, permits: 100, period_us: second },
        ),
        (
            "token initial 10",
            new.into(),
            Bound::Bucket { depth: 100, permits: 50, period_us: second },
        ),
        (
            "leaky 100/s",
            meter.into(),
            Bound::Bucket { depth: 100, permits: 100, period_us: second },
        ),
    ]
    .into_iter()
    .map(|(name, rule, bound)| world(name, rule, bound))
    .collect()
}

fn windows() -> Vec<World> {
    let (second, ten) = (Micros::SECOND, Micros::from_secs(10));
    let fixed = |limit, kind| FixedWindow::new(limit, kind).unwrap();
    let aligned = |limit, window: Micros| Bound::Aligned { limit, window_us: window.get() };
    let month = fixed(200, WindowKind::Calendar(CalendarUnit::Month, "UTC".into()));
    let window_us = ten.get();
    let mut worlds = vec![
        world("fixed 500/1s", fixed(500, WindowKind::Epoch(second)), aligned(500, second)),
        world("fixed 100/10s", fixed(100, WindowKind::Epoch(ten)), aligned(100, ten)),
        world("fixed first", fixed(100, WindowKind::First(ten)), Bound::Shown { limit: 100 }),
        world("calendar", month, aligned(200, Micros::from_secs(20))),
        world(
            "counter",
            SlidingCounter::new(200, ten).unwrap(),
            Bound::Counter { limit: 200, window_us },
        ),
        world(
            "sliding",
            SlidingWindow::new(200, ten, 10).unwrap(),
            Bound::Sliding { limit: 200, window_us },
        ),
        world("log", SlidingLog::new(100, ten).unwrap(), Bound::Sliding { limit: 100, window_us }),
    ];
    for aligned in &mut worlds[..5] {
        aligned.holds_back = false;
    }
    worlds[3].calendar_us = Some(20_000_000);
    worlds
}

fn several() -> World {
    let (second, window_us) = (1_000_000, 10_000_000);
    let named = |name: &str, rule: Rule| NamedRule::new(name, rule);
    let rules = vec![
        named("burst", token(100, second, 150).into()),
        named("log", SlidingLog::new(400, Micros::new(window_us)).unwrap().into()),
        named("window", SlidingWindow::new(300, Micros::new(window_us), 5).unwrap().into()),
    ];
    World {
        name: "three rules",
        rules: RuleSet::new(rules).unwrap(),
        bounds: vec![
            Bound::Bucket { depth: 150, permits: 100, period_us: second },
            Bound::Sliding { limit: 400, window_us },
            Bound::Sliding { limit: 300, window_us },
        ],
        span_us: window_us,
        calendar_us: None,
        holds_back: true,
        near: Some(HALF),
    }
}

fn world(name: &'static str, rule: impl Into<Rule>, bound: Bound) -> World {
    let span_us = match bound {
        Bound::Bucket { depth, permits, period_us }
        | Bound::Stepped { depth, permits, period_us } => {
            let span_us = u128::from(depth) * u128::from(period_us) / u128::from(permits);
            u64::try_from(span_us).unwrap().min(300_000_000)
        }
        Bound::Aligned { window_us, .. }
        | Bound::Sliding { window_us, .. }
        | Bound::Counter { window_us, .. } => window_us,
        Bound::Shown { .. } => 10_000_000,
    };
    let rules = RuleSet::single("r", rule);
    let near = match bound {
        // The bound has one period more, which counts only if the interval begins at its very end.
        Bound::Stepped { permits, .. } => Some(1_000_000 * i128::from(permits) + HALF),
        // A long tick gives back late.
        _ if name == LONG_TICKS => None,
        _ => Some(HALF),
    };
    World { name, rules, bounds: vec![bound], span_us, calendar_us: None, holds_back: true, near }
}

fn token(permits: u64, period_us: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(rate(permits, period_us), burst).unwrap()
}

fn rate(permits: u64, period_us: u64) -> Rate {
    Rate::new(permits, Micros::new(period_us)).unwrap()
}
