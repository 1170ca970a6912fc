//! One leased key at its holder: when to send a message, for how many permits, and the effect of the answer.
//!
//! No IO and no clock: the sender and the simulator pass the time in, by the steady clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_kernel::lease::{LeaseGrant, Message};
use sluicegate_kernel::{Decision, LeaseReply, Micros, Outcome, Retry, Rule, RuleSet, Verdict};
use sluicegate_policy::Rules;
use sluicegate_store::{Quota, RuleOrigin, StoreError, StoreRequest};

use super::cell::Cell;
use super::counts::{Fate, MessageOutcome, MessageReason};
use super::demand::{Bounds, Demand};
use super::hot_keys::{HOT_ASKS, HOT_WITHIN};
use super::last_reply::LastReply;
use super::pace::{Pace, PacedReply};
use super::queue::{LeaseQueue, QueueTicket, WaitOutcome};
use super::session::{LeaseRequest, LeaseSession, ReplyOutcome};
use super::{LeaseTerms, LeasedDecision};

/// Time before their end from which permits are renewed: longer than a message takes, and than a tick.
const RENEWED_BEFORE: Micros = Micros::from_millis(60);

/// Time for which a holder that the store has no place or answer for decides like one that leases nothing.
const FULL_FOR: Micros = Micros::SECOND;

/// After this many answers in a row that came too late, a lease of the key saves no round trip but costs one.
const LATE_MAX: u8 = 3;

/// Time for which such a key is then not leased, until one more message tries again.
const FAR_FOR: Micros = Micros::SECOND;

/// Time without requests, or since it gave up its lease, after which a key is forgotten. No record of it is left then.
const FORGOTTEN_AFTER: Micros = Micros::from_secs(10);

/// The budget that is leased, and its rules.
#[derive(Debug)]
pub(crate) struct LeasedBudget {
    pub(crate) policy: Box<str>,
    pub(crate) key: Box<[u8]>,
    pub(crate) rules: Rules,
    /// The instant since which they are in force.
    since: Micros,
    /// `None`: the rules cannot be leased.
    bounds: Option<Bounds>,
}

/// A message, and its subject.
#[derive(Debug)]
pub(crate) struct OutgoingMessage {
    pub(crate) subject: Arc<LeasedBudget>,
    pub(crate) message: Message,
}

/// The answer to a request that finds no permits.
#[derive(Debug)]
pub(crate) enum MissOutcome {
    /// The request is refused.
    Refused(Verdict),
    /// The request waits for the answer to a message.
    Waits(QueueTicket),
    /// Its key is not leased.
    NotLeased,
}

/// The reason for which a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Permits run short, or out.
    More,
    /// The term of the permits ends soon.
    Renew,
    /// No request uses the permits any more.
    End,
    /// The store may have set permits aside in an answer that did not arrive.
    Unheard,
}

/// The state of one key.
#[derive(Debug)]
pub(super) struct KeyLease {
    subject: Arc<LeasedBudget>,
    session: LeaseSession,
    demand: Demand,
    pace: Pace,
    queue: LeaseQueue,
    /// Number of permits that the last message requested.
    wanted: u64,
    reason: Option<Reason>,
    /// The reason for which the last message was sent.
    kind: MessageReason,
    /// The last reading of the cell: hits, and permits spent since the last message.
    noted: (u32, u32),
    last_ask: Micros,
    /// The store's last answer to a request for permits, and its instant.
    verdict: Option<(Verdict, Micros)>,
    /// The permits of the store's last answer are not used any more, because the key is decided without the store.
    is_retired: bool,
    /// `Some` while the key is not worth a lease: since when requests have been counted, and their number.
    cold: Option<(Micros, u64)>,
    /// The instant until which the store has no place for this holder, or is too far away.
    full_until: Micros,
    /// Number of answers in a row that came too late.
    late: u8,
    /// The instant since which the lease makes room for a key with more requests.
    yields_since: Option<Micros>,
}

impl LeasedBudget {
    pub(super) fn new(request: &StoreRequest<'_>, terms: &LeaseTerms<'_>) -> Self {
        let LeaseTerms { rules, bounds } = *terms;
        let span = rules.set().leasing_span().ok();
        let bounds = span.map(|span| Bounds::new(rules.set(), span, bounds));
        Self {
            policy: request.policy.into(),
            key: request.key.into(),
            rules: rules.clone(),
            since: since(request),
            bounds,
        }
    }

    /// Returns whether a lease can serve a request of `cost`: it must leave room for others.
    pub(super) fn leases(&self, cost: u32) -> bool {
        self.bounds.is_some_and(|bounds| bounds.share >= u64::from(cost).saturating_mul(HOT_ASKS))
    }

