//! Histories of keys that have so many requests that they are leased.
//!
//! Each has a theme, so that rare events come together: writes that are lost while a holder lives, more holders
//! than a key has places for, short terms after long ones.

use fastrand::Rng;

use crate::token::{Cut, Generation};

use super::{
    Arrival, Ask, Fault, FaultKind, LeasesSpec, LoadFeatures, MS, OnFailure, Plan, PolicySpec,
    RuleSpec, SECOND, WindowSpec, ask, changed, clock_step, generator, rule,
};

/// Requests of one load at most.
const ARRIVALS_MAX: usize = 600;

/// The faults and requests that a history of hot keys brings together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    /// All that can go wrong.
    Any,
    /// The store loses writes, and nothing else goes wrong.
    Lost,
    /// The network loses, repeats and mixes up messages.
    Network,
    /// The clocks of nodes and of the store are set, or run too fast.
    Clocks,
    /// Processes come and go.
    Processes,
    /// Policies change, and permits are given back.
    Changes,
    /// More processes than a key has places for holders.
    Crowd,
    /// One node that loses its store again and again, while it leases much.
    Outages,
}

impl Plan {
    /// Makes keys hot: larger limits, longer deadlines. Returns the theme of the history.
    pub(super) fn make_hot(&mut self, cut: &Cut) -> Theme {
        let mut rng = generator(self.seed, 1);
        for rule in &mut self.versions[0].rules {
            *rule = hot(&mut rng, rule);
        }
        if rng.u8(0..4) == 0 {
            self.deadline_us = [60, 100, 200][rng.usize(0..3)] * MS;
        }
        let theme = match rng.u8(0..32) {
            0..=5 => Theme::Any,
            6..=11 => Theme::Lost,
            12..=17 => Theme::Network,
            18..=21 => Theme::Clocks,
            22..=24 => Theme::Processes,
            25..=30 => Theme::Changes,
            _ => Theme::Crowd,
        };
        // Shares go by the wall clock of their node: the effect of a wrong one is not a matter of leases.
        if matches!(theme, Theme::Lost | Theme::Clocks) || theme == Theme::Any && rng.bool() {
            self.on_failure = OnFailure::Deny;
        }
        // Drawn from a generator of their own, so that other plans stay as they are.
        let has_outages = self.generation >= Generation::Second
            && theme == Theme::Network
            && generator(self.seed, 2).bool();
        let theme = if has_outages { Theme::Outages } else { theme };
        if theme == Theme::Outages {
            (self.nodes, self.keys, self.on_failure) = (1, 1, OnFailure::Local);
            self.versions[0].leases = LeasesSpec::Large;
            // Leased permits have flowed out by the store's usage when they are spent, and answers come at once.
            let (permits, burst) = (rng.u64(100..=300), rng.u64(100..=200));
            self.versions[0].rules =
                vec![RuleSpec::TokenBucket { permits, period_us: SECOND, burst }];
            self.deadline_us = 5 * MS;
            (self.latency_us, self.jitter_us) = (self.latency_us.min(300), self.jitter_us.min(300));
        }
        if theme == Theme::Crowd {
            // Each process lives as long as it takes to become a holder; its lease lasts two seconds.
            (self.nodes, self.keys) = (6.min(cut.nodes), 1);
            let rules = vec![RuleSpec::TokenBucket {
                permits: rng.u64(300..=1_000),
                period_us: SECOND,
                burst: rng.u64(600..=1_200),
            }];
            self.versions[0] = PolicySpec { rules, carry: "usage", leases: LeasesSpec::Large };
        }
        // The cost of lost writes is measured with the default shares.
        if theme != Theme::Lost && rng.u8(0..3) == 0 {
            self.versions[0].leases = LeasesSpec::Large;
        }
        theme
    }

