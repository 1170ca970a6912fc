//! A history as a plan, made of a seed.
//!
//! Each load and each fault draws from a generator of its own, made of the seed and its number. So a
//! history without one of them has all the others unchanged, which is what [`shrink`](crate::shrink)
//! needs.

mod calm;
mod edits;
mod hot;
mod permits;
mod quota;
mod rare;
mod rules;

use std::fmt::Write as _;

use fastrand::Rng;

use crate::token::{Cut, Generation, HistorySubject};
use hot::Theme;
pub use rules::{RuleSpec, WindowSpec};
use rules::{changed, rule, rules};

/// µs in a millisecond.
pub(crate) const MS: u64 = 1_000;
/// µs in a second.
pub(crate) const SECOND: u64 = 1_000_000;

/// The most nodes that the fleet is configured with beyond those that there are.
pub(crate) const MORE_NODES_MAX: u32 = 3;

/// Most loads of a history.
pub const LOADS_MAX: u32 = 6;
/// Most faults of a history.
pub const FAULTS_MAX: u32 = 5;
/// Most rules of a policy.
pub(crate) const RULES_MAX: usize = 3;
/// Requests of one load at most: histories stay short enough for thousands of them.
const ARRIVALS_MAX: usize = 150;

/// The whole history, before it runs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed that it was made of.
    pub seed: u64,
    /// Engines that share the store.
    pub nodes: usize,
    /// Number of keys that requests use.
    pub keys: usize,
    /// The time of the last request, µs.
    pub span_us: u64,
    /// The policy as it is at the start, and after each change.
    pub versions: Vec<PolicySpec>,
    /// The longest wait for a permit by the policy, µs; `None`: no request waits for one.
    pub max_wait_us: Option<u64>,
    /// The behaviour of engines while the store does not answer.
    pub on_failure: OnFailure,
    /// The deadline of a call of the store, µs.
    pub deadline_us: u64,
    /// The shortest time of one way to the store, µs.
    pub latency_us: u64,
    /// The longest addition to it, µs.
    pub jitter_us: u64,
    /// Nodes notice that the store has forgotten.
    pub reminds: bool,
    /// The most calls of a node under way; another one is refused at once. `None`: no limit.
    pub calls_max: Option<usize>,
    /// Keys are hot, and leased.
    pub leases: bool,
    /// The most permits that the whole history admits, if usage does not flow out: its largest limit and one, which a
    /// leaky bucket lets pass beside its burst.
    pub quota: Option<u64>,
    /// Some clients go away before they have an answer.
    pub leaves: bool,
    /// The instant from which the faults have no effect any more, while demand goes on, µs; `None`: there is no such
    /// demand.
    pub healed_at: Option<u64>,
    /// The generator that made it.
    pub generation: Generation,
    /// The scripts of Redis execute each call as well as the kernel.
    pub scripts: bool,
    /// All requests, by time.
    pub arrivals: Vec<Arrival>,
    /// All faults, by time.
    pub faults: Vec<Fault>,
}

/// `on_store_failure` of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Each engine enforces its share.
    Local,
    /// Everything passes.
    Allow,
    /// Everything is refused.
    Deny,
}

/// One version of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    /// Its rules.
    pub rules: Vec<RuleSpec>,
    /// The `carry` of the policy: the usage that this version keeps of an earlier one.
    pub carry: &'static str,
    /// The `leases` of the policy.
    pub leases: LeasesSpec,
}

/// `leases` of the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeasesSpec {
    /// The default: `leases` is absent.
    Auto,
    /// Keys are not leased.
    Off,
    /// One node leases up to half of the limit.
    Large,
}

/// The kinds of requests of a history besides those that all have.
#[derive(Clone, Copy, Debug, Default)]
struct LoadFeatures {
    /// Requests give permits back.
    gives_back: bool,
    /// Requests book permits of the future.
    books: bool,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time, µs.
    pub at: u64,
    /// The number of its load.
    pub load: u32,
    /// The number of the request in its load.
    pub number: usize,
    /// At which node.
    pub node: usize,
    /// The number of its key.
    pub key: usize,
    /// The verb, and what follows it.
    pub ask: Ask,
    /// The request is made together with the others of its load at this instant.
    pub is_batched: bool,
}

