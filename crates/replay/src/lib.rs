//! `sluicegate replay`: shows how policies would have decided the requests of a log or of events.
//!
//! The same engine as the server, with the time of the input: virtual time, as fast as the machine
//! goes. Memory does not depend on the length of the input.
//!
//! ```text
//!            ┌─▶ jsonl ────────────────────┐
//! source ────┤                             ├─▶ session ─┬─▶ output    decisions, in input order
//!  (lines)   └─▶ combined ─▶ logs ─▶ reorder┘    │ ▲      ├─▶ summary   printed at the end
//!                                               ▼ │      └─▶ progress  problems, as they come
//!                                             pending
//! ```
//!
//! `sluicegate policies whatif` (`whatif`) is the same with two engines side by side.
//!
//! [`jsonl`] and [`combined`] are pure: bytes in, an event or an error out.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic on a closed stream")]

mod chart;
pub mod combined;
mod decider;
pub mod error;
mod files;
mod held;
pub mod jsonl;
mod logs;
pub mod op;
mod output;
mod paths;
mod pending;
mod progress;
mod readable;
mod reorder;
mod request;
mod rules;
mod session;
mod source;
mod streamed;
mod summary;
pub mod whatif;

use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use chart::Picture;
use combined::{LogError, LogFormat};
use decider::Decider;
use files::OpenedFiles;
use logs::Logs;
use output::DecisionWriter;
use progress::Progress;
use readable::BadMax;
use rules::RuleTexts;
use session::ReplaySession;
use sluicegate::internals::http::{IpNet, TrustedProxies};
use sluicegate::internals::store::KEYS_MAX_DEFAULT;
use sluicegate::{Clock, Micros, MonotonicClock};
use sluicegate_policy::text::{TextError, span};
use sluicegate_policy::{KeyAttribute, PolicySet};
use sluicegate_text::documents;
use sluicegate_text::human::{self, Era};
use sluicegate_text::store::StoreName;
use sluicegate_text::terminal;
use source::{InputLine, LineReader};
use streamed::Streamed;
use summary::Summary;

/// Arguments of `sluicegate replay`.
#[derive(Debug, clap::Args)]
pub struct ReplayArgs {
    /// Policies to replay against (YAML or JSON).
    #[arg(long, value_name = "FILE")]
    policies: PathBuf,
    /// Input format; detected from the input by default.
    #[arg(long, value_enum)]
    format: Option<InputFormat>,
    /// Policy for log lines, and for events without one. Without it, all policies that match a log line decide
    /// it, as behind a gateway, or the only one.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Attributes that form the keys of log lines: `remote_ip`, `path`, `method`, `user_agent`,
    /// `status`. Default: the policy's key, else `remote_ip`.
    #[arg(long, value_name = "ATTRIBUTE", value_delimiter = ',', value_parser = KeyAttribute::parse)]
    key: Option<Vec<KeyAttribute>>,
    #[command(flatten)]
    clients: ClientArgs,
    /// Write one line of JSON per decision; `-` for standard output (the summary then goes to
    /// standard error).
    #[arg(long, value_name = "OUT.jsonl")]
    decisions: Option<PathBuf>,
    /// Draw allowed and refused requests over time, the limit, and the most refused keys.
    #[arg(long, value_name = "OUT.svg")]
    svg: Option<PathBuf>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Sort log lines up to this far out of order (at most 1,000,000 at a time). Later ones count as if they had
    /// just come.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = window)]
    reorder: Micros,
    /// Store of the counters: `memory`, or a Redis such as `redis://127.0.0.1:6379`, under keys
    /// of this replay only. The decisions are the same; each waits up to 10 s for its reply, whatever `deadline_ms`
    /// the URL has.
    #[arg(long, value_name = "STORE", default_value = "memory")]
    store: String,
    /// Fail (exit status 1) if more of the input than this could not be read. Default: 1% of the lines of a log, no
    /// event. An input of which nothing could be read always fails.
    #[arg(long, value_name = "PERCENT")]
    bad_max: Option<BadMax>,
    /// Maximum number of keys in memory; beyond it, keys with the most budget left are evicted, or new keys share one
    /// budget.
    #[arg(long, value_name = "N", default_value_t = KEYS_MAX_DEFAULT, value_parser = keys_max)]
    keys_max: usize,
    /// The events or the log, plain or gzip; `-` for standard input.
    #[arg(value_name = "INPUT")]
    input: PathBuf,
}

/// The format of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum InputFormat {
    /// One event a line, as JSON.
    Jsonl,
    /// Decisions of a server, as `sluicegate events` and `/v1/events` have them.
    Events,
    /// An access log of Apache or nginx.
    Combined,
    /// An access log with the host in front of each line, as Apache's `vhost_combined` has it.
    #[value(name = "vhost_combined")]
    VhostCombined,
}

