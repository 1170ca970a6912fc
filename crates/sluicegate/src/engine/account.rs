//! The account of a key whose permits were admitted without the store: what is in use, what of it the store
//! has counted, and the bill that is on its way. [`debts`](super::debts) explains how they move.

use std::sync::Arc;

use sluicegate_kernel::limits::{COST_MAX, RULES_MAX};
use sluicegate_kernel::{
    Carry, Micros, Moment, Outcome, RuleSet, States, Unsupported, Verb, Verdict,
};
use sluicegate_store::{Charge, Debt, Executed, Permits, StoreRequest};

use super::known_usage::is_bucket;

/// Time within which a server that owes asks the store again, and within which it notices that the store is gone.
const REPORT_HOLDS: Micros = Micros::SECOND;

/// The permits in use of a key, with those that the store has not counted.
#[derive(Debug)]
pub(super) struct Account {
    policy: Box<str>,
    key: Box<[u8]>,
    rules: Arc<RuleSet>,
    /// Number of nodes: one permit of this engine counts as this many. The most since it was opened.
    nodes: u64,
    stored: States,
    used: States,
    /// The store's last report and its instant, until a request is decided here.
    reported: Option<(Micros, Permits)>,
    bill: Option<Bill>,
    /// The id of its bills, until the store charges something under it.
    bill_id: u128,
    /// The last round of payments in which it had its turn; 0: none.
    pub(super) round: u64,
}

/// A debt that is on its way to the store.
#[derive(Debug)]
struct Bill {
    debt: Debt,
    /// The permits in use when it was made out.
    used: States,
    /// Requests that carry it now.
    carriers: usize,
    /// More was admitted here since.
    is_overtaken: bool,
    /// A request that carried it may have been executed.
    is_perhaps_paid: bool,
}

/// The debt that a request carries to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Billed {
    pub(super) debt: Debt,
    /// `debt` is all that is owed. A debt that was perhaps charged must be cleared up before more can be
    /// sent.
    pub(super) is_all: bool,
}

/// A key with a debt, for the task that pays it.
#[derive(Clone, Debug)]
pub(super) struct Debtor {
    pub(super) policy: Box<str>,
    pub(super) key: Box<[u8]>,
    pub(super) rules: Arc<RuleSet>,
}

impl Account {
    pub(super) fn new(request: &StoreRequest<'_>, nodes: u64, stored: States) -> Self {
        Self {
            policy: request.policy.into(),
            key: request.key.into(),
            rules: Arc::clone(request.rules),
            nodes,
            used: stored.clone(),
            stored,
            reported: None,
            bill: None,
            bill_id: fastrand::u128(..),
            round: 0,
        }
    }

