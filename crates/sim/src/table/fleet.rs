//! One run: engines under a load, and one exact limiter beside them.

use std::collections::VecDeque;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use fastrand::Rng;
use sluicegate::internals::kernel::{Moment, RuleSet, States};
use sluicegate::internals::store::Executed as Effect;
use sluicegate::policy::PolicySet;
use sluicegate::store::StoreError;
use sluicegate::{Cost, Engine, LEASE_PATIENCE, Micros, Mode, Request, StoreFailure, Verb};

use super::Case;
use super::level::Level;
use crate::clock::{BEGIN, SimClock};
use crate::plan::{MS, SECOND};
use crate::queue::Queue;
use crate::server::StoreServer;
use crate::wire::{Executed, Outgoing, Reply, ReplySlot, Said, SimStore, StoreAsk};

/// The deadline of a call of the store, µs.
const DEADLINE_US: u64 = 20 * MS;

/// Keys that an engine remembers.
const KEYS_REMEMBERED: usize = 1 << 16;

/// A check of one permit.
const CHECK: Verb = Verb::Check { cost: Cost::ONE };

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) asks: u64,
    pub(super) admitted: u64,
    /// Permits that one exact limiter admits of the same requests.
    pub(super) exact: u64,
    /// Calls of the store.
    pub(super) calls: u64,
    /// Requests that waited for an answer.
    pub(super) waited: u64,
    /// Permits over the limit in the worst interval; below 0: permits left.
    pub(super) over: i64,
}

/// A run under way.
pub(super) struct FleetRun<'c> {
    case: &'c Case,
    leases: bool,
    now: u64,
    events: Queue<Event>,
    clock: Arc<SimClock>,
    nodes: Vec<Node>,
    tasks: Vec<Option<Task>>,
    free_tasks: Vec<usize>,
    ready: Arc<Mutex<VecDeque<usize>>>,
    server: StoreServer,
    policies: PolicySet,
    rules: Arc<RuleSet>,
    levels: Vec<Level>,
    states: Vec<States>,
    arrivals: Rng,
    network: Rng,
    figures: Figures,
}

struct Node {
    engine: Arc<Engine<SimStore>>,
    store: SimStore,
    life: u32,
}

struct Task {
    node: usize,
    waker: Waker,
    future: Pin<Box<dyn Future<Output = Done> + Send>>,
}

/// The result of a task.
enum Done {
    /// A check of a key, and the mode of the answer that admitted it; `None`: no permit.
    Decided(usize, Option<Mode>),
    Kept,
}

enum Event {
    Arrives(usize),
    AtServer { node: usize, life: u32, slot: Arc<ReplySlot>, ask: Arc<StoreAsk> },
    AtNode { node: usize, life: u32, slot: Arc<ReplySlot>, reply: Box<Reply>, executed: Executed },
    Lost { slot: Arc<ReplySlot> },
    Rings(Waker),
    Dies(usize),
    Flushed,
}

