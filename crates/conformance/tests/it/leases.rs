//! The vectors about leases: the kernel answers them, and the answers that matter are repeated in words.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;

use sluicegate_conformance::{
    Answer, Expect, Failure, FoundSpec, Kernel, LeaseGrantSpec, LeaseReplySpec, LeaseStep,
    LeaseVector, VectorError, bless_lease, leases_path, leases_to_json, load_leases, run_lease,
};
use sluicegate_kernel::limits::UNITS_MAX;

use crate::vectors::largest;

#[test]
fn the_kernel_answers_every_vector_about_leases() {
    let vectors = load_leases().unwrap();
    for vector in &vectors {
        run_lease(vector, &mut Kernel::default()).unwrap();
    }
    let steps: usize = vectors.iter().map(|vector| vector.steps.len()).sum();
    println!("{} vectors, {steps} steps", vectors.len());
}

#[test]
fn the_file_is_as_the_writer_writes_it_and_each_name_is_there_once() {
    let vectors = load_leases().unwrap();
    assert_eq!(fs::read_to_string(leases_path()).unwrap(), leases_to_json(&vectors));
    let names: BTreeSet<_> = vectors.iter().map(|vector| vector.name.as_str()).collect();
    assert_eq!(names.len(), vectors.len());
}

#[test]
fn every_number_about_leases_is_exact_in_a_double() {
    for vector in load_leases().unwrap() {
        let value = serde_json::to_value(&vector).unwrap();
        assert!(largest(&value) <= UNITS_MAX, "{}", vector.name);
    }
}

#[test]
fn a_store_may_know_of_a_holder_all_that_there_is_to_know() {
    let mut found = Vec::new();
    for step in load_leases().unwrap().iter().flat_map(|vector| &vector.steps) {
        let LeaseStep::Message(step) = step else { continue };
        let Some(LeaseReplySpec::Granted(grant)) = &step.expect else { continue };
        if !found.contains(&grant.found) {
            found.push(grant.found);
        }
    }
    assert_eq!(found.len(), 5, "{found:?}");
}

#[test]
fn a_subject_that_answers_a_holder_otherwise_is_told_where() {
    let mut vector = named("worked_example");
    let LeaseStep::Message(step) = &mut vector.steps[2] else { unreachable!() };
    let Some(LeaseReplySpec::Granted(grant)) = &mut step.expect else { unreachable!() };
    grant.hint.used[0] = 26;
    let problem = run_lease(&vector, &mut Kernel::default()).unwrap_err();
    assert!(matches!(problem, VectorError::Mismatch { step: 2, .. }), "{problem}");
    let problem = problem.to_string();
    assert!(problem.contains("\"used\":[26]") && problem.contains("\"used\":[27]"), "{problem}");
}

#[test]
fn a_vector_about_leases_that_makes_no_sense_is_told_why() {
    let mut vector = named("worked_example");
    let LeaseStep::Message(step) = &mut vector.steps[2] else { unreachable!() };
    step.message.marks = vec![step.message.marks[0]; 5];
    let problem = bless_lease(vector).unwrap_err().to_string();
    assert!(problem.contains("5 marks"), "{problem}");
}

fn named(name: &str) -> LeaseVector {
    load_leases().unwrap().into_iter().find(|vector| vector.name == name).unwrap()
}

/// Checks the answers to the steps of a vector, in few words.
fn check(name: &str, expected: &[&str]) {
    let said: Vec<_> = named(name).steps.iter().map(said).collect();
    assert_eq!(said, expected, "{name}");
}

fn said(step: &LeaseStep) -> String {
    match step {
        LeaseStep::Message(step) => match step.expect.as_ref().unwrap() {
            LeaseReplySpec::Granted(grant) => describe_grant(grant),
            LeaseReplySpec::Overtaken(_) => "overtaken".to_owned(),
        },
        LeaseStep::Lost(_) => "lost".to_owned(),
        LeaseStep::Central(step) => match &step.expect {
            Some(Expect::Decision(answer)) => decided(answer),
            Some(Expect::Failure(Failure { error })) => format!("{error:?}"),
            None => "configured".to_owned(),
        },
    }
}

fn describe_grant(grant: &LeaseGrantSpec) -> String {
    let LeaseGrantSpec { kept, granted, free, found, .. } = grant;
    let found = match found {
        FoundSpec::Known => "known",
        FoundSpec::New => "new",
        FoundSpec::Void => "void",
        FoundSpec::Lost => "lost",
        FoundSpec::Full => "full",
    };
    format!("{found} {kept}+{granted}, {free} free")
}

