//! `sluicegate policies whatif`: where the two sets of policies come from.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use serde_json::json;
use sluicegate_control::catalog::{PolicyState, PolicyView};
use sluicegate_policy::{Document, PolicySet};
use sluicegate_replay::is_dash;
use sluicegate_replay::whatif::{CompareArgs, compare};
use sluicegate_text::documents::DocumentSource;

use crate::catalog::{Remote, ServerAccess};
use crate::client::{app, wait_for};

/// Arguments of `sluicegate policies whatif`.
#[derive(Debug, Args)]
pub(crate) struct WhatifArgs {
    /// New policies: a document (YAML or JSON) or a directory of documents.
    #[arg(short, long, value_name = "DIR|FILE")]
    file: PathBuf,
    /// Current policies: a document or a directory of documents.
    #[arg(long, value_name = "DIR|FILE", required_unless_present = "app", conflicts_with = "app")]
    policies: Option<PathBuf>,
    /// Use the current policies of this app on a server.
    #[arg(long, value_name = "APP", value_parser = app)]
    app: Option<String>,
    #[command(flatten)]
    server: ServerAccess,
    #[command(flatten)]
    compare: CompareArgs,
}

/// Compares both sets on the traffic of the log.
pub(crate) fn run(args: &WhatifArgs) -> Result<ExitCode> {
    if is_dash(&args.file) && is_dash(&args.compare.log) {
        bail!("--file: the policies and the log cannot both be standard input");
    }
    let new = of_files(&args.file)?;
    let today = match (&args.policies, &args.app) {
        (Some(path), _) => of_files(path)?,
        (None, Some(app)) => of_app(args, app)?,
        (None, None) => bail!("expected --policies or --app"),
    };
    compare(&args.compare, today, new)
}

/// The policies of a document or a directory, open to every app: a log does not name apps.
fn of_files(path: &Path) -> Result<PolicySet> {
    let document = DocumentSource::new(path.to_owned()).load()?.document;
    Ok(PolicySet::new(document.for_every_app()))
}

/// The policies of an app on a server, as they are in force there.
fn of_app(args: &WhatifArgs, app: &str) -> Result<PolicySet> {
    let remote = Remote::new(&args.server, app)?;
    let views = wait_for(remote.policies())?;
    let document = |PolicyView { name, state, mut document, .. }: PolicyView| {
        if state == PolicyState::Shadow {
            document["overflow"] = json!("shadow");
        }
        let text = json!({ "policies": [document] }).to_string();
        Document::parse(&text).with_context(|| format!("{}: `{name}`", remote.at()))
    };
    let documents = views.into_iter().map(document).collect::<Result<Vec<_>>>()?;
    let joined = Document::joined(documents);
    let joined = joined.map_err(|error| anyhow!("{}: {}", remote.at(), error.error))?;
    Ok(PolicySet::new(joined.for_every_app()))
}
