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
//! The store may have no room for a debt, because others have filled its budget. Then `used` is more than the
//! limit, and the debt flows out after what the store has counted, as it would in one large budget.
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

use sluicegate_kernel::{Cost, Micros, Moment, RuleSet, States, Unsupported, Verb, Verdict};
use sluicegate_store::{Executed, KeyHash, Permits, StoreRequest};

use super::account::{Account, Billed, Debtor};

/// Most accounts: some 400 bytes each, 100 MB in all. A key without an account is refused until the
/// store answers, since its grants would not be recorded.
pub(super) const ACCOUNTS_MAX: usize = 250_000;

/// Longest time that a caller's reading of the clock may be behind the latest one, because it waited for its
/// turn. A clock that is further behind was set back.
const LATE_MAX: Micros = Micros::SECOND;

/// Shortest interval between searches for accounts without a debt when there is no room.
const SWEEP_EVERY: Micros = Micros::SECOND;

/// A request that is decided here by a share of the budget.
pub(super) struct SharedRequest<'r, F> {
    pub(super) key: KeyHash,
    pub(super) request: &'r StoreRequest<'r>,
    /// The number of permits that stand for one, for a key without an account.
    pub(super) nodes: u64,
    /// Returns the verb in which each permit counts that many times.
    pub(super) scaled: F,
}

/// The debts of all keys.
#[derive(Debug, Default)]
pub(super) struct Debts {
    accounts: Mutex<Accounts>,
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
struct Accounts {
    of: HashMap<KeyHash, Account>,
    latest: Micros,
    swept_at: Micros,
    /// The number of the current round of [`Debts::debtors`], from 1 on.
    round: u64,
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
        accounts.of.get(&key).is_some_and(|account| account.is_chargeable(at))
    }

    /// Decides a request on the permits in use here, and records its grant. Returns the verdict, and how many
    /// permits stand for one. `known` is the usage that the store last reported.
    ///
    /// `None` decides nothing: the cost is out of range, or there is no room for another account.
    pub(super) fn decide(
        &self,
        shared: SharedRequest<'_, impl Fn(u64) -> Option<Verb>>,
        at: &Moment<'_>,
        known: impl FnOnce(&Moment<'_>) -> States,
    ) -> Result<Option<(Verdict, u64)>, Unsupported> {
        let SharedRequest { key, request, nodes, scaled } = shared;
        request.rules.supports(request.verb)?;
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        if let Some(account) = accounts.of.get_mut(&key) {
            let nodes = account.begin(request.rules, nodes, at);
            let Some(verb) = scaled(nodes) else { return Ok(None) };
            return Ok(Some((account.decide(&verb, at)?, nodes)));
        }
        let Some(verb) = scaled(nodes) else { return Ok(None) };
        let mut stored = known(at);
        let before = stored.clone();
        request.rules.first_seen(&mut stored, at);
        request.rules.rewind(&mut stored, at);
        let begins = stored != before;
        let mut account = Account::new(request, nodes, stored);
        let verdict = account.decide(&verb, at)?;
        // A refused key needs no account, unless its budget begins to fill now, or again as the clock was set back.
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
        account.decide_held(request.verb, at)
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
        if let Some(billed) = account.send_bill(at) {
            return Some(billed);
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
        account.paid(id, permits, at);
        if !account.has_debt(at) {
            accounts.of.remove(&key);
            self.count(&accounts);
        }
    }

    /// Records that a request that carried the debt with this id was not answered.
    pub(super) fn unpaid(&self, key: KeyHash, id: u128, executed: Executed) {
        let mut accounts = self.lock();
        if let Some(account) = accounts.of.get_mut(&key) {
            account.unpaid(id, executed);
        }
    }

    /// Records the permits in use that the store reported for rules, by their place: at least so many are in
    /// use, beside those that it has not counted yet. Both together may be more than the limit: a debt that
    /// waits for room in a full budget flows out after what fills it.
    pub(super) fn record_usage(
        &self,
        key: KeyHash,
        rules: &Arc<RuleSet>,
        reported: &[(usize, u64)],
        at: &Moment<'_>,
    ) {
        if self.len() == 0 {
            return;
        }
        let mut accounts = self.lock();
        let at = &accounts.in_turn(at);
        if let Some(account) = accounts.of.get_mut(&key) {
            account.record_usage(rules, reported, at);
        }
    }

    /// Returns at most `count` keys whose debts are not on their way, each in its turn: a debt that cannot be
    /// charged yet does not delay others.
    pub(super) fn debtors(&self, count: usize) -> Vec<Debtor> {
        if self.len() == 0 {
            return Vec::new();
        }
        let mut accounts = self.lock();
        let round = accounts.round;
        let accounts_left = accounts.of.values_mut();
        let mut waiting =
            accounts_left.filter(|account| account.round != round && !account.is_carried());
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

    fn count(&self, accounts: &Accounts) {
        self.open.store(accounts.of.len(), Ordering::Release);
    }

    /// The accounts, also after a panic elsewhere: each is changed in one step.
    fn lock(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Accounts {
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
                let stays = account.has_bill() || account.has_calendars();
                stays || account.has_debt(&Moment::new(at.now()))
            });
        }
        self.of.len() < ACCOUNTS_MAX
    }
}

impl Default for Accounts {
    fn default() -> Self {
        Self { of: HashMap::new(), latest: Micros::ZERO, swept_at: Micros::ZERO, round: 1 }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::{Carry, FixedWindow, NamedRule, Rate, TokenBucket};
    use sluicegate_store::{KeyHash, MemoryStore, Quota, RuleOrigin};

    use super::*;

    const NOW: Moment<'_> = Moment::new(Micros::from_secs(100));

    fn quota(name: &str, limit: u64) -> NamedRule {
        let day = Micros::from_secs(86_400);
        NamedRule::new(name, FixedWindow::epoch(limit, day).expect("a quota"))
    }

    fn set(rules: Vec<NamedRule>) -> Arc<RuleSet> {
        Arc::new(RuleSet::new(rules).expect("a set"))
    }

    fn a_bucket_of(burst: u64, a_second: u64) -> Arc<RuleSet> {
        let rate = Rate::per_second(a_second).expect("a rate");
        set(vec![NamedRule::new("r", TokenBucket::new(rate, burst).expect("a bucket"))])
    }

    fn second_after_now(second: u64) -> Moment<'static> {
        Moment::new(Micros::from_secs(100 + second))
    }