/// A request of a client, and what the client does with the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A check of this cost.
    Check(u64),
    /// A check of the first cost; the second number is given back later.
    CheckAndRefund(u64, u64),
    /// A check of the first cost, settled later at the second one, twice.
    CheckAndSettle(u64, u64),
    /// As much as there is, up to this cost.
    AtMost(u64),
    /// A check that can wait up to the second number, µs.
    Reserve(u64, u64),
    /// A peek.
    Peek(u64),
    /// A request for the decision of each rule.
    Explain(u64),
    /// A reset of the key's usage.
    Reset,
    /// A permit that is held.
    Hold(Hold),
}

/// A permit that a client acquires, renews and releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The number that its id is made of.
    pub id: u64,
    /// Permits that it takes.
    pub cost: u64,
    /// The time until it is renewed or released, µs.
    pub for_us: u64,
    /// The number of times that it is renewed.
    pub renewals: u8,
    /// The client releases it in the end.
    pub is_released: bool,
    /// The longest wait of the request for it.
    pub wait: HoldWait,
    /// The client has no use for the permit if it goes away: the engine releases it then.
    pub is_unnamed: bool,
    /// The time after which the client goes away if it still waits, µs.
    pub leaves_after_us: Option<u64>,
}

/// The longest wait of a request for a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldWait {
    /// Not at all.
    No,
    /// As long as the policy has it wait.
    Policy,
    /// Up to so long, µs.
    UpTo(u64),
}

/// Something that goes wrong, or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its place among all faults of the seed.
    pub number: u32,
    /// The time at which it begins, µs.
    pub at: u64,
    /// The duration, µs.
    pub span: u64,
    /// The node that it affects, if its kind affects one.
    pub node: usize,
    /// The kind of the fault.
    pub kind: FaultKind,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Requests of the node to the store are lost.
    RequestsLost,
    /// Answers of the store to the node are lost.
    AnswersLost,
    /// Requests and answers are lost.
    LinkDown,
    /// Requests and answers of all nodes are lost.
    Partition,
    /// Messages to and from all nodes take longer by this, µs.
    Late(u64),
    /// The store stands still, and goes on with all calls that came meanwhile.
    StorePaused,
    /// The store is killed, and comes back without the writes of the last so many µs; `u64::MAX`: without any.
    StoreKilled(u64),
    /// All keys are deleted.
    Flushed,
    /// One key is deleted.
    Evicted(usize),
    /// The store's clock is set forward (or back) by so many µs.
    StoreClock(i64),
    /// The node is killed, and starts again after the span.
    NodeKilled,
    /// The node is asked to stop: it pays its debts, and starts again after the span.
    NodeStopped,
    /// The node's process stands still.
    NodePaused,
    /// The policy changes to the version of this number; nodes get it within the span.
    Policy(usize),
    /// The policy is removed from the node until the fault is over.
    PolicyRemoved,
    /// The node's clocks run faster (or slower) by so many thousandths.
    Drift(i64),
    /// The node sleeps: its steady clock goes on, its wall clock does not.
    NodeSuspended,
    /// The node's virtual machine is stopped, with both clocks.
    MachineStopped,
    /// The node's wall clock is set forward (or back) by so many µs.
    WallClock(i64),
    /// Messages about leases arrive again, so much later, µs.
    Repeated(u64),
    /// Messages about leases take a way of their own, which takes up to so much longer, µs.
    Overtaken(u64),
    /// Nodes are killed and started again, each time so many µs have passed: each process is another holder.
    Crowd(u64),
    /// The task that keeps leases does not run.
    KeeperLate,
    /// The store refuses each call: it is full, or may not write.
    Refuses,
    /// The store cannot read the value of a key.
    Unreadable(usize),
    /// A replica that lacks the writes of the last so many µs takes over; until nodes find it, the old store answers
    /// them.
    Failover(u64),
}

