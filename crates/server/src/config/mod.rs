//! The configuration: a TOML file, the environment over it, the command line over both.
//!
//! ```text
//! file ─▶ tree ◀─ SLUICEGATE__SECTION__KEY ◀─ flags      tree ─▶ Config, or an error with its path
//! ```
//!
//! Everything has a default that works. What nobody knows is refused with its path, so that a typing
//! mistake is not a default in disguise. Secrets may be files: `password_file = "/run/secrets/p"`, or
//! `SLUICEGATE__RESP__PASSWORD_FILE`. They are never printed.

mod load;
mod reach;
mod schema;
mod store;
mod value;

use std::num::NonZeroU32;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluicegate_control::{Role, identity};

pub use load::{ConfigError, Flags, load, of_text};
pub use schema::schema;
pub(crate) use store::TimeSource;
pub(crate) use value::{Endpoint, HostName, Network, OneOrMany};
pub use value::{Listen, Secret, Span};

use crate::log::{LogFormat, LogLevel};

/// Everything that can be set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The process.
    pub(crate) server: ServerConfig,
    /// Where state is kept.
    pub(crate) store: StoreConfig,
    /// The rules.
    pub(crate) policies: PoliciesConfig,
    /// The rules in a database, with those who may change them; in the place of `policies`.
    pub(crate) catalog: CatalogConfig,
    /// HTTP/JSON.
    pub(crate) http: HttpConfig,
    /// The protocol of Redis.
    pub(crate) resp: RespConfig,
    /// Envoy's rate limit service.
    pub(crate) rls: RlsConfig,
    /// Health, and what is in force: for operators.
    pub(crate) admin: AdminConfig,
    /// What the process says of itself, on standard error.
    pub(crate) log: LogConfig,
    /// Spans of decisions, sent to a collector.
    pub(crate) trace: TraceConfig,
}

/// The process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerConfig {
    /// Threads that serve, 1..=256; 0: one for each core.
    #[schemars(range(max = 256))]
    pub(crate) workers: u16,
    /// How long a server that was told to stop still accepts connections, while it says that it is
    /// not ready: until those in front of it have noticed. None: not at all.
    pub(crate) drain_delay: Option<Span>,
    /// Connections of one address at a time, at least 1; none: 1,024, and of Redis clients 2,048.
    /// The next one takes the place of one that asks nothing. A thousand of them take up to 35 MB.
    pub(crate) connections_max: Option<NonZeroU32>,
    /// Hosts that requests of HTTP may ask for (`Host`), beside `localhost` and the addresses of loopback:
    /// the names that proxies and people use for an address on loopback, and for the admin API.
    /// Others are refused there, because a page in a browser can make its own name lead here.
    pub(crate) allowed_hosts: OneOrMany<HostName>,
}

/// Where state is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreConfig {
    /// `memory://`, or a Redis or Valkey that servers share: `redis://`, `rediss://`,
    /// `redis+sentinel://` or `redis+cluster://`.
    #[serde(serialize_with = "value::store_url")]
    pub(crate) url: Secret,
    /// Permits a Redis on another machine without TLS: in a network where nobody else listens.
    pub(crate) url_insecure: bool,
    /// Keys that a memory store holds at most, 1..=4294967295; none: 1,000,000. Beyond, keys of which
    /// the most is left are forgotten, or new keys share one budget of their rules.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(crate) keys_max: Option<usize>,
    /// Keys of one policy, and of all limits that callers bring along, that a memory store holds at
    /// most, 1..=4294967295; none: half of `keys_max`. Beyond, new keys share one budget of the
    /// policy's rules, or are refused, as its `on_key_quota` says.
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub(crate) keys_per_policy_max: Option<usize>,
    /// Bytes that the long states of a memory store take at most (several rules, `sliding_log`,
    /// `sliding_window`, `smooth_warmup`, `concurrency`), at least 1048576; none: 256 for each of
    /// `keys_max`, at least 16777216. Beyond, it is as with `keys_max`.
    #[schemars(range(min = 1_048_576))]
    pub(crate) state_bytes_max: Option<usize>,
    /// Servers that share the store, at least 1; none: as many as note there that they live. While it
    /// does not answer, each enforces that part of the limits.
    pub(crate) nodes: Option<NonZeroU32>,
    /// Whose clock rules on Redis.
    pub(crate) time_source: TimeSource,
    /// Where a memory store is written to at shutdown, and read from at start.
    pub(crate) snapshot: Option<PathBuf>,
    /// How often it is written besides, at least 100ms; none: 60s.
    pub(crate) snapshot_every: Option<Span>,
}

/// The rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PoliciesConfig {
    /// A document (YAML or JSON), or a directory of them; watched. None: every policy is unknown.
    pub(crate) path: Option<PathBuf>,
}

