//! One history: events in the order of true time, and the futures that they wake.

mod answers;
mod breaker_checks;
mod calls;
mod debt_checks;
mod disturbances;
mod failover;
mod faults;
mod lease_checks;
mod memory;
mod permits;
mod reply_checks;
mod tasks;
mod waits;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::Waker;

use sluicegate::internals::kernel::Called;
use sluicegate::internals::store::redis::affordable;
use sluicegate::policy::PolicySet;

use crate::bounds::{BoundsRecord, Lost, Used, Violation};
use crate::net::Link;
use crate::node::{self, Done, NodeProcess, PermitStep};
use crate::oracle::Calm;
use crate::plan::{Arrival, Fault, Hold, MS, Plan, SECOND, generator};
use crate::promises::Invariant;
use crate::queue::Queue;
use crate::server::StoreServer;
use crate::token::Generation;
use crate::wire::{Executed, Reply};
use breaker_checks::{Probes, Silence};
use calls::StoreCall;
use debt_checks::NodeDebts;
use failover::Replaced;
use lease_checks::{Central, Grants};
use memory::Refusal;
use permits::Permits;
use tasks::EngineTask;
pub(crate) use tasks::TaskView;
use waits::Wait;

/// The period in which a node pays its debts, and checks its leases, µs.
const CHORES_EVERY_US: u64 = 250 * MS;

/// The time that the fleet goes on after the last request and the last fault, µs.
const REST_US: u64 = 3 * SECOND;

/// The rest where keys are leased, µs: an idle lease ends within a second, or lapses after its longest term.
const HOT_REST_US: u64 = 4 * SECOND;

/// The longest time after a fault in which decisions may still be made without the store, µs.
pub(crate) const RECOVERY_US: u64 = SECOND;

/// The most calls of the store for one decision: the engine's four, and one to remind the store.
const ASKED_MAX: u64 = 5;

/// The result of a history.
#[derive(Clone, Debug)]
pub struct HistoryResult {
    /// The first violation.
    pub violation: Option<Violation>,
    /// A hash of all events.
    pub hash: u64,
    /// The permits that were admitted, by kind.
    pub used: Used,
    /// Keys whose writes the store lost while nothing else went wrong, and a holder lived.
    pub lost: Vec<Lost>,
    /// The history had no faults, and no permit was given back.
    pub is_quiet: bool,
    /// Requests that were decided.
    pub decided: u64,
    /// Calls that the store executed.
    pub calls: u64,
    /// The longest that a decision took, in deadlines, rounded up.
    pub slowest_deadlines: u64,
    /// All events, if a trace was asked for.
    pub trace: Vec<String>,
}

