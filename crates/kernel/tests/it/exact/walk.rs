//! Random walks: requests, their times, and the number of steps that each property takes.

use std::fmt::Debug;

use proptest::num::usize::BinarySearch;
use proptest::prelude::*;
use proptest::strategy::NewTree;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use sluicegate_kernel::limits::{COST_MAX, SPAN_MAX_US};
use sluicegate_kernel::{Cost, Decision, Micros, PermitId, ProcessId, Verb};

/// Walks and steps of each property. The seed is fixed, so that a red run means changed code;
/// `SLUICEGATE_WALKS=50` takes fifty times as many walks from a fresh seed.
pub(crate) const BUDGETS: &[(&str, u32, usize)] = &[
    ("token_bucket is exact", 1_500, 100),
    ("token_bucket with a coarse tick", 400, 100),
    ("token_bucket by interval", 600, 100),
    ("leaky_bucket is exact", 1_200, 100),
    ("leaky_bucket with a coarse tick", 300, 100),
    ("fixed_window", 1_000, 100),
    ("fixed_window by calendar", 600, 100),
    ("sliding_window", 800, 100),
    ("sliding_counter is exact", 1_000, 100),
    ("sliding_counter with a coarse step", 300, 100),
    ("sliding_log", 1_000, 100),
    ("concurrency", 1_000, 100),
    ("smooth_bursty", 800, 100),
    ("smooth_bursty in units", 1_000, 60),
    ("smooth_warmup", 800, 100),
    ("bucket bounds", 1_000, 100),
    ("interval bounds", 400, 60),
    ("window bounds", 1_000, 100),
    ("counter bounds", 500, 100),
    ("window slack", 400, 100),
    ("honest answers", 3_000, 60),
    ("arbitrary instants", 2_000, 40),
    ("configure", 2_000, 30),
    ("proportional windows", 1_500, 30),
    ("token_bucket configured", 1_000, 60),
    ("token_bucket configured in proportion", 500, 60),
    ("packed states", 2_000, 60),
    ("sets of rules", 1_500, 60),
    ("stored states", 1_500, 40),
    ("stored sets", 300, 30),
    ("stored garbage", 1_500, 20),
];

#[test]
fn the_walks_together_take_more_than_a_million_steps() {
    let steps: usize = BUDGETS.iter().map(|(_, walks, steps)| *walks as usize * steps).sum();
    println!("{steps} steps in {} properties", BUDGETS.len());
    assert!(steps >= 1_000_000, "{steps}");
}

/// Steps of each walk of the property `name`.
pub(crate) fn steps(name: &str) -> usize {
    BUDGETS.iter().find(|budget| budget.0 == name).expect("a budget has this name").2
}

/// The result of a property for one walk.
pub(crate) type Proof = Result<(), TestCaseError>;

/// Takes the walks of the property `name`, each drawn from `strategy`.
pub(crate) fn prove<S: Strategy>(name: &str, strategy: S, property: impl Fn(S::Value) -> Proof) {
    let walks = BUDGETS.iter().find(|budget| budget.0 == name).expect("a budget has this name").1;
    let more = std::env::var("SLUICEGATE_WALKS").ok().map(|times| times.parse::<u32>().unwrap());
    let cases = walks * more.unwrap_or(1);
    let config = Config {
        cases,
        max_local_rejects: cases.saturating_mul(200),
        rng_seed: if more.is_some() { RngSeed::Random } else { RngSeed::Fixed(1) },
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Config::default()
    };
    match TestRunner::new(config).run(&strategy, property) {
        Ok(()) => {}
        Err(TestError::Fail(reason, walk)) => panic!("{name}: {reason}\n{walk:?}"),
        Err(TestError::Abort(reason)) => panic!("{name}: {reason}"),
    }
}

/// Checks that `got` is what was expected; `context` names the step.
pub(crate) fn same<T: PartialEq + Debug>(
    got: &T,
    expected: &T,
    context: impl FnOnce() -> String,
) -> Proof {
    holds(got == expected, || format!("{}\n got {got:?}\n not {expected:?}", context()))
}

/// Checks that `truth` is true; `context` is the message if not.
pub(crate) fn holds(truth: bool, context: impl FnOnce() -> String) -> Proof {
    if truth { Ok(()) } else { Err(TestCaseError::fail(context())) }
}

/// A walk: where it begins and its steps.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    pub(crate) start: u64,
    pub(crate) steps: Vec<Step>,
}

/// One step: time moves, then a request comes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) time: Time,
    pub(crate) verb: Verb,
}

/// A move of time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    /// This many µs ahead.
    Ahead(u64),
    /// To the next change that the last answer reported, and this many µs from there (-1, 0 or 1).
    Hint(i64),
    /// This many µs back.
    Back(u64),
}

/// The clock of a walk. It stops at 2^52 µs (140 years), far from the end of time.
#[derive(Debug)]
pub(crate) struct Clock {
    pub(crate) now: u64,
    hint: u64,
}

const CLOCK_MAX: u64 = 1 << 52;

impl Clock {
    pub(crate) fn new(start: u64) -> Self {
        Self { now: start, hint: 0 }
    }

    pub(crate) fn go(&mut self, time: Time) -> u64 {
        self.now = match time {
            Time::Ahead(us) => self.now.saturating_add(us),
            Time::Hint(off) => self.now.saturating_add(self.hint.saturating_add_signed(off)),
            Time::Back(us) => self.now.saturating_sub(us),
        };
        self.now = self.now.min(CLOCK_MAX);
        self.now
    }

