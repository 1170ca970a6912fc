//! `sluicegate health`: for supervisors of containers that have no curl.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use super::target::Target;
use super::tls::TlsRoots;
use super::{http, print_line, reply};

/// How long a server may take to say that it is ready: it does nothing for that, and supervisors
/// wait for some seconds.
const HEALTH_WAIT_MAX: Duration = Duration::from_secs(3);

/// What can be said to `sluicegate health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Admin address of the server, or `unix:/path`.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8082")]
    to: Target,
    #[command(flatten)]
    trust: TlsRoots,
}

/// Prints `ok` if the server is ready.
pub(super) async fn run(args: &HealthArgs) -> Result<ExitCode> {
    let answer = http::send((&args.to, &args.trust), http::get("/readyz"), HEALTH_WAIT_MAX).await?;
    if !answer.status.is_success() {
        bail!("not ready: {}", reply::problem(answer.status, &answer.body));
    }
    print_line("ok")?;
    Ok(ExitCode::SUCCESS)
}
