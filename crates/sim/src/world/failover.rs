//! A failover: a replica takes over, and nodes find it one after the other. Until then the old store answers them.

use super::disturbances::{disturb, forgot};
use super::lease_checks::KeyAtNode;
use super::{World, WorldEvent};
use crate::bounds::What;
use crate::plan::{MS, generator};
use crate::server::{Execution, StoreServer};
use crate::wire::Said;

use std::collections::BTreeSet;
use std::sync::Arc;

use sluicegate::internals::store::lease::LeaseReply;

/// The store that a replica took over from.
pub(crate) struct Replaced {
    /// `None`: it is gone, or there was no failover.
    store: Option<StoreServer>,
    /// True for each node that still asks it.
    is_asked: Vec<bool>,
    /// The numbers of what it executed.
    executions: BTreeSet<u64>,
}

impl Replaced {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { store: None, is_asked: vec![false; nodes], executions: BTreeSet::new() }
    }

    pub(crate) fn is_asked_by(&self, node: usize) -> bool {
        self.is_asked[node]
    }

    pub(crate) fn has_executed(&self, number: u64) -> bool {
        self.executions.contains(&number)
    }
}

/// Begins a failover: a replica that lacks the writes of the last `lost_us` takes over. Nodes find it within
/// `span_us`.
pub(crate) fn begins(world: &mut World<'_>, number: u32, lost_us: u64, span_us: u64) {
    world.note_all(&What::Split);
    let (old, forgotten) = world.server.fail_over(lost_us, world.now);
    world.replaced.store = Some(old);
    forgot(world, forgotten);
    world.replaced.is_asked.fill(true);
    let mut rng = generator(world.plan.seed, 1_000 + u64::from(number));
    for node in 0..world.plan.nodes {
        world.at(world.now + rng.u64(0..=span_us), WorldEvent::Switches { node });
    }
    disturb(world, None, world.now + span_us + 200 * MS);
}

/// Ends the failover: the old store is gone.
pub(crate) fn ends(world: &mut World<'_>) {
    world.replaced.store = None;
    world.replaced.is_asked.fill(false);
}

/// Connects a node to the store that took over.
pub(crate) fn switches(world: &mut World<'_>, node: usize) {
    world.replaced.is_asked[node] = false;
    world.seen(format_args!("node {node} finds the replica"));
    world.disconnect(node, "its store is no master");
    world.grants.are_lost(world.now, None);
    world.given_back.fill(Some(world.now));
}

/// Executes a call at the old store. The new one does not know what it grants.
pub(crate) fn at_old(world: &mut World<'_>, call: usize) {
    let Some(old) = &mut world.replaced.store else { return };
    let call_of = &world.calls[call];
    let (node, life, ask) = (call_of.node, call_of.life, Arc::clone(&call_of.ask));
    let Execution { reply, notes: _, broken } = old.execute(&ask, world.now);
    world.executed += 1;
    world.replaced.executions.insert(world.executed);
    if let Some((invariant, what)) = broken {
        world.record.fail(invariant, world.now, what);
    }
    if let Some(key) = world.key_of(&ask.key) {
        if let Ok(Said::LeaseReply(LeaseReply::Granted(grant))) = &reply {
            world.grants.granted(world.now, KeyAtNode { node, life, key }, &ask, grant);
            let permits = grant.granted.into();
            let at = (world.now, world.executed());
            world.note_at(at, key, What::Excused { permits });
        }
        if let Ok(Said::Decided(_, paid)) = &reply {
            let what = What::PaidToOld { permits: paid.iter().max().copied().unwrap_or(0) };
            world.note_at((world.now, world.executed()), key, what);
        }
        world.grants.are_lost(world.now, Some(key));
        world.given_back[key] = Some(world.now);
    }
    world.seen(format_args!("  old store: {node} {:?} {:?}: {reply:?}", ask.verb, ask.debt));
    world.answers(call, node, reply, ask.message.is_some());
}