/// The rules in a database, with those who may change them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CatalogConfig {
    /// The database: `sqlite:PATH`, `mysql://USER:PASSWORD@HOST/DATABASE` or `postgres://…`; none:
    /// policies are files.
    pub(crate) url: Option<Secret>,
    /// What this server is called among the nodes; none: its host, and the first port it listens on.
    pub(crate) node: Option<String>,
    /// A file for what the catalog said last, so that the server starts while the database is away.
    pub(crate) kept: PathBuf,
    /// Who has to show a token, by which the app is known that asks.
    pub(crate) tokens_required: TokensRequired,
    /// Where the admin API listens, if not at `admin.listen`.
    pub(crate) listen: OneOrMany<Listen>,
    /// Speaks TLS there; none: plain.
    pub(crate) tls: Option<TlsConfig>,
    /// Permits an address of the admin API that others can reach without TLS, behind a proxy that
    /// speaks it.
    pub(crate) insecure: bool,
    /// Proxies before the admin API whose `X-Forwarded-For` is believed: `10.0.0.0/8`, `192.0.2.7`. They
    /// must add to it, or set it. None: a request comes from who connects.
    pub(crate) trusted_proxies: OneOrMany<Network>,
    /// Permits a database on another machine without TLS whose certificate and name are verified.
    pub(crate) url_insecure: bool,
    /// Changes that one account or token may make in a minute, 1..=100000; ten times as many at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub(crate) changes_per_minute: NonZeroU32,
    /// Versions of each policy that are kept, at least 1: the latest.
    pub(crate) versions_max: NonZeroU32,
    /// Where people sign in elsewhere, by OpenID Connect; none: they have passwords here.
    pub(crate) oidc: Option<OidcConfig>,
}

/// Where people sign in elsewhere, by OpenID Connect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OidcConfig {
    /// The URL that the provider calls itself by, to the letter: `https://id.example.org/realms/staff`.
    pub(crate) issuer: String,
    /// What the provider calls this server.
    pub(crate) client_id: String,
    /// What this server shows the provider.
    pub(crate) client_secret: Option<Secret>,
    /// `https://HOST/v1/admin/oidc/callback`, as browsers reach it; the provider has to know it.
    pub(crate) redirect_url: String,
    /// What is asked for beside `openid`.
    #[serde(default = "scopes")]
    pub(crate) scopes: OneOrMany<String>,
    /// A file of authorities in PEM, of whom one signed the provider's certificate; none: those of the
    /// system.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
    /// Makes an account for who comes for the first time, called by their verified address of mail, or
    /// by `preferred_username`.
    #[serde(default)]
    pub(crate) create_accounts: bool,
    /// The claim of the ID token that lists groups.
    #[serde(default = "groups_claim")]
    pub(crate) groups_claim: String,
    /// The group of administrators; none: who is one is said here.
    #[serde(default)]
    pub(crate) admin_group: Option<String>,
    /// Which groups have which roles, each `{ group = "shop-owners", app = "shop", role = "owner" }`; in
    /// other apps roles are given here.
    #[serde(default)]
    pub(crate) roles: Vec<GroupRole>,
}

/// A role that a group has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupRole {
    /// The group, as the provider calls it.
    pub(crate) group: String,
    /// In which app.
    pub(crate) app: String,
    /// Which role.
    pub(crate) role: RoleName,
}

/// What somebody may do in an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RoleName {
    /// Sees.
    Viewer,
    /// Changes, deletes, and says who else may.
    Owner,
}

/// Who has to show a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TokensRequired {
    /// Who comes to an address that others can reach; on loopback a request says its app.
    #[default]
    Remote,
    /// Everybody.
    Always,
    /// Nobody: who reaches the server is believed.
    Never,
}

/// HTTP/JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HttpConfig {
    /// Where to listen: `127.0.0.1:8080`, `unix:/run/sluicegate.sock`; none: the wire is off.
    pub(crate) listen: OneOrMany<Listen>,
    /// Which headers tell what is left, beside `Retry-After`.
    pub(crate) headers: OneOrMany<HeaderStyle>,
    /// Gateways whose word is taken for what a client asked them and where it came from (`/v1/auth`):
    /// `10.0.0.0/8`, `192.0.2.7`. Whoever comes through a unix socket is one of them.
    pub(crate) trusted_peers: OneOrMany<Network>,
    /// Proxies that a request passes, 1..=64, of which each adds to `X-Forwarded-For`: the client is that
    /// many addresses from the right, whatever address it has. None: the last address that is none of
    /// `trusted_peers`.
    #[schemars(range(min = 1, max = 64))]
    pub(crate) trusted_hops: Option<usize>,
    /// The app of requests that show no token and say no app: with a catalog, whose policies belong to
    /// apps, a gateway's. None: they are of no app.
    pub(crate) app: Option<String>,
    /// Speaks TLS there; none: plain.
    pub(crate) tls: Option<TlsConfig>,
    /// Permits an address that others can reach where nobody has to show a token or a certificate.
    pub(crate) insecure: bool,
}

