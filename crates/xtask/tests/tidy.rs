//! The rules of ARCHITECTURE.md that a program can check.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A file longer than this hides a seam.
const LINES_MAX: usize = 800;

/// The crates that each crate may depend on. Crates that are not named here are leaves: none depends on them, so they
/// may depend on any.
const ARROWS: &[(&str, &[&str])] = &[
    ("sluicegate-kernel", &[]),
    ("sluicegate-net", &[]),
    ("sluicegate-policy", &["sluicegate-kernel"]),
    ("sluicegate-store", &["sluicegate-kernel", "sluicegate-net"]),
    ("sluicegate", &["sluicegate-policy", "sluicegate-store", "sluicegate-kernel"]),
    (
        "sluicegate-control",
        &[
            "sluicegate",
            "sluicegate-policy",
            "sluicegate-kernel",
            "sluicegate-net",
            "sluicegate-import",
            "sluicegate-text",
        ],
    ),
    ("sluicegate-import", &["sluicegate-policy", "sluicegate-text"]),
    ("sluicegate-console", &[]),
    ("sluicegate-text", &["sluicegate", "sluicegate-policy", "sluicegate-kernel"]),
    (
        "sluicegate-replay",
        &["sluicegate", "sluicegate-policy", "sluicegate-kernel", "sluicegate-text"],
    ),
    (
        "sluicegate-server",
        &[
            "sluicegate",
            "sluicegate-console",
            "sluicegate-control",
            "sluicegate-policy",
            "sluicegate-kernel",
            "sluicegate-net",
            "sluicegate-replay",
            "sluicegate-text",
        ],
    ),
    (
        "sluicegate-cli",
        &[
            "sluicegate",
            "sluicegate-console",
            "sluicegate-control",
            "sluicegate-policy",
            "sluicegate-import",
            "sluicegate-kernel",
            "sluicegate-net",
            "sluicegate-replay",
            "sluicegate-server",
            "sluicegate-text",
        ],
    ),
];

/// Leaves, which no other crate may depend on except for tests.
const LEAVES: &[&str] = &[
    "sluicegate-conformance",
    "sluicegate-lua",
    "sluicegate-testkit",
    "sluicegate-bench",
    "sluicegate-sim",
    "xtask",
    "sluicegate-fuzz",
];

/// The crates that the policy crate may depend on: all work without a standard library.
const OF_POLICY: &[&str] =
    &["foldhash", "hashbrown", "jiff", "serde", "serde-saphyr", "serde_json", "sluicegate-kernel"];

/// Folders that are not checked; `.git` can be a file.
const SKIPPED: &[&str] =
    &["target", ".git", ".tools", "corpus", "artifacts", "node_modules", "dist"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Every file of the project, with its text if it is UTF-8.
fn files() -> Vec<(String, String)> {
    let (root, mut folders, mut files) = (root(), vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if SKIPPED.contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let path = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
                files.push((path, text));
            }
        }
    }
    assert!(files.len() > 50, "only {} files found", files.len());
    files
}

fn rust_files() -> impl Iterator<Item = (String, String)> {
    files().into_iter().filter(|(path, _)| path.ends_with(".rs"))
}

fn manifests() -> Vec<toml::Table> {
    let manifests = files().into_iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    let tables = manifests.map(|(path, text)| {
        text.parse::<toml::Table>().unwrap_or_else(|error| panic!("{path}: {error}"))
    });
    tables.filter(|table| table.contains_key("package")).collect()
}

fn name(manifest: &toml::Table) -> &str {
    manifest["package"]["name"].as_str().unwrap()
}

/// The names under `[section]`, including those for some target or feature only.
fn names(manifest: &toml::Table, section: &str) -> Vec<String> {
    let table = |of: &toml::Table| of.get(section).and_then(toml::Value::as_table).cloned();
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flat_map(toml::Table::values);
    let tables = targets.filter_map(toml::Value::as_table).chain([manifest]);
    tables.filter_map(table).flat_map(|table| table.keys().cloned().collect::<Vec<_>>()).collect()
}

#[test]
fn no_file_is_too_long_to_be_read() {
    for (path, text) in rust_files() {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{path} has {lines} lines, more than {LINES_MAX}");
    }
}

#[test]
fn every_file_says_what_it_is() {
    for (path, text) in rust_files() {
        assert!(text.starts_with("//!"), "{path} does not begin with `//!`");
    }
}

#[test]
fn nothing_is_left_undone() {
    let marks =
        [["to", "do!("].concat(), ["unimple", "mented!("].concat(), ["#[ig", "nore"].concat()];
    for (path, text) in rust_files() {
        for mark in &marks {
            assert!(!text.contains(mark), "{path} contains `{mark}`");
        }
    }
}