    /// Adds a slow load that has a lease; and, as each outage begins, others that spend it and then ask for
    /// more.
    fn add_outage_load(&mut self, number: u32) {
        let mut rng = generator(self.seed, 100 + u64::from(number));
        let mut made = 0;
        let mut ask = |plan: &mut Self, at, cost| {
            let arrival = Arrival {
                at,
                load: number,
                number: made,
                node: 0,
                key: 0,
                ask: Ask::Check(cost),
                is_batched: false,
            };
            plan.arrivals.push(arrival);
            made += 1;
        };
        let Some(outage) = number.checked_sub(1) else {
            let mut at = rng.u64(0..100 * MS);
            let gap = rng.u64(self.span_us / ARRIVALS_MAX as u64..=50 * MS);
            while at < self.span_us {
                ask(self, at, 1);
                at += rng.u64(gap / 2..=gap * 3 / 2);
            }
            return;
        };
        let begin = self.changes_at(outage) + rng.u64(MS..=10 * MS);
        (0..rng.u64(5..=15)).for_each(|nth| ask(self, begin + nth * 200, rng.u64(1..=6)));
        let mut at = begin + rng.u64(20 * MS..=100 * MS);
        for _ in 0..rng.u64(40..=100) {
            ask(self, at, rng.u64(1..=4));
            at += rng.u64(MS / 2..=4 * MS);
        }
    }

    pub(super) fn add_hot_load(&mut self, number: u32, theme: Theme, features: LoadFeatures) {
        if theme == Theme::Outages {
            return self.add_outage_load(number);
        }
        let mut rng = generator(self.seed, 100 + u64::from(number));
        let (node, key) = (rng.usize(0..6) % self.nodes, rng.usize(0..3) % self.keys);
        let limit = self.versions[0].rules.iter().map(RuleSpec::limit).min().unwrap_or(1);
        let cost_max = match rng.u8(0..12) {
            _ if theme == Theme::Lost => 1,
            0..=7 => 1,
            8..=10 => 1 << rng.u64(1..4),
            _ => limit,
        };
        let (mut verbs, mut features) = (rng.u8(0..4), features);
        match theme {
            Theme::Lost | Theme::Crowd => (verbs, features) = (0, LoadFeatures::default()),
            Theme::Changes => features.gives_back = !features.books,
            _ => {}
        }
        // Hot keys have up to 500 requests a second.
        let gap = rng.u64(2 * MS..=80 * MS) / rng.u64(2..=10);
        let burst = if rng.u8(0..3) == 0 { rng.u64(2..=20) } else { 1 };
        let at = rng.u64(0..self.span_us / 2);
        let end = at + rng.u64(self.span_us / 3..=self.span_us);
        // Demand that stops and goes on ends leases. The lease of a slow key lasts long; a surge makes it
        // shorter.
        let pause = if rng.u8(0..4) == 0 { rng.u64(100 * MS..=SECOND) } else { 0 };
        let surge = if rng.u8(0..3) == 0 { rng.u64(5..=20) } else { 0 };
        let (gap, burst) = if surge > 0 { (rng.u64(15 * MS..=50 * MS), 1) } else { (gap, burst) };
        let (mut at, node, gap, burst) = match theme {
            Theme::Crowd => (0, number as usize % self.nodes, 7 * MS, 1),
            _ => (at, node, gap, burst),
        };
        let (surge, pause) = if theme == Theme::Crowd { (0, 0) } else { (surge, pause) };
        // Demand that is too low for a lease, between two times in which it is not.
        let fades = self.generation >= Generation::Second
            && theme != Theme::Crowd
            && generator(self.seed, 700 + u64::from(number)).u8(0..8) == 0;
        let slow = at + (end - at) / 5..at + (end - at) * 4 / 5;
        let mut made = 0;
        while at < end.min(self.span_us) && made < ARRIVALS_MAX {
            if fades && slow.contains(&at) {
                at += rng.u64(300 * MS..=700 * MS);
            }
            let surges = surge > 0 && rng.u8(0..16) == 0;
            for _ in 0..if surges { surge } else { burst } {
                let ask = ask(&mut rng, cost_max, verbs, features);
                let arrival =
                    Arrival { at, load: number, number: made, node, key, ask, is_batched: false };
                self.arrivals.push(self.varied(arrival, features));
                made += 1;
            }
            at += rng.u64(1..=2 * gap) * burst;
            if pause > 0 && rng.u8(0..40) == 0 {
                at += pause;
            }
        }
    }

