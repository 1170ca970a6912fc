//! `sluicegate serve` and `sluicegate config`: a server's configuration on the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sluicegate_server::config::{self, Config, Flags};
use sluicegate_server::serve;
use sluicegate_text::say;

/// What can be said to `sluicegate serve`. The rest, and the defaults, are the configuration's.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The configuration (TOML); see `sluicegate config schema`.
    #[arg(long, value_name = "FILE", env = "SLUICEGATE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    over: Overrides,
}

/// What is set by a flag: a section and a key of the configuration each.
#[derive(Debug, clap::Args)]
struct Overrides {
    /// The policies in force: a document (YAML or JSON) or a directory of them, watched; without
    /// them every policy is unknown.
    #[arg(long, value_name = "PATH")]
    policies: Option<String>,
    /// The catalog of policies, and of those who may change them: `sqlite:PATH`, `mysql://…` or
    /// `postgres://…`. Write passwords into a file: `SLUICEGATE__CATALOG__URL_FILE`.
    #[arg(long, value_name = "URL", conflicts_with = "policies")]
    catalog: Option<String>,
    /// Where HTTP listens [default: 127.0.0.1:8080]; port 0 takes a free one, `off` is nowhere.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where Redis clients are listened for (`SG.CHECK`, `CL.THROTTLE`) [default: 127.0.0.1:6380];
    /// `off` is nowhere.
    #[arg(long, value_name = "ADDRESS")]
    resp: Option<String>,
    /// The file that holds the password of Redis clients (`AUTH`); line breaks at its end do not
    /// count. Without it everybody may ask.
    #[arg(long, value_name = "FILE")]
    resp_password_file: Option<String>,
    /// Where gateways that speak Envoy's rate limit service are listened for [default:
    /// 127.0.0.1:8081]; `off` is nowhere.
    #[arg(long, value_name = "ADDRESS")]
    rls: Option<String>,
    /// Which policies guard which descriptors (YAML or JSON), for such gateways; watched.
    #[arg(long, value_name = "FILE")]
    descriptors: Option<String>,
    /// A configuration of envoyproxy/ratelimit to serve as it is: a directory of YAML files, or one
    /// file, watched. Policies of --policies are in force beside its limits, and replace those of the same
    /// name.
    #[arg(long, value_name = "DIR", conflicts_with = "descriptors")]
    envoy_config: Option<String>,
    /// Several files of --envoy-config may be of one domain, which has the descriptors of all of them.
    #[arg(long, requires = "envoy_config")]
    envoy_merge_domains: bool,
    /// Where state is kept: `memory`, or a Redis or Valkey that servers share, such as
    /// `redis://127.0.0.1:6379`, `redis+sentinel://host,host/name` or `redis+cluster://host,host`.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Whose clock rules on Redis: `server` (the default) or `client`.
    #[arg(long, value_name = "WHOSE")]
    time_source: Option<String>,
    /// Servers that share the store. While it does not answer, each enforces that part of the
    /// limits.
    #[arg(long, value_name = "N")]
    nodes: Option<i64>,
    /// Keys that the memory store holds at most (1,000,000 unless said otherwise); beyond, the
    /// fullest budgets are forgotten.
    #[arg(long, value_name = "N")]
    keys_max: Option<i64>,
    /// A file that the memory store is restored from at start, and written to now and then and when
    /// the server is told to stop.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<String>,
    /// How often it is written [default: 60s].
    #[arg(long, value_name = "DURATION", requires = "snapshot")]
    snapshot_every: Option<String>,
}

impl ServeArgs {
    /// The configuration that holds: file, environment, command line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn config(&self) -> Result<Config> {
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Ok(config::load(self.config.as_deref(), environment, self.over.flags())?)
    }
}

impl Overrides {
    fn flags(&self) -> Flags {
        let Self {
            policies,
            catalog,
            listen,
            rls,
            descriptors,
            envoy_config,
            store,
            time_source,
            ..
        } = self;
        let Self { resp, resp_password_file, nodes, keys_max, snapshot, snapshot_every, .. } = self;
        let envoy_merge_domains = self.envoy_merge_domains.then_some(true.into());
        let text = |text: &Option<String>| text.clone().map(Into::into);
        let flags: [(&'static [&'static str], Option<toml::Value>); _] = [
            (&["policies", "path"], text(policies)),
            (&["catalog", "url"], text(catalog)),
            (&["http", "listen"], text(listen)),
            (&["resp", "listen"], text(resp)),
            (&["resp", "password_file"], text(resp_password_file)),
            (&["rls", "listen"], text(rls)),
            (&["rls", "descriptors"], text(descriptors)),
            (&["rls", "envoy_config"], text(envoy_config)),
            (&["rls", "envoy_merge_domains"], envoy_merge_domains),
            (&["store", "url"], text(store)),
            (&["store", "time_source"], text(time_source)),
            (&["store", "nodes"], nodes.map(Into::into)),
            (&["store", "keys_max"], keys_max.map(Into::into)),
            (&["store", "snapshot"], text(snapshot)),
            (&["store", "snapshot_every"], text(snapshot_every)),
        ];
        flags.into_iter().filter_map(|(path, value)| Some((path, value?))).collect()
    }
}

/// Serves until the process is stopped.
pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode> {
    serve::run(&args.config()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Ways to look at the configuration.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say what is wrong with the configuration and the files that it names, if anything is.
    Check(ServeArgs),
    /// Print what is set (by file, environment, command line or default), without secrets.
    Print(ServeArgs),
    /// Print the JSON Schema of the configuration.
    Schema,
}

/// Shows what was asked of the configuration.
pub(crate) fn show(command: &ConfigCommand) -> Result<ExitCode> {
    let text = match command {
        ConfigCommand::Check(args) => {
            serve::check(&args.config()?)?;
            "no errors\n".to_owned()
        }
        ConfigCommand::Print(args) => toml::to_string(&args.config()?)?,
        ConfigCommand::Schema => serde_json::to_string_pretty(&config::schema())? + "\n",
    };
    say::print(text.as_bytes()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}
