//! The session of a replay: decides, counts and writes events, in virtual time.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use serde_json::value::RawValue;
use sluicegate::internals::gateway::{GuardingBudget, PolicyDecision};
use sluicegate::{
    Admission, Answer, Cost, DecideError, Disposition, Micros, PermitId, Request, Verb,
};
use sluicegate_kernel::limits::SPAN_MAX_US;
use sluicegate_policy::{Policy, PolicySet};
use sluicegate_text::fields::Field;

use super::decider::Decider;
use super::error::EventError;
use super::held::{Decided, HeldRequests};
use super::jsonl::{self, Act, BadEvent, ReplayEvent};
use super::op::OpName;
use super::output::{
    DecisionLine, DecisionWriter, HELD_LINES_MAX, OutputSlot, write_configured, write_error,
};
use super::pending::{PENDING_MAX, Pending, PendingReservation};
use super::progress::Progress;
use super::request::StreamedRequest;
use super::summary::{Answered, ReplayTally};

/// A replay while it runs.
pub(crate) struct ReplaySession {
    decider: Decider,
    /// The policy of events without one.
    policy: Option<String>,
    output: DecisionWriter,
    pub(crate) tally: ReplayTally,
    pub(crate) progress: Progress,
    pending: Pending,
    /// Lines of a log that a gateway would delay.
    held: HeldRequests<HeldLine>,
    /// The instant of the last event that was decided.
    reached: Micros,
    /// Number of permits that were named here.
    permits: u64,
}

/// A line of a log on its way to its decision.
struct HeldLine {
    line: u64,
    at: Micros,
    /// The request to a server, if the line is one.
    repeated: Option<AskedAgain>,
    /// The place of its decision in the output; `None`: in the order of the input.
    place: Option<OutputSlot>,
}

/// The data of a server's request that are counted and written besides its decision.
struct AskedAgain {
    op: OpName,
    permit: Option<String>,
    /// The server let it pass; `None` if it did not decide.
    passed: Option<bool>,
}

/// One request, ready to be decided.
pub(crate) struct ReplayRequest<'a> {
    /// The line of its event.
    pub(crate) line: u64,
    pub(crate) at: Micros,
    pub(crate) policy: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) op: OpName,
    pub(crate) verb: Verb,
    /// The name of the permit, if there is one.
    pub(crate) id: Option<&'a str>,
}

impl ReplaySession {
    /// Returns a replay that `decider` decides.
    pub(crate) fn new(decider: Decider, output: DecisionWriter, progress: Progress) -> Self {
        Self {
            decider,
            policy: None,
            output,
            tally: ReplayTally::new(),
            progress,
            pending: Pending::default(),
            held: HeldRequests::new(),
            reached: Micros::ZERO,
            permits: 0,
        }
    }

    /// Returns this replay, where `policy` is the policy of events without one.
    pub(crate) fn with_policy(self, policy: Option<String>) -> Self {
        Self { policy, ..self }
    }

    /// Executes one line of `jsonl`.
    pub(crate) fn event(&mut self, line: u64, bytes: &[u8]) {
        match jsonl::parse(bytes) {
            Err(BadEvent { at, error }) => self.failed(line, at, &error),
            Ok(event) => {
                let at = event.at;
                if let Err(error) = self.act(line, event) {
                    self.failed(line, Some(at), &error);
                }
            }
        }
    }

    /// Decides `ask`.
    ///
    /// # Errors
    /// [`EventError`]: it was not decided, and changed nothing.
    pub(crate) fn ask(&mut self, ask: ReplayRequest<'_>) -> Result<(), EventError> {
        let ReplayRequest { line: _, at, policy, key, op, verb, id } = &ask;
        let request = Request::new(policy, key.map(str::as_bytes), verb.clone());
        if self.pending.is_due(*at) {
            // An event that is not decided must not let time pass either.
            self.decider.check(&request, *at)?;
            self.advance(*at);
        }
        let Admission { answer, way, held: _ } = self.decider.decide_at(&request, *at)?;
        if let Some(due) = due_again(&answer, verb, *at) {
            return self.hold(ask, due);
        }
        self.reached = *at;
        if op.asks_for_permits() {
            self.tally.arrived(*at, cost_of(verb));
            self.tally.count_budget(policy, key.map(str::as_bytes), !way.passes());
            let wait = answer.decision.wait();
            self.tally.answered(*at, &answered(&way, wait, Micros::ZERO));
        } else {
            self.tally.other(*at);
        }
        let decision = DecisionLine {
            at: *at,
            policy,
            key: *key,
            op: *op,
            wait: answer.decision.wait(),
            delay: Micros::ZERO,
            decision: &answer.decision,
            rule: answer.rule(),
            id: *id,
            verdict: None,
        };
        self.output.put(|out| decision.write(out));
        self.give_up_overdue();
        Ok(())
    }

