//! Random histories of holders, a network, clocks and a store, built to break the bound.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sluicegate_kernel::lease::{Found, Holder, LeaseGrant, Message};
use sluicegate_kernel::{Cost, LeaseReply, Leased, Micros, Moment, Verb, Window};

use super::holder::{HolderLease, Wish};
use super::judge::Judge;
use super::random::Random;
use super::worlds::{FAULTS, Faults, World, worlds};

/// Histories of a run, and steps of each. `SLUICEGATE_WALKS=50` takes fifty times as many.
const HISTORIES: u64 = 100_000;
const STEPS: usize = 120;

#[test]
fn no_history_lets_more_pass_than_the_rule_and_many_come_to_its_bound() {
    let more = std::env::var("SLUICEGATE_WALKS").ok().map(|times| times.parse::<u64>().unwrap());
    let histories = HISTORIES * more.unwrap_or(1);
    let worlds = worlds();
    let workers = thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let near: Vec<AtomicU64> = worlds.iter().map(|_| AtomicU64::new(0)).collect();
    let failed = thread::scope(|scope| {
        let judge_some = |worker| {
            let (worlds, near) = (&worlds, &near);
            move || {
                let mut numbers = (worker..histories).step_by(usize::try_from(workers).unwrap());
                numbers.find_map(|number| {
                    let place = usize::try_from(number).unwrap() % worlds.len();
                    let history = judged(&worlds[place], number, worlds.len());
                    let is_near = worlds[place].near.is_some_and(|near| history.worst >= -near);
                    near[place].fetch_add(u64::from(is_near), Ordering::Relaxed);
                    history.failure().map(|failure| (number, failure))
                })
            }
        };
        let all: Vec<_> = (0..workers).map(|worker| scope.spawn(judge_some(worker))).collect();
        all.into_iter().filter_map(|worker| worker.join().unwrap()).min_by_key(|failed| failed.0)
    });
    if let Some((number, failure)) = failed {
        panic!("history {number}: {failure}");
    }
    for (world, near) in worlds.iter().zip(near).filter(|(world, _)| world.near.is_some()) {
        let part = 100 * near.into_inner() * worlds.len() as u64 / histories;
        println!("{part:3} % of the histories of {} come near the bound", world.name);
        assert!(part >= 10, "{}: the bound is hardly ever reached, {part} %", world.name);
    }
}

struct Judged {
    worst: i128,
    about: String,
    broken: Option<String>,
}

impl Judged {
    fn failure(self) -> Option<String> {
        let Self { worst, about, broken } = self;
        let over = (worst > 0).then(|| format!("{worst} millionths of a permit over the bound"));
        broken.or(over).map(|what| format!("{what}; {about}"))
    }
}

fn judged(world: &World, number: u64, worlds: usize) -> Judged {
    let mut faults = FAULTS[usize::try_from(number).unwrap() / worlds % FAULTS.len()];
    faults.back &= world.holds_back;
    let mut history = History::new(world, faults, number);
    for _ in 0..STEPS {
        history.step();
    }
    Judged {
        worst: history.judges.iter().map(Judge::worst).max().unwrap(),
        about: format!("{}, faults: {}", world.name, faults.name),
        broken: history.broken,
    }
}

/// A message or an answer under way, with the node and the holder that sent the message.
#[derive(Clone, Copy)]
struct UnderWay<T> {
    node: usize,
    holder: Holder,
    what: T,
}

pub(crate) struct History<'a> {
    world: &'a World,
    faults: Faults,
    pub(crate) random: Random,
    /// True time; how far the store's clock was put back.
    now_us: u64,
    back_us: u64,
    pub(crate) store: Leased,
    pub(crate) nodes: Vec<HolderLease>,
    /// The speed of each node's clock, in millionths.
    speeds: Vec<u64>,
    holders: u64,
    messages: Vec<UnderWay<Message>>,
    answers: Vec<UnderWay<LeaseReply>>,
    /// Central requests that wait for their turn.
    booked: Vec<(u64, u64)>,
    pub(crate) judges: Vec<Judge>,
    broken: Option<String>,
    /// Holders repeat the hints of the store's answers.
    pub(crate) hints: bool,
}