struct TaskWaker {
    task: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl<'c> FleetRun<'c> {
    /// Runs `case` by `seed`, with leases or without.
    pub(super) fn run(case: &'c Case, seed: u64, leases: bool) -> Figures {
        // Engines draw the jitter of their paces from it.
        fastrand::seed(seed);
        let mut fleet = Self::new(case, seed, leases);
        while let Some((at, event)) = fleet.events.next() {
            if at > case.span_us {
                break;
            }
            fleet.now = at;
            fleet.clock.set(at);
            fleet.happens(event);
            fleet.run_tasks();
        }
        fleet.figures
    }

    fn new(case: &'c Case, seed: u64, leases: bool) -> Self {
        let policies = case.policies();
        let policy = policies.resolve("p").expect("the document has it");
        let rules = Arc::clone(policy.rules_at(b"", Micros::ZERO).rules.set());
        let keys = case.load.keys.count();
        let mut fleet = Self {
            case,
            leases,
            now: 0,
            events: Queue::new(),
            clock: Arc::default(),
            nodes: Vec::new(),
            tasks: Vec::new(),
            free_tasks: Vec::new(),
            ready: Arc::default(),
            server: StoreServer::default(),
            policies,
            rules,
            levels: vec![Level::of(&case.rule); keys],
            states: vec![States::default(); keys],
            arrivals: Rng::with_seed(seed),
            network: Rng::with_seed(seed + 1),
            figures: Figures { over: i64::MIN, ..Figures::default() },
        };
        fleet.clock.set(0);
        for node in 0..case.nodes {
            let process = fleet.process(0);
            fleet.nodes.push(process);
            fleet.keep(node);
            let gap = case.load.gap(&mut fleet.arrivals);
            fleet.at(gap, Event::Arrives(node));
        }
        if let Some(every_us) = case.dies_every_us {
            fleet.at(every_us, Event::Dies(0));
        }
        case.flushed_at_us.iter().for_each(|at| fleet.at(*at, Event::Flushed));
        fleet
    }

    fn process(&self, life: u32) -> Node {
        let store = SimStore::default();
        let nodes = u32::try_from(self.case.nodes).ok().and_then(NonZeroU32::new);
        let nodes = nodes.expect("a case has a node");
        let engine = Engine::new(PolicySet::default(), store.clone(), Arc::clone(&self.clock) as _)
            .with_fallback(StoreFailure { nodes, keys_max: KEYS_REMEMBERED });
        let engine = match self.leases {
            true => engine.with_leases(LEASE_PATIENCE),
            false => engine,
        };
        engine.set_policies_as_of(self.policies.clone(), |_| Some(Micros::new(BEGIN)));
        Node { engine: Arc::new(engine), store, life }
    }

    fn keep(&mut self, node: usize) {
        let engine = Arc::clone(&self.nodes[node].engine);
        self.spawn(node, async move {
            engine.keep_leases().await;
            Done::Kept
        });
    }

    fn at(&mut self, at: u64, event: Event) {
        self.events.add(at, event);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives(node) => {
                let gap = self.case.load.gap(&mut self.arrivals);
                self.at(self.now + gap, Event::Arrives(node));
                if self.case.load.comes(&mut self.arrivals, self.now, node) {
                    let key = self.case.load.keys.pick(&mut self.arrivals);
                    self.ask(node, key);
                }
            }
            Event::AtServer { node, life, slot, ask } => {
                self.figures.calls += 1;
                let reply = Box::new(self.server.execute(&ask, self.now).reply);
                if let Ok(Said::Decided(answer, _)) = &*reply
                    && answer.verdict.decision.granted() > 0
                {
                    self.uses(key_of(&ask.key));
                }
                let executed = (self.now, 0);
                let answer = Event::AtNode { node, life, slot: Arc::clone(&slot), reply, executed };
                self.carry(answer, slot);
            }
            Event::AtNode { node, life, slot, reply, executed } => {
                if self.nodes[node].life == life {
                    slot.put(*reply, executed);
                }
            }
            // Other calls are answered: the store is overloaded.
            Event::Lost { slot } => {
                let error = StoreError::Overloaded { executed: Effect::Perhaps };
                slot.put(Err(error), (self.now, 0));
            }
            Event::Rings(waker) => waker.wake(),
            Event::Dies(node) => self.dies(node),
            Event::Flushed => drop(self.server.forget(None, self.now)),
        }
    }

    fn dies(&mut self, node: usize) {
        for place in 0..self.tasks.len() {
            if self.tasks[place].as_ref().is_some_and(|task| task.node == node) {
                self.tasks[place] = None;
                self.free_tasks.push(place);
            }
        }
        self.nodes[node] = self.process(self.nodes[node].life + 1);
        self.keep(node);
        let next = self.network.usize(0..self.case.nodes);
        let every_us = self.case.dies_every_us.unwrap_or(SECOND);
        self.at(self.now + every_us, Event::Dies(next));
    }

