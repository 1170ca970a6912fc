//! Checks of permits that nodes hold, and of what the store accounts for.

use std::sync::Arc;

use sluicegate::internals::policy::LeaseBounds;
use sluicegate::internals::store::lease::{Found, Holder, LeaseGrant};
use sluicegate::{Answer, Cost, Decision};

use super::World;
use crate::node;
use crate::plan::{Fault, FaultKind, MS, Plan, RuleSpec, SECOND};
use crate::promises::Invariant;
use crate::wire::StoreAsk;

/// The time after the last request to a key, and after its usage has flowed out, until the store has removed it, µs:
/// the minute for which hints are believed, and two seconds in which leased permits lapse.
const GONE_AFTER_US: u64 = 62 * SECOND;

/// The longest time from a message until all leased permits have lapsed, µs: the longest term, a sixteenth, and the
/// longest patience.
const LAPSES_WITHIN_US: u64 = 2_375 * MS;

/// The most checks of a key that a node sends to the store in a row before the key is leased: four times as many as
/// make it hot.
const CENTRAL_MAX: u32 = 32;

/// The longest time from the first of them until the key is leased, µs: messages have been there and back.
const CENTRAL_MAX_US: u64 = 500 * MS;

/// The longest pause between checks that still count as a row, µs.
const CENTRAL_WITHIN_US: u64 = 50 * MS;

/// The fewest permits that are leased: as many as the checks that make a key hot.
const SHARED_MIN: u64 = 8;

/// Checks in a row that one node sent to the store, and that passed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Central {
    checks: u32,
    since: u64,
    last: u64,
}

/// The time within which a node that stops gives its leases back, µs: calls under way come back first.
const RETURNED_WITHIN_US: u64 = 300 * MS;

/// The last grant of a key to a process.
#[derive(Clone, Copy, Debug, Default)]
struct Grant {
    life: u32,
    holder: Option<Holder>,
    permits: u64,
    /// The time at which the last permit lapses, µs.
    until: u64,
    /// The store had as much left as the process had asked for and not got.
    is_plenty: bool,
}

/// The grants of all nodes and keys.
#[derive(Debug)]
pub(crate) struct Grants {
    of: Vec<Vec<Grant>>,
    /// Until when the store may not account for leased permits of each key, and of each node, µs.
    keys_lost_until: Vec<u64>,
    nodes_lost_until: Vec<u64>,
}

/// A key at a node, in one of its lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyAtNode {
    pub(crate) node: usize,
    pub(crate) life: u32,
    pub(crate) key: usize,
}

impl Grants {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            of: vec![vec![Grant::default(); plan.keys]; plan.nodes],
            keys_lost_until: vec![0; plan.keys],
            nodes_lost_until: vec![0; plan.nodes],
        }
    }

    /// Notes the store's answer to a message.
    pub(crate) fn granted(
        &mut self,
        now: u64,
        at_node: KeyAtNode,
        ask: &StoreAsk,
        grant: &LeaseGrant,
    ) {
        let KeyAtNode { node, life, key } = at_node;
        let holder = ask.message.as_ref().map(|message| message.holder);
        if holder == Some(Holder::NONE) {
            // The message only reads.
            return;
        }
        let held = &mut self.of[node][key];
        if held.life > life {
            return;
        }
        // The end of earlier permits counts as well, in case the holder does not receive this answer.
        let until = match grant.found {
            // Charged at once, for requests that wait for the answer.
            Found::Full => now + LAPSES_WITHIN_US,
            _ => now + grant.lasts.get(),
        };
        let permits = u64::from(grant.kept) + u64::from(grant.granted);
        let asked = ask.message.map_or(0, |it| u64::from(it.need) + u64::from(it.want));
        let is_plenty = asked > 0 && grant.free >= asked.saturating_sub(grant.granted.into());
        *held = Grant { life, holder, permits, until, is_plenty };
    }

    /// Notes that from now on the store may not account for leased permits of `key`, or of any key.
    pub(crate) fn are_lost(&mut self, now: u64, key: Option<usize>) {
        for (place, until) in self.keys_lost_until.iter_mut().enumerate() {
            if key.is_none_or(|key| key == place) {
                *until = now + LAPSES_WITHIN_US;
            }
        }
    }

    /// Notes that permits of `key` end later by the clock of `node` than by the store's. Returns how many it holds.
    pub(crate) fn goes_on(&mut self, now: u64, node: usize, key: usize) -> u64 {
        self.nodes_lost_until[node] = now + LAPSES_WITHIN_US;
        self.of[node][key].permits
    }
}

