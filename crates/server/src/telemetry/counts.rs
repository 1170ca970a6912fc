//! Counts of decisions: each worker has its own, and a scrape adds them up.
//!
//! ```text
//! thread ─▶ its shard ─▶ policy (by name) ─▶ wire ─▶ one counter for result and mode
//! ```
//!
//! Noting a decision takes no lock, touches no cache line that another worker writes to, and
//! allocates only for the first decision of a policy on a wire. The table of policies is replaced when
//! the policies change; every thread keeps the one that it saw last, and compares one number to check
//! that it is still in force. Counts belong to the name of a policy and stay when its rules change.

use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use sluicegate::internals::Limits;
use sluicegate::{DecideError, Mode, Request, Verb};
use sluicegate_control::traffic::{Counts, SHED, WITHOUT_STORE};

use super::keys::KeyWriter;
use super::top::PolicySketches;
use crate::histogram::{Histogram, Spans};
use crate::protocol::Wire;

/// Maximum number of policies with counts of their own, including policies that are no longer in
/// force; further ones are counted together. Each has some ten time series, and a server with tens
/// of thousands of those burdens any monitoring system.
pub(crate) const POLICIES_COUNTED_MAX: usize = 2_000;

/// The results of all decisions of a policy.
#[derive(Clone, Debug)]
pub(super) struct PolicyTotal {
    pub(super) policy: Box<str>,
    pub(super) counts: Counts,
}

/// A decision that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedDecision<'a> {
    pub(crate) wire: Wire,
    pub(crate) subject: DecisionSource<'a>,
    pub(crate) fate: PermitResult,
    pub(crate) mode: Mode,
    /// The key, if a limit refused the request; it is `None` inside without a key.
    pub(crate) refused_key: Option<Option<&'a [u8]>>,
}

/// The result of a request for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitResult {
    Allowed,
    Held,
    Shadowed,
    Degraded,
    Diverted,
    Refused,
}

/// The rules that decided a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionSource<'a> {
    /// A policy.
    Policy(&'a str),
    /// Rules that the caller sent.
    Caller,
    /// No rules: the policy is unknown, or was not looked up because the key is invalid.
    Unknown,
}

const MODES: [Mode; 7] = Mode::ALL;

/// A counter for every result in every mode, and one for errors, which have none.
const PLACES: usize = PermitResult::ALL.len() * MODES.len() + 1;

const WIRES: usize = Wire::ALL.len();

/// Operations that take no permits.
const OPERATIONS: [&str; 5] = ["peek", "refund", "reset", "release", "renew"];

/// Reasons why a request was not decided.
const REASONS: [&str; 5] = ["unknown_policy", "unconfigured", "key", "unsupported", "store"];

/// All counts of a server.
#[derive(Debug)]
pub(crate) struct ServerCounters {
    shards: Box<[CounterShard]>,
    table: Mutex<Arc<PolicyTable>>,
    /// The number of the table in force.
    current: AtomicU64,
    /// The number of sketches of refused keys.
    sketches: AtomicUsize,
    keys: Arc<KeyWriter>,
}

/// The policies that are counted.
#[derive(Debug)]
struct PolicyTable {
    /// Different from that of any other table in this process.
    number: u64,
    by_name: HashMap<Box<str>, Arc<PolicyCounters>, FixedState>,
    caller: Arc<PolicyCounters>,
    unknown: Arc<PolicyCounters>,
    other: Arc<PolicyCounters>,
}

/// The counts of one policy: for every shard and wire, made when first needed.
#[derive(Debug)]
pub(super) struct PolicyCounters {
    cells: Box<[OnceLock<Box<Cells>>]>,
    /// Sketches of the keys that were refused most.
    pub(super) tops: PolicySketches,
}

#[derive(Debug)]
#[repr(align(64))]
struct Cells([AtomicU64; PLACES]);

/// The counts of a shard over all policies.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CounterShard {
    latency: [Histogram; WIRES],
    errors: [[AtomicU64; REASONS.len()]; WIRES],
    operations: [[AtomicU64; OPERATIONS.len()]; WIRES],
}

/// The state of a thread that counts.
struct ThreadState {
    /// Different from that of any other thread.
    number: usize,
    table: RefCell<Option<Arc<PolicyTable>>>,
}

