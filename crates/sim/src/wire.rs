//! An engine's end of the network: a [`Store`] whose calls the world carries.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use sluicegate::Verb;
use sluicegate::internals::kernel::{Called, Moment, RuleSet};
use sluicegate::internals::store::lease::{LeaseReply, Message};
use sluicegate::internals::store::{
    Charge, Debt, Executed as Effect, Permits, RuleOrigin, Store, StoreAnswer, StoreRequest,
};
use sluicegate::store::StoreError;

/// The result of a call.
pub(crate) type Reply = Result<Said, StoreError>;

/// An answer of the store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// The answer to a request: the decision, and the permits of a debt that were charged.
    Decided(StoreAnswer, Permits),
    /// The answer to a message of a holder.
    LeaseReply(LeaseReply),
}

/// The store as an engine sees it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SimStore(pub(crate) Arc<Wire>);

/// Calls that the world has not taken yet, and answers.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    state: Mutex<WireState>,
}

#[derive(Debug, Default)]
pub(crate) struct WireState {
    /// The connection is down: calls are not sent.
    pub(crate) down: bool,
    /// The most calls under way; `None`: no limit.
    calls_max: Option<usize>,
    /// Calls under way, each with the instant since when, if they are limited.
    under_way: Vec<(Arc<ReplySlot>, u64)>,
    pub(crate) time: Time,
    /// Calls made since the world last looked, sent or not.
    pub(crate) calls: u32,
    /// One of these calls needs an answer: it is more than a message that gives permits back.
    pub(crate) asks: bool,
    /// Results of calls that the engine received since the world last looked.
    pub(crate) replies: ReplyCounts,
    /// Calls sent since the world last looked.
    pub(crate) outbox: Vec<Outgoing>,
    /// Waiting requests that were announced since the world last looked.
    pub(crate) announced: Vec<Vec<Called>>,
    /// Announcements of all nodes that have arrived, and the waker of the task that hears them.
    inbox: VecDeque<Vec<Called>>,
    listener: Option<Waker>,
    /// Answers that the engine took since the world last looked.
    pub(crate) heard: Vec<Heard>,
    /// Steps of bills since the world last looked, in their order.
    pub(crate) billed: Vec<Billed>,
}

/// The number of calls by their result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplyCounts {
    /// No answer.
    pub(crate) silent: u32,
    /// The store is overloaded, by its answer.
    pub(crate) overloaded: u32,
    /// Calls that were refused before they were sent; `silent` or `overloaded` counts them too.
    pub(crate) refused: u32,
    /// An answer of another kind.
    pub(crate) answered: u32,
    /// Answers, of any kind, to messages that only give permits back, after the deadline of requests. They do not show
    /// that requests are answered.
    pub(crate) late: u32,
}

/// The times that a client knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Time {
    pub(crate) now: u64,
    /// The time of the store's last answer.
    pub(crate) heard_at: u64,
    pub(crate) deadline_us: u64,
}

impl Time {
    /// Returns whether a call sent at `sent_at` took longer than a request may, by a clock that may be a twentieth too
    /// fast.
    const fn is_late(&self, sent_at: u64) -> bool {
        20 * (self.now - sent_at) > 19 * self.deadline_us
    }
}

/// A call on its way to the store.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) slot: Arc<ReplySlot>,
    pub(crate) ask: Arc<StoreAsk>,
}

/// An answer of the store that an engine took.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) key: Vec<u8>,
    /// The request that it answers.
    pub(crate) of: Asker,
    pub(crate) executed: Executed,
}

/// A step of a bill that a request carries.
#[derive(Clone, Debug)]
pub(crate) struct Billed {
    pub(crate) key: Vec<u8>,
    pub(crate) debt: Debt,
    pub(crate) step: BillStep,
}

#[derive(Clone, Debug)]
pub(crate) enum BillStep {
    /// A request with this verb was sent with it.
    Sent(Verb),
    /// The request was answered: the permits that were charged.
    Answered(Permits),
    /// The request got no answer, or its caller has gone.
    Unanswered(Effect),
}

/// The address of a request's key. Requests that are made together each have a copy of their own.
pub(crate) type Asker = usize;

/// The time at which the store executed a call, µs, and the number of that execution.
pub(crate) type Executed = (u64, u64);

