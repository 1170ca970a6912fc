//! Decisions on the budgets of a message, each on its own or all together. Then the hits beyond those that one decision
//! takes; and, if looks may pass, the notes of refused charges, without which a peek passes.

use futures_util::future::join_all;
use sluicegate::internals::store::Store;
use sluicegate::{Admission, Cost, DecideError, Disposition, Request, Turn, Verb};
use sluicegate_kernel::limits::COST_MAX;
use sluicegate_policy::Overflow;

use super::RlsOptions;
use crate::engine::EngineObserver;
use crate::wire::rls::codec::{BudgetRequest, Overall, is_refused};

/// Maximum number of decisions for the hits of one descriptor beyond the first: limits have at most twice the
/// permits that one decision takes, so the last one finds nothing.
const MORE_DECISIONS_MAX: usize = 2;

/// A budget, and the request to the engine about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedBudget<'a> {
    pub(super) budget: &'a BudgetRequest<'a>,
    pub(super) request: &'a Request<'a>,
}

impl RlsOptions {
    /// Returns whether [`complete`](Self::complete) has something to do.
    pub(super) fn is_more_to_do(self, budget: &BudgetRequest<'_>, admission: &Admission) -> bool {
        budget.rest > 0 || (self.looks_pass && admission.way == Disposition::Refused)
    }

    /// Takes the hits beyond those that one decision takes. With `looks_pass`, also records that a charge
    /// was refused, and lets a peek pass if none was.
    pub(super) async fn complete<S: Store + 'static>(
        self,
        turn: &Turn<'_, S, EngineObserver>,
        asked: AskedBudget<'_>,
        admission: Admission,
    ) -> Result<Admission, DecideError> {
        let AskedBudget { budget, request } = asked;
        let mut admission = match budget.rest {
            0 => admission,
            _ => take_rest(turn, asked, admission).await?,
        };
        if self.looks_pass && admission.way == Disposition::Refused {
            if budget.takes() {
                turn.note_refusal(request, &admission.answer).await;
            } else if budget.looks() && !turn.has_refused(request, &admission.answer).await {
                admission.way = Disposition::Allowed;
            }
        }
        Ok(admission)
    }

    /// Decides each of `asked` on its own; `requests` has their requests in the same order.
    pub(super) async fn decide_apart<S: Store + 'static>(
        self,
        turn: &Turn<'_, S, EngineObserver>,
        asked: &[AskedBudget<'_>],
        requests: &[Request<'_>],
    ) -> Result<Vec<Admission>, DecideError> {
        let decided = turn.decide_each(requests).await.into_iter();
        let mut decided: Vec<_> = decided.collect::<Result<_, _>>()?;
        let places: Vec<_> = (0..asked.len()).collect();
        self.complete_each(turn, asked, &places, &mut decided).await?;
        Ok(decided)
    }

    /// Decides `asked` together: if the request is over the limit, the other descriptors are not charged. So
    /// all are peeked at first, and the others are charged if none is over the limit. If other requests
    /// interfere, the charges are given back. `zero` has the descriptors with a limit of zero.
    pub(super) async fn decide_together<S: Store + 'static>(
        self,
        turn: &Turn<'_, S, EngineObserver>,
        asked: &[AskedBudget<'_>],
        requests: &[Request<'_>],
        zero: Overall,
    ) -> Result<Vec<Admission>, DecideError> {
        let is_over = |admissions: &[Admission]| {
            let mut overall = zero;
            for (AskedBudget { budget, .. }, admission) in asked.iter().zip(admissions) {
                let is_over = !budget.gives_back() && is_refused(&admission.way);
                overall.push(budget.is_quota(), is_over);
            }
            overall.is_over()
        };
        let looks: Vec<_> = requests.iter().map(look).collect();
        let looked = turn.decide_each(&looks).await.into_iter();
        let mut looked: Vec<_> = looked.collect::<Result<_, _>>()?;
        let (charges, only_looks): (Vec<_>, Vec<_>) =
            (0..asked.len()).partition(|place| !matches!(requests[*place].verb, Verb::Peek { .. }));
        self.complete_each(turn, asked, &only_looks, &mut looked).await?;

        let mut decided = looked.clone();
        let mut batch = turn.batch(requests);
        // A descriptor that is over the limit shows it itself: it is counted, and takes what is left.
        let (over, under): (Vec<_>, Vec<_>) =
            charges.into_iter().partition(|place| is_refused(&looked[*place].way));
        let mut rounds = vec![over, under];
        if !is_over(&looked) {
            // Nothing refuses, so all are charged at once.
            rounds = vec![rounds.concat()];
        }
        for places in rounds {
            for (place, admission) in places.iter().zip(batch.decide(&places).await?) {
                decided[*place] = admission;
            }
            self.complete_each(turn, asked, &places, &mut decided).await?;
            if is_over(&decided) {
                for place in batch.taken() {
                    decided[place] = looked[place].clone();
                }
                batch.give_back().await;
                return Ok(decided);
            }
        }
        batch.keep();
        Ok(decided)
    }

    /// [`complete`](Self::complete)s the decisions on the budgets at `places`.
    async fn complete_each<S: Store + 'static>(
        self,
        turn: &Turn<'_, S, EngineObserver>,
        asked: &[AskedBudget<'_>],
        places: &[usize],
        decided: &mut [Admission],
    ) -> Result<(), DecideError> {
        let open = places.iter().copied();
        let open = open.filter(|at| self.is_more_to_do(asked[*at].budget, &decided[*at]));
        let open: Vec<_> = open.collect();
        let completing =
            open.iter().map(|at| self.complete(turn, asked[*at], decided[*at].clone()));
        for (at, completed) in open.iter().zip(join_all(completing).await) {
            decided[*at] = completed?;
        }
        Ok(())
    }
}

/// Turns `request` into a peek, which changes nothing.
fn look<'r>(request: &Request<'r>) -> Request<'r> {
    let cost = match request.verb {
        Verb::Check { cost }
        | Verb::AtMost { cost }
        | Verb::Acquire { cost, .. }
        | Verb::Peek { cost } => cost,
        _ => Cost::ONE,
    };
    request.with_verb(Verb::Peek { cost })
}

/// Takes the hits of a descriptor beyond those that `admission` is about, or gives them back.
async fn take_rest<S: Store + 'static>(
    turn: &Turn<'_, S, EngineObserver>,
    AskedBudget { budget, request }: AskedBudget<'_>,
    mut admission: Admission,
) -> Result<Admission, DecideError> {
    if budget.is_whole() {
        // It was only peeked at: no named policy grants so much.
        let policy = turn.policies().resolve(budget.policy());
        let shadow = policy.is_some_and(|policy| *policy.overflow() == Overflow::Shadow);
        if admission.way == Disposition::Allowed {
            admission.way = if shadow { Disposition::Shadowed } else { Disposition::Refused };
        }
        return Ok(admission);
    }
    let (mut requested, mut rest) = (COST_MAX, budget.rest);
    for _ in 0..MORE_DECISIONS_MAX {
        let Ok(cost) = Cost::new(rest.min(COST_MAX)) else { break };
        if admission.answer.decision.granted() < requested {
            break;
        }
        let verb = match request.verb {
            Verb::Refund { .. } => Verb::Refund { cost },
            _ => Verb::AtMost { cost },
        };
        admission = turn.decide(&request.with_verb(verb)).await?;
        (requested, rest) = (cost.get(), rest - cost.get());
    }
    Ok(admission)
}
