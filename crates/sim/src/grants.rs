//! What nodes hold, and whether the store stands for it: I3, I4 and I11.

use sluicegate::store::lease::{Found, Holder, Stands};

use crate::node;
use crate::plan::{FaultKind, MS, Plan, RuleSpec, SECOND};
use crate::wire::StoreAsk;
use crate::world::World;

/// After the last request to a key, and after its usage has flowed out, nothing is left of it so much later, µs:
/// the minute for which hints are believed, and two seconds in which what was out lapses.
const GONE_AFTER_US: u64 = 62 * SECOND;

/// All that is out has lapsed so long after a message, µs: the longest term, a sixteenth, and the longest patience.
const LAPSES_WITHIN_US: u64 = 2_375 * MS;

/// What a process was last granted of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Grant {
    life: u32,
    holder: Option<Holder>,
    permits: u64,
    /// When the last permit lapses, µs.
    until: u64,
}

/// Of all nodes and keys.
#[derive(Debug)]
pub(crate) struct Grants {
    of: Vec<Vec<Grant>>,
    /// Until when the store may not stand for what is out of each key, and for what each node has, µs.
    keys_lost_until: Vec<u64>,
    nodes_lost_until: Vec<u64>,
}

impl Grants {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            of: vec![vec![Grant::default(); plan.keys]; plan.nodes],
            keys_lost_until: vec![0; plan.keys],
            nodes_lost_until: vec![0; plan.nodes],
        }
    }

    /// The store answered a message.
    pub(crate) fn stands(
        &mut self,
        now: u64,
        (node, life, key): (usize, u32, usize),
        (ask, stands): (&StoreAsk, &Stands),
    ) {
        let holder = ask.message.as_ref().map(|message| message.holder);
        if holder == Some(Holder::NONE) {
            // It only looks.
            return;
        }
        let grant = &mut self.of[node][key];
        if grant.life > life {
            return;
        }
        // Also what the holder has from before, if it does not hear this answer.
        let until = match stands.found {
            // Charged at once, for requests that wait for the answer.
            Found::Full => now + LAPSES_WITHIN_US,
            _ => now + stands.lasts.get(),
        };
        let permits = u64::from(stands.kept) + u64::from(stands.granted);
        *grant = Grant { life, holder, permits, until };
    }

    /// From now on the store may not stand for what is out of `key`, or of all keys.
    pub(crate) fn are_lost(&mut self, now: u64, key: Option<usize>) {
        for (place, until) in self.keys_lost_until.iter_mut().enumerate() {
            if key.is_none_or(|key| key == place) {
                *until = now + LAPSES_WITHIN_US;
            }
        }
    }

    /// By the clock of `node` what it has of `key` ends later than by the store's. Returns how much that is.
    pub(crate) fn goes_on(&mut self, now: u64, node: usize, key: usize) -> u64 {
        self.nodes_lost_until[node] = now + LAPSES_WITHIN_US;
        self.of[node][key].permits
    }
}

/// I4: permits that `node` takes have not lapsed.
pub(crate) fn check_end_of(world: &mut World<'_>, node: usize, key: usize) {
    let (now, Grant { life, until, .. }) = (world.now, world.grants.of[node][key]);
    let Grants { keys_lost_until, nodes_lost_until, .. } = &world.grants;
    let is_lost = nodes_lost_until[node].max(keys_lost_until[key]) > now;
    if !is_lost && (life != world.nodes[node].life || now >= until) {
        let what = format!("node {node} takes permits of key {key} that lapsed at {until} µs");
        world.judge.fail("I4", now, what);
    }
}

/// I3: the store stands for what `node` holds; I12: that is of few keys.
pub(crate) fn check_held(world: &mut World<'_>, node: usize) {
    let now = world.now;
    if !world.plan.leases || !world.nodes[node].is_up || world.grants.nodes_lost_until[node] > now {
        return;
    }
    world.nodes[node].clock.set(now);
    let leased = world.nodes[node].engine.leased_keys();
    if leased.len() > world.plan.keys {
        let what = format!("node {node} leases {} keys", leased.len());
        world.judge.fail("I12", now, what);
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
        let stands = holder.map_or(0, |holder| world.server.held_by(&leased.key, holder, now));
        if u64::from(leased.left) > stands {
            let left = leased.left;
            let what = format!("node {node} has {left} permits of key {key}, the store {stands}");
            world.judge.fail("I3", now, what);
        }
    }
}

/// I11: nothing is held of what nobody asks for, and its key does not stay.
pub(crate) fn check_end(world: &mut World<'_>) {
    let (plan, now) = (world.plan, world.now);
    if !plan.leases || world.judge.has_failed() {
        return;
    }
    // A copy that comes late is granted something, which lapses; and what is out lapses after the clock was set
    // back only when the key is asked for again.
    let comes_late = |kind| {
        matches!(
            kind,
            FaultKind::Repeated(_) | FaultKind::Overtaken(_) | FaultKind::StoreClock(..0)
        )
    };
    let is_late = plan.faults.iter().any(|fault| comes_late(fault.kind));
    let back_us: u64 = plan.faults.iter().map(|fault| set_back_us(fault.kind)).sum();
    let specs: Vec<_> = plan.versions.iter().flat_map(|version| &version.rules).collect();
    // Usage of a larger limit is taken over, and in proportion to a limit that it is above already.
    let limits = || specs.iter().map(|spec| spec.limit());
    let (least, most) = (limits().min().unwrap_or(1), limits().max().unwrap_or(0));
    let is_scaled = plan.versions.iter().any(|version| version.carry == "proportional");
    let used_most = if is_scaled { most * most.div_ceil(least) } else { most };
    let span_us = specs.iter().map(|spec| full_again_us(spec, used_most)).max().unwrap_or(0);
    // A bursty limiter begins with nothing saved: once seen, it is never again as it was.
    let is_forgotten = specs.iter().all(|spec| spec.is_strict());
    for key in 0..plan.keys {
        let name = node::key_name(key);
        let held = world.server.out(&name, now);
        if held > 0 && !is_late {
            let what = format!("{held} permits of key {key} are out, and nobody asks for it");
            world.judge.fail("I11", now, what);
        }
        let gone_after_us = GONE_AFTER_US + 2 * span_us + back_us;
        if is_forgotten && !world.server.is_gone_in(&name, gone_after_us, now) {
            world.judge.fail("I11", now, format!("key {key} stays, and nobody asks for it"));
        }
    }
}

/// How far a fault sets the store's clock back, µs.
fn set_back_us(kind: FaultKind) -> u64 {
    match kind {
        FaultKind::StoreClock(by_us) => by_us.min(0).unsigned_abs(),
        _ => 0,
    }
}

/// When a rule of which `used` permits are in use is full again, µs.
fn full_again_us(spec: &RuleSpec, used: u64) -> u64 {
    match *spec {
        RuleSpec::TokenBucket { permits, period_us, .. }
        | RuleSpec::LeakyBucket { permits, period_us, .. } => (used * period_us).div_ceil(permits),
        RuleSpec::FixedWindow { window_us, .. }
        | RuleSpec::SlidingLog { window_us, .. }
        | RuleSpec::SlidingWindow { window_us, .. }
        | RuleSpec::SlidingCounter { window_us, .. } => 2 * window_us,
        RuleSpec::SmoothBursty { burst_s, .. } => burst_s * SECOND + MS,
    }
}
