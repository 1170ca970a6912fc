//! Test of the simulator of a fleet: each patch of `crates/sim/mutants` plants a fault in a copy of the repository, and
//! the simulator's test must fail there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Plants each mutant in a copy below `target/mutants`, or only those whose names contain `name`, and runs the
/// simulator's histories on it. The report has a line for each: the history that found it.
///
/// # Errors
/// If a patch does not apply, or its mutant is not found.
pub fn mutants(name: &str) -> Result<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let copy = root.join("target/mutants/copy");
    fs::create_dir_all(&copy).context("target/mutants/copy")?;
    let mut patches: Vec<PathBuf> = fs::read_dir(root.join("crates/sim/mutants"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    patches.retain(|patch| named(patch).contains(name));
    patches.sort();
    ensure!(!patches.is_empty(), "no mutant is called `{name}`");
    let mut lines = Vec::new();
    let mut missed = 0;
    for patch in &patches {
        copy_files(&root, &copy)?;
        apply(patch, &copy)?;
        let found = found_by(&copy)?;
        missed += usize::from(found.is_none());
        let found = found.unwrap_or_else(|| "NOT FOUND".to_owned());
        lines.push(format!("{}: {found}", named(patch)));
    }
    let report = lines.join("\n");
    ensure!(missed == 0, "{missed} mutants are not found\n{report}");
    Ok(report)
}

/// The name of a patch: its file without the extension.
fn named(patch: &Path) -> String {
    patch.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Makes `copy` equal to the tracked files of `root`, as they are there now.
fn copy_files(root: &Path, copy: &Path) -> Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output()?;
    ensure!(listed.status.success(), "`git ls-files` fails");
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(name), copy.join(name));
        let Ok(now) = fs::read(&from) else { continue };
        // An unchanged file keeps its time, so that cargo builds little again.
        if fs::read(&to).is_ok_and(|before| before == now) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::write(&to, now).with_context(|| name.to_owned())?;
    }
    Ok(())
}

/// Applies `patch` to the files of `copy`.
fn apply(patch: &Path, copy: &Path) -> Result<()> {
    let mut git = Command::new("git");
    git.arg("apply").arg(patch.canonicalize()?).current_dir(copy);
    // Without this, git finds the repository around the copy and ignores the patch.
    git.env("GIT_CEILING_DIRECTORIES", copy.canonicalize()?.join(".."));
    ensure!(git.status()?.success(), "{} does not apply", patch.display());
    Ok(())
}

/// The line that the simulator's test reports; `None` if it passes.
fn found_by(copy: &Path) -> Result<Option<String>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["test", "-q", "-p", "sluicegate-sim", "--test", "it", "no_"])
        .env("CARGO_TARGET_DIR", copy.join("../target"))
        .current_dir(copy)
        .output()
        .context("cannot start cargo")?;
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    let line = |start: &str| said.lines().find(|line| line.starts_with(start));
    if output.status.success() {
        return Ok(None);
    }
    // A failure of many histories together has no token.
    let together = line("lost writes: ").map(str::to_owned);
    let history = line("history ");
    let found = history.map(|history| format!("{history}; {}", line("sim: ").unwrap_or_default()));
    let found =
        found.or(together).context("the mutant does not build, or its test does not run")?;
    Ok(Some(found))
}
