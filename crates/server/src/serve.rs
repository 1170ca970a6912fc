//! `sluicegate serve`: one engine behind the wires.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sluicegate::{Engine, StoreFailure, WallClock};
use sluicegate_policy::{DescriptorTree, PolicySet};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::descriptors::DescriptorArgs;
use crate::store::{AnyStore, StoreName, TimeSource};
use crate::wire::DRAIN_MAX;
use crate::wire::rls::RateLimits;
use crate::{say, wire};

/// What can be said to `sluicegate serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The policies in force (YAML or JSON); without them every policy is unknown.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where to listen for gateways that speak Envoy's rate limit service; without it they are not
    /// listened for.
    #[arg(long, value_name = "ADDRESS")]
    rls: Option<SocketAddr>,
    /// Which header fields such gateways are told to add to answers.
    #[arg(long, value_enum, default_value_t, requires = "rls")]
    rls_headers: wire::rls::Headers,
    #[command(flatten)]
    descriptors: DescriptorArgs,
    /// Where state is kept: `memory`, or a Redis or Valkey that servers share, such as
    /// `redis://127.0.0.1:6379`, `redis+sentinel://host,host/name` or `redis+cluster://host,host`.
    #[arg(
        long,
        value_name = "STORE",
        default_value = "memory",
        env = "SLUICEGATE_STORE",
        hide_env_values = true
    )]
    store: String,
    /// Whose clock rules on Redis.
    #[arg(long, value_enum, default_value_t = TimeSource::Server)]
    time_source: TimeSource,
    /// Servers that share the store. While it does not answer, each enforces that part of the
    /// limits.
    #[arg(long, value_name = "N", default_value = "1")]
    nodes: NonZeroU32,
}

/// Serves until the process is told to stop (SIGINT or SIGTERM), then lets requests in flight end.
/// Whoever tells it again does not want to wait for them.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let store = StoreName::parse(&args.store)?;
    let (policies, tree) = args.descriptors.load(args.policies.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve((policies, tree), &store, args))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    (policies, tree): (PolicySet, DescriptorTree),
    store: &StoreName,
    args: &ServeArgs,
) -> Result<()> {
    let listener = bind(args.listen).await?;
    let rls = match args.rls {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let mut signals = Signals::new()?;
    let store = AnyStore::open(store, args.time_source).await?;
    // Whoever started the server may have stopped listening to it; it serves all the same.
    let rls_address = rls.as_ref().map(TcpListener::local_addr).transpose()?;
    greet(&policies, listener.local_addr()?, rls_address).ok();
    let stop = CancellationToken::new();
    let told_twice = async {
        signals.next().await;
        stop.cancel();
        signals.next().await;
    };
    let failure = StoreFailure { nodes: args.nodes, ..StoreFailure::default() };
    let may_fail = matches!(store, AnyStore::Redis(_));
    let engine = Engine::new(policies, store, Arc::new(WallClock));
    let engine = Arc::new(if may_fail { engine.surviving(failure) } else { engine });
    let limits = Arc::new(RateLimits::new(Arc::clone(&engine), tree, args.rls_headers));
    let wires = async {
        let json = wire::rls::routes(Arc::clone(&limits));
        let http = wire::http::serve(engine, json, listener, stop.clone());
        let rls = async {
            match rls {
                Some(listener) => wire::rls::serve(limits, listener, stop.clone()).await,
                None => 0,
            }
        };
        let (http, rls) = tokio::join!(http, rls);
        http + rls
    };
    tokio::select! {
        cut_off = wires => {
            if cut_off > 0 {
                let seconds = DRAIN_MAX.as_secs();
                say::note(format_args!("cut off {cut_off} connections, in flight for {seconds} s"));
            }
            Ok(())
        }
        () = told_twice => bail!("told to stop twice: requests in flight were cut off"),
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// Says where the server is, and a command that works now.
fn greet(policies: &PolicySet, address: SocketAddr, rls: Option<SocketAddr>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    if let Some(rls) = rls {
        writeln!(out, "listening on grpc://{rls}")?;
    }
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
