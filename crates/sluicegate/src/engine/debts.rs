//! What this engine admitted without the store, until the store has charged it.
//!
//! While the store does not answer, an account a key says what is in use: `stored`, as far as the store
//! knows, and `used`, with what was admitted here. The difference is the debt. Both flow out alike, so
//! what has flowed out meanwhile is not owed any more.
//!
//! ```text
//! used ─┐      ┌──╲ admitted here: the debt
//!       │  ┌───┘   ╲───
//! stored└──┴────────────╲── what the store knows of
//! ```
//!
//! The next request of the key takes the debt to the store, and the store charges it before it
//! decides. A debt that was sent and not answered is sent again under the same id: the store charges
//! an id once, and says again what it charged. Until then the permits stay in use here. The store does not
//! remember an id of which nothing could be charged: a request that carried it and is still under way may
//! charge it later. So an id stays that of the key's debt, whatever that comes to, until something was charged.
//!
//! Example: `10/s burst 20`; the store said 5 are in use and fell silent. Of 30 requests within a
//! millisecond 15 pass; then the store is asked to charge 15 and has 20 in use, as if it had never
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
    Cost, Micros, Moment, Outcome, RuleSet, States, Unsupported, Verb, Verdict,
};
use sluicegate_store::{Charge, Debt, Executed, KeyHash, Permits, StoreRequest};

/// Most accounts: some 400 bytes each, 100 MB in all. A key that finds no place is refused until the
/// store answers, since nothing would remember what it was granted.
pub(super) const ACCOUNTS_MAX: usize = 250_000;

/// How far behind the latest caller another may have read the clock: one that waited for its turn. A
/// clock that goes back by more was put back.
const LATE_MAX: Micros = Micros::SECOND;

/// How often accounts without a debt are looked for when there is no room.
const SWEEP_EVERY: Micros = Micros::SECOND;

/// The debts of all keys.
#[derive(Debug, Default)]
pub(super) struct Debts {
    accounts: Mutex<KeyDebts>,
    /// How many accounts there are: read on every decision, nearly always 0.
    open: AtomicUsize,
    /// Permits that passed without an account, as there was no room for one.
    lost: AtomicU64,
}

/// Permits that were admitted without the store, and that it never charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uncharged {
    /// Permits of `concurrency` rules that are held now: no other engine counts them.
    pub held: u64,
    /// Permits that passed since the start although there was no room to note them.
    pub lost: u64,
}

#[derive(Debug)]
struct KeyDebts {
    of: HashMap<KeyHash, KeyDebt>,
    latest: Micros,
    swept_at: Micros,
    /// Which round of [`Debts::debtors`] this is; from 1 on.
    round: u64,
}

/// A key with a debt.
#[derive(Debug)]
struct KeyDebt {
    policy: Box<str>,
    key: Box<[u8]>,
    rules: Arc<RuleSet>,
    /// One permit of this engine counts as so many.
    nodes: u64,
    stored: States,
    used: States,
    bill: Option<Bill>,
    /// The id of its bills, until something is charged under it.
    bill_id: u128,
    /// The last round that it had its turn in; 0: none.
    round: u64,
}

/// What a request carries to the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Billed {
    pub(super) debt: Debt,
    /// Whether that is all that is owed. A debt that was perhaps charged must be cleared up before
    /// more can be sent.
    pub(super) is_all: bool,
}

