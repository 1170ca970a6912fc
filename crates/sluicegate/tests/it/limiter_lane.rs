//! The lane decides like the kernel, and its readers and writers never mislead each other.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the checker needs only a part of it")]
#[path = "../../src/limiter/fast_path.rs"]
mod fast_path;

use std::sync::Arc;

use fast_path::{FastCheck, FastPath, Terms};
use proptest::prelude::*;
use sluicegate::{
    Cost, Decision, ManualClock, Micros, Rate, RateLimiter, Reservation, TokenBucket, Verb,
};
use sluicegate_kernel::{Moment, RuleSet, States};

/// The atomics that the model checker steps through.
mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}

const SLOW: Terms = Terms { zero_us: 0, horizon_us: 1_000, per_us: 1, per_permit: 10, depth: 20 };
const FAST: Terms = Terms { zero_us: 0, horizon_us: 1_000, per_us: 5, per_permit: 7, depth: 70 };

/// Decisions must be made by the terms of the word they are made on, in every interleaving.
#[test]
fn no_decision_mixes_the_terms_of_two_rules() {
    loom::model(|| {
        let lane = loom::sync::Arc::new(FastPath::closed());
        lane.set_terms(SLOW);
        lane.open(1, 20);
        let taker = {
            let lane = loom::sync::Arc::clone(&lane);
            loom::thread::spawn(move || lane.take(1, || 10))
        };
        let before = lane.close().expect("the lane was open");
        assert!(before == 20 || before == 30, "{before}");
        lane.set_terms(FAST);
        lane.open(2, before);
        let taking = taker.join().expect("the taker does not panic");
        let after = lane.close().expect("the lane was open");
        match taking {
            FastCheck::Closed => assert_eq!(after, before),
            FastCheck::Taken { used, terms: SLOW } => {
                assert_eq!((used, before, after), (20, 30, 30));
            }
            // At 10 µs, 50 units have flowed in: all that was in use.
            FastCheck::Taken { used, terms: FAST } => assert_eq!((used, after), (7, 57)),
            mixed => panic!("{mixed:?}, {before} then {after}"),
        }
    });
}

/// With one permit left, two takers and a change of the rule: one permit passes.
#[test]
fn a_refusal_is_made_by_one_rule_and_a_permit_passes_once() {
    loom::model(|| {
        let lane = loom::sync::Arc::new(FastPath::closed());
        lane.set_terms(SLOW);
        lane.open(1, 10);
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let lane = loom::sync::Arc::clone(&lane);
                loom::thread::spawn(move || lane.take(1, || 0))
            })
            .collect();
        let takings: Vec<_> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
        let taken =
            |taking: &&FastCheck| matches!(taking, FastCheck::Taken { used: 20, terms: SLOW });
        let refused =
            |taking: &&FastCheck| matches!(taking, FastCheck::Refused { used: 20, terms: SLOW });
        assert_eq!(takings.iter().filter(taken).count(), 1, "{takings:?}");
        assert_eq!(takings.iter().filter(refused).count(), 1, "{takings:?}");
    });
}

/// A refusal by a full bucket, after a thread read its terms half changed, would show here.
#[test]
fn no_refusal_mixes_the_terms_of_two_rules() {
    loom::model(|| {
        let lane = loom::sync::Arc::new(FastPath::closed());
        lane.set_terms(SLOW);
        lane.open(1, 20);
        let taker = {
            let lane = loom::sync::Arc::clone(&lane);
            loom::thread::spawn(move || lane.take(1, || 0))
        };
        lane.close().expect("the lane was open");
        lane.set_terms(FAST);
        lane.open(2, 70);
        match taker.join().expect("the taker does not panic") {
            FastCheck::Closed
            | FastCheck::Refused { used: 20, terms: SLOW }
            | FastCheck::Refused { used: 70, terms: FAST } => {}
            mixed => panic!("{mixed:?}"),
        }
    });
}

