//! The record of a history, and the bound of what may be admitted.
//!
//! The world records what was admitted, when, by which decision, and what the store forgot; at the end
//! [`BoundsRecord::verdict`] goes through the entries in the order of time. `FleetBound` is the bound of
//! `docs/exactness.md`:
//!
//! - what the fleet admits stays within the rule, plus `allowed`;
//! - `allowed` is what the store forgot, what its clock brought when it was set forward, what was out on leases
//!   then, or when rules changed; one share of the burst for each time that a node's clock was set; and, with
//!   more than one node, the shares of nodes that decided without it: one share of the burst for each, and what
//!   flowed out of that share meanwhile;
//! - each node's own share stays within the rule divided by the nodes, from one answer of the store to the next.

use std::collections::BTreeMap;
use std::fmt;

use crate::meter::{AdmittedPermits, Meter};
use crate::plan::{OnFailure, Plan, RuleSpec};
use crate::promises::Invariant;

/// The span before a violation in which causes are looked for, µs.
const CAUSE_US: u64 = 3_000_000;

/// Most causes that are named: the last ones, so that the line can be read.
const CAUSES_MAX: usize = 4;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the invariant.
    pub invariant: Invariant,
    /// The time, µs.
    pub at: u64,
    /// A description of the violation.
    pub what: String,
}

/// The line of a report: the invariant, when and how it was broken, and the promise that it stands for.
impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, at, what } = self;
        let (at_s, promise) = (*at as f64 / 1e6, invariant.promise());
        write!(f, "{invariant} at {at_s:.3} s: {what}; promised: {promise}")
    }
}

/// An event that counts for a key.
#[derive(Clone, Debug)]
pub(crate) struct CountedEvent {
    /// The time, µs of true time.
    pub(crate) at: u64,
    /// The number of executions of the store before it; it orders events of one instant.
    pub(crate) order: u64,
    pub(crate) key: usize,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// Permits were admitted that were asked for at `begun`.
    Admitted { permits: u64, begun: u64, by: By },
    /// Permits were admitted that pass later. A booking by a share is charged before it passes.
    Booked { permits: u64, by_share: bool },
    /// A node admitted permits by its share. `run` counts the answers of the store before it; `None`: unknown, because
    /// several requests were made together.
    ByShare { permits: u64, version: usize, of: Process, run: Option<u64>, begun: u64 },
    /// A node admitted permits because its policy has `allow`. They use up the budget, as far as it goes.
    Allowed { permits: u64, begun: u64 },
    /// Permits of each rule that do not count any more.
    Forgiven { permits: Vec<u64>, why: &'static str },
    /// Permits that went back into the lease that they were taken from.
    PutBack { permits: u64 },
    /// Permits that were out on leases when the store forgot them, or charged them as of another time.
    Excused { permits: u64 },
    /// The store lost writes. While permits were held, their holders know it.
    Lost { held: u64 },
    /// A replica takes over from the store.
    Split,
    /// The store before a failover was paid permits of a debt.
    PaidToOld { permits: u64 },
    /// A holder reported what the store had lost.
    Repaired,
    /// A holder gave permits back.
    Returned { permits: u64 },
    /// The store's clock was set.
    ClockStep { by_us: i64 },
    /// The wall clock of a node was set, by which its share flows out.
    WallClock(usize),
    /// The store decides by this version from now on.
    Version(usize),
    /// A process ended, or forgot its debts.
    Ended(usize),
}

/// The source of a decision that admitted permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The store, at this instant.
    Store,
    /// The store that a replica took over from, at this instant.
    OldStore,
    /// A node that had leased the permits, at this instant.
    Lease,
    /// A node that had leased the permits, at some instant until then.
    EarlierLease,
}

/// A node, and which process of it.
pub(crate) type Process = (usize, u32);

/// The permits of a history, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Permits that were admitted.
    pub admitted: u64,
    /// Permits that shares admitted.
    pub by_share: u64,
    /// Permits that `allow` admitted.
    pub by_allow: u64,
    /// Permits that the store forgot.
    pub forgotten: u64,
    /// The largest excess over a rule's own bound.
    pub over: u64,
}