/// Options for the clients in a log.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClientArgs {
    /// Proxies in front of the server that wrote the log. Where a line begins with a list of addresses, the
    /// client is the last one that is not theirs. Without this, such a line is a bad line.
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', value_parser = network)]
    trusted_proxies: Option<Vec<IpNet>>,
    /// The first field of a line may be the name of a client instead of an address.
    #[arg(long)]
    client_names: bool,
}

impl ClientArgs {
    /// Returns the format of lines; `has_host`: they begin with the host of the request.
    fn format(&self, has_host: bool) -> LogFormat {
        let Self { trusted_proxies, client_names } = self;
        let proxies = trusted_proxies.clone().map(TrustedProxies::new);
        LogFormat { has_host, has_client_names: *client_names, proxies }
    }
}

/// Replays, writes the requested files, and prints a summary. The exit code is 1 if more of the input than
/// `--bad-max` could not be read, nothing of it, or not to its end, or if no policy matches a line.
///
/// # Errors
/// If the replay cannot begin (policies, input, options) or its results cannot be written.
pub fn run(args: &ReplayArgs) -> Result<ExitCode> {
    if is_dash(&args.policies) && is_dash(&args.input) {
        bail!("--policies: the policies and the input cannot both be standard input");
    }
    if args.svg.as_deref().is_some_and(is_dash) {
        bail!("--svg: expected a file; standard output is used for the summary");
    }
    let (document, policies) = load(&args.policies)?;
    let input = terminal::input(&args.input);
    let mut source = LineReader::open(&args.input).with_context(|| input.clone())?;
    let guessed = || guess(source.peek(), &args.clients);
    let format = args.format.map_or_else(guessed, Ok);
    let format = format.map_err(|unknown| anyhow!("{input}: {unknown}"))?;
    let mut logs = log_lines(args, format, &policies)?;
    let mut events =
        (format == InputFormat::Events).then(|| Streamed::new(args.policy.clone(), args.reorder));
    let mut files = OpenedFiles::reading("the input", &args.input, &args.policies);
    let mut create = |option, path: &Option<PathBuf>| {
        path.as_deref().map(|path| files.create(option, path)).transpose()
    };
    let decisions = create("--decisions", &args.decisions)?;
    let picture = create("--svg", &args.svg)?;
    let output = DecisionWriter::new(decisions);
    let progress = Progress::new(input.clone(), source.bytes());
    let decider = match StoreName::parse(&args.store).context("--store")? {
        StoreName::Memory => Decider::in_memory(policies.clone(), args.keys_max),
        StoreName::Redis(config) => {
            Decider::in_redis(policies.clone(), &config).context("--store")?
        }
    };
    let session = ReplaySession::new(decider, output, progress);
    let mut session = session.with_policy(args.policy.clone());

    let begin = MonotonicClock.now();
    let read = read_all(&mut source, &mut session, logs.as_mut(), events.as_mut());
    match session.finish() {
        // The reader of the decisions has stopped reading.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::FAILURE),
        written => written.context("--decisions")?,
    }
    let elapsed = MonotonicClock.now().since(begin);
    if let Err(error) = &read {
        let line = source.line_number();
        terminal::print_error_line(format_args!(
            "error: {input}: cannot read past line {line}: {error}"
        ));
    }
    let (summary, era) = print_summary(args, &session, format, read.is_ok())?;
    if let Some(mut picture) = picture {
        let svg = draw(
            args,
            &summary,
            era,
            &PolicyTexts { document, policies, logs, now: session.policies() },
        );
        let drawn = picture.write_all(svg.as_bytes()).and_then(|()| picture.flush());
        terminal::unless_closed(drawn).context("--svg")?;
    }
    print_speed(session.tally.events(), elapsed);
    if format == InputFormat::Jsonl
        && let Some(unit) = summary.looks_like()
    {
        print_unit(&input, unit);
    }
    let (unit, bad_max) = match format {
        InputFormat::Jsonl | InputFormat::Events => ("event", BadMax::OF_EVENTS),
        InputFormat::Combined | InputFormat::VhostCombined => ("line", BadMax::OF_LOGS),
    };
    let (bad, all) = (session.tally.errors, session.tally.events());
    let readable = args.bad_max.unwrap_or(bad_max).check(unit, bad, all);
    let readable = readable.and_then(|()| session.tally.check_matched());
    Ok(exit_code(&input, &read, &readable))
}