const START_US: u64 = 1_000_000_000_000;

/// The terms of leases, µs: short terms after long ones are the hard ones.
const TERMS_US: [u32; 5] = [50_000, 100_000, 250_000, 1_000_000, 2_000_000];

impl<'a> History<'a> {
    pub(crate) fn new(world: &'a World, faults: Faults, number: u64) -> Self {
        let mut random = Random::new(number);
        let nodes = 1 + random.below(4);
        let speed = |random: &mut Random| {
            let most = faults.drift * 1_000;
            1_000_000 - most + random.below(2 * most + 1)
        };
        let speeds = (0..nodes).map(|_| speed(&mut random)).collect();
        Self {
            world,
            faults,
            now_us: START_US + random.below(1_000_000),
            back_us: 0,
            random,
            store: Leased::default(),
            nodes: (1..=nodes).map(HolderLease::new).collect(),
            speeds,
            holders: nodes,
            messages: Vec::new(),
            answers: Vec::new(),
            booked: Vec::new(),
            judges: world.bounds.iter().map(|bound| Judge::new(*bound)).collect(),
            broken: None,
            hints: true,
        }
    }

    pub(crate) fn step(&mut self) {
        match self.random.below(100) {
            0..20 => self.wait(),
            20..40 => self.send(),
            40..60 if !self.messages.is_empty() => self.arrive(),
            60..75 if !self.answers.is_empty() => self.hear(),
            75..90 => self.spend(),
            90..94 => self.ask_centrally(),
            94 if self.faults.crashes => self.crash(),
            95 => (0..self.nodes.len()).for_each(|node| self.mark(node)),
            96 if self.faults.back => self.put_back(),
            97 if self.faults.resets && self.random.chance(30) => self.reset(),
            98.. => {
                let node = self.random.index(self.nodes.len());
                self.mark(node);
            }
            _ => {}
        }
    }

    fn wait(&mut self) {
        if self.random.chance(20) {
            return self.wait_for_an_end();
        }
        let term = u64::from(self.random.pick(&TERMS_US));
        let span = self.world.span_us;
        let some = [self.random.below(term), self.random.below(2 * term), self.random.below(span)];
        let exact = [0, 1_000, term / 100, term / 4, term / 2, term];
        let late = [term + term / 16, term + 60_000, span / 10];
        let spans = exact.into_iter().chain(late).chain(some).collect::<Vec<_>>();
        self.now_us += self.random.pick(&spans);
    }

    /// The hard instants are those around the end of a lease, by the clock of the store or of its holder.
    fn wait_for_an_end(&mut self) {
        let records = &self.store.leases.records;
        let deadlines = records.iter().map(|record| record.deadline.get() + self.back_us);
        let nodes = self.nodes.iter().zip(&self.speeds);
        let ends = nodes.map(|(node, speed)| START_US + node.end_us * 1_000_000 / speed);
        let last_us = ends.map(|end_us| end_us.saturating_sub(1));
        let instants: Vec<_> = deadlines.chain(last_us).filter(|at| *at > self.now_us).collect();
        if !instants.is_empty() {
            self.now_us = self.random.pick(&instants);
        }
    }

    /// A node sends a message, which may arrive and be answered at once.
    fn send(&mut self) {
        let node = self.random.index(self.nodes.len());
        if self.nodes[node].waits && !self.faults.network && self.random.chance(90) {
            return;
        }
        let wish = self.wish(self.nodes[node].left);
        let steady_us = self.steady_us(node);
        let message = self.asked(node, &wish);
        let sent = UnderWay { node, holder: self.nodes[node].holder, what: message };
        let network = self.faults.network;
        if !self.random.chance(60) {
            let copies = if network { [90, 15] } else { [100, 0] };
            for percent in copies {
                if self.random.chance(percent) {
                    self.messages.push(sent);
                }
            }
            return;
        }
        let answer = UnderWay { what: self.answer(&message), ..sent_word(sent) };
        if self.random.chance(10) {
            self.ask_centrally();
        }
        if network && self.random.chance(10) {
            self.messages.push(sent);
        }
        if network && self.random.chance(10) {
            self.answers.push(answer);
            return;
        }
        self.nodes[node].hear(&answer.what, steady_us);
        if network && self.random.chance(10) {
            self.answers.push(answer);
        }
    }

