//! A world, and the events that can happen in it.

use std::hash::{Hash, Hasher};

use sluicegate_kernel::lease::{Leased, Record};
use sluicegate_kernel::{Cost, Moment, RuleSet, State, Verb};

use super::broken::Broken;
use super::*;

/// An event that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Time goes on, and each holder marks its spent permits.
    Step,
    /// The store's clock goes back by a step.
    Back,
    /// A holder reads the next version of the policy. Permits of the earlier one are not used any more.
    Edit(usize),
    /// A request under this version asks the store for a permit.
    Central(usize),
    /// A permit is given back to the store, which was admitted by it or by a holder.
    Refund,
    /// A request asks a holder for a permit.
    Take(usize),
    /// A request gives a permit back to its holder.
    PutBack(usize),
    /// A holder sends a message; or the message is lost.
    Ask(usize, Wishes, MessageFate),
    /// The mail at this place arrives; an answer to it is lost, or not.
    Arrive(usize, MessageFate),
    /// The mail at this place arrives, and will once more.
    Repeat(usize, MessageFate),
}

/// The fate of a message, or of an answer. A later loss cannot be distinguished from one at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageFate {
    Comes,
    Lost,
}

/// The request in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wishes {
    /// A permit for a request that waits, and more.
    More,
    /// No permits; all go back.
    End,
}

/// A message or an answer under way.
#[derive(Clone, Debug)]
pub(super) enum Mail {
    OutgoingMessage { side: usize, version: usize, message: Message, is_repeated: bool },
    Answer { side: usize, reply: LeaseReply },
}

#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) session: LeaseSession,
    pub(super) cell: Cell,
    /// The version of the policy that it has read.
    version: usize,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    instant: u64,
    /// The store's clock went back.
    pub(super) is_back: bool,
    pub(super) store: Leased,
    /// The version of the policy by which the store last decided.
    pub(super) version: usize,
    /// The usage there, in the units of [`World::admitted`].
    pub(super) used: u64,
    pub(super) sides: [Side; 2],
    pub(super) under_way: Vec<Mail>,
    /// Requests that the store has decided beside its leases, and permits that it was asked to give back.
    asked: (u32, u32),
    /// The permits that were admitted and have not flowed out, as µs that they take to do so.
    pub(super) admitted: u64,
    /// The most that the store may charge beside, in the same units: permits of records that lapsed, of a message that
    /// comes once more after that, and those that were given back when it had none in use.
    pub(super) lapsed: u64,
}

impl Side {
    fn new(holder: Holder) -> Self {
        Self {
            session: LeaseSession::new(holder, PATIENCE, Arc::default()),
            cell: Cell::closed(),
            version: 0,
        }
    }

    /// Permits that it can use.
    pub(super) fn usable(&self, now: Micros) -> u32 {
        if now.get() < self.cell.end() { self.cell.left() } else { 0 }
    }

