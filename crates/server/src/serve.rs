//! A server: one engine behind the wires.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use sluicegate::internals::{Observer, WallClock};
use sluicegate::{Clock, Engine, LEASE_PATIENCE, Micros, SteadyClock, StoreFailure};
use sluicegate_kernel::limits::LEASE_PATIENCE_MAX_US;
use sluicegate_policy::{DescriptorTree, PolicySet};
use sluicegate_text::documents::DocumentSource;
use sluicegate_text::store::{StoreName, Takes};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::authenticator::Authenticator;
use crate::config::{
    Config, Listen, RlsConfig, Span, StoreConfig, TimeSource, TraceConfig, without_password,
};
use crate::control::{self, AdminApi, CatalogSync, Subscribers};
use crate::descriptors::{self, Descriptors};
use crate::engine::ServerEngine;
use crate::policies::{PolicyManager, publish};
use crate::protocol::Wire;
use crate::service_manager::ServiceManager;
use crate::snapshot::{self, Snapshots};
use crate::store::{self, AnyStore, RedisBackend};
use crate::telemetry::Telemetry;
use crate::token_file::TokenFile;
use crate::trace::Traces;
use crate::verbs::Verbs;
use crate::wire::headers::BudgetHeaders;
use crate::wire::http::TrustedPeers;
use crate::wire::resp::Password;
use crate::wire::rls::{RateLimits, RlsOptions};
use crate::wire::{Bound, DRAIN_MAX, Renewal, ServerContext};
use crate::workers::Workers;
use crate::{log, wire};

/// Longest wait for an answer to a message about a lease.
const LEASE_PATIENCE_MAX: Duration = Duration::from_micros(LEASE_PATIENCE_MAX_US);

/// A server whose configuration and files were read, and which can start.
#[derive(Debug)]
pub struct ReadyServer<'a> {
    rules: RuleSource,
    config: &'a Config,
}

impl<'a> ReadyServer<'a> {
    /// Starts the log, and reads and checks the files that `config` names.
    ///
    /// # Errors
    /// Those of [`check`]: a restart with the same configuration and files fails again.
    pub fn new(config: &'a Config) -> Result<Self> {
        log::start(config.log.format, config.log.level);
        let rules = match &config.catalog.url {
            Some(_) => {
                let source = descriptors::DescriptorSource::of(config);
                let descriptors = load(source.as_ref())?;
                descriptors.print_notes();
                RuleSource::Catalog(source, descriptors)
            }
            None => RuleSource::Files(Box::new(rules(config)?)),
        };
        check_files(config)?;
        Ok(Self { rules, config })
    }

    /// Serves until the process gets SIGINT or SIGTERM, then lets requests in flight end. A second signal
    /// ends it at once.
    ///
    /// # Errors
    /// If the server cannot start, or if requests in flight were cut off.
    pub fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(serve(self.rules, self.config))
    }
}

/// Returns whether a server that ended with `error` fails again until a file that the configuration names is changed.
pub fn is_misconfigured(error: &anyhow::Error) -> bool {
    snapshot::is_permanent(error)
}

/// The source of the rules.
#[derive(Debug)]
enum RuleSource {
    /// Files, which were read.
    Files(Box<(PolicyManager, PolicySet, DescriptorTree)>),
    /// A catalog, with descriptors from files.
    Catalog(Option<descriptors::DescriptorSource>, Descriptors),
}

/// The result of a check of a configuration that can be used.
#[derive(Debug)]
pub struct CheckedConfig {
    /// The policies, in words: `3 policies`.
    pub policies: String,
    /// Problems that do not keep a server from its start, such as a certificate that expired.
    pub warnings: Vec<String>,
}

/// Checks the files that `config` names: policies, descriptors, certificates, authorities, the snapshot.
///
/// # Errors
/// The problem with which `serve` does not start.
pub fn check(config: &Config) -> Result<CheckedConfig> {
    let mut warnings = Vec::new();
    let policies = match &config.catalog.url {
        Some(_) => {
            load(descriptors::DescriptorSource::of(config).as_ref())?;
            "policies are in the catalog".to_owned()
        }
        None => {
            let policies = rules(config)?.1;
            if let Some(path) = config.policies.path.as_deref()
                && policies.policies().is_empty()
            {
                warnings.push(format!("policies.path: {}", no_policies(false, Some(path))));
            }
            counted(&policies)
        }
    };
    warnings.extend(check_files(config)?);
    warnings.extend(snapshot::check(&config.store)?);
    Ok(CheckedConfig { policies, warnings })
}

