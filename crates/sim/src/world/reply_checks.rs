//! Checks of the answers that nodes give their clients: each must be true at that instant.

use sluicegate::internals::SettleError;
use sluicegate::internals::kernel::{Outcome, Retry};
use sluicegate::{Admission, Answer, DecideError, Mode};

use super::answers::{check_mode, is_disturbed, note_probe, versions_of};
use super::lease_checks::Central;
use super::{TaskView, World};
use crate::bounds::{By, What};
use crate::node::Done;
use crate::plan::{Arrival, Ask};
use crate::promises::Invariant;

pub(crate) fn see(world: &mut World<'_>, task: TaskView, done: Done) {
    match done {
        Done::Decided(arrival, Ok(admission)) => decided(world, task, arrival, &admission.answer),
        Done::Decided(arrival, Err(error)) => failed(world, task, arrival, &error),
        Done::DecidedEach(_) => unreachable!("each is seen on its own"),
        Done::Explained(arrival, explained) => match explained {
            Ok(explanation) => {
                check_mode(world, task, &explanation.answer);
                know(world, task, arrival, &explanation.answer);
            }
            Err(error) => failed(world, task, arrival, &error),
        },
        Done::Refunded(arrival, asked, refunded) => {
            super::memory::forget(world, task.node, arrival.key);
            refunded_or_not(world, task, arrival, asked, refunded);
        }
        Done::Settled(arrival, settled) => match settled {
            Ok(settled) => {
                let Ask::CheckAndSettle(charged, cost) = arrival.ask else { return };
                world.seen(format_args!("settled {}", settled.refunded));
                know(world, task, arrival, &settled.answer);
                let is_first = world.settled.insert((arrival.load, arrival.at, arrival.number));
                // Only the store knows which ids are settled: an id that it has forgotten is settled again.
                let has_forgotten = world.forgot_at.is_some_and(|then| then >= task.begun_at);
                if !is_first && !has_forgotten {
                    world.record.fail(
                        Invariant::GivenBackOnce,
                        world.now,
                        format!("{arrival:?} is settled twice"),
                    );
                }
                if settled.refunded > charged.saturating_sub(cost)
                    || settled.taken > cost.saturating_sub(charged)
                {
                    world.record.fail(
                        Invariant::GivenBackOnce,
                        world.now,
                        format!("{settled:?} of {arrival:?}"),
                    );
                }
                returned(world, &arrival, &settled.answer, settled.refunded);
                if settled.taken > 0 && settled.answer.mode == Mode::Leased {
                    let at = (world.now, world.executed());
                    let (permits, begun) = (settled.taken, world.now);
                    let what = What::Admitted { permits, begun, by: By::Lease };
                    world.note_at(at, arrival.key, what);
                } else if settled.taken > 0 {
                    let at = task.executed.unwrap_or((world.now, u64::MAX));
                    let (permits, begun) = (settled.taken, task.begun_at);
                    let what = What::Admitted { permits, begun, by: By::Store };
                    world.note_at(at, arrival.key, what);
                }
            }
            Err(SettleError::Settled) => {}
            Err(error) if is_disturbed(world, task) => world.seen(format_args!("{error}")),
            Err(error) => world.record.fail(
                Invariant::AnswerIsTrue,
                world.now,
                format!("{arrival:?}: {error}"),
            ),
        },
        Done::Held(arrival, step, decided) => {
            super::permits::see(world, task, arrival, step, decided);
        }
        Done::Returned => {}
        Done::Paid(owing) => world.seen(format_args!("node {} owes on {owing} keys", task.node)),
    }
}

fn refunded_or_not(
    world: &mut World<'_>,
    task: TaskView,
    arrival: Arrival,
    asked: u64,
    refunded: Result<Admission, DecideError>,
) {
    match refunded {
        Ok(admission) if admission.answer.decision.granted() > asked => {
            let granted = admission.answer.decision.granted();
            world.record.fail(
                Invariant::GivenBackOnce,
                world.now,
                format!("{granted} of {asked} are given back"),
            );
        }
        Ok(admission) => {
            know(world, task, arrival, &admission.answer);
            returned(world, &arrival, &admission.answer, asked);
        }
        Err(error) => failed(world, task, arrival, &error),
    }
}