    /// A node sends a message, which is answered at once.
    pub(crate) fn ask_and_hear(&mut self, node: usize) {
        let wish = self.wish(self.nodes[node].left);
        let message = self.asked(node, &wish);
        let reply = self.answer(&message);
        let steady_us = self.steady_us(node);
        self.nodes[node].hear(&reply, steady_us);
    }

    fn asked(&mut self, node: usize, wish: &Wish) -> Message {
        let steady_us = self.steady_us(node);
        let message = self.nodes[node].ask(wish, steady_us);
        Message { hint: message.hint.filter(|_| self.hints), ..message }
    }

    fn wish(&mut self, left: u32) -> Wish {
        let limit = self.limit();
        let random = &mut self.random;
        let term_us = random.pick(&TERMS_US);
        if random.chance(15) {
            return Wish { back: left, term_us, ..Wish::default() };
        }
        let mut up_to = |most: u32| u32::try_from(random.below(u64::from(most) + 1)).unwrap();
        let (some, need, want) = (up_to(left), up_to(limit / 2 + 1), up_to(limit));
        let least = up_to(need);
        let back = if random.chance(30) { random.pick(&[left, some]) } else { 0 };
        let need = if random.chance(50) { need } else { 0 };
        let share = random.pick(&[limit / 10, limit / 2, limit]);
        Wish { back, need, least, want, share, term_us }
    }

    /// A message arrives at the store.
    fn arrive(&mut self) {
        let network = self.faults.network;
        let place = if network { self.random.index(self.messages.len()) } else { 0 };
        let arrived = self.messages[place];
        if !network || !self.random.chance(10) {
            self.messages.remove(place);
        }
        let answer = UnderWay { what: self.answer(&arrived.what), ..sent_word(arrived) };
        for percent in if network { [90, 15] } else { [100, 0] } {
            if self.random.chance(percent) {
                self.answers.push(answer);
            }
        }
    }

    /// An answer arrives at its node, if its holder still lives.
    fn hear(&mut self) {
        let place = if self.faults.network { self.random.index(self.answers.len()) } else { 0 };
        let UnderWay { node, holder, what } = self.answers.remove(place);
        if self.nodes[node].holder == holder {
            let steady_us = self.steady_us(node);
            self.nodes[node].hear(&what, steady_us);
        }
    }

    fn spend(&mut self) {
        let all = self.random.chance(50);
        for node in 0..self.nodes.len() {
            let left = self.nodes[node].left;
            if left == 0 || !(all || self.random.chance(40)) {
                continue;
            }
            let part = 1 + u32::try_from(self.random.below(left.into())).unwrap();
            let cost = if self.random.chance(70) { left } else { part };
            let steady_us = self.steady_us(node);
            if self.nodes[node].take(cost, steady_us) {
                self.admit(cost.into());
                if self.random.chance(30) {
                    self.nodes[node].mark(steady_us);
                }
            }
        }
    }

    fn ask_centrally(&mut self) {
        let limit = Cost::new(self.limit().into()).unwrap_or(Cost::ONE);
        let max_wait = Micros::new(self.random.below(self.world.span_us));
        let books = !self.faults.back && !self.faults.resets && self.random.chance(20);
        let verb = match self.random.below(3) {
            _ if books => Verb::Reserve { cost: Cost::ONE, max_wait },
            0 => Verb::Check { cost: Cost::ONE },
            1 => Verb::Check { cost: Cost::new(1 + self.random.below(limit.get())).unwrap() },
            _ => Verb::AtMost { cost: limit },
        };
        let decision = self.with_store(|world, store, at| {
            let decision = world.rules.decide_beside(store, &verb, at).unwrap().decision;
            (decision, true)
        });
        if decision.allowed() {
            self.booked.push((self.now_us + decision.wait().get(), decision.granted()));
            self.admit(0);
        }
    }

