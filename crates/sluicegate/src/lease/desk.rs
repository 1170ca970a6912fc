//! One leased key at its holder: when to ask, for how much, and what comes of the answer.
//!
//! No IO and no clock: the keeper and the simulator pass the time in, by the steady clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate_kernel::lease::{Message, Stands};
use sluicegate_kernel::{
    Decision, Micros, Outcome as Decided, Retry, Rule, RuleSet, Verdict, Word,
};
use sluicegate_policy::Rules;
use sluicegate_store::{Quota, RuleOrigin, StoreError, StoreRequest};

use super::cell::Cell;
use super::counts::{Fate, Kind, MessageOutcome};
use super::demand::{Bounds, Demand};
use super::heat::{HOT_ASKS, HOT_WITHIN};
use super::holder::{Heard, Talk, Wish};
use super::line::{Line, Outcome, Place};
use super::pace::Pace;
use super::said::Said;
use super::{Hit, LeaseTerms};

/// What is left is renewed so long before its end at most: longer than a message takes, and than a tick.
const RENEWED_BEFORE: Micros = Micros::from_millis(60);

/// How long a holder for which the store has no place, or no word, asks like one that leases nothing.
const FULL_FOR: Micros = Micros::SECOND;

/// After so many messages on end whose answers came too late, a lease of the key saves no round trip but costs one.
const LATE_MAX: u8 = 3;

/// Time for which such a key is then asked for like one that is not leased, until one more message tries again.
const FAR_FOR: Micros = Micros::SECOND;

/// A key that is not asked for so long, or has had no lease since, is forgotten. No record of it is left then.
const FORGOTTEN_AFTER: Micros = Micros::from_secs(10);

/// Whose budget is leased, and by which rules.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) policy: Box<str>,
    pub(crate) key: Box<[u8]>,
    pub(crate) rules: Rules,
    /// Since when they are in force.
    since: Micros,
    /// `None`: they cannot be leased.
    bounds: Option<Bounds>,
}

/// A message, and what it is about.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) subject: Arc<Subject>,
    pub(crate) message: Message,
}

/// What a request that finds no permits is answered.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is refused.
    Refused(Verdict),
    /// A message is asked for it.
    Waits(Place),
    /// Its key is not leased.
    Not,
}

/// Why a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Permits run short, or out.
    More,
    /// Their time does.
    Renew,
    /// None are asked for any more.
    End,
    /// The store may have set permits aside of which nobody heard.
    Unheard,
}

/// One key.
#[derive(Debug)]
pub(super) struct Desk {
    subject: Arc<Subject>,
    talk: Talk,
    demand: Demand,
    pace: Pace,
    line: Line,
    /// Permits that the last message asked for.
    wanted: u64,
    reason: Option<Reason>,
    /// Why the last message was sent.
    kind: Kind,
    /// What was noted of the cell: hits, and permits spent since the last message.
    noted: (u32, u32),
    last_ask: Micros,
    /// What the store last said to a request for permits, and when.
    verdict: Option<(Verdict, Micros)>,
    /// Whether nothing is used any more of what the store last stood for, because the key is decided without it.
    is_retired: bool,
    /// Not worth a lease for now; and since when how many asked nevertheless.
    cold: Option<(Micros, u64)>,
    /// The store has no place for this holder until then, or is too far away.
    full_until: Micros,
    /// Messages on end whose answers came too late.
    late: u8,
    /// Since when the lease makes room for a key that is asked for more.
    yields_since: Option<Micros>,
}

impl Subject {
    pub(super) fn new(request: &StoreRequest<'_>, terms: &LeaseTerms<'_>) -> Self {
        let LeaseTerms { rules, bounds } = *terms;
        let span = rules.set().leasable().ok();
        let bounds = span.map(|span| Bounds::new(rules.set(), span, bounds));
        Self {
            policy: request.policy.into(),
            key: request.key.into(),
            rules: rules.clone(),
            since: since(request),
            bounds,
        }
    }

    /// Whether a request of `cost` can be served by a lease: it must leave room for others.
    pub(super) fn leases(&self, cost: u32) -> bool {
        self.bounds.is_some_and(|bounds| bounds.share >= u64::from(cost).saturating_mul(HOT_ASKS))
    }

