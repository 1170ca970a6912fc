//! Checks that types cannot express: ranges, and values that exclude or require each other.

use std::time::Duration;

use sluicegate::internals::http::HOPS_MAX;
use sluicegate::internals::store::KEYS_MAX;
use sluicegate::store::redis::RedisConfigError;
use sluicegate_control::Error as CatalogError;
use sluicegate_kernel::limits::NAME_BYTES_MAX;
use sluicegate_kernel::ruleset::is_name;
use sluicegate_text::store::StoreName;
use sluicegate_text::terminal::one_line;

use super::error::{ConfigError, wrong};
use super::{
    CatalogConfig, Config, OidcConfig, RespConfig, StoreConfig, TokensRequired, listeners, reach,
};
use crate::verbs::VerbName;

/// Shortest interval between snapshots: more of them only wear the disk out.
const SNAPSHOT_EVERY_MIN: Duration = Duration::from_millis(100);

/// Least memory for the long states of a store, bytes: one state can be a quarter of it.
pub(super) const STATE_BYTES_MIN: usize = 1 << 20;

/// Maximum number of changes of one account or token in a minute: no database makes more of them.
const CHANGES_PER_MINUTE_MAX: u32 = 100_000;

/// Longest name of a node in bytes: a host and a port.
const NODE_BYTES_MAX: usize = 128;

/// The verbs of requests on the rls wire: gateways take permits, look, or give permits back, and hold those of streams.
const RLS_VERBS: [VerbName; 5] =
    [VerbName::Check, VerbName::Peek, VerbName::Refund, VerbName::Acquire, VerbName::Release];

/// Checks what types cannot express.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let Config { server, http, resp, rls, store, trace, catalog, policies, .. } = config;
    if server.workers > 256 {
        return wrong("server.workers", format!("`{}` is outside 0..=256", server.workers));
    }
    if resp.password.as_ref().is_some_and(|password| password.expose().is_empty()) {
        return wrong("resp.password", "is empty".to_owned());
    }
    for (path, app) in [("http.app", &http.app), ("resp.app", &resp.app), ("rls.app", &rls.app)] {
        if let Some(app) = app.as_deref().filter(|app| !is_name(app)) {
            let app = one_line(app);
            let problem = format!(
                "invalid app name `{app}`: expected 1 to {NAME_BYTES_MAX} bytes of `[a-z0-9._-]`"
            );
            return wrong(path, problem);
        }
    }
    check_callers(config)?;
    listeners::check(config)?;
    let name = check_store(store)?;
    check_own_address(store, resp)?;
    if let Some(hops) = http.trusted_hops.filter(|hops| !(1..=HOPS_MAX).contains(hops)) {
        return wrong("http.trusted_hops", format!("`{hops}` is outside 1..={HOPS_MAX}"));
    }
    if rls.descriptors.is_some() && rls.envoy_config.is_some() {
        return wrong("rls.descriptors", "cannot be combined with `rls.envoy_config`".to_owned());
    }
    if rls.envoy_merge_domains && rls.envoy_config.is_none() {
        let problem = "requires `rls.envoy_config`".to_owned();
        return wrong("rls.envoy_merge_domains", problem);
    }
    check_catalog(catalog)?;
    if catalog.url.is_some() && policies.path.is_some() {
        return wrong("policies.path", "cannot be combined with `catalog.url`".to_owned());
    }
    if catalog.url.is_some() && rls.envoy_config.is_some() {
        let problem = "cannot be combined with `catalog.url`: use `rls.descriptors`, and import \
                       policies with `sluicegate import envoy`";
        return wrong("rls.envoy_config", problem.to_owned());
    }
    if cfg!(not(feature = "otel")) && trace.endpoint.is_some() {
        let problem = "traces are not built in: build with the feature `otel`, or leave it out";
        return wrong("trace.endpoint", problem.to_owned());
    }
    if trace.endpoint.as_ref().is_some_and(|endpoint| !endpoint.is_http()) {
        // It is not repeated: there may be a password in it.
        return wrong("trace.endpoint", "expected `http://HOST:PORT` of a collector".to_owned());
    }
    if !(0.0..=1.0).contains(&trace.sample) {
        return wrong("trace.sample", format!("`{}` is outside 0..=1", trace.sample));
    }
    reach::check(config, &name)
}