/// The effect of writes that the store lost: `LostWritesCostLittle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The number of times that the store lost writes.
    pub faults: u64,
    /// Permits over the limit, with all that was admitted before.
    pub over: u64,
    /// The limit.
    pub limit: u64,
}

/// All entries.
#[derive(Debug, Default)]
pub(crate) struct BoundsRecord {
    entries: Vec<CountedEvent>,
    first: Option<Violation>,
}

impl BoundsRecord {
    pub(crate) fn note(&mut self, entry: CountedEvent) {
        self.entries.push(entry);
    }

    /// Notes a violation that was found at once.
    pub(crate) fn fail(&mut self, invariant: Invariant, at: u64, what: String) {
        if self.first.is_none() {
            self.first = Some(Violation { invariant, at, what });
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.first.is_some()
    }

    /// Returns the earliest violation, what was used, and the effects of lost writes.
    pub(crate) fn verdict(mut self, plan: &Plan) -> (Option<Violation>, Used, Vec<Lost>) {
        self.entries.sort_by_key(|entry| (entry.at, entry.order));
        let mut used = Used::default();
        let mut keys: BTreeMap<usize, KeyRecord> = BTreeMap::new();
        for entry in &self.entries {
            let key = keys.entry(entry.key).or_insert_with(|| KeyRecord::new(plan, entry.key));
            if let Some(what) = key.see(plan, entry, &mut used) {
                let causes = self.causes(entry);
                self.fail(
                    Invariant::FleetBound,
                    entry.at,
                    format!("key {}: {what}{causes}", entry.key),
                );
                break;
            }
        }
        let is_alone = plan.only_loses_writes() && used.by_share + used.by_allow == 0;
        let lost = keys.values().flat_map(KeyRecord::lost).filter(|_| is_alone).collect();
        (self.first, used, lost)
    }

    /// The last few entries on the key of `entry` that let more pass before it, the latest first.
    fn causes(&self, entry: &CountedEvent) -> String {
        let before = self.entries.iter().rev();
        let before = before.filter(|it| (it.at, it.order) <= (entry.at, entry.order));
        let recent = before.take_while(|it| it.at + CAUSE_US >= entry.at);
        let gave = recent.filter(|it| it.key == entry.key).filter_map(|it| {
            let at_s = it.at as f64 / 1e6;
            let what = it.what.gives()?;
            Some(format!("{what} at {at_s:.3} s"))
        });
        let named: Vec<_> = gave.take(CAUSES_MAX).collect();
        if named.is_empty() { String::new() } else { format!(", after {}", named.join(", ")) }
    }
}

impl What {
    /// Returns a description of it, if it lets more pass.
    fn gives(&self) -> Option<String> {
        match self {
            Self::Forgiven { permits, why } => {
                let most = permits.iter().max().copied().unwrap_or(0);
                (most > 0).then(|| match *why {
                    "reset" => "a reset".to_owned(),
                    why => format!("{most} were {why}"),
                })
            }
            Self::PutBack { permits } => Some(format!("{permits} went back into a lease")),
            Self::Excused { permits } if *permits > 0 => Some(format!("{permits} were out")),
            Self::Lost { held } => Some(format!("the store lost writes, {held} were out")),
            Self::Split => Some("a replica took over".to_owned()),
            Self::Repaired => Some("a holder told the store what it had lost".to_owned()),
            Self::Returned { permits } if *permits > 0 => {
                Some(format!("{permits} came back from a lease"))
            }
            Self::ClockStep { by_us } => Some(format!("the store's clock was set by {by_us} µs")),
            Self::Version(version) => Some(format!("version {version} came into force")),
            _ => None,
        }
    }
}

/// Permits that a node which decides by `allow` may leave uncharged with each debt: usage is rounded up, and room is
/// rounded down.
const ROUNDED: u64 = 2;

/// The record of one key.
#[derive(Debug)]
struct KeyRecord {
    version: usize,
    /// Only one node asks for the key.
    has_one_asker: bool,
    /// The lead of the store's clock, µs.
    ahead_us: i64,
    /// One for each rule of the version.
    rules: Vec<RuleRecord>,
    /// Permits were given back, or forgotten.
    gave_back: bool,
    /// Permits that were lost in rounding.
    rounded: u64,
    /// The number of times that a node began to decide by `allow`, and until when the last one lasted, µs.
    allowed: (u64, u64),
    /// Permits that holders gave back.
    returned: u64,
    /// Permits that were out on leases when the store forgot them.
    excused: u64,
    /// Permits that the store before a failover admitted, or charged as debts.
    by_old: u64,
    /// The most permits that were in use beyond a limit when it was lowered. A share counts usage up to its limit, and
    /// a debt is charged up to it.
    beyond: u64,
    /// The share of each process that ever decided by one.
    shares: BTreeMap<Process, Share>,
    /// The number of times that a process began to decide by its share.
    outages: u64,
    /// Processes that ended with what they owed.
    ended: u64,
    /// The number of times that a node's wall clock was set.
    set_clocks: u64,
    /// A turn was booked.
    has_booked: bool,
    /// Permits of turns that shares booked: each is charged before it passes.
    booked_alone: u64,
    /// The number of times that the store lost writes.
    lost: u64,
    /// The store lost writes while no permits were held.
    lost_unheld: bool,
    /// The store lost writes, and no holder has reported since.
    is_lost: bool,
}

#[derive(Debug)]
struct RuleRecord {
    spec: RuleSpec,
    /// The largest limit that it has in any version.
    limit_most: u64,
    /// All that was admitted.
    meter: Meter,
    /// Permits that the store admitted, at the instant at which it did.
    exact: Meter,
    /// The meter and `spent` of the store that a replica took over from, as far as that store knows.
    old: Option<(Meter, u64)>,
    /// A meter that keeps what the store lost, and the most that it was over; `None`: not measured.
    whole: Option<Meter>,
    whole_over: u64,
    /// Units that flowed out of shares, times nodes, while their nodes were without the store.
    flowed: u64,
    /// Permits that flowed out under earlier versions.
    flowed_before: u64,
    /// Permits over the rule that are excused: each permit in `excused` excuses one, and another one if that went back
    /// into the lease.
    spent: u64,
}

/// Permits that a node admitted by its share since the store last answered it.
#[derive(Debug, Default)]
struct Share {
    run: Option<u64>,
    /// Some of them may be of an earlier run.
    is_vague: bool,
    meters: Vec<Meter>,
    /// The time at which the last of them was asked for, µs.
    last: u64,
}

impl KeyRecord {
    fn new(plan: &Plan, key: usize) -> Self {
        let (rules, shares) = (Vec::new(), BTreeMap::new());
        let mut record = Self {
            version: 0,
            has_one_asker: plan.has_one_asker(key),
            ahead_us: 0,
            gave_back: false,
            rounded: 0,
            allowed: (0, 0),
            returned: 0,
            excused: 0,
            by_old: 0,
            beyond: 0,
            rules,
            shares,
            outages: 0,
            ended: 0,
            set_clocks: 0,
            has_booked: false,
            booked_alone: 0,
            lost: 0,
            lost_unheld: false,
            is_lost: false,
        };
        record.begin(plan, 0, 0);
        record
    }

