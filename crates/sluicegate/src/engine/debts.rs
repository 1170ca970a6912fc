//! Permits that this engine admitted without the store, until the store has charged them.
//!
//! While the store does not answer, an account per key holds the permits in use: `stored`, those that the
//! store has counted, and `used`, these and those admitted here. The difference is the debt. Both flow out
//! alike, so permits that have flowed out meanwhile are not owed any more.
//!
//! ```text
//! used ─┐      ┌──╲ admitted here: the debt
//!       │  ┌───┘   ╲───
//! stored└──┴────────────╲── counted by the store
//! ```
//!
//! The next request of the key takes the debt to the store, and the store charges it before it
//! decides. A debt that was sent and not answered is sent again under the same id: the store charges
//! an id once, and repeats its answer. Until then the permits stay in use here. The store does not
//! remember an id under which it could charge nothing: a request that carried it and is still under way may
//! charge it later. So the key's debt keeps its id, whatever its amount, until something was charged.
//!
//! Example: `10/s burst 20`; the store last reported 5 in use and then stopped answering. Of 30 requests
//! within a millisecond 15 pass; then the store is asked to charge 15 and has 20 in use, as if it had never
//! been away.
//!
//! Permits that are held by id (`concurrency`) are not charged: the account keeps them until they
//! are released or lapse.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluicegate_kernel::limits::{COST_MAX, RULES_MAX};
use sluicegate_kernel::{
    Carry, Cost, Micros, Moment, Outcome, RuleSet, States, Unsupported, Verb, Verdict,
};
use sluicegate_store::{Charge, Debt, Executed, KeyHash, Permits, StoreRequest};

/// Most accounts: some 400 bytes each, 100 MB in all. A key without an account is refused until the
/// store answers, since its grants would not be recorded.
pub(super) const ACCOUNTS_MAX: usize = 250_000;

/// Longest time that a caller's reading of the clock may be behind the latest one, because it waited for its
/// turn. A clock that is further behind was set back.
const LATE_MAX: Micros = Micros::SECOND;

/// Shortest interval between searches for accounts without a debt when there is no room.
const SWEEP_EVERY: Micros = Micros::SECOND;

/// The debts of all keys.
#[derive(Debug, Default)]
pub(super) struct Debts {
    accounts: Mutex<KeyDebts>,
    /// Number of accounts: read on every decision, nearly always 0.
    open: AtomicUsize,
    /// Permits that passed without an account, as there was no room for one.
    lost: AtomicU64,
}

/// Numbers of permits that were admitted without the store, and that it never charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncharged {
    /// Permits of `concurrency` rules that are held now: no other engine counts them.
    pub held: u64,
    /// Permits that passed since the start without an account, because there was no room for one.
    pub lost: u64,
}

#[derive(Debug)]
struct KeyDebts {
    of: HashMap<KeyHash, KeyDebt>,
    latest: Micros,
    swept_at: Micros,
    /// The number of the current round of [`Debts::debtors`], from 1 on.
    round: u64,
}

/// A key with a debt.
#[derive(Debug)]
struct KeyDebt {
    policy: Box<str>,
    key: Box<[u8]>,
    rules: Arc<RuleSet>,
    /// Number of nodes: one permit of this engine counts as this many. The most since it was opened.
    nodes: u64,
    stored: States,
    used: States,
    bill: Option<Bill>,
    /// The id of its bills, until the store charges something under it.
    bill_id: u128,
    /// The last round in which it had its turn; 0: none.
    round: u64,
}

/// The debt that a request carries to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Billed {
    pub(super) debt: Debt,
    /// `debt` is all that is owed. A debt that was perhaps charged must be cleared up before more can be
    /// sent.
    pub(super) is_all: bool,
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

/// A key with a debt, for the task that pays it.
#[derive(Clone, Debug)]
pub(super) struct Debtor {
    pub(super) policy: Box<str>,
    pub(super) key: Box<[u8]>,
    pub(super) rules: Arc<RuleSet>,
}