    /// As stores are asked. The verb is not looked at.
    pub(crate) fn request(&self) -> StoreRequest<'_> {
        let origin = RuleOrigin::Policy { since: self.since };
        let (policy, key, rules) = (&*self.policy, &*self.key, self.rules.set());
        StoreRequest { policy, key, rules, verb: &super::LOOK, origin, quota: Quota::of(policy) }
    }
}

impl Letter {
    /// Permits of each rule that are in use by what `stands` says, with all that is out.
    pub(crate) fn in_use(&self, stands: &Stands) -> Vec<(usize, u64)> {
        let rules = self.subject.rules.set().rules();
        let in_use = |used: &u64, limit: u64| (used + u64::from(stands.hint.held)).min(limit);
        let each = stands.hint.used.iter().zip(rules);
        let each = each.map(|(used, named)| in_use(used, named.rule.limit())).enumerate();
        if rules.len() > 1 { each.collect() } else { Vec::new() }
    }
}

impl Desk {
    /// A key that has just become hot: `HOT_ASKS` requests like one of `cost` came within `over`.
    pub(super) fn new(
        talk: Talk,
        subject: Subject,
        (cost, over): (u32, Micros),
        now: Micros,
    ) -> Self {
        Self {
            subject: Arc::new(subject),
            talk,
            demand: hot(cost, over, now),
            pace: Pace::default(),
            line: Line::default(),
            wanted: 0,
            reason: None,
            kind: Kind::default(),
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

    /// A request of `cost` found no permits.
    pub(super) fn miss(&mut self, cell: &Cell, cost: u32, now: Micros) -> Asked {
        self.note(cell, now);
        self.last_ask = now;
        self.demand.add(1, cost.into());
        self.pace.add(1);
        let has_place = self.yields_since.is_none() && now >= self.full_until;
        if !has_place || !self.subject.leases(cost) || !self.is_warm(cost, now) {
            return Asked::Not;
        }
        if !self.talk.waits() && !self.pace.allows(now) {
            return Asked::Refused(self.refusal(cell, now));
        }
        let Some(place) = self.line.join(cost) else { return Asked::Not };
        self.talk.counts().waits.fetch_add(1, Ordering::Relaxed);
        self.reason = Some(Reason::More);
        Asked::Waits(place)
    }

    /// What [`miss`](Self::miss) would refuse at once.
    pub(super) fn would_refuse(&mut self, cell: &Cell, cost: u32, now: Micros) -> Option<Verdict> {
        self.note(cell, now);
        let refuses = self.cold.is_none()
            && self.yields_since.is_none()
            && now >= self.full_until
            && self.subject.leases(cost)
            && !self.talk.waits()
            && !self.pace.allows(now);
        refuses.then(|| {
            self.last_ask = now;
            self.demand.add(1, cost.into());
            self.pace.add(1);
            self.refusal(cell, now)
        })
    }

    /// Few permits are left. Returns whether a message is due.
    pub(super) fn runs_low(&mut self, cell: &Cell, now: Micros) -> bool {
        self.note(cell, now);
        let is_kept = self.cold.is_none() && self.yields_since.is_none();
        let asks = is_kept && !self.talk.waits() && self.pace.allows(now);
        if asks {
            self.reason = Some(Reason::More);
        }
        asks
    }

    /// Takes permits back that a caller returns; returns whether it could.
    pub(super) fn put_back(&mut self, cell: &Cell, permits: u32, now: Micros) -> bool {
        self.note(cell, now);
        let put_back = self.talk.put_back(cell, permits, now);
        self.noted.1 = self.talk.spent(cell);
        put_back
    }

    /// Other rules are in force. Nothing of the old ones is used any more, nor what a message that is under way
    /// is granted.
    pub(super) fn change_rules(&mut self, cell: &Cell, subject: Subject) {
        cell.stop();
        self.talk.give_up();
        self.line.answer(|_| Outcome::Ask);
        self.subject = Arc::new(subject);
        self.reason = Some(Reason::More);
        self.verdict = None;
    }

    /// Whether rules that a request came with are later ones.
    pub(super) fn are_later(&self, request: &StoreRequest<'_>) -> bool {
        since(request) > self.subject.since
    }

    /// The key is decided without the store from now on, which counts all that it stood for as used: nothing of
    /// that is used any more. Returns how much it is, once.
    pub(super) fn retire(&mut self, cell: &Cell) -> u32 {
        cell.stop();
        if std::mem::replace(&mut self.is_retired, true) { 0 } else { self.talk.stood() }
    }

    /// Some time has passed: marks what was spent. Returns whether a message is due.
    pub(super) fn tick(&mut self, cell: &Cell, now: Micros) -> bool {
        self.note(cell, now);
        self.talk.mark(cell, now);
        if self.talk.is_too_late(now) {
            self.talk.give_up();
            self.line.answer(|_| Outcome::Ask);
            self.pace.free(now);
            self.was_late(now);
        }
        if self.talk.waits() {
            return false;
        }
        let end = Micros::new(cell.end());
        let lead = Micros::new(end.since(self.talk.sent_at()).get() / 4).min(RENEWED_BEFORE);
        let is_idle =
            self.yields_since.is_some() || now.since(self.last_ask) >= self.demand.idle_after();
        let (left, spent) = (cell.left(), self.talk.spent(cell));
        self.reason = match self.reason {
            None if is_idle && (left > 0 || spent > 0) => Some(Reason::End),
            // Also if it has ended meanwhile: the record may still stand.
            None if left > 0 && now.plus(lead) >= end => Some(Reason::Renew),
            None if self.talk.is_unheard(now) => Some(Reason::Unheard),
            reason => reason,
        };
        self.reason.is_some()
    }

    /// The process stops: everything goes back. Returns whether a message is due.
    pub(super) fn leave(&mut self, cell: &Cell, now: Micros) -> bool {
        self.line.answer(|_| Outcome::Ask);
        self.cold = Some((now, 0));
        self.reason = Some(Reason::End);
        cell.left() > 0 || self.talk.spent(cell) > 0
    }

    /// Asks a second, 0 if none came for a while; `None` if the lease makes room already.
    pub(super) fn asks_per_s(&self, now: Micros) -> Option<u64> {
        let is_asked = self.cold.is_none() && now.since(self.last_ask) < Micros::SECOND;
        let asks = if is_asked { self.demand.asks_per_s() } else { 0 };
        self.yields_since.is_none().then_some(asks)
    }

    /// The key makes room for one that is asked for more: it has no lease from now on, and is forgotten when no
    /// record of it is left. Returns whether a message is due.
    pub(super) fn yield_place(&mut self, cell: &Cell, now: Micros) -> bool {
        self.yields_since = Some(now);
        self.leave(cell, now)
    }

    /// The number of its last message.
    pub(super) const fn number(&self) -> u32 {
        self.talk.number()
    }

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self, cell: &Cell, now: Micros) -> bool {
        let begun = self.yields_since.map_or(self.last_ask, |since| since.min(self.last_ask));
        now.since(begun) >= FORGOTTEN_AFTER
            && !self.talk.waits()
            && (cell.left() == 0 || now.get() >= cell.end())
    }

    /// The message that is due.
    pub(super) fn speak(&mut self, cell: &Cell, now: Micros) -> Option<Letter> {
        if self.talk.waits() {
            return None;
        }
        let mut reason = self.reason.take()?;
        self.note(cell, now);
        self.demand.measure(now);
        if reason != Reason::More && self.demand.is_low() && self.cold.is_none() {
            reason = Reason::End;
            self.cold = Some((now, 0));
        }
        let (need, least) = self.line.needs();
        let wish = match self.subject.bounds {
            // What is left is kept, and nothing is asked for.
            Some(_) if reason == Reason::Unheard && need == 0 => Wish::default(),
            Some(bounds) if reason != Reason::End || need > 0 => {
                let left = if now.get() < cell.end() { cell.left() } else { 0 };
                let target = self.demand.target(&bounds, now);
                let most = 2 * target;
                let back =
                    if reason == Reason::Renew { u64::from(left).saturating_sub(most) } else { 0 };
                Wish {
                    need,
                    least,
                    want: narrow(target.saturating_sub(left.into())),
                    share: narrow(bounds.share),
                    term: self.demand.term(&bounds, target),
                    back: narrow(back),
                }
            }
            _ => {
                self.line.answer(|_| Outcome::Ask);
                Wish { back: u32::MAX, ..Wish::default() }
            }
        };
        self.wanted = u64::from(wish.need) + u64::from(wish.want);
        self.kind = match reason {
            Reason::End | Reason::Unheard => Kind::End,
            _ if self.talk.stood() == 0 => Kind::First,
            Reason::More => Kind::More,
            Reason::Renew => Kind::Renew,
        };
        let message = self.talk.ask(cell, &wish, now);
        self.noted.1 = 0;
        Some(Letter { subject: Arc::clone(&self.subject), message })
    }

    /// A message could not be sent, or is not to be: what waited for it asks the store itself.
    pub(super) fn unsent(&mut self, now: Micros) {
        self.talk.withdraw();
        self.reason = None;
        self.line.answer(|_| Outcome::Ask);
        self.pace.free(now);
    }

    /// What came of the message.
    pub(super) fn heard(
        &mut self,
        (cell, said): (&Cell, &Said),
        heard: Result<&Word, &StoreError>,
        now: Micros,
    ) {
        // What was due meanwhile has waited for this.
        self.reason = None;
        let was_awaited = self.talk.waits();
        let heard = match heard {
            Ok(word) => {
                let rules = self.subject.rules.set();
                self.talk.hear(cell, word, now, |stands| said.note(stands, rules, now))
            }
            Err(error) => {
                self.talk.counts().message(self.kind, MessageOutcome::Lost);
                self.talk.give_up();
                self.pace.free(now);
                if !is_outage(error) {
                    // It would be the same the next time.
                    self.full_until = now.plus(FULL_FOR);
                }
                return self.line.answer(|_| failed(error));
            }
        };
        let counts = Arc::clone(self.talk.counts());
        let is_late = matches!(heard, Heard::Nothing);
        let outcome = if is_late { MessageOutcome::Late } else { MessageOutcome::Answered };
        counts.message(self.kind, outcome);
        if !is_late {
            self.late = 0;
        } else if was_awaited {
            self.was_late(now);
        }
        match heard {
            Heard::Goes(stands) => self.goes_on((cell, said), &stands, now),
            Heard::Full(stands) => {
                counts.full.fetch_add(1, Ordering::Relaxed);
                counts.permits(Fate::Spent, stands.granted);
                self.full_until = now.plus(FULL_FOR);
                let mut granted = stands.granted;
                while let Some(untaken) = self.line.serve(|cost| {
                    granted = granted.checked_sub(cost)?;
                    Some(passed(&stands.verdict, cost, granted))
                }) {
                    granted += untaken;
                }
                self.line.answer(|_| Outcome::Ask);
            }
            Heard::Nothing => {
                self.pace.free(now);
                self.line.answer(|_| Outcome::Ask);
            }
        }
    }

    /// The answer to a message came too late, or did not come.
    fn was_late(&mut self, now: Micros) {
        self.late = self.late.saturating_add(1);
        if self.late >= LATE_MAX {
            self.full_until = self.full_until.max(now.plus(FAR_FOR));
        }
    }

    fn goes_on(&mut self, (cell, said): (&Cell, &Said), stands: &Stands, now: Micros) {
        self.is_retired = false;
        self.verdict = Some((stands.verdict, now));
        if let Some(bounds) = &self.subject.bounds {
            let decides = self.subject.rules.set().rules().get(stands.verdict.rule);
            let begins_anew = decides.is_some_and(|it| matches!(it.rule, Rule::FixedWindow(_)));
            let said = (stands, self.wanted, begins_anew);
            self.pace.heard(said, (bounds, &self.demand), now);
        }
        while let Some(untaken) = self.serve((cell, said), now) {
            self.put_back(cell, untaken, now);
        }
        if self.line.is_empty() {
            return;
        }
        if self.pace.allows(now) {
            // Others have taken what came for them.
            return self.line.answer(|_| Outcome::Ask);
        }
        let refusal = self.refusal(cell, now);
        self.line.answer(|_| Outcome::Refused(refusal));
    }

    /// Serves those that wait from the cell; see [`Line::serve`].
    fn serve(&mut self, (cell, said): (&Cell, &Said), now: Micros) -> Option<u32> {
        let (mut served, mut spent) = (0_u32, 0_u32);
        let untaken = self.line.serve(|cost| {
            let left = cell.take(cost, || now.get())?;
            served += 1;
            spent = spent.saturating_add(cost);
            Some(said.hit((cost, left), None, now))
        });
        // They were counted when they found no permits.
        self.noted.0 = self.noted.0.wrapping_add(served);
        self.noted.1 = self.noted.1.saturating_add(spent);
        untaken
    }

    /// What a message is worth, for the cell: below so many permits the next is due.
    pub(super) fn low_water(&self, now: Micros) -> u32 {
        let Some(bounds) = self.subject.bounds.filter(|_| !self.talk.waits()) else { return 0 };
        narrow(self.demand.low_water(self.demand.target(&bounds, now)))
    }

    /// Policy and key.
    pub(super) fn name(&self) -> (&str, &[u8]) {
        (&self.subject.policy, &self.subject.key)
    }

    /// Permits a second that are asked for.
    pub(super) const fn rate(&self) -> u64 {
        self.demand.rate()
    }

    /// Notes what was taken since it was last noted.
    fn note(&mut self, cell: &Cell, now: Micros) {
        let (hits, spent) = (cell.hits(), self.talk.spent(cell));
        let asks = u64::from(hits.wrapping_sub(self.noted.0));
        self.demand.add(asks, spent.saturating_sub(self.noted.1).into());
        self.pace.add(asks);
        self.noted = (hits, spent);
        if asks > 0 {
            self.last_ask = now;
        }
    }

    /// Whether it is worth a lease: it was all the time, or so many asked again.
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

    /// What the store last refused, as it is now; not before the next message may be sent.
    fn refusal(&self, cell: &Cell, now: Micros) -> Verdict {
        let (mut verdict, elapsed) = match &self.verdict {
            Some((verdict, at)) => (*verdict, now.since(*at)),
            None => (blank(self.rules()), Micros::ZERO),
        };
        let Decision { outcome, limit, remaining, reset_after } = &mut verdict.decision;
        let retry = match outcome {
            Decided::Deny { retry: Retry::After(retry) } => retry.since(elapsed),
            _ => Micros::ZERO,
        };
        let retry = retry.max(self.pace.missing(now)).max(Micros::new(1));
        *outcome = Decided::Deny { retry: Retry::After(retry) };
        // What has ended, or is of other rules, is not used any more; and a limit that was lowered elsewhere may be
        // less than what is left here.
        let left = if now.get() < cell.end() { cell.left().into() } else { 0 };
        *remaining = left.min(*limit);
        *reset_after = reset_after.since(elapsed);
        verdict
    }
}

/// The demand of a key that has just become hot.
fn hot(cost: u32, over: Micros, now: Micros) -> Demand {
    Demand::begin(HOT_ASKS, HOT_ASKS * u64::from(cost), over, now)
}

fn since(request: &StoreRequest<'_>) -> Micros {
    match request.origin {
        RuleOrigin::Policy { since } => since,
        RuleOrigin::Caller => Micros::ZERO,
    }
}

fn failed(error: &StoreError) -> Outcome {
    if is_outage(error) { Outcome::Failed(error.clone()) } else { Outcome::Ask }
}

/// Whether the store did not answer in time, and not that it cannot answer this.
const fn is_outage(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. } | StoreError::Overloaded { .. })
}

fn passed(said: &Verdict, cost: u32, left: u32) -> Hit {
    let outcome = Decided::Allow { granted: cost.into(), wait: Micros::ZERO };
    let decision = Decision { outcome, remaining: left.into(), ..said.decision };
    Hit { verdict: Verdict { decision, rule: said.rule }, age: Micros::ZERO }
}

fn blank(rules: &RuleSet) -> Verdict {
    let outcome = Decided::Deny { retry: Retry::After(Micros::new(1)) };
    let limit = rules.rules()[0].rule.limit();
    let decision = Decision { outcome, limit, remaining: 0, reset_after: Micros::ZERO };
    Verdict { decision, rule: 0 }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