/// The shard that a thread counts in.
#[derive(Clone, Copy)]
struct ShardSlot {
    shard: usize,
    /// No other thread counts in this shard.
    alone: bool,
}

thread_local! {
    static HERE: ThreadState = ThreadState {
        number: THREADS.fetch_add(1, Relaxed),
        table: const { RefCell::new(None) },
    };
}

/// The number of threads that have counted something.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The number of the next table.
static TABLES: AtomicU64 = AtomicU64::new(1);

/// One count of decisions, with what it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decisions {
    pub(crate) policy: Box<str>,
    pub(crate) wire: Wire,
    pub(crate) result: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) count: u64,
}

impl ServerCounters {
    /// Creates the counts of policies with these names, for so many worker threads.
    pub(crate) fn new<'n>(
        workers: NonZeroU16,
        names: impl Iterator<Item = &'n str>,
        keys: Arc<KeyWriter>,
    ) -> Self {
        let shards = usize::from(workers.get()) + 1;
        let table = PolicyTable::new(shards, names);
        let current = AtomicU64::new(table.number);
        let table = Mutex::new(Arc::new(table));
        let shards = (0..shards).map(|_| CounterShard::default()).collect();
        Self { shards, table, current, sketches: AtomicUsize::new(0), keys }
    }

    /// Adds policies with these names, which are in force from now on. Earlier counts stay.
    pub(crate) fn follow<'n>(&self, names: impl Iterator<Item = &'n str>) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(table.with(self.shards.len(), names));
        self.current.store(table.number, Ordering::Release);
    }

    /// Counts a decision, and its key if a limit refused it.
    pub(crate) fn decided(&self, decision: CountedDecision<'_>) {
        let CountedDecision { wire, subject, fate, mode, refused_key } = decision;
        self.here(subject, |here, of_policy| {
            of_policy.add(here, wire, fate as usize * MODES.len() + mode as usize);
            if let Some(key) = refused_key {
                of_policy.tops.record(here.shard, key, &self.keys, &self.sketches);
            }
        });
    }

    /// Counts a request that could not be decided.
    pub(crate) fn failed(&self, wire: Wire, subject: DecisionSource<'_>, error: &DecideError) {
        self.here(subject, |here, of_policy| {
            of_policy.add(here, wire, PLACES - 1);
            self.shards[here.shard].errors[wire as usize][reason(error)].fetch_add(1, Relaxed);
        });
    }

    /// Counts a request that takes no permits. Returns `false` for a verb that takes some.
    pub(crate) fn operated(&self, wire: Wire, verb: &Verb) -> bool {
        let place = match verb {
            Verb::Check { .. }
            | Verb::Reserve { .. }
            | Verb::AtMost { .. }
            | Verb::Acquire { .. }
            | Verb::Wait { .. } => return false,
            Verb::Peek { .. } => 0,
            Verb::Refund { .. } => 1,
            Verb::Reset => 2,
            Verb::Release { .. } | Verb::Leave { .. } => 3,
            Verb::Renew { .. } => 4,
        };
        let shard = HERE.with(|here| self.place(here).shard);
        self.shards[shard].operations[wire as usize][place].fetch_add(1, Relaxed);
        true
    }

    /// Counts the duration of a decision.
    pub(crate) fn took(&self, wire: Wire, took: Duration) {
        let shard = HERE.with(|here| self.place(here).shard);
        self.shards[shard].latency[wire as usize].record(took);
    }

    /// The shard of the thread with the state `here`: workers have shards of their own, which are as
    /// many as the first threads that count; all others share the last one.
    fn place(&self, here: &ThreadState) -> ShardSlot {
        let last = self.shards.len() - 1;
        ShardSlot { shard: here.number.min(last), alone: here.number < last }
    }

    /// Calls `count` with the shard of the present thread, and the counts of `subject`.
    fn here(&self, subject: DecisionSource<'_>, count: impl FnOnce(ShardSlot, &PolicyCounters)) {
        HERE.with(|here| {
            let mut seen = here.table.borrow_mut();
            let current = self.current.load(Ordering::Acquire);
            let table = match &mut *seen {
                Some(table) if table.number == current => table,
                outdated => outdated.insert(self.table()),
            };
            count(self.place(here), table.of(subject));
        });
    }

    fn table(&self) -> Arc<PolicyTable> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Every count of decisions that is not zero, in the order of names.
    pub(crate) fn decisions(&self) -> Vec<Decisions> {
        let table = self.table();
        let mut all: Vec<_> = table.all().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.iter().flat_map(|(name, of_policy)| of_policy.decisions(name)).collect()
    }

    /// The results of the decisions of each policy, over all wires and modes.
    pub(super) fn totals(&self) -> Vec<PolicyTotal> {
        let table = self.table();
        let total = |(name, of_policy): (&str, &PolicyCounters)| PolicyTotal {
            policy: name.into(),
            counts: of_policy.total(),
        };
        table.all().map(total).collect()
    }

    /// The number of decisions that were made without the store.
    pub(super) fn without_store(&self) -> u64 {
        self.table().all().map(|(_, of_policy)| of_policy.total().0[WITHOUT_STORE]).sum()
    }

    /// The counts of `policy`; `None` if it has none of its own.
    pub(super) fn of(&self, policy: &str) -> Option<Arc<PolicyCounters>> {
        self.table().by_name.get(policy).cloned()
    }

    /// Ends the present span of refused keys, and forgets the span before.
    pub(crate) fn turn(&self) {
        for (_, of_policy) in self.table().all() {
            of_policy.tops.turn();
        }
    }

    /// The durations of decisions on `wire`, as far as they were measured.
    pub(crate) fn latency(&self, wire: Wire) -> Spans {
        let mut spans = Spans::default();
        for shard in &self.shards {
            shard.latency[wire as usize].add_to(&mut spans);
        }
        spans
    }

    /// Numbers of requests on `wire` that could not be decided, by reason.
    pub(crate) fn errors(&self, wire: Wire) -> impl Iterator<Item = (&'static str, u64)> {
        sum(&self.shards, REASONS, move |shard| &shard.errors[wire as usize])
    }

    /// Numbers of requests on `wire` that took no permits, by operation.
    pub(crate) fn operations(&self, wire: Wire) -> impl Iterator<Item = (&'static str, u64)> {
        sum(&self.shards, OPERATIONS, move |shard| &shard.operations[wire as usize])
    }
}

