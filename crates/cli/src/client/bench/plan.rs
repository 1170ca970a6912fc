//! The plan of a measurement: the command line, checked.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use axum::http::HeaderValue;
use clap::{Args, ValueEnum};
use serde::Serialize;
use sluicegate_kernel::limits::COST_MAX;
use sluicegate_server::config::{ConfigSecret, Listen, Span};
use sluicegate_text::private;
use sluicegate_text::terminal::OutputFormat;

use crate::client::probe::{Spoken, spoken_at};
use crate::client::target::{Target, URL};
use crate::client::token::TokenArgs;
use crate::client::whole;

/// Most connections: twice the limit of a server, and more than a process may open files by default.
const CONNECTIONS_MAX: u64 = 8_192;

/// Most questions that are sent together. The answers to as many fit into what the system buffers of
/// a connection, so that a server never waits for them to be read while it is still being asked.
const PIPELINE_MAX: u64 = 128;

/// Most questions of a run: a day at the highest rate.
const REQUESTS_MAX: u64 = 86_400_000_000;

/// Longest run.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// Most keys: ten times those of a large server.
const KEYS_MAX: u64 = 100_000_000;

/// Highest rate per second: more than two cores can decide.
const RATE_MAX: u64 = 1_000_000;

/// Most threads: more than machines have cores for.
const THREADS_MAX: u64 = 64;

/// Longest password.
const PASSWORD_BYTES_MAX: usize = 1_024;

/// Largest password file: the longest password, and line breaks at its end.
const PASSWORD_FILE_BYTES_MAX: u64 = 4 << 10;

/// Arguments of `sluicegate bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Protocol: JSON over HTTP, Redis protocol, or Envoy rate limit service.
    #[arg(value_enum, default_value_t)]
    wire: BenchProtocol,
    /// Address of the server. Default: for http SLUICEGATE_URL, else this machine and the default port
    /// of the protocol.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<Target>,
    /// Allow an address of another machine.
    #[arg(long)]
    allow_remote: bool,
    /// Name of the policy.
    #[arg(long)]
    policy: String,
    /// Calling app, for policies that are restricted to certain apps.
    #[arg(long)]
    app: Option<String>,
    /// Number of permits per request, 1 to 2147483648.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = whole(1..=COST_MAX))]
    cost: u64,
    /// Number of connections.
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = whole(1..=CONNECTIONS_MAX))]
    connections: u64,
    /// Number of requests that a connection sends at once.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = whole(1..=PIPELINE_MAX))]
    pipeline: u64,
    /// Total number of requests, instead of a duration.
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    #[arg(value_parser = whole(1..=REQUESTS_MAX))]
    requests: Option<u64>,
    /// Duration of the run, at most 1d.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    duration: Span,
    /// Number of keys, chosen at random.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    #[arg(value_parser = whole(1..=KEYS_MAX))]
    keys: u64,
    /// Requests per second, independent of the answers. Without it: as fast as possible.
    #[arg(long, value_name = "N")]
    #[arg(value_parser = whole(1..=RATE_MAX))]
    rate: Option<u64>,
    /// Number of threads; use more if one cannot saturate the server.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = whole(1..=THREADS_MAX))]
    threads: u64,
    /// File with the password of a RESP server.
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    token: TokenArgs,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// The protocol to measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BenchProtocol {
    /// JSON over HTTP/1.
    #[default]
    Http,
    /// The protocol of Redis.
    Resp,
    /// Envoy's rate limit service.
    Rls,
}

/// The plan of a measurement. Every number is in its range.
#[derive(Debug)]
pub(super) struct BenchPlan {
    pub(super) wire: BenchProtocol,
    pub(super) to: Target,
    /// Addresses of `to`: all on this machine, unless others were permitted.
    pub(super) addresses: Vec<Listen>,
    pub(super) question: BenchRequest,
    pub(super) connections: usize,
    pub(super) pipeline: usize,
    pub(super) keys: u64,
    pub(super) until: Until,
    /// Questions per second; `None`: as fast as possible.
    pub(super) rate: Option<NonZeroU32>,
    pub(super) threads: usize,
    pub(super) password: Option<ConfigSecret>,
    /// The token of an app, as HTTP sends it.
    pub(super) bearer: Option<HeaderValue>,
}

/// The fields of each question, except its key.
#[derive(Debug)]
pub(super) struct BenchRequest {
    pub(super) policy: String,
    pub(super) app: Option<String>,
    pub(super) cost: u32,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// After this number of questions.
    Requests(u64),
    /// After this time.
    Elapsed(Duration),
}

impl BenchArgs {
    pub(super) const fn output(&self) -> OutputFormat {
        self.output
    }

    /// Takes the address from SLUICEGATE_URL for HTTP, unless `--to` is set.
    ///
    /// # Errors
    /// If the variable is not an address.
    pub(super) fn with_url_of_environment(self) -> Result<Self> {
        let set = std::env::var(URL).ok().filter(|_| self.wire == BenchProtocol::Http);
        match set {
            Some(url) if self.to.is_none() => {
                let to = url.parse().map_err(|problem| anyhow!("{URL}: `{url}`: {problem}"))?;
                Ok(Self { to: Some(to), ..self })
            }
            _ => Ok(self),
        }
    }
}