/// Checks the files of the store, the catalog and TLS. Returns problems that do not keep a server from its start.
fn check_files(config: &Config) -> Result<Vec<String>> {
    if let StoreName::Redis(redis) = StoreName::parse(config.store.url.expose())? {
        redis.check_files().context("store.url")?;
    }
    if let Some(file) = &config.catalog.seed {
        control::seed_policies(file).context("catalog.seed")?;
    }
    AdminApi::new(&config.catalog, None)?;
    TokenFiles::load(config)?;
    let mut warnings = wire::check(config)?;
    warnings.extend(control::check_setup_file(&config.catalog));
    Ok(warnings)
}

/// The number of policies, in words.
fn counted(policies: &PolicySet) -> String {
    match policies.policies().len() {
        1 => "1 policy".to_owned(),
        count => format!("{count} policies"),
    }
}

/// Reads the policies and the descriptors from files.
fn rules(config: &Config) -> Result<(PolicyManager, PolicySet, DescriptorTree)> {
    let source = config.policies.path.clone().map(DocumentSource::new);
    PolicyManager::start(source, descriptors::DescriptorSource::of(config), takes(config)?)
}

/// Returns the function that checks whether the configured store takes a rule set.
fn takes(config: &Config) -> Result<Takes> {
    Ok(StoreName::parse(config.store.url.expose()).context("store.url")?.takes())
}

/// Loads the descriptors of `source`; without a source there are none.
fn load(source: Option<&descriptors::DescriptorSource>) -> Result<Descriptors> {
    Ok(source.map(descriptors::DescriptorSource::load).transpose()?.unwrap_or_default())
}

async fn serve(rules: RuleSource, config: &Config) -> Result<()> {
    wire::raise_files_max();
    let tokens = TokenFiles::load(config)?;
    let (bound, renewal) = wire::bind(config).await?;
    let renewal = renewal.and_tokens(tokens.all());
    let mut signals = Signals::new()?;
    let (following, authenticator, (live, policies, tree)) = follow(rules, config, &bound).await?;
    let (engine, snapshots) = open(policies, &config.store).await?;
    let authenticator = Arc::new(configured(authenticator, config, tokens));
    warn(config, &bound, &authenticator)?;
    wire::log_few_files(&bound);
    // The reader of standard output may have closed it; the server serves all the same.
    let source = config.policies.path.as_deref().filter(|_| following.is_none());
    greet(&engine.policies(), following.is_some(), source, &bound).ok();
    let has_files = live.policy_files().is_some();
    let programs = for_programs(config.store.publish, following.is_some(), has_files);
    log_start(&engine, &bound, programs)?;
    let workers = NonZeroU16::new(config.server.workers).unwrap_or_else(Workers::of_cores);
    let is_far = matches!(engine.store(), AnyStore::Redis(_));
    let telemetry = Telemetry::new(workers, &engine.policies(), is_far, config.admin.keys);
    let TraceConfig { endpoint, sample } = &config.trace;
    let traces = endpoint.as_ref().map(|to| Traces::start(to.expose(), *sample)).transpose()?;
    let engine = Arc::new(ServerEngine::watched(engine, telemetry, traces));
    let headers = BudgetHeaders::of(config.rls.headers.as_slice());
    let trusted_peers = TrustedPeers::new(config.http.trusted_peers.as_slice());
    let limits = RateLimits::new(Arc::clone(&engine), tree, headers);
    let RlsConfig { looks_pass, stop_increment_when_over_limit, .. } = config.rls;
    let options = RlsOptions { looks_pass, stop_increment_when_over_limit };
    let context = ServerContext {
        limits: Arc::new(limits.with_options(options)),
        http_headers: BudgetHeaders::of(config.http.headers.as_slice()),
        engine,
        live: Arc::new(live),
        authenticator,
        admin_api: Arc::new(admin_api(config, &bound)?),
        has_own_admin_api: !config.catalog.listen.as_slice().is_empty(),
        trusted_peers: Arc::new(trusted_peers.with_hops(config.http.trusted_hops)),
        allowed_hosts: config.server.allowed_hosts.as_slice().into(),
        password: config.resp.password.as_ref().and_then(|secret| Password::new(secret.expose())),
        nodes: config.store.nodes,
        publish: config.store.publish,
        workers: Arc::new(Workers::start(workers)?),
        certificates: renewal.certificates(),
        scrapes: Arc::default(),
        snapshots,
        manager: Arc::new(service_manager()?),
        leaving: CancellationToken::new(),
        stop: CancellationToken::new(),
    };
    let delay = config.server.drain_delay.map_or(Duration::ZERO, |Span(delay)| delay);
    let told_twice = async {
        let signal = signals.next().await;
        tracing::info!(
            "stopping: {signal}, up to {} s for requests in flight",
            DRAIN_MAX.as_secs()
        );
        context.manager.stopping();
        context.leaving.cancel();
        // A second signal ends this delay too.
        tokio::time::timeout(delay, signals.next()).await.ok();
        context.stop.cancel();
        signals.next().await;
    };
    let served = tokio::select! {
        served = answer(bound, following, renewal, &context) => served,
        () = told_twice => Err(anyhow!("second stop signal: requests in flight were cut off")),
        () = context.manager.keep_alive() => Ok(()),
    };
    context.admin_api.remove_setup_file();
    served.inspect(|()| tracing::info!("stopped"))
}

