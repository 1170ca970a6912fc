//! The real program, with every wire on a free port.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

/// Longest time a test waits for the program, which answers in milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The program, to serve with this configuration, which is written to `folder`, and the policies of
/// the examples unless it says others.
pub(crate) fn program(folder: &TempDir, config: &str) -> Command {
    let file = folder.path().join("sluicegate.toml");
    fs::write(&file, config).expect("it can be written");
    let policies: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../examples/policies.yaml"].iter().collect();
    let mut program = Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    program.arg("serve").arg("--config").arg(file);
    if !config.contains("[policies]") && !config.contains("[catalog]") {
        program.arg("--policies").arg(policies);
    }
    for wire in ["HTTP", "RESP", "RLS", "ADMIN"] {
        program.env(format!("SLUICEGATE__{wire}__LISTEN"), "127.0.0.1:0");
    }
    program
}