impl Plan {
    /// Returns the history of `seed`, as much of it as `cut` leaves.
    pub fn of(seed: u64, cut: &Cut) -> Self {
        let mut rng = generator(seed, 0);
        let nodes = rng.usize(1..=6).min(rng.usize(1..=6));
        let keys = rng.usize(1..=3).min(rng.usize(1..=3));
        let span_us = rng.u64(2..=6) * SECOND;
        let mut first =
            PolicySpec { rules: rules(&mut rng), carry: "usage", leases: LeasesSpec::Auto };
        if cut.generation >= Generation::Third && generator(seed, 8).u8(0..16) == 0 {
            let mut rng = generator(seed, 9);
            first.rules.resize_with(RULES_MAX, || rule(&mut rng));
        }
        let on_failure = match rng.u8(0..8) {
            0 => OnFailure::Allow,
            1 => OnFailure::Deny,
            _ => OnFailure::Local,
        };
        let deadline_us = [5, 20, 20, 20, 50][rng.usize(0..5)] * MS;
        let latency_us = rng.u64(50..=deadline_us / 12);
        let jitter_us = rng.u64(0..=deadline_us / 8);
        let reminds = rng.u8(0..4) > 0;
        let loads = rng.u32(1..=LOADS_MAX);
        let faults = if rng.u8(0..5) == 0 { 0 } else { rng.u32(1..=FAULTS_MAX) };
        // Booked requests pass later than refunds and resets meanwhile: a history has only one of the two.
        let (gives_back, books) = (rng.u8(0..3) == 0, rng.u8(0..3) == 0);
        // Windows, and rules beside the one that delays a request, count it when it is booked.
        let books = books && matches!(&*first.rules, [only] if only.is_bucket());
        let features = LoadFeatures { gives_back, books };
        let mut plan = Self {
            seed,
            leases: cut.leases,
            generation: cut.generation,
            scripts: cut.scripts,
            nodes: nodes.min(cut.nodes),
            keys: keys.min(cut.keys),
            span_us,
            versions: vec![first],
            max_wait_us: None,
            on_failure,
            deadline_us,
            latency_us,
            jitter_us,
            reminds,
            calls_max: None,
            quota: None,
            healed_at: None,
            leaves: cut.generation >= Generation::Second && generator(seed, 6).u8(0..8) == 0,
            arrivals: Vec::new(),
            faults: Vec::new(),
        };
        match cut.subject {
            HistorySubject::Rates => {}
            HistorySubject::Quota => plan.make_quota(cut),
            HistorySubject::Edits => plan.make_edits(cut),
            HistorySubject::Permits => plan.make_permits(cut),
        }
        if cut.subject != HistorySubject::Rates {
            return plan.until(cut);
        }
        let mut few = generator(seed, 3);
        if cut.generation >= Generation::Second && few.u8(0..8) == 0 {
            plan.calls_max = Some(few.usize(1..=4));
        }
        if !cut.leases && cut.generation >= Generation::Second {
            match generator(seed, 5).u8(0..32) {
                0 => plan.make_ebb(cut),
                1 => plan.make_change_in_debt(cut),
                _ => return plan.with_loads(cut, loads, faults, features),
            }
            return plan.until(cut);
        }
        plan.with_loads(cut, loads, faults, features)
    }

    /// Adds so many loads and faults, as much of them as `cut` leaves.
    fn with_loads(mut self, cut: &Cut, loads: u32, faults: u32, features: LoadFeatures) -> Self {
        let plan = &mut self;
        let theme = cut.leases.then(|| plan.make_hot(cut));
        let has_all = matches!(theme, Some(Theme::Crowd | Theme::Outages));
        let loads = if has_all { LOADS_MAX } else { loads };
        for number in (0..faults).filter(|number| cut.has_fault(*number)) {
            match theme {
                Some(theme) => plan.add_hot_fault(number, theme, features.books),
                None => plan.add_fault(number, features.books),
            }
        }
        for number in (0..loads).filter(|number| cut.has_load(*number)) {
            match theme {
                Some(theme) => plan.add_hot_load(number, theme, features),
                None => plan.add_load(number, features),
            }
        }
        plan.keep_one_failover();
        plan.add_calm(cut);
        self.until(cut)
    }