    fn begin(&mut self, plan: &Plan, version: usize, at: u64) {
        let carries = plan.versions[version].carry == "usage";
        let (old, ahead_us) = (std::mem::take(&mut self.rules), self.ahead_us);
        self.version = version;
        self.rules = plan.versions[version]
            .rules
            .iter()
            .enumerate()
            .map(|(place, spec)| {
                let before = old.get(place).filter(|_| carries);
                let flowed_before = before.map_or(0, |before| before.flowed_permits(plan));
                let carried = |meter: fn(&RuleRecord) -> &Meter| {
                    let mut carried = match before {
                        Some(before) => meter(before).under(at, &before.spec, spec, plan),
                        None => Meter::of(spec, plan),
                    };
                    carried.set_ahead(ahead_us);
                    carried
                };
                let (meter, exact) = (carried(|it| &it.meter), carried(|it| &it.exact));
                let limits = plan.versions.iter().filter_map(|version| version.rules.get(place));
                let limit_most = limits.map(RuleSpec::limit).max().unwrap_or(0);
                let whole = plan.only_loses_writes().then(|| Meter::of(spec, plan));
                RuleRecord {
                    spec: *spec,
                    limit_most,
                    meter,
                    exact,
                    old: before.and_then(|before| before.old.clone()),
                    whole,
                    whole_over: 0,
                    flowed: 0,
                    flowed_before,
                    spent: before.map_or(0, |before| before.spent),
                }
            })
            .collect();
        self.beyond = self.beyond.max(self.above(at));
        // Leased permits that the store does not know of pass beside those in use, also of a lowered limit.
        if self.excused > 0 {
            self.excused += self.above(at);
        }
        for share in self.shares.values_mut() {
            share.run = None;
        }
    }