/// Refuses a store that is an address of this server's own RESP listeners.
fn check_own_address(store: &StoreConfig, resp: &RespConfig) -> Result<(), ConfigError> {
    // The hosts are behind the login, and before the database or the options.
    let url = store.url.expose();
    let hosts = url.split_once("://").map_or("", |(_, rest)| rest);
    let hosts = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
    let hosts = hosts.split(['/', '?']).next().unwrap_or_default();
    let mut hosts = hosts.split(',').map(|host| host.replace("localhost:", "127.0.0.1:"));
    let own: Vec<_> = resp.listen.as_slice().iter().map(ToString::to_string).collect();
    let Some(host) = hosts.find(|host| own.contains(host)) else { return Ok(()) };
    let problem = format!(
        "`{host}` is an address of `resp.listen`: this server cannot be its own store; expected the address of a Redis"
    );
    wrong("store.url", problem)
}

/// The settings of callers that listeners have in common.
fn check_callers(config: &Config) -> Result<(), ConfigError> {
    let Config { http, resp, rls, catalog, .. } = config;
    for (path, file) in [("http.token_file", &http.token_file), ("rls.token_file", &rls.token_file)]
    {
        if file.is_some() && catalog.url.is_some() {
            let problem = "cannot be combined with `catalog.url`, which has tokens of apps";
            return wrong(path, problem.to_owned());
        }
    }
    for (path, verbs) in
        [("http.verbs", &http.verbs), ("resp.verbs", &resp.verbs), ("rls.verbs", &rls.verbs)]
    {
        if verbs.as_slice().is_empty() {
            let names = VerbName::ALL.map(|verb| format!("`{}`", verb.name())).join(", ");
            return wrong(path, format!("is empty: expected one or more of {names}"));
        }
    }
    let is_of_rls = |verb: &VerbName| RLS_VERBS.contains(verb);
    if !rls.verbs.as_slice().iter().any(is_of_rls) {
        let names = RLS_VERBS.map(|verb| format!("`{}`", verb.name())).join(", ");
        let problem = format!(
            "has no verb that gateways send here, so that nothing is permitted: expected one or more of {names}"
        );
        return wrong("rls.verbs", problem);
    }
    Ok(())
}

/// Checks the settings of the store. Returns its parsed name.
fn check_store(store: &StoreConfig) -> Result<StoreName, ConfigError> {
    let name = StoreName::parse(store.url.expose());
    let name = name.or_else(|error| match error {
        RedisConfigError::Scheme => {
            wrong("store.url", format!("expected `memory`, or the URL of a Redis: {error}"))
        }
        error => wrong("store.url", error.to_string()),
    })?;
    let StoreConfig {
        keys_max,
        keys_per_policy_max,
        state_bytes_max,
        snapshot,
        snapshot_every,
        ..
    } = store;
    for (path, keys) in
        [("store.keys_max", keys_max), ("store.keys_per_policy_max", keys_per_policy_max)]
    {
        if let Some(keys) = keys.filter(|keys| !(1..=KEYS_MAX).contains(keys)) {
            return wrong(path, format!("`{keys}` is outside 1..={KEYS_MAX}"));
        }
    }
    if let Some(bytes) = state_bytes_max.filter(|bytes| *bytes < STATE_BYTES_MIN) {
        return wrong("store.state_bytes_max", format!("`{bytes}` is below {STATE_BYTES_MIN}"));
    }
    if let Some(every) = snapshot_every.filter(|every| every.0 < SNAPSHOT_EVERY_MIN) {
        return wrong("store.snapshot_every", format!("`{every}` is below 100ms"));
    }
    let of_memory = [
        ("store.snapshot", snapshot.is_some()),
        ("store.keys_max", keys_max.is_some()),
        ("store.keys_per_policy_max", keys_per_policy_max.is_some()),
        ("store.state_bytes_max", state_bytes_max.is_some()),
    ];
    if let (StoreName::Redis(_), Some((path, _))) = (&name, of_memory.iter().find(|(_, is)| *is)) {
        return wrong(path, "requires a memory store".to_owned());
    }
    if store.snapshot_every.is_some() && store.snapshot.is_none() {
        return wrong("store.snapshot_every", "requires `store.snapshot`".to_owned());
    }
    Ok(name)
}