impl Debts {
    /// Returns the number of keys with an account.
    pub(super) fn len(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Counts permits that passed without an account.
    pub(super) fn lose(&self, cost: Cost) {
        self.lost.fetch_add(cost.get(), Ordering::Relaxed);
    }

    /// Returns the numbers of permits that the store never charges.
    pub(super) fn uncharged(&self, at: &Moment<'_>) -> Uncharged {
        let lost = self.lost.load(Ordering::Relaxed);
        if self.len() == 0 {
            return Uncharged { held: 0, lost };
        }
        let accounts = self.lock();
        // Rules with calendars are left out: their windows are not known here.
        let accounts = accounts.of.values().filter(|account| !account.has_calendars());
        Uncharged { held: accounts.map(|account| account.held(at)).sum(), lost }
    }

    /// Returns whether this key has an account, also one that owes nothing any more.
    pub(super) fn has_account(&self, key: KeyHash) -> bool {
        self.len() > 0 && self.lock().of.contains_key(&key)
    }

    /// Returns whether the store is yet to be charged for this key.
    pub(super) fn has_debt(&self, key: KeyHash, at: &Moment<'_>) -> bool {
        if self.len() == 0 {
            return false;
        }
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        accounts.of.get(&key).is_some_and(|account| account.debt(at).iter().any(|debt| *debt > 0))
    }

    /// Decides `request` on the permits in use here, and records its grant. Returns the verdict, and how many
    /// permits stand for one. `nodes` is that number for a key without an account, `scaled` the verb in
    /// which each permit counts that many times, and `known` the usage that the store last reported.
    ///
    /// `None` decides nothing: the cost is out of range, or there is no room for another account.
    pub(super) fn decide(
        &self,
        (key, request): (KeyHash, &StoreRequest<'_>),
        (nodes, scaled): (u64, impl Fn(u64) -> Option<Verb>),
        at: &Moment<'_>,
        known: impl FnOnce(&Moment<'_>) -> States,
    ) -> Result<Option<(Verdict, u64)>, Unsupported> {
        request.rules.supports(request.verb)?;
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        if let Some(account) = accounts.of.get_mut(&key) {
            account.adopt(request.rules, at);
            account.share_among(nodes, at);
            let Some(verb) = scaled(account.nodes) else { return Ok(None) };
            let verdict = account.decide(&verb, at)?;
            if let Some(bill) = &mut account.bill {
                bill.is_overtaken |= verdict.decision.allowed();
            }
            return Ok(Some((verdict, account.nodes)));
        }
        let Some(verb) = scaled(nodes) else { return Ok(None) };
        let mut stored = known(at);
        let before = stored.clone();
        request.rules.first_seen(&mut stored, at);
        let begins = stored != before;
        let mut account = KeyDebt::new(request, nodes, stored);
        let verdict = account.decide(&verb, at)?;
        // A refused key needs no account, unless its budget begins to fill now.
        if account.has_debt(at) || begins {
            if !accounts.has_room(at) {
                return Ok(None);
            }
            accounts.of.insert(key, account);
            self.count(&accounts);
        }
        Ok(Some((verdict, nodes)))
    }

    /// Decides `request`, a release or a renewal, if its permit was granted here.
    pub(super) fn decide_held(
        &self,
        key: KeyHash,
        request: &StoreRequest<'_>,
        at: &Moment<'_>,
    ) -> Option<Verdict> {
        if self.len() == 0 || !matches!(request.verb, Verb::Release { .. } | Verb::Renew { .. }) {
            return None;
        }
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        let account = accounts.of.get_mut(&key)?;
        account.adopt(request.rules, at);
        let verdict = request.rules.decide(&mut account.used, request.verb, at).ok()?;
        verdict.decision.allowed().then_some(verdict)
    }

    /// Returns the debt that the store has to charge before it decides the next request of this key; `None` if
    /// there is none. Each bill is followed by [`paid`](Self::paid) or [`unpaid`](Self::unpaid).
    pub(super) fn bill(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        at: &Moment<'_>,
    ) -> Option<Billed> {
        if self.len() == 0 {
            return None;
        }
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        let account = accounts.of.get_mut(&key)?;
        account.adopt(rules, at);
        if account.bill.is_none() {
            account.bill = Bill::of(account.bill_id, account.debt(at), &account.used);
        }
        if let Some(bill) = &mut account.bill {
            bill.carriers += 1;
            return Some(Billed { debt: bill.debt, is_all: !bill.is_overtaken });
        }
        if !account.has_debt(at) {
            accounts.of.remove(&key);
            self.count(&accounts);
        }
        None
    }

    /// Records that the store charged `permits` of the debt with this id.
    pub(super) fn paid(&self, key: KeyHash, id: u128, permits: Permits, at: &Moment<'_>) {
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        let Some(account) = accounts.of.get_mut(&key) else { return };
        let Some(bill) = account.bill.take_if(|bill| bill.debt.id == id) else { return };
        if permits.iter().any(|paid| *paid > 0) {
            account.bill_id = fastrand::u128(..);
        }
        // A part that found no room in the budget is still owed.
        let mut unpaid = bill.debt.permits;
        for (unpaid, paid) in unpaid.iter_mut().zip(permits) {
            *unpaid = unpaid.saturating_sub(paid).saturating_mul(account.nodes);
        }
        account.stored = bill.used;
        account.rules.credit(&mut account.stored, &unpaid, at);
        if !account.has_debt(at) {
            accounts.of.remove(&key);
            self.count(&accounts);
        }
    }

    /// Records that a request that carried the debt with this id was not answered.
    pub(super) fn unpaid(&self, key: KeyHash, id: u128, executed: Executed) {
        let mut accounts = self.lock();
        let Some(account) = accounts.of.get_mut(&key) else { return };
        let Some(bill) = account.bill.as_mut().filter(|bill| bill.debt.id == id) else { return };
        bill.carriers = bill.carriers.saturating_sub(1);
        bill.is_perhaps_paid |= executed == Executed::Perhaps;
        // Surely not charged: permits that flow out until it is sent again are not owed then.
        if bill.carriers == 0 && !bill.is_perhaps_paid {
            account.bill = None;
        }
    }

    /// Records the permits in use that the store reported for rules, by their place: at least so many are in
    /// use, beside those that it has not counted yet. They count as far as there is room; more than the limit, which the
    /// store reports after it was lowered, count in full.
    pub(super) fn record_usage(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        said: &[(usize, u64)],
        at: &Moment<'_>,
    ) {
        if self.len() == 0 {
            return;
        }
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        let Some(account) = accounts.of.get_mut(&key) else { return };
        account.adopt(rules, at);
        let stored = rules.in_use(&account.stored, at);
        let (mut others, mut beyond) = ([0; RULES_MAX], [0; RULES_MAX]);
        for (rule, used) in said {
            let is_beyond = *used > rules.rules()[*rule].rule.limit();
            let part = if is_beyond { &mut beyond } else { &mut others };
            part[*rule] = used.saturating_sub(stored[*rule]);
        }
        rules.debit(&mut account.used, &mut others, at);
        let bill = account.bill.as_mut().map(|bill| &mut bill.used);
        for state in [&mut account.stored].into_iter().chain(bill) {
            rules.debit(state, &mut others.clone(), at);
            rules.overcharge(state, &beyond, at);
        }
        rules.overcharge(&mut account.used, &beyond, at);
    }

    /// Returns at most `count` keys whose debts are not on their way, each in its turn: a debt that cannot be
    /// charged yet does not delay others.
    pub(super) fn debtors(&self, count: usize) -> Vec<Debtor> {
        if self.len() == 0 {
            return Vec::new();
        }
        let mut accounts = self.lock();
        let round = accounts.round;
        let is_carried = |account: &KeyDebt| account.bill.as_ref().is_some_and(Bill::is_carried);
        let accounts_left = accounts.of.values_mut();
        let mut waiting =
            accounts_left.filter(|account| account.round != round && !is_carried(account));
        let mut debtors = Vec::new();
        while debtors.len() < count
            && let Some(account) = waiting.next()
        {
            account.round = round;
            debtors.push(account.debtor());
        }
        if debtors.len() < count {
            accounts.round += 1;
        }
        // In the same order for the same admissions, so that a simulation can be run again.
        debtors.sort_by(|a: &Debtor, b| (&a.policy, &a.key).cmp(&(&b.policy, &b.key)));
        debtors
    }

    /// Forgets a debt that cannot be charged because its policy is gone.
    pub(super) fn forget(&self, key: KeyHash) {
        let mut accounts = self.lock();
        accounts.of.remove(&key);
        self.count(&accounts);
    }

    fn count(&self, accounts: &KeyDebts) {
        self.open.store(accounts.of.len(), Ordering::Release);
    }

    /// The accounts, also after a panic elsewhere: each is changed in one step.
    fn lock(&self) -> MutexGuard<'_, KeyDebts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyDebts {
    /// Returns `at`, but not before a caller that came earlier: time does not go back between callers.
    fn in_turn<'a>(&mut self, at: &Moment<'a>) -> Moment<'a> {
        let behind = self.latest.since(at.now());
        if behind > Micros::ZERO && behind <= LATE_MAX {
            return at.as_of(self.latest);
        }
        self.latest = at.now();
        *at
    }

    fn has_room(&mut self, at: &Moment<'_>) -> bool {
        let swept_for = at.now().since(self.swept_at);
        if self.of.len() >= ACCOUNTS_MAX && swept_for >= SWEEP_EVERY {
            self.swept_at = at.now();
            // Rules with calendars stay: their windows are not known here.
            self.of.retain(|_, account| {
                let stays = account.bill.is_some() || account.has_calendars();
                stays || account.has_debt(&Moment::new(at.now()))
            });
        }
        self.of.len() < ACCOUNTS_MAX
    }
}

impl Default for KeyDebts {
    fn default() -> Self {
        Self { of: HashMap::new(), latest: Micros::ZERO, swept_at: Micros::ZERO, round: 1 }
    }
}

impl KeyDebt {
    fn new(request: &StoreRequest<'_>, nodes: u64, stored: States) -> Self {
        Self {
            policy: request.policy.into(),
            key: request.key.into(),
            rules: Arc::clone(request.rules),
            nodes,
            used: stored.clone(),
            stored,
            bill: None,
            bill_id: fastrand::u128(..),
            round: 0,
        }
    }