fn decided(answer: &Answer) -> String {
    match answer.retry_after_us {
        Some(0) => format!("{} pass, {} left", answer.granted, answer.remaining),
        Some(retry_us) => format!("refused for {retry_us}"),
        None => "refused for ever".to_owned(),
    }
}

#[test]
fn the_worked_example_is_what_the_essay_s_table_says() {
    check(
        "worked_example",
        &[
            "new 0+40, 60 free",
            "refused for 912500",
            "known 10+0, 63 free",
            "74 pass, 0 left",
            "new 0+0, 0 free",
        ],
    );
}

#[test]
fn messages_that_come_again_late_or_never_are_harmless() {
    check(
        "a_repetition_is_answered_again_and_changes_nothing",
        &[
            "new 0+10, 90 free",
            // 6 are spent, 4 and 10 are out.
            "known 4+10, 80 free",
            "known 4+10, 80 free",
            "20 pass, 63 left",
            // 26 less 3 in 0.3 s less 6 in 0.6 s.
            "known 4+10, 69 free",
            "new 0+0, 69 free",
            // Its lease has lapsed: 14 are charged, and it names 4 that nothing stands for.
            "void 0+10, 61 free",
            "new 0+0, 61 free",
        ],
    );
    check(
        "an_overtaken_message_changes_nothing",
        &[
            "new 0+40, 60 free",
            "known 25+0, 60 free",
            "overtaken",
            "new 0+10, 50 free",
            "known 10+0, 50 free",
            "new 0+0, 50 free",
        ],
    );
    check(
        "an_unheard_grant_goes_back_unused",
        &[
            "new 0+40, 60 free",
            "known 40+5, 55 free",
            "known 30+0, 60 free",
            "known 0+0, 91 free",
            "void 0+0, 92 free",
            "new 0+0, 92 free",
        ],
    );
}

#[test]
fn what_lapses_and_what_is_given_back_is_not_the_same() {
    check(
        "a_lapsed_record_counts_as_spent_at_its_deadline",
        &[
            "new 0+40, 60 free",
            "refused for 1",
            "refused for 4000000",
            "70 pass, 0 left",
            "void 0+0, 0 free",
            "void 0+0, 0 free",
            "new 0+0, 0 free",
        ],
    );
    check(
        "what_is_given_back_is_free_at_once",
        &[
            "new 0+40, 60 free",
            "known 10+0, 75 free",
            "known 0+0, 85 free",
            "85 pass, 0 left",
            "refused for 100000",
            "overtaken",
        ],
    );
}

#[test]
fn lost_writes_are_put_down_again() {
    check(
        "what_was_lost_is_repaired_by_a_hint",
        &[
            "30 pass, 70 left",
            "new 0+10, 60 free",
            "new 0+10, 50 free",
            "lost",
            // 29 and 2 spent are in use, rounded up; 8 and 3 are out, and 10 of a holder that is not known yet.
            "lost 8+3, 47 free",
            "refused for 1112500",
            "46 pass, 1 left",
            "1 pass, 0 left",
            // 6 that it has spent were out, and a permit flows out in 0.1 s.
            "lost 4+0, 1 free",
            "new 0+0, 1 free",
        ],
    );
    check(
        "a_hint_is_believed_for_a_minute",
        &[
            "100 pass, 0 left",
            "new 0+0, 0 free",
            "lost",
            "lost 0+0, 60 free",
            "lost",
            "new 0+0, 100 free",
        ],
    );
    check(
        "a_lost_lease_that_has_ended_counts_as_spent",
        &[
            "new 0+40, 60 free",
            "lost",
            "lost 0+0, 20 free",
            "known 0+0, 20 free",
            "new 0+0, 20 free",
        ],
    );
}

#[test]
fn requests_beside_leases_find_what_is_not_out() {
    check(
        "reserve_at_most_and_refund_beside_records",
        &[
            "new 0+40, 60 free",
            "50 pass, 10 left",
            "10 pass, 0 left",
            "refused for 2000000",
            "refused for 100000",
            "refused for 100000",
            "60 pass, 60 left",
            "refused for 1112500",
            "known 0+0, 100 free",
            "100 pass, 0 left",
            "20 pass, 0 left",
            "known 0+0, 0 free",
        ],
    );
    check(
        "a_cost_that_would_pass_without_leases_is_never_refused_for_ever",
        &[
            "new 0+40, 60 free",
            "new 0+0, 60 free",
            "refused for 862500",
            "refused for ever",
            "refused for 862500",
        ],
    );
    check(
        "a_reset_keeps_records",
        &[
            "new 0+40, 60 free",
            "60 pass, 0 left",
            "0 pass, 60 left",
            "known 25+0, 60 free",
            "refused for 100000",
            "60 pass, 0 left",
        ],
    );
}
