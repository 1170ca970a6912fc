//! `spec/wire`: the bytes and texts that every language must make alike, as data.
//!
//! This code makes the files. `SLUICEGATE_WRITE=1 cargo test --workspace --all-features --test it
//! wire_vectors` writes them; read the diff: a change here is a
//! difference between a server and programs of an earlier version.
#![cfg(all(feature = "redis", feature = "http"))]

mod answers;
mod asks;
mod calendars;
mod failure;
mod records;
mod versions;

use serde_json::Value;

/// Compares the file with the expected entries; writes it if the environment asks for that.
fn is_fresh(name: &str, about: &str, entries: &[Value]) {
    let entries: Vec<_> = entries.iter().map(ToString::to_string).collect();
    sluicegate_testkit::wire_vectors(name, about, &entries);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