/// A debt that is on its way to the store.
#[derive(Debug)]
struct Bill {
    debt: Debt,
    /// What was in use when it was made out.
    used: States,
    /// Requests that carry it now.
    carriers: usize,
    /// Whether more was admitted here since.
    is_overtaken: bool,
    /// Whether a request that carried it may have been executed.
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
    /// Keys that owe something.
    pub(super) fn len(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// Permits passed that no account notes.
    pub(super) fn lose(&self, cost: Cost) {
        self.lost.fetch_add(cost.get(), Ordering::Relaxed);
    }

    /// Permits that the store never charges.
    pub(super) fn uncharged(&self, at: &Moment<'_>) -> Uncharged {
        let lost = self.lost.load(Ordering::Relaxed);
        if self.len() == 0 {
            return Uncharged { held: 0, lost };
        }
        let accounts = self.lock();
        // Rules with calendars are left out: their windows are not at hand here.
        let accounts = accounts.of.values().filter(|account| !account.has_calendars());
        Uncharged { held: accounts.map(|account| account.held(at)).sum(), lost }
    }

    /// Whether there is an account of this key, also one that owes nothing any more.
    pub(super) fn has_account(&self, key: KeyHash) -> bool {
        self.len() > 0 && self.lock().of.contains_key(&key)
    }

    /// Whether the store is yet to be charged for this key.
    pub(super) fn has_debt(&self, key: KeyHash, at: &Moment<'_>) -> bool {
        if self.len() == 0 {
            return false;
        }
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        accounts.of.get(&key).is_some_and(|account| account.debt(at).iter().any(|debt| *debt > 0))
    }

    /// Decides `request` on what is in use here, and notes what it is granted: the verdict, and how many
    /// permits stand for one. `nodes` is that number for a key without a debt, `scaled` the verb in
    /// which each permit counts so many times, and `known` what the store last said.
    ///
    /// `None` decides nothing: there is no such cost, or no room for another account.
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

    /// Decides `request`, a release or a renewal, if it is about a permit that was handed out here.
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

    /// What the store is to charge before it decides the next request of this key. Each bill is
    /// followed by [`paid`](Self::paid) or [`unpaid`](Self::unpaid).
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

    /// The store charged so much of the debt with this id.
    pub(super) fn paid(&self, key: KeyHash, id: u128, permits: Permits, at: &Moment<'_>) {
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        let Some(account) = accounts.of.get_mut(&key) else { return };
        let Some(bill) = account.bill.take_if(|bill| bill.debt.id == id) else { return };
        if permits.iter().any(|paid| *paid > 0) {
            account.bill_id = fastrand::u128(..);
        }
        // What was not there to be charged is still owed.
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

    /// A request that carried the debt with this id was not answered.
    pub(super) fn unpaid(&self, key: KeyHash, id: u128, executed: Executed) {
        let mut accounts = self.lock();
        let Some(account) = accounts.of.get_mut(&key) else { return };
        let Some(bill) = account.bill.as_mut().filter(|bill| bill.debt.id == id) else { return };
        bill.carriers = bill.carriers.saturating_sub(1);
        bill.is_perhaps_paid |= executed == Executed::Perhaps;
        // Surely not charged: what flows out until it is sent again is not owed then.
        if bill.carriers == 0 && !bill.is_perhaps_paid {
            account.bill = None;
        }
    }

    /// The store said how many permits are in use of rules, by their place: so many at least are, beside
    /// what it does not know of.
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
        let (mut others, stored) = ([0; RULES_MAX], rules.in_use(&account.stored, at));
        for (rule, used) in said {
            others[*rule] = used.saturating_sub(stored[*rule]);
        }
        rules.debit(&mut account.used, &mut others, at);
        rules.debit(&mut account.stored, &mut others.clone(), at);
        if let Some(bill) = &mut account.bill {
            rules.debit(&mut bill.used, &mut others, at);
        }
    }

    /// At most `count` keys whose debts are not on their way, each in its turn: a debt that cannot be
    /// charged yet does not hold others up.
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
        // In the same order wherever the same was admitted: a simulation can be run again.
        debtors.sort_by(|a: &Debtor, b| (&a.policy, &a.key).cmp(&(&b.policy, &b.key)));
        debtors
    }

    /// Forgets a debt that nothing can be charged for: its policy is gone.
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
    /// `at`, but not before a caller that came earlier: time does not go back between callers.
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
            // Rules with calendars stay: their windows are not at hand here.
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

    /// Decides `verb`, in which each permit counts as many times as there are nodes, on what is in use
    /// here. Of `at_most` a part of a permit is not taken, as none is granted.
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

    /// Takes what is in use over into other rules of the key.
    ///
    /// What the store remembers of a bill is one number for each rule that it was charged to. Under more or
    /// fewer rules nobody could read it, so the key gets a new bill: what was perhaps charged is charged anew.
    fn adopt(&mut self, rules: &Arc<RuleSet>, at: &Moment<'_>) {
        if Arc::ptr_eq(&self.rules, rules) {
            return;
        }
        self.stored = rules.take_over(&self.rules, &self.stored, at);
        self.used = rules.take_over(&self.rules, &self.used, at);
        if rules.rules().len() != self.rules.rules().len() {
            self.bill = None;
            self.bill_id = fastrand::u128(..);
        } else if let Some(bill) = &mut self.bill {
            bill.used = rules.take_over(&self.rules, &bill.used, at);
        }
        self.rules = Arc::clone(rules);
    }

    /// Permits of each rule that the store does not know of.
    fn owed(&self, at: &Moment<'_>) -> Permits {
        let (mut owed, stored) =
            (self.rules.in_use(&self.used, at), self.rules.in_use(&self.stored, at));
        for (owed, stored) in owed.iter_mut().zip(stored) {
            *owed = owed.saturating_sub(stored).div_ceil(self.nodes).min(COST_MAX);
        }
        owed
    }

    /// What the store can charge of it.
    fn debt(&self, at: &Moment<'_>) -> Permits {
        let mut debt = self.owed(at);
        for (debt, named) in debt.iter_mut().zip(self.rules.rules()) {
            if named.rule.holds_permits() {
                *debt = 0;
            }
        }
        debt
    }

    /// Permits that are held by id, and that the store does not know of.
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
    /// A bill of so many permits; `None` if there are none.
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