    /// A request comes to `node`, and to the exact limiter.
    fn ask(&mut self, node: usize, key: usize) {
        self.figures.asks += 1;
        let at = Moment::new(Micros::new(BEGIN + self.now));
        let exact = self.rules.decide(&mut self.states[key], &CHECK, &at);
        self.figures.exact += exact.map_or(0, |verdict| verdict.decision.granted());
        let name = key_name(key);
        let engine = Arc::clone(&self.nodes[node].engine);
        // As in servers, a decision that needs no call needs no future.
        if let Some(Ok(admission)) = engine.turn().try_decide(&request(&name)) {
            if admission.answer.decision.granted() > 0 {
                self.figures.admitted += 1;
                self.uses(key);
            }
            return self.send_all(node);
        }
        self.figures.waited += 1;
        self.spawn(node, async move {
            let answer =
                engine.turn().decide(&request(&name)).await.map(|admission| admission.answer);
            let admitted = answer.ok().filter(|answer| answer.decision.granted() > 0);
            Done::Decided(key, admitted.map(|answer| answer.mode))
        });
    }

    /// Counts a permit of `key` that is used at this instant.
    fn uses(&mut self, key: usize) {
        self.figures.over = self.figures.over.max(self.levels[key].admit(self.now));
    }

    // ---- tasks

    fn spawn(&mut self, node: usize, future: impl Future<Output = Done> + Send + 'static) {
        let place = self.free_tasks.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        });
        let waker = Arc::new(TaskWaker { task: place, ready: Arc::clone(&self.ready) });
        waker.wake_by_ref();
        self.tasks[place] = Some(Task { node, waker: waker.into(), future: Box::pin(future) });
    }

    fn run_tasks(&mut self) {
        loop {
            let next = self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(place) = next else { return };
            // A place may have been given to another task since.
            let Some(mut task) = self.tasks[place].take() else { continue };
            let polled = task.future.as_mut().poll(&mut Context::from_waker(&task.waker));
            let node = task.node;
            match polled {
                Poll::Pending => self.tasks[place] = Some(task),
                Poll::Ready(done) => {
                    self.free_tasks.push(place);
                    self.done(&done);
                }
            }
            self.send_all(node);
        }
    }

    fn done(&mut self, done: &Done) {
        let Done::Decided(key, Some(mode)) = *done else { return };
        self.figures.admitted += 1;
        // A permit that the store admitted was counted when it did.
        if mode != Mode::Store {
            self.uses(key);
        }
    }

    /// Sends the calls of a node, and sets its alarms.
    fn send_all(&mut self, node: usize) {
        let outbox = {
            let mut wire = self.nodes[node].store.0.lock();
            wire.heard.clear();
            wire.billed.clear();
            std::mem::take(&mut wire.outbox)
        };
        let life = self.nodes[node].life;
        for Outgoing { slot, ask } in outbox {
            self.carry(Event::AtServer { node, life, slot: Arc::clone(&slot), ask }, slot);
        }
        for (at, waker) in self.clock.take_alarms() {
            self.at(self.now + self.clock.shows_in(at, self.now), Event::Rings(waker));
        }
    }

    /// Carries a message one way: it takes half a round trip, up to half of that more or less, or
    /// is lost.
    fn carry(&mut self, event: Event, slot: Arc<ReplySlot>) {
        if self.network.f64() * 100.0 < self.case.lost_percent {
            return self.at(self.now + DEADLINE_US, Event::Lost { slot });
        }
        let half = self.case.round_trip_us / 2;
        let takes = self.network.u64(half / 2..=half / 2 * 3);
        self.at(self.now + takes, event);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(self.task);
    }
}

fn request(key: &[u8]) -> Request<'_> {
    Request::new("p", Some(key), CHECK)
}

/// Returns the name of a key.
fn key_name(key: usize) -> [u8; 8] {
    (key as u64).to_be_bytes()
}

/// Returns the key with this name.
fn key_of(name: &[u8]) -> usize {
    name.iter().fold(0, |key, byte| key << 8 | usize::from(*byte))
}
