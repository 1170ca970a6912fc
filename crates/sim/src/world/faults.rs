//! The effects of a fault when it begins, and when it ends.

use std::num::NonZeroU32;

use super::World;
use super::breaker_checks::{Probes, Silence};
use super::debt_checks::NodeDebts;
use super::disturbances::{disturb, forgot, note_forgotten};
use super::memory::Refusal;
use super::permits::Permits;
use crate::bounds::What;
use crate::node::{self, NodeProcess};
use crate::plan::{Fault, FaultKind, MS, generator};

/// The longest delay of a keeper, µs.
const KEEPER_LATE_MAX_US: u64 = 500 * MS;

pub(crate) fn begins(world: &mut World<'_>, fault: &Fault) {
    let Fault { number, node, span, kind, .. } = *fault;
    let until = world.now + span;
    go_by_nodes(world, world.plan.more_nodes(number));
    match kind {
        FaultKind::RequestsLost => {
            world.links[node].requests_lost += 1;
            disturb(world, Some(node), until);
        }
        FaultKind::AnswersLost => {
            world.links[node].answers_lost += 1;
            disturb(world, Some(node), until);
        }
        FaultKind::LinkDown => {
            lose(world, node, 1);
            disturb(world, Some(node), until);
        }
        FaultKind::Partition => {
            (0..world.plan.nodes).for_each(|node| lose(world, node, 1));
            disturb(world, None, until);
        }
        FaultKind::Late(by_us) => {
            world.links.iter_mut().for_each(|link| link.late_us += by_us);
            disturb(world, None, until + 2 * by_us);
        }
        FaultKind::StorePaused => {
            world.paused_until = world.paused_until.max(until);
            disturb(world, None, until);
        }
        FaultKind::StoreKilled(lost_us) => {
            world.down += 1;
            lose_writes(world, lost_us);
            (0..world.plan.nodes).for_each(|node| world.disconnect(node, "the store is gone"));
            disturb(world, None, until + 200 * MS);
        }
        FaultKind::Flushed => {
            let forgotten = world.server.forget(None, world.now);
            world.permits.iter_mut().for_each(Permits::forget);
            forgot(world, forgotten);
        }
        FaultKind::Evicted(key) => {
            let forgotten = world.server.forget(Some(&node::key_name(key)), world.now);
            world.permits.iter_mut().for_each(Permits::keep);
            world.permits[key].forget();
            note_forgotten(world, forgotten);
        }
        FaultKind::StoreClock(by_us) => step_clock(world, by_us),
        FaultKind::Failover(lost_us) => super::failover::begins(world, number, lost_us, span),
        FaultKind::Refuses => {
            world.refuses_until = world.refuses_until.max(until);
            disturb(world, None, until);
        }
        FaultKind::Unreadable(key) => {
            let unreadable_until = &mut world.unreadable_until[key];
            *unreadable_until = until.max(*unreadable_until);
            disturb(world, None, until);
        }
        FaultKind::Repeated(after_us) => world.links[node].repeats_after_us = after_us,
        FaultKind::Overtaken(by_us) => {
            world.links[node].strays_us = by_us;
            disturb(world, Some(node), until + 2 * by_us);
        }
        _ => begins_at_nodes(world, fault),
    }
}

