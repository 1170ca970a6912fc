//! The guard of a store from which permits are leased.

use std::sync::Arc;

use sluicegate_kernel::{LeaseReply, Micros, Moment, Outcome, Verb, Verdict};
use sluicegate_store::{KeyHash, Store, StoreAnswer, StoreError, StoreRequest};

use super::fallback::SpentPermits;
use super::guard::{GuardedRequest, LocalDecision, StoreGuard, takes};
use super::{Mode, Ruling};
use crate::lease::sender::Delivered;
use crate::lease::{
    Lease, LeasedBudget, LeasedDecision, LeasedKey, Leasing, MissOutcome, OutgoingMessage,
    WaitOutcome,
};

impl StoreGuard {
    /// Decides by the lease of the key, if it has one.
    pub(super) fn by_lease(&self, question: GuardedRequest<'_>) -> LocalDecision {
        let GuardedRequest { key, request, lease, .. } = question;
        let (Some(leasing), Some(terms)) = (&self.leasing, lease) else {
            return LocalDecision::AskStore;
        };
        if let Some(hit) = self.take_leased(leasing, question) {
            return LocalDecision::Decided(Ok(hit.into()));
        }
        let Verb::Check { cost } = *request.verb else { return LocalDecision::AskStore };
        if !self.leases_now(key) {
            return LocalDecision::AskStore;
        }
        match leasing.ask(key, request, &terms, cost) {
            MissOutcome::Refused(verdict) => {
                LocalDecision::Decided(Ok(Ruling::by(Mode::Remembered, verdict)))
            }
            MissOutcome::Waits(place) => LocalDecision::Pending(place),
            MissOutcome::NotLeased => LocalDecision::AskStore,
        }
    }

    /// Returns whether a lease may decide about requests for which it has no permits: not before the debts of the key
    /// are paid, nor while the breaker is open.
    pub(super) fn leases_now(&self, key: KeyHash) -> bool {
        !self.breaker.is_open() && !self.share.debts().has_account(key)
    }

    /// The lease that this engine has of the key of `request`.
    pub(super) fn lease_here(&self, request: &StoreRequest<'_>) -> Option<LeasedKey> {
        self.leasing.as_ref()?.key(self.share.hash(request.policy, request.key))
    }

    /// Takes or gives back permits that are leased here; `None` if the lease cannot decide the request.
    pub(super) fn take_leased(
        &self,
        leasing: &Leasing,
        question: GuardedRequest<'_>,
    ) -> Option<LeasedDecision> {
        let GuardedRequest { key, request, .. } = question;
        match *request.verb {
            Verb::Check { cost } | Verb::AtMost { cost } | Verb::Reserve { cost, .. } => {
                leasing.take(key, request, cost)
            }
            Verb::Refund { cost } => {
                let hit = leasing.put_back(key, request, cost)?;
                self.denials.forget(key);
                Some(hit)
            }
            _ => None,
        }
    }

    /// Returns the result of a request that waited for a message about its lease.
    pub(super) fn waited(
        &self,
        question: GuardedRequest<'_>,
        waited: WaitOutcome,
    ) -> LocalDecision {
        match waited {
            WaitOutcome::Taken(hit) => LocalDecision::Decided(Ok(hit.into())),
            WaitOutcome::Refused(verdict) => {
                LocalDecision::Decided(Ok(Ruling::by(Mode::Remembered, verdict)))
            }
            WaitOutcome::Failed(error @ StoreError::Overloaded { .. })
                if !question.is_patient() =>
            {
                LocalDecision::Decided(self.shed(question, error))
            }
            WaitOutcome::Failed(StoreError::Overloaded { .. }) | WaitOutcome::Ask => {
                self.decide_beside_leases(question)
            }
            WaitOutcome::Failed(error) => {
                LocalDecision::Decided(self.decide_by_failure_policy(question, error))
            }
        }
    }

