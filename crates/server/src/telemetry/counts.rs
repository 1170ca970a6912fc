//! Counts of decisions: each worker has its own, and a scrape adds them up.
//!
//! ```text
//! thread ─▶ its shard ─▶ policy (by name) ─▶ wire ─▶ one counter for result and mode
//! ```
//!
//! Noting a decision takes no lock, touches no cache line that another worker writes to, and
//! allocates only for the first decision of a policy on a wire. The table of policies is replaced
//! when the policies change; every thread keeps the one it saw last, and looks at one number to know
//! that it is still the right one. Counts belong to the name of a policy and stay when its rules
//! change.

use std::cell::RefCell;
use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use foldhash::fast::FixedState;
use sluicegate::{DecideError, Limits, Mode, Request, Verb};
use sluicegate_control::traffic::{Counts, SHED, WITHOUT_STORE};

use super::keys::KeyWriter;
use super::top::PolicySketches;
use crate::histogram::{Histogram, Spans};
use crate::protocol::Wire;

/// Policies that have counts of their own at most, those that are in force no more included; further
/// ones are counted together. Each is some ten time series, and a server with tens of thousands of
/// those is no pleasure to any monitoring system.
pub(crate) const POLICIES_COUNTED_MAX: usize = 2_000;

/// What became of a request that asked for permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Allowed,
    Held,
    Shadowed,
    Degraded,
    Diverted,
    Refused,
}

/// Whose decision it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionSource<'a> {
    /// A policy's.
    Policy(&'a str),
    /// That of rules which the caller brought along.
    Caller,
    /// Nobody's: there is no such policy, or it was not looked for because the key makes no sense.
    Unknown,
}

const FATES: [Fate; 6] =
    [Fate::Allowed, Fate::Held, Fate::Shadowed, Fate::Degraded, Fate::Diverted, Fate::Refused];
const MODES: [Mode; 7] = Mode::ALL;

/// A counter for every result in every mode, and one for errors, which have none.
const PLACES: usize = FATES.len() * MODES.len() + 1;

const WIRES: usize = Wire::ALL.len();

/// What a request can be other than one for permits.
const OPERATIONS: [&str; 5] = ["peek", "refund", "reset", "release", "renew"];

/// Why a request was not decided.
const REASONS: [&str; 5] = ["unknown_policy", "unconfigured", "key", "unsupported", "store"];

/// All counts of a server.
#[derive(Debug)]
pub(crate) struct ServerCounters {
    shards: Box<[CounterShard]>,
    table: Mutex<Arc<PolicyTable>>,
    /// The number of the table that holds.
    current: AtomicU64,
    /// Sketches of refused keys that there are.
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
    /// Which keys were refused most.
    pub(super) tops: PolicySketches,
}

#[derive(Debug)]
#[repr(align(64))]
struct Cells([AtomicU64; PLACES]);

/// What a thread counts besides, over all policies.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CounterShard {
    latency: [Histogram; WIRES],
    errors: [[AtomicU64; REASONS.len()]; WIRES],
    operations: [[AtomicU64; OPERATIONS.len()]; WIRES],
}

/// What a thread knows of itself.
struct ThreadState {
    /// Of no other thread.
    number: usize,
    table: RefCell<Option<Arc<PolicyTable>>>,
}

/// Where a thread counts.
#[derive(Clone, Copy)]
struct ShardSlot {
    shard: usize,
    /// No other thread counts there.
    alone: bool,
}

thread_local! {
    static HERE: ThreadState = ThreadState {
        number: THREADS.fetch_add(1, Relaxed),
        table: const { RefCell::new(None) },
    };
}