fn decided(world: &mut World<'_>, task: TaskView, arrival: Arrival, answer: &Answer) {
    let (decision, mode, key) = (answer.decision, answer.mode, arrival.key);
    trace(world, task, arrival, answer);
    check_mode(world, task, answer);
    if decision.remaining > decision.limit || decision.granted() > arrival.ask.cost() {
        world.record.fail(
            Invariant::AnswerIsTrue,
            world.now,
            format!("{decision:?} to {arrival:?}"),
        );
    }
    let mut limits = world.plan.versions.iter().flat_map(|version| &version.rules);
    let fits = limits.all(|rule| arrival.ask.cost() <= rule.limit());
    if fits && matches!(decision.outcome, Outcome::Deny { retry: Retry::Never }) {
        world.record.fail(
            Invariant::AnswerIsTrue,
            world.now,
            format!("never, to {arrival:?}: {decision:?}"),
        );
    }
    super::debt_checks::hear(world, task, arrival, answer);
    know(world, task, arrival, answer);
    match (mode, arrival.ask) {
        (Mode::Store, Ask::Check(1)) => {
            let is_disturbed = is_disturbed(world, task);
            super::lease_checks::check_central(world, task.node, key, answer, is_disturbed);
        }
        _ => world.central[task.node][key] = Central::default(),
    }
    let granted = match arrival.ask {
        Ask::Peek(_) | Ask::Explain(_) | Ask::Reset => 0,
        _ => decision.granted(),
    };
    world.admitted += granted;
    if let Some(most) = world.plan.quota
        && world.admitted > most
    {
        let what = format!("{} are admitted of a quota of at most {most}", world.admitted);
        world.record.fail(Invariant::QuotaHolds, world.now, what);
    }
    if granted > 0 {
        count(world, task, key, granted, answer);
    }
    super::memory::see(world, task, arrival, answer);
    let charged = answer.charged();
    match arrival.ask {
        Ask::CheckAndRefund(_, back) if charged > 0 => {
            world.refund_later(arrival, back.min(charged));
        }
        Ask::CheckAndSettle(..) if charged > 0 => world.settle_later(arrival),
        _ => {}
    }
}

fn know(world: &mut World<'_>, task: TaskView, arrival: Arrival, answer: &Answer) {
    let asked = if matches!(arrival.ask, Ask::Reset) { 0 } else { arrival.ask.cost() };
    super::debt_checks::know(world, task, arrival.key, asked, answer);
}

fn trace(world: &mut World<'_>, task: TaskView, arrival: Arrival, answer: &Answer) {
    let (decision, mode) = (answer.decision, answer.mode);
    let numbers = [task.node, arrival.key, arrival.number]
        .map(|number| number as u64)
        .into_iter()
        .chain([task.begun_at, decision.granted(), decision.remaining, mode as u64]);
    world.seen_often(
        &numbers.collect::<Vec<_>>(),
        format_args!(
            "node {} key {} {:?} of {:.3}: {:?} by {}, {} left",
            task.node,
            arrival.key,
            arrival.ask,
            task.begun_at as f64 / 1_000.0,
            decision.outcome,
            mode.name(),
            decision.remaining
        ),
    );
}