    /// Permits in use beyond a limit.
    fn above(&self, at: u64) -> u64 {
        let above = |rule: &RuleRecord| rule.exact.above(at).max(rule.meter.above(at));
        self.rules.iter().map(above).max().unwrap_or(0)
    }

    fn see(&mut self, plan: &Plan, entry: &CountedEvent, used: &mut Used) -> Option<String> {
        let at = entry.at;
        match &entry.what {
            What::Admitted { permits, begun, by } => {
                let admitted = AdmittedPermits { permits: *permits, begun: *begun, at };
                used.admitted += permits;
                // Until a holder reports, the store does not know what it lost.
                if *by != By::Store || !self.is_lost {
                    self.admit_whole(admitted);
                }
                let broken = match by {
                    By::EarlierLease => None,
                    By::OldStore => self.by_old(at, *permits),
                    By::Store | By::Lease => self.by_store(at, *permits),
                };
                if broken.is_some() {
                    return broken;
                }
                self.admit(plan, admitted, used)
            }
            What::ByShare { permits, version, of, run, begun } => {
                (used.admitted, used.by_share) = (used.admitted + permits, used.by_share + permits);
                // These are rules that the store does not have yet, or has replaced.
                if *version != self.version {
                    return None;
                }
                let admitted = AdmittedPermits { permits: *permits, begun: *begun, at };
                self.by_share(plan, *of, *run, admitted)
                    .or_else(|| self.admit(plan, admitted, used))
            }
            What::Allowed { permits, begun } => {
                used.admitted += permits;
                used.by_allow += permits;
                self.by_allow(plan, AdmittedPermits { permits: *permits, begun: *begun, at });
                None
            }
            What::Forgiven { permits, why } if *why == "forgotten" => {
                used.forgotten += permits.iter().max().unwrap_or(&0);
                self.learn(plan, at, &entry.what);
                None
            }
            what => {
                self.learn(plan, at, what);
                None
            }
        }
    }

    /// Takes in an entry that admits nothing.
    fn learn(&mut self, plan: &Plan, at: u64, what: &What) {
        match what {
            What::Booked { permits, by_share } => {
                self.has_booked = true;
                self.booked_alone += if *by_share { *permits } else { 0 };
            }
            What::Forgiven { permits, why: _ } => {
                self.gave_back = true;
                for (rule, permits) in self.rules.iter_mut().zip(permits) {
                    rule.meter.forgive(at, *permits);
                    rule.exact.forgive(at, *permits);
                }
            }
            What::PutBack { permits } => {
                self.gave_back = true;
                self.rules.iter_mut().for_each(|rule| rule.put_back(at, *permits));
            }
            // They pass beside what is in use already; after a limit was lowered that may be more than it.
            What::Excused { permits } if *permits > 0 => {
                self.excused += permits + self.above(at);
            }
            What::Lost { held } => {
                self.lost += 1;
                self.lost_unheld |= *held == 0;
                self.is_lost = true;
            }
            What::Repaired => self.is_lost = false,
            What::PaidToOld { permits } => self.by_old += permits,
            What::Split => {
                self.rules
                    .iter_mut()
                    .for_each(|rule| rule.old = Some((rule.exact.clone(), rule.spent)));
            }
            What::Returned { permits } => self.returned += permits,
            What::ClockStep { by_us } => {
                self.ahead_us += by_us;
                for RuleRecord { meter, exact, .. } in &mut self.rules {
                    meter.clock_step(at, *by_us);
                    exact.clock_step(at, *by_us);
                }
            }
            // A key that is full again is forgotten: then an earlier version may write it once more.
            What::Version(version) => {
                if *version != self.version {
                    self.begin(plan, *version, at);
                }
            }
            // Debts of the process are no longer part of its share.
            What::Ended(node) => {
                self.ended += 1;
                let shares = self.shares.iter_mut().filter(|((of, _), _)| of == node);
                shares.for_each(|(_, share)| share.run = None);
            }
            // A request that read the clock before it was set back may be decided after one that did not: by its
            // time all has flowed out.
            What::WallClock(node) => {
                self.set_clocks += 1;
                let shares = self.shares.iter_mut().filter(|((of, _), _)| of == node);
                shares.for_each(|(_, share)| share.run = None);
            }
            What::Excused { .. }
            | What::Admitted { .. }
            | What::ByShare { .. }
            | What::Allowed { .. } => {}
        }
    }