    pub(super) fn add_hot_fault(&mut self, number: u32, theme: Theme, books: bool) {
        let mut rng = generator(self.seed, 200 + u64::from(number));
        let (mut at, node) = (rng.u64(100 * MS..self.span_us), rng.usize(0..6) % self.nodes);
        let longest = [50, 300, 2_000][rng.usize(0..3)];
        let mut span = rng.u64(1..=longest) * MS;
        let of = match theme {
            Theme::Any => rng.u8(0..5),
            Theme::Lost => 0,
            Theme::Network => 1,
            Theme::Clocks => 2,
            Theme::Processes => 3,
            Theme::Changes => 4,
            Theme::Crowd => 5,
            Theme::Outages => 6,
        };
        let kind = match of {
            0 => {
                span = span.min(300 * MS);
                lost_writes(&mut rng, self.keys)
            }
            2 if self.on_failure == OnFailure::Deny => clocks(&mut rng),
            1..=2 => network(&mut rng),
            3 => processes(&mut rng),
            4 if rng.u8(0..4) > 0 => {
                (at, span) = (self.changes_at(number), rng.u64(0..=300) * MS);
                let mut version = self.next_version(&mut rng);
                self.count_anew(number, &mut version.rules, |rng| {
                    let drawn = rule(rng);
                    hot(rng, &drawn)
                });
                self.add_version(version)
            }
            4 => FaultKind::PolicyRemoved,
            6 => {
                (at, span) = (self.changes_at(number), rng.u64(100..=500) * MS);
                [FaultKind::LinkDown, FaultKind::StorePaused][rng.usize(0..2)]
            }
            _ if number == 0 => {
                (at, span) = (rng.u64(0..SECOND), self.span_us);
                FaultKind::Crowd(rng.u64(80..=130) * MS)
            }
            _ => network(&mut rng),
        };
        let kind = if books { kind.that_forgets_nothing() } else { kind };
        let kind = match theme {
            Theme::Any | Theme::Network => self.or_newer(number, kind, false),
            Theme::Lost => self.or_failover(kind),
            _ => kind,
        };
        self.faults.push(Fault { number, at, span, node, kind });
        // In an outage the clock is set back by an hour, which no task waits for.
        if theme == Theme::Outages && number == 1 && generator(self.seed, 4).u8(0..4) == 0 {
            let kind = FaultKind::WallClock(-3_600 * 1_000_000);
            self.faults.push(Fault { number, at: at + span / 4, span: 0, node, kind });
        }
        let has_more = match kind {
            FaultKind::WallClock(_) => self.generation >= Generation::Second,
            FaultKind::AnswersLost | FaultKind::Drift(_) => true,
            _ => false,
        };
        if has_more && rng.bool() {
            // The store has received a message, and then receives nothing until permits have ended.
            let (later, span) = (at + rng.u64(1..=span), rng.u64(300..=2_000) * MS);
            // Or the clock is set while the store is given up already.
            let earlier = at.saturating_sub(rng.u64(200..=600) * MS);
            let is_earlier = matches!(kind, FaultKind::WallClock(_)) && rng.bool();
            let at = if is_earlier { earlier } else { later };
            self.faults.push(Fault { number, at, span, node, kind: FaultKind::LinkDown });
        }
    }

    fn next_version(&self, rng: &mut Rng) -> PolicySpec {
        let carry = ["usage", "usage", "proportional", "reset"][rng.usize(0..4)];
        let leases = [LeasesSpec::Off, LeasesSpec::Auto, LeasesSpec::Auto, LeasesSpec::Large]
            [rng.usize(0..4)];
        let of = rng.u8(0..4);
        let leases = if of == 0 && leases == LeasesSpec::Large { LeasesSpec::Auto } else { leases };
        let rules = match of {
            // Small limits, which cannot be leased.
            0 => {
                let mut rules = changed(rng, &self.versions[0].rules);
                rules
                    .iter_mut()
                    .filter(|rule| !rule.is_strict())
                    .for_each(|rule| *rule = hot(rng, rule));
                rules
            }
            1 => self.versions[0].rules.iter().map(|rule| hot(rng, rule)).collect(),
            2 => self.versions[0].rules.clone(),
            _ => self.versions[0].rules.iter().map(tenth).collect(),
        };
        PolicySpec { rules, carry, leases }
    }
}

