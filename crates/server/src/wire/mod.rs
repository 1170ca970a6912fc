//! The wires: one folder a protocol, each a `codec` (no IO) and a `serve` (IO).
//!
//! A wire owns its types and its status mapping; nothing of it leaves its folder. A new one is a
//! folder, and here a name with its listen addresses and its `serve`.

pub(crate) mod accept;
mod admin;
mod foreign;
pub(crate) mod headers;
mod health;
pub mod http;
pub mod resp;
pub mod rls;
mod tls;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::authenticator::Authenticator;
use crate::config::{Config, HostName, Listen, TlsConfig};
use crate::control::AdminApi;
use crate::engine::ServerEngine;
use crate::metrics::ScrapePace;
use crate::policies::PolicyManager;
use crate::protocol::Wire;
use crate::service_manager::ServiceManager;
use crate::snapshot::Snapshots;
use crate::workers::Workers;
use accept::Listener;
use headers::BudgetHeaders;
use http::TrustedPeers;
use resp::Password;
use rls::RateLimits;

pub(crate) use accept::{DRAIN_MAX, raise_files_max};
pub(crate) use tls::Renewal;
use tls::WireTls;

/// A wire that listens, and does not answer yet.
#[derive(Debug)]
pub(crate) struct Bound {
    wire: Wire,
    listener: Listener,
}

/// The context that all wires share.
#[derive(Clone, Debug)]
pub(crate) struct ServerContext {
    pub(crate) engine: Arc<ServerEngine>,
    pub(crate) live: Arc<PolicyManager>,
    pub(crate) limits: Arc<RateLimits>,
    /// The authentication of requests.
    pub(crate) authenticator: Arc<Authenticator>,
    /// The admin API.
    pub(crate) admin_api: Arc<AdminApi>,
    /// The admin API has an address of its own.
    pub(crate) has_own_admin_api: bool,
    /// The header fields with which clients of HTTP learn about their budgets.
    pub(crate) http_headers: BudgetHeaders,
    /// Gateways that are trusted to describe the requests of their clients.
    pub(crate) trusted_peers: Arc<TrustedPeers>,
    /// Hosts that requests of HTTP may be for, besides those of this machine.
    pub(crate) allowed_hosts: Arc<[HostName]>,
    /// The password of Redis clients.
    pub(crate) password: Option<Password>,
    /// The configured number of servers that share the store.
    pub(crate) nodes: Option<NonZeroU32>,
    /// Policies are published in Redis.
    pub(crate) publish: bool,
    pub(crate) workers: Arc<Workers>,
    /// The certificates of listeners.
    pub(crate) certificates: Arc<[Arc<WireTls>]>,
    /// The pace of writing metrics.
    pub(crate) scrapes: Arc<ScrapePace>,
    /// The file of a store in memory.
    pub(crate) snapshots: Option<Snapshots>,
    /// The service manager that started the process.
    pub(crate) manager: Arc<ServiceManager>,
    /// Cancelled when the server is to stop: it no longer reports that it is ready.
    pub(crate) leaving: CancellationToken,
    /// Cancelled when nothing more is accepted, and requests in flight end.
    pub(crate) stop: CancellationToken,
}

/// Listens on the addresses that `config` names.
///
/// # Errors
/// If one of the addresses is taken or not this machine's, or files of TLS are invalid.
pub(crate) async fn bind(config: &Config) -> Result<(Vec<Bound>, Renewal)> {
    let (mut bound, mut renewed) = (Vec::new(), Vec::new());
    for wire in Wire::ALL {
        let listens = listen(wire, config);
        let tls = tls_of(wire, config)?.map(Arc::new);
        tls.iter().for_each(|tls| tls.log_validity());
        renewed.extend(tls.clone());
        for listen in listens {
            let listener = Listener::bind(listen, tls.clone()).await;
            let listener = listener.map_err(|error| match listen_problem(listen, &error) {
                Some(problem) => anyhow!(problem),
                None => error.into(),
            });
            let listener = listener.with_context(|| {
                let hint = match wire.option() {
                    Some(option) => format!("choose another with `{option}`, or `{option} off`"),
                    None => "choose another".to_owned(),
                };
                format!("{wire}.listen: cannot listen on {listen}, {hint}")
            })?;
            let listener = listener.with_connections_max(config.server.connections_max);
            bound.push(Bound { wire, listener });
        }
    }
    Ok((bound, Renewal::new(renewed)?))
}

/// Logs that an address of `bound` has fewer connections than it should, if the process may open too few files.
pub(crate) fn log_few_files(bound: &[Bound]) {
    let wanted = |bound: &Bound| bound.listener.connections_wanted(connections_max(bound.wire));
    if let Some(problem) = bound.iter().map(wanted).max().and_then(accept::few_files) {
        tracing::warn!("{problem}");
    }
}

/// Longest path of a socket in bytes: Linux has room for 108, the last of which is zero.
const UNIX_PATH_BYTES_MAX: usize = 107;

