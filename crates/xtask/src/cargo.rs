//! Chores that run existing tests with special arguments.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Decisions that a soak takes of each algorithm: a billion.
pub const SOAK_DECISIONS: u64 = 1_000_000_000;

/// Takes `decisions` decisions of one permit for each algorithm with a long-run rate, in release.
///
/// # Errors
/// If a rate misses by more than 1 ppm, or is ever exceeded.
pub fn soak(decisions: u64) -> Result<String> {
    cargo(
        &["--release", "-p", "sluicegate-kernel", "--test", "exact", "long_run::"],
        &BTreeMap::from([("SLUICEGATE_SOAK", &*decisions.to_string())]),
    )?;
    Ok(format!("{decisions} decisions of each: every rate is kept"))
}

/// Checks every file of the repository.
///
/// # Errors
/// If a file breaks a rule of `tests/tidy.rs`.
pub fn tidy() -> Result<String> {
    cargo(&["-p", "xtask", "--test", "tidy"], &BTreeMap::new())?;
    Ok("tidy".to_owned())
}

/// Writes the script of the Redis store, and its SHA-1, to `spec/redis`.
///
/// # Errors
/// If it cannot be built or written.
pub fn script() -> Result<String> {
    let test = "redis_script::published";
    cargo(
        &["-p", "sluicegate-store", "--features", "redis", "--test", "it", test],
        &BTreeMap::from([("SLUICEGATE_RECORD", "1")]),
    )?;
    Ok("spec/redis/decide.lua is what servers load".to_owned())
}

fn cargo(tests: &[&str], env: &BTreeMap<&str, &str>) -> Result<()> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .arg("test")
        .args(tests)
        .args(["--", "--nocapture"])
        .envs(env)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "`cargo test {}` fails", tests.join(" "));
    Ok(())
}