    /// Records a line that was not decided.
    pub(crate) fn failed(&mut self, line: u64, at: Option<Micros>, error: &dyn Display) {
        let error = error.to_string();
        self.tally.errors += 1;
        self.progress.problem(line, &error);
        self.output.put(|out| write_error(out, at, line, &error));
        self.give_up_overdue();
    }

    /// The policies as they are now: `configure` may have changed them.
    pub(crate) fn policies(&self) -> Arc<PolicySet> {
        self.decider.policies()
    }

    /// Returns whether decisions can no longer be written.
    pub(crate) fn is_stuck(&self) -> bool {
        self.output.has_failed()
    }

    /// Decides line `line` of a log, a request that takes a permit from each of `budgets`, as a gateway does.
    pub(crate) fn gateway_request(&mut self, line: u64, at: Micros, budgets: Vec<GuardingBudget>) {
        self.go_on_with_held(at);
        self.tally.arrived(at, Cost::ONE);
        for budget in &budgets {
            self.tally.count_budget(budget.policy.name(), budget.key.as_deref(), false);
        }
        let output = &mut self.output;
        let tag = |is_held: bool| HeldLine {
            line,
            at,
            repeated: None,
            place: is_held.then(|| output.hold()),
        };
        if let Some(decided) = self.held.ask(&self.decider, at, budgets, tag) {
            self.gateway_decided(decided);
        }
        self.give_up_overdue();
    }

    /// Decides line `line` of a stream of events: `request`, which a server got.
    pub(crate) fn streamed_request(&mut self, line: u64, at: Micros, request: StreamedRequest) {
        self.go_on_with_held(at);
        let StreamedRequest { op, permit, passed, .. } = &request;
        let repeated = AskedAgain { op: *op, permit: permit.clone(), passed: *passed };
        if op.asks_for_permits() {
            self.tally.arrived(at, cost_of(&request.verb));
            self.tally.count_budget(
                &request.policy,
                request.key.as_deref().map(str::as_bytes),
                false,
            );
        }
        let output = &mut self.output;
        let tag = |is_held: bool| {
            let place = is_held.then(|| output.hold());
            HeldLine { line, at, repeated: Some(repeated), place }
        };
        if let Some(decided) = self.held.ask_again(&self.decider, at, request, tag) {
            self.gateway_decided(decided);
        }
        self.give_up_overdue();
    }

    /// Decides delayed lines whose time comes at `now` or before.
    fn go_on_with_held(&mut self, now: Micros) {
        while let Some(decided) = self.held.next_decided(&self.decider, now) {
            self.gateway_decided(decided);
        }
    }

    fn gateway_decided(&mut self, Decided { tag, decided, .. }: Decided<HeldLine>) {
        let error = match &decided {
            Ok(decided) => match PolicyDecision::deciding(decided) {
                Some(deciding) => {
                    return self.gateway_answered(tag, deciding, decided);
                }
                None => return,
            },
            Err(error) => EventError::from(error.clone()),
        };
        let HeldLine { line, at, repeated, place } = tag;
        if repeated.is_none_or(|repeated| repeated.op.asks_for_permits()) {
            self.tally.withdrawn();
        }
        self.line_failed(line, at, place, &error);
    }

    /// Counts and writes an answer: `decided` by all policies, of which `deciding` is the one that clients see.
    fn gateway_answered(
        &mut self,
        line: HeldLine,
        deciding: &PolicyDecision,
        decided: &[PolicyDecision],
    ) {
        let HeldLine { line: _, at, repeated, place } = line;
        let repeated = repeated.as_ref();
        let PolicyDecision { policy, key, admission } = deciding;
        let Admission { answer, way, held } = admission;
        let op = repeated.map_or(OpName::Check, |repeated| repeated.op);
        let passed = repeated.and_then(|repeated| repeated.passed);
        self.tally.differing += u64::from(passed.is_some_and(|passed| passed != way.passes()));
        if !way.passes() && op.asks_for_permits() {
            self.tally.count_budget(policy.name(), key.as_deref(), true);
        }
        let waited = decided.iter().map(|decided| decided.admission.held).max();
        let waited = waited.unwrap_or(*held);
        let is_shadowed =
            decided.iter().any(|decided| decided.admission.way == Disposition::Shadowed);
        let wait = if repeated.is_some() { waited.max(answer.decision.wait()) } else { waited };
        if op.asks_for_permits() {
            let all = Answered { is_shadowed, ..answered(way, wait, waited) };
            self.tally.answered(at, &all);
        } else {
            self.tally.other(at);
        }
        let text = key.as_deref().map(String::from_utf8_lossy);
        let others = decided.iter().map(|decided| decided.policy.name());
        let others: Vec<_> = others.filter(|name| *name != policy.name()).collect();
        let decision = DecisionLine {
            at,
            policy: policy.name(),
            key: text.as_deref(),
            op,
            wait,
            delay: held.since(answer.decision.wait()),
            decision: &answer.decision,
            rule: answer.rule(),
            id: repeated.and_then(|repeated| repeated.permit.as_deref()),
            verdict: Some((verdict_name(way), &others)),
        };
        match place {
            Some(place) => self.output.fill(place, |out| decision.write(out)),
            None => self.output.put(|out| decision.write(out)),
        }
    }