    /// Returns `verdict`, the store's answer to a peek, or a pass if permits leased here would let the request pass.
    pub(super) fn beside_lease(
        &self,
        question: GuardedRequest<'_>,
        mut verdict: Verdict,
    ) -> Verdict {
        let GuardedRequest { key, request, lease, .. } = question;
        if let (Some(leasing), Some(_), &Verb::Peek { cost }) = (&self.leasing, lease, request.verb)
            && !verdict.decision.allowed()
            && leasing.covers(key, request, cost)
        {
            verdict.decision.outcome = Outcome::Allow { granted: cost.get(), wait: Micros::ZERO };
        }
        verdict
    }

    /// Sends a message about a lease, unless the breaker is open or the key has debts. One that requests no permits
    /// is sent nevertheless: it can only give back what the store has set aside, and a store that answers too late
    /// still executes it.
    pub(super) async fn deliver(
        &self,
        store: &impl Store,
        lease: Arc<Lease>,
        outgoing: OutgoingMessage,
        now: Micros,
    ) -> (Arc<Lease>, Delivered) {
        let key = lease.key();
        let OutgoingMessage { subject, message } = &outgoing;
        let asks = message.need > 0 || message.want > 0;
        if asks && (self.share.debts().has_account(key) || !self.breaker.allows(now)) {
            return (lease, Delivered::NotSent);
        }
        let windows = subject.rules.windows(now);
        let at = Moment::with_windows(now, windows.as_slice());
        let begun = self.leasing.as_ref().map(Leasing::now);
        let reply = store.lease(&subject.request(), message, &at).await;
        let is_in_time =
            || self.leasing.as_ref().zip(begun).is_some_and(|(of, at)| of.is_in_time(at));
        // A message that only gives back may take longer than a request: then its answer does not show that requests
        // are answered.
        if asks || is_in_time() {
            match &reply {
                Err(StoreError::Unavailable { .. }) => self.breaker.record_failure(now),
                _ => self.breaker.record_success(now),
            }
        }
        if let Ok(LeaseReply::Granted(grant)) = &reply {
            let in_use = outgoing.in_use(grant);
            let answer = StoreAnswer { in_use, ..StoreAnswer::from(grant.verdict) };
            self.share.record_usage(key, &subject.request(), &answer, &at);
        }
        // Permits that it granted before it charged a debt stay unused.
        let is_owed = self.share.debts().has_account(key);
        (lease, if is_owed { Delivered::Ignored } else { Delivered::Replied(reply) })
    }

    /// Takes in `permits` of a lease that is forgotten while the store does not answer: they may be spent, and count as in
    /// use from now on if the key is decided without the store.
    pub(super) fn forgotten(&self, key: KeyHash, subject: &LeasedBudget, permits: u64) {
        let Some(leasing) = &self.leasing else { return };
        let now = leasing.decided_at();
        let windows = subject.rules.windows(now);
        let at = Moment::with_windows(now, windows.as_slice());
        let spent = SpentPermits { permits, at: &at, now: &at };
        self.share.raise_usage(key, subject.rules.set(), spent);
    }

    /// Retires the lease of the key of a request that is decided without the store: no more is taken of it, and the
    /// permits taken count as in use. They count as of now: while the request waited, others have taken of the lease.
    pub(super) fn retire_lease(&self, question: GuardedRequest<'_>) {
        let GuardedRequest { key, request, lease, at, .. } = question;
        if let (Some(leasing), true) = (&self.leasing, takes(request.verb)) {
            let (leased, now) = leasing.retire(key);
            let now = now.max(at.now());
            let windows = lease.map(|terms| terms.rules.windows(now));
            let later = windows.as_ref().map(|found| Moment::with_windows(now, found.as_slice()));
            if leased > 0 {
                let now = later.as_ref().unwrap_or(at);
                let spent = SpentPermits { permits: leased, at, now };
                self.share.raise_usage(key, request.rules, spent);
            }
        }
    }
}