/// The service manager that the environment names.
fn service_manager() -> Result<ServiceManager> {
    let manager = ServiceManager::of(std::process::id(), |name| std::env::var_os(name));
    manager.context("NOTIFY_SOCKET")
}

/// The tokens in files.
struct TokenFiles {
    http: Option<Arc<TokenFile>>,
    rls: Option<Arc<TokenFile>>,
}

impl TokenFiles {
    /// # Errors
    /// If a file that `config` names is not valid.
    fn load(config: &Config) -> Result<Self> {
        let load = |wire, path: &Option<PathBuf>| {
            path.as_deref().map(|path| TokenFile::load(wire, path).map(Arc::new)).transpose()
        };
        Ok(Self {
            http: load(Wire::Http, &config.http.token_file)?,
            rls: load(Wire::Rls, &config.rls.token_file)?,
        })
    }

    fn all(&self) -> Vec<Arc<TokenFile>> {
        [&self.http, &self.rls].into_iter().flatten().cloned().collect()
    }
}

/// `authenticator` with the settings of each wire.
fn configured(authenticator: Authenticator, config: &Config, tokens: TokenFiles) -> Authenticator {
    let Config { http, resp, rls, .. } = config;
    authenticator
        .with_app(Wire::Http, http.app.as_deref())
        .with_app(Wire::Resp, resp.app.as_deref())
        .with_app(Wire::Rls, rls.app.as_deref())
        .with_token_file(Wire::Http, tokens.http)
        .with_token_file(Wire::Rls, tokens.rls)
        .permitting(Wire::Http, Verbs::of(http.verbs.as_slice()))
        .permitting(Wire::Resp, Verbs::of(resp.verbs.as_slice()))
        .permitting(Wire::Rls, Verbs::of(rls.verbs.as_slice()))
}

/// Reads the first policies, and returns them with the authenticator; with a catalog, also its follower.
async fn follow(
    rules: RuleSource,
    config: &Config,
    bound: &[Bound],
) -> Result<(Option<CatalogSync>, Authenticator, (PolicyManager, PolicySet, DescriptorTree))> {
    Ok(match rules {
        RuleSource::Files(rules) => (None, Authenticator::believed(), *rules),
        RuleSource::Catalog(source, descriptors) => {
            let listens = bound.iter().map(Bound::address).collect::<io::Result<Vec<_>>>()?;
            let (following, news) = CatalogSync::start(&config.catalog, &listens).await?;
            let (live, tree) =
                PolicyManager::of_catalog(following.kind(), source, descriptors, takes(config)?);
            let authenticator = Authenticator::by_token(config.catalog.tokens_required);
            let policies =
                control::initial_policies(news, &live, &authenticator, following.revision());
            (Some(following), authenticator, (live, policies, tree))
        }
    })
}

