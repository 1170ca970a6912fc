//! Notes of what faults and failovers do to nodes and the store.

use super::World;
use crate::bounds::What;
use crate::node;
use crate::server::Forgotten;

/// Notes that a node, or each of them, may be without the store until then.
pub(crate) fn disturb(world: &mut World<'_>, node: Option<usize>, until: u64) {
    for (place, disturbed) in world.disturbed_until.iter_mut().enumerate() {
        if node.is_none_or(|node| node == place) {
            *disturbed = (*disturbed).max(until);
            world.asked_since[place] = None;
        }
    }
}

/// Notes that the store forgot, and that nodes may notice.
pub(crate) fn forgot(world: &mut World<'_>, forgotten: Vec<Forgotten>) {
    world.forgot += 1;
    world.forgot_at = Some(world.now);
    note_forgotten(world, forgotten);
}

pub(crate) fn note_forgotten(world: &mut World<'_>, forgotten: Vec<Forgotten>) {
    let at = world.now;
    // Of writes that are lost one by one, the last one comes first.
    for key in 0..world.plan.keys {
        let name = node::key_name(key);
        if let Some(lost) = forgotten.iter().find(|lost| lost.name == name) {
            let held = lost.alive;
            world.note_at((at, world.executed()), key, What::Lost { held });
        }
    }
    for Forgotten { name, permits, held, alive: _, back_to } in forgotten {
        let Some(key) = (0..world.plan.keys).find(|key| node::key_name(*key)[..] == *name) else {
            continue;
        };
        world.given_back[key] = Some(at);
        world.grants.are_lost(at, Some(key));
        let what = What::Forgiven { permits: permits.to_vec(), why: "forgotten" };
        world.note_at((at, world.executed()), key, what);
        world.note_at((at, world.executed()), key, What::Excused { permits: held });
        if let Some(rules) = back_to {
            let version = world.version_of(&rules);
            world.note_at((at, world.executed()), key, What::Version(version));
        }
    }
}