/// Records that so many permits of a key were granted.
fn count(world: &mut World<'_>, task: TaskView, key: usize, granted: u64, answer: &Answer) {
    let wait = answer.decision.wait().get();
    let here = (world.now, world.executed());
    if answer.mode == Mode::Leased {
        world.dues[task.node][key].lease(granted);
    }
    if matches!(answer.mode, Mode::Local | Mode::Allow) {
        super::debt_checks::admit(world, task, key, granted, answer);
    }
    match answer.mode {
        Mode::Store => {
            world.unheard = world.unheard.saturating_sub(granted);
            let (at, order) = task.executed.unwrap_or((world.now, u64::MAX));
            if wait > 0 {
                let what = What::Booked { permits: granted, by_share: false };
                world.note_at((at, order), key, what);
            }
            let begun = task.begun_at + wait;
            let is_old = world.replaced.has_executed(order);
            let by = if is_old { By::OldStore } else { By::Store };
            world.note_at((at + wait, order), key, What::Admitted { permits: granted, begun, by });
        }
        Mode::Leased if task.is_batch => {
            // Permits may have been given back meanwhile: whether before or after this, is unknown.
            if world.given_back[key].is_none_or(|then| then < task.begun_at) {
                let (begun, by) = (task.begun_at, By::EarlierLease);
                world.note_at(here, key, What::Admitted { permits: granted, begun, by });
            }
        }
        // The node's clock was read at this instant.
        Mode::Leased => {
            super::lease_checks::check_end_of(world, task.node, key);
            super::lease_checks::check_rules(world, task.node, key, answer);
            let (begun, by) = (world.now, By::Lease);
            world.note_at(here, key, What::Admitted { permits: granted, begun, by });
        }
        Mode::Local => {
            let version = version_of(world, answer);
            let (begun, at) = (task.begun_at + wait, world.now + wait);
            let (of, run) = ((task.node, task.life), world.nodes[task.node].heard[key]);
            if wait > 0 {
                let what = What::Booked { permits: granted, by_share: true };
                world.note_at(here, key, what);
            }
            let run = (!task.is_batch).then_some(run);
            let what = What::ByShare { permits: granted, version, of, run, begun };
            world.note_at((at, here.1), key, what);
        }
        Mode::Allow => {
            world.note_at(here, key, What::Allowed { permits: granted, begun: task.begun_at });
        }
        Mode::Remembered | Mode::Shed | Mode::Deny => {}
    }
}

/// `SlowNetworkBurnsNoQuota`: over a slow network, the store counts no more of a quota as used than was admitted, plus
/// a hundredth of the limit. The client of Redis gives back what the store grants too late to single requests; it is
/// not simulated.
pub(crate) fn check_left(world: &mut World<'_>) {
    let Some(limit) = world.plan.quota.filter(|_| world.plan.is_only_late()) else { return };
    let used = world.server.used(&crate::node::key_name(0), world.now);
    let gone = used.saturating_sub(world.admitted + world.unheard);
    if gone > limit / 100 {
        let what = format!("{gone} of {limit} are gone, and nobody got them");
        world.record.fail(Invariant::SlowNetworkBurnsNoQuota, world.now, what);
    }
}

/// Permits that went back into a lease do not count any more.
fn returned(world: &mut World<'_>, arrival: &Arrival, answer: &Answer, permits: u64) {
    if answer.mode == Mode::Leased && permits > 0 {
        world.given_back[arrival.key] = Some(world.now);
        world.note_at((world.now, world.executed()), arrival.key, What::PutBack { permits });
    }
}

/// Returns the version of the policy that an answer was decided by: the last one that has its rules.
fn version_of(world: &World<'_>, answer: &Answer) -> usize {
    versions_of(world, answer).last().unwrap_or(0)
}

fn failed(world: &mut World<'_>, task: TaskView, arrival: Arrival, error: &DecideError) {
    world.seen(format_args!("node {} {:?}: {error}", task.node, arrival.ask));
    if matches!(arrival.ask, Ask::Reset) {
        super::memory::forget(world, task.node, arrival.key);
    }
    let can_fail = matches!(
        arrival.ask,
        Ask::Reset | Ask::CheckAndRefund(..) | Ask::CheckAndSettle(..) | Ask::Explain(_)
    );
    let removed_until = world.removed_until[task.node];
    let is_removed = removed_until > 0 && task.begun_at <= removed_until;
    if is_removed && matches!(error, DecideError::UnknownPolicy { .. }) {
        return;
    }
    note_probe(world, task);
    if !can_fail || !is_disturbed(world, task) {
        world.record.fail(Invariant::AnswerIsTrue, world.now, format!("{arrival:?}: {error}"));
    }
}