    /// Returns the request for the store. Its verb is not used.
    pub(crate) fn request(&self) -> StoreRequest<'_> {
        let origin = RuleOrigin::Policy { since: self.since };
        let (policy, key, rules) = (&*self.policy, &*self.key, self.rules.set());
        StoreRequest { policy, key, rules, verb: &super::LOOK, origin, quota: Quota::of(policy) }
    }
}

impl OutgoingMessage {
    /// Permits of each rule in use according to `grant`, with all that are leased.
    pub(crate) fn in_use(&self, grant: &LeaseGrant) -> Vec<(usize, u64)> {
        let each = grant.hint.used.iter().take(self.subject.rules.set().rules().len());
        each.map(|used| used + u64::from(grant.hint.held)).enumerate().collect()
    }
}

impl KeyLease {
    /// Returns a key that has just become hot: `HOT_ASKS` requests like one of `cost` came within `over`.
    pub(super) fn new(
        session: LeaseSession,
        subject: LeasedBudget,
        cost: u32,
        over: Micros,
        now: Micros,
    ) -> Self {
        Self {
            subject: Arc::new(subject),
            session,
            demand: hot(cost, over, now),
            pace: Pace::default(),
            queue: LeaseQueue::default(),
            wanted: 0,
            reason: None,
            kind: MessageReason::default(),
            noted: (0, 0),
            last_ask: now,
            verdict: None,
            is_retired: false,
            cold: None,
            full_until: Micros::ZERO,
            late: 0,
            yields_since: None,
        }
    }

    pub(super) fn rules(&self) -> &Arc<RuleSet> {
        self.subject.rules.set()
    }

    /// Handles a request of `cost` that found no permits.
    pub(super) fn miss(&mut self, cell: &Cell, cost: u32, now: Micros) -> MissOutcome {
        self.note(cell, now);
        self.last_ask = now;
        self.demand.add(1, cost.into());
        self.pace.add(1);
        let has_place = self.yields_since.is_none() && now >= self.full_until;
        if !has_place || !self.subject.leases(cost) || !self.is_warm(cost, now) {
            return MissOutcome::NotLeased;
        }
        if !self.session.waits() && !self.pace.allows(now) {
            return MissOutcome::Refused(self.refusal(cell, now));
        }
        let Some(place) = self.queue.join(cost) else { return MissOutcome::NotLeased };
        self.session.counts().waits.fetch_add(1, Ordering::Relaxed);
        self.reason = Some(Reason::More);
        MissOutcome::Waits(place)
    }

    /// Returns the refusal that [`miss`](Self::miss) would return at once.
    pub(super) fn would_refuse(&mut self, cell: &Cell, cost: u32, now: Micros) -> Option<Verdict> {
        self.note(cell, now);
        let refuses = self.cold.is_none()
            && self.yields_since.is_none()
            && now >= self.full_until
            && self.subject.leases(cost)
            && !self.session.waits()
            && !self.pace.allows(now);
        refuses.then(|| {
            self.last_ask = now;
            self.demand.add(1, cost.into());
            self.pace.add(1);
            self.refusal(cell, now)
        })
    }

    /// Notes that few permits are left. Returns whether a message is due.
    pub(super) fn runs_low(&mut self, cell: &Cell, now: Micros) -> bool {
        self.note(cell, now);
        let is_kept = self.cold.is_none() && self.yields_since.is_none();
        let asks = is_kept && !self.session.waits() && self.pace.allows(now);
        if asks {
            self.reason = Some(Reason::More);
        }
        asks
    }

    /// Takes permits back that a caller returns; returns whether it could.
    pub(super) fn put_back(&mut self, cell: &Cell, permits: u32, now: Micros) -> bool {
        self.note(cell, now);
        let put_back = self.session.put_back(cell, permits, now);
        self.noted.1 = self.session.spent(cell);
        put_back
    }

    /// Puts other rules in force. No permits under the old ones are used any more, nor those that a message under
    /// way is granted.
    pub(super) fn change_rules(&mut self, cell: &Cell, subject: LeasedBudget) {
        cell.stop();
        self.session.give_up();
        self.queue.answer(|_| WaitOutcome::Ask);
        self.subject = Arc::new(subject);
        self.reason = Some(Reason::More);
        self.verdict = None;
    }

    /// Returns whether the rules of `request` are later than those in force here.
    pub(super) fn are_later(&self, request: &StoreRequest<'_>) -> bool {
        since(request) > self.subject.since
    }

