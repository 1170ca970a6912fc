//! The configuration: a TOML file, the environment over it, the command line over both.
//!
//! ```text
//! file ─▶ tree ◀─ SLUICEGATE__SECTION__KEY ◀─ flags      tree ─▶ Config, or an error with its path
//! ```
//!
//! Everything has a default that works. An unknown key is refused with its path: a typing mistake
//! would leave the default in force. Secrets may be files: `password_file = "/run/secrets/p"`, or
//! `SLUICEGATE__RESP__PASSWORD_FILE`. They are never printed.

mod check;
mod error;
mod listeners;
mod load;
mod origin;
mod reach;
mod schema;
mod secrets;
mod store;
mod value;
mod words;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluicegate_control::{Role, identity};

pub use error::ConfigError;
pub use load::{Flags, load, of_text};
pub use schema::schema;
pub(crate) use store::TimeSource;
pub use value::{ConfigSecret, Listen, Span};
pub(crate) use value::{Endpoint, HostName, Network, OneOrMany, without_password};

use crate::log::{LogFormat, LogLevel};
use crate::verbs::VerbName;

/// Everything that can be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The process.
    pub(crate) server: ServerConfig,
    /// Store of the counters.
    pub(crate) store: StoreConfig,
    /// Policies in files.
    pub(crate) policies: PoliciesConfig,
    /// Policies in a database, with accounts that can change them; replaces `policies`.
    pub(crate) catalog: CatalogConfig,
    /// HTTP/JSON.
    pub(crate) http: HttpConfig,
    /// The Redis protocol.
    pub(crate) resp: RespConfig,
    /// Envoy's rate limit service.
    pub(crate) rls: RlsConfig,
    /// Health, metrics and status for operators.
    pub(crate) admin: AdminConfig,
    /// Metrics and health for collectors, on an address that shows nothing else.
    pub(crate) metrics: MetricsConfig,
    /// Log on standard error.
    pub(crate) log: LogConfig,
    /// Traces of decisions, sent to a collector.
    pub(crate) trace: TraceConfig,
}

impl Config {
    /// The policy file or directory (`policies.path`), if one is set.
    pub fn policies_path(&self) -> Option<&Path> {
        self.policies.path.as_deref()
    }
}

/// The process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// Number of worker threads, 0..=256; 0: one per core.
    #[schemars(range(max = 256))]
    pub(crate) workers: u16,
    /// Time for which a server that is shutting down still accepts connections while it reports not
    /// ready, so that load balancers notice. Unset: none.
    pub(crate) drain_delay: Option<Span>,
    /// Maximum number of connections per listener, at least 1. Unset: 1,024, and 2,048 for Redis
    /// clients. A further connection replaces an idle one. If the process may open too few files, there
    /// are fewer, a fifth of the files per listener, and the log has the number. A thousand connections
    /// take up to 35 MB.
    pub(crate) connections_max: Option<NonZeroU32>,
    /// Allowed values of the HTTP `Host` header, besides `localhost` and loopback addresses: names
    /// under which proxies and people reach a loopback address or the admin API. Other values are
    /// refused there, to prevent DNS rebinding by browser pages.
    pub(crate) allowed_hosts: OneOrMany<HostName>,
}

