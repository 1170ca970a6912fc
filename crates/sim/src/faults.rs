//! What a fault does when it begins, and when it ends.

use crate::judge::What;
use crate::node::{self, Node};
use crate::plan::{Fault, FaultKind, MS, generator};
use crate::server::Forgotten;
use crate::world::World;

pub(crate) fn begins(world: &mut World<'_>, fault: &Fault) {
    let Fault { node, span, kind, .. } = *fault;
    let until = world.now + span;
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
            let forgotten = match lost_us {
                u64::MAX => world.server.forget(None, world.now),
                lost_us => world.server.lose(lost_us, world.now),
            };
            if lost_us > 0 {
                forgot(world, forgotten);
            }
            (0..world.plan.nodes).for_each(|node| world.disconnect(node, "the store is gone"));
            disturb(world, None, until + 200 * MS);
        }
        FaultKind::Flushed => {
            let forgotten = world.server.forget(None, world.now);
            forgot(world, forgotten);
        }
        FaultKind::Evicted(key) => {
            let forgotten = world.server.forget(Some(&node::key_name(key)), world.now);
            note_forgotten(world, forgotten);
        }
        FaultKind::StoreClock(by_us) => step_clock(world, by_us),
        FaultKind::NodeKilled => kill(world, node),
        FaultKind::NodeStopped => {
            // It pays first, as far as the store answers; others go on meanwhile.
            let engine = std::sync::Arc::clone(&world.nodes[node].engine);
            world.spawn(node, node::pay(engine));
        }
        FaultKind::NodePaused => {
            let paused_until = &mut world.nodes[node].paused_until;
            *paused_until = (*paused_until).max(until);
            disturb(world, Some(node), until);
        }
        FaultKind::Policy(version) => {
            let mut rng = generator(world.plan.seed, 400 + version as u64);
            for node in 0..world.plan.nodes {
                world.version_later(node, version, rng.u64(0..=span));
            }
        }
    }
}

pub(crate) fn ends(world: &mut World<'_>, fault: &Fault) {
    let Fault { node, kind, .. } = *fault;
    match kind {
        FaultKind::RequestsLost => world.links[node].requests_lost -= 1,
        FaultKind::AnswersLost => world.links[node].answers_lost -= 1,
        FaultKind::LinkDown => lose(world, node, -1),
        FaultKind::Partition => (0..world.plan.nodes).for_each(|node| lose(world, node, -1)),
        FaultKind::Late(by_us) => world.links.iter_mut().for_each(|link| link.late_us -= by_us),
        FaultKind::StoreKilled(_) => world.down -= 1,
        FaultKind::NodeKilled => start(world, node),
        FaultKind::NodeStopped => {
            kill(world, node);
            start(world, node);
        }
        FaultKind::NodePaused => {
            let now = world.now;
            world.links[node].heard_at = now;
        }
        FaultKind::StorePaused
        | FaultKind::Flushed
        | FaultKind::Evicted(_)
        | FaultKind::StoreClock(_)
        | FaultKind::Policy(_) => {}
    }
}

/// The store's clock is set.
fn step_clock(world: &mut World<'_>, by_us: i64) {
    for key in (0..world.plan.keys).filter(|_| by_us > 0) {
        // The deadlines of leases may be past at once.
        let permits = world.server.held(&node::key_name(key), world.now);
        world.note_at((world.now, world.executed()), key, What::Excused { permits });
    }
    world.server.step_clock(by_us);
    world.note_all(&What::ClockStep { by_us });
    world.given_back.fill(Some(world.now));
}

/// Begins (or ends) to lose what is sent both ways.
fn lose(world: &mut World<'_>, node: usize, by: i32) {
    let link = &mut world.links[node];
    link.requests_lost = link.requests_lost.saturating_add_signed(by);
    link.answers_lost = link.answers_lost.saturating_add_signed(by);
}

/// Until then a node may be without the store, or all of them.
fn disturb(world: &mut World<'_>, node: Option<usize>, until: u64) {
    for (place, disturbed) in world.disturbed_until.iter_mut().enumerate() {
        if node.is_none_or(|node| node == place) {
            *disturbed = (*disturbed).max(until);
            world.asked_since[place] = None;
        }
    }
}

fn kill(world: &mut World<'_>, node: usize) {
    let process = &mut world.nodes[node];
    if !process.is_up {
        return;
    }
    process.is_up = false;
    process.life += 1;
    if process.engine.debts() > 0 {
        world.note_all(&What::Ended);
    }
}

fn start(world: &mut World<'_>, node: usize) {
    let version = world.nodes.iter().map(|node| node.version).max().unwrap_or(0);
    let life = world.nodes[node].life;
    if world.nodes[node].is_up {
        return;
    }
    let process = Node::start(world.plan, &world.policies, version, life);
    process.store.0.lock().down = !world.links[node].is_connected;
    let heard = std::mem::take(&mut world.nodes[node].heard);
    let paused_until = world.nodes[node].paused_until;
    world.nodes[node] = Node { heard, paused_until, ..process };
    let now = world.now;
    if world.links[node].is_connected {
        world.links[node].connect(now);
    }
    world.keep_leases(node);
}

/// The store forgot, and nodes may notice.
fn forgot(world: &mut World<'_>, forgotten: Vec<Forgotten>) {
    world.forgot += 1;
    note_forgotten(world, forgotten);
}

fn note_forgotten(world: &mut World<'_>, forgotten: Vec<Forgotten>) {
    let at = world.now;
    for Forgotten { name, permits, held } in forgotten {
        let Some(key) = (0..world.plan.keys).find(|key| node::key_name(*key)[..] == *name) else {
            continue;
        };
        world.given_back[key] = Some(at);
        let what = What::Forgiven { permits: permits.to_vec(), why: "forgotten" };
        world.note_at((at, world.executed()), key, what);
        world.note_at((at, world.executed()), key, What::Excused { permits: held });
    }
}