    /// Decides `verb`, in which each permit counts as many times as there are nodes, on the permits in use
    /// here. `at_most` takes whole permits of this node only.
    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
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
        Ok(verdict)
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
        if let Some(bill) = &mut self.bill {
            self.rules.overcharge(&mut bill.used, &counted(bill.debt.permits), at);
        }
        self.nodes = nodes;
    }

    /// Carries the usage over to other rules of the key.
    ///
    /// The store remembers of a bill one number for each rule that it was charged to, by its place. These numbers do not
    /// fit other names, another order, or usage that does not stay as it is; then the key gets a new bill, and permits
    /// that were perhaps charged are charged again.
    fn adopt(&mut self, rules: &Arc<RuleSet>, at: &Moment<'_>) {
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

    /// Permits that are held by id, and that the store has not counted.
    fn held(&self, at: &Moment<'_>) -> u64 {
        let owed = self.owed(at).into_iter().zip(self.rules.rules());
        let held = owed.filter(|(_, named)| named.rule.holds_permits());
        held.map(|(owed, _)| owed).max().unwrap_or_default()
    }

    fn has_debt(&self, at: &Moment<'_>) -> bool {
        self.owed(at).iter().any(|permits| *permits > 0)
    }

    fn has_calendars(&self) -> bool {
        self.rules.rules().iter().any(|named| named.rule.calendar().is_some())
    }

    fn debtor(&self) -> Debtor {
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

#[cfg(test)]
mod tests {
    use sluicegate_kernel::algorithm::WindowKind;
    use sluicegate_kernel::{FixedWindow, NamedRule};
    use sluicegate_store::{KeyHash, MemoryStore, Quota, RuleOrigin};

    use super::*;

    const NOW: Moment<'_> = Moment::new(Micros::from_secs(100));

    fn quota(name: &str, limit: u64) -> NamedRule {
        let day = WindowKind::epoch(Micros::from_secs(86_400));
        NamedRule::new(name, FixedWindow::new(limit, day).expect("a quota"))
    }

    fn set(rules: Vec<NamedRule>) -> Arc<RuleSet> {
        Arc::new(RuleSet::new(rules).expect("a set"))
    }

    fn a_day_of(limit: u64) -> Arc<RuleSet> {
        set(vec![quota("r", limit)])
    }

    /// Returns whether the share of one of `nodes` lets a request of this cost pass.
    fn passes(
        debts: &Debts,
        (key, rules): (KeyHash, &Arc<RuleSet>),
        nodes: u64,
        cost: u64,
    ) -> bool {
        let check = |cost| Verb::Check { cost: Cost::new(cost).expect("a cost") };
        let (verb, origin, quota) = (check(cost), RuleOrigin::default(), Quota::default());
        let request = StoreRequest { policy: "p", key: b"k", rules, verb: &verb, origin, quota };
        let scaled = |nodes| Some(check(cost * nodes));
        let decided = debts.decide((key, &request), (nodes, scaled), &NOW, |_| States::default());
        decided.expect("a check").expect("there is room").0.decision.allowed()
    }

    /// Another node used 3,000 of 4,000 before the limit was lowered.
    #[test]
    fn an_account_learns_what_is_in_use_above_a_lowered_limit() {
        let (full, lowered, debts) = (a_day_of(4_000), a_day_of(50), Debts::default());
        let key = MemoryStore::new(1).hash("p", b"k");
        assert!(passes(&debts, (key, &lowered), 1, 1));
        debts.record_usage(key, &lowered, &[(0, 3_000)], &NOW);
        assert!(!passes(&debts, (key, &full), 1, 1_000), "one was admitted here");
        assert!(passes(&debts, (key, &full), 1, 999));
    }

    /// A bill that was perhaps paid has one number for each rule, by its place and in permits of then.
    #[test]
    fn a_bill_does_not_survive_an_edit_by_which_its_numbers_mean_something_else() {
        let both = set(vec![quota("a", 4_000), quota("b", 9_000)]);
        let swapped = set(vec![quota("b", 9_000), quota("a", 4_000)]);
        let raised = RuleSet::new(vec![quota("a", 8_000), quota("b", 9_000)]).expect("a set");
        let scaled = Arc::new(raised.clone().with_carry(Carry::Proportional));
        let key = MemoryStore::new(1).hash("p", b"k");
        for (edited, is_kept) in [(swapped, false), (scaled, false), (Arc::new(raised), true)] {
            let debts = Debts::default();
            assert!(passes(&debts, (key, &both), 1, 100));
            let bill = debts.bill(key, &both, &NOW).expect("100 are owed");
            debts.unpaid(key, bill.debt.id, Executed::Perhaps);
            let again = debts.bill(key, &edited, &NOW).expect("it is still owed");
            assert_eq!(again.debt.id == bill.debt.id, is_kept, "{edited:?}");
        }
    }

    /// A node that starts while the store is away believes that it is alone.
    #[test]
    fn an_account_divides_by_more_nodes_once_they_are_known() {
        let (rules, debts) = (a_day_of(1_000), Debts::default());
        let key = MemoryStore::new(1).hash("p", b"k");
        assert!(passes(&debts, (key, &rules), 1, 100));
        let bill = debts.bill(key, &rules, &NOW).expect("100 are owed");
        let asks = |nodes, cost| passes(&debts, (key, &rules), nodes, cost);
        assert!(!asks(4, 151), "its share is 250, of which 100 are used");
        assert!(asks(4, 150) && !asks(4, 1) && !asks(1, 1));
        let mut paid = Permits::default();
        paid[0] = 100;
        debts.paid(key, bill.debt.id, paid, &NOW);
        let rest = debts.bill(key, &rules, &NOW).expect("150 are owed").debt.permits[0];
        assert_eq!(rest, 150, "nothing is billed twice");
    }

    #[test]
    fn callers_that_come_up_to_a_second_late_are_decided_at_the_instant_of_the_last_one() {
        let (of, zero) = (HashMap::new(), Micros::ZERO);
        let mut debts = KeyDebts { of, latest: zero, swept_at: zero, round: 1 };
        let mut decided_at = |ms| debts.in_turn(&Moment::new(Micros::from_millis(ms))).now();
        assert_eq!(decided_at(10_000), Micros::from_millis(10_000));
        assert_eq!(decided_at(9_500), Micros::from_millis(10_000));
        assert_eq!(decided_at(9_000), Micros::from_millis(10_000));
        assert_eq!(decided_at(8_999), Micros::from_millis(8_999), "the clock was set back");
        assert_eq!(decided_at(9_000), Micros::from_millis(9_000));
    }
}