    /// Ends the use of the lease, because the key is decided without the store from now on, which counts all leased
    /// permits as used. Returns their number, once.
    pub(super) fn retire(&mut self, cell: &Cell) -> u32 {
        cell.stop();
        if std::mem::replace(&mut self.is_retired, true) { 0 } else { self.session.stood() }
    }

    /// Marks what was spent, after some time has passed. Returns whether a message is due.
    pub(super) fn tick(&mut self, cell: &Cell, now: Micros) -> bool {
        self.note(cell, now);
        self.session.mark(cell, now);
        if self.session.is_too_late(now) {
            self.session.give_up();
            self.queue.answer(|_| WaitOutcome::Ask);
            self.pace.free(now);
            self.was_late(now);
        }
        if self.session.waits() {
            return false;
        }
        let end = Micros::new(cell.end());
        let lead = Micros::new(end.since(self.session.sent_at()).get() / 4).min(RENEWED_BEFORE);
        let is_idle =
            self.yields_since.is_some() || now.since(self.last_ask) >= self.demand.idle_after();
        let (left, spent) = (cell.left(), self.session.spent(cell));
        self.reason = match self.reason {
            None if is_idle && (left > 0 || spent > 0) => Some(Reason::End),
            // Also if it has ended meanwhile: the store may still have the record.
            None if left > 0 && now.plus(lead) >= end => Some(Reason::Renew),
            None if self.session.is_unheard(now) => Some(Reason::Unheard),
            reason => reason,
        };
        self.reason.is_some()
    }

    /// Gives everything back because the process stops. Returns whether a message is due.
    pub(super) fn leave(&mut self, cell: &Cell, now: Micros) -> bool {
        self.queue.answer(|_| WaitOutcome::Ask);
        self.cold = Some((now, 0));
        self.reason = Some(Reason::End);
        cell.left() > 0 || self.session.spent(cell) > 0
    }

    /// Requests per second, 0 if none came for a while; `None` if the lease makes room already.
    pub(super) fn asks_per_s(&self, now: Micros) -> Option<u64> {
        let is_asked = self.cold.is_none() && now.since(self.last_ask) < Micros::SECOND;
        let asks = if is_asked { self.demand.asks_per_s() } else { 0 };
        self.yields_since.is_none().then_some(asks)
    }

    /// Makes room for a key with more requests: this one has no lease from now on, and is forgotten when no
    /// record of it is left. Returns whether a message is due.
    pub(super) fn yield_place(&mut self, cell: &Cell, now: Micros) -> bool {
        self.yields_since = Some(now);
        self.leave(cell, now)
    }

    /// The budget that is leased.
    pub(super) fn subject(&self) -> &LeasedBudget {
        &self.subject
    }

    /// The number of its last message.
    pub(super) const fn number(&self) -> u32 {
        self.session.number()
    }

    /// Returns whether the key can be forgotten.
    pub(super) fn is_over(&self, cell: &Cell, now: Micros) -> bool {
        let begun = self.yields_since.map_or(self.last_ask, |since| since.min(self.last_ask));
        now.since(begun) >= FORGOTTEN_AFTER
            && !self.session.waits()
            && (cell.left() == 0 || now.get() >= cell.end())
    }

    /// Returns the message that is due.
    pub(super) fn next_message(&mut self, cell: &Cell, now: Micros) -> Option<OutgoingMessage> {
        if self.session.waits() {
            return None;
        }
        let mut reason = self.reason.take()?;
        self.note(cell, now);
        self.demand.measure(now);
        if reason != Reason::More && self.demand.is_low() && self.cold.is_none() {
            reason = Reason::End;
            self.cold = Some((now, 0));
        }
        let (need, least) = self.queue.needs();
        let request = match self.subject.bounds {
            // The permits that are left are kept, and none are requested.
            Some(_) if reason == Reason::Unheard && need == 0 => LeaseRequest::default(),
            Some(bounds) if reason != Reason::End || need > 0 => {
                let left = if now.get() < cell.end() { cell.left() } else { 0 };
                let target = self.demand.target(&bounds, now);
                let most = 2 * target;
                let back =
                    if reason == Reason::Renew { u64::from(left).saturating_sub(most) } else { 0 };
                LeaseRequest {
                    need,
                    least,
                    want: narrow(target.saturating_sub(left.into())),
                    share: narrow(bounds.share),
                    term: self.demand.term(&bounds, target),
                    back: narrow(back),
                }
            }
            _ => {
                self.queue.answer(|_| WaitOutcome::Ask);
                LeaseRequest { back: u32::MAX, ..LeaseRequest::default() }
            }
        };
        self.wanted = u64::from(request.need) + u64::from(request.want);
        self.kind = match reason {
            Reason::End | Reason::Unheard => MessageReason::End,
            _ if self.session.stood() == 0 => MessageReason::First,
            Reason::More => MessageReason::More,
            Reason::Renew => MessageReason::Renew,
        };
        let message = self.session.ask(cell, &request, now);
        self.noted.1 = 0;
        Some(OutgoingMessage { subject: Arc::clone(&self.subject), message })
    }