/// Opens the store. Returns its engine, and the snapshots of a memory store that has a file.
async fn open(
    policies: PolicySet,
    config: &StoreConfig,
) -> Result<(Engine<AnyStore>, Option<Snapshots>)> {
    match StoreName::parse(config.url.expose())? {
        StoreName::Memory => {
            let (store, snapshots) = snapshot::open(config, &policies, WallClock.now())?;
            // Time goes on from the last run, even if the wall clock was set back meanwhile.
            let clock = SteadyClock::not_before(store.latest());
            Ok((Engine::new(policies, AnyStore::Memory(store), Arc::new(clock)), snapshots))
        }
        StoreName::Redis(redis) => {
            let name = without_password(config.url.expose());
            let store = AnyStore::open(name, &redis, config.time_source, config.nodes).await?;
            let nodes = config.nodes.unwrap_or(NonZeroU32::MIN);
            let failure = StoreFailure::shared_by(nodes);
            let engine = Engine::new(policies, store, Arc::new(SteadyClock::new()));
            let engine = engine.with_fallback(failure);
            let engine = match leases(config, redis.deadline()) {
                None => engine,
                Some(patience) => engine.with_leases(patience),
            };
            Ok((engine, None))
        }
    }
}

/// The patience of leases from a Redis whose deadline is `deadline`. `None`: leases are off.
fn leases(config: &StoreConfig, deadline: Duration) -> Option<Micros> {
    match (config.leases, config.time_source) {
        (false, _) => None,
        (true, TimeSource::Client) => {
            tracing::info!(
                "store.leases: off, because leases need `store.time_source = \"server\"`"
            );
            None
        }
        (true, TimeSource::Server) => {
            let deadline = Micros::from(deadline.min(LEASE_PATIENCE_MAX));
            Some(LEASE_PATIENCE.max(deadline))
        }
    }
}

/// Serves until the server stops. The snapshot is written after the last decision.
async fn answer(
    bound: Vec<Bound>,
    following: Option<CatalogSync>,
    renewal: Renewal,
    context: &ServerContext,
) -> Result<()> {
    let ServerContext { engine, live, authenticator, admin_api, limits, leaving, stop, .. } =
        context;
    let subscribers = Subscribers { engine, live, authenticator, admin_api, leaving, stop };
    if let Some(following) = &following {
        following.open_admin_api(subscribers).await;
    }
    let kept = async {
        if let Some(snapshots) = &context.snapshots {
            snapshots.run(&context.stop).await;
        }
    };
    let followed = async {
        let following = following?;
        Some(following.run(subscribers, context.publish, stop).await)
    };
    let published = async {
        if context.publish
            && let (Some(files), Some(store)) =
                (live.policy_files(), engine.core().store().on_redis())
        {
            publish::run(files, live, store, stop).await;
        }
    };
    let watched = live.watch(limits.in_force(), stop);
    let (seen, renewed) =
        (context.engine.run(&context.stop), renewal.run(&context.manager, &context.stop));
    let counted = store::keep_fleet(context.engine.core(), context.nodes, stop);
    let decided = || engine.telemetry().decided_without_store();
    let outages = store::log_outages(engine.core(), decided, stop);
    let background =
        async { tokio::join!(kept, followed, published, watched, seen, renewed, counted, outages) };
    let leases = engine.keep_leases();
    // Clients that connect from now on are answered: the addresses are bound.
    context.manager.ready();
    let (cut_off, (_, node_end, ..)) = tokio::join!(wire::serve(bound, context), background);
    if cut_off > 0 {
        let seconds = DRAIN_MAX.as_secs();
        tracing::warn!("cut off {cut_off} connections, in flight for {seconds} s");
    }
    let engine = Arc::clone(&context.engine);
    engine.return_leases(leases).await;
    engine.settle_debts().await;
    log_debts(engine.core());
    if let Some(end) = node_end {
        end.record(engine.telemetry(), admin_api).await;
    }
    // Sending the last spans needs this runtime, so another thread waits for it.
    let sent = spawn_blocking(move || engine.traces().map(Traces::end)).await;
    sent.context("traces")?;
    match &context.snapshots {
        Some(snapshots) => snapshots.write().await,
        None => Ok(()),
    }
}

/// Logs the number of keys that owe permits which are never charged.
fn log_debts<O: Observer>(engine: &Engine<AnyStore, O>) {
    let (Some(redis), keys @ 1..) = (engine.store().on_redis(), engine.debts()) else { return };
    let (store, noun) = (redis.name(), if keys == 1 { "key" } else { "keys" });
    tracing::warn!(
        "store {store}: permits of {keys} {noun} that were admitted without it are never charged: this server stops"
    );
}