/// The store of states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreConfig {
    /// `memory://`, or a Redis or Valkey shared by servers: `redis://`, `rediss://`,
    /// `redis+sentinel://` or `redis+cluster://`.
    #[serde(serialize_with = "value::store_url")]
    pub(crate) url: ConfigSecret,
    /// Allow a Redis on another machine without TLS, for trusted networks only.
    pub(crate) url_insecure: bool,
    /// Maximum number of keys in a memory store, 1..=4294967295. Unset: 1,000,000. Beyond it, keys
    /// with the most budget left are evicted, or new keys share one budget.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(crate) keys_max: Option<usize>,
    /// Maximum number of keys per policy in a memory store, and of all limits sent by callers
    /// together, 1..=4294967295. Unset: half of `keys_max`. Beyond it, new keys share one budget of
    /// the policy or are refused, depending on its `on_key_quota`.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(crate) keys_per_policy_max: Option<usize>,
    /// Maximum memory for long states in a memory store (several rules, `sliding_log`,
    /// `sliding_window`, `smooth_warmup`, `concurrency`), in bytes, at least 1048576. Unset: 256
    /// for each of `keys_max`, at least 16777216. Beyond it, the same happens as with `keys_max`.
    #[schemars(range(min = 1_048_576))]
    pub(crate) state_bytes_max: Option<usize>,
    /// Number of servers that share the store, at least 1. While the store is unavailable, each
    /// server enforces 1/N of every limit. Unset: the number of live servers registered in the
    /// store.
    pub(crate) nodes: Option<NonZeroU32>,
    /// Clock used for decisions in Redis.
    pub(crate) time_source: TimeSource,
    /// Lease permits of hot keys from Redis and decide them without a call, as far as each policy
    /// permits it (`leases`). Off with `time_source = "client"`. Set `false` until all servers that
    /// share the Redis have a version with this setting.
    pub(crate) leases: bool,
    /// Policies are published in Redis, for programs that decide there themselves: those of the catalog, or of the
    /// files. Each server reads its own files; the policies of the one that read its files last are published.
    pub(crate) publish: bool,
    /// Snapshot file of a memory store: read at start, written at shutdown.
    pub(crate) snapshot: Option<PathBuf>,
    /// Interval between snapshots, at least 100ms. Unset: 60s.
    pub(crate) snapshot_every: Option<Span>,
}

/// Policies in files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PoliciesConfig {
    /// Policy document (YAML or JSON) or directory of documents; reloaded when it changes. Unset:
    /// no policies, so that every policy is unknown.
    pub(crate) path: Option<PathBuf>,
}

/// Policies in a database, with the accounts that may change them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CatalogConfig {
    /// Database URL: `sqlite:PATH`, `mysql://USER:PASSWORD@HOST/DATABASE` or `postgres://…`. Unset:
    /// policies come from files.
    #[serde(serialize_with = "value::database_url")]
    pub(crate) url: Option<ConfigSecret>,
    /// Policies for a new catalog (YAML or JSON file or directory): a catalog without apps and accounts
    /// gets them as the app `demo`, active. Unset: a new catalog is empty.
    pub(crate) seed: Option<PathBuf>,
    /// Name of this server among the nodes. Unset: host name and first listening port.
    pub(crate) node: Option<String>,
    /// File for a copy of the catalog, so that the server can start while the database is
    /// unavailable. Unset: beside the file of a SQLite catalog, else in the state directory
    /// (`$STATE_DIRECTORY`, `$XDG_STATE_HOME/sluicegate`, `~/.local/state/sluicegate`), with a name of
    /// its own for each catalog.
    pub(crate) kept: Option<PathBuf>,
    /// Earlier address of the same catalog, without user and password: `sqlite:PATH` or
    /// `postgres://HOST:PORT/DATABASE`. A copy of the catalog at that address, or one that names no
    /// catalog, is used as well.
    pub(crate) kept_of: Option<String>,
    /// Requests that must carry a token; the token identifies the calling app.
    pub(crate) tokens_required: TokensRequired,
    /// Listen addresses of the admin API. Unset: `admin.listen`.
    pub(crate) listen: OneOrMany<Listen>,
    /// TLS settings. Unset: no TLS.
    pub(crate) tls: Option<TlsConfig>,
    /// Allow the admin API without TLS on an address that other machines can reach, behind a proxy
    /// that terminates TLS.
    pub(crate) insecure: bool,
    /// Proxies in front of the admin API whose `X-Forwarded-For` is trusted: `10.0.0.0/8`,
    /// `192.0.2.7`. They must append to the header or set it. Unset: the client address is the peer
    /// address.
    pub(crate) trusted_proxies: OneOrMany<Network>,
    /// Allow a database on another machine without TLS or without certificate verification.
    pub(crate) url_insecure: bool,
    /// Maximum number of changes per minute and account or token, 1..=100000; bursts of ten times
    /// as many.
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) changes_per_minute: u32,
    /// Number of versions kept per policy, at least 1.
    pub(crate) versions_max: NonZeroU32,
    /// Time for which traffic history is kept in the catalog.
    pub(crate) history: HistoryKept,
    /// File for the setup token of a catalog without accounts, with mode 0600. The server removes it
    /// when an account is created, and when the server stops. Unset: the token is printed on standard
    /// error.
    pub(crate) setup_token_file: Option<PathBuf>,
    /// Sign-in with OpenID Connect. Unset: sign-in with passwords only.
    pub(crate) oidc: Option<OidcConfig>,
}

