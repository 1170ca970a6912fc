//! A request that several policies guard: all let it pass, or none is charged.
//!
//! Stores decide one policy at a time. So each is looked at first, and the one that would not let the
//! request pass is asked first: it says no, and the others were never touched. Only where two requests
//! meet in between may one be charged and refused; then what was charged is given back.

use std::cmp::Reverse;
use std::mem;
use std::sync::Arc;

use futures_util::future::try_join_all;
use sluicegate::policy::Overflow;
use sluicegate::{Answer, Cost, DecideError, Micros, Request, Verb};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::codec::{Budget, Decided};
use crate::gate::Gate;
use crate::wire::Wire;

/// How long a policy holds a request back at most, in a queue or because its rules delay it: as long as
/// gateways wait for an answer unless they are told to wait longer. What would take longer is refused.
const HOLD_MAX: Micros = Micros::from_secs(60);

/// Takes a permit for `app` from each of `budgets`: what all of them say, or the first that does not
/// let the request pass. It may be held back here.
pub(super) async fn pass(
    gate: &Arc<Gate>,
    budgets: Vec<Budget>,
    app: Option<&str>,
) -> Result<Vec<Decided>, DecideError> {
    let budgets = match budgets.len() {
        0 | 1 => budgets,
        _ => in_order(gate, budgets, app).await?,
    };
    let mut charged = Charged { gate, app, budgets: Vec::new() };
    let mut decided = Vec::with_capacity(budgets.len());
    for budget in budgets {
        let request = budget.check(app);
        let passage = match gate.pass_in_turn(Wire::Http, None, &request, HOLD_MAX).await {
            // An operator took it away just now.
            Err(DecideError::UnknownPolicy(_)) => continue,
            passage => passage?,
        };
        let (passes, is_charged) = (passage.way.passes(), passage.answer.charged() > 0);
        let policy = Arc::clone(&budget.policy);
        if !passes {
            if let Some(giving_back) = charged.give_back() {
                giving_back.await.ok();
            }
            return Ok(vec![Decided { policy, passage }]);
        }
        decided.push(Decided { policy, passage });
        if is_charged {
            charged.budgets.push(budget);
        }
    }
    charged.budgets.clear();
    Ok(decided)
}

/// Those that would not let the request pass first, the sternest of them before the others; those that
/// may hold it back last.
async fn in_order(
    gate: &Gate,
    budgets: Vec<Budget>,
    app: Option<&str>,
) -> Result<Vec<Budget>, DecideError> {
    let peeks = budgets.iter().map(|budget| async {
        let verb = Verb::Peek { cost: Cost::ONE };
        let request = Request { verb, ..budget.check(app) };
        match gate.engine().decide(&request).await {
            Err(DecideError::UnknownPolicy(_)) => Ok(Place::LetsPass),
            answer => answer.map(|answer| place(budget.policy.overflow(), &answer)),
        }
    });
    let places = try_join_all(peeks).await?;
    let mut budgets: Vec<_> = places.into_iter().zip(budgets).collect();
    budgets.sort_by_key(|(place, _)| *place);
    Ok(budgets.into_iter().map(|(_, budget)| budget).collect())
}

/// When a policy is asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// It refuses, the longest first.
    Refuses(Reverse<u64>),
    Diverts,
    Degrades,
    LetsPass,
    MayHold,
}

fn place(overflow: &Overflow, peeked: &Answer) -> Place {
    let is_over = !peeked.decision.allowed();
    let retry_us = peeked.decision.retry_after().map_or(u64::MAX, Micros::get);
    match overflow {
        Overflow::Queue { max_wait } if !is_over || retry_us <= max_wait.get() => Place::MayHold,
        Overflow::Queue { .. } | Overflow::Reject if is_over => Place::Refuses(Reverse(retry_us)),
        Overflow::Divert { .. } if is_over => Place::Diverts,
        Overflow::Degrade(_) if is_over => Place::Degrades,
        _ if peeked.decision.wait() > Micros::ZERO => Place::MayHold,
        _ => Place::LetsPass,
    }
}

/// What was charged for a request that is not through yet: given back if it does not get there, also
/// if its gateway goes away while it is held.
struct Charged<'a> {
    gate: &'a Arc<Gate>,
    app: Option<&'a str>,
    budgets: Vec<Budget>,
}

impl Charged<'_> {
    /// Gives all of it back, in a task of its own: also if nobody waits for it any more, each once.
    fn give_back(&mut self) -> Option<JoinHandle<()>> {
        let budgets = mem::take(&mut self.budgets);
        if budgets.is_empty() {
            return None;
        }
        let (gate, app) = (Arc::clone(self.gate), self.app.map(ToOwned::to_owned));
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn(async move { refund(&gate, &budgets, app.as_deref()).await }))
    }
}

impl Drop for Charged<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

async fn refund(gate: &Gate, budgets: &[Budget], app: Option<&str>) {
    for budget in budgets {
        let request = Request { verb: Verb::Refund { cost: Cost::ONE }, ..budget.check(app) };
        // Rules that give nothing back stay charged, as for any request that goes away.
        gate.engine().decide(&request).await.ok();
    }
}