    fn can_ask(&self, messages_max: u32, now: Micros) -> bool {
        let LeaseSession { number, .. } = self.session;
        number < messages_max && (!self.session.waits() || self.session.is_too_late(now))
    }
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            instant: 0,
            is_back: false,
            store: Leased::default(),
            version: 0,
            used: 0,
            sides: HOLDERS.map(Side::new),
            under_way: Vec::new(),
            asked: (0, 0),
            admitted: 0,
            lapsed: 0,
        }
    }

    /// The time by the clock of holders.
    pub(super) fn now(&self) -> Micros {
        Micros::new(BEGIN + self.instant * STEP.get())
    }

    /// The time by the clock of the store.
    pub(super) fn at(&self) -> Moment<'static> {
        Moment::new(self.now().since(if self.is_back { STEP } else { Micros::ZERO }))
    }

    /// The permits that the store has set aside for a holder.
    pub(super) fn record(&self, holder: Holder) -> Option<&Record> {
        self.store.leases.records.iter().find(|record| record.holder == holder)
    }

    /// Adds the events that can happen.
    pub(super) fn events(&self, small: &Small, events: &mut Vec<Event>) {
        if self.instant + 1 < small.instants {
            events.push(Event::Step);
        }
        if small.goes_back && !self.is_back {
            events.push(Event::Back);
        }
        let [first, second] = [0, 1].map(|side: usize| self.sides[side].version);
        if self.asked.0 < small.central_max {
            events.push(Event::Central(first));
            events.extend((first != second).then_some(Event::Central(second)));
        }
        if self.asked.1 < small.refunds_max && self.admitted > 0 {
            events.push(Event::Refund);
        }
        for side in 0..self.sides.len() {
            self.events_of(side, small, events);
        }
        let has_room = self.under_way.len() < small.under_way_max;
        for (place, mail) in self.under_way.iter().enumerate() {
            events.push(Event::Arrive(place, MessageFate::Comes));
            if let Mail::OutgoingMessage { is_repeated, .. } = mail {
                events.push(Event::Arrive(place, MessageFate::Lost));
                if !is_repeated {
                    events.push(Event::Repeat(place, MessageFate::Lost));
                    events.extend(has_room.then_some(Event::Repeat(place, MessageFate::Comes)));
                }
            }
        }
    }

    /// Adds the events that can happen at a holder.
    fn events_of(&self, number: usize, small: &Small, events: &mut Vec<Event>) {
        let (now, has_room) = (self.now(), self.under_way.len() < small.under_way_max);
        let side = &self.sides[number];
        let Side { session, cell, version } = side;
        if version + 1 < small.limits.len() {
            events.push(Event::Edit(number));
        }
        let uses_more = small.broken == Some(Broken::UsesPastTheEnd) && cell.left() > 0;
        if side.usable(now) > 0 || uses_more {
            events.push(Event::Take(number));
        }
        if session.spent(cell) > 0 && now.get() < cell.end() {
            events.push(Event::PutBack(number));
        }
        if side.can_ask(small.messages_max[number], now) {
            let wishes = [Some(Wishes::More), (session.stood > 0).then_some(Wishes::End)];
            for wishes in wishes.into_iter().flatten() {
                events.push(Event::Ask(number, wishes, MessageFate::Lost));
                events.extend(has_room.then_some(Event::Ask(number, wishes, MessageFate::Comes)));
            }
        }
    }

    /// Returns the world after `event`; `None` if the event changes nothing.
    pub(super) fn after(&self, event: Event, model: &Explored) -> Option<Self> {
        let mut next = self.clone();
        let now = next.now();
        match event {
            Event::Step => next.step(&model.small),
            Event::Back => next.is_back = true,
            Event::Edit(number) => {
                let Side { session, cell, version } = &mut next.sides[number];
                // As `KeyLease::change_rules` does.
                cell.stop();
                session.give_up();
                *version += 1;
            }
            Event::Central(version) => {
                let (verb, at) = (Verb::Check { cost: Cost::ONE }, next.at());
                let rules = next.decide_by(version, None, model);
                let verdict = rules.decide_beside(&mut next.store, &verb, &at).expect("a limit");
                if !verdict.decision.allowed() {
                    return None;
                }
                next.asked.0 += 1;
                next.admitted += PERMIT;
            }
            Event::Refund => next.refund(model),
            Event::Take(number) => {
                let ends_late = model.small.broken == Some(Broken::UsesPastTheEnd);
                let now = if ends_late { 0 } else { now.get() };
                next.sides[number].cell.take(1, || now)?;
                next.admitted += PERMIT;
            }
            Event::PutBack(number) => {
                let Side { session, cell, .. } = &mut next.sides[number];
                if !session.put_back(cell, 1, now) {
                    return None;
                }
                next.admitted = next.admitted.saturating_sub(PERMIT);
            }
            Event::Ask(number, wishes, fate) => {
                let Side { session, cell, version } = &mut next.sides[number];
                session.give_up();
                let message = session.ask(cell, &wishes.request(), now);
                if fate == MessageFate::Comes {
                    let (side, version, is_repeated) = (number, *version, false);
                    next.under_way.push(Mail::OutgoingMessage {
                        side,
                        version,
                        message,
                        is_repeated,
                    });
                }
            }
            Event::Arrive(place, fate) => {
                let mail = next.under_way.remove(place);
                next.arrives(&mail, fate, model);
            }
            Event::Repeat(place, fate) => {
                let mail = next.under_way[place].clone();
                if let Mail::OutgoingMessage { is_repeated, .. } = &mut next.under_way[place] {
                    *is_repeated = true;
                }
                next.arrives(&mail, fate, model);
            }
        }
        next.used = next.in_use(model);
        Some(next)
    }

    /// The usage at the store now.
    fn in_use(&self, model: &Explored) -> u64 {
        match self.store.states.as_slice() {
            [Some(State::TokenBucket(state))] => {
                let (used, at) = state.parts();
                let Units { tick_us, per_tick, .. } = model.units;
                let flowed = self.at().now().since(at).get() / tick_us * per_tick;
                used.saturating_sub(flowed) / per_tick * tick_us
            }
            [Some(_)] => {
                model.rules[self.version].in_use(&self.store.states, &self.at())[0] * PERMIT
            }
            _ => 0,
        }
    }

    fn step(&mut self, small: &Small) {
        self.instant += 1;
        if small.flows {
            self.admitted = self.admitted.saturating_sub(STEP.get());
        }
        let now = self.now();
        for Side { session, cell, .. } in &mut self.sides {
            session.mark(cell, now);
        }
    }

    fn refund(&mut self, model: &Explored) {
        let (verb, at) = (Verb::Refund { cost: Cost::ONE }, self.at());
        let decides = self.decide_by(self.version, None, model);
        // Permits that a holder has not reported yet cannot be given back by the store: they are charged later.
        self.lapsed += PERMIT.saturating_sub(self.used);
        decides.decide_beside(&mut self.store, &verb, &at).expect("a limit can be refunded");
        self.admitted = self.admitted.saturating_sub(PERMIT);
        self.asked.1 += 1;
    }

    fn arrives(&mut self, mail: &Mail, fate: MessageFate, model: &Explored) {
        let now = self.now();
        match *mail {
            Mail::OutgoingMessage { side, version, ref message, is_repeated } => {
                let at = self.at();
                let rules = self.decide_by(version, Some(message), model);
                let is_known = self.record(message.holder).is_some_and(|it| it.deadline > at.now());
                let reply = rules.lease(&mut self.store, message, &at);
                if let (LeaseReply::Granted(grant), true, false) = (&reply, is_repeated, is_known) {
                    // It was executed before, and its lease has lapsed: this grant is not used.
                    self.lapsed += u64::from(grant.granted) * PERMIT;
                }
                if fate == MessageFate::Comes {
                    self.under_way.push(Mail::Answer { side, reply });
                }
            }
            Mail::Answer { side, ref reply } => {
                let Side { session, cell, .. } = &mut self.sides[side];
                let mut reply = *reply;
                if let (LeaseReply::Granted(grant), Some(Broken::HearsAnyAnswer)) =
                    (&mut reply, model.small.broken)
                {
                    grant.number = Number(session.number);
                }
                let before = cell.left();
                let note =
                    |_: &_| assert!(cell.left() <= before, "nothing is granted before it is noted");
                drop(session.on_reply(cell, &reply, now, note));
                // The store loses nothing here.
                session.hint = None;
            }
        }
    }

    /// Returns the rules that decide a request under `version`: the latest that came, which take over all usage.
    fn decide_by<'a>(
        &mut self,
        version: usize,
        message: Option<&Message>,
        model: &'a Explored,
    ) -> &'a RuleSet {
        let at = self.at();
        if let Some(broken) = model.small.broken {
            broken.prepare(&mut self.store, message, at.now());
        }
        let records = self.store.leases.records.iter();
        let lapsed = records.filter(|record| record.deadline <= at.now()).map(Record::permits);
        self.lapsed += lapsed.sum::<u64>() * PERMIT;
        if version > self.version {
            let (new, old) = (&model.rules[version], &model.rules[self.version]);
            self.store.states = new.take_over(old, &self.store.states, &at);
            self.version = version;
        }
        &model.rules[self.version]
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self { instant, is_back, version, used, asked, admitted, lapsed, .. } = self;
        (instant, is_back, version, used, asked, admitted, lapsed).hash(hasher);
        if let ([Some(State::TokenBucket(state))], true) = (self.store.states.as_slice(), *is_back)
        {
            // It may have been written later than now.
            state.parts().hash(hasher);
        }
        for (number, side) in self.sides.iter().enumerate() {
            side.hash(hasher);
            let record = self.record(side.session.holder);
            record.map(|it| (it.number, it.kept, it.granted, it.deadline)).hash(hasher);
            for mail in self.under_way.iter().filter(|mail| mail.side() == number) {
                mail.hash(hasher);
            }
        }
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        let hash = |world: &Self| {
            let mut hasher = std::hash::DefaultHasher::new();
            world.hash(&mut hasher);
            hasher.finish()
        };
        hash(self) == hash(other)
    }
}

