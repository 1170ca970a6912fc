//! `sluicegate init`: a configuration and policies to begin with.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::client::print_line;

/// The configuration file that a server reads from its working directory.
pub(crate) const CONFIG_FILE: &str = "sluicegate.toml";

/// The files: name and text.
const FILES: [(&str, &str); 2] = [
    (CONFIG_FILE, include_str!("sluicegate.toml")),
    ("policies.yaml", include_str!("policies.yaml")),
];

/// Arguments of `sluicegate init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Directory for the files; it is created if it does not exist.
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

/// Writes the files. A file that exists stays as it is, and then nothing is written.
pub(crate) fn run(args: &InitArgs) -> Result<ExitCode> {
    let InitArgs { dir } = args;
    let paths = FILES.map(|(name, text)| (dir.join(name), text));
    if let Some((path, _)) = paths.iter().find(|(path, _)| path.exists()) {
        let option = if path.ends_with("policies.yaml") { "--policies" } else { "--config" };
        let shown = path.display();
        bail!(
            "{shown} exists; nothing was written: start with it by `sluicegate serve {option} {shown}`, or name \
             another directory, `sluicegate init DIR`"
        );
    }
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (path, text) in &paths {
        write_new(path, text)?;
        print_line(&format!("wrote {}", path.display()))?;
    }
    let change =
        if dir == Path::new(".") { String::new() } else { format!("cd {}; ", dir.display()) };
    print_line(&format!("next: {change}sluicegate serve"))?;
    print_line("then: sluicegate check login alice   (six times: the sixth is refused)")?;
    Ok(ExitCode::SUCCESS)
}

fn write_new(path: &Path, text: &str) -> Result<()> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    let written = created.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => anyhow::anyhow!("{} exists", path.display()),
        _ => anyhow::anyhow!("cannot write {}: {error}", path.display()),
    })
}