/// Something that happens at an instant.
#[derive(Clone, Debug)]
pub(crate) enum WorldEvent {
    Arrives(usize),
    /// The client of a task goes away.
    Leaves {
        task: usize,
    },
    /// The next request of a client, after an answer.
    Follows(Arrival, Then),
    AtServer {
        call: usize,
    },
    AtNode {
        call: usize,
        reply: Box<Reply>,
        executed: Executed,
    },
    Deadline {
        call: usize,
    },
    /// An announcement of waiting requests reaches the store.
    Announced {
        called: Vec<Called>,
    },
    /// An announcement reaches a process.
    Called {
        node: usize,
        life: u32,
        called: Vec<Called>,
    },
    Begins(usize),
    Ends(usize),
    Version {
        node: usize,
        version: usize,
    },
    Chores {
        node: usize,
    },
    Connects {
        node: usize,
    },
    /// An alarm of a node's clock.
    Rings {
        node: usize,
        life: u32,
        /// The time at which it rings by the wall clock of the node.
        wall: u64,
        waker: Waker,
    },
    /// A node finds the store that took over.
    Switches {
        node: usize,
    },
    /// The faults have no effect any more.
    Healed,
    /// All nodes are replaced by others again and again, until then.
    Crowds {
        every_us: u64,
        until: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    Refund(u64),
    Settle,
    Hold(Hold, PermitStep),
}

/// A fleet, its store, and the network between them.
pub(crate) struct World<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) now: u64,
    events: Queue<WorldEvent>,
    pub(crate) tasks: Vec<Option<EngineTask>>,
    pub(crate) ready: Arc<Mutex<VecDeque<usize>>>,
    pub(crate) calls: Vec<StoreCall>,
    pub(crate) policies: Vec<PolicySet>,
    pub(crate) nodes: Vec<NodeProcess>,
    pub(crate) links: Vec<Link>,
    pub(crate) server: StoreServer,
    pub(crate) replaced: Replaced,
    /// The store stands still until then, µs.
    pub(crate) paused_until: u64,
    /// The store refuses all calls until then, and cannot read each key until then, µs.
    pub(crate) refuses_until: u64,
    pub(crate) unreadable_until: Vec<u64>,
    /// Faults that keep it down.
    pub(crate) down: u32,
    /// The number of times that the store forgot something, and how many of them each node knows of.
    pub(crate) forgot: u32,
    /// The time at which it last forgot something, µs.
    pub(crate) forgot_at: Option<u64>,
    reminded: Vec<u32>,
    /// Until when a fault may keep each node from the store, µs.
    pub(crate) disturbed_until: Vec<u64>,
    /// The time at which each node first found out since then that it may call the store again, µs.
    pub(crate) asked_since: Vec<Option<u64>>,
    /// Checks that were settled: load, instant, number.
    pub(crate) settled: BTreeSet<(u32, u64, usize)>,
    /// Permits that were admitted, by any decision.
    pub(crate) admitted: u64,
    /// Permits that the store granted to single requests whose nodes did not receive the answer in time.
    pub(crate) unheard: u64,
    /// The time at which each node last asked the store about each key, µs.
    pub(crate) sent_at: Vec<Vec<u64>>,
    /// The time at which permits of each key were last given back, µs.
    pub(crate) given_back: Vec<Option<u64>>,
    /// Until when the keeper of each node does not run, µs.
    pub(crate) late_until: Vec<u64>,
    /// Until when each node may be without the policy, µs.
    pub(crate) removed_until: Vec<u64>,
    /// The time at which each node began to stop, if it did, µs.
    pub(crate) stops_since: Vec<Option<u64>>,
    /// The calls of each process while it had given the store up, and its calls that got no answer.
    pub(crate) probes: Vec<Probes>,
    pub(crate) silence: Vec<Silence>,
    /// The last refusal that each process received, for each key.
    pub(crate) refusals: Vec<Vec<Refusal>>,
    /// The grants of all nodes.
    pub(crate) grants: Grants,
    /// Checks in a row of each node and key that went to the store.
    pub(crate) central: Vec<Vec<Central>>,
    /// The dues of each node and key.
    pub(crate) dues: Vec<Vec<NodeDebts>>,
    /// The permits that are held of each key.
    pub(crate) permits: Vec<Permits>,
    /// Requests that may wait for a permit.
    pub(crate) waits: Vec<Wait>,
    /// The number of keys with debts of the node before the running task ran.
    pub(crate) owed_before: usize,
    /// Debts that were charged.
    pub(crate) charged: BTreeSet<u128>,
    /// The demand after the faults, as one limiter would meet it.
    calm: Option<Calm>,
    pub(crate) record: BoundsRecord,
    hash: u64,
    decided: u64,
    pub(crate) executed: u64,
    slowest: u64,
    trace: Option<Vec<String>>,
}