    /// Removes what comes after the cut, and sorts the rest by time.
    fn until(mut self, cut: &Cut) -> Self {
        self.arrivals.retain(|arrival| arrival.at <= cut.until_us);
        self.faults.retain(|fault| fault.at <= cut.until_us);
        self.arrivals.sort_by_key(|arrival| arrival.at);
        self.faults.sort_by_key(|fault| fault.at);
        self.span_us = self.span_us.min(cut.until_us);
        self
    }

    /// Returns the policy document of a version.
    pub fn document(&self, version: usize) -> String {
        let PolicySpec { rules, carry, leases } = &self.versions[version];
        let on_failure = match self.on_failure {
            OnFailure::Local => "local",
            OnFailure::Allow => "allow",
            OnFailure::Deny => "deny",
        };
        let mut text = format!(
            "policies:\n  - name: p\n    on_store_failure: {on_failure}\n    carry: {carry}\n"
        );
        text += match leases {
            LeasesSpec::Auto => "",
            LeasesSpec::Off => "    leases: off\n",
            LeasesSpec::Large => "    leases: { max_share: 50%, term: 2s }\n",
        };
        let queues =
            !rules.iter().any(|rule| matches!(rule, RuleSpec::Concurrency { queue: 0, .. }));
        if let Some(max_wait_us) = self.max_wait_us.filter(|_| queues) {
            writeln!(text, "    overflow: {{ queue: {{ max_wait: {}ms }} }}", max_wait_us / MS)
                .expect("a string takes all");
        }
        text += "    rules:\n";
        for (place, rule) in rules.iter().enumerate() {
            writeln!(text, "      - {{ name: r{place}, {} }}", rule.text())
                .expect("a string takes all");
        }
        text
    }

    /// Returns whether nothing goes wrong and no permit is given back: then the fleet admits what one limiter would.
    pub fn is_quiet(&self) -> bool {
        self.faults.is_empty() && self.is_plain()
    }

    /// Returns whether messages take long, and nothing else goes wrong.
    pub(crate) fn is_only_late(&self) -> bool {
        let is_late = |fault: &Fault| matches!(fault.kind, FaultKind::Late(_));
        !self.faults.is_empty() && self.faults.iter().all(is_late)
    }

    /// Returns whether the store loses writes, and nothing else goes wrong.
    pub(crate) fn only_loses_writes(&self) -> bool {
        let loses = |fault: &Fault| {
            matches!(
                fault.kind,
                FaultKind::Flushed | FaultKind::Evicted(_) | FaultKind::StoreKilled(1..)
            )
        };
        self.leases && !self.faults.is_empty() && self.faults.iter().all(loses) && self.is_plain()
    }