/// `RefusalEndsAtItsRetry`: a holder refuses nothing that passes, if the store had as much left as it had asked for.
/// With several holders, others give permits back meanwhile, which a remembered refusal does not notice for a second.
pub(crate) fn check_refusal(world: &mut World<'_>, node: usize, key: usize, cost: Cost) {
    let (now, Grant { life, is_plenty, .. }) = (world.now, world.grants.of[node][key]);
    let is_alone = world.plan.nodes == 1;
    let is_calm = is_alone && world.plan.is_quiet() && life == world.nodes[node].life;
    let passes = world.server.refuses(&node::key_name(key), cost, now) == Some(false);
    if is_calm && is_plenty && passes {
        let what = format!("node {node} refuses {cost:?} of key {key}, and the store had plenty");
        world.record.fail(Invariant::RefusalEndsAtItsRetry, now, what);
    }
}

/// `HotKeyIsLeased`: a hot key is leased while the store answers and has plenty. Checks a decision of the store.
pub(crate) fn check_central(
    world: &mut World<'_>,
    node: usize,
    key: usize,
    answer: &Answer,
    is_disturbed: bool,
) {
    let now = world.now;
    let version = world.nodes[node].version;
    let Decision { limit, remaining, .. } = answer.decision;
    // The key changes over to other rules with its next message.
    let is_changing = world.plan.versions.len() > 1;
    // With as many holders as there may be, a key has no place; and a node that stops leases nothing more.
    let takes = |kind| matches!(kind, FaultKind::Crowd(_) | FaultKind::NodeStopped);
    let is_full = world.plan.faults.iter().any(|fault| takes(fault.kind));
    let policy = world.policies[version].resolve("p").expect("each version has it");
    let rules = policy.rules_at(b"a", sluicegate::Micros::ZERO);
    let limits = rules.rules.set().rules().iter().map(|named| named.rule.limit());
    let least = limits.min().unwrap_or(0);
    let has_share = |bounds: LeaseBounds| least * u64::from(bounds.share_percent) / 100;
    let share = policy.lease_bounds().map_or(0, has_share);
    let is_leasable = share >= SHARED_MIN && rules.rules.set().leasing_span().is_ok();
    let is_meant = world.plan.leases && is_leasable && !is_changing && !is_full && !is_disturbed;
    let has_plenty = answer.decision.allowed() && remaining > limit / 2;
    let central = &mut world.central[node][key];
    if !is_meant || !has_plenty || now > central.last + CENTRAL_WITHIN_US {
        *central = Central { since: now, ..Central::default() };
    }
    (central.checks, central.last) = (central.checks + 1, now);
    if central.checks > CENTRAL_MAX && now > central.since + CENTRAL_MAX_US {
        let what = format!("node {node} asks the store for each check of key {key}");
        world.record.fail(Invariant::HotKeyIsLeased, now, what);
    }
}

/// `LapsedPermitsUnused`: permits that `node` uses have not lapsed.
pub(crate) fn check_end_of(world: &mut World<'_>, node: usize, key: usize) {
    let (now, Grant { life, until, .. }) = (world.now, world.grants.of[node][key]);
    let Grants { keys_lost_until, nodes_lost_until, .. } = &world.grants;
    let is_lost = nodes_lost_until[node].max(keys_lost_until[key]) > now;
    if !is_lost && (life != world.nodes[node].life || now >= until) {
        let what = format!("node {node} takes permits of key {key} that lapsed at {until} µs");
        world.record.fail(Invariant::LapsedPermitsUnused, now, what);
    }
}