/// A request that outlives its caller.
#[derive(Clone, Debug)]
pub(crate) struct StoreAsk {
    pub(crate) policy: String,
    pub(crate) key: Vec<u8>,
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) verb: Verb,
    pub(crate) origin: RuleOrigin,
    pub(crate) debt: Option<Debt>,
    /// The message of a holder, if it is one; then the verb is ignored.
    pub(crate) message: Option<Message>,
}

impl StoreAsk {
    /// Returns whether it is a message that only gives permits back: it is sent even if the store is
    /// given up.
    fn only_gives_back(&self) -> bool {
        self.message.is_some_and(|message| message.need == 0 && message.want == 0)
    }

    /// Returns a step of the bill that it carries, if it carries one. Usage that the store is reminded of is no bill.
    fn billed(&self, step: BillStep) -> Option<Billed> {
        let debt = self.debt.filter(|debt| debt.charge == Charge::Added)?;
        Some(Billed { key: self.key.clone(), debt, step })
    }
}

/// The place for the reply to a call.
#[derive(Debug, Default)]
pub(crate) struct ReplySlot {
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    /// The reply, and when it was executed.
    reply: Option<(Reply, Executed)>,
    waker: Option<Waker>,
    /// The caller is gone.
    is_dropped: bool,
}

struct CallFuture {
    wire: Arc<Wire>,
    of: Asker,
    ask: Arc<StoreAsk>,
    /// The place of the reply, and the time at which the call was sent; `None` before that.
    slot: Option<(Arc<ReplySlot>, u64)>,
}

impl Wire {
    pub(crate) fn lock(&self) -> MutexGuard<'_, WireState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplySlot {
    /// Stores the reply. Returns whether a task still waits for it.
    pub(crate) fn put(&self, reply: Reply, executed: Executed) -> bool {
        let mut state = self.lock();
        if state.is_dropped || state.reply.is_some() {
            return false;
        }
        state.reply = Some((reply, executed));
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for CallFuture {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let Some((slot, sent_at)) = self.slot.clone() else {
            let mut wire = self.wire.lock();
            wire.calls += 1;
            wire.asks |= !self.ask.only_gives_back();
            if wire.down {
                wire.replies.silent += 1;
                let reason = "no connection".to_owned();
                return Poll::Ready(Err(StoreError::Unavailable { reason, executed: Effect::No }));
            }
            if !wire.has_room() {
                wire.replies.refused += 1;
                return Poll::Ready(Err(wire.refusal()));
            }
            let slot = Arc::new(ReplySlot::default());
            if wire.calls_max.is_some() {
                let now = wire.time.now;
                wire.under_way.push((Arc::clone(&slot), now));
            }
            slot.lock().waker = Some(cx.waker().clone());
            wire.billed.extend(self.ask.billed(BillStep::Sent(self.ask.verb.clone())));
            wire.outbox.push(Outgoing { slot: Arc::clone(&slot), ask: Arc::clone(&self.ask) });
            let sent_at = wire.time.now;
            drop(wire);
            self.slot = Some((slot, sent_at));
            return Poll::Pending;
        };
        let mut state = slot.lock();
        let Some((reply, executed)) = state.reply.take() else {
            state.waker = Some(cx.waker().clone());
            return Poll::Pending;
        };
        state.is_dropped = true;
        let mut wire = self.wire.lock();
        match reply {
            Err(StoreError::Unavailable { .. }) => wire.replies.silent += 1,
            _ if self.ask.only_gives_back() && wire.time.is_late(sent_at) => wire.replies.late += 1,
            Err(StoreError::Overloaded { .. }) => wire.replies.overloaded += 1,
            _ => wire.replies.answered += 1,
        }
        let step = match &reply {
            Ok(Said::Decided(_, paid)) => Some(BillStep::Answered(*paid)),
            Ok(Said::LeaseReply(_)) => None,
            Err(error) => Some(BillStep::Unanswered(error.executed())),
        };
        wire.billed.extend(step.and_then(|step| self.ask.billed(step)));
        if reply.is_ok() {
            wire.heard.push(Heard { key: self.ask.key.clone(), of: self.of, executed });
        }
        drop(wire);
        Poll::Ready(reply)
    }
}

impl Drop for CallFuture {
    fn drop(&mut self) {
        let Some((slot, _)) = &self.slot else { return };
        // One that was answered, or got no answer in time, is over.
        if !std::mem::replace(&mut slot.lock().is_dropped, true) {
            let step = BillStep::Unanswered(Effect::Perhaps);
            self.wire.lock().billed.extend(self.ask.billed(step));
        }
    }
}

impl WireState {
    /// Returns whether one more call may be sent.
    fn has_room(&mut self) -> bool {
        self.under_way.retain(|(slot, _)| {
            let slot = slot.lock();
            !slot.is_dropped && slot.reply.is_none()
        });
        self.calls_max.is_none_or(|most| self.under_way.len() < most)
    }