/// Sign-in with OpenID Connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OidcConfig {
    /// Issuer URL, exactly as the provider reports it: `https://id.example.org/realms/staff`.
    pub(crate) issuer: String,
    /// Client ID of this server at the provider.
    pub(crate) client_id: String,
    /// Client secret of this server.
    pub(crate) client_secret: Option<ConfigSecret>,
    /// `https://HOST/v1/admin/oidc/callback`, as browsers reach it; register it at the provider.
    pub(crate) redirect_url: String,
    /// Requested scopes in addition to `openid`.
    #[serde(default = "scopes")]
    pub(crate) scopes: OneOrMany<String>,
    /// PEM file of certificate authorities for the provider. Unset: the system's.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
    /// Create an account at first sign-in, named after the verified e-mail address, or else after
    /// `preferred_username`.
    #[serde(default)]
    pub(crate) create_accounts: bool,
    /// Claim of the ID token that lists the groups.
    #[serde(default = "groups_claim")]
    pub(crate) groups_claim: String,
    /// Group whose members are administrators. Unset: administrators are managed here.
    #[serde(default)]
    pub(crate) admin_group: Option<String>,
    /// Roles of groups, each `{ group = "shop-owners", app = "shop", role = "owner" }`; in other
    /// apps roles are managed here.
    #[serde(default)]
    pub(crate) roles: Vec<GroupRole>,
}

/// A role for the members of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupRole {
    /// Group name at the provider.
    pub(crate) group: String,
    /// App name.
    pub(crate) app: String,
    /// Role in the app.
    pub(crate) role: RoleName,
}

/// The rights of an account in an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RoleName {
    /// Can view.
    Viewer,
    /// Can change, delete and manage members.
    Owner,
}

/// Requests that must carry a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TokensRequired {
    /// Requests on addresses that other machines can reach; on loopback a request names its app.
    #[default]
    Remote,
    /// All requests.
    Always,
    /// None: every client is trusted.
    Never,
}

/// Time for which traffic history is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum HistoryKept {
    /// One hour in steps of 10 seconds, and 24 hours in steps of 5 minutes.
    #[default]
    #[serde(rename = "24h")]
    Day,
    /// One hour in steps of 10 seconds.
    #[serde(rename = "1h")]
    Hour,
    /// Traffic is not recorded.
    #[serde(rename = "off")]
    Off,
}

/// HTTP/JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpConfig {
    /// Listen addresses: `127.0.0.1:8080`, `unix:/run/sluicegate.sock`. Empty: off.
    pub(crate) listen: OneOrMany<Listen>,
    /// Rate limit headers in responses, in addition to `Retry-After`.
    pub(crate) headers: OneOrMany<HeaderStyle>,
    /// Gateways that are trusted to describe the client and its request (`/v1/auth`): `10.0.0.0/8`,
    /// `192.0.2.7`. Peers on a unix socket are always trusted.
    pub(crate) trusted_peers: OneOrMany<Network>,
    /// Number of proxies in front, 1..=64, each of which appends to `X-Forwarded-For`; the client
    /// is that many addresses from the right. Unset: the last address that is not in
    /// `trusted_peers`.
    #[schemars(range(min = 1, max = 64))]
    pub(crate) trusted_hops: Option<usize>,
    /// App of requests without token and app name: with a catalog, usually the app of a gateway.
    /// Unset: they have no app.
    pub(crate) app: Option<String>,
    /// TLS settings. Unset: no TLS.
    pub(crate) tls: Option<TlsConfig>,
    /// Allow an address that other machines can reach without tokens or client certificates.
    pub(crate) insecure: bool,
    /// File with tokens, one a line, for a server without a catalog: a request needs one of them.
    /// 1 to 64 tokens of 16 to 256 bytes; read again within 30s of a change, or on SIGHUP. Unset: no
    /// token is required.
    pub(crate) token_file: Option<PathBuf>,
    /// Verbs that are permitted; a request for another one gets 403.
    pub(crate) verbs: OneOrMany<VerbName>,
}

/// Rate limit headers in responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HeaderStyle {
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft, version 10.
    Ratelimit,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    XRatelimit,
}

