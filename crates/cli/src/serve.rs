//! `sluicegate serve` and `sluicegate config`: a server's configuration on the command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use sluicegate_server::config::{self, Config, Flags};
use sluicegate_server::log;
use sluicegate_server::serve::{self, CheckedConfig, ReadyServer};
use sluicegate_text::terminal;

use crate::exit;
use crate::init::CONFIG_FILE;

/// Arguments of `sluicegate serve`. Other settings, and the defaults, come from the configuration.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Configuration file (TOML); see `sluicegate config schema`.
    #[arg(long, value_name = "FILE", env = CONFIG)]
    config: Option<PathBuf>,
    #[command(flatten)]
    over: FlagOverrides,
}

/// Settings that flags override: each is a section and a key of the configuration.
#[derive(Debug, clap::Args)]
struct FlagOverrides {
    /// Policy file (YAML or JSON) or directory; reloaded when it changes.
    #[arg(long, value_name = "PATH", help_heading = "Policies")]
    policies: Option<String>,
    /// Catalog database with policies and accounts: `sqlite:PATH`, `mysql://…` or `postgres://…`.
    /// Put a URL with a password in a file: `SLUICEGATE__CATALOG__URL_FILE`.
    #[arg(long, value_name = "URL", conflicts_with = "policies", help_heading = "Catalog")]
    catalog: Option<String>,
    /// Policies for a new catalog (YAML or JSON file or directory): a catalog without apps and accounts
    /// gets them as the app `demo`, active.
    #[arg(long, value_name = "PATH", help_heading = "Catalog")]
    seed: Option<String>,
    /// Address for HTTP [default: 127.0.0.1:8080]; port 0 chooses a free port, `off` disables it.
    #[arg(long, value_name = "ADDRESS", help_heading = "Listeners")]
    listen: Option<String>,
    /// Address for Redis clients (`SG.CHECK`, `CL.THROTTLE`) [default: 127.0.0.1:6380]; `off`
    /// disables it.
    #[arg(long, value_name = "ADDRESS", help_heading = "Listeners")]
    resp: Option<String>,
    /// File with the password for Redis clients (`AUTH`); trailing line breaks are ignored. Without
    /// it, no password is required.
    #[arg(long, value_name = "FILE", help_heading = "Listeners")]
    resp_password_file: Option<String>,
    /// Address for gateways that use Envoy's rate limit service [default: 127.0.0.1:8081]; `off`
    /// disables it.
    #[arg(long, value_name = "ADDRESS", help_heading = "Listeners")]
    rls: Option<String>,
    /// Address for `/metrics`, `/livez` and `/readyz` alone, for Prometheus [default: off].
    #[arg(long, value_name = "ADDRESS", help_heading = "Listeners")]
    metrics: Option<String>,
    /// Address for operators: health, metrics, the admin API and the console
    /// [default: 127.0.0.1:8082]; `off` disables it.
    #[arg(long, value_name = "ADDRESS", help_heading = "Listeners")]
    admin: Option<String>,
    /// File that maps descriptors to policies (YAML or JSON), for gateways that use
    /// Envoy's rate limit service; reloaded when it changes.
    #[arg(long, value_name = "FILE", help_heading = "Policies")]
    descriptors: Option<String>,
    /// Configuration of envoyproxy/ratelimit to serve unchanged: YAML file or directory; reloaded
    /// when it changes. Policies of --policies are served too, and replace limits of the same name.
    #[arg(long, value_name = "DIR", conflicts_with = "descriptors", help_heading = "Policies")]
    envoy_config: Option<String>,
    /// Merge the descriptors of files of --envoy-config that use the same domain.
    #[arg(long, requires = "envoy_config", help_heading = "Policies")]
    envoy_merge_domains: bool,
    /// Store of the counters: `memory`, or a Redis or Valkey shared by servers, such as
    /// `redis://127.0.0.1:6379`, `redis+sentinel://host,host/name` or `redis+cluster://host,host`.
    #[arg(long, value_name = "STORE", help_heading = "Store")]
    store: Option<String>,
    /// Clock used for decisions in Redis: `server` (default) or `client`.
    #[arg(long, value_name = "WHOSE", help_heading = "Store")]
    time_source: Option<String>,
    /// Number of servers that share the store. While the store is unavailable, each server enforces
    /// 1/N of every limit.
    #[arg(long, value_name = "N", value_parser = whole_number, help_heading = "Store")]
    nodes: Option<i64>,
    /// Maximum number of keys in the memory store [default: 1000000]; beyond it, keys with the most budget left are
    /// evicted, or new keys share one budget.
    #[arg(long, value_name = "N", value_parser = whole_number, help_heading = "Store")]
    keys_max: Option<i64>,
    /// Snapshot file of the memory store: read at start, written periodically and at shutdown.
    #[arg(long, value_name = "FILE", help_heading = "Snapshot")]
    snapshot: Option<String>,
    /// Interval between snapshots [default: 60s].
    #[arg(long, value_name = "DURATION", requires = "snapshot", help_heading = "Snapshot")]
    snapshot_every: Option<String>,
    /// Format of log lines: `text` (default) or `json`.
    #[arg(long, value_name = "FORMAT", help_heading = "Log")]
    log_format: Option<String>,
    /// Level of log lines: `off`, `error`, `warn`, `info` (default) or `debug`.
    #[arg(long, value_name = "LEVEL", help_heading = "Log")]
    log_level: Option<String>,
}