/// Threads that have counted something.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Tables that were made.
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
    /// Of policies with these names, counted by so many threads.
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

    /// From now on policies with these names are in force as well. What was counted stays.
    pub(crate) fn follow<'n>(&self, names: impl Iterator<Item = &'n str>) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(table.with(self.shards.len(), names));
        self.current.store(table.number, Ordering::Release);
    }

    /// Counts a decision, and whose key it was where a limit refused it.
    pub(crate) fn decided(
        &self,
        (wire, subject): (Wire, DecisionSource<'_>),
        fate: Fate,
        mode: Mode,
        refused_key: Option<Option<&[u8]>>,
    ) {
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

    /// Counts a request that asked for no permits. `false` if `verb` asks for some.
    pub(crate) fn operated(&self, wire: Wire, verb: &Verb) -> bool {
        let place = match verb {
            Verb::Check { .. }
            | Verb::Reserve { .. }
            | Verb::AtMost { .. }
            | Verb::Acquire { .. } => return false,
            Verb::Peek { .. } => 0,
            Verb::Refund { .. } => 1,
            Verb::Reset => 2,
            Verb::Release { .. } => 3,
            Verb::Renew { .. } => 4,
        };
        let shard = HERE.with(|here| self.place(here).shard);
        self.shards[shard].operations[wire as usize][place].fetch_add(1, Relaxed);
        true
    }

    /// Counts how long a decision took.
    pub(crate) fn took(&self, wire: Wire, took: Duration) {
        let shard = HERE.with(|here| self.place(here).shard);
        self.shards[shard].latency[wire as usize].record(took);
    }

    /// Where the thread counts that knows `here`: the workers have shards of their own, which are as
    /// many as the first threads that count; all others share the last one.
    fn place(&self, here: &ThreadState) -> ShardSlot {
        let last = self.shards.len() - 1;
        ShardSlot { shard: here.number.min(last), alone: here.number < last }
    }

    /// Calls `count` with where the present thread counts, and the counts of `subject`.
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

    /// What became of the decisions of each policy, over all wires and modes.
    pub(super) fn totals(&self) -> Vec<(Box<str>, Counts)> {
        let table = self.table();
        table.all().map(|(name, of_policy)| (name.into(), of_policy.total())).collect()
    }

    /// Decisions that were made without the store.
    pub(super) fn without_store(&self) -> u64 {
        self.table().all().map(|(_, of_policy)| of_policy.total().0[WITHOUT_STORE]).sum()
    }

    /// What is counted of the keys of `policy` that are refused; `None` if there is no such policy.
    pub(super) fn of(&self, policy: &str) -> Option<Arc<PolicyCounters>> {
        self.table().by_name.get(policy).cloned()
    }

    /// Forgets refusals that are no news.
    pub(crate) fn turn(&self) {
        for (_, of_policy) in self.table().all() {
            of_policy.tops.turn();
        }
    }

    /// How long decisions on `wire` took, as far as it was measured.
    pub(crate) fn latency(&self, wire: Wire) -> Spans {
        let mut spans = Spans::default();
        for shard in &self.shards {
            shard.latency[wire as usize].add_to(&mut spans);
        }
        spans
    }

    /// Requests on `wire` that could not be decided, by reason.
    pub(crate) fn errors(&self, wire: Wire) -> impl Iterator<Item = (&'static str, u64)> {
        sum(&self.shards, REASONS, move |shard| &shard.errors[wire as usize])
    }

    /// Requests on `wire` that asked for no permits, by what they wanted.
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

    /// The same with these names, as far as there is room.
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

    /// All of them, by what they are called in metrics.
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
            // Cheaper than to be ready for others.
            cell.store(cell.load(Relaxed) + 1, Relaxed);
        } else {
            cell.fetch_add(1, Relaxed);
        }
    }

    /// Over all wires: results in the order of [`FATES`], errors behind them. What met an overload is not what a
    /// limit said, so it is none of those.
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
                let fate = FATES.get(place / MODES.len());
                let (result, mode) = match fate {
                    Some(fate) => (fate.name(), MODES[place % MODES.len()].name()),
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
    /// Whose decision `request` was, or with `error` would have been.
    pub(crate) fn of(request: &Request<'a>, error: Option<&DecideError>) -> Self {
        let Limits::Policy(policy) = request.limits else { return Self::Caller };
        match error {
            // The name may be anything then.
            Some(
                DecideError::UnknownPolicy(_) | DecideError::EmptyKey | DecideError::LongKey(_),
            ) => Self::Unknown,
            _ => Self::Policy(policy),
        }
    }

    /// What it is called in metrics, events and traces. The brackets are in no policy's name.
    pub(crate) const fn name(self) -> &'a str {
        match self {
            Self::Policy(name) => name,
            Self::Caller => "(caller)",
            Self::Unknown => "(unknown)",
        }
    }
}

impl Fate {
    /// What it is called in metrics and events.
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

/// Where it is in [`REASONS`].
fn reason(error: &DecideError) -> usize {
    match error {
        DecideError::UnknownPolicy(_) => 0,
        DecideError::Unconfigured { .. } => 1,
        DecideError::EmptyKey | DecideError::LongKey(_) => 2,
        DecideError::Unsupported(_) => 3,
        _ => 4,
    }
}

/// The counters that `of` finds in every shard, added up, with what they are called.
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