impl<'p> World<'p> {
    /// Returns the world before anything has happened.
    fn new(plan: &'p Plan, traced: bool) -> Self {
        // The engine draws the jitter of its breaker and the ids of debts.
        fastrand::seed(plan.seed);
        let policies = node::policies(plan);
        // Redis refuses rules that would take it too long; the kernel decides such histories alone.
        let mut each = policies.iter().flat_map(PolicySet::policies);
        let with_scripts =
            plan.scripts && each.all(|policy| affordable(policy.rules().set()).is_ok());
        let start = |_| NodeProcess::start(plan, &policies, 0, Arc::default(), 0);
        let nodes = (0..plan.nodes).map(start).collect();
        let link = |node| Link::new(generator(plan.seed, 300 + node as u64));
        let mut world = Self {
            plan,
            now: 0,
            events: Queue::new(),
            tasks: Vec::new(),
            ready: Arc::default(),
            calls: Vec::new(),
            policies,
            nodes,
            links: (0..plan.nodes).map(link).collect(),
            server: StoreServer::new(with_scripts),
            replaced: Replaced::new(plan.nodes),
            paused_until: 0,
            refuses_until: 0,
            unreadable_until: vec![0; plan.keys],
            down: 0,
            forgot: 0,
            forgot_at: None,
            reminded: vec![0; plan.nodes],
            disturbed_until: vec![0; plan.nodes],
            asked_since: vec![None; plan.nodes],
            settled: BTreeSet::new(),
            admitted: 0,
            unheard: 0,
            sent_at: vec![vec![0; plan.keys]; plan.nodes],
            given_back: vec![None; plan.keys],
            late_until: vec![0; plan.nodes],
            removed_until: vec![0; plan.nodes],
            stops_since: vec![None; plan.nodes],
            probes: vec![Probes::default(); plan.nodes],
            silence: vec![Silence::default(); plan.nodes],
            refusals: vec![Refusal::of_each_key(plan); plan.nodes],
            grants: Grants::new(plan),
            central: vec![vec![Central::default(); plan.keys]; plan.nodes],
            dues: vec![vec![NodeDebts::default(); plan.keys]; plan.nodes],
            permits: vec![Permits::default(); plan.keys],
            waits: Vec::new(),
            owed_before: 0,
            charged: BTreeSet::new(),
            calm: None,
            record: BoundsRecord::default(),
            hash: 0xcbf2_9ce4_8422_2325,
            decided: 0,
            executed: 0,
            slowest: 0,
            trace: traced.then(Vec::new),
        };
        for (place, arrival) in plan.arrivals.iter().enumerate() {
            world.at(arrival.at, WorldEvent::Arrives(place));
        }
        for (place, fault) in plan.faults.iter().enumerate() {
            world.at(fault.at, WorldEvent::Begins(place));
        }
        if let Some(at) = plan.healed_at {
            world.at(at, WorldEvent::Healed);
        }
        for node in 0..plan.nodes {
            world.keep_leases(node);
            world.pass_calls(node);
            world.at(CHORES_EVERY_US / (node as u64 + 1), WorldEvent::Chores { node });
        }
        world
    }

    /// Runs the history.
    pub(crate) fn run(plan: &'p Plan, traced: bool) -> HistoryResult {
        let mut world = Self::new(plan, traced);
        let last_fault = plan.faults.iter().map(|fault| fault.at + fault.span).max();
        let rest_us = if plan.leases { HOT_REST_US } else { REST_US };
        let rest_us = rest_us + waits::rest_us(plan);
        let end = plan.span_us.max(last_fault.unwrap_or(0)) + rest_us;
        while let Some((at, event)) = world.events.next() {
            if at > end || world.record.has_failed() {
                break;
            }
            world.now = at;
            world.happens(event);
            world.run_tasks();
        }
        world.end()
    }

