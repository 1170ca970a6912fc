//! Releases of permits that the store may have granted too late.
//!
//! An `acquire` without an answer in time is refused, or decided by this engine's share, and the store may execute it all the
//! same. Where no caller knows the id of the permit, nobody else would release it, and it would stay held until its `ttl`. A
//! caller that does know it may have released it, and acquired it again, so such a permit is left to its caller.
//!
//! An overloaded store gets no more work by that: it is not asked about permits whose questions were not sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sluicegate_kernel::{Micros, Moment, PermitId, Verb};
use sluicegate_store::{Store, StoreAnswer};
use tokio::runtime::Handle;

use super::request::ResolvedBudget;
use super::turn::ask_store;
use super::{Admission, Engine, Mode, Observer, Request, Ruling, Turn};

/// Most permits that are released at a time: as many as calls are under way on a connection. Those beyond come back by their
/// `ttl`.
const RELEASED_MAX: usize = 1_024;

/// Most questions about one of them. After them it comes back by its `ttl`.
const TRIES_MAX: usize = 20;

/// The time between the questions, and before the first: the store has executed by then what was under way, unless it stands
/// still.
const RETRY: Micros = Micros::from_millis(500);

/// Answers that the permit is not held after which it counts as not granted: a store that goes on after a pause may read the
/// release before the `acquire`, which came by another connection.
const NOT_HELD_MIN: usize = 2;

/// Number of permits that are released now.
#[derive(Debug, Default)]
pub(super) struct LateGrants(AtomicUsize);

/// The place of one permit in the count.
struct Released<'a>(&'a LateGrants);

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// Has `permit`, which `request` asked for, released if the store may have granted it although the answer is
    /// `admission`, and no caller knows it.
    pub(super) fn release_late(
        &self,
        request: &Request<'_>,
        permit: PermitId,
        admission: &Admission,
    ) {
        if !admission.answer.is_perhaps_granted || !request.is_permit_unnamed {
            return;
        }
        let engine = Arc::clone(self.engine);
        let request = request.with_verb(Verb::Release { permit }).to_owned();
        let releasing = async move { engine.release_until_answered(&request.borrow()).await };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(releasing)),
            Err(_) => self.engine.waiters.leave_later(Box::pin(releasing)),
        }
    }
}

impl<S: Store, O: Observer> Engine<S, O> {
    /// Releases the permit of `request`, a release, until the store has answered, for ten seconds at most; not if 1,024 others
    /// are released now.
    #[doc(hidden)]
    pub async fn release_until_answered(&self, request: &Request<'_>) {
        let Some(_entered) = self.late_grants.enter() else { return };
        let mut not_held = 0;
        for _ in 0..TRIES_MAX {
            self.pass_time(RETRY).await;
            match self.release_in_store(request).await {
                Some(true) => return,
                Some(false) => not_held += 1,
                None => {}
            }
            if not_held == NOT_HELD_MIN {
                return;
            }
        }
    }

    /// Asks the store alone, as a permit of this name may be held here, too. Returns whether it was held there; `None`: there
    /// is no answer.
    async fn release_in_store(&self, request: &Request<'_>) -> Option<bool> {
        let (now, policies) = (self.clock.now(), self.policies.load());
        // The permits of a policy that is gone are gone with it.
        let Ok(budget) = ResolvedBudget::of(&policies, request, now) else { return Some(false) };
        let windows = budget.rules.windows(now);
        let moment = Moment::with_windows(now, windows.as_slice());
        let asked = ask_store(&self.store, None, &budget.ask(&request.verb), &moment).await;
        let (StoreAnswer { verdict, called, .. }, _) = asked.ok()?;
        let mut ruling = Ruling { called, ..Ruling::by(Mode::Store, verdict) };
        self.call_waiters(&budget, &request.verb, &mut ruling);
        Some(ruling.verdict.decision.allowed())
    }
}

impl LateGrants {
    fn enter(&self) -> Option<Released<'_>> {
        let room = |count| (count < RELEASED_MAX).then_some(count + 1);
        let entered = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, room);
        entered.is_ok().then_some(Released(self))
    }
}

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
