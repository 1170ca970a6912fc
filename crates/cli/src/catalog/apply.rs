//! `sluicegate policies apply`: the policies of an app made those of files, all or none.
//!
//! First the server is asked what it would do, which has a version; then it is asked to do that, unless
//! the policies are another version by then.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use axum::http::StatusCode;
use clap::Args;
use serde_json::{Value, json};
use sluicegate::Clock as _;
use sluicegate::internals::WallClock;
use sluicegate_control::catalog::{Applied, AppliedAll};
use sluicegate_policy::advice::{Advice, advice};
use sluicegate_policy::{Document, PolicySet};
use sluicegate_text::documents::Located;
use sluicegate_text::terminal::{self, OutputFormat};

use super::difference::{ChangeCounts, PlannedChange, lines, print_invalid};
use super::policy_files::PolicyFiles;
use super::remote::{ApplyOptions, RejectedField, Remote, RemoteError, ServerAccess};
use crate::client::{self, print_line};

/// Arguments of `sluicegate policies apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// A document (YAML or JSON), a directory of them, or `-` for standard input.
    #[arg(short, long, value_name = "DIR|FILE")]
    file: PathBuf,
    /// App that owns the policies.
    #[arg(long, value_name = "APP", value_parser = client::app)]
    app: String,
    /// Reason for the change, recorded in the audit.
    #[arg(long, value_name = "TEXT", default_value = "policies apply")]
    reason: String,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    /// Apply changes even if they could lock out clients.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    server: ServerAccess,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// Applies the policies of the files.
pub(super) async fn run(args: &ApplyArgs) -> Result<ExitCode> {
    let written = match PolicyFiles::read(args.file.clone())? {
        Ok(written) => written,
        Err(errors) => {
            print_invalid(&errors, args.output)?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let remote = Remote::new(&args.server, &args.app)?;
    let how = ApplyOptions { reason: &args.reason, force: args.force };
    let documents = written.documents();
    print_advice(&documents)?;
    let mut done = remote.show(&documents, how).await?;
    let is_done = match &done {
        Ok(shown) if !args.dry_run && shown.policies.iter().any(|one| one.action != "keep") => {
            done = remote.apply(&documents, shown.version, how).await?;
            done.is_ok()
        }
        _ => false,
    };
    match done {
        Ok(applied) => {
            print_applied(args, applied, is_done)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(refused) => {
            // Show what `--force` would do before it is used.
            let is_forcible = args.dry_run && refused.errors.is_empty() && !args.force;
            if is_forcible && !refused.warnings.is_empty() && args.output == OutputFormat::Text {
                let forced = ApplyOptions { force: true, ..how };
                if let Ok(applied) = remote.show(&documents, forced).await? {
                    print_applied(args, applied, false)?;
                }
            }
            print_rejected(args, &written, refused)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Prints the warnings of `policies check`.
fn print_advice(documents: &[&Value]) -> Result<()> {
    let text = serde_json::to_string(&json!({ "policies": documents }))?;
    // The server reports errors in the documents.
    let Ok(document) = Document::parse(&text) else { return Ok(()) };
    for Advice { policy, text } in advice(&PolicySet::new(document), WallClock.now()) {
        terminal::print_error_line(format_args!("warning: policy {policy}: {text}"));
    }
    Ok(())
}

/// Prints the changes that were applied, or would be.
fn print_applied(args: &ApplyArgs, applied: AppliedAll, is_done: bool) -> Result<()> {
    let AppliedAll { version, policies } = applied;
    if args.output == OutputFormat::Json {
        let (app, dry_run) = (&args.app, args.dry_run);
        let output = json!({
            "app": app, "applied": is_done, "dry_run": dry_run, "version": version,
            "policies": policies,
        });
        return print_line(&output.to_string());
    }
    let steps = policies.iter().map(|applied| {
        let Applied { policy, action, changes, state, version: _ } = applied;
        PlannedChange { policy, action, changes: changes.into(), state: Some(*state) }
    });
    let steps: Vec<_> = steps.collect();
    let counts @ ChangeCounts { create, update, delete, keep } = ChangeCounts::of(&steps);
    let counted = format!("{create} created, {update} changed, {delete} deleted, {keep} unchanged");
    let end = match (counts.is_nothing(), args.dry_run) {
        (true, _) => "nothing to do".to_owned(),
        (false, true) => format!("dry run, nothing applied: {counted}"),
        (false, false) => counted,
    };
    let text = format!("{}{}: {end}\n", lines(&steps), args.app);
    terminal::print(text.as_bytes()).context("standard output")
}

/// Prints why nothing was applied, with the places in the files.
fn print_rejected(args: &ApplyArgs, written: &PolicyFiles, refused: RemoteError) -> Result<()> {
    let RemoteError { status, detail, errors, warnings } = refused;
    let located =
        |RejectedField { pointer, detail }: &RejectedField| written.located(pointer, detail);
    let errors: Vec<Located> = errors.iter().map(located).collect();
    let warnings: Vec<Located> = warnings.iter().map(located).collect();
    if args.output == OutputFormat::Json {
        let output = json!({
            "app": args.app, "applied": false, "status": status.as_u16(), "detail": detail,
            "errors": errors, "warnings": warnings,
        });
        return print_line(&output.to_string());
    }
    print_invalid(&errors, OutputFormat::Text)?;
    for warning in &warnings {
        terminal::print_error_line(format_args!(
            "warning: {}",
            terminal::escaped(&warning.to_string())
        ));
    }
    let why = match status {
        StatusCode::PRECONDITION_FAILED => {
            "the policies have changed meanwhile; check again with `policies diff`".to_owned()
        }
        _ if !warnings.is_empty() => "use --force to ignore the warnings".to_owned(),
        _ if !errors.is_empty() => "the server rejected the policies".to_owned(),
        _ => detail,
    };
    terminal::print_error_line(format_args!("error: nothing was applied: {why}"));
    Ok(())
}