/// `LeasesAccountedFor`: the store accounts for what `node` holds; `HoldersAreBounded`: a node leases few keys.
pub(crate) fn check_held(world: &mut World<'_>, node: usize) {
    let now = world.now;
    if !world.plan.leases || !world.nodes[node].is_up || world.grants.nodes_lost_until[node] > now {
        return;
    }
    world.nodes[node].clock.set(now);
    let leased = world.nodes[node].engine.leased_keys();
    if leased.len() > world.plan.keys {
        let what = format!("node {node} leases {} keys", leased.len());
        world.record.fail(Invariant::HoldersAreBounded, now, what);
    }
    for leased in leased.iter().filter(|leased| leased.left > 0 && leased.ends_in.get() > 0) {
        let Some(key) = (0..world.plan.keys).find(|key| node::key_name(*key)[..] == leased.key)
        else {
            continue;
        };
        if world.grants.keys_lost_until[key] > now {
            continue;
        }
        let Grant { holder, .. } = world.grants.of[node][key];
        let grant = holder.map_or(0, |holder| world.server.held_by(&leased.key, holder, now));
        if u64::from(leased.left) > grant {
            let left = leased.left;
            let what = format!("node {node} has {left} permits of key {key}, the store {grant}");
            world.record.fail(Invariant::LeasesAccountedFor, now, what);
        }
    }
}

/// `MessageKeepsWhatIsUsable`: a message of `node` keeps no more than the node can still use; the store would reserve
/// the rest in vain.
pub(crate) fn check_kept(world: &mut World<'_>, node: usize, ask: &StoreAsk) {
    let Some(message) = ask.message.filter(|message| message.keep > 0) else { return };
    let leased = world.nodes[node].engine.leased_keys();
    let usable = leased.iter().filter(|it| it.key == ask.key && it.ends_in.get() > 0);
    let usable: u32 = usable.map(|leased| leased.left).sum();
    if message.keep > usable {
        let what = format!("node {node} keeps {} permits and can use {usable}", message.keep);
        world.record.fail(Invariant::MessageKeepsWhatIsUsable, world.now, what);
    }
}

/// `StoppedNodeReturnsLeases`: `node` has given its leases back soon after it began to stop, unless a fault interfered.
pub(crate) fn check_returned(world: &mut World<'_>, node: usize) {
    let now = world.now;
    let Some(since) = world.stops_since[node].filter(|since| now > since + RETURNED_WITHIN_US)
    else {
        return;
    };
    world.stops_since[node] = None;
    let is_near =
        |fault: &&Fault| fault.at + fault.span + LAPSES_WITHIN_US > since && fault.at <= now;
    if world.plan.faults.iter().filter(is_near).count() > 1 {
        return;
    }
    for key in 0..world.plan.keys {
        let Some(holder) = world.grants.of[node][key].holder else { continue };
        let held = world.server.held_by(&node::key_name(key), holder, now);
        if held > 0 {
            let what = format!("node {node} stops, and {held} permits of key {key} are out");
            world.record.fail(Invariant::StoppedNodeReturnsLeases, now, what);
        }
    }
}

/// `IdleKeysVanish`: no permits are held of a key without requests, and the key is removed.
pub(crate) fn check_end(world: &mut World<'_>) {
    let (plan, now) = (world.plan, world.now);
    if !plan.leases || world.record.has_failed() {
        return;
    }
    // A copy that arrives late is granted permits, which lapse; and after the clock was set back, leased permits lapse
    // only with the next request to the key.
    let comes_late = |kind| {
        matches!(
            kind,
            FaultKind::Repeated(_) | FaultKind::Overtaken(_) | FaultKind::StoreClock(..0)
        )
    };
    let is_late = plan.faults.iter().any(|fault| comes_late(fault.kind));
    let back_us: u64 = plan.faults.iter().map(|fault| set_back_us(fault.kind)).sum();
    let span_us = full_again_most_us(plan);
    // A bursty limiter begins with no stored permits: once used, it is never in that state again.
    let mut specs = plan.versions.iter().flat_map(|version| &version.rules);
    let is_forgotten = specs.all(RuleSpec::is_strict);
    for key in 0..plan.keys {
        let name = node::key_name(key);
        let held = world.server.out(&name, now);
        if held > 0 && !is_late {
            let what = format!("{held} permits of key {key} are out, and nobody asks for it");
            world.record.fail(Invariant::IdleKeysVanish, now, what);
        }
        let gone_after_us = GONE_AFTER_US + 2 * span_us + back_us;
        if is_forgotten && !world.server.is_gone_in(&name, gone_after_us, now) {
            world.record.fail(
                Invariant::IdleKeysVanish,
                now,
                format!("key {key} stays, and nobody asks for it"),
            );
        }
    }
}