    fn admit_whole(&mut self, admitted: AdmittedPermits) {
        for rule in &mut self.rules {
            if let Some(whole) = &mut rule.whole {
                rule.whole_over = rule.whole_over.max(whole.admit(admitted));
            }
        }
    }

    /// Returns the effect of lost writes, if there were any while permits were held.
    fn lost(&self) -> Option<Lost> {
        let worst = self.rules.iter().max_by_key(|rule| rule.whole_over)?;
        let (faults, over, limit) = (self.lost, worst.whole_over, worst.spec.limit());
        (faults > 0 && !self.lost_unheld).then_some(Lost { faults, over, limit })
    }

    /// Counts what was admitted by `allow`, as far as the budget goes. With several nodes, the store may grant to one
    /// what another has not paid yet; and with a window, after a refund, or after the store's clock was set, a node may
    /// count more in use than there is.
    fn by_allow(&mut self, plan: &Plan, admitted: AdmittedPermits) {
        let AdmittedPermits { begun, at, .. } = admitted;
        if let [rule] = &mut *self.rules
            && self.has_one_asker
            && !self.has_booked
            && self.ahead_us == 0
            && !self.gave_back
            && rule.spec.is_bucket()
            && rule.spec.is_strict()
        {
            let over = rule.meter.admit(admitted);
            rule.meter.forgive(at, over);
            // The store charges as of the question: more has flowed out until the answer. Each time that the node finds
            // the store again, it charges another debt. And permits that a lease gave back count as in use for two
            // seconds more, so that the budget has that much less room.
            let (times, until) = &mut self.allowed;
            *times += u64::from(begun > *until + plan.deadline_us);
            *until = at;
            let rounded = *times * (ROUNDED + rule.meter.flows_in(plan.deadline_us));
            self.rounded = rounded + self.returned;
        }
    }

    /// Counts what the store admitted: no permit is over, except for leases that it does not know of, each counted
    /// once unless it was put back.
    fn by_store(&mut self, at: u64, permits: u64) -> Option<String> {
        for RuleRecord { exact, spent, spec, .. } in &mut self.rules {
            let excused = self.excused - *spent;
            if let Some(over) = admit_excused(exact, spent, excused, at, permits) {
                return Some(format!("the store admits {over} over {spec:?}"));
            }
        }
        None
    }

    /// Counts what the old store of a failover admitted: no permit is over the usage that it had then, and the replica
    /// does not know of it.
    fn by_old(&mut self, at: u64, permits: u64) -> Option<String> {
        self.by_old += permits;
        for RuleRecord { old, spec, .. } in &mut self.rules {
            let Some((old, spent)) = old else { continue };
            let excused = self.excused - *spent;
            if let Some(over) = admit_excused(old, spent, excused, at, permits) {
                return Some(format!("the old store admits {over} over {spec:?}"));
            }
        }
        None
    }