    /// Withdraws a message that could not be sent, or is not to be: requests that wait for it ask the store themselves.
    pub(super) fn unsent(&mut self, now: Micros) {
        self.session.withdraw();
        self.reason = None;
        self.queue.answer(|_| WaitOutcome::Ask);
        self.pace.free(now);
    }

    /// Handles the result of a message.
    pub(super) fn on_reply(
        &mut self,
        cell: &Cell,
        last_reply: &LastReply,
        reply: Result<&LeaseReply, &StoreError>,
        now: Micros,
    ) {
        // This answers also the reasons for a message that arose meanwhile.
        self.reason = None;
        let was_awaited = self.session.waits();
        let outcome = match reply {
            Ok(reply) => {
                let rules = self.subject.rules.set();
                self.session.on_reply(cell, reply, now, |grant| last_reply.note(grant, rules, now))
            }
            Err(error) => {
                self.session.counts().message(self.kind, MessageOutcome::Lost);
                self.session.give_up();
                self.pace.free(now);
                if !is_outage(error) {
                    // The next message would fail alike.
                    self.full_until = now.plus(FULL_FOR);
                }
                return self.queue.answer(|_| failed(error));
            }
        };
        let counts = Arc::clone(self.session.counts());
        let is_late = matches!(outcome, ReplyOutcome::Stale);
        let counted = if is_late { MessageOutcome::Late } else { MessageOutcome::Answered };
        counts.message(self.kind, counted);
        if !is_late {
            self.late = 0;
        } else if was_awaited {
            self.was_late(now);
        }
        match outcome {
            ReplyOutcome::Granted(grant) => self.on_grant(cell, last_reply, &grant, now),
            ReplyOutcome::NoCapacity(grant) => {
                counts.full.fetch_add(1, Ordering::Relaxed);
                counts.permits(Fate::Spent, grant.granted);
                self.full_until = now.plus(FULL_FOR);
                let mut granted = grant.granted;
                while let Some(untaken) = self.queue.serve(|cost| {
                    granted = granted.checked_sub(cost)?;
                    Some(passed(&grant.verdict, cost, granted))
                }) {
                    granted += untaken;
                }
                self.queue.answer(|_| WaitOutcome::Ask);
            }
            ReplyOutcome::Stale => {
                self.pace.free(now);
                self.queue.answer(|_| WaitOutcome::Ask);
            }
        }
    }

    /// Notes that the answer to a message came too late, or did not come.
    fn was_late(&mut self, now: Micros) {
        self.late = self.late.saturating_add(1);
        if self.late >= LATE_MAX {
            self.full_until = self.full_until.max(now.plus(FAR_FOR));
        }
    }

    fn on_grant(&mut self, cell: &Cell, last_reply: &LastReply, grant: &LeaseGrant, now: Micros) {
        self.is_retired = false;
        self.verdict = Some((grant.verdict, now));
        if let Some(bounds) = &self.subject.bounds {
            let decides = self.subject.rules.set().rules().get(grant.verdict.rule);
            let begins_anew = decides.is_some_and(|it| matches!(it.rule, Rule::FixedWindow(_)));
            let (wanted, demand) = (self.wanted, &self.demand);
            let reply = PacedReply { grant, wanted, begins_anew, bounds, demand };
            self.pace.on_reply(reply, now);
        }
        while let Some(untaken) = self.serve(cell, last_reply, now) {
            self.put_back(cell, untaken, now);
        }
        if self.queue.is_empty() {
            return;
        }
        if self.pace.allows(now) {
            // Others have taken the permits that came for them.
            return self.queue.answer(|_| WaitOutcome::Ask);
        }
        let refusal = self.refusal(cell, now);
        self.queue.answer(|_| WaitOutcome::Refused(refusal));
    }