/// Warns of addresses that other machines can reach without authentication, or without TLS.
fn warn(config: &Config, bound: &[Bound], authenticator: &Arc<Authenticator>) -> io::Result<()> {
    for bound in bound {
        let (wire, address) = (bound.wire(), bound.address()?);
        let asks_who = match wire {
            // Metrics have counts and names of policies, and are on an address only if that is set.
            Wire::Metrics => continue,
            Wire::Http | Wire::Rls => authenticator.listener_auth(wire, Some(&address)).requires(),
            Wire::Resp => {
                config.resp.password.is_some()
                    || authenticator.listener_auth(wire, Some(&address)).requires()
            }
            Wire::Admin => false,
            Wire::Catalog => true,
        };
        if let Some(warning) = warning(wire, &address, bound.tls(), asks_who) {
            tracing::warn!("{warning}");
        }
    }
    Ok(())
}

/// Returns a warning if `address` is dangerous. `tls` is absent without TLS, and otherwise whether
/// clients have to show a certificate.
fn warning(wire: Wire, address: &Listen, tls: Option<bool>, asks_who: bool) -> Option<String> {
    let danger = match (asks_who, tls) {
        (_, Some(true)) | (true, Some(false)) => return None,
        (true, None) => "without TLS: passwords and tokens are sent in clear",
        (false, Some(false)) => "without authentication",
        (false, None) => "without TLS and without authentication",
    };
    (!address.is_local()).then(|| {
        format!(
            "{wire}.listen: `{address}` can be reached from other machines, {danger}; \
             see `{wire}.tls`"
        )
    })
}

/// The URL of the console, if it listens on TCP. An unspecified address becomes the loopback address.
fn console_url(bound: &[Bound]) -> io::Result<Option<String>> {
    let of = |wire| bound.iter().find(move |bound| bound.wire() == wire);
    let Some(bound) = of(Wire::Catalog).or_else(|| of(Wire::Admin)) else { return Ok(None) };
    let Listen::Tcp(mut address) = bound.address()? else { return Ok(None) };
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    let s = if bound.tls().is_some() { "s" } else { "" };
    Ok(Some(format!("http{s}://{address}")))
}

/// Creates the admin API, which shows the configuration and the addresses that decide requests.
fn admin_api(config: &Config, bound: &[Bound]) -> Result<AdminApi> {
    let wires = [Wire::Http, Wire::Resp, Wire::Rls];
    let deciding = bound.iter().filter(|bound| wires.contains(&bound.wire()));
    let listen = deciding.map(|bound| Ok(format!("{}://{}", bound.scheme(), bound.address()?)));
    let listen = listen.collect::<io::Result<Vec<_>>>()?;
    let api = AdminApi::new(&config.catalog, console_url(bound)?)?;
    let is_reachable =
        bound.iter().any(|bound| matches!(bound.wire(), Wire::Admin | Wire::Catalog));
    Ok(api.showing(config)?.listening(listen).reachable(is_reachable))
}

/// The warning of a server without policies, with a solution. Policies come from a catalog or from the files at
/// `source`.
fn no_policies(of_catalog: bool, source: Option<&Path>) -> String {
    let hint = match source {
        _ if of_catalog => "create them in the catalog".to_owned(),
        None => {
            "start with --policies FILE (`sluicegate init` writes one), or --catalog sqlite:FILE"
                .to_owned()
        }
        Some(path) if path.is_dir() => format!(
            "{} has none: put *.yaml, *.yml or *.json files there, not in folders below it",
            path.display()
        ),
        Some(path) => format!("{} has none", path.display()),
    };
    format!("no policies: checks that are authorized are answered with 404 (code 0); {hint}")
}