/// Returns the status of a command that read `input`: a failure if it could not be read to its end, or too little of it
/// was readable. Prints the latter to standard error.
fn exit_code(
    input: &str,
    read: &io::Result<()>,
    readable: &Result<(), readable::UnreadableInput>,
) -> ExitCode {
    if let Err(error) = readable {
        terminal::print_error_line(format_args!("error: {input}: {error}"));
    }
    if read.is_ok() && readable.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the text of a document, and its policies.
fn load(path: &Path) -> Result<(String, PolicySet)> {
    let (text, document) = documents::load_with_text(path)?;
    // A log does not record apps, so every policy is for every app.
    Ok((text, PolicySet::new(document.for_every_app())))
}

/// Returns the reader that turns lines of a log into checks; `None` if the input holds events.
fn log_lines(args: &ReplayArgs, format: InputFormat, policies: &PolicySet) -> Result<Option<Logs>> {
    match format {
        InputFormat::Jsonl | InputFormat::Events if args.key.is_some() => {
            bail!("--key: requires `--format combined`; events contain their keys");
        }
        InputFormat::Jsonl | InputFormat::Events => {
            if let Some(name) = &args.policy {
                logs::named(policies, name)?;
            }
            Ok(None)
        }
        InputFormat::Combined | InputFormat::VhostCombined => {
            let (policy, key) = (args.policy.as_deref(), args.key.clone());
            logs::check_choice(policies, policy)?;
            let lines = args.clients.format(format == InputFormat::VhostCombined);
            Ok(Some(Logs::new(policies, policy, key, lines, args.reorder)?))
        }
    }
}

fn read_all(
    source: &mut LineReader,
    session: &mut ReplaySession,
    mut logs: Option<&mut Logs>,
    mut events: Option<&mut Streamed>,
) -> io::Result<()> {
    let read = source.each_line(
        session,
        |session| &session.progress,
        |session, number, line| {
            match (line, &mut logs, &mut events) {
                (InputLine::Bytes(bytes), Some(logs), _) => logs.line(number, bytes, session),
                (InputLine::Bytes(bytes), None, Some(events)) => {
                    events.line(number, bytes, session);
                }
                (InputLine::Bytes(bytes), None, None) => session.event(number, bytes),
                (InputLine::TooLong, ..) => {
                    session.failed(number, None, &error::EventError::LongLine);
                }
            }
            if session.is_stuck() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    if let Some(logs) = logs {
        logs.finish(session);
    }
    if let Some(events) = events {
        events.finish(session);
    }
    read
}

/// Prints the summary, and returns it with the zero of its instants. The input was of `format`, and read to its end
/// if it is `complete`.
fn print_summary(
    args: &ReplayArgs,
    session: &ReplaySession,
    format: InputFormat,
    complete: bool,
) -> Result<(Summary, Era)> {
    let summary = session.tally.summary(complete);
    let input = title(&args.input);
    let (era, bad) = match format {
        InputFormat::Combined | InputFormat::VhostCombined => (Era::Unix, "bad lines"),
        InputFormat::Jsonl | InputFormat::Events => (summary.era(), "bad events"),
    };
    let mut text = Vec::new();
    if args.json {
        serde_json::to_writer_pretty(&mut text, &summary)?;
        text.push(b'\n');
    } else {
        summary.write(&mut text, &input, era, bad)?;
    }
    let written = if args.decisions.as_deref().is_some_and(is_dash) {
        terminal::unless_closed(io::stderr().write_all(&text))
    } else {
        terminal::print(&text)
    };
    written.context("the summary")?;
    Ok((summary, era))
}

/// The sources of the title of a picture.
struct PolicyTexts {
    document: String,
    policies: PolicySet,
    logs: Option<Logs>,
    /// The policies at the end of the replay.
    now: Arc<PolicySet>,
}

fn draw(args: &ReplayArgs, summary: &Summary, era: Era, texts: &PolicyTexts) -> String {
    let PolicyTexts { document, policies, logs, now } = texts;
    let name = summary.policy.as_deref();
    let policy = name.and_then(|name| policies.resolve(name));
    let unchanged = policy.filter(|policy| {
        now.resolve(policy.name()).is_some_and(|now| now.rules() == policy.rules())
    });
    let rules = unchanged.and_then(|policy| RuleTexts::of(document, policy.name()));
    let key = logs.as_ref().zip(policy).map(|(logs, policy)| logs.key_text(policy));
    let (input, rules, key) = (title(&args.input), rules.as_ref(), key.as_deref());
    chart::svg(&Picture { input: &input, era, summary, rules, key })
}

fn print_unit(input: &str, unit: &str) {
    terminal::print_error_line(format_args!(
        "note: {input}: `at_us` is in microseconds; these instants look like {unit} since 1970"
    ));
}

fn print_speed(events: u64, elapsed: Micros) {
    if events == 0 {
        return;
    }
    let per_second = u128::from(events) * 1_000_000 / u128::from(elapsed.get().max(1));
    let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
    let (events, per_second) = (human::thousands(events), human::thousands(per_second));
    let elapsed = human::span(elapsed);
    let s = if events == "1" { "event" } else { "events" };
    terminal::print_error_line(format_args!(
        "replayed {events} {s} in {elapsed}: {per_second} events/s"
    ));
}

/// Returns the format of an input that begins with `head`: that of the first line in one of them.
///
/// # Errors
/// A text that names the first line, if no line is of a format.
fn guess(head: &[u8], clients: &ClientArgs) -> Result<InputFormat, String> {
    for line in head.split(|byte| *byte == b'\n') {
        if streamed::is_streamed(line) {
            return Ok(InputFormat::Events);
        }
        if begins_object(line) && has_instant(head) {
            return Ok(InputFormat::Jsonl);
        }
        if begins_object(line) {
            return Err("JSON without `at_us`, so no events: access logs in JSON are not read; \
                        log in the format `combined`"
                .to_owned());
        }
        if let Some(has_host) = host_in_front(line, clients) {
            return Ok(if has_host { InputFormat::VhostCombined } else { InputFormat::Combined });
        }
    }
    let first = head.split(|byte| *byte == b'\n').find(|line| !line.trim_ascii().is_empty());
    match first {
        // An empty input is of any format.
        None => Ok(InputFormat::Jsonl),
        Some(line) if let Some(problem) = log_problem(line) => {
            Err(format!("an access log whose lines cannot be read: {problem}"))
        }
        Some(line) => Err(format!(
            "neither an access log nor events: the first line is `{}`; expected lines as Apache and nginx write them \
             (`combined`), or JSON such as `{{\"at_us\":0,\"policy\":\"p\",\"key\":\"k\"}}`",
            terminal::one_line(&String::from_utf8_lossy(line))
        )),
    }
}

/// Returns the problem of a line of an access log: its time, or a prefix before the client.
fn log_problem(line: &[u8]) -> Option<LogError> {
    let found = LogFormat::default().parse(line).err();
    found.filter(|error| matches!(error, LogError::IsoTime(_) | LogError::Prefix(_)))
}

/// Returns whether `head`, the beginning of an input, has the field that every event has.
fn has_instant(head: &[u8]) -> bool {
    const FIELD: &[u8] = b"\"at_us\"";
    head.windows(FIELD.len()).any(|part| part == FIELD)
}

/// Returns whether `line` begins an object of JSON, behind the mark of an encoding.
fn begins_object(line: &[u8]) -> bool {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii_start().starts_with(b"{")
}

/// Returns whether `line` of an access log begins with the host of the request; `None`: it is not of such a log.
fn host_in_front(line: &[u8], clients: &ClientArgs) -> Option<bool> {
    let line = String::from_utf8_lossy(line);
    let is_in = |has_host| match clients.format(has_host).parse(line.as_bytes()) {
        Ok(_) => true,
        // Lines of the format, whose budgets cannot be determined.
        Err(LogError::ClientList(_) | LogError::Path(..)) => true,
        Err(_) => false,
    };
    // Without an address of a client, the first field may be the name of one.
    let names = ClientArgs { client_names: true, ..clients.clone() };
    match is_in(false) || names.format(false).parse(line.as_bytes()).is_ok() {
        true => Some(false),
        false => is_in(true).then_some(true),
    }
}

/// Returns the name of an input above its summary: its file name, or that of standard input.
fn title(path: &Path) -> String {
    terminal::input(path.file_name().map_or(path, Path::new))
}

/// Returns whether `path` is `-`, standard input or output.
#[must_use]
pub fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn window(text: &str) -> Result<Micros, TextError> {
    if text == "0" { Ok(Micros::ZERO) } else { span(text) }
}

fn network(text: &str) -> Result<IpNet, String> {
    let expected =
        "expected an address or a network, such as 10.0.0.0/8; names of hosts are not looked up";
    text.parse().map_err(|_| expected.to_owned())
}

fn keys_max(text: &str) -> Result<usize, String> {
    /// A hundred million keys take 20 GB: more is a typing error.
    const KEYS_MAX_MAX: usize = 100_000_000;
    let keys = text.parse().ok().filter(|keys| (1..=KEYS_MAX_MAX).contains(keys));
    keys.ok_or_else(|| format!("`{text}` is not a whole number 1..={KEYS_MAX_MAX}"))
}