/// The reason why an address cannot be listened on, where the operating system does not name the cause.
fn listen_problem(listen: &Listen, error: &io::Error) -> Option<&'static str> {
    match (listen, error.kind()) {
        (Listen::Tcp(_), io::ErrorKind::PermissionDenied) => Some(
            "permission denied: ports below 1024 need root, or the capability CAP_NET_BIND_SERVICE",
        ),
        (Listen::Unix(path), _) if path.is_file() => Some("is a file, not a socket"),
        (Listen::Unix(path), _) if path.as_os_str().len() > UNIX_PATH_BYTES_MAX => {
            Some("the path is too long, expected at most 107 bytes")
        }
        _ => None,
    }
}

/// Checks the files of TLS that `config` names. Returns the reasons why clients refuse certificates now.
///
/// # Errors
/// If they are invalid.
pub(crate) fn check(config: &Config) -> Result<Vec<String>> {
    let all = Wire::ALL.into_iter().filter_map(|wire| tls_of(wire, config).transpose());
    let problems = all.map(|tls| Ok(tls?.validity_problem()));
    problems.filter_map(Result::transpose).collect()
}

/// The default maximum number of connections of one address of `wire`.
const fn connections_max(wire: Wire) -> usize {
    match wire {
        Wire::Resp => resp::CONNECTIONS_MAX,
        Wire::Http | Wire::Admin | Wire::Rls | Wire::Catalog | Wire::Metrics => {
            accept::CONNECTIONS_MAX
        }
    }
}

fn listen(wire: Wire, config: &Config) -> &[Listen] {
    match wire {
        Wire::Http => config.http.listen.as_slice(),
        Wire::Admin => config.admin.listen.as_slice(),
        Wire::Resp => config.resp.listen.as_slice(),
        Wire::Rls => config.rls.listen.as_slice(),
        Wire::Catalog => config.catalog.listen.as_slice(),
        Wire::Metrics => config.metrics.listen.as_slice(),
    }
}

const fn tls_files(wire: Wire, config: &Config) -> Option<&TlsConfig> {
    match wire {
        Wire::Http => config.http.tls.as_ref(),
        Wire::Admin => config.admin.tls.as_ref(),
        Wire::Resp => config.resp.tls.as_ref(),
        Wire::Rls => config.rls.tls.as_ref(),
        Wire::Catalog => config.catalog.tls.as_ref(),
        Wire::Metrics => config.metrics.tls.as_ref(),
    }
}

/// The scheme of an address of `wire`.
const fn scheme(wire: Wire, has_tls: bool) -> &'static str {
    match (wire, has_tls) {
        (_, false) => wire.name(),
        (Wire::Http, true) => "https",
        (Wire::Admin, true) => "admin+https",
        (Wire::Resp, true) => "rediss",
        (Wire::Rls, true) => "grpcs",
        (Wire::Catalog, true) => "catalog+https",
        (Wire::Metrics, true) => "metrics+https",
    }
}

/// The TLS of a wire, if it is configured and the wire listens.
fn tls_of(wire: Wire, config: &Config) -> Result<Option<WireTls>> {
    let files = tls_files(wire, config).filter(|_| !listen(wire, config).is_empty());
    files.map(|files| WireTls::load(wire, files)).transpose()
}

impl Bound {
    /// The wire.
    pub(crate) const fn wire(&self) -> Wire {
        self.wire
    }

    /// The listen address.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn address(&self) -> io::Result<Listen> {
        self.listener.address()
    }

    /// The scheme of the address.
    pub(crate) fn scheme(&self) -> &'static str {
        scheme(self.wire, self.listener.tls().is_some())
    }

    /// Returns whether clients have to show a certificate; `None` without TLS.
    pub(crate) fn tls(&self) -> Option<bool> {
        self.listener.tls().map(|tls| tls.asks_for_certificates())
    }
}

/// Answers on all of `bound` until the server stops, then lets requests in flight end. Returns the
/// number of connections that were cut off because they did not.
pub(crate) async fn serve(bound: Vec<Bound>, context: &ServerContext) -> usize {
    let mut serving = JoinSet::new();
    for Bound { wire, listener } in bound {
        let connections_max = listener.connections_max(connections_max(wire));
        context.engine.telemetry().connections(wire).permit(connections_max);
        let context = context.clone();
        serving.spawn(async move {
            match wire {
                Wire::Http => {
                    let (limits, leaving) = (Arc::clone(&context.limits), context.leaving.clone());
                    let messages = |listener_auth| rls::routes(limits, listener_auth, leaving);
                    http::serve(listener, &context, messages).await
                }
                Wire::Admin | Wire::Catalog | Wire::Metrics => {
                    admin::serve(wire, listener, &context).await
                }
                Wire::Resp => resp::serve(listener, &context).await,
                Wire::Rls => rls::serve(listener, &context).await,
            }
        });
    }
    serving.join_all().await.into_iter().sum()
}
