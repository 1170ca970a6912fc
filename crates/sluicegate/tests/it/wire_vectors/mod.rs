//! `spec/wire`: the bytes and texts that every language must make alike, as data.
//!
//! The files are what this code says. `SLUICEGATE_WRITE=1 cargo test --workspace --all-features --test it
//! wire_vectors` writes them; read the diff: a change here is a
//! difference between a server and programs of an earlier version.
#![cfg(all(feature = "redis", feature = "http"))]

mod answers;
mod asks;
mod calendars;
mod documents;
mod failure;
mod versions;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Compares the file with what it should be, one entry a line; writes it where that is wanted.
fn is_fresh(name: &str, about: &str, entries: &[Value]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../spec/wire")
        .join(format!("{name}.json"));
    let lines: Vec<_> = entries.iter().map(|entry| format!("    {entry}")).collect();
    let text = format!(
        "{{\n  \"about\": {},\n  \"entries\": [\n{}\n  ]\n}}\n",
        json!(about),
        lines.join(",\n")
    );
    if std::env::var_os("SLUICEGATE_WRITE").is_some() {
        fs::write(&path, &text).expect("the folder is there");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{name}.json is stale: see the head of wire_vectors/mod.rs");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