/// Begins a fault of processes, their clocks or policies.
fn begins_at_nodes(world: &mut World<'_>, fault: &Fault) {
    let Fault { node, span, kind, .. } = *fault;
    let until = world.now + span;
    match kind {
        FaultKind::NodeKilled => kill(world, node),
        FaultKind::NodeStopped => {
            // The node gives back its leases and pays first, as far as the store answers; other
            // nodes go on meanwhile.
            let engine = std::sync::Arc::clone(&world.nodes[node].engine);
            engine.return_leases();
            world.stops_since[node] = Some(world.now);
            world.spawn(node, node::pay(engine));
        }
        FaultKind::NodePaused | FaultKind::NodeSuspended | FaultKind::MachineStopped => {
            pause(world, node, until);
        }
        FaultKind::PolicyRemoved => {
            // Debts of its keys are forgotten.
            if world.nodes[node].engine.debts() > 0 {
                world.note_all(&What::Ended(node));
            }
            world.nodes[node].remove_policy();
            let removed_until = &mut world.removed_until[node];
            *removed_until = until.max(*removed_until);
            disturb(world, Some(node), until);
        }
        FaultKind::Drift(by) => world.nodes[node].clock.drift(world.now, by),
        FaultKind::WallClock(by_us) => {
            world.nodes[node].clock.step_wall(world.now, by_us);
            world.silence[node].begin_anew(world.now);
            world.probes[node].begin_anew();
            let now = world.now;
            world.dues[node].iter_mut().for_each(|dues| dues.set_clock(now));
            world.note_all(&What::WallClock(node));
            // Remembered refusals are of another time, and breakers open and close by it.
            disturb(world, Some(node), u64::MAX / 2);
        }
        FaultKind::Crowd(every_us) => {
            disturb(world, None, until);
            world.crowds(every_us, until);
        }
        FaultKind::KeeperLate => {
            let until = until.min(world.now + KEEPER_LATE_MAX_US);
            world.late_until[node] = world.late_until[node].max(until);
            disturb(world, Some(node), until);
        }
        FaultKind::Policy(version) => {
            let mut rng = generator(world.plan.seed, 400 + version as u64);
            for node in 0..world.plan.nodes {
                world.version_later(node, version, rng.u64(0..=span));
            }
        }
        kind => unreachable!("{kind:?} is none of a node"),
    }
}

pub(crate) fn ends(world: &mut World<'_>, fault: &Fault) {
    let Fault { node, span, kind, .. } = *fault;
    go_by_nodes(world, 0);
    match kind {
        FaultKind::RequestsLost => world.links[node].requests_lost -= 1,
        FaultKind::AnswersLost => world.links[node].answers_lost -= 1,
        FaultKind::LinkDown => lose(world, node, -1),
        FaultKind::Partition => (0..world.plan.nodes).for_each(|node| lose(world, node, -1)),
        FaultKind::Late(by_us) => world.links.iter_mut().for_each(|link| link.late_us -= by_us),
        FaultKind::StoreKilled(_) => world.down -= 1,
        FaultKind::Failover(_) => super::failover::ends(world),
        FaultKind::NodeKilled => start(world, node),
        FaultKind::NodeStopped => replace(world, node),
        FaultKind::NodePaused => {
            let now = world.now;
            world.links[node].heard_at = now;
        }
        FaultKind::PolicyRemoved => {
            let (plan, policies) = (world.plan, &world.policies);
            world.nodes[node].restore_policy(plan, policies);
        }
        FaultKind::Drift(_) => world.nodes[node].clock.drift(world.now, 0),
        FaultKind::NodeSuspended => {
            let by_us = i64::try_from(span).expect("two seconds at most");
            world.nodes[node].clock.step_wall(world.now, -by_us);
            world.silence[node].begin_anew(world.now);
            world.probes[node].begin_anew();
            let now = world.now;
            world.dues[node].iter_mut().for_each(|dues| dues.set_clock(now));
            world.links[node].heard_at = world.now;
        }
        FaultKind::MachineStopped => {
            world.nodes[node].clock.stood(world.now, span);
            world.silence[node].begin_anew(world.now);
            world.probes[node].begin_anew();
            let now = world.now;
            world.dues[node].iter_mut().for_each(|dues| dues.set_clock(now));
            world.links[node].heard_at = world.now;
            // By its clock the node may use permits that have lapsed meanwhile.
            for key in 0..world.plan.keys {
                let permits = world.grants.goes_on(world.now, node, key);
                world.note_at((world.now, world.executed()), key, What::Excused { permits });
            }
        }
        FaultKind::Repeated(_) => world.links[node].repeats_after_us = 0,
        FaultKind::Overtaken(_) => world.links[node].strays_us = 0,
        FaultKind::WallClock(_)
        | FaultKind::Crowd(_)
        | FaultKind::KeeperLate
        | FaultKind::StorePaused
        | FaultKind::Refuses
        | FaultKind::Unreadable(_)
        | FaultKind::Flushed
        | FaultKind::Evicted(_)
        | FaultKind::StoreClock(_)
        | FaultKind::Policy(_) => {}
    }
}

