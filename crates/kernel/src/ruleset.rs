//! Several rules decided together: all allow and all are charged, or nothing is.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::algorithm::{Rule, Scale, State};
use crate::decision::{Ask, Called, Decision, Left, Moment, Outcome, PermitId, ProcessId, Retry};
use crate::limits::{COST_MAX, NAME_BYTES_MAX, RULES_MAX};
use crate::num::{Cost, Micros};
use crate::states::States;
use crate::verb::Verb;

/// A rule with the name that decisions report.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedRule {
    /// Unique in its set: 1..=128 bytes of `[a-z0-9._-]`.
    pub name: Box<str>,
    /// The limit.
    pub rule: Rule,
}

/// The rules of a policy, in the order they were written.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleSet {
    rules: Box<[NamedRule]>,
    carry: Carry,
}

/// The usage that a changed rule keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carry {
    /// Permits in use stay in use.
    #[default]
    Usage,
    /// The part of the limit that is in use stays the same part.
    Proportional,
    /// Every key starts anew.
    Reset,
}

/// The answer of a whole set of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision of the rule that decided.
    pub decision: Decision,
    /// The place of that rule in [`RuleSet::rules`].
    pub rule: usize,
}

/// A verb that the rules of a policy do not know. No state was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    verb: &'static str,
    reason: &'static str,
}

impl Unsupported {
    /// Returns this error with the caller's verb, where the rules were asked about a simpler one.
    #[must_use]
    pub const fn of(self, verb: &'static str) -> Self {
        Self { verb, ..self }
    }
}

/// Rules that do not make a set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleSetError {
    /// There must be 1 to 8 rules.
    Count(usize),
    /// Two rules have this name.
    Duplicate(String),
    /// This is not a name.
    Name(String),
}

impl NamedRule {
    /// `rule`, called `name`. [`RuleSet::new`] checks the name.
    pub fn new(name: &str, rule: impl Into<Rule>) -> Self {
        Self { name: name.into(), rule: rule.into() }
    }
}

impl RuleSet {
    /// The set of these rules.
    ///
    /// # Errors
    /// [`RuleSetError`] unless there are 1 to 8 rules with different names, each 1..=128 bytes of
    /// `[a-z0-9._-]`.
    pub fn new(rules: Vec<NamedRule>) -> Result<Self, RuleSetError> {
        if rules.is_empty() || rules.len() > RULES_MAX {
            return Err(RuleSetError::Count(rules.len()));
        }
        for (place, NamedRule { name, .. }) in rules.iter().enumerate() {
            if !is_name(name) {
                return Err(RuleSetError::Name(name.clone().into_string()));
            }
            if rules[..place].iter().any(|earlier| earlier.name == *name) {
                return Err(RuleSetError::Duplicate(name.clone().into_string()));
            }
        }
        Ok(Self { rules: rules.into_boxed_slice(), carry: Carry::default() })
    }

    /// The usage that this set keeps when it replaces another.
    pub fn carry(&self) -> Carry {
        self.carry
    }

    /// The set of one rule.
    pub fn single(name: &str, rule: impl Into<Rule>) -> Self {
        let rules = vec![NamedRule::new(name, rule)];
        Self { rules: rules.into_boxed_slice(), carry: Carry::default() }
    }

    /// Returns this set, which takes usage over by `carry` from the set that it replaces.
    #[must_use]
    pub fn with_carry(self, carry: Carry) -> Self {
        Self { carry, ..self }
    }

    /// The rules, in the order they were written.
    pub fn rules(&self) -> &[NamedRule] {
        &self.rules
    }

