//! `sluicegate serve`: one engine behind the wires.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use sluicegate::Engine;
use sluicegate_policy::PolicySet;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::{policies, wire};

/// Serves until the process is told to stop (SIGINT or SIGTERM), then lets requests in flight end.
pub(crate) fn run(policies: Option<&Path>, listen: SocketAddr) -> Result<ExitCode> {
    let policies = match policies {
        Some(path) => PolicySet::new(policies::load(path)?),
        None => PolicySet::default(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(policies, listen))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(policies: PolicySet, listen: SocketAddr) -> Result<()> {
    let listener =
        TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let stop = stop_signal()?;
    // Whoever started the server may have stopped listening to it; it serves all the same.
    greet(&policies, listener.local_addr()?).ok();
    wire::http::serve(Arc::new(Engine::in_memory(policies)), listener, stop).await?;
    Ok(())
}

/// Says where the server is, and a command that works now.
fn greet(policies: &PolicySet, address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    let Some(policy) = policies.policies().first() else {
        return writeln!(out, "no policies: start with --policies FILE");
    };
    let app = policy.apps().and_then(|mut apps| apps.next());
    let app = app.map_or_else(String::new, |app| format!(r#","app":"{app}""#));
    let body = format!(r#"{{"policy":"{}","key":"alice"{app}}}"#, policy.name());
    writeln!(out, "try: curl -s http://{address}/v1/check -H 'content-type: application/json' \\")?;
    writeln!(out, "       -d '{body}'")
}

fn stop_signal() -> Result<impl Future<Output = ()> + Send> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