    /// Remembers the time of the next change that the answer reports.
    pub(crate) fn hear(&mut self, decision: &Decision) {
        let retry = decision.retry_after().unwrap_or(Micros::ZERO);
        let next = [decision.wait(), retry, decision.reset_after];
        let hint = next.into_iter().find(|span| *span > Micros::ZERO);
        self.hint = hint.map_or(0, Micros::get);
    }
}

/// The parameters of the walks over one rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Largest cost that can pass.
    pub(crate) limit: u64,
    /// A span in which the rule's state changes much.
    pub(crate) scale_us: u64,
    /// Time goes back now and then.
    pub(crate) goes_back: bool,
    /// Permits are given back now and then.
    pub(crate) gives_back: bool,
    pub(crate) steps: usize,
}

/// Walks of this shape that check, reserve, peek, refund and reset.
pub(crate) fn walks(shape: Shape) -> impl Strategy<Value = Walk> {
    walks_with(shape, verbs(shape))
}

/// Walks of this shape with `verbs`.
pub(crate) fn walks_with(
    shape: Shape,
    verbs: impl Strategy<Value = Verb>,
) -> impl Strategy<Value = Walk> {
    let start = prop_oneof![Just(0), Just(1_700_000_000_000_000), 0..CLOCK_MAX / 2];
    let step = (times(shape), verbs).prop_map(|(time, verb)| Step { time, verb });
    let steps = proptest::collection::vec(step, shape.steps);
    (start, Length(shape.steps), steps).prop_map(|(start, length, mut steps)| {
        steps.truncate(length);
        Walk { start, steps }
    })
}

/// The length of a walk: always this long, until a failure is made smaller.
#[derive(Debug)]
struct Length(usize);

impl Strategy for Length {
    type Tree = BinarySearch;
    type Value = usize;

    fn new_tree(&self, _: &mut TestRunner) -> NewTree<Self> {
        Ok(BinarySearch::new(self.0))
    }
}

fn times(shape: Shape) -> BoxedStrategy<Time> {
    let scale = shape.scale_us.max(1);
    let ahead = prop_oneof![
        6 => Just(Time::Ahead(0)),
        3 => Just(Time::Ahead(1)),
        8 => (0..=scale.saturating_mul(2)).prop_map(Time::Ahead),
        8 => (-1_i64..=1).prop_map(Time::Hint),
        1 => (0..1_u64 << 46).prop_map(Time::Ahead),
    ];
    if !shape.goes_back {
        return ahead.boxed();
    }
    let back = prop_oneof![
        2 => Just(Time::Back(1)),
        2 => (0..=scale.saturating_mul(3)).prop_map(Time::Back),
        1 => (0..1_u64 << 50).prop_map(Time::Back),
    ];
    prop_oneof![8 => ahead, 1 => back].boxed()
}

/// Costs around what the rule can let pass.
pub(crate) fn costs(limit: u64) -> impl Strategy<Value = Cost> {
    let limit = limit.clamp(1, COST_MAX);
    let permits = prop_oneof![
        5 => Just(1),
        5 => 1..=limit,
        1 => Just(limit),
        1 => Just((limit + 1).min(COST_MAX)),
        1 => 1..=COST_MAX,
    ];
    permits.prop_map(|permits| Cost::new(permits).unwrap())
}

fn verbs(shape: Shape) -> BoxedStrategy<Verb> {
    let cost = || costs(shape.limit);
    let waits = prop_oneof![
        Just(0),
        0..=shape.scale_us.saturating_mul(4),
        Just(SPAN_MAX_US),
        Just(u64::MAX),
    ];
    let asks = prop_oneof![
        10 => cost().prop_map(|cost| Verb::Check { cost }),
        4 => (cost(), waits).prop_map(|(cost, max_wait)| {
            Verb::Reserve { cost, max_wait: Micros::new(max_wait) }
        }),
        3 => cost().prop_map(|cost| Verb::AtMost { cost }),
        2 => cost().prop_map(|cost| Verb::Peek { cost }),
    ];
    if !shape.gives_back {
        return asks.boxed();
    }
    prop_oneof![
        20 => asks,
        3 => cost().prop_map(|cost| Verb::Refund { cost }),
        1 => Just(Verb::Reset),
    ]
    .boxed()
}

/// Acquire, release, renew and peek, with a handful of permit names.
pub(crate) fn permit_verbs(limit: u64) -> impl Strategy<Value = Verb> {
    let permit = || (0_u128..12).prop_map(PermitId);
    let process = || (0_u64..3).prop_map(ProcessId);
    prop_oneof![
        6 => (costs(limit), permit(), process())
            .prop_map(|(cost, permit, process)| Verb::Wait { cost, permit, process }),
        2 => (permit(), process()).prop_map(|(permit, process)| Verb::Leave { permit, process }),
        8 => (costs(limit), permit()).prop_map(|(cost, permit)| Verb::Acquire { cost, permit }),
        4 => permit().prop_map(|permit| Verb::Release { permit }),
        3 => permit().prop_map(|permit| Verb::Renew { permit }),
        2 => costs(limit).prop_map(|cost| Verb::Peek { cost }),
        1 => costs(limit).prop_map(|cost| Verb::Refund { cost }),
        1 => Just(Verb::Reset),
    ]
}