    /// Decides `verb` on the key whose usage is `states`.
    ///
    /// If every rule allows, every rule is charged; if one refuses, nothing is charged. The verdict
    /// is that of the rule with the longest retry, or, when all allow, of the one with the longest
    /// wait, then the least remaining.
    ///
    /// # Errors
    /// [`Unsupported`] if these rules do not know the verb (`check` on a concurrency rule,
    /// `acquire` without one).
    pub fn decide(
        &self,
        states: &mut States,
        verb: &Verb,
        at: &Moment<'_>,
    ) -> Result<Verdict, Unsupported> {
        self.supports(verb)?;
        states.fit(self.rules.len());
        if !matches!(verb, Verb::Peek { .. }) {
            self.rewind(states, at);
        }
        Ok(match *verb {
            Verb::Check { cost } => self.take(states, &Ask::check(cost), at),
            Verb::Reserve { cost, max_wait } => {
                self.take(states, &Ask::reserve(cost, max_wait), at)
            }
            Verb::Acquire { cost, permit } => self.acquire(states, cost, permit, at),
            Verb::Wait { cost, permit, process } => {
                self.wait(states, &Ask::acquire(cost, permit), process, at)
            }
            Verb::AtMost { cost } => self.at_most(states, cost, at),
            Verb::Peek { cost } => {
                let mut seen = states.clone();
                self.rewind(&mut seen, at);
                self.peek(&seen, &Ask::check(cost), at)
            }
            Verb::Refund { cost } => self.refund(states, cost.get(), at),
            Verb::Reset => {
                states.as_mut_slice().fill(None);
                self.verdict(states, allow(0), at)
            }
            Verb::Leave { permit, process } => {
                let leave = |rule: &Rule, state: &mut State, _: &Moment<'_>| {
                    rule.leave(state, permit, process).then_some(0)
                };
                self.on_permit(states, at, leave)
            }
            Verb::Release { permit } => {
                self.on_permit(states, at, |rule, state, at| rule.release(state, permit, at))
            }
            Verb::Renew { permit } => {
                self.on_permit(states, at, |rule, state, at| rule.renew(state, permit, at))
            }
        })
    }

    /// Converts `states` of `old`, the set that this one replaces, to the units of this one.
    ///
    /// A rule takes over from the rule of the same name; a rule with a new name starts anew.
    #[must_use]
    pub fn take_over(&self, old: &Self, states: &States, at: &Moment<'_>) -> States {
        if self.carry == Carry::Reset {
            return States::default();
        }
        let take_over = |(place, new): (usize, &NamedRule)| {
            let before = old.rules.iter().position(|rule| rule.name == new.name)?;
            let state = states.as_slice().get(before)?.as_ref()?;
            self.carried(&new.rule, &old.rules[before].rule, state, &at.for_rule(place))
        };
        States::of(self.rules.iter().enumerate().map(take_over).collect())
    }

    /// Sets the permits in use of the rule at `place` to `used`; 0 removes the state.
    pub fn set_used(&self, states: &mut States, place: usize, used: u64, at: &Moment<'_>) {
        states.fit(self.rules.len());
        let mut rules = self.rules.iter().zip(states.as_mut_slice());
        if let Some((named, state)) = rules.nth(place) {
            *state = if used == 0 { None } else { named.rule.with_used(used, &at.for_rule(place)) };
        }
    }

    /// Notes that a key was seen at this moment: a budget that starts below full begins to fill.
    pub fn first_seen(&self, states: &mut States, at: &Moment<'_>) {
        states.fit(self.rules.len());
        for (place, (named, state)) in self.rules.iter().zip(states.as_mut_slice()).enumerate() {
            if state.is_none() {
                *state = named.rule.first_seen(&at.for_rule(place));
            }
        }
    }

    /// Takes up to `permits[rule]` permits of each rule, as far as there are any, and leaves in `permits` how many were
    /// taken. Rules that hold permits by id are left alone: 0.
    ///
    /// It charges permits that were admitted elsewhere, without this state. Unlike a check it is not all or nothing,
    /// and each rule has its own amount: of two rules, the faster one has given more of the same permits back by now.
    pub fn debit(&self, states: &mut States, permits: &mut [u64], at: &Moment<'_>) {
        states.fit(self.rules.len());
        self.rewind(states, at);
        let rules = self.rules.iter().zip(states.as_mut_slice()).zip(permits).enumerate();
        for (place, ((NamedRule { rule, .. }, state), permits)) in rules {
            let at = at.for_rule(place);
            let there = if rule.holds_permits() { 0 } else { rule.available(state.as_ref(), &at) };
            *permits = (*permits).min(there).min(COST_MAX);
            if let Ok(cost) = Cost::new(*permits) {
                rule.charge(state, &Ask::check(cost), &at);
            }
        }
    }

    /// Raises the permits of each rule in use to `permits[rule]`, as far as there are any, and leaves in `permits` how
    /// many were taken: a state that was lost is known to have had them in use. See [`debit`](Self::debit).
    pub fn raise(&self, states: &mut States, permits: &mut [u64], at: &Moment<'_>) {
        states.fit(self.rules.len());
        self.rewind(states, at);
        let rules = self.rules.iter().zip(states.as_slice()).enumerate();
        for ((place, (named, state)), permits) in rules.zip(permits.iter_mut()) {
            let used = |state| named.rule.used(state, &at.for_rule(place));
            *permits = permits.saturating_sub(state.as_ref().map_or(0, used));
        }
        self.debit(states, permits, at);
    }

    /// Has `permits[rule]` more of each rule in use, also beyond its limit: they were in use under a higher one. A state
    /// counts no more than it can hold; rules that hand out permits with ids are left alone.
    pub fn overcharge(&self, states: &mut States, permits: &[u64], at: &Moment<'_>) {
        states.fit(self.rules.len());
        self.rewind(states, at);
        let rules = self.rules.iter().zip(states.as_mut_slice()).zip(permits).enumerate();
        for (place, ((NamedRule { rule, .. }, state), permits)) in rules {
            if !rule.holds_permits() {
                rule.charge_beyond(state, *permits, rule.countable(), &at.for_rule(place));
            }
        }
    }

    /// Gives up to `permits[rule]` permits of each rule back, never above full.
    pub fn credit(&self, states: &mut States, permits: &[u64], at: &Moment<'_>) {
        states.fit(self.rules.len());
        self.rewind(states, at);
        let rules = self.rules.iter().zip(states.as_mut_slice()).zip(permits).enumerate();
        for (place, ((named, state), permits)) in rules {
            if let (Some(state), 1..) = (state, *permits) {
                named.rule.refund(state, *permits, &at.for_rule(place));
            }
        }
    }

    /// Permits of each rule that are in use, rounded up. Of Guava's two, which begin with nothing
    /// stored, a key that was never seen uses all that can be stored.
    pub fn in_use(&self, states: &States, at: &Moment<'_>) -> [u64; RULES_MAX] {
        let mut in_use = [0; RULES_MAX];
        for (place, NamedRule { rule, .. }) in self.rules.iter().enumerate() {
            let at = at.for_rule(place);
            let state = states.as_slice().get(place).and_then(Option::as_ref);
            in_use[place] = match state {
                Some(state) => rule.used(state, &at),
                None if rule.full_is_fresh() => 0,
                None => rule.first_seen(&at).map_or(rule.limit(), |state| rule.used(&state, &at)),
            };
        }
        in_use
    }

    fn carried(&self, new: &Rule, old: &Rule, state: &State, at: &Moment<'_>) -> Option<State> {
        if new == old {
            return Some(state.clone());
        }
        if self.carry == Carry::Proportional && !new.holds_permits() {
            let scale = Scale { to: new.limit(), from: old.limit() };
            let kept = new.rescale(old, state, scale, at);
            return kept.or_else(|| new.with_used(scale.of(old.used(state, at)), at));
        }
        new.convert(old, state, at)
    }

    /// Returns whether all states of these rules fit 16 bytes: one rule, of an algorithm of constant size.
    #[inline]
    pub fn packs(&self) -> bool {
        matches!(&*self.rules, [only] if only.rule.unpack(0).is_some())
    }

    /// [`decide`](Self::decide) for rules that [pack](Self::packs), on a state of 16 bytes: the
    /// verdict, and the state from now on. `None` is the state of a key that was never seen.
    ///
    /// # Errors
    /// [`Unsupported`] if these rules do not know the verb.
    #[inline]
    pub fn decide_packed(
        &self,
        packed: Option<u128>,
        verb: &Verb,
        at: &Moment<'_>,
    ) -> Result<(Verdict, Option<u128>), Unsupported> {
        if let ([only], Verb::Check { cost }) = (&*self.rules, verb)
            && let Some((decision, packed)) = only.rule.check_packed(packed, &Ask::check(*cost), at)
        {
            return Ok((Verdict { decision, rule: 0 }, packed));
        }
        let mut states = packed.map_or_else(States::default, |packed| self.unpack(packed));
        let verdict = self.decide(&mut states, verb, at)?;
        Ok((verdict, self.pack(&states)))
    }

    /// These states in 16 bytes; `None` if no rule has a state, or if these rules do not [pack](Self::packs).
    pub fn pack(&self, states: &States) -> Option<u128> {
        states.single()?.pack()
    }

    /// Returns the states that [`pack`](Self::pack) of these rules packed in 16 bytes; none at all if these rules do
    /// not [pack](Self::packs).
    pub fn unpack(&self, packed: u128) -> States {
        match &*self.rules {
            [only] => States::one(only.rule.unpack(packed)),
            _ => States::default(),
        }
    }

    /// The instant from which these states equal no state at all; `None` if they never do.
    pub fn forgettable_at(&self, states: &States) -> Option<Micros> {
        let fresh = || self.rules.iter().all(|named| named.rule.full_is_fresh());
        (states.is_empty() || fresh()).then(|| self.full_at(states))
    }

    /// The instant at which every budget of these states is full again.
    pub fn full_at(&self, states: &States) -> Micros {
        let full_at = |(named, state): (&NamedRule, &Option<State>)| {
            state.as_ref().map(|state| named.rule.full_at(state))
        };
        self.rules.iter().zip(states.as_slice()).filter_map(full_at).max().unwrap_or(Micros::ZERO)
    }

    /// The part that is left at `now` of the budget that has the least left. A store that forgets these states gives
    /// away the rest: nothing at [`Left::ALL`], the whole limit of a refused key at [`Left::NONE`].
    pub fn left(&self, states: &States, now: Micros) -> Left {
        let left = |(named, state): (&NamedRule, &Option<State>)| {
            state.as_ref().map(|state| named.rule.left(state, now))
        };
        self.rules.iter().zip(states.as_slice()).filter_map(left).min().unwrap_or(Left::ALL)
    }

    /// Checks that these rules know `verb`.
    ///
    /// # Errors
    /// [`Unsupported`] as [`decide`](Self::decide).
    pub fn supports(&self, verb: &Verb) -> Result<(), Unsupported> {
        let holds_permits = self.rules.iter().any(|named| named.rule.holds_permits());
        let wants_permits = verb.is_of_permits();
        if let Verb::Peek { .. } | Verb::Refund { .. } | Verb::Reset = verb {
            return Ok(());
        }
        let verb = verb.name();
        match (wants_permits, holds_permits) {
            (true, false) => Err(Unsupported { verb, reason: "it has no `concurrency` rule" }),
            (false, true) => {
                Err(Unsupported { verb, reason: "it has a `concurrency` rule, use `acquire`" })
            }
            _ => Ok(()),
        }
    }

    /// Lets states of a later instant go on from this moment: the clock was set back.
    pub fn rewind(&self, states: &mut States, at: &Moment<'_>) {
        for (place, (named, state)) in self.rules.iter().zip(states.as_mut_slice()).enumerate() {
            if let Some(state) = state {
                named.rule.rewind(state, &at.for_rule(place));
            }
        }
    }

    /// Charges all rules if all allow.
    fn take(&self, states: &mut States, ask: &Ask, at: &Moment<'_>) -> Verdict {
        let joined = self.ask_all(states, ask, at);
        self.charge_if_allowed(states, joined, ask, at);
        self.verdict(states, joined, at)
    }

    #[inline]
    pub(crate) fn charge_if_allowed(
        &self,
        states: &mut States,
        joined: Joined,
        ask: &Ask,
        at: &Moment<'_>,
    ) {
        if let Joined::Allow { .. } = joined {
            // Nothing is charged until every rule has agreed: a refused request must not spend one
            // budget on its way to being refused by another.
            for (place, (named, state)) in self.rules.iter().zip(states.as_mut_slice()).enumerate()
            {
                named.rule.charge(state, ask, &at.for_rule(place));
            }
        } else {
            // A budget that starts below full fills from the first request on, or it would be
            // refused for ever.
            self.first_seen(states, at);
        }
    }

    fn peek(&self, states: &States, ask: &Ask, at: &Moment<'_>) -> Verdict {
        self.verdict(states, self.ask_all(states, ask, at), at)
    }

    fn acquire(
        &self,
        states: &mut States,
        cost: Cost,
        permit: PermitId,
        at: &Moment<'_>,
    ) -> Verdict {
        if let Some(place) = self.holding(states, permit, at) {
            return self.verdict(states, Joined::Deny { place, retry: Retry::Never }, at);
        }
        self.take(states, &Ask::acquire(cost, permit), at)
    }

    /// Acquires, or gives the request a ticket under every rule that hands out permits. The wait of a request with a ticket
    /// is the time until it could pass if no other came first.
    fn wait(&self, states: &mut States, ask: &Ask, process: ProcessId, at: &Moment<'_>) -> Verdict {
        let held = ask.permit.and_then(|permit| self.holding(states, permit, at));
        if let Some(place) = held {
            return self.verdict(states, Joined::Deny { place, retry: Retry::Never }, at);
        }
        let joined = self.ask_all(states, ask, at);
        if let Joined::Deny { retry: Retry::After(wait), place } = joined
            && self.enqueue(states, ask, process, at)
        {
            self.first_seen(states, at);
            let until = Joined::Allow { granted: 0, wait, slowest: Some(place) };
            return self.verdict(states, until, at);
        }
        self.charge_if_allowed(states, joined, ask, at);
        self.verdict(states, joined, at)
    }

    /// Gives `ask` a ticket under every rule that hands out permits, or under none. Returns whether it has them.
    fn enqueue(&self, states: &mut States, ask: &Ask, process: ProcessId, at: &Moment<'_>) -> bool {
        let mut queued = states.clone();
        for (place, (named, state)) in self.rules.iter().zip(queued.as_mut_slice()).enumerate() {
            if named.rule.holds_permits()
                && !named.rule.enqueue(state, ask, process, &at.for_rule(place))
            {
                return false;
            }
        }
        *states = queued;
        true
    }

    /// Checks that requests can wait for a permit of these rules.
    ///
    /// # Errors
    /// [`Unsupported`] unless every rule that hands out permits has a queue.
    pub fn supports_waiting(&self) -> Result<(), Unsupported> {
        self.supports(&Verb::Release { permit: PermitId(0) })
            .map_err(|error| error.of("acquire"))?;
        let reason =
            "not every `concurrency` rule has a `queue`, so no request can wait for a permit";
        if self.queues() { Ok(()) } else { Err(Unsupported { verb: "acquire", reason }) }
    }

    /// Returns whether requests can wait for a permit: there is a rule that hands out permits, and each such rule has a
    /// queue, as a request waits for all of them together.
    pub fn queues(&self) -> bool {
        let mut queues = self.rules.iter().filter_map(|named| match &named.rule {
            Rule::Concurrency(rule) => Some(rule.queue()),
            _ => None,
        });
        queues.next().is_some_and(|first| first > 0) && queues.all(|queue| queue > 0)
    }

    /// The waiting requests that would pass now under the rules that hand out permits: the first ones, of each rule at
    /// most 16. None while another rule has nothing left.
    pub fn called(&self, states: &States, at: &Moment<'_>) -> Vec<Called> {
        let mut called = Vec::new();
        for (place, (named, state)) in self.rules.iter().zip(states.as_slice()).enumerate() {
            let (rule, at) = (&named.rule, at.for_rule(place));
            match state {
                state if !rule.holds_permits() && rule.available(state.as_ref(), &at) == 0 => {
                    return Vec::new();
                }
                Some(state) => called.extend(rule.called(state, &at)),
                None => {}
            }
        }
        called
    }

    pub(crate) fn holding(
        &self,
        states: &States,
        permit: PermitId,
        at: &Moment<'_>,
    ) -> Option<usize> {
        let mut both = self.rules.iter().zip(states.as_slice());
        both.position(|(named, state)| {
            state.as_ref().is_some_and(|state| named.rule.holds(state, permit, at))
        })
    }

    fn at_most(&self, states: &mut States, cost: Cost, at: &Moment<'_>) -> Verdict {
        let both = self.rules.iter().zip(states.as_slice()).enumerate();
        let available = both
            .map(|(place, (named, state))| {
                named.rule.available(state.as_ref(), &at.for_rule(place))
            })
            .fold(cost.get(), u64::min);
        // With nothing to grant, a check of one permit finds when there will be one.
        let granted = Cost::new(available).unwrap_or(Cost::ONE);
        self.take(states, &Ask::check(granted), at)
    }

    /// The verdict on a verb that changed nothing: allowed, with 0 permits granted, and what `states` leave.
    pub fn unchanged(&self, states: &States, at: &Moment<'_>) -> Verdict {
        let mut seen = states.clone();
        seen.fit(self.rules.len());
        self.rewind(&mut seen, at);
        self.verdict(&seen, allow(0), at)
    }

    fn refund(&self, states: &mut States, permits: u64, at: &Moment<'_>) -> Verdict {
        let joined = self.give_back(states, permits, at);
        self.verdict(states, joined, at)
    }

    /// Gives permits back to every rule; the joined answer has the least that one of them took back.
    pub(crate) fn give_back(&self, states: &mut States, permits: u64, at: &Moment<'_>) -> Joined {
        let mut granted: Option<u64> = None;
        for (place, (named, state)) in self.rules.iter().zip(states.as_mut_slice()).enumerate() {
            if named.rule.holds_permits() {
                continue;
            }
            let back = match state {
                Some(state) => named.rule.refund(state, permits, &at.for_rule(place)),
                None => 0,
            };
            granted = Some(granted.map_or(back, |least| least.min(back)));
        }
        allow(granted.unwrap_or(0))
    }

    fn on_permit(
        &self,
        states: &mut States,
        at: &Moment<'_>,
        act: impl Fn(&Rule, &mut State, &Moment<'_>) -> Option<u64>,
    ) -> Verdict {
        let mut joined = None;
        for (place, (named, state)) in self.rules.iter().zip(states.as_mut_slice()).enumerate() {
            if !named.rule.holds_permits() {
                continue;
            }
            let state = state.as_mut();
            let granted = state.and_then(|state| act(&named.rule, state, &at.for_rule(place)));
            joined = match granted {
                Some(granted) => Some(allow(granted)),
                None => joined.or(Some(Joined::Deny { place, retry: Retry::Never })),
            };
        }
        let joined = joined.expect("`supports` has seen a rule that hands out permits");
        self.verdict(states, joined, at)
    }

    fn ask_all(&self, states: &States, ask: &Ask, at: &Moment<'_>) -> Joined {
        let mut joined = allow(ask.cost);
        for (place, (named, state)) in self.rules.iter().zip(states.as_slice()).enumerate() {
            let outcome = named.rule.check(state.as_ref(), ask, &at.for_rule(place));
            joined = joined.and(place, outcome);
        }
        joined
    }

    /// Reports `joined` with the budget of the rule that decided.
    fn verdict(&self, states: &States, joined: Joined, at: &Moment<'_>) -> Verdict {
        self.verdict_by(joined, |place, outcome| self.report(states, place, outcome, at))
    }

    /// Reports `joined` as `report` does for the rule that decided.
    #[inline]
    pub(crate) fn verdict_by(
        &self,
        joined: Joined,
        report: impl Fn(usize, Outcome) -> Verdict,
    ) -> Verdict {
        match joined {
            Joined::Deny { place, retry } => report(place, Outcome::Deny { retry }),
            Joined::Allow { granted, wait, slowest } => {
                let outcome = Outcome::Allow { granted, wait };
                if let Some(place) = slowest {
                    return report(place, outcome);
                }
                let all = (0..self.rules.len()).map(|rule| report(rule, outcome));
                all.min_by_key(|verdict| verdict.decision.remaining)
                    .expect("a set has at least one rule")
            }
        }
    }

    pub(crate) fn report(
        &self,
        states: &States,
        rule: usize,
        outcome: Outcome,
        at: &Moment<'_>,
    ) -> Verdict {
        let named = &self.rules[rule].rule;
        let state = states.as_slice().get(rule).and_then(Option::as_ref);
        Verdict { decision: named.report(state, outcome, &at.for_rule(rule)), rule }
    }
}

