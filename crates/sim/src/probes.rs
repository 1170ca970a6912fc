//! What a node asks of a store that it has given up: one question now and then, and no fewer (I16).

use std::task::Poll;

use sluicegate::{Admission, Mode};

use crate::node::Done;
use crate::plan::{FaultKind, MS};
use crate::world::World;

/// Two questions are so far apart at least, µs.
const APART_MIN_US: u64 = 100 * MS;

/// And at most, where requests come, µs.
const APART_MAX_US: u64 = 300 * MS;

/// Of a process, since it gave the store up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probes {
    asked_at: Option<u64>,
    /// When the first request since the last question was decided without one.
    silent_since: Option<u64>,
}

/// A task of `node` ran. `asked`: whether the store was given up before, whether it was asked, and whether that was
/// for a request that came at this instant, or for leases.
pub(crate) fn see(
    world: &mut World<'_>,
    node: usize,
    (was_without, asked, is_new): (bool, bool, bool),
    polled: &Poll<Done>,
) {
    let (now, is_without) = (world.now, world.nodes[node].engine.is_without_store());
    if !was_without || !is_without || has_wrong_clocks(world) {
        world.nodes[node].probes = Probes::default();
        return;
    }
    let probes = &mut world.nodes[node].probes;
    let mut broken = None;
    if asked {
        let last = probes.asked_at.filter(|last| is_new && now < last + APART_MIN_US);
        broken = last.map(|last| format!("asks {} µs after its last question", now - last));
        // What waited for a lease asks by the clock of then.
        *probes = Probes { asked_at: is_new.then_some(now), silent_since: None };
    } else if is_new && is_without_word(polled) {
        let since = *probes.silent_since.get_or_insert(now);
        let is_late = now > since + APART_MAX_US;
        broken = is_late.then(|| format!("asks nothing for {} µs, and requests come", now - since));
    }
    if let Some(what) = broken {
        world.judge.fail("I16", now, format!("node {node} has given the store up, and {what}"));
    }
}

/// I13: a store that answers others, and was not given up before, is not replaced because it has too much to do.
pub(crate) fn check_overload(world: &mut World<'_>, is_overloaded: bool, polled: &Poll<Done>) {
    // Of several requests others may have got no answer.
    let is_one = matches!(polled, Poll::Ready(Done::Decided(..)));
    if is_overloaded && is_one && is_without_word(polled) {
        let what = "a node decides for a store that has too much to do".to_owned();
        world.judge.fail("I13", world.now, what);
    }
}

/// Breakers go by the wall clock of their node.
fn has_wrong_clocks(world: &World<'_>) -> bool {
    let is_wrong = |kind| {
        matches!(
            kind,
            FaultKind::Drift(_)
                | FaultKind::WallClock(_)
                | FaultKind::NodeSuspended
                | FaultKind::MachineStopped
        )
    };
    world.plan.faults.iter().any(|fault| is_wrong(fault.kind))
}

/// Whether a request was decided by the word of nobody.
fn is_without_word(polled: &Poll<Done>) -> bool {
    let is_without = |decided: &Result<Admission, _>| {
        decided.as_ref().is_ok_and(|admission| {
            matches!(admission.answer.mode, Mode::Local | Mode::Allow | Mode::Deny)
        })
    };
    match polled {
        Poll::Ready(Done::Decided(_, decided)) => is_without(decided),
        Poll::Ready(Done::DecidedEach(each)) => each.iter().any(|(.., said)| is_without(said)),
        _ => false,
    }
}
