//! The smallest part of a history that still breaks the same invariant.

use crate::plan::{FAULTS_MAX, Plan};
use crate::token::{Cut, HistoryToken};
use crate::{HistoryResult, run};

/// Histories that are tried at most.
const TRIES_MAX: usize = 300;

/// Leaves out faults, loads, nodes, keys and time as long as it still fails.
pub fn shrink(token: &HistoryToken, outcome: &HistoryResult) -> HistoryToken {
    let Some(violation) = &outcome.violation else { return token.clone() };
    let mut smallest = token.clone();
    let mut tries = 0;
    let mut until = violation.at;
    loop {
        let before = smallest.clone();
        for cut in smaller(&smallest.cut, until) {
            if tries >= TRIES_MAX {
                return smallest;
            }
            tries += 1;
            let candidate = HistoryToken { seed: token.seed, cut };
            let tried = run(&candidate);
            let fails = tried.violation.filter(|found| found.invariant == violation.invariant);
            if let Some(found) = fails {
                until = found.at;
                smallest = candidate;
                break;
            }
        }
        if smallest == before {
            return smallest;
        }
    }
}

/// Parts of `cut` that are one step smaller.
fn smaller(cut: &Cut, until_us: u64) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let faults = cut.faults.clone().unwrap_or_else(|| (0..FAULTS_MAX).collect());
    let loads = cut.loads.clone().unwrap_or_else(|| (0..=Plan::CALM_LOAD).collect());
    for place in 0..faults.len() {
        let mut faults = faults.clone();
        faults.remove(place);
        cuts.push(Cut { faults: Some(faults), ..cut.clone() });
    }
    for place in 0..loads.len() {
        let mut loads = loads.clone();
        loads.remove(place);
        cuts.push(Cut { loads: Some(loads), ..cut.clone() });
    }
    let (nodes, keys) = (cut.nodes.min(6), cut.keys.min(3));
    if nodes > 1 {
        cuts.push(Cut { nodes: nodes - 1, keys, ..cut.clone() });
    }
    if keys > 1 {
        cuts.push(Cut { keys: keys - 1, nodes, ..cut.clone() });
    }
    let until_us = (until_us / 1_000 + 1) * 1_000;
    if until_us < cut.until_us {
        cuts.push(Cut { until_us, ..cut.clone() });
    }
    cuts
}
