//! `sluicegate health`: for supervisors of containers that have no curl.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use axum::http::StatusCode;
use clap::Args;

use super::watch::AdminArgs;
use super::{http, print_line, reply};

/// Longest wait for an answer: a server answers at once, and supervisors wait for some seconds.
const HEALTH_WAIT_MAX: Duration = Duration::from_secs(3);

/// Arguments of `sluicegate health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

/// Prints `ok` if the server is ready.
pub(super) async fn run(args: &HealthArgs) -> Result<ExitCode> {
    let answer =
        http::send((&args.admin.to, &args.admin.trust), http::get("/readyz"), HEALTH_WAIT_MAX)
            .await?;
    if answer.status == StatusCode::NOT_FOUND {
        let to = &args.admin.to;
        bail!(
            "{to} has no /readyz: `--to` is the admin, HTTP or metrics address, such as http://127.0.0.1:8082"
        );
    }
    if !answer.status.is_success() {
        bail!("not ready: {}", reply::problem(answer.status, &answer.body));
    }
    print_line("ok")?;
    Ok(ExitCode::SUCCESS)
}