    fn end(mut self) -> HistoryResult {
        debt_checks::check_debts(&mut self);
        lease_checks::check_end(&mut self);
        reply_checks::check_left(&mut self);
        waits::check_end(&mut self);
        let (mut violation, used, lost) = self.record.verdict(self.plan);
        if violation.is_none() {
            violation = crate::oracle::compare(self.plan, used.admitted, self.now);
        }
        if let (None, Some(calm)) = (&violation, self.calm) {
            violation = calm.compare(self.plan, self.admitted, self.now);
        }
        HistoryResult {
            violation,
            hash: self.hash,
            used,
            lost,
            is_quiet: self.plan.is_quiet(),
            decided: self.decided,
            calls: self.executed,
            slowest_deadlines: self.slowest.div_ceil(self.plan.deadline_us),
            trace: self.trace.unwrap_or_default(),
        }
    }

    pub(crate) fn at(&mut self, at: u64, event: WorldEvent) {
        self.events.add(at, event);
    }

    /// Notes that something happened, for the hash and the trace.
    pub(crate) fn seen(&mut self, what: fmt::Arguments<'_>) {
        struct Fold<'a>(&'a mut u64);
        impl fmt::Write for Fold<'_> {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                for byte in text.bytes() {
                    *self.0 = (*self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
                }
                Ok(())
            }
        }
        let now = self.now;
        fmt::write(&mut Fold(&mut self.hash), format_args!("{now}{what}"))
            .expect("a fold takes all");
        self.trace(what);
    }

    /// Notes an event that happens often: the hash takes `numbers`, and only a trace takes the text.
    pub(crate) fn seen_often(&mut self, numbers: &[u64], what: fmt::Arguments<'_>) {
        for number in numbers.iter().chain(&[self.now]) {
            self.hash = (self.hash ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
        }
        self.trace(what);
    }

    fn trace(&mut self, what: fmt::Arguments<'_>) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>10.3} ms  {what}", now as f64 / 1_000.0));
        }
    }

    fn happens(&mut self, event: WorldEvent) {
        if let Some(node) = self.node_of(&event)
            && self.nodes[node].paused_until > self.now
        {
            let at = self.nodes[node].paused_until;
            return self.at(at, event);
        }
        match event {
            WorldEvent::Arrives(place) => self.arrives(place),
            WorldEvent::Leaves { task } => self.leaves(task),
            WorldEvent::Follows(arrival, then) => self.follows(arrival, then),
            WorldEvent::AtServer { call } => self.at_server(call),
            WorldEvent::AtNode { call, reply, executed } => self.at_node(call, *reply, executed),
            WorldEvent::Deadline { call } => self.deadline(call),
            WorldEvent::Announced { called } => self.announced(&called),
            WorldEvent::Called { node, life, called } => self.called(node, life, called),
            WorldEvent::Begins(place) => {
                let fault = self.plan.faults[place];
                self.seen(format_args!("fault {}: {:?}", fault.number, fault.kind));
                self.begins(&fault);
                self.at(self.now + fault.span, WorldEvent::Ends(place));
            }
            WorldEvent::Ends(place) => {
                let fault = self.plan.faults[place];
                self.seen(format_args!("fault {} is over", fault.number));
                self.ends(&fault);
            }
            WorldEvent::Version { node, version } => {
                self.seen(format_args!("node {node} has version {version}"));
                self.nodes[node].set_version(self.plan, &self.policies, version);
            }
            WorldEvent::Chores { node } => self.chores(node),
            WorldEvent::Connects { node } => self.connects(node),
            WorldEvent::Rings { node, life, wall, waker } => self.rings(node, life, wall, waker),
            WorldEvent::Switches { node } => failover::switches(self, node),
            WorldEvent::Healed => {
                let last = self.policies.last().expect("there is a first version");
                self.calm = Calm::of(self.plan, last, &self.server, self.now, self.admitted);
            }
            WorldEvent::Crowds { every_us, until } => self.crowds(every_us, until),
        }
    }

    /// Returns the node of an event, if the node must be awake for it.
    fn node_of(&self, event: &WorldEvent) -> Option<usize> {
        match *event {
            WorldEvent::Arrives(place) => Some(self.plan.arrivals[place].node),
            WorldEvent::Follows(Arrival { node, .. }, _)
            | WorldEvent::Version { node, .. }
            | WorldEvent::Chores { node }
            | WorldEvent::Switches { node }
            | WorldEvent::Called { node, .. }
            | WorldEvent::Connects { node }
            | WorldEvent::Rings { node, .. } => Some(node),
            WorldEvent::AtNode { call, .. } | WorldEvent::Deadline { call } => {
                Some(self.calls[call].node)
            }
            WorldEvent::Leaves { task } => self.tasks[task].as_ref().map(|task| task.node),
            WorldEvent::AtServer { .. }
            | WorldEvent::Announced { .. }
            | WorldEvent::Begins(_)
            | WorldEvent::Ends(_)
            | WorldEvent::Healed
            | WorldEvent::Crowds { .. } => None,
        }
    }

    /// Rings an alarm, unless the clock has been set meanwhile.
    fn rings(&mut self, node: usize, life: u32, wall: u64, waker: Waker) {
        let early_us = self.nodes[node].clock.shows_in(wall, self.now);
        if self.nodes[node].life != life {
            return;
        }
        match early_us {
            0 => waker.wake(),
            _ => self.at(self.now + early_us, WorldEvent::Rings { node, life, wall, waker }),
        }
    }

    /// Ends each process, and starts another one in its place.
    pub(crate) fn crowds(&mut self, every_us: u64, until: u64) {
        for node in 0..self.plan.nodes {
            faults::replace(self, node);
        }
        if self.now + every_us <= until {
            self.at(self.now + every_us, WorldEvent::Crowds { every_us, until });
        }
    }

    fn arrives(&mut self, place: usize) {
        let (before, from) = self.plan.arrivals.split_at(place);
        let arrival = from[0];
        let is_asked = before.last().is_some_and(|before| arrival.is_asked_with(before));
        if is_asked || !self.nodes[arrival.node].is_up {
            return;
        }
        let engine = Arc::clone(&self.nodes[arrival.node].engine);
        let together = from.iter().take_while(|other| arrival.is_asked_with(other));
        let together: Vec<_> = together.copied().collect();
        match together.len() {
            0..=1 => {
                self.spawn(arrival.node, node::decide(engine, arrival));
                waits::begins(self, &arrival);
                if let Some(after) = self.plan.leaves_after(&arrival) {
                    let task = self.tasks.len() - 1;
                    self.at(self.now + after, WorldEvent::Leaves { task });
                }
            }
            _ => self.spawn(arrival.node, node::decide_each(engine, together)),
        }
    }

    /// Drops the task of a client that goes away.
    fn leaves(&mut self, task: usize) {
        waits::leaves(self, task);
        if let Some(task) = self.tasks[task].take() {
            self.seen(format_args!("a client of node {} goes away", task.node));
            self.nodes[task.node].clock.set(self.now);
        }
    }

    fn follows(&mut self, arrival: Arrival, then: Then) {
        if !self.nodes[arrival.node].is_up {
            return;
        }
        let engine = Arc::clone(&self.nodes[arrival.node].engine);
        let node = arrival.node;
        match then {
            Then::Refund(permits) => self.spawn(node, node::refund(engine, arrival, permits)),
            Then::Settle => {
                let id = (arrival.number as u64) << 8 | u64::from(arrival.load);
                self.spawn(node, node::settle(Arc::clone(&engine), arrival, id));
                self.spawn(node, node::settle(engine, arrival, id));
            }
            Then::Hold(hold, step) => {
                permits::begins(self, &arrival, hold, step);
                self.spawn(node, node::hold(engine, arrival, hold, step));
            }
        }
    }

    fn chores(&mut self, node: usize) {
        self.at(self.now + CHORES_EVERY_US, WorldEvent::Chores { node });
        if !self.nodes[node].is_up {
            return;
        }
        lease_checks::check_held(self, node);
        lease_checks::check_returned(self, node);
        waits::check_turns(self);
        self.notice_loss(node);
        if self.nodes[node].engine.debts() > 0 {
            let engine = Arc::clone(&self.nodes[node].engine);
            self.spawn(node, node::pay(engine));
        }
    }

    /// Lets a node that reaches the store find out whether the store has forgotten.
    pub(crate) fn notice_loss(&mut self, node: usize) {
        let reaches = self.links[node].is_connected && self.links[node].carries();
        let answers = self.down == 0 && self.paused_until <= self.now;
        if self.plan.reminds && reaches && answers && self.reminded[node] < self.forgot {
            self.reminded[node] = self.forgot;
            self.seen(format_args!("node {node} notices that the store has forgotten"));
            self.nodes[node].clock.set(self.now);
            self.nodes[node].engine.remind_store();
            debt_checks::remind(self, node);
        }
    }

    /// Returns the key with this name.
    pub(crate) fn key_of(&self, name: &[u8]) -> Option<usize> {
        (0..self.plan.keys).find(|key| node::key_name(*key) == name)
    }

    // ---- answers

    pub(crate) fn done(&mut self, task: &EngineTask, done: Done) {
        self.decided += match &done {
            Done::DecidedEach(each) => each.len() as u64,
            _ => 1,
        };
        let (now, took) = (self.now, self.now - task.begun_at);
        let until = self.nodes[task.node].paused_until.max(self.late_until[task.node]);
        let stood = until > task.begun_at;
        let is_decided = matches!(
            done,
            Done::Decided(..) | Done::DecidedEach(_) | Done::Refunded(..) | Done::Held(..)
        );
        if is_decided && !stood {
            if !waits::may_wait(self.plan, &done) {
                self.slowest = self.slowest.max(took);
            }
            if waits::takes_too_long(self, &done, took) {
                let what = format!("a request waits for {took} µs: {done:?}");
                self.record.fail(Invariant::NoPlaceLeaks, now, what);
            } else if !waits::may_wait(self.plan, &done) && took > ASKED_MAX * self.plan.deadline_us
            {
                self.record.fail(
                    Invariant::DecisionInTime,
                    now,
                    format!("a decision took {took} µs: {done:?}"),
                );
            }
        }
        match done {
            Done::DecidedEach(each) => {
                for (arrival, asker, decided) in each {
                    let view = TaskView { is_batch: took > 0, ..task.view(Some(asker)) };
                    reply_checks::see(self, view, Done::Decided(arrival, decided));
                }
            }
            done => reply_checks::see(self, task.view(None), done),
        }
    }

    pub(crate) fn refund_later(&mut self, arrival: Arrival, permits: u64) {
        let is_late = self.plan.leases && self.plan.generation >= Generation::Second;
        let within = if is_late { 600 * MS } else { 200 * MS };
        let at = self.now + 1 + arrival.at % within;
        self.at(at, WorldEvent::Follows(arrival, Then::Refund(permits)));
    }

    pub(crate) fn settle_later(&mut self, arrival: Arrival) {
        let at = self.now + 1 + arrival.at % (200 * MS);
        self.at(at, WorldEvent::Follows(arrival, Then::Settle));
    }

    pub(crate) fn hold_later(&mut self, arrival: Arrival, hold: Hold, step: PermitStep) {
        self.at(self.now + hold.for_us, WorldEvent::Follows(arrival, Then::Hold(hold, step)));
    }

    pub(crate) fn version_later(&mut self, node: usize, version: usize, after: u64) {
        self.at(self.now + after, WorldEvent::Version { node, version });
    }

    /// Begins a fault.
    fn begins(&mut self, fault: &Fault) {
        faults::begins(self, fault);
    }

    fn ends(&mut self, fault: &Fault) {
        faults::ends(self, fault);
    }
}