fn check_catalog(catalog: &CatalogConfig) -> Result<(), ConfigError> {
    let CatalogConfig { url, node, listen, seed, oidc, tokens_required, .. } = catalog;
    let CatalogConfig { changes_per_minute, setup_token_file, kept_of, .. } = catalog;
    if !(1..=CHANGES_PER_MINUTE_MAX).contains(changes_per_minute) {
        let problem = format!("`{changes_per_minute}` is outside 1..={CHANGES_PER_MINUTE_MAX}");
        return wrong("catalog.changes_per_minute", problem);
    }
    if let Some(url) = url {
        // It is not repeated: there may be a password in it.
        let url: Result<sluicegate_control::Url, _> = url.expose().parse();
        url.or_else(|error| wrong("catalog.url", error.to_string()))?;
    }
    let kept_of: Option<Result<sluicegate_control::CatalogAddress, _>> =
        kept_of.as_deref().map(str::parse);
    if let Some(Err(error)) = kept_of {
        return wrong("catalog.kept_of", error.to_string());
    }
    let is_name =
        |node: &str| (1..=NODE_BYTES_MAX).contains(&node.len()) && !node.contains(char::is_control);
    if node.as_deref().is_some_and(|node| !is_name(node)) {
        let problem = format!("expected 1 to {NODE_BYTES_MAX} bytes of text");
        return wrong("catalog.node", problem);
    }
    if url.is_none() && !listen.as_slice().is_empty() {
        return wrong("catalog.listen", "requires `catalog.url`".to_owned());
    }
    if url.is_none() && seed.is_some() {
        return wrong("catalog.seed", "requires `catalog.url`".to_owned());
    }
    if url.is_none() && setup_token_file.is_some() {
        return wrong("catalog.setup_token_file", "requires `catalog.url`".to_owned());
    }
    if url.is_none() && *tokens_required != TokensRequired::default() {
        let problem = "requires `catalog.url`, which has the tokens of apps; without a catalog, set `http.token_file` \
                       or `rls.token_file`";
        return wrong("catalog.tokens_required", problem.to_owned());
    }
    if let Some(oidc) = oidc {
        check_oidc(oidc, url.is_some())?;
    }
    Ok(())
}

fn check_oidc(oidc: &OidcConfig, has_catalog: bool) -> Result<(), ConfigError> {
    if cfg!(not(feature = "oidc")) {
        let problem =
            "OpenID Connect is not built in: build with the feature `oidc`, or leave it out";
        return wrong("catalog.oidc", problem.to_owned());
    }
    if !has_catalog {
        return wrong("catalog.oidc", "requires `catalog.url`".to_owned());
    }
    if oidc.client_secret.is_none() {
        let problem = "expected `client_secret` or `client_secret_file`".to_owned();
        return wrong("catalog.oidc", problem);
    }
    match oidc.of_catalog().check() {
        Err(CatalogError::Invalid(all)) if !all.is_empty() => {
            let path = format!("catalog.oidc{}", all[0].pointer.replace('/', "."));
            wrong(&path, all[0].finding.to_string())
        }
        _ => Ok(()),
    }
}