/// Headers that tell a client what is left.
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
    /// Where to listen; none: the wire is off.
    pub(crate) listen: OneOrMany<Listen>,
    /// Speaks TLS there; none: plain.
    pub(crate) tls: Option<TlsConfig>,
    /// What clients must say with `AUTH`.
    pub(crate) password: Option<Secret>,
    /// Permits an address that others can reach where nobody has to show a password, a token or a
    /// certificate.
    pub(crate) insecure: bool,
    /// The app of commands that are sent without a token and say no app. None: they are of no app.
    pub(crate) app: Option<String>,
}

/// Envoy's rate limit service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RlsConfig {
    /// Where to listen; none: the wire is off.
    pub(crate) listen: OneOrMany<Listen>,
    /// Speaks TLS there; none: plain.
    pub(crate) tls: Option<TlsConfig>,
    /// A file that says which policies guard which descriptors; watched.
    pub(crate) descriptors: Option<PathBuf>,
    /// A directory or file of configurations of envoyproxy/ratelimit, served as they are; watched.
    pub(crate) envoy_config: Option<PathBuf>,
    /// Whether several files of `envoy_config` may be of one domain, which has the descriptors of all of
    /// them.
    pub(crate) envoy_merge_domains: bool,
    /// Which headers gateways are told to add to answers, beside `Retry-After`.
    pub(crate) headers: OneOrMany<HeaderStyle>,
    /// Permits an address that others can reach where nobody has to show a token or a certificate.
    pub(crate) insecure: bool,
    /// Whether a descriptor that only looks (`hits_addend: 0`) is OK where exactly nothing is left, as
    /// envoyproxy/ratelimit has it.
    pub(crate) looks_pass: bool,
    /// The app of requests that show no token and say no app: with a catalog, whose policies belong to
    /// apps, the gateway's. None: they are of no app.
    pub(crate) app: Option<String>,
}

/// Health, and what is in force: for operators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AdminConfig {
    /// Where to listen; none: these are served nowhere.
    pub(crate) listen: OneOrMany<Listen>,
    /// Speaks TLS there; none: plain.
    pub(crate) tls: Option<TlsConfig>,
    /// Permits an address that others can reach, without `tls.client_ca`: all who reach it see what is
    /// in force. The admin API of a catalog is not served there without TLS, unless
    /// `catalog.insecure` permits that too.
    pub(crate) insecure: bool,
    /// How keys are written in `/v1/top` and `/v1/events`; logs, traces and metrics have none.
    pub(crate) keys: KeyFormat,
}

/// How keys are written where operators see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyFormat {
    /// As a hash with a secret of this process: the same key is recognised, and not known.
    #[default]
    Hashed,
    /// As they are: all who reach the admin address see them.
    Clear,
}

/// What the process says of itself, on standard error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// How a line looks.
    pub(crate) format: LogFormat,
    /// How much is said.
    pub(crate) level: LogLevel,
}

/// Spans of decisions, sent to a collector.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TraceConfig {
    /// The collector, by OTLP over gRPC, such as `http://127.0.0.1:4317`; none: nothing is traced.
    pub(crate) endpoint: Option<Endpoint>,
    /// Which part of the traces that begin here is sent, 0..=1. Whoever brings a trace along has
    /// decided for theirs.
    #[schemars(range(min = 0, max = 1))]
    pub(crate) sample: f64,
}

/// Files of TLS, in PEM, read anew when they change. Sockets in the file system stay plain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// The certificate, and behind it those that lead to the authority which clients know.
    pub(crate) cert: PathBuf,
    /// Its private key.
    pub(crate) key: PathBuf,
    /// The authorities, of whom one has to have signed a client's certificate; none: clients need
    /// none.
    pub(crate) client_ca: Option<PathBuf>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            url: Secret::new("memory://"),
            url_insecure: false,
            keys_max: None,
            keys_per_policy_max: None,
            state_bytes_max: None,
            nodes: None,
            time_source: TimeSource::Server,
            snapshot: None,
            snapshot_every: None,
        }
    }
}

impl Default for CatalogConfig {
    fn default() -> Self {
        Self {
            url: None,
            node: None,
            kept: "sluicegate-kept.json".into(),
            tokens_required: TokensRequired::default(),
            listen: OneOrMany::default(),
            tls: None,
            insecure: false,
            trusted_proxies: OneOrMany::default(),
            url_insecure: false,
            changes_per_minute: NonZeroU32::new(30).expect("it is not zero"),
            versions_max: NonZeroU32::new(1_000).expect("it is not zero"),
            oidc: None,
        }
    }
}

impl OidcConfig {
    /// The same, as the catalog has it.
    pub(crate) fn of_catalog(&self) -> identity::OidcConfig {
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
        let secret = client_secret.as_ref().map(Secret::expose).unwrap_or_default();
        identity::OidcConfig {
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
    fn of_catalog(&self) -> identity::GroupRole {
        let Self { group, app, role } = self;
        let role = match role {
            RoleName::Viewer => Role::Viewer,
            RoleName::Owner => Role::Owner,
        };
        identity::GroupRole { group: group.clone(), app: app.clone(), role }
    }
}

/// What has a provider tell an address of mail and a name.
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
            app: None,
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
