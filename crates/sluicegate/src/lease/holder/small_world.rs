//! Every history of a small world: the store, two holders and a bucket of three permits.
//!
//! The adversary of the kernel and the simulator draw histories; here none is left out that consists of these events:
//! a permit is asked for at the store or at a holder, or given back there; a holder asks for permits, or gives all
//! back; messages and answers are lost, late, overtaken or executed twice; time goes on; the store's clock goes back.
//! A holder that is never heard of again has crashed. Time goes in steps, which is what makes it small: what hangs
//! on a few microseconds is found by the others.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::quality::FixedState;
use sluicegate_kernel::algorithm::Units;
use sluicegate_kernel::lease::{Leased, Record};
use sluicegate_kernel::{Cost, Moment, Rate, RuleSet, State, TokenBucket, Verb};

use super::*;

/// Between two instants. Nothing happens in between.
const STEP: Micros = Micros::from_millis(160);

/// Instants of a history.
const INSTANTS: u64 = 3;

/// Permits of the bucket; one flows in in two steps.
const BURST: u64 = 3;
const PERMIT: u64 = 2 * STEP.get();

/// How long a lease lasts. Its record stands for 250 ms: until after the second instant, and not until the third.
const TERM: Micros = STEP;
const PATIENCE: Micros = Micros::from_millis(80);

/// Messages and answers that are under way at a time.
const UNDER_WAY_MAX: usize = 2;

/// Messages of each holder: five million worlds, and a quarter of a minute.
const MESSAGES_MAX: [u32; 2] = [2, 1];

const HOLDERS: [Holder; 2] = [Holder(1), Holder(2)];

/// The first instant at the store.
const BEGIN: u64 = 1_000_000_000;

/// What can happen next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Time goes on, and each holder notes what it spent.
    Step,
    /// The store's clock goes back by a step.
    Back,
    /// A request asks the store for a permit.
    Central,
    /// One asks a holder for a permit.
    Take(usize),
    /// It gives it back.
    PutBack(usize),
    /// A holder sends a message; or the message is lost.
    Ask(usize, Wishes, Fate),
    /// What is under way at this place arrives; an answer to it is lost, or not.
    Arrive(usize, Fate),
    /// It arrives, and will once more.
    Repeat(usize, Fate),
}

/// What becomes of a message, or of an answer. What is lost later was lost at once, for all that can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Comes,
    Lost,
}

/// What a message asks for.
#[derive(Clone, Copy, Debug)]
enum Wishes {
    /// A permit for a request that waits, and more.
    More,
    /// Nothing; all goes back.
    End,
}

/// What is under way.
#[derive(Clone)]
enum Mail {
    Letter { side: usize, message: Message, is_repeated: bool },
    Answer { side: usize, word: Word },
}

#[derive(Clone)]
struct Side {
    talk: Talk,
    cell: Cell,
}

#[derive(Clone)]
struct World {
    instant: u64,
    /// Whether the store's clock went back.
    is_back: bool,
    store: Leased,
    sides: [Side; 2],
    under_way: Vec<Mail>,
    /// What was admitted and has not flowed out, in µs that it takes to do so.
    admitted: u64,
}

struct Search {
    rules: RuleSet,
    /// The hashes of all worlds.
    seen: HashSet<u64, FixedState>,
    /// From the first world to the present one.
    way: Vec<Event>,
    /// The most that was admitted.
    most: u64,
}

impl Side {
    fn new(holder: Holder) -> Self {
        Self { talk: Talk::new(holder, PATIENCE, Arc::default()), cell: Cell::closed() }
    }

    /// Permits that it can use.
    fn usable(&self, now: Micros) -> u32 {
        if now.get() < self.cell.end() { self.cell.left() } else { 0 }
    }

    fn hash(&self, hasher: &mut impl Hasher) {
        let Talk { number, heard, stood, ends, sent, sent_at, had, marks, .. } = &self.talk;
        (number, heard, stood, ends, sent, sent_at, had, marks).hash(hasher);
        (self.cell.left(), self.cell.end()).hash(hasher);
    }
}

impl World {
    fn new() -> Self {
        Self {
            instant: 0,
            is_back: false,
            store: Leased::default(),
            sides: HOLDERS.map(Side::new),
            under_way: Vec::new(),
            admitted: 0,
        }
    }