/// While the clock stands still, permits taken and not given back are the missing ones: through the
/// lane and past it, however often it is closed and opened in between.
#[test]
fn no_permit_is_lost_or_made_between_the_lane_and_the_lock() {
    const BURST: u64 = 1_000_000;
    const ROUNDS: u64 = 300_000;
    let clock = Arc::new(ManualClock::default());
    let rule = TokenBucket::new(Rate::per_second(1).unwrap(), BURST).unwrap();
    let limiter = RateLimiter::with_clock(rule, clock).unwrap();
    let (two, three) = (Cost::new(2).unwrap(), Cost::new(3).unwrap());
    let taken: u64 = std::thread::scope(|scope| {
        let takers = (0..2)
            .map(|_| scope.spawn(|| (0..ROUNDS).filter(|_| limiter.try_acquire()).count() as u64));
        let takers: Vec<_> = takers.collect();
        let others = scope.spawn(|| {
            (0..ROUNDS).fold(0, |taken, _| {
                assert!(limiter.reserve(3, Micros::ZERO).unwrap().wait().is_zero());
                let refunded = limiter.refund(two).granted();
                taken + 3 - refunded + limiter.at_most(two).granted()
                    - limiter.refund(three).granted()
            })
        });
        takers.into_iter().chain([others]).map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(limiter.peek(Cost::ONE).remaining, BURST - taken);
}

#[derive(Clone, Debug)]
enum Op {
    Wait(u64),
    Check(u64),
    TryAcquire(u32),
    Peek(u64),
    AtMost(u64),
    Refund(u64),
    Reserve(u32, u64),
    /// Cancel the reservation that is that far back.
    Cancel(usize),
    SetRule(TokenBucket),
}

fn bucket() -> impl Strategy<Value = TokenBucket> {
    let permits = prop_oneof![1..=20_u64, 1..=1_000_000_000_u64];
    let period = prop_oneof![
        Just(1_000_000_u64),
        Just(1_u64),
        Just(86_400_000_000_u64),
        1..=100_000_000_000_u64
    ];
    let burst = prop_oneof![1..=20_u64, 1..=1_u64 << 32];
    (permits, period, burst, any::<bool>()).prop_map(|(permits, period, burst, smooth)| {
        let rate = Rate::new(permits, Micros::new(period)).unwrap();
        let bucket = TokenBucket::new(rate, burst).unwrap();
        if smooth { bucket } else { bucket.refilled_by_interval() }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let cost = || prop_oneof![1..=3_u64, 1..=30_u64, 1..=1_u64 << 31];
    let cost32 = || prop_oneof![1..=3_u32, 1..=30_u32, 1..=1_u32 << 31];
    let span = || prop_oneof![0..=3_u64, 0..=300_000_u64, 0..=100_000_000_000_u64];
    prop_oneof![
        4 => span().prop_map(Op::Wait),
        4 => cost().prop_map(Op::Check),
        2 => cost32().prop_map(Op::TryAcquire),
        1 => cost().prop_map(Op::Peek),
        1 => cost().prop_map(Op::AtMost),
        1 => cost().prop_map(Op::Refund),
        2 => (cost32(), span()).prop_map(|(permits, span)| Op::Reserve(permits, span)),
        1 => (0..3_usize).prop_map(Op::Cancel),
        1 => bucket().prop_map(Op::SetRule),
    ]
}

/// The kernel by itself, with the same input.
struct Oracle {
    rules: RuleSet,
    states: States,
    now: u64,
    /// The number of this state, counted by changes.
    version: u64,
    versions: u64,
}

impl Oracle {
    fn decide(&mut self, verb: &Verb) -> Decision {
        let before = self.states.clone();
        let at = Moment::new(Micros::new(self.now));
        let decision = self.rules.decide(&mut self.states, verb, &at).unwrap().decision;
        if matches!(verb, Verb::Peek { .. }) || !decision.allowed() {
            self.states = before;
        } else {
            self.change();
        }
        decision
    }

    fn set_rule(&mut self, rule: &TokenBucket) {
        let rules = RuleSet::single("rule", rule.clone());
        if rules != self.rules {
            let at = Moment::new(Micros::new(self.now));
            self.states = rules.take_over(&self.rules, &self.states, &at);
            self.change();
        }
        self.rules = rules;
    }

    fn change(&mut self) {
        self.versions += 1;
        self.version = self.versions;
    }

    /// Returns the visible part of `states` now.
    fn sight(&self, states: &States) -> Decision {
        let at = Moment::new(Micros::new(self.now));
        let verb = Verb::Peek { cost: Cost::ONE };
        self.rules.decide(&mut states.clone(), &verb, &at).unwrap().decision
    }
}

/// A reservation, and the state of the oracle before and after it.
struct Booked<'a> {
    reservation: Reservation<'a, Arc<ManualClock>>,
    before: (u64, States),
    after: (u64, States),
}

/// The limiter and the oracle, with the same input.
struct Both<'a> {
    limiter: &'a RateLimiter<Arc<ManualClock>>,
    oracle: Oracle,
    booked: Vec<Booked<'a>>,
}

impl<'a> Both<'a> {
    fn run(&mut self, op: &Op) {
        let cost_of = |permits: u64| Cost::new(permits).unwrap();
        match *op {
            Op::Wait(span) => {
                self.limiter.clock().advance(Micros::new(span));
                self.oracle.now += span;
            }
            Op::Check(permits) => {
                let cost = cost_of(permits);
                assert_eq!(self.limiter.check(cost), self.oracle.decide(&Verb::Check { cost }));
            }
            Op::TryAcquire(permits) => {
                let decision = self.oracle.decide(&Verb::Check { cost: cost_of(permits.into()) });
                let passed = self.limiter.try_acquire_n(permits);
                assert_eq!(passed.is_err(), decision.retry_after().is_none());
                assert_eq!(passed.unwrap_or(false), decision.allowed());
            }
            Op::Peek(permits) => {
                let cost = cost_of(permits);
                assert_eq!(self.limiter.peek(cost), self.oracle.decide(&Verb::Peek { cost }));
            }
            Op::AtMost(permits) => {
                let cost = cost_of(permits);
                assert_eq!(self.limiter.at_most(cost), self.oracle.decide(&Verb::AtMost { cost }));
            }
            Op::Refund(permits) => {
                let cost = cost_of(permits);
                assert_eq!(self.limiter.refund(cost), self.oracle.decide(&Verb::Refund { cost }));
            }
            Op::Reserve(permits, span) => self.reserve(permits, Micros::new(span)),
            Op::Cancel(back) => self.cancel(back),
            Op::SetRule(ref rule) => {
                self.limiter.set_rule(rule.clone()).unwrap();
                self.oracle.set_rule(rule);
            }
        }
    }

    fn reserve(&mut self, permits: u32, max_wait: Micros) {
        let before = (self.oracle.version, self.oracle.states.clone());
        let cost = Cost::new(permits.into()).unwrap();
        let decision = self.oracle.decide(&Verb::Reserve { cost, max_wait });
        match self.limiter.reserve(permits, max_wait) {
            Ok(reservation) => {
                assert_eq!(reservation.decision(), decision);
                let after = (self.oracle.version, self.oracle.states.clone());
                self.booked.push(Booked { reservation, before, after });
            }
            Err(error) => assert!(!decision.allowed(), "{error}"),
        }
    }

    fn cancel(&mut self, back: usize) {
        let Some(place) = self.booked.len().checked_sub(1 + back) else { return };
        let Booked { reservation, before, after } = self.booked.remove(place);
        let oracle = &mut self.oracle;
        let in_time = Micros::new(oracle.now) < reservation.ready_at();
        let untouched = oracle.version == after.0;
        let cancelled = reservation.cancel();
        assert!(cancelled || !(in_time && untouched), "it could be given back");
        if cancelled {
            assert!(in_time, "its time had come");
            // Permits taken since may have been given back since.
            let same = untouched || oracle.sight(&oracle.states) == oracle.sight(&after.1);
            assert!(same, "it had been booked upon");
            (oracle.version, oracle.states) = before;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn the_lane_decides_like_the_kernel(
        rule in bucket(),
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        let clock = Arc::new(ManualClock::at(Micros::new(7)));
        let limiter = RateLimiter::with_clock(rule.clone(), clock).unwrap();
        let rules = RuleSet::single("rule", rule);
        let oracle = Oracle { rules, states: States::default(), now: 7, version: 0, versions: 0 };
        let mut both = Both { limiter: &limiter, oracle, booked: Vec::new() };
        for op in &ops {
            both.run(op);
        }
    }
}