    /// Returns whether the store cannot read a key for a while.
    pub(crate) fn has_unreadable(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Unreadable(_)))
    }

    /// Returns whether a node's clock runs too fast, or too slow.
    pub(crate) fn drifts(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Drift(_)))
    }

    /// Returns whether the faults have no effects that last longer than [`healed_at`](Self::healed_at) allows for, and
    /// nothing else keeps demand from being met. A copy of a message that arrives late is granted permits, and leased
    /// permits lapse late after the store's clock was set back.
    pub(crate) fn heals(&self) -> bool {
        let stays = |fault: &Fault| {
            matches!(
                fault.kind,
                FaultKind::Repeated(_)
                    | FaultKind::Overtaken(_)
                    | FaultKind::StoreClock(_)
                    | FaultKind::WallClock(_)
                    | FaultKind::NodeSuspended
                    | FaultKind::MachineStopped
            )
        };
        self.is_plain() && !self.faults.iter().any(stays)
    }

    /// Returns whether single keys are deleted.
    pub(crate) fn evicts(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::Evicted(_)))
    }

    /// Returns whether the policy is removed for a while.
    pub(crate) fn removes(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault.kind, FaultKind::PolicyRemoved))
    }

    /// Returns whether no request is given back, forgotten, booked, left before it is answered, or refused because too
    /// many calls are under way.
    fn is_plain(&self) -> bool {
        self.calls_max.is_none() && !self.leaves && self.only_takes()
    }

    /// Returns whether no request is given back, forgotten or booked.
    pub(crate) fn only_takes(&self) -> bool {
        let only_takes = |arrival: &Arrival| {
            matches!(arrival.ask, Ask::Check(_) | Ask::AtMost(_) | Ask::Peek(_) | Ask::Explain(_))
        };
        self.arrivals.iter().all(only_takes)
    }

    /// Returns how long after its request the client of an arrival goes away, µs, if it does not wait for the answer.
    pub(crate) fn leaves_after(&self, arrival: &Arrival) -> Option<u64> {
        let (load, number) = (u64::from(arrival.load), arrival.number as u64);
        let mut rng = generator(self.seed ^ number, 800 + load);
        let leaves = (self.leaves && rng.u8(0..4) == 0).then(|| rng.u64(0..self.deadline_us));
        match arrival.ask {
            Ask::Hold(hold) => hold.leaves_after_us,
            _ => leaves,
        }
    }

    /// Returns the longest time for which the request of an arrival waits for a permit, µs.
    pub(crate) fn max_wait_of(&self, arrival: &Arrival) -> u64 {
        match arrival.ask {
            Ask::Hold(Hold { wait: HoldWait::Policy, .. }) => self.max_wait_us.unwrap_or(0),
            Ask::Hold(Hold { wait: HoldWait::UpTo(us), .. }) => us,
            _ => 0,
        }
    }

    /// Returns by how many the number of nodes is set too high during the fault of this number.
    pub(crate) fn more_nodes(&self, fault: u32) -> u32 {
        generator(self.seed, 500 + u64::from(fault)).u32(0..=MORE_NODES_MAX)
    }

    /// Returns whether some requests of a key are made together.
    pub(crate) fn batches(&self, key: usize) -> bool {
        self.arrivals.iter().any(|arrival| arrival.key == key && arrival.is_batched)
    }

    /// Returns whether all requests of a key come to one node.
    pub(crate) fn has_one_asker(&self, key: usize) -> bool {
        let mut askers = self.arrivals.iter().filter(|arrival| arrival.key == key);
        let first = askers.next().map(|arrival| arrival.node);
        askers.all(|arrival| Some(arrival.node) == first)
    }

    /// Returns how long a holder of leases waits for an answer, µs.
    pub(crate) fn lease_wait_us(&self) -> u64 {
        self.deadline_us.max(50 * MS)
    }

    /// Returns the largest cost of a request, at least 1.
    pub(crate) fn cost_max(&self) -> u64 {
        self.arrivals.iter().map(|arrival| arrival.ask.cost()).max().unwrap_or(1)
    }

    fn add_load(&mut self, number: u32, features: LoadFeatures) {
        let mut rng = generator(self.seed, 100 + u64::from(number));
        let (node, key) = (rng.usize(0..6) % self.nodes, rng.usize(0..3) % self.keys);
        let (cost_max, verbs) = (1 << rng.u64(0..4), rng.u8(0..4));
        let limit = self.versions[0].rules.iter().map(RuleSpec::limit).min().unwrap_or(1);
        let cost_max = if rng.u8(0..3) > 0 { 1 } else { cost_max.min(limit) };
        let gap = rng.u64(2 * MS..=80 * MS);
        let burst = if rng.u8(0..3) == 0 { rng.u64(2..=20) } else { 1 };
        let mut at = rng.u64(0..self.span_us / 2);
        let end = at + rng.u64(self.span_us / 3..=self.span_us);
        let mut made = 0;
        while at < end.min(self.span_us) && made < ARRIVALS_MAX {
            for _ in 0..burst {
                let ask = ask(&mut rng, cost_max, verbs, features);
                let arrival =
                    Arrival { at, load: number, number: made, node, key, ask, is_batched: false };
                self.arrivals.push(self.varied(arrival, features));
                made += 1;
            }
            at += rng.u64(1..=2 * gap) * burst;
        }
    }

    /// Returns a request as its load makes it. One load in three makes the requests of one instant together; and of
    /// those that refund hot keys, one in three gives back half of its requests, which are large.
    fn varied(&self, arrival: Arrival, features: LoadFeatures) -> Arrival {
        let Arrival { load, number, ask, .. } = arrival;
        let LoadFeatures { gives_back: may_give_back, books } = features;
        let mut rng = generator(self.seed, 600 + u64::from(load));
        let mut is_every_third = || rng.u8(0..3) == 0 && self.generation >= Generation::Second;
        let (batches, gives_back) = (is_every_third(), is_every_third());
        let ask = match ask {
            Ask::CheckAndRefund(..) | Ask::Check(_)
                if gives_back && may_give_back && !books && self.leases =>
            {
                let cost = rng.u64(4..=24);
                let backs = number % 2 == 0;
                if backs { Ask::CheckAndRefund(cost, cost) } else { Ask::Check(1) }
            }
            ask => ask,
        };
        let is_batched = batches && !matches!(ask, Ask::Explain(_));
        Arrival { ask, is_batched, ..arrival }
    }

    fn add_fault(&mut self, number: u32, books: bool) {
        let mut rng = generator(self.seed, 200 + u64::from(number));
        let (mut at, mut span, node) = self.place_of_fault(&mut rng);
        let kind = match rng.u8(0..32) {
            0..=2 => FaultKind::RequestsLost,
            3..=6 => FaultKind::AnswersLost,
            7..=10 => FaultKind::LinkDown,
            11..=14 => FaultKind::Partition,
            15..=16 => FaultKind::Late(rng.u64(1..=100) * MS),
            17..=18 => FaultKind::StorePaused,
            19..=20 => FaultKind::StoreKilled(match rng.u8(0..3) {
                0 => 0,
                1 => rng.u64(1..=2_000) * MS,
                _ => u64::MAX,
            }),
            21 => FaultKind::Flushed,
            22 => FaultKind::Evicted(rng.usize(0..3) % self.keys),
            23..=24 => FaultKind::StoreClock(clock_step(&mut rng)),
            25 => FaultKind::NodeKilled,
            26 => FaultKind::NodeStopped,
            27..=28 => FaultKind::NodePaused,
            _ => {
                let carry = ["usage", "usage", "proportional", "reset"][rng.usize(0..4)];
                let mut rules = changed(&mut rng, &self.versions[0].rules);
                self.count_anew(number, &mut rules, rule);
                (at, span) = (self.changes_at(number), rng.u64(0..=300) * MS);
                self.add_version(PolicySpec { rules, carry, leases: LeasesSpec::Auto })
            }
        };
        let kind = if books { kind.that_forgets_nothing() } else { kind };
        let kind = self.or_newer(number, kind, true);
        self.faults.push(Fault { number, at, span, node, kind });
    }

    /// Returns when a fault begins and how long it lasts, µs, and at which node.
    fn place_of_fault(&self, rng: &mut Rng) -> (u64, u64, usize) {
        let (at, node) = (rng.u64(100 * MS..self.span_us), rng.usize(0..6) % self.nodes);
        let longest = [50, 300, 2_000][rng.usize(0..3)];
        (at, rng.u64(1..=longest) * MS, node)
    }

    /// Replaces one fault in eight (in six, if clocks `may_drift`) by one that earlier generators do not have. Edits
    /// stay.
    fn or_newer(&self, number: u32, kind: FaultKind, may_drift: bool) -> FaultKind {
        let mut rng = generator(self.seed, 950 + u64::from(number));
        if self.generation < Generation::Third || matches!(kind, FaultKind::Policy(_)) {
            return kind;
        }
        match rng.u8(0..24) {
            0 => FaultKind::Refuses,
            3 => FaultKind::Failover(rng.u64(0..=500) * MS),
            1 => FaultKind::Unreadable(rng.usize(0..3) % self.keys),
            2 if may_drift => FaultKind::Drift(if rng.bool() { 50 } else { -50 }),
            _ => kind,
        }
    }

    /// Replaces `kind`, which loses writes, by a failover in one plan of four.
    fn or_failover(&self, kind: FaultKind) -> FaultKind {
        let mut rng = generator(self.seed, 11);
        let is_one = self.generation >= Generation::Third && rng.u8(0..4) == 0;
        if is_one { FaultKind::Failover(rng.u64(0..=1_000) * MS) } else { kind }
    }

    /// Replaces failovers that no bound follows by partitions: those with refunds or edits, and all but the
    /// first.
    fn keep_one_failover(&mut self) {
        let mut may_be = self.only_takes() && self.versions.len() == 1;
        for fault in &mut self.faults {
            if matches!(fault.kind, FaultKind::Failover(_)) {
                fault.kind = if may_be { fault.kind } else { FaultKind::Partition };
                may_be = false;
            }
        }
    }

    /// Adds or removes a rule, in one edit of four.
    fn count_anew(&self, number: u32, rules: &mut Vec<RuleSpec>, new: fn(&mut Rng) -> RuleSpec) {
        let mut rng = generator(self.seed, 900 + u64::from(number));
        if self.generation < Generation::Third || rng.u8(0..4) > 0 {
            return;
        }
        let has_less = rules.len() > 1 && (rules.len() == RULES_MAX || rng.bool());
        match has_less {
            true => drop(rules.remove(rng.usize(0..rules.len()))),
            false => rules.insert(rng.usize(0..=rules.len()), new(&mut rng)),
        }
    }

    fn add_version(&mut self, version: PolicySpec) -> FaultKind {
        self.versions.push(version);
        FaultKind::Policy(self.versions.len() - 1)
    }

    /// Returns when a fault of this number changes the policy: versions come one after the other.
    fn changes_at(&self, number: u32) -> u64 {
        self.span_us * u64::from(number + 1) / u64::from(FAULTS_MAX + 2)
    }
}