/// The protocol of Redis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RespConfig {
    /// Listen addresses. Empty: off.
    pub(crate) listen: OneOrMany<Listen>,
    /// TLS settings. Unset: no TLS.
    pub(crate) tls: Option<TlsConfig>,
    /// Password that clients send with `AUTH`.
    pub(crate) password: Option<ConfigSecret>,
    /// Allow an address that other machines can reach without password, tokens or client
    /// certificates.
    pub(crate) insecure: bool,
    /// App of commands without token and app name. Unset: they have no app.
    pub(crate) app: Option<String>,
    /// Verbs that are permitted; a command for another one gets `NOPERM`.
    pub(crate) verbs: OneOrMany<VerbName>,
}

/// Envoy's rate limit service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RlsConfig {
    /// Listen addresses. Empty: off.
    pub(crate) listen: OneOrMany<Listen>,
    /// TLS settings. Unset: no TLS.
    pub(crate) tls: Option<TlsConfig>,
    /// File that maps descriptors to policies; reloaded when it changes.
    pub(crate) descriptors: Option<PathBuf>,
    /// Configuration file or directory of envoyproxy/ratelimit, served unchanged; reloaded when it
    /// changes.
    pub(crate) envoy_config: Option<PathBuf>,
    /// Allow several files of `envoy_config` to use the same domain; their descriptors are merged.
    pub(crate) envoy_merge_domains: bool,
    /// Rate limit headers that gateways add to responses, in addition to `Retry-After`.
    pub(crate) headers: OneOrMany<HeaderStyle>,
    /// Allow an address that other machines can reach without tokens or client certificates.
    pub(crate) insecure: bool,
    /// Answer OK to a descriptor with `hits_addend: 0` when nothing is left, until a charge was
    /// refused, as envoyproxy/ratelimit does.
    pub(crate) looks_pass: bool,
    /// Do not count a request that is over the limit for its other descriptors, as with
    /// `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT` of envoyproxy/ratelimit.
    pub(crate) stop_increment_when_over_limit: bool,
    /// App of requests without token and app name: with a catalog, the app of the gateway. Unset:
    /// they have no app.
    pub(crate) app: Option<String>,
    /// File with tokens, one a line, for a server without a catalog: a request needs one of them.
    /// 1 to 64 tokens of 16 to 256 bytes; read again within 30s of a change, or on SIGHUP. Unset: no
    /// token is required.
    pub(crate) token_file: Option<PathBuf>,
    /// Verbs that are permitted, of `check`, `peek` and `refund`; a request for another one gets
    /// `PERMISSION_DENIED`.
    pub(crate) verbs: OneOrMany<VerbName>,
}

/// Health, metrics and status, for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AdminConfig {
    /// Listen addresses. Empty: off.
    pub(crate) listen: OneOrMany<Listen>,
    /// TLS settings. Unset: no TLS.
    pub(crate) tls: Option<TlsConfig>,
    /// Allow an address that other machines can reach without `tls.client_ca`: all of them can read
    /// the status. The admin API of a catalog still requires TLS there, unless `catalog.insecure`
    /// is set too.
    pub(crate) insecure: bool,
    /// Format of keys in `/v1/top`, `/v1/leases` and `/v1/events`; logs, traces and metrics contain no keys.
    pub(crate) keys: KeyFormat,
}

/// Metrics and health, on an address that shows no keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct MetricsConfig {
    /// Listen addresses for `/metrics`, `/livez` and `/readyz`, such as `0.0.0.0:8084`. No
    /// authentication is required: metrics contain counts and names of policies, and no keys. Empty:
    /// off.
    pub(crate) listen: OneOrMany<Listen>,
    /// TLS settings. Unset: no TLS.
    pub(crate) tls: Option<TlsConfig>,
}

/// The format of keys where operators see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyFormat {
    /// A hash with a secret of this process: equal keys can be recognised, but not read.
    #[default]
    Hashed,
    /// In clear text, for everyone who can reach the admin address.
    Clear,
}

/// Log on standard error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// Format of a line.
    pub(crate) format: LogFormat,
    /// Lowest level that is logged.
    pub(crate) level: LogLevel,
}

