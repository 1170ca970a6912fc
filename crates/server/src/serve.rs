//! `sluicegate serve`: one engine behind the wires.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sluicegate::{Engine, StoreFailure, WallClock};
use sluicegate_policy::PolicySet;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

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
    /// Where to listen for Redis clients (`SG.CHECK`, `CL.THROTTLE`); without it they are not
    /// listened for.
    #[arg(long, value_name = "ADDRESS")]
    resp: Option<SocketAddr>,
    /// The file that holds the password of Redis clients (`AUTH`); line breaks at its end do not
    /// count. Without it everybody may ask.
    #[arg(long, value_name = "FILE", requires = "resp")]
    resp_password_file: Option<PathBuf>,
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
    let policies = match &args.policies {
        Some(path) => PolicySet::new(policies::load(path)?),
        None => PolicySet::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(policies, &store, args))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(policies: PolicySet, store: &StoreName, args: &ServeArgs) -> Result<()> {
    let listener = bind(args.listen).await?;
    let resp = match args.resp {
        Some(address) => Some((bind(address).await?, password(args)?)),
        None => None,
    };
    let mut signals = Signals::new()?;
    let store = AnyStore::open(store, args.time_source).await?;
    // Whoever started the server may have stopped listening to it; it serves all the same.
    let resp_address = resp.as_ref().map(|(listener, _)| listener.local_addr()).transpose()?;
    greet(&policies, listener.local_addr()?, resp_address).ok();
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
    let wires = async {
        let http = wire::http::serve(Arc::clone(&engine), listener, stop.clone());
        let resp = async {
            let Some((listener, password)) = resp else { return 0 };
            wire::resp::serve(Arc::clone(&engine), listener, stop.clone(), password).await
        };
        let (http, resp) = tokio::join!(http, resp);
        http + resp
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

/// What the file with the password of Redis clients says.
fn password(args: &ServeArgs) -> Result<Option<wire::resp::Password>> {
    let Some(path) = &args.resp_password_file else { return Ok(None) };
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let password = wire::resp::Password::new(text.trim_end_matches(['\r', '\n']));
    password.map(Some).with_context(|| format!("{} is empty", path.display()))
}

/// Says where the server is, and commands that work now.
fn greet(policies: &PolicySet, address: SocketAddr, resp: Option<SocketAddr>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "listening on http://{address}")?;
    if let Some(resp) = resp {
        writeln!(out, "listening on redis://{resp}")?;
    }
    let Some(policy) = policies.policies().first() else {
        return writeln!(out, "no policies: start with --policies FILE");
    };
    let app = policy.apps().and_then(|mut apps| apps.next());
    let json_app = app.map_or_else(String::new, |app| format!(r#","app":"{app}""#));
    let body = format!(r#"{{"policy":"{}","key":"alice"{json_app}}}"#, policy.name());
    writeln!(out, "try: curl -s http://{address}/v1/check -H 'content-type: application/json' \\")?;
    writeln!(out, "       -d '{body}'")?;
    let Some(resp) = resp else { return Ok(()) };
    let app = app.map_or_else(String::new, |app| format!(" APP {app}"));
    let (host, port, policy) = (resp.ip(), resp.port(), policy.name());
    writeln!(out, "or:  redis-cli -h {host} -p {port} SG.CHECK {policy} alice{app}")
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