    /// Counts what a node admitted by its share: the rule, divided by the nodes.
    fn by_share(
        &mut self,
        plan: &Plan,
        of: Process,
        run: Option<u64>,
        admitted: AdmittedPermits,
    ) -> Option<String> {
        let AdmittedPermits { permits, begun, at } = admitted;
        let share = self.shares.entry(of).or_default();
        if share.run.is_none() || run.is_some_and(|run| share.run != Some(run)) {
            share.run = Some(run.unwrap_or(0));
            share.is_vague = false;
            self.outages += 1;
            share.meters = self.rules.iter().map(|rule| Meter::of(&rule.spec, plan)).collect();
        }
        share.is_vague |= run.is_none();
        let nodes = plan.nodes as u64;
        for (rule, meter) in self.rules.iter_mut().zip(&mut share.meters) {
            // A clock that runs too fast lets a twentieth more flow out.
            let flowed = meter.flows(share.last, at);
            rule.flowed += if plan.drifts() { flowed + flowed / 16 } else { flowed };
            let over = meter.admit(AdmittedPermits { permits: permits * nodes, ..admitted });
            // A request from before a change takes the share back to the earlier rules, and one from before the clock
            // was set takes it back to the earlier time.
            let is_exact = !share.is_vague && self.set_clocks == 0 && plan.versions.len() == 1;
            let is_exact = is_exact && !plan.drifts();
            if over > 0 && is_exact && rule.spec.is_strict() {
                return Some(format!(
                    "node {} of {nodes} is {} over its share of {:?}",
                    of.0,
                    over.div_ceil(nodes),
                    rule.spec
                ));
            }
        }
        share.last = begun;
        None
    }

    /// Counts what was admitted by any decision.
    fn admit(&mut self, plan: &Plan, admitted: AdmittedPermits, used: &mut Used) -> Option<String> {
        // Permits that `allow` admits are not divided by the nodes.
        let nodes = if plan.on_failure == OnFailure::Allow { 1 } else { plan.nodes as u64 };
        let with_share = self.shares.len() as u64;
        // A single node knows all usage until it restarts.
        let is_first = self.shares.keys().all(|(_, life)| *life == 0) && self.ended == 0;
        // The windows are those of its own clock; and a request from before a change takes a debt back to the earlier
        // rules.
        let is_in_time = self.ahead_us == 0 && plan.versions.len() == 1 && !plan.drifts();
        let knows_all = plan.nodes == 1 && is_first && is_in_time;
        for rule in &mut self.rules {
            let over = rule.meter.admit(admitted);
            used.over = used.over.max(over);
            let share = rule.limit_most.div_ceil(nodes);
            // An answer is recorded as of its question: each share that begins is larger by what flowed out in between.
            // Each fault is one outage.
            let outages = self.outages.min(plan.faults.len() as u64 + 1);
            let late = outages * rule.meter.flows_in(plan.deadline_us);
            // A share is that of a window of the node's clock, and two of these may lie in one of the store's.
            let is_out_of_step = rule.meter.is_out_of_step() || plan.drifts();
            let windows = 1 + u64::from(is_out_of_step);
            let shares = match knows_all {
                true => late,
                false => with_share * share * windows + late + rule.flowed_permits(plan),
            };
            let has_decided_alone = with_share > 0 || self.allowed.0 > 0;
            let beyond = if has_decided_alone { self.beyond } else { 0 };
            let anew = (self.ended + self.set_clocks) * share;
            let allowed = shares + anew + self.booked_alone + self.rounded + self.excused;
            let allowed = allowed + self.by_old;
            let allowed = allowed + beyond;
            // No answer reports what Guava's algorithm lets pass on the next request's bill.
            let is_known = rule.spec.is_strict() || with_share == 0;
            if over > allowed && is_known {
                return Some(format!(
                    "{} over {:?}, of which {allowed} are allowed",
                    over, rule.spec
                ));
            }
        }
        None
    }
}

/// Counts permits that a store admitted at an instant. Each permit that is over uses up an excuse; returns how many are
/// over if there are fewer excuses.
fn admit_excused(
    meter: &mut Meter,
    spent: &mut u64,
    excused: u64,
    at: u64,
    permits: u64,
) -> Option<u64> {
    let over = meter.admit(AdmittedPermits { permits, begun: at, at });
    if over > excused {
        return Some(over);
    }
    *spent += over;
    meter.forgive(at, over);
    None
}

impl RuleRecord {
    /// Removes permits that went back into a lease from the usage. Those that are not in it were excused, and can be
    /// taken again.
    fn put_back(&mut self, at: u64, permits: u64) {
        let excused = permits.saturating_sub(self.exact.used_permits(at));
        self.spent = self.spent.saturating_sub(excused);
        self.meter.forgive(at, permits);
        self.exact.forgive(at, permits);
    }

    /// Returns the permits that flowed out of shares.
    fn flowed_permits(&self, plan: &Plan) -> u64 {
        self.flowed_before + self.flowed.div_ceil(self.meter.units() * plan.nodes as u64)
    }
}
