//! `sluicegate serve`: one engine behind the wires.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sluicegate::{Clock, Engine, StoreFailure, WallClock};
use sluicegate_policy::PolicySet;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::snapshot::{MemoryArgs, Snapshots};
use crate::store::{AnyStore, StoreName, TimeSource};
use crate::wire::DRAIN_MAX;
use crate::{policies, say, wire};

/// What can be said to `sluicegate serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The policies in force (YAML or JSON); without them every policy is unknown.
    #[arg(long, value_name = "FILE")]
    policies: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
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
    #[command(flatten)]
    memory: MemoryArgs,
}

/// Serves until the process is told to stop (SIGINT or SIGTERM), then lets requests in flight end.
/// Whoever tells it again does not want to wait for them.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let store = StoreName::parse(&args.store)?;
    args.memory.go_with(&store)?;
    let policies = match &args.policies {
        Some(path) => PolicySet::new(policies::load(path)?),
        None => PolicySet::default(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(policies, &store, args))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(policies: PolicySet, store: &StoreName, args: &ServeArgs) -> Result<()> {
    let listen = args.listen;
    let listener =
        TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let mut signals = Signals::new()?;
    let (store, snapshots) = match store {
        StoreName::Memory => {
            let (store, snapshots) = args.memory.open(&policies, WallClock.now())?;
            (AnyStore::Memory(store), snapshots)
        }
        StoreName::Redis(config) => (AnyStore::open(config, args.time_source).await?, None),
    };
    // Whoever started the server may have stopped listening to it; it serves all the same.
    greet(&policies, listener.local_addr()?).ok();
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
    tokio::select! {
        served = answer(engine, listener, snapshots, &stop) => served,
        () = told_twice => bail!("told to stop twice: requests in flight were cut off"),
    }
}

/// Answers until `stop`. What is written last is what was decided last.
async fn answer(
    engine: Arc<Engine<AnyStore>>,
    listener: TcpListener,
    snapshots: Option<Snapshots>,
    stop: &CancellationToken,
) -> Result<()> {
    let kept = async {
        if let Some(snapshots) = &snapshots {
            snapshots.keep(stop).await;
        }
    };
    let (cut_off, ()) = tokio::join!(wire::http::serve(engine, listener, stop.clone()), kept);
    if cut_off > 0 {
        let seconds = DRAIN_MAX.as_secs();
        say::note(format_args!("cut off {cut_off} connections, in flight for {seconds} s"));
    }
    match snapshots {
        Some(snapshots) => snapshots.write().await,
        None => Ok(()),
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