impl FaultKind {
    /// Returns the fault, or another one that leaves bookings as they are.
    fn that_forgets_nothing(self) -> Self {
        match self {
            Self::StoreKilled(_) => Self::StoreKilled(0),
            Self::Flushed | Self::Evicted(_) | Self::StoreClock(_) | Self::Policy(_) => {
                Self::Partition
            }
            kind => kind,
        }
    }
}

impl Arrival {
    /// Returns whether the engine is asked for both together.
    pub(crate) fn is_asked_with(&self, other: &Self) -> bool {
        self.is_batched && other.is_batched && (self.at, self.load) == (other.at, other.load)
    }
}

impl Ask {
    /// Returns the most permits that it takes.
    pub fn cost(&self) -> u64 {
        match *self {
            Self::Check(cost)
            | Self::CheckAndRefund(cost, _)
            | Self::AtMost(cost)
            | Self::Reserve(cost, _)
            | Self::Peek(cost)
            | Self::Explain(cost) => cost,
            Self::CheckAndSettle(charged, cost) => charged.max(cost),
            Self::Hold(hold) => hold.cost,
            Self::Reset => 1,
        }
    }
}

/// Returns the generator of the part of `seed` that has this number.
pub(crate) fn generator(seed: u64, number: u64) -> Rng {
    Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 32 | number))
}

fn ask(rng: &mut Rng, cost_max: u64, verbs: u8, features: LoadFeatures) -> Ask {
    let LoadFeatures { gives_back, books } = features;
    let cost = rng.u64(1..=cost_max);
    match (verbs, rng.u8(0..24)) {
        (1.., 0) => Ask::AtMost(rng.u64(1..=8)),
        (1.., 1) => Ask::Peek(cost),
        (1.., 2) => Ask::Explain(cost),
        (2.., 3..=4) if gives_back && !books => Ask::CheckAndRefund(cost, rng.u64(1..=cost)),
        (2.., 5) if gives_back && !books => Ask::CheckAndSettle(cost, rng.u64(0..=cost + 2)),
        (2.., 6) if gives_back && !books => Ask::Reset,
        (2.., 7..=9) if books => Ask::Reserve(cost, rng.u64(1..=400) * MS),
        _ => Ask::Check(cost),
    }
}

fn clock_step(rng: &mut Rng) -> i64 {
    let most = [5 * MS, 500 * MS, 5 * SECOND, 60 * SECOND][rng.usize(0..4)];
    let step = i64::try_from(rng.u64(MS..=most)).expect("a minute fits");
    if rng.bool() { step } else { -step }
}