    /// By the clock of holders.
    fn now(&self) -> Micros {
        Micros::new(BEGIN + self.instant * STEP.get())
    }

    /// By that of the store.
    fn at(&self) -> Moment<'static> {
        Moment::new(self.now().since(if self.is_back { STEP } else { Micros::ZERO }))
    }

    /// What can happen.
    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.instant + 1 < INSTANTS {
            events.push(Event::Step);
        }
        if !self.is_back {
            events.push(Event::Back);
        }
        events.push(Event::Central);
        let (now, has_room) = (self.now(), self.under_way.len() < UNDER_WAY_MAX);
        for (number, side) in self.sides.iter().enumerate() {
            let Side { talk, cell } = side;
            if side.usable(now) > 0 {
                events.push(Event::Take(number));
            }
            if talk.spent(cell) > 0 && now.get() < cell.end() {
                events.push(Event::PutBack(number));
            }
            if talk.number < MESSAGES_MAX[number] && (!talk.waits() || talk.is_too_late(now)) {
                let wishes = [Some(Wishes::More), (talk.stood > 0).then_some(Wishes::End)];
                for wishes in wishes.into_iter().flatten() {
                    events.push(Event::Ask(number, wishes, Fate::Lost));
                    if has_room {
                        events.push(Event::Ask(number, wishes, Fate::Comes));
                    }
                }
            }
        }
        for (place, mail) in self.under_way.iter().enumerate() {
            events.push(Event::Arrive(place, Fate::Comes));
            if let Mail::Letter { is_repeated, .. } = mail {
                events.push(Event::Arrive(place, Fate::Lost));
                if !is_repeated {
                    events.push(Event::Repeat(place, Fate::Lost));
                    if has_room {
                        events.push(Event::Repeat(place, Fate::Comes));
                    }
                }
            }
        }
        events
    }

    /// What comes of `event`; `None` if nothing does.
    fn after(&self, event: Event, rules: &RuleSet) -> Option<Self> {
        let mut next = self.clone();
        let now = next.now();
        match event {
            Event::Step => {
                next.instant += 1;
                next.admitted = next.admitted.saturating_sub(STEP.get());
                let now = next.now();
                for Side { talk, cell } in &mut next.sides {
                    talk.mark(cell, now);
                }
            }
            Event::Back => next.is_back = true,
            Event::Central => {
                let (verb, at) = (Verb::Check { cost: Cost::ONE }, next.at());
                let verdict = rules.decide_beside(&mut next.store, &verb, &at).expect("a bucket");
                if !verdict.decision.allowed() {
                    return None;
                }
                next.admitted += PERMIT;
            }
            Event::Take(number) => {
                next.sides[number].cell.take(1, || now.get())?;
                next.admitted += PERMIT;
            }
            Event::PutBack(number) => {
                let Side { talk, cell } = &mut next.sides[number];
                if !talk.put_back(cell, 1, now) {
                    return None;
                }
                next.admitted = next.admitted.saturating_sub(PERMIT);
            }
            Event::Ask(number, wishes, fate) => {
                let Side { talk, cell } = &mut next.sides[number];
                talk.give_up();
                let message = talk.ask(cell, &wishes.wish(), now);
                if fate == Fate::Comes {
                    next.under_way.push(Mail::Letter { side: number, message, is_repeated: false });
                }
            }
            Event::Arrive(place, fate) => {
                let mail = next.under_way.remove(place);
                next.arrives(&mail, fate, rules);
            }
            Event::Repeat(place, fate) => {
                let mail = next.under_way[place].clone();
                if let Mail::Letter { is_repeated, .. } = &mut next.under_way[place] {
                    *is_repeated = true;
                }
                next.arrives(&mail, fate, rules);
            }
        }
        Some(next)
    }

    fn arrives(&mut self, mail: &Mail, fate: Fate, rules: &RuleSet) {
        let now = self.now();
        match *mail {
            Mail::Letter { side, ref message, .. } => {
                let at = self.at();
                let word = rules.lease(&mut self.store, message, &at);
                if fate == Fate::Comes {
                    self.under_way.push(Mail::Answer { side, word });
                }
            }
            Mail::Answer { side, ref word } => {
                let Side { talk, cell } = &mut self.sides[side];
                let before = cell.left();
                let note =
                    |_: &_| assert!(cell.left() <= before, "nothing is granted before it is noted");
                drop(talk.hear(cell, word, now, note));
                // The store loses nothing here.
                talk.hint = None;
            }
        }
    }

    /// What is wrong, if anything is.
    fn wrong(&self) -> Option<String> {
        let now = self.now();
        if self.admitted > BURST * PERMIT {
            return Some(format!("I1: {} of {} µs are admitted", self.admitted, BURST * PERMIT));
        }
        let (used, at) = self.used()?;
        let Units { tick_us, per_tick, per_permit } = bucket().units();
        let used = used.saturating_sub(self.at().now().since(at).get() / tick_us * per_tick);
        let out = self.store.leases.held();
        // A clock that went back may have a record charged twice, when it lapses and by a late message.
        if !self.is_back && used + out * per_permit > BURST * per_permit {
            return Some(format!("I2: {used} units are in use beside {out} permits"));
        }
        let wrong = self.sides.iter().find(|side| {
            let of = |record: &&Record| record.holder == side.talk.holder;
            let record = self.store.leases.records.iter().find(of);
            u64::from(side.usable(now)) > record.map_or(0, Record::permits)
        });
        wrong.map(|side| format!("I3: {} may be used of {:?}", side.usable(now), self.store.leases))
    }

    /// Units in use of the bucket, and when that was.
    fn used(&self) -> Option<(u64, Micros)> {
        match self.store.states.as_slice() {
            [Some(State::TokenBucket(state))] => Some(state.parts()),
            _ => None,
        }
    }

    fn hash(&self) -> u64 {
        let Self { instant, is_back, store, under_way, admitted, .. } = self;
        let mut hasher = FixedState::default().build_hasher();
        (instant, is_back, admitted, self.used()).hash(&mut hasher);
        for (side, holder) in HOLDERS.iter().enumerate() {
            self.sides[side].hash(&mut hasher);
            let record = store.leases.records.iter().find(|it| it.holder == *holder);
            let record = record.map(|it| (it.number, it.kept, it.granted, it.deadline));
            record.hash(&mut hasher);
            for mail in under_way.iter().filter(|mail| mail.side() == side) {
                mail.hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

impl Wishes {
    fn wish(self) -> Wish {
        let more = Wish { need: 1, least: 1, want: 2, share: 2, term: TERM, back: 0 };
        match self {
            Self::More => more,
            Self::End => Wish { need: 0, least: 0, want: 0, back: u32::MAX, ..more },
        }
    }
}

impl Mail {
    /// The place of the holder that it is of, or for.
    const fn side(&self) -> usize {
        match self {
            Self::Letter { side, .. } | Self::Answer { side, .. } => *side,
        }
    }

    fn hash(&self, hasher: &mut impl Hasher) {
        match self {
            Self::Letter { message, is_repeated, .. } => {
                (Message { holder: Holder::NONE, ..*message }, is_repeated).hash(hasher);
            }
            Self::Answer { word: Word::Overtaken, .. } => 0.hash(hasher),
            Self::Answer { word: Word::Stands(stands), .. } => {
                let Stands { number, kept, granted, lasts, ends, found, .. } = stands;
                (number, kept, granted, lasts, ends, *found as u8).hash(hasher);
            }
        }
    }
}

impl Search {
    /// Visits all that can follow on `world`.
    fn go_on(&mut self, world: &World) {
        for event in world.events() {
            let Some(next) = world.after(event, &self.rules) else { continue };
            if !self.seen.insert(next.hash()) {
                continue;
            }
            self.way.push(event);
            self.most = self.most.max(next.admitted);
            if let Some(wrong) = next.wrong() {
                panic!("{wrong} after {:?}", self.way);
            }
            self.go_on(&next);
            self.way.pop();
        }
    }
}

fn bucket() -> TokenBucket {
    let rate = Rate::new(1, Micros::new(PERMIT)).expect("a rate");
    TokenBucket::new(rate, BURST).expect("a bucket")
}

#[test]
fn in_no_history_of_two_holders_more_is_admitted_than_the_limit() {
    let mut search = Search {
        rules: RuleSet::single("r", bucket()),
        seen: HashSet::default(),
        way: Vec::new(),
        most: 0,
    };
    search.go_on(&World::new());
    assert!(search.seen.len() > 4_000_000, "{} worlds", search.seen.len());
    assert_eq!(search.most, BURST * PERMIT, "and all of it can be used");
}