/// Spans of decisions, sent to a collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TraceConfig {
    /// OTLP/gRPC endpoint of the collector, such as `http://127.0.0.1:4317`. Unset: no traces.
    pub(crate) endpoint: Option<Endpoint>,
    /// Fraction of new traces that is sent, 0..=1. Traces started by the caller follow its
    /// decision.
    #[schemars(range(min = 0, max = 1))]
    pub(crate) sample: f64,
}

/// TLS files in PEM format, reloaded when they change. Unix sockets stay plain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// Certificate, followed by its intermediate certificates.
    pub(crate) cert: PathBuf,
    /// Private key of the certificate.
    pub(crate) key: PathBuf,
    /// Certificate authorities for client certificates. Unset: clients need no certificate.
    pub(crate) client_ca: Option<PathBuf>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: ConfigSecret::new("memory://"),
            url_insecure: false,
            keys_max: None,
            keys_per_policy_max: None,
            state_bytes_max: None,
            nodes: None,
            time_source: TimeSource::Server,
            leases: true,
            publish: true,
            snapshot: None,
            snapshot_every: None,
        }
    }
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self {
            url: None,
            seed: None,
            node: None,
            kept: None,
            kept_of: None,
            tokens_required: TokensRequired::default(),
            listen: OneOrMany::default(),
            tls: None,
            insecure: false,
            trusted_proxies: OneOrMany::default(),
            url_insecure: false,
            changes_per_minute: 30,
            versions_max: NonZeroU32::new(1_000).expect("it is not zero"),
            history: HistoryKept::default(),
            setup_token_file: None,
            oidc: None,
        }
    }
}

impl OidcConfig {
    /// These settings as the catalog's type.
    pub(crate) fn of_catalog(&self) -> identity::OidcProviderConfig {
        let Self {
            issuer,
            client_id,
            client_secret,
            redirect_url,
            scopes,
            ca,
            create_accounts,
            groups_claim,
            admin_group,
            roles,
        } = self;
        let secret = client_secret.as_ref().map(ConfigSecret::expose).unwrap_or_default();
        identity::OidcProviderConfig {
            issuer: issuer.clone(),
            client_id: client_id.clone(),
            client_secret: secret.to_owned(),
            redirect_url: redirect_url.clone(),
            scopes: scopes.as_slice().to_vec(),
            ca: ca.clone(),
            create_accounts: *create_accounts,
            groups_claim: groups_claim.clone(),
            admin_group: admin_group.clone(),
            roles: roles.iter().map(GroupRole::of_catalog).collect(),
        }
    }
}

impl GroupRole {
    fn of_catalog(&self) -> identity::GroupGrant {
        let Self { group, app, role } = self;
        let role = match role {
            RoleName::Viewer => Role::Viewer,
            RoleName::Owner => Role::Owner,
        };
        identity::GroupGrant { group: group.clone(), app: app.clone(), role }
    }
}

/// The default scopes, for which a provider sends an e-mail address and a name.
fn scopes() -> OneOrMany<String> {
    OneOrMany::from(["email".to_owned(), "profile".to_owned()])
}

fn groups_claim() -> String {
    "groups".to_owned()
}

impl Default for TraceConfig {
    fn default() -> Self {
        Self { endpoint: None, sample: 0.01 }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            listen: Listen::loopback(8080),
            headers: OneOrMany::from([HeaderStyle::Ratelimit]),
            tls: None,
            trusted_peers: Network::loopback(),
            trusted_hops: None,
            insecure: false,
            app: None,
            token_file: None,
            verbs: VerbName::ALL.into(),
        }
    }
}

impl Default for RespConfig {
    fn default() -> Self {
        Self {
            listen: Listen::loopback(6380),
            tls: None,
            password: None,
            insecure: false,
            app: None,
            verbs: VerbName::ALL.into(),
        }
    }
}

impl Default for RlsConfig {
    fn default() -> Self {
        Self {
            listen: Listen::loopback(8081),
            tls: None,
            descriptors: None,
            envoy_config: None,
            envoy_merge_domains: false,
            headers: OneOrMany::default(),
            insecure: false,
            looks_pass: false,
            stop_increment_when_over_limit: false,
            app: None,
            token_file: None,
            verbs: VerbName::ALL.into(),
        }
    }
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: Listen::loopback(8082),
            tls: None,
            insecure: false,
            keys: KeyFormat::default(),
        }
    }
}
