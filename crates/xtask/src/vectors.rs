//! `vectors`: the answers in `spec/vectors` come from the kernel, and the schema from the types.
//!
//! A changed answer is a changed decision for the same traffic. Read the diff before you commit it:
//! the conformance crate's tests assert by hand what the essays of the algorithms state, so writing
//! the kernel's answers down cannot hide a mistake there.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use sluicegate_conformance::{
    bless, bless_lease, leases_path, leases_to_json, load, load_leases, schema, schema_path,
    to_json,
};

/// Writes every file that is out of date.
///
/// # Errors
/// If a vector is invalid or a file cannot be written.
pub fn write() -> Result<String> {
    let stale = stale()?;
    for (path, text) in &stale {
        fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(format!("{} of {} files written", stale.len(), load()?.len() + 2))
}

/// Compares every file with its expected content.
///
/// # Errors
/// If a file is stale, naming it.
pub fn check() -> Result<String> {
    let stale: Vec<_> = stale()?.into_iter().map(|(path, _)| path.display().to_string()).collect();
    ensure!(stale.is_empty(), "stale, run `cargo xtask vectors`: {}", stale.join(", "));
    Ok("the vectors are what the kernel says".to_owned())
}

/// The files that are out of date, with their expected content.
fn stale() -> Result<Vec<(PathBuf, String)>> {
    let mut expected = vec![(schema_path(), schema())];
    for (path, vector) in load()? {
        let blessed = bless(vector).with_context(|| path.display().to_string())?;
        expected.push((path, to_json(&blessed)));
    }
    let leases: Result<Vec<_>, _> = load_leases()?.into_iter().map(bless_lease).collect();
    let leases = leases.with_context(|| leases_path().display().to_string())?;
    expected.push((leases_path(), leases_to_json(&leases)));
    let differs = |(path, text): &(PathBuf, String)| {
        fs::read_to_string(path).map_or(true, |found| found != *text)
    };
    Ok(expected.into_iter().filter(differs).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_vectors_on_disk_are_fresh() {
        super::check().unwrap();
    }
}
