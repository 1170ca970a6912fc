//! `sluicegate top`, `events`, `status`: the current state of a server, from its admin address.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sluicegate::Micros;
use sluicegate_control::traffic::EVENT_RESULTS;
use sluicegate_policy::nearest;
use sluicegate_text::human::Era;
use sluicegate_text::terminal::{self, OutputFormat};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_util::either::Either;

use super::http::HttpAnswer;
use super::target::{ADMIN_URL, Target, connect};
use super::tls::TlsRoots;
use super::{http, print_line, reply};

/// Longest wait for an answer: these requests do not wait for the store.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Longest line of a stream: an event is some hundred bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The admin address of a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdminArgs {
    /// Admin address of the server, or `unix:/path`.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8082",
        env = ADMIN_URL
    )]
    pub(crate) to: Target,
    #[command(flatten)]
    pub(crate) trust: TlsRoots,
}

/// Arguments of `sluicegate top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Name of the policy.
    policy: String,
    /// Number of keys, 1 to 64.
    #[arg(short, long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=64))]
    number: u8,
    #[command(flatten)]
    admin: AdminArgs,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// Arguments of `sluicegate events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Only decisions of this policy.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Only decisions with this result.
    #[arg(long, value_name = "RESULT", value_parser = EVENT_RESULTS)]
    result: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
}

/// Arguments of `sluicegate status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Deserialize)]
struct Top {
    top: Vec<TopKey>,
}

#[derive(Deserialize)]
struct TopKey {
    key: Option<String>,
    refused_at_least: u64,
    refused_at_most: u64,
}

#[derive(Deserialize)]
struct PoliciesReply {
    version: u64,
    source: Option<String>,
    error: Option<String>,
    policies: Vec<String>,
}

/// The answer to `/v1/store`.
#[derive(Deserialize)]
struct StoreReply {
    store: String,
    available: bool,
    since_ms: Option<u64>,
    error: Option<String>,
}

impl StoreReply {
    /// `store: redis://127.0.0.1:6379: ok`.
    fn line(&self) -> String {
        let store = terminal::one_line(&self.store);
        if self.available {
            return format!("store: {store}: ok");
        }
        let since = self.since_ms.map_or_else(String::new, |ms| {
            format!(" since {} UTC", Era::Unix.instant(Micros::from_secs(ms / 1_000)))
        });
        let error = self.error.as_deref().unwrap_or("no answer");
        format!(
            "store: {store}: unavailable{since}: {}; policies use `on_store_failure`",
            terminal::escaped(error)
        )
    }
}

/// The state of the catalog by the metrics of the server: `catalog: ok, revision 12`. `None`: there is no catalog.
fn catalog_line<'m>(value: impl Fn(&str) -> Option<&'m str>) -> Option<String> {
    let is = |name: &str| value(name).map(|value| value == "1");
    let revision = value("sluicegate_catalog_revision").unwrap_or("unknown");
    Some(match (is("sluicegate_catalog_up")?, is("sluicegate_catalog_writable")) {
        (false, _) => {
            format!(
                "catalog: unavailable; policies of revision {revision} stay in use; the log has the cause"
            )
        }
        (true, Some(false)) => {
            format!("catalog: revision {revision}; takes no changes; the log has the cause")
        }
        (true, _) => format!("catalog: ok, revision {revision}"),
    })
}