/// Prints the listen addresses, and commands that work now. Policies come from a catalog, or from files at a path.
fn greet(
    policies: &PolicySet,
    of_catalog: bool,
    source: Option<&Path>,
    bound: &[Bound],
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let (mut http, mut resp) = (None, None);
    for bound in bound {
        let (wire, address) = (bound.wire(), bound.address()?);
        writeln!(out, "listening on {}://{address}", bound.scheme())?;
        match (wire, address) {
            (Wire::Http, Listen::Tcp(address)) => _ = http.get_or_insert((address, bound.tls())),
            (Wire::Resp, Listen::Tcp(address)) => _ = resp.get_or_insert((address, bound.tls())),
            _ => {}
        }
    }
    let Some(policy) = policies.policies().first() else {
        tracing::warn!("{}", no_policies(of_catalog, source));
        return Ok(());
    };
    let Some((address, tls)) = http else { return Ok(()) };
    let app = policy.apps().and_then(|mut apps| apps.next());
    let json_app = app.map_or_else(String::new, |app| format!(r#","app":"{app}""#));
    let body = format!(r#"{{"policy":"{}","key":"alice"{json_app}}}"#, policy.name());
    let (s, tls) = (if tls.is_some() { "s" } else { "" }, tls_options(tls));
    writeln!(
        out,
        "try: curl -s{tls} http{s}://{address}/v1/check -H 'content-type: application/json' \\"
    )?;
    writeln!(out, "       -d '{body}'")?;
    let Some((address, tls)) = resp else { return Ok(()) };
    let app = app.map_or_else(String::new, |app| format!(" APP {app}"));
    let (host, port, policy) = (address.ip(), address.port(), policy.name());
    let tls = if tls.is_some() { format!(" --tls{}", tls_options(tls)) } else { String::new() };
    writeln!(out, "or:  redis-cli -h {host} -p {port}{tls} SG.CHECK {policy} alice{app}")
}

/// Logs the start; with a store on Redis, also which policies `programs` get there.
fn log_start(engine: &Engine<AnyStore>, bound: &[Bound], programs: &str) -> io::Result<()> {
    tracing::info!("{}", started(engine, bound)?);
    if engine.store().on_redis().is_some() {
        tracing::info!("{programs}");
    }
    Ok(())
}

/// The log's first line: version, store, policies, addresses.
fn started(engine: &Engine<AnyStore>, bound: &[Bound]) -> io::Result<String> {
    let store = engine.store().on_redis().map_or("memory", RedisBackend::name);
    let policies = counted(&engine.policies());
    let mut line = format!("started {}: store {store}, {policies}", env!("CARGO_PKG_VERSION"));
    for bound in bound {
        line += &format!(", {}://{}", bound.scheme(), bound.address()?);
    }
    Ok(line)
}

/// The log's second line with a store on Redis: the policies that programs find there.
const fn for_programs(is_published: bool, has_catalog: bool, has_files: bool) -> &'static str {
    match (is_published, has_catalog, has_files) {
        (false, ..) => "programs that use this Redis get no policies: `store.publish` is false",
        (true, true, _) => "programs that use this Redis get the policies of the catalog",
        (true, false, true) => "programs that use this Redis get these policies",
        (true, false, false) => {
            "programs that use this Redis get no policies: this server has no policy files"
        }
    }
}

/// Options of curl and redis-cli for TLS, with placeholders for the client's files. `tls` is absent
/// without TLS, and otherwise whether clients have to show a certificate.
const fn tls_options(tls: Option<bool>) -> &'static str {
    match tls {
        None => "",
        Some(false) => " --cacert CA.pem",
        Some(true) => " --cacert CA.pem --cert CLIENT.pem --key CLIENT.key",
    }
}

/// The signals that stop the process.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for a signal to stop, and returns its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_address_without_a_guard_is_warned_of() {
        let of = |address: &str, tls, asks_who| {
            warning(Wire::Rls, &address.parse().expect("an address"), tls, asks_who)
        };
        let open = of("0.0.0.0:8081", None, false).unwrap();
        assert!(open.starts_with("rls.listen: `0.0.0.0:8081` can be reached"), "{open}");
        assert!(open.contains("without TLS and without authentication"), "{open}");
        assert!(of("[::]:8081", None, false).is_some());
        let with_tls = of("0.0.0.0:80", Some(false), false).unwrap();
        assert!(with_tls.contains("other machines, without authentication"), "{with_tls}");
        let in_clear = of("0.0.0.0:80", None, true).unwrap();
        assert!(in_clear.contains("without TLS: passwords and tokens"), "{in_clear}");
        for (address, tls, asks_who) in [
            ("0.0.0.0:8081", Some(true), false),
            ("0.0.0.0:8081", Some(false), true),
            ("127.0.0.1:1", None, false),
            ("[::1]:1", None, false),
            ("unix:/s", None, false),
        ] {
            assert_eq!(of(address, tls, asks_who), None, "{address}");
        }
    }
}