/// Sets the number of nodes that all engines divide by to `more` than there are: shares that begin
/// now are smaller.
fn go_by_nodes(world: &mut World<'_>, more: u32) {
    let nodes =
        u32::try_from(world.plan.nodes).ok().and_then(|nodes| NonZeroU32::new(nodes + more));
    let nodes = nodes.expect("there is a node at least");
    for node in &mut world.nodes {
        node.divides_by = nodes.get().into();
        node.engine.set_nodes(nodes);
    }
}

/// Sets the store's clock.
fn step_clock(world: &mut World<'_>, by_us: i64) {
    for key in (0..world.plan.keys).filter(|_| by_us > 0) {
        // The deadlines of leases may be past at once.
        let permits = world.server.held(&node::key_name(key), world.now);
        world.note_at((world.now, world.executed()), key, What::Excused { permits });
    }
    world.grants.are_lost(world.now, None);
    world.server.step_clock(by_us);
    if by_us < 0 {
        world.permits.iter_mut().for_each(Permits::set_back);
    }
    world.note_all(&What::ClockStep { by_us });
    world.given_back.fill(Some(world.now));
}

/// Has the store lose the writes of the last `lost_us`; `u64::MAX`: all.
fn lose_writes(world: &mut World<'_>, lost_us: u64) {
    let now = world.now;
    let forgotten = match lost_us {
        u64::MAX => world.server.forget(None, now),
        lost_us => world.server.lose(lost_us, now),
    };
    let clock = world.server.clock(now);
    world.permits.iter_mut().for_each(|permits| permits.lose(lost_us, clock, now));
    if lost_us > 0 {
        forgot(world, forgotten);
    }
}

/// Begins (or ends) to lose messages in both directions.
fn lose(world: &mut World<'_>, node: usize, by: i32) {
    let link = &mut world.links[node];
    link.requests_lost = link.requests_lost.saturating_add_signed(by);
    link.answers_lost = link.answers_lost.saturating_add_signed(by);
}

/// Kills the process, and starts another one at once.
pub(crate) fn replace(world: &mut World<'_>, node: usize) {
    kill(world, node);
    start(world, node);
}

fn pause(world: &mut World<'_>, node: usize, until: u64) {
    let paused_until = &mut world.nodes[node].paused_until;
    *paused_until = until.max(*paused_until);
    disturb(world, Some(node), until);
}

fn kill(world: &mut World<'_>, node: usize) {
    let process = &mut world.nodes[node];
    if !process.is_up {
        return;
    }
    process.is_up = false;
    process.life += 1;
    world.stops_since[node] = None;
    world.dues[node].iter_mut().for_each(NodeDebts::begin_anew);
    if process.engine.debts() > 0 {
        world.note_all(&What::Ended(node));
    }
}

fn start(world: &mut World<'_>, node: usize) {
    let version = world.nodes.iter().map(|node| node.version).max().unwrap_or(0);
    let life = world.nodes[node].life;
    if world.nodes[node].is_up {
        return;
    }
    let clock = std::sync::Arc::clone(&world.nodes[node].clock);
    let process = NodeProcess::start(world.plan, &world.policies, version, clock, life);
    process.clock.set(world.now);
    process.store.0.lock().down = !world.links[node].is_connected;
    let heard = std::mem::take(&mut world.nodes[node].heard);
    let paused_until = world.nodes[node].paused_until;
    world.nodes[node] = NodeProcess { heard, paused_until, ..process };
    (world.probes[node], world.silence[node]) = (Probes::default(), Silence::default());
    world.refusals[node] = Refusal::of_each_key(world.plan);
    let now = world.now;
    if world.links[node].is_connected {
        world.links[node].connect(now);
    }
    world.keep_leases(node);
    world.pass_calls(node);
}
