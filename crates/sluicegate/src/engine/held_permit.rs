//! A permit that is held as long as its owner has it, and released when that is dropped.
//!
//! A task of its own acquires, renews and releases it, so that nothing is lost where the owner is dropped at any moment: a request whose client
//! goes away before the store has answered, or that panics.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use sluicegate_kernel::{Cost, Micros, PermitId, Verb};
use sluicegate_store::Store;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Admission, DecideError, Disposition, Engine, Mode, Observer, Request};

/// A permit is renewed three times in its `ttl`, so that two lost renewals do not end it.
const RENEWALS_IN_TTL: u64 = 3;

/// Attempts to release a permit, [`RETRY`] apart. After them it comes back by its `ttl`.
const TRIES_MAX: usize = 20;

/// The time between them.
const RETRY: Micros = Micros::from_millis(500);

/// A permit that is released when this is dropped.
#[derive(Debug)]
pub(crate) struct HeldPermit {
    /// The task sees the end of this channel.
    _held: oneshot::Sender<Infallible>,
}

/// An answer, with the permit if one is held.
pub(super) type Held = (Admission, Option<HeldPermit>);

impl<S: Store + 'static, O: Observer> Engine<S, O> {
    /// Acquires `cost` permits of the policy of `request`, whose verb does not matter, and keeps them until the [`HeldPermit`] is dropped. `None`: there is no
    /// runtime.
    pub(crate) fn hold(
        self: &Arc<Self>,
        label: O::Label,
        request: &Request<'_>,
        cost: Cost,
    ) -> Option<impl Future<Output = Result<Held, DecideError>> + Send + use<S, O>> {
        let runtime = Handle::try_current().ok()?;
        let permit = PermitId(fastrand::u128(..));
        let request = request.with_verb(Verb::Acquire { cost, permit });
        let request = Request { is_permit_unnamed: true, ..request }.to_owned();
        let (engine, (answer, answered)) = (Arc::clone(self), oneshot::channel());
        runtime.spawn(async move {
            engine.acquire_and_keep(label, &request.borrow(), permit, answer).await;
        });
        Some(async move { answered.await.expect("the task answers, unless it has panicked") })
    }

    async fn acquire_and_keep(
        self: &Arc<Self>,
        label: O::Label,
        request: &Request<'_>,
        permit: PermitId,
        mut answer: oneshot::Sender<Result<Held, DecideError>>,
    ) {
        let turn = self.turn_for(label);
        let decided = if turn.may_wait_for_permit(request) {
            // A request that waits no longer gives back what it has.
            tokio::select! {
                biased;
                decided = turn.decide(request) => decided,
                () = answer.closed() => return,
            }
        } else {
            turn.decide(request).await
        };
        let decided = match decided {
            Ok(admission) if admission.way == Disposition::Allowed => admission,
            other => {
                drop(answer.send(other.map(|admission| (admission, None))));
                return;
            }
        };
        // The key is free again when this permit, its newest, lapses. A permit without the store does not lapse.
        let ttl = match decided.answer.mode {
            Mode::Store => decided.answer.decision.reset_after,
            _ => Micros::ZERO,
        };
        let (held, mut dropped) = oneshot::channel();
        // If nobody wants the answer, this drops the permit.
        drop(answer.send(Ok((decided, Some(HeldPermit { _held: held })))));
        let every = Micros::new(ttl.get() / RENEWALS_IN_TTL);
        let renew = request.with_verb(Verb::Renew { permit });
        loop {
            tokio::select! {
                biased;
                _ = &mut dropped => break,
                () = self.pass_time(every), if every > Micros::ZERO => {
                    // If it cannot be renewed now, the next time is before its end.
                    self.turn_for(label).decide(&renew).await.ok();
                }
                () = pending(), if every == Micros::ZERO => {}
            }
        }
        let release = request.with_verb(Verb::Release { permit });
        for _ in 0..TRIES_MAX {
            if self.turn_for(label).decide(&release).await.is_ok() {
                return;
            }
            self.pass_time(RETRY).await;
        }
    }
}
