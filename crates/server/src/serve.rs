//! `sluicegate serve`: one engine behind the wires.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sluicegate::Engine;
use sluicegate_policy::PolicySet;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::wire::DRAIN_MAX;
use crate::{policies, say, wire};

/// Serves until the process is told to stop (SIGINT or SIGTERM), then lets requests in flight end.
/// Whoever tells it again does not want to wait for them.
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
    let mut signals = Signals::new()?;
    // Whoever started the server may have stopped listening to it; it serves all the same.
    greet(&policies, listener.local_addr()?).ok();
    let stop = CancellationToken::new();
    let told_twice = async {
        signals.next().await;
        stop.cancel();
        signals.next().await;
    };
    let engine = Arc::new(Engine::in_memory(policies));
    tokio::select! {
        cut_off = wire::http::serve(engine, listener, stop.clone()) => {
            if cut_off > 0 {
                let seconds = DRAIN_MAX.as_secs();
                say::note(format_args!("cut off {cut_off} connections, in flight for {seconds} s"));
            }
            Ok(())
        }
        () = told_twice => bail!("told to stop twice: requests in flight were cut off"),
    }
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

/// What the process is told.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits until it is told to stop.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