#[test]
fn no_file_knows_the_folders_of_one_machine() {
    let homes = [["/wo", "rk/"].concat(), ["/ro", "ot/"].concat(), ["/ho", "me/"].concat()];
    for (path, text) in files() {
        let home = homes.iter().find(|home| text.contains(home.as_str()));
        assert!(home.is_none(), "{path} names a path of one machine: {home:?}");
    }
}

#[test]
fn the_pure_crates_have_no_standard_library() {
    for folder in ["kernel", "policy"] {
        let text = fs::read_to_string(root().join(format!("crates/{folder}/src/lib.rs"))).unwrap();
        assert!(text.contains("\n#![no_std]\n"), "crates/{folder} is not `#![no_std]`");
    }
    let manifests = manifests();
    let kernel = manifests.iter().find(|manifest| name(manifest) == "sluicegate-kernel").unwrap();
    assert_eq!(names(kernel, "dependencies"), [""; 0], "the kernel depends on nothing");
    let policy = manifests.iter().find(|manifest| name(manifest) == "sluicegate-policy").unwrap();
    for dependency in names(policy, "dependencies") {
        assert!(OF_POLICY.contains(&dependency.as_str()), "policy must not depend on {dependency}");
    }
}

/// A test of documents cannot detect this: dependencies of tests turn the feature on in the whole build.
#[test]
fn numbers_of_documents_are_read_exactly() {
    let policy = manifests().into_iter().find(|manifest| name(manifest) == "sluicegate-policy");
    let features = policy.expect("there is one")["dependencies"]["serde_json"]["features"].clone();
    let is_exact = |feature: &toml::Value| feature.as_str() == Some("float_roundtrip");
    assert!(features.as_array().expect("a list").iter().any(is_exact), "{features:?}");
}

#[test]
fn dependencies_point_down_and_nowhere_else() {
    for manifest in manifests() {
        let arrows = ARROWS.iter().find(|(from, _)| *from == name(&manifest));
        for to in names(&manifest, "dependencies") {
            let ours =
                ARROWS.iter().any(|(known, _)| *known == to) || LEAVES.contains(&to.as_str());
            let allowed = match arrows {
                Some((_, down)) => down.contains(&to.as_str()),
                None => LEAVES.contains(&name(&manifest)),
            };
            assert!(!ours || allowed, "{} must not depend on {to}", name(&manifest));
        }
    }
}

#[test]
fn no_seam_is_gone_over() {
    assert_eq!(xtask::seams::problems(&files()), [""; 0]);
}

#[test]
fn public_names_are_listed_with_a_reason() {
    let mut files = files();
    if std::env::var_os("SLUICEGATE_WRITE").is_some() {
        let list = xtask::public_api::list(&files).unwrap();
        fs::write(root().join(xtask::public_api::LIST), &list).unwrap();
        files.retain(|(path, _)| path != xtask::public_api::LIST);
        files.push((xtask::public_api::LIST.to_owned(), list));
    }
    assert_eq!(xtask::public_api::problems(&files), [""; 0]);
}

#[test]
fn no_modules_form_a_circle() {
    assert_eq!(xtask::circles::problems(&files()), [""; 0]);
}

#[test]
fn names_of_types_say_which_one_is_meant() {
    assert_eq!(xtask::type_names::problems(&files()), [""; 0]);
}

#[test]
fn functions_take_few_tuples() {
    assert_eq!(xtask::tuples::problems(&files()), [""; 0]);
}

#[test]
fn tests_do_not_wait_by_the_clock_on_the_wall() {
    assert_eq!(xtask::waits::problems(&files()), [""; 0]);
}

#[test]
fn each_dependency_has_a_purpose() {
    let manifests = manifests();
    let sections = ["dependencies", "build-dependencies", "dev-dependencies"];
    let all = manifests.iter().flat_map(|of| sections.map(|section| names(of, section))).flatten();
    let own: BTreeSet<_> = manifests.iter().map(|manifest| name(manifest).to_owned()).collect();
    let named = all.filter(|name| !own.contains(name)).collect();
    let list = fs::read_to_string(root().join(xtask::dependencies::LIST)).unwrap();
    assert_eq!(xtask::dependencies::problems(&named, &list), [""; 0]);
}

#[test]
fn doc_comments_begin_with_their_subject() {
    assert_eq!(xtask::doc_comments::problems(&files()), [""; 0]);
}

#[test]
fn unsafe_code_is_forbidden_everywhere() {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    for manifest in manifests().iter().filter(|manifest| name(manifest) != "sluicegate-fuzz") {
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace"));
        assert_eq!(
            inherits.and_then(toml::Value::as_bool),
            Some(true),
            "{} does not take over the workspace's lints",
            name(manifest),
        );
    }
}