/// The outcomes of all rules, joined.
#[derive(Clone, Copy)]
pub(crate) enum Joined {
    Allow { granted: u64, wait: Micros, slowest: Option<usize> },
    Deny { place: usize, retry: Retry },
}

impl Joined {
    /// Joins the `outcome` of the rule at `place`.
    #[inline]
    pub(crate) fn and(self, place: usize, outcome: Outcome) -> Self {
        match (self, outcome) {
            (Self::Allow { granted, wait, .. }, Outcome::Allow { wait: longer, .. })
                if longer > wait =>
            {
                Self::Allow { granted, wait: longer, slowest: Some(place) }
            }
            (Self::Allow { .. }, Outcome::Deny { retry }) => Self::Deny { place, retry },
            (Self::Deny { retry, .. }, Outcome::Deny { retry: longer }) if longer > retry => {
                Self::Deny { place, retry: longer }
            }
            (unchanged, _) => unchanged,
        }
    }
}

pub(crate) const fn allow(granted: u64) -> Joined {
    Joined::Allow { granted, wait: Micros::ZERO, slowest: None }
}

/// Returns whether `name` can name a policy, a rule or an app: 1..=128 bytes of `[a-z0-9._-]`.
pub fn is_name(name: &str) -> bool {
    let allowed = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, reason } = self;
        write!(f, "`{verb}` is not supported by this policy: {reason}")
    }
}

impl core::error::Error for Unsupported {}

impl fmt::Display for RuleSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count} rules, expected 1 to {RULES_MAX}"),
            Self::Duplicate(name) => write!(f, "two rules are named `{name}`"),
            Self::Name(name) => {
                write!(
                    f,
                    "invalid name `{name}`: expected 1 to {NAME_BYTES_MAX} bytes of `[a-z0-9._-]`"
                )
            }
        }
    }
}

impl core::error::Error for RuleSetError {}
