//! The command line of the catalog: policies as files, the audit, and imports from other rate limiters.
//!
//! ```text
//! policies export, diff, apply ─┬─▶ remote ─▶ the admin API of a running server
//!                               └─▶ written ─▶ files, with the place of each policy in them
//! audit verify, export ─────────────▶ the database of the catalog, read only
//! import ───────────────────────────▶ configurations of other rate limiters, or their database
//! ```

mod apply;
mod audit;
mod difference;
mod export;
mod import;
mod policy_files;
mod remote;
mod yaml;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub(crate) use audit::AuditCommand;
pub(crate) use import::{ImportFileArgs, LimiterInfoArgs};
pub(crate) use remote::{Remote, ServerAccess};
use sluicegate_import::ImportSource;
use sluicegate_text::terminal;

use crate::client::wait_for;
use crate::exit;

/// Commands for policies of a catalog.
#[derive(Debug, Subcommand)]
pub(crate) enum CatalogPoliciesCommand {
    /// Print the policies of an app as one document, or write one file per policy.
    Export(export::ExportArgs),
    /// Show what applying files would change. Exit status: 0 nothing, 1 changes, 2 error.
    Diff(difference::DiffArgs),
    /// Replace all policies of an app with those in files, atomically; others are deleted.
    Apply(apply::ApplyArgs),
}

/// Runs a command for policies.
pub(crate) fn run(command: &CatalogPoliciesCommand) -> Result<ExitCode> {
    match command {
        CatalogPoliciesCommand::Export(args) => wait_for(export::run(args)),
        CatalogPoliciesCommand::Diff(args) => Ok(exit_code(wait_for(difference::run(args)))),
        CatalogPoliciesCommand::Apply(args) => wait_for(apply::run(args)),
    }
}

/// Runs a command for the audit.
pub(crate) fn run_audit(command: &AuditCommand) -> ExitCode {
    exit_code(wait_for(audit::run(command)))
}

/// Imports the rows of a `rate_limiter_info` table.
pub(crate) fn import_limiter_info(args: &LimiterInfoArgs) -> Result<ExitCode> {
    wait_for(import::run(args))
}

/// Imports the configuration of another rate limiter.
pub(crate) fn import_file(source: ImportSource, args: &ImportFileArgs) -> Result<ExitCode> {
    import::run_import(source, args)
}

/// The exit status of a command whose status 1 is not an error.
fn exit_code(ended: Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        terminal::print_error_line(format_args!("error: {error:#}"));
        ExitCode::from(exit::UNKNOWN)
    })
}