    /// Serves the requests that wait from the cell; see [`LeaseQueue::serve`].
    fn serve(&mut self, cell: &Cell, last_reply: &LastReply, now: Micros) -> Option<u32> {
        let (mut served, mut spent) = (0_u32, 0_u32);
        let untaken = self.queue.serve(|cost| {
            let left = cell.take(cost, || now.get())?;
            served += 1;
            spent = spent.saturating_add(cost);
            Some(last_reply.hit(cost, left, None, now))
        });
        // They were counted when they found no permits.
        self.noted.0 = self.noted.0.wrapping_add(served);
        self.noted.1 = self.noted.1.saturating_add(spent);
        untaken
    }

    /// The number of permits in the cell below which the next message is due; 0 if none is.
    pub(super) fn low_water(&self, now: Micros) -> u32 {
        let Some(bounds) = self.subject.bounds.filter(|_| !self.session.waits()) else { return 0 };
        narrow(self.demand.low_water(self.demand.target(&bounds, now)))
    }

    /// Policy and key.
    pub(super) fn name(&self) -> (&str, &[u8]) {
        (&self.subject.policy, &self.subject.key)
    }

    /// The demand in permits per second.
    pub(super) const fn rate(&self) -> u64 {
        self.demand.rate()
    }

    /// Adds the hits and permits since the last reading of the cell to the demand.
    fn note(&mut self, cell: &Cell, now: Micros) {
        let (hits, spent) = (cell.hits(), self.session.spent(cell));
        let asks = u64::from(hits.wrapping_sub(self.noted.0));
        self.demand.add(asks, spent.saturating_sub(self.noted.1).into());
        self.pace.add(asks);
        self.noted = (hits, spent);
        if asks > 0 {
            self.last_ask = now;
        }
    }

    /// Returns whether it is worth a lease: it always was, or enough requests came again.
    fn is_warm(&mut self, cost: u32, now: Micros) -> bool {
        let Some((since, asks)) = &mut self.cold else { return true };
        let over = now.since(*since);
        if over > HOT_WITHIN {
            (*since, *asks) = (now, 1);
            return false;
        }
        *asks += 1;
        if *asks < HOT_ASKS {
            return false;
        }
        self.demand = hot(cost, over, now);
        self.cold = None;
        true
    }

    /// Returns the store's last refusal as it is at `now`; not before the next message may be sent.
    fn refusal(&self, cell: &Cell, now: Micros) -> Verdict {
        let (mut verdict, elapsed) = match &self.verdict {
            Some((verdict, at)) => (*verdict, now.since(*at)),
            None => (blank(self.rules()), Micros::ZERO),
        };
        let Decision { outcome, limit, remaining, reset_after } = &mut verdict.decision;
        let retry = match outcome {
            Outcome::Deny { retry: Retry::After(retry) } => retry.since(elapsed),
            _ => Micros::ZERO,
        };
        let retry = retry.max(self.pace.missing(now)).max(Micros::new(1));
        *outcome = Outcome::Deny { retry: Retry::After(retry) };
        // Permits that have ended, or are of other rules, are not used any more; and a limit that was lowered elsewhere
        // may be less than the permits left here.
        let left = if now.get() < cell.end() { cell.left().into() } else { 0 };
        *remaining = left.min(*limit);
        *reset_after = reset_after.since(elapsed);
        verdict
    }
}

/// Returns the demand of a key that has just become hot.
fn hot(cost: u32, over: Micros, now: Micros) -> Demand {
    Demand::begin(HOT_ASKS, HOT_ASKS * u64::from(cost), over, now)
}

fn since(request: &StoreRequest<'_>) -> Micros {
    match request.origin {
        RuleOrigin::Policy { since } => since,
        RuleOrigin::Caller => Micros::ZERO,
    }
}

fn failed(error: &StoreError) -> WaitOutcome {
    if is_outage(error) { WaitOutcome::Failed(error.clone()) } else { WaitOutcome::Ask }
}

/// Returns whether the store did not answer in time, unlike an error about this request.
const fn is_outage(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. } | StoreError::Overloaded { .. })
}

fn passed(verdict: &Verdict, cost: u32, left: u32) -> LeasedDecision {
    let outcome = Outcome::Allow { granted: cost.into(), wait: Micros::ZERO };
    let decision = Decision { outcome, remaining: left.into(), ..verdict.decision };
    LeasedDecision { verdict: Verdict { decision, rule: verdict.rule }, age: Micros::ZERO }
}

fn blank(rules: &RuleSet) -> Verdict {
    let outcome = Outcome::Deny { retry: Retry::After(Micros::new(1)) };
    let limit = rules.rules()[0].rule.limit();
    let decision = Decision { outcome, limit, remaining: 0, reset_after: Micros::ZERO };
    Verdict { decision, rule: 0 }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
pub(super) mod tests;
