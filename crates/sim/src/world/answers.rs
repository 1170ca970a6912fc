//! The check of an answer's mode, and what several checks need: the versions of its policy, and whether a fault may
//! keep its node from the store. For that, a request that the store did not decide is noted.

use sluicegate::{Answer, Mode};

use super::{RECOVERY_US, TaskView, World};
use crate::plan::{MS, OnFailure};
use crate::promises::Invariant;

/// The longest time that an open breaker admits no request, plus a deadline, µs.
const PROBE_US: u64 = 350 * MS;

/// The versions of the policy that have the rules of an answer.
pub(crate) fn versions_of(world: &World<'_>, answer: &Answer) -> impl Iterator<Item = usize> {
    let has = |policies: &sluicegate::policy::PolicySet| {
        let policy = policies.resolve("p").expect("each version has it");
        **policy.rules_at(b"a", sluicegate::Micros::ZERO).rules.set() == **answer.rules()
    };
    (0..world.policies.len()).filter(move |version| has(&world.policies[*version]))
}

/// `AnswerIsTrue`: the mode of an answer is true, and the store is asked as soon as it can be.
pub(crate) fn check_mode(world: &mut World<'_>, task: TaskView, answer: &Answer) {
    let (now, mode, on_failure) = (world.now, answer.mode, world.plan.on_failure);
    let is_true = match mode {
        Mode::Store => task.executed.is_some(),
        Mode::Leased => world.plan.leases,
        Mode::Remembered | Mode::Shed => true,
        Mode::Local => on_failure == OnFailure::Local,
        Mode::Allow => on_failure == OnFailure::Allow,
        // The local share of a key that the store cannot read is not used.
        Mode::Deny => on_failure == OnFailure::Deny || world.plan.has_unreadable(),
    };
    if !is_true {
        world.record.fail(
            Invariant::AnswerIsTrue,
            now,
            format!("an answer by `{}` under {on_failure:?}", mode.name()),
        );
    }
    let is_without = !matches!(mode, Mode::Store | Mode::Leased | Mode::Remembered);
    if is_without {
        note_probe(world, task);
    }
    // A store that books the future grants beside a debt that it has no room for, until the engine gives up.
    let is_owing = mode == Mode::Shed && world.nodes[task.node].engine.debts() > 0;
    if is_without && !is_owing && !is_disturbed(world, task) {
        let what =
            format!("node {} decides by `{}`, and the store answers", task.node, mode.name());
        world.record.fail(Invariant::AnswerIsTrue, now, what);
    }
}

/// Notes the first request that the store did not decide after the disturbances and the longest time without a probe.
/// Requests from now on find out whether the store is back; before that, the breaker may have admitted none.
pub(crate) fn note_probe(world: &mut World<'_>, task: TaskView) {
    if world.disturbed_until[task.node] + PROBE_US < task.begun_at {
        world.asked_since[task.node].get_or_insert(task.begun_at);
    }
}

/// Returns whether a fault may keep the node from the store, or did until a moment ago: only requests find out that the
/// store is back.
pub(crate) fn is_disturbed(world: &World<'_>, task: TaskView) -> bool {
    let until = match (world.disturbed_until[task.node], world.asked_since[task.node]) {
        (0, _) => return false,
        (until, asked) => until.max(asked.unwrap_or(until)),
    };
    until + RECOVERY_US >= task.begun_at
}
