//! `sluicegate import`: the configurations of other rate limiters, as policies.
//!
//! Policies go to standard output. A note on standard error names each difference between a policy and the limit it
//! was imported from. Where more would pass than before, all such lines are reported and nothing is printed, unless
//! `--lossy` is given; an invalid row or line is always reported so.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sluicegate_control::Url;
use sluicegate_import::limiter_info::{LimiterRow, import_rows};
use sluicegate_import::{ImportSource, Imported, ImportedPolicy, Note, Severity, import};
use sluicegate_policy::Document;
use sluicegate_policy::limits::DOCUMENT_BYTES_MAX;
use sluicegate_text::terminal;

use super::yaml;

/// The variable with the URL of the database.
const FROM: &str = "SLUICEGATE_IMPORT_URL";

/// Most errors that are printed.
const TOLD_MAX: usize = 20;

/// Arguments of `sluicegate import rate-limiter-info`.
#[derive(Args)]
pub(crate) struct LimiterInfoArgs {
    /// The rows as CSV, with a header line; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Database with the table: `mysql://USER:PASSWORD@HOST/DATABASE`. Set SLUICEGATE_IMPORT_URL
    /// instead if the URL contains a password.
    #[arg(long, value_name = "URL", conflicts_with = "csv")]
    from: Option<String>,
    #[command(flatten)]
    lossy: LossyArg,
}

/// Permits imports by which more may pass than before.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LossyArg {
    /// Import also if more passes than before; the lines are printed as warnings. Without it they stop the import.
    #[arg(long)]
    pub(crate) lossy: bool,
}

/// Arguments of `sluicegate import nginx` and `sentinel`.
#[derive(Debug, Args)]
pub(crate) struct ImportFileArgs {
    /// The configuration; `-` for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    lossy: LossyArg,
}

/// Imports the rows, and prints the policies.
pub(super) async fn run(args: &LimiterInfoArgs) -> Result<ExitCode> {
    let from = || args.from.clone().or_else(|| std::env::var(FROM).ok());
    match &args.csv {
        Some(path) => run_file(ImportSource::RateLimiterInfo, path, args.lossy),
        None => match from() {
            Some(url) => run_database(&url, args.lossy).await,
            None => bail!("nothing to import: expected --csv FILE, or --from URL or {FROM}"),
        },
    }
}

/// Imports a file, and prints the policies.
pub(super) fn run_import(source: ImportSource, args: &ImportFileArgs) -> Result<ExitCode> {
    run_file(source, &args.file, args.lossy)
}

fn run_file(source: ImportSource, path: &Path, lossy: LossyArg) -> Result<ExitCode> {
    let shown = terminal::input(path);
    let text = read(path, &shown)?;
    let place = |note: &Note| match note.line {
        Some(line) => format!("{shown}:{line}"),
        None => shown.clone(),
    };
    let imported = import(source, &text);
    if let Ok(Imported { policies, notes, .. }) = &imported
        && policies.is_empty()
    {
        let has_limits = text.contains("limit_req") || text.contains("limit_conn");
        let why = match source {
            ImportSource::Nginx if has_limits => "none of its limits could be imported",
            ImportSource::Nginx => "it has no `limit_req` and no `limit_conn`",
            ImportSource::RateLimiterInfo => "it has no rows below the first line",
            ImportSource::Sentinel if notes.is_empty() => "the array has no rules",
            ImportSource::Sentinel | ImportSource::Envoy => "none of its rules could be imported",
        };
        terminal::print_error_line(format_args!("note: {shown}: no policies, because {why}"));
    }
    print(imported, lossy, place)
}

async fn run_database(url: &str, lossy: LossyArg) -> Result<ExitCode> {
    let url: Url = url.parse().context("--from")?;
    let rows = sluicegate_control::read_limiter_info(&url).await.context("--from")?;
    let rows = (1_u64..).zip(rows).map(|(place, row)| LimiterRow { place, row });
    let rows: Vec<_> = rows.collect();
    let named = |row: u64| {
        let found = usize::try_from(row).ok().and_then(|row| rows.get(row.checked_sub(1)?));
        let name = found.and_then(|found| found.row.name.as_deref()).unwrap_or_default();
        format!("row {row} (`{}`)", terminal::one_line(name))
    };
    let imported = import_rows(&rows, |row| named(*row), |row| Some(*row));
    print(imported, lossy, |note| note.line.map_or_else(String::new, named))
}

/// Prints the policies, and notes with their places.
fn print(
    imported: Result<Imported, Vec<Note>>,
    LossyArg { lossy }: LossyArg,
    place: impl Fn(&Note) -> String,
) -> Result<ExitCode> {
    let line = |note: &Note| format!("{}: {}", place(note), note.finding);
    let imported = match imported {
        Ok(imported) => imported,
        Err(errors) => {
            for error in errors.iter().take(TOLD_MAX) {
                terminal::print_error_line(terminal::escaped(&line(error)));
            }
            if errors.len() > TOLD_MAX {
                terminal::print_error_line(format_args!("and {} more", errors.len() - TOLD_MAX));
            }
            terminal::print_error_line("error: nothing was imported");
            return Ok(ExitCode::FAILURE);
        }
    };
    match imported.unless_wider(lossy) {
        Ok(Imported { policies, notes, descriptors: _ }) => {
            for note in &notes {
                let kind = match note.severity {
                    Severity::Widens => "warning",
                    Severity::Differs => "note",
                };
                terminal::print_error_line(terminal::escaped(&format!("{kind}: {}", line(note))));
            }
            let commented = policies
                .iter()
                .map(|ImportedPolicy { document, comment, line: _ }| (comment.clone(), document));
            let text = yaml::document(commented)?;
            // The printed document is valid.
            Document::parse(&text).context("the configuration does not form valid policies")?;
            terminal::print(text.as_bytes()).context("standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(wider) => {
            for note in &wider {
                terminal::print_error_line(terminal::escaped(&line(note)));
            }
            terminal::print_error_line(
                "error: nothing was imported: by these lines more would pass than before; \
                 `--lossy` imports the rest",
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The text of a file, as long as a document may be.
fn read(path: &Path, shown: &str) -> Result<String> {
    let input: Box<dyn io::Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).with_context(|| format!("cannot read {shown}"))?),
    };
    let mut bytes = Vec::new();
    let read = input.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {shown}"))?;
    if bytes.len() > DOCUMENT_BYTES_MAX {
        bail!("{shown}: more than {DOCUMENT_BYTES_MAX} bytes");
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow::anyhow!("{shown}: byte {at} is not UTF-8")
    })
}

impl std::fmt::Debug for LimiterInfoArgs {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimiterInfoArgs").finish_non_exhaustive()
    }
}
