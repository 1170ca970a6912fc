//! Every history of small worlds: the store, two holders and one key, explored whole by a model checker.
//!
//! The adversary of the kernel and the simulator draw histories; here all are explored that consist of the events
//! of [`Event`], within the bounds of a [`Small`] world. A holder without further messages has crashed. Time goes in
//! steps, which keeps a world small: the others find errors of a few microseconds.
//!
//! The product's own code takes every step: the kernel's at the store, [`LeaseSession`] and [`Cell`] at a holder. The two
//! lines that the rest of the engine adds to an edit, in `KeyLease::change_rules`, are repeated here.

mod broken;
mod checks;
mod world;

use std::num::NonZero;
use std::thread::available_parallelism;

use sluicegate_kernel::algorithm::{Units, WindowKind};
use sluicegate_kernel::{FixedWindow, Rate, RuleSet, TokenBucket};
use stateright::{Checker, HasDiscoveries, Model, Property};

use super::*;
use broken::Broken;
use world::{Event, World};

/// The time between two instants. Nothing happens in between.
const STEP: Micros = Micros::from_millis(160);

/// The term of a lease. Its record lasts 250 ms: until after the second instant, and not until the third.
const TERM: Micros = STEP;
const PATIENCE: Micros = Micros::from_millis(80);

/// The time in which one permit flows into a bucket.
const PERMIT: u64 = 2 * STEP.get();

/// The first instant at the store.
const BEGIN: u64 = 1_000_000_000;

/// The window of a quota: one that no history leaves.
const WINDOW: WindowKind = WindowKind::Epoch(Micros::new(100 * BEGIN));

const HOLDERS: [Holder; 2] = [Holder(1), Holder(2)];

/// The bounds of a world.
#[derive(Clone, Debug)]
struct Small {
    /// The rule is a bucket, into which permits flow back; otherwise a quota.
    flows: bool,
    /// The limit of each version of the policy, one after the other.
    limits: &'static [u64],
    /// Number of instants of a history.
    instants: u64,
    /// Most messages and answers that are under way at a time.
    under_way_max: usize,
    /// Most messages of each holder.
    messages_max: [u32; 2],
    /// Most requests that are decided at the store, beside all leases.
    central_max: u32,
    /// Most permits that the store is asked to give back.
    refunds_max: u32,
    /// The clock of the store goes back, once, by a step.
    goes_back: bool,
    /// The fault of the protocol, if it has one.
    broken: Option<Broken>,
}

/// One message of the second holder, three permits, three instants.
const SMALLEST: Small = Small {
    flows: true,
    limits: &[3],
    instants: 3,
    under_way_max: 2,
    messages_max: [2, 1],
    central_max: 9,
    refunds_max: 0,
    goes_back: false,
    broken: None,
};

impl Small {
    fn bucket(&self, version: usize) -> TokenBucket {
        let rate = Rate::new(1, Micros::new(PERMIT)).expect("a rate");
        TokenBucket::new(rate, self.limits[version]).expect("a bucket")
    }

    /// The rules of this version.
    fn rules(&self, version: usize) -> RuleSet {
        if self.flows {
            return RuleSet::single("r", self.bucket(version));
        }
        let quota = FixedWindow::new(self.limits[version], WINDOW).expect("a quota");
        RuleSet::single("r", quota)
    }

    /// Explores all of it. Returns the number of worlds, and the fault of the first wrong one, with the path to it.
    fn explore(self) -> (usize, Option<String>) {
        let threads = available_parallelism().map_or(1, NonZero::get);
        let checker = Explored::of(self).checker().threads(threads);
        let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
        assert!(checker.is_done(), "nothing is left to explore");
        let found = checker.discoveries();
        let reached = found.contains_key(ALL_IS_USED);
        let failed = found.into_iter().find(|(name, _)| *name != ALL_IS_USED);
        let failed = failed.map(|(name, path)| {
            let wrong = path.last_state().wrong(checker.model()).unwrap_or_default();
            format!("{name}: {wrong} after {:?}", path.into_actions())
        });
        assert!(failed.is_some() || reached, "{ALL_IS_USED}");
        (checker.unique_state_count(), failed)
    }
}

const NEVER_MORE: &str = "never more than the limit is admitted, and nothing is lost";
const ALL_IS_USED: &str = "the whole limit can be used";

/// A small world for the checker.
struct Explored {
    small: Small,
    /// The rules of each version.
    rules: Vec<RuleSet>,
    /// The units of a bucket. A permit is [`PERMIT`] ticks of a µs in each version.
    units: Units,
    /// The most that may be admitted at a time, in the units of [`World::admitted`].
    most: u64,
}

impl Explored {
    fn of(small: Small) -> Self {
        let versions = 0..small.limits.len();
        let units = small.bucket(0).units();
        let per_permit_us = units.per_permit / units.per_tick * units.tick_us;
        assert_eq!(per_permit_us, PERMIT, "a permit flows out in as many µs");
        let most = versions.clone().map(|version| small.limits[version] * PERMIT).max();
        Self {
            rules: versions.map(|version| small.rules(version)).collect(),
            most: most.expect("there is a version"),
            units,
            small,
        }
    }
}

impl Model for Explored {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World::new()]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        world.events(&self.small, events);
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        world.after(event, self)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_MORE, |model: &Self, world: &World| {
                world.wrong(model).is_none()
            }),
            Property::sometimes(ALL_IS_USED, |model: &Self, world: &World| {
                world.admitted == model.most
            }),
        ]
    }
}

/// A message of each holder, three under way, four permits and instants, an edit and a refund.
const LARGER: Small = Small {
    limits: &[4, 2],
    instants: 4,
    under_way_max: 3,
    messages_max: [1, 1],
    central_max: 2,
    refunds_max: 1,
    ..SMALLEST
};

/// Explores `small`, which has more than `more_than` worlds; or `larger`, which takes minutes, if the
/// environment asks for it.
#[track_caller]
fn holds(small: Small, more_than: usize, larger: Small) {
    let is_night = std::env::var_os("SLUICEGATE_LARGER_WORLDS").is_some();
    let (worlds, wrong) = if is_night { larger } else { small }.explore();
    assert_eq!(wrong, None);
    assert!(worlds > more_than, "{worlds} worlds");
}

#[test]
fn whatever_two_holders_send_no_more_is_admitted() {
    let small = Small { goes_back: true, ..SMALLEST };
    holds(small.clone(), 4_900_000, Small { under_way_max: 3, ..small });
}

#[test]
fn of_a_quota_no_more_is_admitted_and_nothing_is_lost_for_ever() {
    let small = Small { flows: false, limits: &[4], ..SMALLEST };
    holds(small.clone(), 840_000, Small { instants: 4, under_way_max: 3, ..small });
}

#[test]
fn a_quota_that_is_lowered_and_raised_again_stays_that_quota() {
    let small = Small { flows: false, limits: &[4, 1, 4], messages_max: [2, 0], ..SMALLEST };
    holds(small.clone(), 830_000, Small { messages_max: [2, 1], ..small });
}

#[test]
fn an_edit_of_a_bucket_lets_no_more_pass_than_the_larger_limit() {
    holds(Small { central_max: 1, refunds_max: 0, ..LARGER }, 2_000_000, LARGER);
}

#[test]
fn of_a_quota_with_an_edit_and_a_refund_no_more_is_admitted() {
    let quota = Small { flows: false, ..LARGER };
    holds(Small { central_max: 1, ..quota.clone() }, 3_600_000, quota);
}