    /// Decides `verb`, in which each permit counts as many times as there are nodes, on the permits in use
    /// here. `at_most` takes whole permits of this node only.
    pub(super) fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        let mut verdict = self.rules.decide(&mut self.used, verb, at)?;
        if let (Verb::AtMost { .. }, Outcome::Allow { granted, .. }) =
            (verb, &mut verdict.decision.outcome)
        {
            let part = *granted % self.nodes;
            if part > 0 {
                self.rules.credit(&mut self.used, &[part; RULES_MAX], at);
                *granted -= part;
            }
        }
        if let Some(bill) = &mut self.bill {
            bill.is_overtaken |= verdict.decision.allowed();
        }
        Ok(verdict)
    }

    /// Decides `verb`, which gives back or renews a permit that is held.
    pub(super) fn decide_held(&mut self, verb: &Verb, at: &Moment<'_>) -> Option<Verdict> {
        let verdict = self.rules.decide(&mut self.used, verb, at).ok()?;
        verdict.decision.allowed().then_some(verdict)
    }

    /// Begins a decision by the share of one of `nodes`, and returns how many permits stand for one.
    pub(super) fn begin(&mut self, rules: &Arc<RuleSet>, nodes: u64, at: &Moment<'_>) -> u64 {
        self.adopt(rules, at);
        self.share_among(nodes, at);
        self.keep_full(at);
        self.nodes
    }

    /// Returns the bill for one more request to carry; `None` if nothing is owed.
    pub(super) fn send_bill(&mut self, at: &Moment<'_>) -> Option<Billed> {
        if self.bill.is_none() {
            self.bill = Bill::of(self.bill_id, self.debt(at), &self.used);
        }
        let bill = self.bill.as_mut()?;
        bill.carriers += 1;
        Some(Billed { debt: bill.debt, is_all: !bill.is_overtaken })
    }

    /// Records that the store charged `permits` of the bill with this id.
    pub(super) fn paid(&mut self, id: u128, permits: Permits, at: &Moment<'_>) {
        let Some(bill) = self.bill.take_if(|bill| bill.debt.id == id) else { return };
        if permits.iter().any(|paid| *paid > 0) {
            self.bill_id = fastrand::u128(..);
        }
        self.settle(bill, permits, at);
    }

    /// Records that a request that carried the bill with this id was not answered.
    pub(super) fn unpaid(&mut self, id: u128, executed: Executed) {
        let Some(bill) = self.bill.as_mut().filter(|bill| bill.debt.id == id) else { return };
        bill.carriers = bill.carriers.saturating_sub(1);
        bill.is_perhaps_paid |= executed == Executed::Perhaps;
        // Surely not charged: permits that flow out until it is sent again are not owed then.
        if bill.carriers == 0 && !bill.is_perhaps_paid {
            self.bill = None;
        }
    }

    /// Returns whether a request carries its bill to the store now.
    pub(super) fn is_carried(&self) -> bool {
        self.bill.as_ref().is_some_and(Bill::is_carried)
    }

    /// Returns whether the store may have charged what is still owed here.
    pub(super) const fn has_bill(&self) -> bool {
        self.bill.is_some()
    }

    /// Records the permits in use that the store reported for rules, by their place.
    pub(super) fn record_usage(
        &mut self,
        rules: &Arc<RuleSet>,
        said: &[(usize, u64)],
        at: &Moment<'_>,
    ) {
        self.adopt(rules, at);
        let mut reported = Permits::default();
        for (rule, used) in said {
            reported[*rule] = *used;
        }
        self.raise_stored(&reported, at);
        self.reported = Some((at.now(), reported));
    }

    /// Divides the limits by `nodes` from now on, if these are more: what is owed counts as often as what will be
    /// admitted. With fewer nodes than before it goes on, as others may be cut off themselves; and so do permits that are
    /// held by id, each of which counts by the number under which it was acquired.
    fn share_among(&mut self, nodes: u64, at: &Moment<'_>) {
        let more = nodes.saturating_sub(self.nodes);
        if more == 0 || self.rules.rules().iter().any(|named| named.rule.holds_permits()) {
            return;
        }
        let counted = |permits: Permits| permits.map(|permits| permits.saturating_mul(more));
        let owed = counted(self.owed(at));
        self.rules.overcharge(&mut self.used, &owed, at);
        if let Some(mut bill) = self.bill.take() {
            let billed = counted(self.still_billed(&bill, at));
            self.rules.overcharge(&mut bill.used, &billed, at);
            self.bill = Some(bill);
        }
        self.nodes = nodes;
    }

    /// Carries the usage over to other rules of the key.
    ///
    /// The store remembers of a bill one number for each rule that it was charged to, by its place. These numbers do not
    /// fit other names, another order, or usage that does not stay as it is; then the key gets a new bill, and permits
    /// that were perhaps charged are charged again.
    pub(super) fn adopt(&mut self, rules: &Arc<RuleSet>, at: &Moment<'_>) {
        if Arc::ptr_eq(&self.rules, rules) {
            return;
        }
        let mut names = rules.rules().iter().zip(self.rules.rules());
        let means_the_same = rules.rules().len() == self.rules.rules().len()
            && names.all(|(new, old)| new.name == old.name)
            && (**rules == *self.rules || rules.carry() == Carry::Usage);
        self.stored = rules.take_over(&self.rules, &self.stored, at);
        self.used = rules.take_over(&self.rules, &self.used, at);
        if !means_the_same {
            self.bill = None;
            self.bill_id = fastrand::u128(..);
        } else if let Some(bill) = &mut self.bill {
            bill.used = rules.take_over(&self.rules, &bill.used, at);
        }
        self.rules = Arc::clone(rules);
        // Its numbers are those of other rules.
        self.reported = None;
    }

    /// Has at least `reported` permits of each rule in use in the store.
    fn raise_stored(&mut self, reported: &Permits, at: &Moment<'_>) {
        let mut others = *reported;
        for (others, stored) in others.iter_mut().zip(self.rules.in_use(&self.stored, at)) {
            *others = others.saturating_sub(stored);
        }
        let bill = self.bill.as_mut().map(|bill| &mut bill.used);
        for state in [&mut self.stored, &mut self.used].into_iter().chain(bill) {
            self.rules.overcharge(state, &others, at);
        }
    }

    /// Begins to decide here while a debt waits for room: what has flowed out of a bucket since the store's last report
    /// was taken by other nodes, as long as they reached the store.
    fn keep_full(&mut self, at: &Moment<'_>) {
        let Some((since, mut reported)) = self.reported.take() else { return };
        if self.nodes == 1 || at.now().since(since) > REPORT_HOLDS {
            return;
        }
        for (reported, named) in reported.iter_mut().zip(self.rules.rules()) {
            if !is_bucket(&named.rule) {
                *reported = 0;
            }
        }
        self.raise_stored(&reported, at);
    }

    /// Records that the store charged `paid` of a bill. A part that found no room in the budget is still owed.
    fn settle(&mut self, bill: Bill, paid: Permits, at: &Moment<'_>) {
        let (rules, nodes, billed) = (&self.rules, self.nodes, self.still_billed(&bill, at));
        let (mut unpaid, mut once) = (Permits::default(), Permits::default());
        for (rule, named) in rules.rules().iter().enumerate() {
            let rest = bill.debt.permits[rule].saturating_sub(paid[rule]);
            unpaid[rule] = rest.saturating_mul(nodes);
            // The store counts each permit once, and other nodes know that. In a bucket it does not matter when
            // a permit was taken; other rules count it as often as before, until the account is closed.
            if is_bucket(&named.rule) {
                once[rule] = paid[rule].min(billed[rule]) * (nodes - 1);
            }
        }
        self.stored = bill.used;
        for permits in [&unpaid, &once] {
            rules.credit(&mut self.stored, permits, at);
        }
        rules.credit(&mut self.used, &once, at);
    }

    /// Permits of a bill that have not flowed out: those that have are not owed any more, however often they count.
    fn still_billed(&self, bill: &Bill, at: &Moment<'_>) -> Permits {
        let stored = self.rules.in_use(&self.stored, at);
        let mut billed = self.rules.in_use(&bill.used, at);
        for ((billed, stored), debt) in billed.iter_mut().zip(stored).zip(bill.debt.permits) {
            *billed = (billed.saturating_sub(stored) / self.nodes).min(debt);
        }
        billed
    }

    /// Permits of each rule that the store has not counted.
    fn owed(&self, at: &Moment<'_>) -> Permits {
        let (mut owed, stored) =
            (self.rules.in_use(&self.used, at), self.rules.in_use(&self.stored, at));
        for (owed, stored) in owed.iter_mut().zip(stored) {
            *owed = owed.saturating_sub(stored).div_ceil(self.nodes).min(COST_MAX);
        }
        owed
    }

    /// Permits of each rule that the store can charge: [`owed`](Self::owed), but 0 for `concurrency`.
    fn debt(&self, at: &Moment<'_>) -> Permits {
        let mut debt = self.owed(at);
        for (debt, named) in debt.iter_mut().zip(self.rules.rules()) {
            if named.rule.holds_permits() {
                *debt = 0;
            }
        }
        debt
    }

    /// Returns whether the store is yet to be charged.
    pub(super) fn is_chargeable(&self, at: &Moment<'_>) -> bool {
        self.debt(at).iter().any(|permits| *permits > 0)
    }

    /// Permits that are held by id, and that the store has not counted.
    pub(super) fn held(&self, at: &Moment<'_>) -> u64 {
        let owed = self.owed(at).into_iter().zip(self.rules.rules());
        let held = owed.filter(|(_, named)| named.rule.holds_permits());
        held.map(|(owed, _)| owed).max().unwrap_or_default()
    }

    pub(super) fn has_debt(&self, at: &Moment<'_>) -> bool {
        self.owed(at).iter().any(|permits| *permits > 0)
    }

    pub(super) fn has_calendars(&self) -> bool {
        self.rules.rules().iter().any(|named| named.rule.calendar().is_some())
    }

    pub(super) fn debtor(&self) -> Debtor {
        let Self { policy, key, rules, .. } = self;
        Debtor { policy: policy.clone(), key: key.clone(), rules: Arc::clone(rules) }
    }
}

impl Bill {
    /// Returns a bill of `permits`; `None` if all are 0.
    fn of(id: u128, permits: Permits, used: &States) -> Option<Self> {
        permits.iter().any(|permits| *permits > 0).then(|| Self {
            debt: Debt { id, permits, charge: Charge::Added },
            used: used.clone(),
            carriers: 0,
            is_overtaken: false,
            is_perhaps_paid: false,
        })
    }

    const fn is_carried(&self) -> bool {
        self.carriers > 0
    }
}
