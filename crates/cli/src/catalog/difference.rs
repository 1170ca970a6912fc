//! `sluicegate policies diff`: what applying files would change, and how changes are printed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use sluicegate_control::catalog::{Diff, PolicyState, PolicyView, changes};
use sluicegate_text::documents::Located;
use sluicegate_text::terminal::{self, OutputFormat};

use super::policy_files::{PolicyFiles, path};
use super::remote::{Remote, ServerAccess};
use crate::client::{self, print_line};
use crate::exit;

/// Arguments of `sluicegate policies diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A document (YAML or JSON), a directory of them, or `-` for standard input.
    #[arg(short, long, value_name = "DIR|FILE")]
    file: PathBuf,
    /// App that owns the policies.
    #[arg(long, value_name = "APP", value_parser = client::app)]
    app: String,
    #[command(flatten)]
    server: ServerAccess,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// The change of one policy.
#[derive(Debug, Serialize)]
pub(super) struct PlannedChange<'a> {
    pub(super) policy: &'a str,
    /// `create`, `update`, `delete` or `keep`.
    pub(super) action: &'a str,
    /// Fields of its document that differ.
    pub(super) changes: Cow<'a, [Diff]>,
    /// Its state afterwards, where the server named it.
    #[serde(skip)]
    pub(super) state: Option<PolicyState>,
}

/// Numbers of policies that are created, updated, deleted and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct ChangeCounts {
    pub(super) create: usize,
    pub(super) update: usize,
    pub(super) delete: usize,
    pub(super) keep: usize,
}

/// Compares the files with the policies on the server.
pub(super) async fn run(args: &DiffArgs) -> Result<ExitCode> {
    let written = match PolicyFiles::read(args.file.clone())? {
        Ok(written) => written,
        Err(errors) => {
            print_invalid(&errors, args.output)?;
            return Ok(ExitCode::from(exit::UNKNOWN));
        }
    };
    let there = Remote::new(&args.server, &args.app)?.policies().await?;
    let steps = compare(&there, &written);
    let counts = ChangeCounts::of(&steps);
    match args.output {
        OutputFormat::Text => {
            let mut text = lines(&steps);
            let ChangeCounts { create, update, delete, keep } = counts;
            let app = &args.app;
            writeln!(
                text,
                "{app}: {create} to create, {update} to change, {delete} to delete, {keep} to keep"
            )?;
            terminal::print(text.as_bytes()).context("standard output")?;
        }
        OutputFormat::Json => {
            let (app, equal) = (&args.app, counts.is_nothing());
            let output = json!({ "app": app, "equal": equal, "counts": counts, "policies": steps });
            print_line(&output.to_string())?;
        }
    }
    Ok(if counts.is_nothing() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Compares the policies that are `there` with those in files, ordered by name.
fn compare<'a>(there: &'a [PolicyView], written: &'a PolicyFiles) -> Vec<PlannedChange<'a>> {
    let mut pairs: BTreeMap<&str, (Option<&Value>, Option<&Value>)> = BTreeMap::new();
    for policy in there {
        pairs.entry(&policy.name).or_default().0 = Some(&policy.document);
    }
    for policy in &written.policies {
        let name = policy.document.get("name").and_then(Value::as_str).unwrap_or_default();
        pairs.entry(name).or_default().1 = Some(&policy.document);
    }
    let steps = pairs.into_iter().map(|(policy, (before, after))| {
        let null = &Value::Null;
        let changes = changes(before.unwrap_or(null), after.unwrap_or(null));
        let action = match (before, after) {
            (None, _) => "create",
            (_, None) => "delete",
            _ if changes.is_empty() => "keep",
            _ => "update",
        };
        PlannedChange { policy, action, changes: changes.into(), state: None }
    });
    steps.collect()
}

impl ChangeCounts {
    pub(super) fn of(steps: &[PlannedChange<'_>]) -> Self {
        let mut counts = Self::default();
        for step in steps {
            match step.action {
                "create" => counts.create += 1,
                "update" => counts.update += 1,
                "delete" => counts.delete += 1,
                _ => counts.keep += 1,
            }
        }
        counts
    }

    /// Returns whether no policy changes.
    pub(super) const fn is_nothing(self) -> bool {
        self.create + self.update + self.delete == 0
    }
}

/// Returns a line for each policy that changes, and one for each of its fields that changes.
pub(super) fn lines(steps: &[PlannedChange<'_>]) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for PlannedChange { policy, action, changes, state } in steps {
        match *action {
            "create" => match state {
                Some(PolicyState::Shadow) => line(format!("+ {policy} (shadow)")),
                Some(PolicyState::Active) => line(format!("+ {policy} (active)")),
                _ => line(format!("+ {policy}")),
            },
            "delete" => line(format!("- {policy}")),
            "update" => {
                line(format!("~ {policy}"));
                for Diff { pointer, before, after } in changes.iter() {
                    let (before, after) = (shown(before.as_ref()), shown(after.as_ref()));
                    let path = terminal::one_line(&path(pointer));
                    line(format!("    {path}: {before} becomes {after}"));
                }
            }
            _ => {}
        }
    }
    text
}

fn shown(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), |value| terminal::one_line(&value.to_string()))
}

/// Prints the errors in files: on standard error, or as JSON.
pub(super) fn print_invalid(errors: &[Located], output: OutputFormat) -> Result<()> {
    match output {
        OutputFormat::Text => {
            errors.iter().for_each(|error| {
                terminal::print_error_line(terminal::escaped(&error.to_string()));
            });
            Ok(())
        }
        OutputFormat::Json => print_line(&json!({ "errors": errors }).to_string()),
    }
}
