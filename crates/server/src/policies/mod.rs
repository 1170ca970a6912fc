//! `sluicegate policies`, and how every command reads a policy document.

mod in_force;
mod live;
mod source;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use sluicegate_policy::Document;

use crate::files::read;
use crate::say;
pub(crate) use in_force::InForce;
pub(crate) use live::{Live, Status};
pub(crate) use source::{Located, Source};

/// The document at `path` (`-` is standard input).
pub(crate) fn load(path: &Path) -> Result<Document> {
    let text = read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Document> {
    let document = Document::parse(text);
    document.with_context(|| format!("{} is no policy document", path.display()))
}

/// Prints whether the document or directory at `path` is sound, and if not, every path at which it is
/// not.
pub(crate) fn check(path: PathBuf) -> Result<ExitCode> {
    let shown = path.display().to_string();
    match Source::new(path).check()? {
        Ok(count) => {
            let noun = if count == 1 { "policy" } else { "policies" };
            let found = format!("{shown}: {count} {noun}, no errors\n");
            say::print(found.as_bytes()).context("standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            errors.iter().for_each(|error| say::note(format_args!("{error}")));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Prints the JSON Schema of policy documents.
pub(crate) fn print_schema() -> Result<ExitCode> {
    let mut schema = serde_json::to_vec_pretty(&sluicegate_policy::schema::document())?;
    schema.push(b'\n');
    say::print(&schema).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}