impl ServeArgs {
    /// Returns the effective configuration: file, environment, command line.
    ///
    /// # Errors
    /// The configuration is invalid.
    pub(crate) fn config(&self) -> Result<Config> {
        load(self.file(), self.over.flags())
    }

    /// The configuration file: the one that was named, or the one that `init` writes, if it is here.
    fn file(&self) -> Option<&Path> {
        file_or_here(self.config.as_deref())
    }
}

fn load(file: Option<&Path>, flags: Flags) -> Result<Config> {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(config::load(file, environment, flags)?)
}

/// `file`, or the one that `init` writes, if it is here.
fn file_or_here(file: Option<&Path>) -> Option<&Path> {
    let here = Path::new(CONFIG_FILE);
    file.or_else(|| here.is_file().then_some(here))
}

/// The policies that `sluicegate serve` without flags would serve here, if the configuration names any.
pub(crate) fn policies_path() -> Option<PathBuf> {
    let file = std::env::var_os(CONFIG).map(PathBuf::from);
    load(file_or_here(file.as_deref()), Flags::default()).ok()?.policies_path().map(Path::to_owned)
}

/// The variable with the path of the configuration file.
const CONFIG: &str = "SLUICEGATE_CONFIG";

impl FlagOverrides {
    fn flags(&self) -> Flags {
        let Self {
            policies,
            catalog,
            seed,
            listen,
            rls,
            metrics,
            descriptors,
            envoy_config,
            store,
            time_source,
            ..
        } = self;
        let Self { resp, resp_password_file, nodes, keys_max, snapshot, snapshot_every, .. } = self;
        let Self { admin, log_format, log_level, .. } = self;
        let envoy_merge_domains = self.envoy_merge_domains.then_some(true.into());
        let text = |text: &Option<String>| text.clone().map(Into::into);
        let flags: [(&'static [&'static str], Option<toml::Value>); _] = [
            (&["policies", "path"], text(policies)),
            (&["catalog", "url"], text(catalog)),
            (&["catalog", "seed"], text(seed)),
            (&["http", "listen"], text(listen)),
            (&["resp", "listen"], text(resp)),
            (&["resp", "password_file"], text(resp_password_file)),
            (&["rls", "listen"], text(rls)),
            (&["metrics", "listen"], text(metrics)),
            (&["admin", "listen"], text(admin)),
            (&["rls", "descriptors"], text(descriptors)),
            (&["rls", "envoy_config"], text(envoy_config)),
            (&["rls", "envoy_merge_domains"], envoy_merge_domains),
            (&["store", "url"], text(store)),
            (&["store", "time_source"], text(time_source)),
            (&["store", "nodes"], nodes.map(Into::into)),
            (&["store", "keys_max"], keys_max.map(Into::into)),
            (&["store", "snapshot"], text(snapshot)),
            (&["store", "snapshot_every"], text(snapshot_every)),
            (&["log", "format"], text(log_format)),
            (&["log", "level"], text(log_level)),
        ];
        flags.into_iter().filter_map(|(path, value)| Some((path, value?))).collect()
    }
}

/// Serves until the process is stopped.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    let config = match args.config() {
        Ok(config) => config,
        Err(error) => return Ok(misconfigured(&error)),
    };
    match ReadyServer::new(&config).map(ReadyServer::run) {
        Ok(Ok(())) => Ok(ExitCode::SUCCESS),
        Ok(Err(error)) if !serve::is_misconfigured(&error) => Err(error),
        Ok(Err(error)) | Err(error) => Ok(misconfigured(&error)),
    }
}

/// Reports an error that a restart cannot solve.
fn misconfigured(error: &anyhow::Error) -> ExitCode {
    log::end(error);
    ExitCode::from(exit::CONFIG)
}

/// Commands for the configuration.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration and the files it refers to.
    Check {
        /// Configuration file, as `--config`.
        #[arg(value_name = "FILE", conflicts_with = "config")]
        file: Option<PathBuf>,
        #[command(flatten)]
        args: Box<ServeArgs>,
    },
    /// Print the effective configuration (file, environment, command line, defaults), without
    /// secrets.
    Print(Box<ServeArgs>),
    /// Print the JSON Schema of the configuration.
    Schema,
}

/// Runs the command.
pub(crate) fn show(command: ConfigCommand) -> Result<ExitCode> {
    let text = match command {
        ConfigCommand::Check { file, args } => {
            let args = ServeArgs { config: file.or(args.config), over: args.over };
            match args.config().and_then(|config| serve::check(&config)) {
                Ok(CheckedConfig { policies, warnings }) => {
                    for warning in &warnings {
                        terminal::print_error_line(format_args!("warning: {warning}"));
                    }
                    let file = args.file().map(|file| format!("{}: ", file.display()));
                    format!("{}no errors, {policies}\n", file.unwrap_or_default())
                }
                Err(error) => return Ok(misconfigured(&error)),
            }
        }
        ConfigCommand::Print(args) => toml::to_string(&args.config()?)?,
        ConfigCommand::Schema => serde_json::to_string_pretty(&config::schema())? + "\n",
    };
    terminal::print(text.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// A number as it is written; its range is checked with the rest of the configuration.
fn whole_number(text: &str) -> Result<i64, &'static str> {
    text.parse().map_err(|_| "expected a whole number in digits, such as 1000000")
}
