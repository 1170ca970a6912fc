//! A store that has lost everything, and the permits that the first message of a holder restores.

use sluicegate_kernel::Leased;

use super::adversary::History;
use super::judge::Judge;
use super::worlds::{FAULTS, World, worlds};

/// Histories of each world, and steps before and after the loss.
const HISTORIES: u64 = 600;
const STEPS: usize = 60;

/// The most by which a history exceeds its rule, in millionths of a permit, if the store loses everything in the middle
/// of it.
fn worst(world: &World, number: u64, hints: bool) -> i128 {
    // Holders that crash never send again; the others' messages arrive.
    let mut faults = FAULTS[0];
    faults.crashes = number % 2 == 1;
    // Where keys are reset, nothing is booked: hints end at the limit, and bookings are beyond it.
    faults.resets = true;
    let mut history = History::new(world, faults, number);
    for _ in 0..STEPS {
        history.step();
    }
    let node = history.random.index(history.nodes.len());
    history.ask_and_hear(node);
    history.store = Leased::default();
    history.hints = hints;
    history.ask_and_hear(node);
    for _ in 0..STEPS {
        history.step();
    }
    history.judges.iter().map(Judge::worst).max().unwrap()
}

#[test]
fn nothing_more_passes_if_the_holder_that_was_answered_last_speaks_first() {
    for world in worlds() {
        for number in 0..HISTORIES {
            let worst = worst(&world, number, true);
            assert!(worst <= 0, "history {number} of {}: {worst} over the bound", world.name);
        }
    }
}

#[test]
fn without_hints_much_more_passes() {
    let worlds = worlds();
    let over = (0..HISTORIES).filter(|number| worst(&worlds[0], *number, false) > 0).count() as u64;
    assert!(over > HISTORIES / 20, "{over} of {HISTORIES} histories");
}
