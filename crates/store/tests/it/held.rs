//! Every store lists the permits of a key that are held, as the kernel does, also after an edit of the rules.

use std::sync::Arc;

use sluicegate_kernel::{
    Concurrency, Cost, FixedWindow, HeldPermits, Micros, Moment, NamedRule, PermitId, ProcessId,
    RuleSet, Verb, algorithm::WindowKind,
};
use sluicegate_store::{
    BeyondQuota, MemoryStore, Quota, RuleOrigin, Store, StoreError, StoreRequest,
};

const NOW: Micros = Micros::from_secs(1_800_000_000);

/// A version of the rules of one key, as a process has it.
pub(crate) struct Version {
    pub(crate) rules: Arc<RuleSet>,
    pub(crate) origin: RuleOrigin,
}

impl Version {
    /// Returns the version that was taken over so many seconds after 2026 began.
    pub(crate) fn new(seconds: u64, rules: RuleSet) -> Self {
        let since = Micros::from_secs(1_767_225_600 + seconds);
        Self { rules: Arc::new(rules), origin: RuleOrigin::Policy { since } }
    }

    fn request<'a>(&'a self, key: &'a str, verb: &'a Verb) -> StoreRequest<'a> {
        let Self { rules, origin } = self;
        let (key, quota) = (key.as_bytes(), Quota::default());
        StoreRequest { policy: "p", key, rules, verb, origin: *origin, quota }
    }

    pub(crate) async fn decide(
        &self,
        store: &impl Store,
        key: &str,
        verb: &Verb,
        at_s: u64,
    ) -> u64 {
        let decided = store.decide(&self.request(key, verb), &at(at_s)).await;
        decided.expect("the store answers").verdict.decision.granted()
    }

    pub(crate) async fn held(
        &self,
        store: &impl Store,
        key: &str,
        at_s: u64,
    ) -> Result<HeldPermits, StoreError> {
        store.held(&self.request(key, &Verb::Reset), &at(at_s)).await
    }

    /// The ids by name, costs and seconds until they lapse, and how many requests wait.
    async fn listed(
        &self,
        store: &impl Store,
        names: &[&'static str],
        at_s: u64,
    ) -> (Vec<(&'static str, u64, u64)>, u64) {
        let held = self.held(store, "key", at_s).await.expect("the store answers");
        let listed = held.permits.iter().map(|held| {
            let name = names.iter().find(|name| PermitId::named(name) == held.permit);
            let name = name.expect("a permit of the test");
            (*name, held.cost, held.lapses_after.get() / 1_000_000)
        });
        (listed.collect(), held.waiting)
    }
}

fn at(seconds: u64) -> Moment<'static> {
    Moment::new(NOW.plus(Micros::from_secs(seconds)))
}

pub(crate) fn slots(limit: u64, ttl_s: u64, queue: u64) -> NamedRule {
    let rule = Concurrency::new(limit, Micros::from_secs(ttl_s), queue).expect("a rule");
    NamedRule::new("slots", rule)
}

pub(crate) fn acquire(name: &str, cost: u64) -> Verb {
    Verb::Acquire { cost: Cost::new(cost).expect("a cost"), permit: PermitId::named(name) }
}

/// Plays the life of a key in `store`: acquired, waited for, listed, edited, released.
pub(crate) async fn check(store: &impl Store) {
    const NAMES: &[&str] = &["a", "b", "c"];
    let one = |rule| RuleSet::new(vec![rule]).expect("one rule");
    let first = Version::new(1, one(slots(3, 30, 1)));
    assert_eq!(first.listed(store, NAMES, 0).await, (vec![], 0));
    assert_eq!(first.decide(store, "key", &acquire("a", 1), 0).await, 1);
    assert_eq!(first.decide(store, "key", &acquire("b", 2), 10).await, 2);
    let (permit, process) = (PermitId::named("c"), ProcessId(7));
    let wait = Verb::Wait { cost: Cost::ONE, permit, process };
    assert_eq!(first.decide(store, "key", &wait, 10).await, 0);
    let both = (vec![("a", 1, 19), ("b", 2, 29)], 1);
    assert_eq!(first.listed(store, NAMES, 11).await, both);
    assert_eq!(first.listed(store, NAMES, 11).await, both, "nothing changed");
    // An edit with a shorter ttl, and with another rule in front: the list is of the new rules.
    let hourly = FixedWindow::new(100, WindowKind::Epoch(Micros::from_secs(3_600)));
    let hourly = NamedRule::new("hourly", hourly.expect("a window"));
    let edited = RuleSet::new(vec![hourly, slots(3, 15, 0)]).expect("two rules");
    let second = Version::new(2, edited);
    assert_eq!(second.listed(store, NAMES, 11).await, (vec![("a", 1, 15), ("b", 2, 15)], 0));
    // Released by its id, as the list has it.
    let held = second.held(store, "key", 11).await.expect("the store answers");
    let stuck = held.permits.iter().find(|held| held.cost == 2).expect("it is held");
    let release = Verb::Release { permit: stuck.permit };
    assert_eq!(second.decide(store, "key", &release, 11).await, 2);
    assert_eq!(second.listed(store, NAMES, 12).await, (vec![("a", 1, 14)], 0));
    let renew = Verb::Renew { permit: PermitId::named("b") };
    assert_eq!(second.decide(store, "key", &renew, 12).await, 0, "its holder learns of it");
    assert_eq!(second.listed(store, NAMES, 40).await, (vec![], 0));
    let window = FixedWindow::new(1, WindowKind::Epoch(Micros::SECOND)).expect("a window");
    let third = Version::new(3, RuleSet::single("slots", window));
    let none = third.held(store, "key", 40).await;
    assert!(matches!(none, Err(StoreError::Unsupported(_))), "{none:?}");
}

#[tokio::test]
async fn the_memory_store_lists_the_permits_that_are_held() {
    check(&MemoryStore::default()).await;
}

#[tokio::test]
async fn a_key_without_room_has_no_list_of_its_own() {
    let store = MemoryStore::new(1);
    let version = Version::new(1, RuleSet::single("slots", slots(9, 30, 0).rule));
    assert_eq!(version.decide(&store, "first", &acquire("a", 9), 0).await, 9);
    let shared = version.decide(&store, "second", &acquire("a", 1), 0).await;
    let held = version.held(&store, "second", 0).await;
    assert_eq!(shared, 1, "{:?} shares a budget", BeyondQuota::Share);
    assert!(matches!(held, Err(StoreError::Unreadable { .. })), "{held:?}");
    assert_eq!(version.held(&store, "first", 0).await.map(|held| held.permits.len()), Ok(1));
    // When the shared budget is free, nothing is held of a key that has no state.
    let held = version.held(&store, "second", 31).await;
    assert_eq!(held, Ok(HeldPermits::default()));
}