    /// Records a line that was not decided after all.
    fn line_failed(
        &mut self,
        line: u64,
        at: Micros,
        place: Option<OutputSlot>,
        error: &EventError,
    ) {
        let error = error.to_string();
        self.tally.errors += 1;
        self.progress.problem(line, &error);
        let write = |out: &mut Vec<u8>| write_error(out, Some(at), line, &error);
        match place {
            Some(place) => self.output.fill(place, write),
            None => self.output.put(write),
        }
    }

    /// Decides all that still wait, and writes the rest.
    ///
    /// # Errors
    /// Those of writing, also earlier ones.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.advance(Micros::MAX);
        self.go_on_with_held(Micros::MAX);
        self.tally.evicted = self.decider.evictions();
        self.progress.finish();
        self.output.finish()
    }

    fn act(&mut self, line: u64, event: ReplayEvent<'_>) -> Result<(), EventError> {
        let ReplayEvent { at, policy, key, act } = event;
        if at < self.reached {
            return Err(EventError::Backwards { at: at.get(), reached: self.reached.get() });
        }
        let op = act.op();
        if let Act::Configure(document) = act {
            return self.configure(at, policy.as_deref(), document);
        }
        let default = self.policy.clone();
        let Some(policy) = policy.as_deref().or(default.as_deref()) else {
            return Err(EventError::Missing { field: Field::Policy, op });
        };
        let nameless = matches!(act, Act::Acquire { id: None, .. });
        let (verb, id) = match act {
            Act::Check(cost) => (Verb::Check { cost }, None),
            Act::Peek(cost) => (Verb::Peek { cost }, None),
            Act::Refund(cost) => (Verb::Refund { cost }, None),
            Act::Reset | Act::Configure(_) => (Verb::Reset, None),
            Act::Reserve { cost, max_wait } => (Verb::Reserve { cost, max_wait }, None),
            Act::AtMost(cost) => (Verb::AtMost { cost }, None),
            Act::Acquire { cost, id } => {
                let id = id.unwrap_or_else(|| format!("p{}", self.permits + 1).into());
                (Verb::Acquire { cost, permit: PermitId::named(&id) }, Some(id))
            }
            Act::Release(id) => (Verb::Release { permit: PermitId::named(&id) }, Some(id)),
            Act::Renew(id) => (Verb::Renew { permit: PermitId::named(&id) }, Some(id)),
        };
        let (key, id) = (key.as_deref(), id.as_deref());
        self.ask(ReplayRequest { line, at, policy, key, op, verb, id })?;
        self.permits += u64::from(nameless);
        Ok(())
    }

    fn configure(
        &mut self,
        at: Micros,
        name: Option<&str>,
        document: &RawValue,
    ) -> Result<(), EventError> {
        let policy = Policy::parse_one(document.get())?.for_every_app();
        if let Some(name) = name.filter(|name| *name != policy.name()) {
            let (document, policy) = (policy.name().to_owned(), name.to_owned());
            return Err(EventError::OtherPolicy { document, policy });
        }
        let name = policy.name().to_owned();
        let policies = self.decider.policies();
        if policies.resolve(&name).is_none() {
            return Err(DecideError::UnknownPolicy(name).into());
        }
        self.advance(at);
        self.reached = at;
        let policies = policies.with(policy).expect("a replacement adds no policy");
        self.decider.set_policies(policies);
        self.tally.other(at);
        self.output.put(|out| write_configured(out, at, &name));
        self.give_up_overdue();
        Ok(())
    }

    /// Keeps a refused reservation until `due`.
    fn hold(&mut self, ask: ReplayRequest<'_>, due: Micros) -> Result<(), EventError> {
        let ReplayRequest { line, at, policy, key, op: _, verb, id: _ } = ask;
        let Verb::Reserve { cost, max_wait } = verb else { return Ok(()) };
        if self.pending.is_full() {
            return Err(EventError::PendingFull(PENDING_MAX));
        }
        self.reached = at;
        self.tally.arrived(at, cost);
        let (policy, key) = (policy.into(), key.map(Into::into));
        let deadline = at.plus(max_wait);
        let reservation = PendingReservation { line, at, deadline, policy, key, cost };
        let place = self.output.hold();
        self.pending.push(due, place, reservation);
        self.give_up_overdue();
        Ok(())
    }

    /// Tries waiting reservations again whose time comes up to `now`.
    fn advance(&mut self, now: Micros) {
        while let Some((due, place, reservation)) = self.pending.pop_due(now) {
            self.retry(due, place, reservation);
        }
    }

    fn retry(&mut self, now: Micros, place: OutputSlot, reservation: PendingReservation) {
        let PendingReservation { line: _, at, deadline, policy, key, cost } = &reservation;
        let verb = Verb::Reserve { cost: *cost, max_wait: deadline.since(now) };
        let request = Request::new(policy, key.as_ref().map(|key| key.as_bytes()), verb);
        let Admission { answer, way, held: _ } = match self.decider.decide_at(&request, now) {
            Ok(admission) => admission,
            Err(error) => return self.withdraw(place, &reservation, &error.into()),
        };
        if let Some(due) = due_again(&answer, &request.verb, now) {
            return self.pending.push(due, place, reservation);
        }
        let delay = now.since(*at);
        self.tally.count_budget(policy, key.as_ref().map(|key| key.as_bytes()), !way.passes());
        let wait = answer.decision.wait().plus(delay);
        self.tally.answered(*at, &answered(&way, wait, delay));
        let decision = DecisionLine {
            at: *at,
            policy,
            key: key.as_deref(),
            op: OpName::Reserve,
            wait,
            delay,
            decision: &answer.decision,
            rule: answer.rule(),
            id: None,
            verdict: None,
        };
        self.output.fill(place, |out| decision.write(out));
    }

    /// Gives up a reservation that waits: nothing was charged, so this changes no budget.
    fn withdraw(
        &mut self,
        place: OutputSlot,
        reservation: &PendingReservation,
        error: &EventError,
    ) {
        self.tally.withdrawn();
        self.line_failed(reservation.line, reservation.at, Some(place), error);
    }

    fn give_up_overdue(&mut self) {
        while let Some(place) = self.output.overdue() {
            let error = EventError::HeldBack(HELD_LINES_MAX);
            if let Some(reservation) = self.pending.remove(place) {
                self.withdraw(place, &reservation, &error);
            } else {
                let held = self.held.remove(|held| held.place == Some(place));
                let HeldLine { line, at, .. } = held.expect("what waits holds lines back");
                self.tally.withdrawn();
                self.line_failed(line, at, Some(place), &error);
            }
        }
    }
}