fn lost_writes(rng: &mut Rng, keys: usize) -> FaultKind {
    match rng.u8(0..8) {
        0..=1 => FaultKind::Flushed,
        2 => FaultKind::Evicted(rng.usize(0..3) % keys),
        3..=6 => FaultKind::StoreKilled(rng.u64(1..=2_000) * MS),
        _ => FaultKind::StoreKilled(u64::MAX),
    }
}

fn network(rng: &mut Rng) -> FaultKind {
    match rng.u8(0..16) {
        0 => FaultKind::RequestsLost,
        1..=3 => FaultKind::AnswersLost,
        4 => FaultKind::LinkDown,
        5 => FaultKind::Partition,
        6 => FaultKind::Late(rng.u64(1..=150) * MS),
        7 => FaultKind::StorePaused,
        8..=9 => FaultKind::Repeated(rng.u64(1..=50) * MS),
        10..=11 => FaultKind::Repeated(rng.u64(50..=5_000) * MS),
        _ => FaultKind::Overtaken(rng.u64(10..=1_000) * MS),
    }
}

fn clocks(rng: &mut Rng) -> FaultKind {
    match rng.u8(0..10) {
        0..=2 => FaultKind::Drift([-50, rng.i64(-50..=50), 50][rng.usize(0..3)]),
        3 => FaultKind::NodeSuspended,
        4 => FaultKind::MachineStopped,
        5 => {
            let by_us = rng.i64(1..=3_600) * 1_000_000;
            FaultKind::WallClock(if rng.bool() { by_us } else { -by_us })
        }
        6 => FaultKind::NodePaused,
        _ => FaultKind::StoreClock(clock_step(rng)),
    }
}

fn processes(rng: &mut Rng) -> FaultKind {
    match rng.u8(0..5) {
        0..=1 => FaultKind::NodeKilled,
        2 => FaultKind::NodeStopped,
        3 => FaultKind::NodePaused,
        _ => FaultKind::KeeperLate,
    }
}

/// Returns the algorithm with a limit that is large enough to lease, or nearly so.
fn hot(rng: &mut Rng, rule: &RuleSpec) -> RuleSpec {
    // An excess shows where nearly all permits are taken: most limits are below the demand.
    let (rate, limit) = match rng.u8(0..4) {
        0 => (rng.u64(20..=1_000), rng.u64(100..=1_200)),
        _ => (rng.u64(10..=200), rng.u64(140..=400)),
    };
    // Windows of the epoch begin when histories do.
    let (second, ten) = (rng.u64(1..=4) * SECOND, rng.u64(5..=6) * 2 * SECOND);
    let period_us = SECOND;
    match *rule {
        // Guava's algorithms are never leased.
        RuleSpec::TokenBucket { .. } | RuleSpec::SmoothBursty { .. } => {
            RuleSpec::TokenBucket { permits: rate, period_us, burst: limit }
        }
        RuleSpec::LeakyBucket { .. } => {
            RuleSpec::LeakyBucket { permits: rate, period_us, burst: limit, delays: false }
        }
        RuleSpec::Concurrency { .. } => unreachable!("hot keys have no permits that are held"),
        RuleSpec::Window { window, .. } => {
            let window_us = if window == WindowSpec::Fixed { second } else { ten };
            RuleSpec::Window { window, limit, window_us }
        }
    }
}

/// Returns the rule with a tenth of the limit: less than is leased.
fn tenth(rule: &RuleSpec) -> RuleSpec {
    let mut rule = *rule;
    match &mut rule {
        RuleSpec::TokenBucket { burst: limit, .. }
        | RuleSpec::LeakyBucket { burst: limit, .. }
        | RuleSpec::Window { limit, .. } => *limit = limit.div_ceil(10),
        RuleSpec::SmoothBursty { .. } | RuleSpec::Concurrency { .. } => {}
    }
    rule
}