/// Prints the keys that were refused most.
pub(super) async fn top(args: &TopArgs) -> Result<ExitCode> {
    let path = format!("/v1/top?policy={}&n={}", http::encoded(&args.policy), args.number);
    let answer = get(&args.admin, &path).await?;
    if matches!(args.output, OutputFormat::Json) {
        print_line(str::from_utf8(&answer.body).context("the answer is not text")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Top { top } = read(&answer)?;
    if top.is_empty() {
        print_line(&format!("{}: no key was refused in the last five minutes", args.policy))?;
    }
    if top.iter().any(|top| top.key.as_deref().is_some_and(is_hash)) {
        terminal::print_error_line("keys are hashed; `admin.keys = \"clear\"` shows them");
    }
    for TopKey { key, refused_at_least, refused_at_most } in top {
        let count = match refused_at_least == refused_at_most {
            true => refused_at_most.to_string(),
            false => format!("{refused_at_least} to {refused_at_most}"),
        };
        let key = key.map_or_else(|| "(shared budget)".to_owned(), |key| terminal::one_line(&key));
        print_line(&format!("{count:>12}  {key}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether `key` is the hash of a key: `#` and 16 hexadecimal digits.
fn is_hash(key: &str) -> bool {
    let digits = key.strip_prefix('#').unwrap_or_default();
    digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Prints decisions as they are made, one JSON object a line, until it is interrupted.
pub(super) async fn events(args: &EventsArgs) -> Result<ExitCode> {
    let filter = [("policy", &args.policy), ("result", &args.result)];
    let filter = filter
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", http::encoded(value.as_ref()?))));
    let path = format!("/v1/events?{}", filter.collect::<Vec<_>>().join("&"));
    let PoliciesReply { policies, .. } = read(&get(&args.admin, "/v1/policies").await?)?;
    if let Some(policy) = &args.policy {
        warn_if_unknown(policy, &policies);
    }
    let AdminArgs { to, trust } = &args.admin;
    let stream = connect(&to.addresses().await?).await?;
    let stream = match to {
        Target::Tls { host, .. } => Either::Left(trust.greet(host, stream).await?),
        _ => Either::Right(stream),
    };
    let request = format!(
        "GET {path} HTTP/1.0\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n",
        to.authority()
    );
    let (reading, mut writing) = tokio::io::split(stream);
    writing.write_all(request.as_bytes()).await.with_context(|| to.to_string())?;
    let mut lines = BufReader::new(reading);
    let status = line(&mut lines).await?.unwrap_or_default();
    if !status.contains(" 200") {
        bail!("{to} answered `{}`", terminal::one_line(&status));
    }
    while let Some(line) = line(&mut lines).await? {
        let Some(event) = line.strip_prefix("data: ") else { continue };
        let event = terminal::escaped(event.trim_end());
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{event}").and_then(|()| out.flush()) {
            // The reader has closed the pipe.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            printed => printed.context("standard output")?,
        }
    }
    bail!("{to} ended the stream")
}

/// Warns that no events come, because the policy does not exist. Names in brackets are limits of callers.
fn warn_if_unknown(policy: &str, policies: &[String]) {
    if policy.starts_with('(') || policies.iter().any(|known| known == policy) {
        return;
    }
    let near = nearest(policy, policies.iter().map(String::as_str));
    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let policy = terminal::one_line(policy);
    terminal::print_error_line(format_args!("warning: no policy `{policy}`{near}"));
}

/// Prints whether the server is ready, its policies, and its store. Exit status 1: not ready.
pub(super) async fn status(args: &StatusArgs) -> Result<ExitCode> {
    let AdminArgs { to, trust } = &args.admin;
    let ready = http::send((to, trust), http::get("/readyz"), ANSWER_WAIT_MAX).await?;
    let is_ready = ready.status.is_success();
    let reason = reply::problem(ready.status, &ready.body);
    let PoliciesReply { version, source, error, policies } =
        read(&get(&args.admin, "/v1/policies").await?)?;
    print_line(&if is_ready { "ready".to_owned() } else { format!("not ready: {reason}") })?;
    let source = source
        .as_deref()
        .map_or_else(String::new, |source| format!(" from {}", terminal::one_line(source)));
    print_line(&format!("policies: {}{source}, version {version}", policies.len()))?;
    if let Some(error) = error {
        print_line(&format!("policies: last change rejected: {}", terminal::escaped(&error)))?;
    }
    let store: StoreReply = read(&get(&args.admin, "/v1/store").await?)?;
    print_line(&store.line())?;
    let metrics = get(&args.admin, "/metrics").await?;
    let metrics = String::from_utf8_lossy(&metrics.body);
    let value =
        |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    if let Some(line) = catalog_line(value) {
        print_line(&line)?;
    }
    if let Some(keys) = value("sluicegate_store_keys") {
        print_line(&format!("keys: {keys}"))?;
    }
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line without its end; none: the stream is over.
async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let count =
        from.take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes).await.context("the stream")?;
    Ok((count > 0).then(|| String::from_utf8_lossy(&bytes).trim_end().to_owned()))
}

async fn get(AdminArgs { to, trust }: &AdminArgs, path: &str) -> Result<HttpAnswer> {
    let answer =
        http::send_for((to, trust), http::get(path), ANSWER_WAIT_MAX, METRICS_BYTES_MAX).await?;
    if reply::is_no_path(&answer) {
        bail!("{}", elsewhere(to, path));
    }
    if !answer.status.is_success() {
        bail!("{}", reply::problem(answer.status, &answer.body));
    }
    Ok(answer)
}

/// The error for an address that does not have `path`.
fn elsewhere(to: &Target, path: &str) -> String {
    let path = path.split('?').next().unwrap_or(path);
    format!("{to} has no {path}: `--to` is the admin address, such as http://127.0.0.1:8082")
}

/// Largest answer: metrics of ten thousand policies.
const METRICS_BYTES_MAX: usize = 32 << 20;

fn read<T: DeserializeOwned>(answer: &HttpAnswer) -> Result<T> {
    serde_json::from_slice(&answer.body).context("the server did not answer as a Sluicegate does")
}