/// Returns the instant at which a refused reservation is tried again: if the rule that refused cannot book, and
/// patience and time suffice.
fn due_again(answer: &Answer, verb: &Verb, now: Micros) -> Option<Micros> {
    let Verb::Reserve { max_wait, .. } = verb else { return None };
    if answer.decision.allowed() {
        return None;
    }
    let retry = answer.decision.retry_after().filter(|retry| retry <= max_wait)?;
    let mut rules = answer.rules().rules().iter();
    let books = rules.any(|named| *named.name == *answer.rule() && named.rule.books());
    let due = now.plus(retry.max(Micros::new(1)));
    (!books && due.get() <= SPAN_MAX_US).then_some(due)
}

/// Returns the outcome of a request with this `way`, which passes `wait` and was decided `delay` after it came.
fn answered(way: &Disposition, wait: Micros, delay: Micros) -> Answered {
    Answered { passes: way.passes(), is_shadowed: *way == Disposition::Shadowed, wait, delay }
}

/// Returns the verdict of a gateway, as in `X-Sluicegate-Verdict`.
const fn verdict_name(way: &Disposition) -> &'static str {
    match way {
        Disposition::Allowed => "pass",
        Disposition::Shadowed => "shadow",
        Disposition::Degraded(_) => "degrade",
        Disposition::Diverted(_) => "divert",
        Disposition::Refused => "refuse",
    }
}

/// Returns the permits of `verb`.
const fn cost_of(verb: &Verb) -> Cost {
    match verb {
        Verb::Check { cost }
        | Verb::Reserve { cost, .. }
        | Verb::AtMost { cost }
        | Verb::Acquire { cost, .. }
        | Verb::Wait { cost, .. }
        | Verb::Peek { cost }
        | Verb::Refund { cost } => *cost,
        Verb::Reset | Verb::Release { .. } | Verb::Leave { .. } | Verb::Renew { .. } => Cost::ONE,
    }
}