    fn a_day_of(limit: u64) -> Arc<RuleSet> {
        set(vec![quota("r", limit)])
    }

    /// Returns whether the share of one of `nodes` lets a request of this cost pass now.
    fn passes(debts: &Debts, of: (KeyHash, &Arc<RuleSet>), nodes: u64, cost: u64) -> bool {
        passes_at(debts, of, nodes, cost, &NOW)
    }

    fn passes_at(
        debts: &Debts,
        (key, rules): (KeyHash, &Arc<RuleSet>),
        nodes: u64,
        cost: u64,
        at: &Moment<'_>,
    ) -> bool {
        let check = |cost| Verb::Check { cost: Cost::new(cost).expect("a cost") };
        let (verb, origin, quota) = (check(cost), RuleOrigin::default(), Quota::default());
        let request = StoreRequest { policy: "p", key: b"k", rules, verb: &verb, origin, quota };
        let scaled = |nodes| Some(check(cost * nodes));
        let shared = SharedRequest { key, request: &request, nodes, scaled };
        let decided = debts.decide(shared, at, |_| States::default());
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

    /// Another node pays first and takes the room that this node's debt waits for.
    #[test]
    fn a_debt_that_waits_for_room_flows_out_after_what_fills_the_budget() {
        let (rules, second) = (a_bucket_of(300, 100), second_after_now);
        let key = MemoryStore::new(1).hash("p", b"k");
        let debts = Debts::default();
        assert!(passes(&debts, (key, &rules), 2, 150));
        let bill = debts.bill(key, &rules, &second(0)).expect("150 are owed");
        debts.record_usage(key, &rules, &[(0, 300)], &second(0));
        debts.paid(key, bill.debt.id, Permits::default(), &second(0));
        let owed = |s| debts.bill(key, &rules, &second(s)).map(|bill| bill.debt.permits[0]);
        let owed = [2, 3, 4, 5].map(|s| {
            let owed = owed(s);
            debts.unpaid(key, bill.debt.id, Executed::No);
            owed
        });
        assert_eq!(owed, [Some(150), Some(150), Some(100), Some(50)]);
    }

    /// The last report was about the rules in another order.
    #[test]
    fn a_share_after_an_edit_does_not_take_a_report_for_one_about_other_rules() {
        let bucket = |name: &str, burst| {
            let rate = Rate::per_second(100).expect("a rate");
            NamedRule::new(name, TokenBucket::new(rate, burst).expect("a bucket"))
        };
        let both = set(vec![bucket("a", 300), bucket("b", 1_000)]);
        let swapped = set(vec![bucket("b", 1_000), bucket("a", 300)]);
        let (debts, key) = (Debts::default(), MemoryStore::new(1).hash("p", b"k"));
        assert!(passes(&debts, (key, &both), 2, 50));
        debts.record_usage(key, &both, &[(0, 0), (1, 700)], &NOW);
        assert!(passes(&debts, (key, &swapped), 2, 100), "700 + 2 * 50 of 1,000 and 100 of 300");
    }

    /// The node was one of four, and 20 of its 75 are charged.
    #[test]
    fn what_a_bucket_of_the_store_counts_is_counted_once_here() {
        let (rules, debts) = (a_bucket_of(300, 100), Debts::default());
        let key = MemoryStore::new(1).hash("p", b"k");
        assert!(passes(&debts, (key, &rules), 4, 75));
        let bill = debts.bill(key, &rules, &NOW).expect("75 are owed");
        let mut paid = Permits::default();
        paid[0] = 20;
        debts.paid(key, bill.debt.id, paid, &NOW);
        let asks = |cost| passes(&debts, (key, &rules), 4, cost);
        assert!(!asks(16) && asks(15), "20 are in use in the store, and 4 * 55 here");
        let rest = debts.bill(key, &rules, &NOW).expect("a rest is owed").debt.permits[0];
        assert_eq!(rest, 70, "nothing is billed twice");
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

    /// A first bill may have been charged; all of its permits have flowed out when the node learns of another one.
    #[test]
    fn more_nodes_do_not_pay_for_permits_of_a_bill_that_have_flowed_out() {
        let (rules, debts) = (a_bucket_of(300, 100), Debts::default());
        let key = MemoryStore::new(1).hash("p", b"k");
        let asks =
            |nodes, cost, s| passes_at(&debts, (key, &rules), nodes, cost, &second_after_now(s));
        assert!(asks(1, 150, 0));
        let bill = debts.bill(key, &rules, &second_after_now(0)).expect("150 are owed");
        assert!(asks(1, 150, 2), "150 have flowed out");
        assert!(!asks(2, 150, 2), "300 of 300 are in use");
        let mut paid = Permits::default();
        paid[0] = 150;
        debts.paid(key, bill.debt.id, paid, &second_after_now(2));
        let rest = debts.bill(key, &rules, &second_after_now(2)).expect("a rest").debt.permits[0];
        assert_eq!(rest, 150, "nothing is taken as paid that was admitted later");
    }

    /// The store's last report is of an hour later, by a clock that was set back since.
    #[test]
    fn a_share_goes_on_after_the_clock_was_set_back() {
        let (rules, debts) = (a_bucket_of(300, 100), Debts::default());
        let (key, check) = (MemoryStore::new(1).hash("p", b"k"), Cost::new(300).expect("a cost"));
        let mut known = States::default();
        let taken =
            rules.decide(&mut known, &Verb::Check { cost: check }, &second_after_now(3_600));
        assert!(taken.expect("a check").decision.allowed());
        let verb = Verb::Check { cost: Cost::ONE };
        let (origin, quota, rules) = (RuleOrigin::default(), Quota::default(), &rules);
        let request = StoreRequest { policy: "p", key: b"k", rules, verb: &verb, origin, quota };
        let passes = |second| {
            let (scaled, at) = (|_| Some(verb.clone()), second_after_now(second));
            let shared = SharedRequest { key, request: &request, nodes: 1, scaled };
            let decided = debts.decide(shared, &at, |_| known.clone());
            decided.expect("a check").expect("there is room").0.decision.allowed()
        };
        assert_eq!([0, 1].map(passes), [false, true]);
    }

    #[test]
    fn callers_that_come_up_to_a_second_late_are_decided_at_the_instant_of_the_last_one() {
        let (of, zero) = (HashMap::new(), Micros::ZERO);
        let mut debts = Accounts { of, latest: zero, swept_at: zero, round: 1 };
        let mut decided_at = |ms| debts.in_turn(&Moment::new(Micros::from_millis(ms))).now();
        assert_eq!(decided_at(10_000), Micros::from_millis(10_000));
        assert_eq!(decided_at(9_500), Micros::from_millis(10_000));
        assert_eq!(decided_at(9_000), Micros::from_millis(10_000));
        assert_eq!(decided_at(8_999), Micros::from_millis(8_999), "the clock was set back");
        assert_eq!(decided_at(9_000), Micros::from_millis(9_000));
    }
}