impl PolicyTable {
    fn new<'n>(shards: usize, names: impl Iterator<Item = &'n str>) -> Self {
        let new = || Arc::new(PolicyCounters::new(shards));
        let (caller, unknown, other) = (new(), new(), new());
        let number = TABLES.fetch_add(1, Relaxed);
        let nobody = Self { number, by_name: HashMap::default(), caller, unknown, other };
        nobody.with(shards, names)
    }

    /// Returns a table that has these names as well, as far as there is room.
    fn with<'n>(&self, shards: usize, names: impl Iterator<Item = &'n str>) -> Self {
        let Self { number: _, by_name, caller, unknown, other } = self;
        let mut by_name = by_name.clone();
        for name in names {
            if by_name.len() == POLICIES_COUNTED_MAX {
                break;
            }
            if !by_name.contains_key(name) {
                by_name.insert(name.into(), Arc::new(PolicyCounters::new(shards)));
            }
        }
        let [caller, unknown, other] = [caller, unknown, other].map(Arc::clone);
        Self { number: TABLES.fetch_add(1, Relaxed), by_name, caller, unknown, other }
    }

    fn of(&self, subject: DecisionSource<'_>) -> &PolicyCounters {
        match subject {
            DecisionSource::Policy(name) => self.by_name.get(name).unwrap_or(&self.other),
            DecisionSource::Caller => &self.caller,
            DecisionSource::Unknown => &self.unknown,
        }
    }

    /// All counts, by their names in metrics.
    fn all(&self) -> impl Iterator<Item = (&str, &PolicyCounters)> {
        let Self { number: _, by_name, caller, unknown, other } = self;
        let (of_caller, of_unknown) =
            (DecisionSource::Caller.name(), DecisionSource::Unknown.name());
        let others = [(of_caller, caller), (of_unknown, unknown), ("(other)", other)];
        let others = others.into_iter().map(|(name, of_policy)| (name, &**of_policy));
        by_name.iter().map(|(name, of_policy)| (&**name, &**of_policy)).chain(others)
    }
}

impl PolicyCounters {
    fn new(shards: usize) -> Self {
        let cells = (0..shards * WIRES).map(|_| OnceLock::new()).collect();
        Self { cells, tops: PolicySketches::new(shards) }
    }