impl BenchPlan {
    /// Checks `args` together, and resolves the address.
    ///
    /// # Errors
    /// If arguments conflict, or the address is another machine that was not permitted.
    pub(super) async fn new(args: BenchArgs) -> Result<Self> {
        let BenchArgs { wire, to, allow_remote, policy, app, cost, password_file, token, .. } =
            args;
        let BenchArgs { connections, pipeline, requests, duration, keys, rate, threads, .. } = args;
        if wire == BenchProtocol::Http && pipeline > 1 {
            bail!("--pipeline: `{pipeline}` cannot be combined with http");
        }
        if threads > connections {
            bail!("--threads: `{threads}` is more than the {connections} of --connections");
        }
        let Span(duration) = duration;
        if duration > DURATION_MAX {
            bail!("--duration: `{}` is outside 1us..=1d", Span(duration));
        }
        let to = to.unwrap_or_else(|| Target::loopback(wire.port()));
        if matches!(to, Target::Tls { .. }) {
            bail!("--to: TLS is not supported: use the address without TLS");
        }
        let addresses = to.addresses().await.context("--to")?;
        if !allow_remote && let Some(other) = addresses.iter().find(|to| !to.is_local()) {
            bail!("--to: `{other}` is another machine: add --allow-remote");
        }
        Ok(Self {
            wire,
            to,
            addresses,
            question: BenchRequest { policy, app, cost: small(cost) },
            connections: small(connections) as usize,
            pipeline: small(pipeline) as usize,
            keys,
            until: requests.map_or(Until::Elapsed(duration), Until::Requests),
            rate: rate.and_then(|rate| NonZeroU32::new(small(rate))),
            threads: small(threads) as usize,
            password: password_file.map(|file| password(&file)).transpose()?,
            bearer: token.bearer()?,
        })
    }

    /// Returns the error if the server uses another protocol than the plan.
    pub(super) async fn other_protocol(&self) -> Option<String> {
        let spoken = spoken_at(&self.addresses).await?;
        let (is_other, instead) = match spoken {
            Spoken::Http => (self.wire != BenchProtocol::Http, "bench http"),
            Spoken::Resp => (self.wire != BenchProtocol::Resp, "bench resp"),
            Spoken::Rls => (self.wire != BenchProtocol::Rls, "bench rls"),
            Spoken::Tls => {
                return Some(format!("{} speaks TLS: use an address without it", self.to));
            }
        };
        let port = self.wire.port();
        is_other.then(|| {
            format!(
                "--to: {} speaks {}: use `sluicegate {instead}`, or another address (port {port} by default)",
                self.to,
                spoken.name()
            )
        })
    }

    /// Returns the number of connections of each thread.
    pub(super) fn shares(&self) -> impl Iterator<Item = usize> {
        let (each, more) = (self.connections / self.threads, self.connections % self.threads);
        (0..self.threads).map(move |thread| each + usize::from(thread < more))
    }
}

impl BenchProtocol {
    /// The port where a server listens for it by default.
    const fn port(self) -> u16 {
        match self {
            Self::Http => 8080,
            Self::Resp => 6380,
            Self::Rls => 8081,
        }
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("the command line is checked against a range within 32 bits")
}

fn password(file: &std::path::Path) -> Result<ConfigSecret> {
    let text = private::read_text(file, PASSWORD_FILE_BYTES_MAX);
    let text = text.with_context(|| format!("--password-file: cannot read {}", file.display()))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if !(1..=PASSWORD_BYTES_MAX).contains(&text.len()) {
        bail!("--password-file: `{}` bytes are outside 1..={PASSWORD_BYTES_MAX}", text.len());
    }
    Ok(ConfigSecret::new(text))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        bench: BenchArgs,
    }

    async fn plan(typed: &str) -> Result<BenchPlan> {
        let words = ["bench"].into_iter().chain(typed.split_whitespace());
        BenchPlan::new(Typed::try_parse_from(words)?.bench).await
    }

    #[tokio::test]
    async fn another_machine_is_loaded_only_by_those_who_say_so() {
        for to in ["192.0.2.1:8080", "http://[2001:db8::1]:80", "0.0.0.0:8080"] {
            let refused = plan(&format!("--policy p --to {to}")).await.unwrap_err().to_string();
            assert!(refused.ends_with("another machine: add --allow-remote"), "{refused}");
            assert!(plan(&format!("--policy p --to {to} --allow-remote")).await.is_ok());
        }
        for to in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "unix:/run/s", "localhost:1"] {
            assert!(plan(&format!("--policy p --to {to}")).await.is_ok(), "{to}");
        }
    }

    #[tokio::test]
    async fn numbers_outside_of_their_range_are_refused_with_it() {
        for (typed, problem) in [
            ("--connections 0", "--connections <N>': expected a whole number from 1 to 8192"),
            ("--pipeline 129", "--pipeline <N>': expected a whole number from 1 to 128"),
            ("--requests 0", "--requests <N>': expected a whole number from 1 to 86400000000"),
            ("--keys 100000001", "--keys <N>': expected a whole number from 1 to 100000000"),
            ("--rate 0", "--rate <N>': expected a whole number from 1 to 1000000"),
            ("--threads 65", "--threads <N>': expected a whole number from 1 to 64"),
            ("--cost 0", "--cost <N>': expected a whole number from 1 to 2147483648"),
            ("--duration 2d", "--duration: `2d` is outside 1us..=1d"),
            ("--duration 0s", "invalid duration `0s`: expected 1us to 366d"),
            ("--threads 2 --connections 1", "--threads: `2` is more than the 1 of --connections"),
            ("--pipeline 2", "--pipeline: `2` cannot be combined with http"),
            ("--password-file /nonexistent", "--password-file: cannot read /nonexistent"),
        ] {
            let error = plan(&format!("--policy p {typed}")).await.unwrap_err().to_string();
            assert!(error.contains(problem), "{typed}: {error}");
        }
    }

    #[tokio::test]
    async fn connections_are_shared_out_to_threads_evenly() {
        let plan = plan("resp --policy p --connections 8 --threads 3 --pipeline 2").await.unwrap();
        assert_eq!(plan.shares().collect::<Vec<_>>(), [3, 3, 2]);
        assert_eq!(plan.to, Target::loopback(6380));
    }
}
