//! `sluicegate audit`: verifies or exports the chain of entries, from the database or an exported file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use serde::Serialize;
use sluicegate_control::audit::{AuditEntry, BrokenChain, Chain, Verified};
use sluicegate_control::{Catalog, Error, Url};
use sluicegate_text::terminal::{self, OutputFormat};

use crate::client::print_line;

/// Longest line of an exported file: two documents of 64 KiB, each escaped.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Commands for the audit.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify the chain of entries. Exit status: 0 intact, 1 broken, 2 error.
    Verify(VerifyArgs),
    /// Print the entries, oldest first, one JSON object per line.
    Export(AuditExportArgs),
}

/// Arguments of `sluicegate audit verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    database: Database,
    /// Verify a file written by `audit export` instead, with all entries from the first; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Hash of an entry that must exist, noted elsewhere earlier; detects a replaced chain.
    #[arg(long, value_name = "HASH")]
    head: Option<String>,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// Arguments of `sluicegate audit export`.
#[derive(Debug, Args)]
pub(crate) struct AuditExportArgs {
    #[command(flatten)]
    database: Database,
    /// Only entries of this app.
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// Only entries since this time: `2026-01-31`, or `2026-01-31T12:00:00Z`.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    since: Option<Timestamp>,
    /// Only entries after this number, such as the last one of an earlier export.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: i64,
}

/// The database of the catalog.
#[derive(Args)]
pub(crate) struct Database {
    /// Database URL: `sqlite:PATH`, `mysql://…` or `postgres://…`. Set the variable instead if the
    /// URL contains a password.
    #[arg(long, value_name = "URL", env = "SLUICEGATE_CATALOG_URL", hide_env_values = true)]
    catalog: Option<String>,
}

/// The answer of `verify`, as data.
#[derive(Serialize)]
struct VerifyOutput<'a> {
    ok: bool,
    #[serde(flatten)]
    verified: Option<&'a Verified>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

/// Runs the command.
pub(super) async fn run(command: &AuditCommand) -> Result<ExitCode> {
    match command {
        AuditCommand::Verify(args) => verify(args).await,
        AuditCommand::Export(args) => export(args).await,
    }
}

async fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let (mut head_was_seen, wanted) = (args.head.is_none(), args.head.as_deref());
    let look = |entry: &AuditEntry| head_was_seen |= wanted == Some(entry.hash.as_str());
    let verified = match &args.file {
        Some(file) => match verify_file(file, look)? {
            Ok(verified) => Ok(verified),
            Err(FileProblem::Broken(problem)) => Err(problem),
            Err(FileProblem::Partial(problem)) => bail!("{problem}"),
        },
        None => {
            let catalog = args.database.open_catalog().await?;
            let verified = match catalog.verify_audit_with(look).await {
                Ok(verified) => Ok(verified),
                Err(Error::Damaged(problem)) => Err(problem),
                Err(error) => return Err(error.into()),
            };
            catalog.close().await;
            verified
        }
    };
    let verified = verified.and_then(|verified| match wanted {
        Some(wanted) if !head_was_seen => Err(format!(
            "no entry has the hash `{}`: this is a different audit",
            terminal::one_line(wanted)
        )),
        _ => Ok(verified),
    });
    print(&verified, args.output)?;
    Ok(if verified.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(verified: &Result<Verified, String>, output: OutputFormat) -> Result<()> {
    match (verified, output) {
        (Ok(Verified { entries, head }), OutputFormat::Text) => {
            print_line(&format!("chain intact: {entries} entries, head {head}"))
        }
        (Err(problem), OutputFormat::Text) => {
            terminal::print_error_line(format_args!("broken: {}", terminal::escaped(problem)));
            Ok(())
        }
        (verified, OutputFormat::Json) => {
            let (ok, problem) = (verified.is_ok(), verified.as_ref().err().map(String::as_str));
            let output = VerifyOutput { ok, verified: verified.as_ref().ok(), problem };
            print_line(&serde_json::to_string(&output)?)
        }
    }
}

/// Why a file does not prove that its chain holds.
enum FileProblem {
    /// The chain does not hold.
    Broken(String),
    /// Some entries are not in the file, as in an export of a part.
    Partial(String),
}

/// Verifies the entries of a file, from the first on, and calls `look` for each; the inner error is a broken chain.
fn verify_file(
    path: &Path,
    mut look: impl FnMut(&AuditEntry),
) -> Result<Result<Verified, FileProblem>> {
    let shown = terminal::input(path);
    let input: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).with_context(|| format!("cannot read {shown}"))?),
    };
    let (mut input, mut line, mut number) = (BufReader::new(input), Vec::new(), 0_u64);
    let (mut chain, mut first, mut is_of_one_app) = (Chain::default(), None::<AuditEntry>, true);
    loop {
        line.clear();
        number += 1;
        let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.with_context(|| format!("cannot read {shown}"))? == 0 {
            return Ok(Ok(chain.verified()));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let entry: AuditEntry = match serde_json::from_slice(&line) {
            Ok(entry) => entry,
            Err(error) => {
                let problem = format!("line {number} is not an audit entry: {error}");
                return Ok(Err(FileProblem::Broken(problem)));
            }
        };
        let of_app = |first: &AuditEntry| first.app == entry.app;
        is_of_one_app &= entry.app.is_some() && first.as_ref().is_none_or(of_app);
        match chain.add(&entry) {
            Ok(()) => look(&entry),
            Err(BrokenChain::Missing(seq)) if first.is_none() || is_of_one_app => {
                let problem = format!(
                    "{shown}: entry {seq} is not in the file, so the chain cannot be verified; export all entries, without \
                     --app, --since and --after"
                );
                return Ok(Err(FileProblem::Partial(problem)));
            }
            Err(broken) => return Ok(Err(FileProblem::Broken(broken.to_string()))),
        }
        first.get_or_insert(entry);
    }
}

async fn export(args: &AuditExportArgs) -> Result<ExitCode> {
    let since_ms = args.since.map_or(i64::MIN, Timestamp::as_millisecond);
    let is_wanted = |entry: &&AuditEntry| {
        entry.at >= since_ms
            && args.app.as_deref().is_none_or(|app| entry.app.as_deref() == Some(app))
    };
    let catalog = args.database.open_catalog().await?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut after = args.after;
    loop {
        let entries = catalog.audit_since(after).await?;
        let Some(last) = entries.last() else { break };
        after = last.seq;
        for entry in entries.iter().filter(is_wanted) {
            match writeln!(out, "{}", entry.line()) {
                // The reader has closed the pipe.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(ExitCode::SUCCESS);
                }
                written => written.context("standard output")?,
            }
        }
    }
    catalog.close().await;
    terminal::unless_closed(out.flush()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

impl Database {
    /// Opens the catalog, without creating or changing it.
    async fn open_catalog(&self) -> Result<Catalog> {
        let Some(url) = &self.catalog else {
            bail!("no catalog: set --catalog or SLUICEGATE_CATALOG_URL");
        };
        let parsed: Url = url.parse().context("--catalog")?;
        Catalog::open_read_only(&parsed).await.with_context(|| match url.strip_prefix("sqlite:") {
            Some(file) => format!("--catalog: cannot open {}", terminal::one_line(file)),
            // The URL may contain a password.
            None => "--catalog".to_owned(),
        })
    }
}

impl std::fmt::Debug for Database {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

/// An instant, or the beginning of a day in UTC.
fn instant(text: &str) -> Result<Timestamp, String> {
    let day = || {
        let begin = text.parse::<Date>().ok()?.to_datetime(civil::Time::midnight());
        Some(begin.to_zoned(TimeZone::UTC).ok()?.timestamp())
    };
    let read = text.parse().ok().or_else(day);
    read.ok_or_else(|| "expected `2026-01-31` or `2026-01-31T12:00:00Z`".to_owned())
}