    fn add(&self, here: ShardSlot, wire: Wire, place: usize) {
        let cells = self.cells[here.shard * WIRES + wire as usize].get_or_init(Cells::boxed);
        let cell = &cells.0[place];
        if here.alone {
            // Cheaper than an addition that other threads can see.
            cell.store(cell.load(Relaxed) + 1, Relaxed);
        } else {
            cell.fetch_add(1, Relaxed);
        }
    }

    /// The sums over all wires: results in the order of [`PermitResult::ALL`], then errors. Requests that were shed are
    /// counted apart, because no limit decided them.
    fn total(&self) -> Counts {
        let mut total = Counts::default();
        let cells = self
            .cells
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|cells| cells.0.iter().enumerate());
        for (place, cell) in cells {
            let count = cell.load(Relaxed);
            let mode = (place < PLACES - 1).then(|| MODES[place % MODES.len()]);
            let result = if mode == Some(Mode::Shed) { SHED } else { place / MODES.len() };
            total.0[result] += count;
            if matches!(mode, Some(Mode::Local | Mode::Allow | Mode::Deny)) {
                total.0[WITHOUT_STORE] += count;
            }
        }
        total
    }

    fn decisions(&self, name: &str) -> Vec<Decisions> {
        let mut decisions = Vec::new();
        for wire in Wire::ALL {
            let mut sums = [0; PLACES];
            for cells in self.cells.iter().skip(wire as usize).step_by(WIRES) {
                let Some(cells) = cells.get() else { continue };
                for (sum, cell) in sums.iter_mut().zip(&cells.0) {
                    *sum += cell.load(Relaxed);
                }
            }
            for (place, count) in sums.into_iter().enumerate().filter(|(_, count)| *count > 0) {
                let result = PermitResult::ALL.get(place / MODES.len());
                let (result, mode) = match result {
                    Some(result) => (result.name(), MODES[place % MODES.len()].name()),
                    None => ("error", "none"),
                };
                decisions.push(Decisions { policy: name.into(), wire, result, mode, count });
            }
        }
        decisions
    }
}

impl Cells {
    fn boxed() -> Box<Self> {
        Box::new(Self([const { AtomicU64::new(0) }; PLACES]))
    }
}

impl<'a> DecisionSource<'a> {
    /// Returns the rules that decided `request`, or would have without `error`.
    pub(crate) fn of(request: &Request<'a>, error: Option<&DecideError>) -> Self {
        let Limits::Policy(policy) = request.limits else { return Self::Caller };
        match error {
            // The name may be any text then.
            Some(
                DecideError::UnknownPolicy(_) | DecideError::EmptyKey | DecideError::LongKey(_),
            ) => Self::Unknown,
            _ => Self::Policy(policy),
        }
    }

    /// The name in metrics, events and traces. No name of a policy contains brackets.
    pub(crate) const fn name(self) -> &'a str {
        match self {
            Self::Policy(name) => name,
            Self::Caller => "(caller)",
            Self::Unknown => "(unknown)",
        }
    }
}

impl PermitResult {
    /// All of them, in the order of their declaration.
    pub(crate) const ALL: [Self; 6] =
        [Self::Allowed, Self::Held, Self::Shadowed, Self::Degraded, Self::Diverted, Self::Refused];

    /// The name in metrics and events.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Held => "held",
            Self::Shadowed => "shadowed",
            Self::Degraded => "degraded",
            Self::Diverted => "diverted",
            Self::Refused => "refused",
        }
    }
}

/// The place of the reason in [`REASONS`].
fn reason(error: &DecideError) -> usize {
    match error {
        DecideError::UnknownPolicy(_) => 0,
        DecideError::Unconfigured { .. } => 1,
        DecideError::EmptyKey | DecideError::LongKey(_) => 2,
        DecideError::Unsupported(_) => 3,
        _ => 4,
    }
}

/// The counters that `of` finds in every shard, added up, with their names.
fn sum<const N: usize>(
    shards: &[CounterShard],
    names: [&'static str; N],
    of: impl Fn(&CounterShard) -> &[AtomicU64; N],
) -> impl Iterator<Item = (&'static str, u64)> {
    let mut sums = [0; N];
    for shard in shards {
        for (sum, counter) in sums.iter_mut().zip(of(shard)) {
            *sum += counter.load(Relaxed);
        }
    }
    names.into_iter().zip(sums)
}