    fn crash(&mut self) {
        let node = self.random.index(self.nodes.len());
        self.holders += 1;
        self.nodes[node] = HolderLease::new(self.holders);
    }

    fn put_back(&mut self) {
        let some = self.random.below(3_000_000);
        self.back_us += self.random.pick(&[1_000, 100_000, some, 60_000_000]);
    }

    fn reset(&mut self) {
        self.with_store(|world, store, at| {
            // Under rules that begin below full, a forgotten key has more in use than it had.
            (world.rules.decide_beside(store, &Verb::Reset, at).unwrap(), false)
        });
        self.judges.iter_mut().for_each(Judge::reset);
    }

    fn mark(&mut self, node: usize) {
        let steady_us = self.steady_us(node);
        self.nodes[node].mark(steady_us);
    }

    fn answer(&mut self, message: &Message) -> LeaseReply {
        let went_back = self.back_us > 0;
        self.with_store(|world, store, at| {
            let reply = world.rules.lease(store, message, at);
            // A late message may meet a clock that went back, and take up a lease that has lapsed.
            let took_up =
                matches!(reply, LeaseReply::Granted(LeaseGrant { found: Found::Lost, .. }));
            (reply, !(went_back && took_up))
        })
    }

    /// Runs `act` at the store. If it returns `true`, no more than the limit must be in use and held after it, unless
    /// more was before.
    fn with_store<T>(
        &mut self,
        act: impl FnOnce(&World, &mut Leased, &Moment<'_>) -> (T, bool),
    ) -> T {
        let world = self.world;
        let now = Micros::new(self.now_us - self.back_us);
        let start = |window_us: u64| Micros::new(now.get() - now.get() % window_us);
        let window = world.calendar_us.map(|window_us| Window {
            start: start(window_us),
            end: start(window_us).plus(Micros::new(window_us)),
        });
        let windows = [window];
        let at = Moment::with_windows(now, &windows);
        // The clock may have gone back since.
        world.rules.credit(&mut self.store.states, &[0], &at);
        let before = excess(world, &self.store, &at);
        let (done, keeps) = act(world, &mut self.store, &at);
        let after = excess(world, &self.store, &at);
        // A request that was booked while nothing was out is in use before it passes.
        if keeps && after > before && self.store.leases.held() > 0 {
            self.broken = Some(format!("{after} more than the limit are in use or held"));
        }
        let end_us = world.rules.full_at(&self.store.states).get();
        let start_us = end_us.saturating_sub(world.span_us);
        self.judges.iter_mut().for_each(|judge| judge.show(start_us, end_us));
        done
    }

    /// Admits `permits` now, after those that were booked until now.
    fn admit(&mut self, permits: u64) {
        self.booked.sort_unstable();
        let due = self.booked.partition_point(|(at_us, _)| *at_us <= self.now_us);
        let booked = self.booked.drain(..due).filter(|(_, permits)| *permits > 0);
        let passes = booked.chain((permits > 0).then_some((self.now_us, permits)));
        for (at_us, permits) in passes {
            for judge in &mut self.judges {
                judge.admit(permits, at_us);
            }
        }
    }

    fn steady_us(&self, node: usize) -> u64 {
        (self.now_us - START_US) * self.speeds[node] / 1_000_000
    }

    fn limit(&self) -> u32 {
        let limits = self.world.rules.rules().iter().map(|named| named.rule.limit());
        u32::try_from(limits.min().unwrap()).unwrap_or(u32::MAX)
    }
}

fn sent_word(sent: UnderWay<Message>) -> UnderWay<LeaseReply> {
    UnderWay { node: sent.node, holder: sent.holder, what: LeaseReply::Superseded }
}

/// Permits of the worst rule that are in use or held beyond its limit.
fn excess(world: &World, store: &Leased, at: &Moment<'_>) -> u64 {
    let in_use = world.rules.in_use(&store.states, at);
    let rules = world.rules.rules().iter().zip(in_use);
    let over = |(named, used): (&sluicegate_kernel::NamedRule, u64)| {
        (used + store.leases.held()).saturating_sub(named.rule.limit())
    };
    rules.map(over).max().unwrap()
}
