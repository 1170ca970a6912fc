//! The vectors as a whole: the kernel answers them, they cover every verb, their format is sound.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use sluicegate_conformance::{
    Expect, Kernel, Op, Vector, VectorError, bless, load, run, schema, schema_path, to_json,
};
use sluicegate_kernel::algorithm::{AlgorithmInfo, algorithms};
use sluicegate_kernel::limits::UNITS_MAX;

#[test]
fn the_kernel_answers_every_vector() {
    let vectors = load().unwrap();
    for (_, vector) in &vectors {
        run(vector, &mut Kernel::default()).unwrap();
    }
    let steps: usize = vectors.iter().map(|(_, vector)| vector.steps.len()).sum();
    println!("{} vectors, {steps} steps", vectors.len());
}

#[test]
fn every_algorithm_has_every_verb() {
    let mut covered: BTreeMap<String, BTreeSet<Op>> = BTreeMap::new();
    for (_, vector) in load().unwrap() {
        let [rule] = &vector.rules[..] else { continue };
        let ops = vector.steps.iter().map(|step| step.op);
        covered.entry(rule.algorithm.clone()).or_default().extend(ops);
    }
    for AlgorithmInfo { name: algorithm, .. } in algorithms() {
        let ops = covered.remove(*algorithm).unwrap_or_default();
        let missing: Vec<_> = Op::ALL.into_iter().filter(|op| !ops.contains(op)).collect();
        assert!(missing.is_empty(), "{algorithm} lacks {missing:?}");
    }
}

#[test]
fn every_vector_is_where_its_name_and_its_algorithm_say() {
    for (path, vector) in load().unwrap() {
        assert_eq!(path.file_stem().unwrap(), vector.name.as_str(), "{}", path.display());
        let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        if folder == "ruleset" {
            assert!(vector.rules.len() > 1, "{}: one rule belongs to its algorithm", vector.name);
            continue;
        }
        assert_eq!(vector.rules.len(), 1, "{}: several rules belong to `ruleset`", vector.name);
        let of_folder = |rule: &sluicegate_conformance::RuleSpec| rule.algorithm == folder;
        let later = vector.steps.iter().filter_map(|step| step.rules.as_ref()).flatten();
        let any = vector.rules.iter().chain(later).any(of_folder);
        assert!(any, "{}: no rule is a `{folder}`", path.display());
    }
}

#[test]
fn every_number_is_exact_in_a_double() {
    for (path, vector) in load().unwrap() {
        let value = serde_json::to_value(&vector).unwrap();
        assert!(largest(&value) <= UNITS_MAX, "{}", path.display());
    }
}

pub(crate) fn largest(value: &serde_json::Value) -> u64 {
    match value {
        serde_json::Value::Number(number) => number.as_u64().unwrap_or(0),
        serde_json::Value::Array(items) => items.iter().map(largest).max().unwrap_or(0),
        serde_json::Value::Object(fields) => fields.values().map(largest).max().unwrap_or(0),
        _ => 0,
    }
}

#[test]
fn the_files_are_as_the_writer_writes_them() {
    for (path, vector) in load().unwrap() {
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, to_json(&vector), "{}", path.display());
    }
}

#[test]
fn every_vector_fits_the_schema_on_disk() {
    let text = fs::read_to_string(schema_path()).unwrap();
    assert_eq!(text, schema(), "stale, run `cargo xtask vectors`");
    let validator = jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap();
    for (path, vector) in load().unwrap() {
        let value = serde_json::to_value(&vector).unwrap();
        assert!(validator.is_valid(&value), "{}", path.display());
    }
    let unknown_field = serde_json::json!({ "name": "a", "about": "b", "rules": [], "step": [] });
    assert!(!validator.is_valid(&unknown_field));
}

fn tiny() -> Vector {
    serde_json::from_str(
        r#"{ "name": "tiny", "about": "One step.",
             "rules": [{ "name": "rule", "algorithm": "sliding_log",
                         "params": { "limit": 1, "window_us": 5 } }],
             "steps": [{ "at_us": 0, "op": "check" }] }"#,
    )
    .unwrap()
}

#[test]
fn a_subject_that_answers_otherwise_is_told_where() {
    let mut vector = bless(tiny()).unwrap();
    let Some(Expect::Decision(answer)) = &mut vector.steps[0].expect else { unreachable!() };
    answer.remaining = 7;
    let problem = run(&vector, &mut Kernel::default()).unwrap_err();
    assert!(matches!(problem, VectorError::Mismatch { step: 0, at_us: 0, .. }), "{problem}");
    assert!(problem.to_string().contains("\"remaining\":7"), "{problem}");
}

#[test]
fn a_vector_that_makes_no_sense_is_told_why() {
    let check = |change: fn(&mut Vector), problem: &str| {
        let mut vector = tiny();
        change(&mut vector);
        let found = run(&vector, &mut Kernel::default()).unwrap_err().to_string();
        assert!(found.contains(problem), "{found}");
    };
    check(|vector| vector.rules[0].algorithm = "gcar".into(), "unknown algorithm `gcar`");
    check(|vector| vector.rules.clear(), "0 rules, expected 1 to 8");
    check(
        |vector| {
            vector.rules[0].params.remove("window_us");
        },
        "window: is missing",
    );
    check(
        |vector| {
            let limit = vector.rules[0].params.remove("limit").unwrap();
            vector.rules[0].params.insert("limits".into(), limit);
        },
        "unknown parameter `limits`",
    );
    check(|vector| vector.steps[0].op = Op::Acquire, "Acquire without `id`");
    check(|vector| vector.steps[0].op = Op::Configure, "no `rules`");
}
