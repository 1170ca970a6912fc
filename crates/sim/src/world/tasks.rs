//! Tasks of the nodes: calls of an engine, until they are answered.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use super::breaker_checks::TaskRun;
use super::{World, WorldEvent};
use crate::node::{self, Done};
use crate::wire::{Asker, Billed, Executed, Heard, Time, WireState};

/// A call of an engine that has begun.
pub(crate) struct EngineTask {
    pub(crate) node: usize,
    pub(crate) life: u32,
    pub(crate) begun_at: u64,
    /// The answers of the store that it took.
    heard: Vec<(Asker, Executed)>,
    /// True for the task that keeps the leases of its node.
    is_keeper: bool,
    /// True for the task that passes calls of waiting requests on, and gives tickets back.
    pub(crate) is_caller: bool,
    /// True if it called the store.
    has_asked: bool,
    /// The waker of all polls.
    waker: Waker,
    future: Pin<Box<dyn Future<Output = Done> + Send>>,
}

#[derive(Debug)]
struct TaskWaker {
    task: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl World<'_> {
    pub(crate) fn spawn(
        &mut self,
        node: usize,
        future: impl Future<Output = Done> + Send + 'static,
    ) {
        let life = self.nodes[node].life;
        let number = self.tasks.len();
        let waker = TaskWaker { task: number, ready: Arc::clone(&self.ready) };
        let waker = Waker::from(Arc::new(waker));
        let (future, begun_at) = (Box::pin(future), self.now);
        let (heard, is_keeper, is_caller, has_asked) = (Vec::new(), false, false, false);
        let task = EngineTask {
            node,
            life,
            begun_at,
            heard,
            is_keeper,
            is_caller,
            has_asked,
            waker,
            future,
        };
        self.tasks.push(Some(task));
        self.ready.lock().expect("nobody panics with it").push_back(number);
    }

    /// Lets a node pass calls of waiting requests on, where requests wait.
    pub(crate) fn pass_calls(&mut self, node: usize) {
        if self.plan.max_wait_us.is_none() {
            return;
        }
        let engine = Arc::clone(&self.nodes[node].engine);
        self.spawn(node, node::pass_calls(engine));
        if let Some(Some(caller)) = self.tasks.last_mut() {
            caller.is_caller = true;
        }
    }

    /// Lets a node lease permits.
    pub(crate) fn keep_leases(&mut self, node: usize) {
        let engine = Arc::clone(&self.nodes[node].engine);
        self.spawn(node, node::keep_leases(engine));
        if let Some(Some(keeper)) = self.tasks.last_mut() {
            keeper.is_keeper = true;
        }
    }

    pub(crate) fn run_tasks(&mut self) {
        loop {
            let next = self.ready.lock().expect("nobody panics with it").pop_front();
            let Some(number) = next else { return };
            self.poll(number);
        }
    }

    /// Notes that a node refused a call before it was sent: it is decided without the store, as in an outage.
    fn note_refused(&mut self, node: usize) {
        let until = &mut self.disturbed_until[node];
        *until = self.now.max(*until);
    }

    fn poll(&mut self, number: usize) {
        let Some(mut task) = self.tasks[number].take() else { return };
        let node = &self.nodes[task.node];
        if task.life != node.life || !node.is_up {
            return;
        }
        let late_until = self.late_until[task.node];
        if task.is_keeper && late_until > self.now {
            let (node, life, waker) = (task.node, task.life, task.waker.clone());
            self.tasks[number] = Some(task);
            return self.at(late_until, WorldEvent::Rings { node, life, wall: 0, waker });
        }
        node.clock.set(self.now);
        let was_without = node.engine.is_without_store();
        self.owed_before = node.engine.debts();
        let (now, heard_at) = (self.now, self.links[task.node].heard_at);
        let time = Time { now, heard_at, deadline_us: self.plan.deadline_us };
        node.store.0.lock().time = time;
        let polled = task.future.as_mut().poll(&mut Context::from_waker(&task.waker));
        let WireState { calls, asks, replies, outbox, announced, heard, billed, .. } =
            node.store.take();
        task.has_asked |= calls > 0;
        if replies.refused > 0 {
            self.note_refused(task.node);
        }
        let run = TaskRun {
            node: task.node,
            was_without,
            calls: asks,
            is_new: task.begun_at == self.now || task.is_keeper,
            is_keeper: task.is_keeper,
            begun: task.has_asked.then_some(task.begun_at),
            replies,
            polled: &polled,
        };
        super::breaker_checks::check(self, run);
        super::lease_checks::check_owing(self, task.node);
        super::debt_checks::settle(self, task.node);
        for Billed { key, debt, step } in billed {
            if let Some(key) = self.key_of(&key) {
                super::debt_checks::see_bill(self, task.node, key, &debt, &step);
            }
        }
        for Heard { key, of, executed } in heard {
            // The answers of a keeper belong to no request, nor do those about tickets that are given back.
            if !task.is_keeper && !task.is_caller {
                task.heard.push((of, executed));
            }
            if let Some(key) = self.key_of(&key) {
                self.nodes[task.node].heard[key] += 1;
                self.dues[task.node][key].hear_other();
                if task.is_keeper {
                    self.dues[task.node][key].hear_unasked(self.now);
                }
            }
        }
        for outgoing in outbox {
            self.send(task.node, task.begun_at, outgoing);
        }
        for called in announced {
            self.announce(task.node, called);
        }
        let (node, life) = (task.node, task.life);
        for (wall, waker) in self.nodes[node].clock.take_alarms() {
            let rings_in = self.nodes[node].clock.shows_in(wall, self.now);
            self.at(self.now + rings_in, WorldEvent::Rings { node, life, wall, waker });
        }
        match polled {
            Poll::Pending => self.tasks[number] = Some(task),
            Poll::Ready(done) => self.done(&task, done),
        }
    }
}

/// The facts about a task that the checks of replies need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskView {
    pub(crate) node: usize,
    pub(crate) life: u32,
    pub(crate) begun_at: u64,
    pub(crate) executed: Option<Executed>,
    /// True if its answers were decided at several instants, until now.
    pub(crate) is_batch: bool,
}

impl EngineTask {
    /// Returns the facts about it, or about its part for one of several requests.
    pub(crate) fn view(&self, of: Option<Asker>) -> TaskView {
        let Self { node, life, begun_at, .. } = *self;
        let mut heard = self.heard.iter().rev();
        let executed = heard.find(|heard| of.is_none_or(|of| heard.0 == of));
        let executed = executed.map(|(_, executed)| *executed);
        TaskView { node, life, begun_at, executed, is_batch: false }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.lock().expect("nobody panics with it").push_back(self.task);
    }
}