/// Returns how far a fault sets the store's clock back, µs.
fn set_back_us(kind: FaultKind) -> u64 {
    match kind {
        FaultKind::StoreClock(by_us) => by_us.min(0).unsigned_abs(),
        _ => 0,
    }
}

/// Returns when a key is full again at the latest, whatever its versions, µs.
fn full_again_most_us(plan: &Plan) -> u64 {
    let mut latest_us = 0;
    for place in 0..plan.versions[0].rules.len() {
        let rules = plan.versions.iter().filter_map(|version| version.rules.get(place));
        let most_used = most_used(plan, place);
        let each_us = rules.zip(most_used).map(|(spec, used)| full_again_us(spec, used));
        latest_us = each_us.fold(latest_us, u64::max);
    }
    latest_us
}

/// Returns the most permits of the rule at `place` that are in use under each version.
///
/// Usage of a larger limit is taken over, and may be many times a smaller one. `carry: proportional` keeps the part of
/// the limit that was in use, also if that is more than all of it: 340 of 2 become 59,670 of 351. Leased permits stay
/// as they are, whatever the policy carries.
fn most_used(plan: &Plan, place: usize) -> Vec<u64> {
    let mut earlier: Vec<(u64, u64)> = Vec::new();
    for version in &plan.versions {
        let Some(limit) = version.rules.get(place).map(RuleSpec::limit) else { break };
        // A version may replace any earlier one, if no request came to the key in between.
        let taken_over = earlier.iter().map(|(from, used)| match version.carry {
            "proportional" => (used * limit).div_ceil(*from).max(*used),
            _ => *used,
        });
        let most = taken_over.fold(limit, u64::max);
        earlier.push((limit, most));
    }
    earlier.into_iter().map(|(_, used)| used).collect()
}

/// `PermitsKeepTheirRules`: permits are used by the rules by which they were asked for.
pub(crate) fn check_rules(world: &mut World<'_>, node: usize, key: usize, answer: &Answer) {
    let asked_by = &world.nodes[node].asked_by[key];
    if !asked_by.iter().any(|rules| Arc::ptr_eq(rules, answer.rules())) {
        let what = format!("node {node} has asked for no permits of key {key} by {answer:?}");
        world.record.fail(Invariant::PermitsKeepTheirRules, world.now, what);
    }
}

/// `DebtBeforeLease`: a process with a debt of a key uses none of its permits. An engine reports only the debts of all
/// keys together, so this is checked where there is one key.
pub(crate) fn check_owing(world: &mut World<'_>, node: usize) {
    let engine = &world.nodes[node].engine;
    if world.plan.keys > 1 || engine.debts() == 0 {
        return;
    }
    let leased = engine.leased_keys();
    if let Some(key) = leased.iter().find(|key| key.left > 0 && key.ends_in.get() > 0) {
        let what = format!("node {node} owes, and has {} permits to use", key.left);
        world.record.fail(Invariant::DebtBeforeLease, world.now, what);
    }
}

/// Returns when a rule with `used` permits in use is full again, µs.
fn full_again_us(spec: &RuleSpec, used: u64) -> u64 {
    match *spec {
        RuleSpec::TokenBucket { permits, period_us, .. }
        | RuleSpec::LeakyBucket { permits, period_us, .. } => (used * period_us).div_ceil(permits),
        RuleSpec::Window { window_us, .. } => 2 * window_us,
        RuleSpec::SmoothBursty { burst_s, .. } => burst_s * SECOND + MS,
        RuleSpec::Concurrency { ttl_us, .. } => ttl_us,
    }
}