impl Hash for Side {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let LeaseSession { number, heard, stood, ends, sent, sent_at, had, marks, .. } =
            &self.session;
        (number, heard, stood, ends, sent, sent_at, had, marks).hash(hasher);
        (self.cell.left(), self.cell.end(), self.version).hash(hasher);
    }
}

impl Wishes {
    fn request(self) -> LeaseRequest {
        let more = LeaseRequest { need: 1, least: 1, want: 2, share: 2, term: TERM, back: 0 };
        match self {
            Self::More => more,
            Self::End => LeaseRequest { need: 0, least: 0, want: 0, back: u32::MAX, ..more },
        }
    }
}

impl Mail {
    /// The index of the holder that sent it, or gets it.
    const fn side(&self) -> usize {
        match self {
            Self::OutgoingMessage { side, .. } | Self::Answer { side, .. } => *side,
        }
    }
}

impl Hash for Mail {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        match self {
            Self::OutgoingMessage { version, message, is_repeated, .. } => {
                (version, Message { holder: Holder::NONE, ..*message }, is_repeated).hash(hasher);
            }
            Self::Answer { reply: LeaseReply::Superseded, .. } => 0.hash(hasher),
            Self::Answer { reply: LeaseReply::Granted(grant), .. } => {
                let LeaseGrant { number, kept, granted, lasts, ends, found, .. } = grant;
                (number, kept, granted, lasts, ends, *found as u8).hash(hasher);
            }
        }
    }
}
