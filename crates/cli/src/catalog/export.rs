//! `sluicegate policies export`: the policies of an app as files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use sluicegate_control::catalog::{PolicyState, PolicyView};
use sluicegate_policy::Document;
use sluicegate_text::documents::DocumentSource;
use sluicegate_text::terminal::{self, OutputFormat};

use super::remote::{Remote, ServerAccess};
use super::yaml;
use crate::client::{self, print_line};

/// Arguments of `sluicegate policies export`.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// App that owns the policies.
    #[arg(long, value_name = "APP", value_parser = client::app)]
    app: String,
    /// Write one file per policy to this directory, created if missing. Without it, print one
    /// document.
    #[arg(short = 'f', long = "file", value_name = "DIR")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    server: ServerAccess,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// Exports the policies of the app.
pub(super) async fn run(args: &ExportArgs) -> Result<ExitCode> {
    let policies = Remote::new(&args.server, &args.app)?.policies().await?;
    if let Some(directory) = &args.directory {
        write_files(directory, &policies)?;
        let names: Vec<_> = policies.iter().map(|policy| &policy.name).collect();
        let (directory, count) = (directory.display(), names.len());
        let noun = if count == 1 { "policy" } else { "policies" };
        print_line(&match args.output {
            OutputFormat::Text => format!("{count} {noun} of {} written to {directory}", args.app),
            OutputFormat::Json => {
                json!({ "app": args.app, "directory": directory.to_string(), "policies": names })
                    .to_string()
            }
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = match args.output {
        OutputFormat::Text => {
            document(&policies).context("use `--output json`, or a directory with -f")?
        }
        OutputFormat::Json => {
            let documents: Vec<_> = policies.iter().map(|policy| &policy.document).collect();
            serde_json::to_string_pretty(&json!({ "policies": documents }))? + "\n"
        }
    };
    terminal::print(text.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a YAML document of `policies`, after checking that it reads back as the same policies.
fn document(policies: &[PolicyView]) -> Result<String> {
    let commented = policies.iter().map(|policy| {
        let comment = (policy.state == PolicyState::Shadow).then_some("shadow: refuses nothing");
        (comment.map(str::to_owned), &policy.document)
    });
    let text = yaml::document(commented)?;
    let read = Document::written(&text).context("they do not form a valid document")?;
    let documents: Vec<&Value> = policies.iter().map(|policy| &policy.document).collect();
    if read.iter().ne(documents) {
        bail!("they cannot be written as YAML");
    }
    Ok(text)
}

/// Writes a file for each of `policies`. If the directory has other documents, which would be
/// applied with them, nothing is written.
fn write_files(directory: &Path, policies: &[PolicyView]) -> Result<()> {
    let mut files = Vec::with_capacity(policies.len());
    for policy in policies {
        let text = document(std::slice::from_ref(policy)).with_context(|| policy.name.clone())?;
        files.push((directory.join(file_name(&policy.name)), text));
    }
    let cannot = || format!("cannot write to {}", directory.display());
    fs::create_dir_all(directory).with_context(cannot)?;
    let there = DocumentSource::new(directory.to_owned()).files()?;
    if let Some(other) = there.iter().find(|path| files.iter().all(|(own, _)| own != *path)) {
        bail!(
            "{} is not one of these policies, but would be applied with them: remove it, or choose \
             another directory; nothing was written",
            other.display()
        );
    }
    for (path, text) in files {
        let is_same = match fs::read_to_string(&path) {
            Ok(there) => there == text,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        if !is_same {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// The name of the file for the policy `name`. Hidden files are not read as documents; no name
/// contains `%`.
fn file_name(name: &str) -> String {
    match name.strip_prefix('.') {
        Some(rest) => format!("%2e{rest}.yaml"),
        None => format!("{name}.yaml"),
    }
}