    /// Returns the error for a call beyond the limit: the store is silent, or overloaded.
    fn refusal(&mut self) -> StoreError {
        let Time { now, heard_at, deadline_us } = self.time;
        let asked_at = self.under_way.iter().map(|(_, since)| *since).min().unwrap_or(now);
        let executed = Effect::No;
        if now - asked_at.max(heard_at) >= deadline_us {
            self.replies.silent += 1;
            let reason = "no answer".to_owned();
            return StoreError::Unavailable { reason, executed };
        }
        self.replies.overloaded += 1;
        StoreError::Overloaded { executed }
    }
}

impl SimStore {
    /// Returns a store that takes up to `calls_max` calls at a time.
    pub(crate) fn new(calls_max: Option<usize>) -> Self {
        let state = Mutex::new(WireState { calls_max, ..WireState::default() });
        Self(Arc::new(Wire { state }))
    }

    /// Takes the calls and answers since the last call of it.
    pub(crate) fn take(&self) -> WireState {
        let mut wire = self.0.lock();
        let under_way = std::mem::take(&mut wire.under_way);
        let (inbox, listener) = (std::mem::take(&mut wire.inbox), wire.listener.take());
        let WireState { down, calls_max, time, .. } = *wire;
        let rest =
            WireState { down, calls_max, under_way, time, inbox, listener, ..WireState::default() };
        std::mem::replace(&mut *wire, rest)
    }

    /// Delivers an announcement.
    pub(crate) fn hear(&self, called: Vec<Called>) {
        let mut wire = self.0.lock();
        wire.inbox.push_back(called);
        if let Some(listener) = wire.listener.take() {
            listener.wake();
        }
    }

    fn call(
        &self,
        debt: Option<&Debt>,
        message: Option<&Message>,
        request: &StoreRequest<'_>,
    ) -> CallFuture {
        let StoreRequest { policy, key, rules, verb, origin, quota: _ } = *request;
        let ask = StoreAsk {
            policy: policy.to_owned(),
            key: key.to_vec(),
            rules: Arc::clone(rules),
            verb: verb.clone(),
            origin,
            debt: debt.copied(),
            message: message.copied(),
        };
        CallFuture { wire: Arc::clone(&self.0), of: asker(key), ask: Arc::new(ask), slot: None }
    }
}

impl Store for SimStore {
    async fn decide(
        &self,
        request: &StoreRequest<'_>,
        _: &Moment<'_>,
    ) -> Result<StoreAnswer, StoreError> {
        self.call(None, None, request).await.map(|said| decided(said).0)
    }

    async fn charge_and_decide(
        &self,
        debt: &Debt,
        request: &StoreRequest<'_>,
        _: &Moment<'_>,
    ) -> Result<(StoreAnswer, Permits), StoreError> {
        self.call(Some(debt), None, request).await.map(decided)
    }

    async fn announce(&self, called: &[Called]) {
        self.0.lock().announced.push(called.to_vec());
    }

    async fn announced(&self) -> Vec<Called> {
        let hear = |cx: &mut Context<'_>| {
            let mut wire = self.0.lock();
            wire.listener = Some(cx.waker().clone());
            wire.inbox.pop_front().map_or(Poll::Pending, Poll::Ready)
        };
        std::future::poll_fn(hear).await
    }

    fn leases(&self) -> bool {
        true
    }

    async fn lease(
        &self,
        request: &StoreRequest<'_>,
        message: &Message,
        _: &Moment<'_>,
    ) -> Result<LeaseReply, StoreError> {
        match self.call(None, Some(message), request).await? {
            Said::LeaseReply(reply) => Ok(reply),
            Said::Decided(..) => unreachable!("a message gets a reply"),
        }
    }
}

/// Returns the request with this key.
pub(crate) fn asker(key: &[u8]) -> Asker {
    key.as_ptr().addr()
}

fn decided(said: Said) -> (StoreAnswer, Permits) {
    match said {
        Said::Decided(answer, permits) => (answer, permits),
        Said::LeaseReply(_) => unreachable!("a request gets a decision"),
    }
}
